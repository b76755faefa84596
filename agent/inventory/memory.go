package inventory

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// reserve is what the machine keeps for itself: a tenth, at most 2 GiB.
func reserve(total uint64) uint64 { return min(total/10, 2<<30) }

// readMemory returns the memory that may be used: the machine's, or the
// smallest limit of the control groups this process is in, less the reserve.
func readMemory(root string) (uint64, error) {
	total, err := memTotal(root)
	if err != nil {
		return 0, err
	}
	if limit := cgroupLimit(root); limit > 0 {
		total = min(total, limit)
	}
	return total - reserve(total), nil
}

func memTotal(root string) (uint64, error) {
	path := filepath.Join(root, "proc/meminfo")
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("inventory: %w", err)
	}
	scanner := bufio.NewScanner(bytes.NewReader(b))
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		if len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			kib, err := strconv.ParseUint(fields[1], 10, 53)
			if err != nil {
				return 0, fmt.Errorf("inventory: %s: %w", path, err)
			}
			return kib << 10, nil
		}
	}
	return 0, errors.New("inventory: " + path + " has no MemTotal")
}

// cgroupLimit returns the smallest memory limit from the own control group up
// to the root, 0 for none. /proc/self/cgroup names the group of each hierarchy:
// "0::/path" for version 2, "5:memory:/path" for version 1.
func cgroupLimit(root string) uint64 {
	b, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0
	}
	var limit uint64
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[0] == "0" && parts[1] == "":
			limit = smaller(limit, limitUpwards(filepath.Join(root, "sys/fs/cgroup"), parts[2], "memory.max"))
		case hasController(parts[1], "memory"):
			limit = smaller(limit, limitUpwards(filepath.Join(root, "sys/fs/cgroup/memory"), parts[2], "memory.limit_in_bytes"))
		}
	}
	return limit
}

// limitUpwards reads the limit of a group and of those it is in. In a
// container the path may not exist, and only the mount's own root can be read.
func limitUpwards(mount, group, file string) uint64 {
	var limit uint64
	for dir := filepath.Clean("/" + group); ; dir = filepath.Dir(dir) {
		b, err := os.ReadFile(filepath.Join(mount, dir, file))
		if err == nil {
			if v, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err == nil {
				limit = smaller(limit, v)
			}
		}
		if dir == "/" {
			return limit
		}
	}
}

// smaller is the lesser of two limits of which 0 means none.
func smaller(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return a | b
	}
	return min(a, b)
}

func hasController(list, name string) bool {
	for c := range strings.SplitSeq(list, ",") {
		if c == name {
			return true
		}
	}
	return false
}
