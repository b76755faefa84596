package runtime

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// This file reads and writes control files for what happens at each attempt;
// the cgroups library does the rest. Measured with BenchmarkControlFiles on a
// hybrid machine, directly and through the library: limits 20 and 380 µs,
// statistics 65 and 270, whether it is empty 17 and 120, making and removing
// 350 and 1350. A bare fork and exec takes 600.

// inheritCpuset gives a new v1 cpuset what its parent has: it starts with
// nothing, and then nothing can run in it. Its CPUs are balanced with those of its parent.
// If it asked for that itself, the kernel would look at all cpusets of the machine each time
// that its CPUs change (kernel documentation, cgroup-v1/cpusets, 1.7).
func inheritCpuset(dir string) error {
	if err := writeFile(filepath.Join(dir, "cpuset.sched_load_balance"), "0"); err != nil {
		return err
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		if readString(filepath.Join(dir, name)) != "" {
			continue
		}
		if err := writeFile(filepath.Join(dir, name), readString(filepath.Join(filepath.Dir(dir), name))); err != nil {
			return err
		}
	}
	return nil
}

// readString returns the content of a small file without the space around it,
// and nothing if it cannot be read.
func readString(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func readUint(path string) uint64 {
	n, err := strconv.ParseUint(readString(path), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// readField returns the value of a line "name value".
func readField(path, name string) uint64 {
	for line := range strings.Lines(readString(path)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == name {
			n, err := strconv.ParseUint(v, 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}

func readPIDs(path string) []int {
	var pids []int
	for _, f := range strings.Fields(readString(path)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// writeFile writes to a control file with one write(2) and without the poller,
// which is what makes it cheap. It must not create: a cgroup without the
// controller lacks the file.
func writeFile(path, value string) error {
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	_, err = syscall.Write(fd, []byte(value))
	syscall.Close(fd)
	if err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}
