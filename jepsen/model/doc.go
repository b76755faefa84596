// Package model says a second time what the state machine must do, so that the
// two can be compared after every entry.
//
// It is written from the documents (concepts.md, scheduling.md, operations.md),
// as plainly as can be: maps, slices and sums, no indexes, no copy on write, no
// work list. What the documents fix, it predicts: results and refusals, IDs,
// replays, fencing, the events of every command and timer. What they leave open,
// such as which of two actions is granted first within an entry, it takes from
// the events and judges: was it allowed, was it this one's turn, was something
// left waiting that should have started.
//
// A step costs what the entry changed. Compare looks at everything.
package model
