// Package removal removes the trees of files that commands leave behind.
//
// An agent without root cannot empty a directory that its own commands have made read-only, as Go
// does with its cache of modules: what cannot be removed is opened up first.
package removal
