package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Supervisor is the process ID of an agent's supervisor, 0 if none runs.
func (m *Member) Supervisor() int {
	dir := "--dir=" + filepath.Join(m.DataDir, "runtime")
	pids := scan("cmdline", func(args []byte) bool {
		return bytes.Contains(args, []byte("\x00supervise\x00")) && bytes.Contains(args, []byte("\x00"+dir+"\x00"))
	})
	if len(pids) == 0 {
		return 0
	}
	return pids[0]
}

// Attempts are all processes of the actions that an agent runs, also of those
// that it has lost: they carry the name of their node in their environment.
func (m *Member) Attempts() []int {
	node := []byte("\x00ROTA_NODE=" + m.Name + "\x00")
	return scan("environ", func(environment []byte) bool { return bytes.Contains(environment, node) })
}

// Waiting are those of its attempts in whose environment a text begins a variable.
func (m *Member) Waiting(variable string) []int {
	node, begins := []byte("\x00ROTA_NODE="+m.Name+"\x00"), []byte("\x00"+variable)
	return scan("environ", func(environment []byte) bool {
		return bytes.Contains(environment, node) && bytes.Contains(environment, begins)
	})
}

// scan returns the live processes of which a file in /proc satisfies a check.
func scan(file string, match func([]byte) bool) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		raw, err := os.ReadFile(filepath.Join("/proc", e.Name(), file))
		if err == nil && match(slices.Concat([]byte{0}, raw, []byte{0})) && alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// alive reports whether a process exists and is no zombie.
func alive(pid int) bool {
	s := processState(pid)
	return s != "" && s != "Z" && s != "X"
}

// processState is the letter of ps, empty if there is no such process.
func processState(pid int) string {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	end := bytes.LastIndex(raw, []byte(") ")) // the name may hold anything
	if end < 0 || len(raw) < end+3 {
		return ""
	}
	return string(raw[end+2 : end+3])
}

// killLeft ends what an agent that is gone has left running: its supervisor and
// its attempts.
func (m *Member) killLeft() error {
	for deadline := time.Now().Add(stopGrace); ; time.Sleep(20 * time.Millisecond) {
		left := m.Attempts()
		if pid := m.Supervisor(); pid != 0 {
			left = append(left, pid)
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes of %s do not end: %v", m.Name, left)
		}
		for _, f := range m.boxes(left) {
			_ = f.set(false) // it may be gone
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// Freeze is a pause of all processes of an agent's attempts.
type Freeze struct {
	// How it was done: "cgroup.freeze" of v2, "freezer" of v1, or SIGSTOP.
	How       string
	Processes []int
	boxes     []freezer
}

// Errors of FreezeAttempts.
var (
	ErrNoAttempts = errors.New("no attempt runs there")
	errNotFrozen  = errors.New("processes do not freeze")
)

// freezing is how long processes may take to freeze.
const freezing = 20 * time.Second

// FreezeAttempts pauses what an agent runs, but neither the agent nor its
// supervisor, and returns when everything stands still. Attempts that start
// later run.
func (m *Member) FreezeAttempts() (*Freeze, error) {
	f := &Freeze{}
	for deadline := time.Now().Add(freezing); ; time.Sleep(5 * time.Millisecond) {
		// Without a cgroup a process may have forked before it was stopped.
		f.Processes = m.Attempts()
		more, err := f.add(m.boxes(f.Processes))
		switch {
		case err != nil:
			return nil, errors.Join(fmt.Errorf("freeze attempts of %s: %w", m.Name, err), f.Thaw())
		case len(f.boxes) == 0:
			return nil, fmt.Errorf("%s: %w", m.Name, ErrNoAttempts)
		case !more && f.complete():
			f.How = f.boxes[0].how()
			return f, nil
		case time.Now().After(deadline):
			return nil, errors.Join(fmt.Errorf("%s: %w", m.Name, errNotFrozen), f.Thaw())
		}
	}
}

// add freezes what is not frozen yet and reports whether there was any.
func (f *Freeze) add(boxes []freezer) (more bool, err error) {
	for _, b := range boxes {
		if slices.Contains(f.boxes, b) {
			continue
		}
		if err := b.set(true); err != nil && b.exists() {
			return true, err
		}
		f.boxes, more = append(f.boxes, b), true
	}
	return more, nil
}

// complete reports whether all stands still.
func (f *Freeze) complete() bool {
	return !slices.ContainsFunc(f.boxes, func(b freezer) bool { return !b.frozen() })
}

// Thaw lets them go on. What has been killed meanwhile needs nothing.
func (f *Freeze) Thaw() error {
	var errs []error
	for _, b := range f.boxes {
		if err := b.set(false); err != nil && b.exists() {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// freezer is something that can be paused as a whole: a cgroup, of which only
// one of the fields is set, or a process without one.
type freezer struct {
	v2, v1 string // folder
	pid    int
}

// boxes finds what holds the processes.
func (m *Member) boxes(pids []int) (boxes []freezer) {
	mounts := hierarchies()
	for _, pid := range pids {
		if b := boxOf(pid, mounts); !slices.Contains(boxes, b) {
			boxes = append(boxes, b)
		}
	}
	return boxes
}

// boxOf is the cgroup of this run that holds the process, if there is one that
// can be frozen.
func boxOf(pid int, mounts []hierarchy) freezer {
	own := ownCgroups(pid)
	var box freezer
	for _, h := range mounts {
		dir := filepath.Join(h.mount, own[h.key])
		switch {
		case !strings.Contains(own[h.key], "/"+run+"/"):
		case h.key == v2 && exists(filepath.Join(dir, "cgroup.freeze")):
			return freezer{v2: dir}
		case h.freezes():
			box.v1 = dir
		}
	}
	if box.v1 == "" {
		box.pid = pid
	}
	return box
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (f freezer) how() string {
	switch {
	case f.v2 != "":
		return "cgroup.freeze"
	case f.v1 != "":
		return "freezer"
	}
	return "SIGSTOP"
}

func (f freezer) exists() bool { return f.pid != 0 && alive(f.pid) || f.pid == 0 && exists(f.v1+f.v2) }

// set freezes or thaws.
func (f freezer) set(frozen bool) error {
	switch {
	case f.v2 != "":
		return write(filepath.Join(f.v2, "cgroup.freeze"), map[bool]string{true: "1", false: "0"}[frozen])
	case f.v1 != "":
		return write(filepath.Join(f.v1, "freezer.state"), map[bool]string{true: "FROZEN", false: "THAWED"}[frozen])
	case frozen:
		return syscall.Kill(f.pid, syscall.SIGSTOP)
	}
	return syscall.Kill(f.pid, syscall.SIGCONT)
}

// write changes a file of a cgroup, which is never created.
func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// frozen reports whether it stands still, or is gone.
func (f freezer) frozen() bool {
	file, want := filepath.Join(f.v2, "cgroup.events"), "frozen 1"
	switch {
	case f.pid != 0:
		// D is one whose child was stopped between vfork and exec, or that waits for a
		// disk: it stops before it gets to its own code again.
		return slices.Contains([]string{"T", "t", "D", "Z", "X", ""}, processState(f.pid))
	case f.v1 != "":
		file, want = filepath.Join(f.v1, "freezer.state"), "FROZEN"
	}
	raw, err := os.ReadFile(file)
	return errors.Is(err, os.ErrNotExist) || bytes.Contains(raw, []byte(want))
}
