// Package boottime reads the machine's CLOCK_BOOTTIME: the clock below package
// clock, which everybody else uses.
package boottime
