package runtime

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"rota/internal/clock"
)

// alarm rings at a time of CLOCK_BOOTTIME, which unlike Go's timers goes on while
// the machine sleeps: a lease does not stop either.
type alarm struct {
	fd   int
	file *os.File

	mu sync.Mutex
	at int64 // clock.Boottime; 0: off
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make deadline timer: %w", err)
	}
	return &alarm{fd: fd, file: os.NewFile(uintptr(fd), "deadline")}, nil
}

// set replaces the time; 0 turns the alarm off.
func (a *alarm) set(boottimeNS int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = boottimeNS
	return a.arm()
}

// arm sets the timer. Called with mu held.
func (a *alarm) arm() error {
	var spec unix.ItimerSpec
	if a.at != 0 {
		spec.Value = unix.NsecToTimespec(clock.Wake(a.at))
	}
	if err := unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		return fmt.Errorf("set deadline timer: %w", err)
	}
	return nil
}

// watch calls ring each time, until the process ends.
func (a *alarm) watch(ring func()) {
	var count [8]byte
	for {
		if _, err := a.file.Read(count[:]); err != nil {
			return
		}
		if a.due() {
			ring()
		}
	}
}

// due says whether the time has come, and arms the timer again if it has not:
// it was moved, or woken by a clock that could have been changed.
func (a *alarm) due() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at == 0 || clock.Boottime() >= a.at {
		return a.at != 0
	}
	if err := a.arm(); err != nil {
		panic(err) // what was a time before is one now
	}
	return false
}
