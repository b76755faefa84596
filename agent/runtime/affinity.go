package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	files "rota/agent/internal/record"
	"rota/agent/plan"
)

// markVariable is set in the environment of attempts that no cgroup holds, so
// that a process which left its session and its parent is still found.
const markVariable = "ROTA_SUPERVISOR"

// affinity is what is left without cgroups: attempts are sessions, the
// supervisor is the subreaper of everything below it, and CPUs are a wish.
type affinity struct {
	name    string
	allowed []int
}

func newAffinity(o SuperviseOptions) (*affinity, error) {
	cpus, err := allowedCPUs()
	if err != nil {
		return nil, err
	}
	return &affinity{name: cgroupName(o.Dir), allowed: cpus}, nil
}

func (a *affinity) mode() string { return ModeAffinity }

func (a *affinity) notEnforced() []string {
	return []string{
		"exclusive CPUs: CPU affinity is set, which a command can change",
		changedCPUs,
		"memory limits, and so the end OUT_OF_MEMORY",
		equalParts,
		"killing of a process that left its session, its parent and its environment behind",
	}
}

func (a *affinity) resizes() bool               { return false }
func (a *affinity) hidesDevices() bool          { return false }
func (a *affinity) has(cpus []int) error        { return checkCPUs(cpus, a.allowed) }
func (a *affinity) roots() []string             { return nil }
func (a *affinity) start()                      {}
func (a *affinity) environ(k plan.Key) []string { return []string{a.mark(k)} }
func (a *affinity) close()                      {}

func (a *affinity) newBox(spec *Spec) (box, error) {
	if err := a.has(spec.CPUs); err != nil {
		return nil, err
	}
	return &affinityBox{all: a, cpus: spec.CPUs, mark: a.mark(spec.Key)}, nil
}

func (a *affinity) mark(k plan.Key) string { return markVariable + "=" + a.name + "/" + k.String() }

// killLeft kills what the attempts of a dead supervisor left: their sessions, by
// the recorded leaders, and whatever carries this supervisor's mark.
func (a *affinity) killLeft(h *history, log hclog.Logger) {
	leaders := make(map[int]bool)
	for _, c := range h.started {
		// The leader may be dead while its session lives: then no new process
		// can have its number either, as the kernel keeps it for the session.
		if c != nil && h.boot != nil && h.boot.BootID == bootID() {
			if now := startTime(c.PID); now == 0 || now == c.StartTime {
				leaders[c.PID] = true
			}
		}
	}
	mark := []byte(markVariable + "=" + a.name + "/")
	for p := newPatience(log, "processes of "+a.name); ; p.wait() {
		left := 0
		for _, q := range processes() {
			if q.pid != os.Getpid() && (leaders[q.session] || hasMark(q.pid, mark)) {
				left++
				_ = syscall.Kill(q.pid, syscall.SIGKILL)
			}
		}
		if left == 0 {
			return
		}
	}
}

// affinityBox is a session and what came out of it.
type affinityBox struct {
	all  *affinity
	cpus []int
	mark string
	pid  int // leads the session; 0: nothing was started
}

func (b *affinityBox) attr(*syscall.SysProcAttr) {}

func (b *affinityBox) enter() error {
	if len(b.cpus) == 0 {
		return nil
	}
	if err := pin(b.cpus); err != nil {
		return fmt.Errorf("set CPU affinity: %w", err)
	}
	return nil
}

func (b *affinityBox) leave() error {
	if len(b.cpus) == 0 {
		return nil
	}
	return pin(b.all.allowed)
}

func (b *affinityBox) started(pid int) { b.pid = pid }
func (b *affinityBox) arm() error      { return nil }
func (b *affinityBox) resize([]int) error {
	return errors.New("CPU affinity of what runs is not changed")
}

func (b *affinityBox) freeze(bool) error { return errNoFreezer }

func (b *affinityBox) kill() { b.signal(syscall.SIGKILL, false) }

func (b *affinityBox) signal(sig syscall.Signal, _ bool) {
	signalAll(b.members, sig)
}

func (b *affinityBox) empty() bool  { return len(b.members()) == 0 }
func (b *affinityBox) usage() usage { return usage{} }
func (b *affinityBox) release()     {}

// members returns the living processes of the attempt: its session, their
// descendants, and below the supervisor what carries the mark.
func (b *affinityBox) members() []int {
	if b.pid == 0 {
		return nil
	}
	all := processes()
	parent := make(map[int]process, len(all))
	for _, p := range all {
		parent[p.pid] = p
	}
	self := os.Getpid()
	mark := append([]byte(b.mark), 0)
	var out []int
	for _, p := range all {
		below, in := false, p.session == b.pid
		for q, ok := p, true; ok && !in; q, ok = parent[q.ppid] {
			if q.ppid == self {
				below = true
			}
			in = q.session == b.pid
		}
		if in || (below && hasMark(p.pid, mark)) {
			out = append(out, p.pid)
		}
	}
	return out
}

// process is what /proc/PID/stat says of a living process.
type process struct{ pid, ppid, session int }

// processes lists all that are not zombies.
func processes() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		f := statFields(pid)
		if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
			continue
		}
		ppid, _ := strconv.Atoi(f[1])
		session, _ := strconv.Atoi(f[3])
		out = append(out, process{pid, ppid, session})
	}
	return out
}

// statFields returns the fields of /proc/PID/stat from the state on: what comes
// before it, the name, may contain anything.
func statFields(pid int) []string {
	s := readString(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	i := strings.LastIndexByte(s, ')')
	if i < 0 {
		return nil
	}
	return strings.Fields(s[i+1:])
}

// startTime is when a process started, in clock ticks since boot; 0: it is gone.
func startTime(pid int) uint64 {
	f := statFields(pid)
	if len(f) < 20 {
		return 0
	}
	t, _ := strconv.ParseUint(f[19], 10, 64)
	return t
}

// hasMark reports whether the environment a process started with has an entry
// that begins with mark; a mark that ends in NUL is compared as a whole.
func hasMark(pid int, mark []byte) bool {
	entries := strings.SplitAfter(environOf(pid), "\x00")
	return slices.ContainsFunc(entries, func(e string) bool { return strings.HasPrefix(e, string(mark)) })
}

// environOf returns the environment a process started with. While a process begins
// another program the kernel shows neither its environment nor its command line. That
// is over soon, so it is looked at again.
func environOf(pid int) string {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	for range 50 {
		env, err := os.ReadFile(filepath.Join(proc, "environ"))
		if err != nil || len(env) > 0 {
			return string(env)
		}
		line, err := os.ReadFile(filepath.Join(proc, "cmdline"))
		if err != nil || len(line) > 0 || !hasMemory(pid) {
			return ""
		}
		time.Sleep(time.Millisecond)
	}
	return ""
}

// hasMemory is not true of a zombie, nor of a thread of the kernel.
func hasMemory(pid int) bool {
	const size = 20 // of the address space
	f := statFields(pid)
	return len(f) > size && f[size] != "0"
}

// bootID is empty if it cannot be read.
func bootID() string {
	id, _ := files.BootID()
	return id
}
