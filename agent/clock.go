package agent

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// boottime is CLOCK_BOOTTIME in nanoseconds: monotonic, the same for agent and
// supervisor, and it goes on while the machine sleeps.
func boottime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("agent: CLOCK_BOOTTIME: %v", err)) // every Linux since 2.6.39 has it
	}
	return ts.Nano()
}

// readBootID identifies the current boot of the machine.
func readBootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot ID: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
