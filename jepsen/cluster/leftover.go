package cluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// isGone reports whether the run of a name is over. Runs are named after the
// process that started them; those inside another one have its name before that.
func isGone(name string) bool {
	outermost, _, _ := strings.Cut(strings.TrimPrefix(name, runPrefix), "-")
	pid, err := strconv.Atoi(outermost)
	return err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// removeLeftovers removes what runs have left outside their namespaces: cgroups
// and temporary files. Nothing runs in them any more.
func removeLeftovers(of func(name string) bool) {
	for _, dir := range runFolders(os.TempDir(), of) {
		_ = os.RemoveAll(dir)
	}
	removeCgroups(of)
}

// removeCgroups removes the cgroups of runs.
func removeCgroups(of func(name string) bool) {
	for _, parent := range cgroupParents() {
		for _, dir := range runFolders(parent, of) {
			removeCgroup(dir)
		}
	}
}

// runFolders are the folders of runs in a folder.
func runFolders(parent string, of func(name string) bool) (dirs []string) {
	entries, _ := os.ReadDir(parent) // it need not exist
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), runPrefix) && of(e.Name()) {
			dirs = append(dirs, filepath.Join(parent, e.Name()))
		}
	}
	return dirs
}

// cgroupParents are the folders in which agents make the cgroup of a run: the
// roots of all hierarchies, and in v2 also the part that is ours.
func cgroupParents() (dirs []string) {
	own := ownCgroups(os.Getpid())
	for _, h := range hierarchies() {
		dirs = append(dirs, h.mount, filepath.Join(h.mount, own[h.key]))
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// leaving is how long a process that was killed may take to leave its cgroup.
const leaving = 2 * time.Second

// removeCgroup removes a cgroup with those in it. One that is still in use stays.
func removeCgroup(dir string) {
	var all []string
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	slices.Reverse(all)
	deadline := time.Now().Add(leaving)
	for _, path := range all {
		for errors.Is(syscall.Rmdir(path), syscall.EBUSY) && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
	}
}
