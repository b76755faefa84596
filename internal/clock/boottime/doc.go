// Package boottime reads the machine's CLOCK_BOOTTIME: the clock below package
// clock, which everybody else uses. Where there is no such clock, which is where only
// the client library runs, it is the monotonic one.
package boottime
