//go:build faults

package clock

import (
	"fmt"
	"os"
	"time"

	"rota/internal/clock/boottime"
	"rota/internal/clock/clockctl"
)

// wakeMax bounds how late a timer notices that the clock was changed.
const wakeMax = int64(50 * time.Millisecond)

// followed is what clockctl writes; nil without ROTA_CLOCK.
var followed = follow(os.Getenv(Env))

// started is the time when this process began, by both clocks. What has passed
// since is measured by the one that can be changed.
var started, startedNS = func() (time.Time, int64) {
	ns := Boottime()
	return time.Now().Add(time.Duration(ns - boottime.Now())), ns
}()

// follow ends the process if it cannot: a test of clocks on the true time would
// test nothing.
func follow(path string) *clockctl.Follower {
	if path == "" {
		return nil
	}
	f, err := clockctl.Follow(path)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Env, err)
		os.Exit(1)
	}
	return f
}

// Now is the time.
func Now() time.Time {
	if followed == nil {
		return time.Now()
	}
	return started.Add(time.Duration(Boottime() - startedNS))
}

// Boottime is CLOCK_BOOTTIME in nanoseconds, faster or slower and ahead.
func Boottime() int64 {
	if followed == nil {
		return boottime.Now()
	}
	return followed.Now()
}

// Wake returns the true CLOCK_BOOTTIME at which to look at Boottime again, in
// order not to miss a time of it.
func Wake(boottimeNS int64) int64 {
	if followed == nil {
		return boottimeNS
	}
	return min(followed.True(boottimeNS), boottime.Now()+wakeMax)
}
