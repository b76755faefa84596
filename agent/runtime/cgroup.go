package runtime

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// hierarchy is a mounted cgroup tree and this supervisor's part of it.
type hierarchy struct {
	v2          bool
	mount       string
	controllers []string // v1: of the mount; v2: enabled for boxes
	base        string   // holds one cgroup per attempt, and the supervisor's
}

func (h *hierarchy) has(controller string) bool { return slices.Contains(h.controllers, controller) }

// boxControllers are used for boxes wherever they are. pids is not among them:
// an attempt has no limit of processes. In v1 the freezer makes killing
// complete and cpuacct counts; v2 has both in every cgroup.
var boxControllers = []string{"cpuset", "memory"}

// supervisorCgroup is the name, beside the boxes, of where the supervisor is.
const supervisorCgroup = "supervisor"

// othersCgroup is where the processes of a delegated cgroup are moved, so that
// it can have cgroups with controllers in it.
const othersCgroup = "rota-others"

// readMounts finds the cgroup mounts in a mountinfo file, the first of each kind.
func readMounts(r io.Reader) []*hierarchy {
	var out []*hierarchy
	seen := make(map[string]bool)
	for s := bufio.NewScanner(r); s.Scan(); {
		left, right, ok := strings.Cut(s.Text(), " - ")
		l, f := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(f) < 3 || (f[0] != "cgroup" && f[0] != "cgroup2") {
			continue
		}
		h := &hierarchy{v2: f[0] == "cgroup2", mount: unescapeMount(l[4])}
		if !h.v2 {
			h.controllers = slices.DeleteFunc(strings.Split(f[2], ","), func(o string) bool {
				return o == "rw" || o == "ro"
			})
		}
		if id := f[0] + strings.Join(h.controllers, ","); !seen[id] {
			seen[id] = true
			out = append(out, h)
		}
	}
	return out
}

// unescapeMount undoes the octal escapes of mountinfo.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// wanted says whether a hierarchy is of use in a mode. The named v1 hierarchy
// of systemd is not for boxes, but the supervisor has to leave the agent's
// service in it.
func wanted(h *hierarchy, mode string, v2 bool) bool {
	if h.v2 {
		return mode != ModeCgroupV1
	}
	if mode == ModeCgroupV2 {
		return false
	}
	if h.has("cpuset") || h.has("memory") {
		return true
	}
	return !v2 && (h.has("freezer") || h.has("cpuacct"))
}

// cgroupName names this supervisor's cgroup after its directory.
func cgroupName(dir string) string {
	h := fnv.New64a()
	h.Write([]byte(dir))
	return fmt.Sprintf("%016x", h.Sum64())
}

// setup makes the base cgroup of a hierarchy, with its controllers enabled for
// the boxes in it. A hierarchy that this user may not change is an error.
func (h *hierarchy) setup(parent, name string) error {
	if !h.v2 {
		return h.setupAt(filepath.Join(h.mount, parent, name), h.mount)
	}
	err := h.setupAt(filepath.Join(h.mount, parent, name), h.mount)
	if err == nil {
		return nil
	}
	// Not the owner of the whole tree: perhaps of the part we are in.
	own, ownErr := ownCgroup(h.mount, parent)
	if ownErr != nil || own == h.mount {
		return err
	}
	return h.setupAt(filepath.Join(own, parent, name), own)
}

// setupAt makes base and what is above it, below top.
func (h *hierarchy) setupAt(base, top string) error {
	if unix.Access(top, unix.W_OK) != nil || unix.Access(filepath.Join(top, "cgroup.procs"), unix.W_OK) != nil {
		return fmt.Errorf("%s: %w", top, os.ErrPermission)
	}
	rel, err := filepath.Rel(top, base)
	if err != nil {
		return err
	}
	at := top
	for _, part := range strings.Split(rel, "/") {
		if h.v2 {
			h.enable(at)
		}
		at = filepath.Join(at, part)
		if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if !h.v2 && h.has("cpuset") {
			if err := inheritCpuset(at); err != nil {
				return err
			}
		}
	}
	if h.v2 {
		h.controllers = h.enable(base)
	}
	h.base = base
	return nil
}

// enable passes on to the children of a v2 cgroup what of boxControllers it
// has, and returns it.
func (h *hierarchy) enable(dir string) []string {
	var got []string
	have := strings.Fields(readString(filepath.Join(dir, "cgroup.controllers")))
	for _, c := range boxControllers {
		if !slices.Contains(have, c) {
			continue
		}
		control := filepath.Join(dir, "cgroup.subtree_control")
		err := writeFile(control, "+"+c)
		if errors.Is(err, syscall.EBUSY) {
			// Only a cgroup without processes can pass controllers on.
			evacuate(dir)
			err = writeFile(control, "+"+c)
		}
		if err == nil {
			got = append(got, c)
		}
	}
	return got
}

// evacuate moves the processes of a delegated cgroup one level down.
func evacuate(dir string) {
	leaf := filepath.Join(dir, othersCgroup)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return
	}
	for _, pid := range readPIDs(filepath.Join(dir, "cgroup.procs")) {
		_ = writeFile(filepath.Join(leaf, "cgroup.procs"), strconv.Itoa(pid)) // it may be gone
	}
}

// inheritCpuset gives a new v1 cpuset what its parent has: it starts with
// nothing, and then nothing can run in it.
func inheritCpuset(dir string) error {
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

// ownCgroup returns the directory of the v2 cgroup that this process is in.
func ownCgroup(mount, parent string) (string, error) {
	for line := range strings.Lines(readString("/proc/self/cgroup")) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			// A supervisor that is already in its place looks from above it.
			if i := strings.Index(path, "/"+parent+"/"); i >= 0 {
				path = path[:i]
			}
			path = strings.TrimSuffix(path, "/"+othersCgroup)
			return filepath.Join(mount, path), nil
		}
	}
	return "", fmt.Errorf("no v2 cgroup in /proc/self/cgroup")
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
