// Package hostile runs those who mean harm beside the ordinary load of a cluster: a
// client and an agent with valid certificates of their role, and a command on each node.
//
// They are a program of its own, intruder, so that what they cost does not count
// against the clients whose waiting is measured. It knows of each attempt how it must be
// answered, and tells in the end what it tried and what it achieved but must not.
package hostile
