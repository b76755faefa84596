package runtime

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"rota/agent/plan"
)

// confinement is what holds attempts: cgroups, or less where there are none.
type confinement interface {
	mode() string
	// notEnforced says in words what this one cannot do.
	notEnforced() []string
	// resizes says that boxes can change their CPUs.
	resizes() bool
	// hidesDevices says that boxes keep Spec.HiddenDevices from what is inside.
	hidesDevices() bool
	// has returns an error that names the first of these CPUs that attempts cannot use.
	has(cpus []int) error
	// roots are directories whose cgroups are this supervisor's alone.
	roots() []string
	// start begins to prepare boxes, once nothing is left of an earlier supervisor.
	start()
	// environ is what the environment of an attempt says besides its own.
	environ(plan.Key) []string
	// newBox prepares a place for one attempt, with the limits in force that cannot
	// hurt who forks into it.
	newBox(spec *Spec) (box, error)
	// close removes what was made. No box may be left.
	close()
}

// box holds the processes of one attempt.
type box interface {
	// attr adds what the fork itself can do.
	attr(*syscall.SysProcAttr)
	// enter and leave move the calling thread, whose children start where it is.
	enter() error
	leave() error
	// started says who leads the attempt.
	started(pid int)
	// arm puts a limit of memory in force that is too small to fork with, once no thread of this
	// process is inside. If it were exceeded before, the kernel would kill this process.
	arm() error
	// resize has all processes inside run on these CPUs, and on no others once it has
	// returned. On an error they run on those before. Only where the confinement resizes and
	// has the CPUs.
	resize(cpus []int) error
	// freeze has all processes inside stop where they are, or go on. They have stopped when it
	// returns. On an error they go on.
	freeze(frozen bool) error
	// kill sends SIGKILL to everything inside once.
	kill()
	// signal sends a signal to everything inside once. frozen: it is frozen, or about to be, and stays
	// so.
	signal(sig syscall.Signal, frozen bool)
	// empty reports whether no process is inside. Unreaped ones do not count.
	empty() bool
	// usage is what it consumed in all, once it has ended.
	usage() usage
	// measure is what it has consumed, and uses now, while it runs. It may be called at any time.
	measure() usage
	release()
}

// usage is what an attempt consumed. Zero fields are unknown.
type usage struct {
	cpu        time.Duration
	memoryPeak uint64 // bytes
	memory     uint64 // bytes now; only of what runs
	cache      uint64 // bytes of page cache now; only of what runs
	oomKills   uint64
}

// pin binds the calling thread, and so what it forks, to these CPUs. It is used
// where no cpuset can be had; what is started can undo it.
func pin(cpus []int) error {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	return unix.SchedSetaffinity(0, &set)
}

// allowedCPUs returns the CPUs this thread may use.
func allowedCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read CPU affinity: %w", err)
	}
	var out []int
	for c := range len(set) * 64 {
		if set.IsSet(c) {
			out = append(out, c)
		}
	}
	return out, nil
}

// checkCPUs returns an error that names the first CPU that cannot be used.
func checkCPUs(want, allowed []int) error {
	for _, c := range want {
		if !slices.Contains(allowed, c) {
			return fmt.Errorf("CPU %d is not available to attempts on this node", c)
		}
	}
	return nil
}

// killLeft kills what an earlier supervisor left behind, however that one
// confined it, and returns once it is dead.
func killLeft(c confinement, o SuperviseOptions, h *history, log hclog.Logger) error {
	bases := c.roots()
	if h.boot != nil {
		for _, r := range h.boot.Cgroups {
			if !slices.Contains(bases, r) {
				bases = append(bases, r)
			}
		}
	}
	for _, base := range bases {
		if err := killBoxesIn(base, log); err != nil {
			return err
		}
	}
	if h.boot == nil || len(h.boot.Cgroups) > 0 {
		return nil
	}
	a, err := newAffinity(o)
	if err != nil {
		return err
	}
	a.killLeft(h, log)
	return nil
}

// patience waits between rounds of killing, longer each time, and says so when
// it takes long. It does not end: nothing may start while something old runs.
type patience struct {
	log    hclog.Logger
	what   string
	pause  time.Duration
	warned time.Time
}

func newPatience(log hclog.Logger, what string) *patience {
	return &patience{log: log, what: what, pause: time.Millisecond, warned: time.Now()}
}

func (p *patience) wait() {
	time.Sleep(p.pause)
	p.pause = backoff(p.pause)
	if time.Since(p.warned) > 10*time.Second {
		p.warned = time.Now()
		p.log.Warn("what a dead supervisor left cannot be killed; trying on", "where", p.what)
	}
}

// newConfinement takes the best that this machine and user allow, or the mode
// that was asked for.
func newConfinement(o SuperviseOptions) (confinement, error) {
	if o.Mode != ModeAffinity {
		c, err := newCgroups(o)
		if err != nil {
			return nil, err
		}
		if c != nil {
			return c, nil
		}
		if o.Mode != "" {
			return nil, fmt.Errorf("%w: mode %s is not possible here", ErrInvalidOptions, o.Mode)
		}
	}
	return newAffinity(o)
}
