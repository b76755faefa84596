//go:build !linux

package boottime

import "time"

var began = time.Now()

// Now is the monotonic clock in nanoseconds, which may stand still while the machine
// sleeps.
func Now() int64 { return 1 + int64(time.Since(began)) }
