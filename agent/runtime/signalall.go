package runtime

import (
	"errors"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalsAtOnce is how many processes are held by descriptors at a time.
const signalsAtOnce = 256

// signalAll sends a signal to the processes that are found. A process may end in between, and its
// number may then be that of a process of somebody else. So each is held by a descriptor, and only
// what is found again while it is held gets the signal.
func signalAll(find func() []int, sig syscall.Signal) {
	for pids := range slices.Chunk(find(), signalsAtOnce) {
		held := make(map[int]int, len(pids))
		for _, pid := range pids {
			fd, err := unix.PidfdOpen(pid, 0)
			if errors.Is(err, syscall.ESRCH) {
				continue
			}
			if err != nil {
				fd = -1 // Linux before 5.3, or no descriptor is free
			}
			held[pid] = fd
		}
		for _, pid := range find() {
			switch fd, ok := held[pid]; {
			case ok && fd >= 0:
				_ = unix.PidfdSendSignal(fd, sig, nil, 0)
			case ok:
				_ = syscall.Kill(pid, sig)
			}
		}
		for _, fd := range held {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
	}
}
