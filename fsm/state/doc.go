// Package state holds what rota replicates: copy-on-write tables of rows, the
// indexes over them, their hash and their invariants.
//
// It is apart from fsm so that the scheduler can read it without being able to
// change it, and so that a snapshot is nothing more than a copy of the tables.
//
// Three rules make replicas equal. Every write goes through a Put or Delete of
// this package, which keeps the incremental hash and the indexes in step. Rows
// are never changed in place: a write stores a new row, so a copy of the state
// stays what it was. Nothing here reads a clock, ranges over a Go map or does
// floating-point arithmetic.
package state
