//go:build !faults

package clock

import (
	"time"

	"rota/internal/clock/boottime"
)

// Now is time.Now. Only differences of two of its values may be used, as with
// time.Time.Sub: time.Since compares with the true time.
func Now() time.Time { return time.Now() }

// Boottime is CLOCK_BOOTTIME in nanoseconds: it never goes back, is the same for
// all processes of a machine, and goes on while the machine sleeps.
func Boottime() int64 { return boottime.Now() }

// Wake returns the CLOCK_BOOTTIME at which a timer of the kernel has to ring for
// a time of Boottime. Whoever is woken looks at Boottime and may have to wait
// again: where the clock can be changed, Wake is never far away.
func Wake(boottimeNS int64) int64 { return boottimeNS }
