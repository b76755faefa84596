package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// hierarchy is a mounted tree of cgroups.
type hierarchy struct {
	// key is what /proc/PID/cgroup calls it: the controllers, empty for v2.
	key   string
	mount string
}

// freezes reports whether it is the one with the freezer of v1.
func (h hierarchy) freezes() bool { return slices.Contains(strings.Split(h.key, ","), "freezer") }

// v2 is the key of the unified hierarchy.
const v2 = ""

// hierarchies are those that are mounted.
func hierarchies() (all []hierarchy) {
	raw, _ := os.ReadFile("/proc/self/mountinfo") // without it there are none
	for line := range strings.Lines(string(raw)) {
		// 31 23 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
		before, after, _ := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(kind) < 3 {
			continue
		}
		switch kind[0] {
		case "cgroup2":
			all = append(all, hierarchy{v2, fields[4]})
		case "cgroup":
			all = append(all, hierarchy{v1Key(kind[2]), fields[4]})
		}
	}
	return all
}

// v1Key leaves only the controllers of the options of a mount.
func v1Key(options string) string {
	controllers := slices.DeleteFunc(strings.Split(options, ","), func(o string) bool {
		return slices.Contains([]string{"rw", "ro", "clone_children", "noprefix", "xattr"}, o) ||
			strings.HasPrefix(o, "release_agent=")
	})
	return strings.Join(controllers, ",")
}

// ownCgroups are the cgroups of a process by hierarchy.
func ownCgroups(pid int) map[string]string {
	own := map[string]string{}
	raw, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup")) // it may be gone
	for line := range strings.Lines(strings.TrimSpace(string(raw))) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			own[f[1]] = f[2]
		}
	}
	return own
}

// Controllers are those that agents can confine actions with on this machine.
func Controllers() (all []string) {
	for _, h := range hierarchies() {
		if h.key != v2 {
			all = append(all, strings.Split(h.key, ",")...)
			continue
		}
		raw, _ := os.ReadFile(filepath.Join(h.mount, "cgroup.controllers")) // without it there are none
		all = append(all, strings.Fields(string(raw))...)
	}
	return all
}
