// Package report says what a run under faults found, once for people and once
// for programs: the faults as they happened, what clients felt around each,
// what every checker concluded, and what it takes to run it again. Everything
// in it is computed from the record, so that a stored record gives the same
// report.
package report
