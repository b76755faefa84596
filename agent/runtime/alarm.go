package runtime

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// alarm rings at a time of CLOCK_BOOTTIME, which unlike Go's timers goes on while
// the machine sleeps: a lease does not stop either.
type alarm struct {
	fd   int
	file *os.File
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
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(boottimeNS)}
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
		ring()
	}
}

// Boottime is CLOCK_BOOTTIME now, in nanoseconds.
func Boottime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("CLOCK_BOOTTIME: " + err.Error()) // there since Linux 2.6.39
	}
	return ts.Nano()
}
