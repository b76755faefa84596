// Package handshake bounds the connections of a port that have not said yet who they are.
//
// When there are too many, the one that has waited the longest goes: a real client needs
// milliseconds for its handshake, and one that sends nothing must not keep others out.
package handshake
