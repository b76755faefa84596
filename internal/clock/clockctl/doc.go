// Package clockctl changes the clock of other processes, built with -tags
// faults: of all that have the same file mapped, and those are the agent and the
// supervisor of one machine.
//
// The file holds one line in the plane of true and shown time: a point, and the
// slope from there on. A change of speed begins a new line where the old one is,
// so shown time is continuous but for the jumps that are asked for, and like
// CLOCK_BOOTTIME it never goes back.
package clockctl
