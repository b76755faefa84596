// Package clock is the time by which leases, deadlines and log time are
// measured. Only differences count, so it need not be right, but two clocks that
// run at different speeds, and one that jumps because its machine slept, are what
// the margin of a lease is for, and that has to be tried.
//
// Built as usual it is time.Now and CLOCK_BOOTTIME and nothing else. Built with
// -tags faults, a process whose environment names a file in ROTA_CLOCK follows
// what package clockctl writes into it: a speed and jumps, for all processes of
// one machine alike.
package clock
