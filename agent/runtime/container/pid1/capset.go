package pid1

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setCapabilities sets those of every thread.
func setCapabilities(header *unix.CapUserHeader, caps *[2]unix.CapUserData) error {
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(header)), uintptr(unsafe.Pointer(caps)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
