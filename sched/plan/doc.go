// Package plan decides what takes too long to be decided inside Apply.
//
// The leader plans on a copy of the state, and proposes what it found: moves, each
// with what it was planned upon. The state machine does those whose preconditions
// still hold and refuses the others, so a plan that comes late, twice or from a leader
// that was deposed does no harm.
package plan
