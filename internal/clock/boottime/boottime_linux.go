package boottime

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Now is CLOCK_BOOTTIME in nanoseconds.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("CLOCK_BOOTTIME: %v", err)) // every Linux since 2.6.39 has it
	}
	return ts.Nano()
}
