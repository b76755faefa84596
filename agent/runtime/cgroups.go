package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/agent/plan"
)

// boxesReady is how many boxes are made ahead, so that no attempt waits for
// mkdir.
const boxesReady = 4

// cgroups confines with whichever hierarchies hold the controllers.
type cgroups struct {
	name    string
	v2      *hierarchy // nil: none
	v1      []*hierarchy
	allowed []int // CPUs
	serial  int
	// processesMax is how many an attempt may have.
	processesMax int
	// hides is how boxes keep devices from what is inside; nil: they do not.
	hides deviceHider

	boxes   ahead[*cgroupBox]
	retired chan *cgroupBox
	wg      sync.WaitGroup

	moved []*hierarchy // where this process was moved
}

// newCgroups returns nil if this user can make no cgroups that would be of use.
func newCgroups(o SuperviseOptions) (*cgroups, error) {
	mounts, err := findHierarchies()
	if err != nil {
		return nil, err
	}
	c := &cgroups{
		boxes:   newAhead[*cgroupBox](boxesReady),
		retired: make(chan *cgroupBox, 1024),
		name:    cgroupName(o.Dir),

		processesMax: o.ProcessesMax,
	}
	if c.allowed, err = allowedCPUs(); err != nil {
		return nil, err
	}
	for _, h := range mounts {
		if (wanted(h, o.Mode, c.v2 != nil) || o.HideDevices && holdsDevices(h, o.Mode)) && h.setup(o.CgroupParent, c.name) == nil {
			c.add(h)
		}
	}
	if !c.canKill() || (o.Mode != "" && c.mode() != o.Mode) {
		c.removeBases()
		return nil, nil
	}
	if o.HideDevices {
		c.hides = c.findHider()
	}
	c.moveSupervisor(mounts, o.CgroupParent)
	return c, c.weighAll()
}

func (c *cgroups) add(h *hierarchy) {
	if h.v2 {
		c.v2 = h
	} else {
		c.v1 = append(c.v1, h)
	}
}

// canKill: what cannot be killed as a whole is not worth being in.
func (c *cgroups) canKill() bool { return c.v2 != nil || c.holder("freezer") != nil }

// holder returns the hierarchy that has a controller for us.
func (c *cgroups) holder(controller string) *hierarchy {
	for _, h := range c.v1 {
		if h.has(controller) {
			return h
		}
	}
	if c.v2 != nil && c.v2.has(controller) {
		return c.v2
	}
	return nil
}

func (c *cgroups) mode() string {
	switch {
	case c.v2 == nil:
		return ModeCgroupV1
	case len(c.v1) == 0:
		return ModeCgroupV2
	default:
		return ModeHybrid
	}
}

// equalParts is what the cpu controller is for.
const equalParts = "equal parts of CPU time for attempts with many processes and with few"

func (c *cgroups) notEnforced() []string {
	var out []string
	if c.holder("cpuset") == nil {
		out = append(out, "exclusive CPUs: no cpuset controller; CPU affinity is set, which a command can change", changedCPUs)
	}
	if c.holder("memory") == nil {
		out = append(out, "memory limits: no memory controller")
	} else if m := c.holder("memory"); !m.v2 && !exists(filepath.Join(m.base, "memory.memsw.limit_in_bytes")) {
		out = append(out, "memory limits do not count swap: the kernel does not account for it")
	}
	if c.holder("pids") == nil {
		out = append(out, "limits of processes: no pids controller")
	}
	if c.holder("cpu") == nil {
		out = append(out, equalParts+": no cpu controller")
	}
	return out
}

// changedCPUs is what the cpuset controller is for, beside exclusive CPUs.
const changedCPUs = "actions that grow and shrink while they run: that takes the cpuset controller"

func (c *cgroups) resizes() bool { return c.holder("cpuset") != nil }

func (c *cgroups) hidesDevices() bool { return c.hides != nil }

func (c *cgroups) has(cpus []int) error { return checkCPUs(cpus, c.allowed) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (c *cgroups) hierarchies() []*hierarchy {
	if c.v2 == nil {
		return c.v1
	}
	return append([]*hierarchy{c.v2}, c.v1...)
}

func (c *cgroups) roots() []string {
	var out []string
	for _, h := range c.hierarchies() {
		out = append(out, h.base)
	}
	return out
}

// moveSupervisor puts this process beside the boxes: out of the agent's cgroup,
// which may be stopped as a whole, and never in a box. It tries in every
// hierarchy, and where it may not it stays.
func (c *cgroups) moveSupervisor(mounts []*hierarchy, parent string) {
	for _, h := range mounts {
		used := slices.Contains(c.hierarchies(), h)
		if !used && (!h.has(systemdCgroup) || h.setup(parent, c.name) != nil) {
			continue
		}
		path, err := filepath.Rel(h.mount, h.base)
		if err != nil {
			continue
		}
		place, err := h.makeGroup(filepath.Join("/", path, supervisorCgroup))
		if err == nil && place.add(os.Getpid()) == nil {
			c.moved = append(c.moved, h)
		}
	}
}

func (c *cgroups) environ(plan.Key) []string { return nil }

// start begins to make boxes. It is apart from newCgroups because what an
// earlier supervisor left has to be gone first.
func (c *cgroups) start() {
	c.wg.Go(func() { c.boxes.fill(c.makeBox, c.retire) })
	c.wg.Go(c.removeAbandoned)
	c.wg.Go(func() {
		for {
			select {
			case b := <-c.retired:
				b.remove()
			case <-c.boxes.quit:
				return
			}
		}
	})
}

// makeBox makes a box with a name that no cgroup has: an earlier supervisor may have left some that
// could not be removed.
func (c *cgroups) makeBox() (*cgroupBox, error) {
	b := &cgroupBox{all: c, cgroupFD: -1}
	for left := true; left; {
		c.serial++
		b.name = "a" + strconv.Itoa(c.serial)
		left = slices.ContainsFunc(c.hierarchies(), func(h *hierarchy) bool { return exists(b.dir(h)) })
	}
	for _, h := range c.hierarchies() {
		dir := b.dir(h)
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.remove()
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
		if !h.v2 && h.has("cpuset") {
			if err := inheritCpuset(dir); err != nil {
				b.remove()
				return nil, fmt.Errorf("set up cpuset: %w", err)
			}
		}
	}
	if c.v2 != nil {
		fd, err := syscall.Open(b.dir(c.v2), syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
		if err != nil {
			b.remove()
			return nil, fmt.Errorf("open cgroup: %w", err)
		}
		b.cgroupFD = fd
	}
	return b, nil
}

func (c *cgroups) newBox(spec *Spec) (box, error) {
	if err := c.has(spec.CPUs); err != nil {
		return nil, err
	}
	b, err := c.boxes.take(nil)
	if err != nil {
		return nil, err
	}
	if err := b.limit(spec); err != nil {
		b.release()
		return nil, err
	}
	return b, nil
}

// retire has a box removed, later and by another goroutine.
func (c *cgroups) retire(b *cgroupBox) {
	select {
	case c.retired <- b:
	default:
		b.remove()
	}
}

// killBoxesIn empties and removes every cgroup in base but the supervisor's.
func killBoxesIn(base string, log hclog.Logger) error {
	entries, err := os.ReadDir(base)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for what was left running: %w", err)
	}
	mounts, err := findHierarchies()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() || e.Name() == supervisorCgroup {
			continue
		}
		if err := killLeftIn(mounts, filepath.Join(base, e.Name()), log); err != nil {
			return fmt.Errorf("end what was left running: %w", err)
		}
	}
	return nil
}

// killLeftIn returns when nothing runs in a cgroup and below it.
func killLeftIn(mounts []*hierarchy, dir string, log hclog.Logger) error {
	g, err := findGroup(mounts, dir)
	if err != nil {
		return err
	}
	for p := newPatience(log, dir); exists(dir); p.wait() {
		pids, err := g.pids()
		if err == nil && len(pids) == 0 {
			break
		}
		if killErr := g.kill(); err != nil || killErr != nil {
			log.Debug("kill what was left running", "where", dir, "list", err, "kill", killErr)
		}
	}
	if err := g.remove(); err != nil {
		log.Debug("an empty cgroup stays", "error", err)
	}
	return nil
}

// backoff doubles a pause up to a tenth of a second.
func backoff(d time.Duration) time.Duration { return min(2*d, 100*time.Millisecond) }

func (c *cgroups) close() {
	close(c.boxes.quit)
	c.wg.Wait()
	for len(c.boxes.ready) > 0 {
		b := <-c.boxes.ready
		b.remove()
	}
	for len(c.retired) > 0 {
		b := <-c.retired
		b.remove()
	}
	c.leaveSupervisor()
	c.removeBases()
}

// leaveSupervisor moves this process to the top of each tree, as a cgroup that
// is not empty cannot be removed.
func (c *cgroups) leaveSupervisor() {
	for _, h := range c.moved {
		moveOut(h)
		c.removeBase(h)
	}
}

// moveOut moves this process to the top of a tree or, where only a part of it is
// ours, to where the other processes of that part are.
func moveOut(h *hierarchy) {
	if top, err := h.loadGroup("/"); err == nil && top.add(os.Getpid()) == nil {
		return
	}
	others := filepath.Join(filepath.Dir(filepath.Dir(h.base)), othersCgroup)
	if g, err := findGroup([]*hierarchy{h}, others); err == nil {
		_ = g.add(os.Getpid()) // then the cgroup stays, which does no harm
	}
}

func (c *cgroups) removeBases() {
	for _, h := range c.hierarchies() {
		c.removeBase(h)
	}
}

// removeBase removes the base and the supervisor's cgroup in it. The last one
// takes the parent with it, which others may be in, so not by the library: that
// removes what is below as well.
func (c *cgroups) removeBase(h *hierarchy) {
	if g, err := findGroup([]*hierarchy{h}, h.base); err == nil {
		_ = g.remove() // one that stays does no harm
	}
	_ = syscall.Rmdir(filepath.Dir(h.base))
}

// removeCgroup waits for the last of the dying to be gone, but not for ever: an
// empty cgroup that stays does no harm, and the next supervisor removes it.
func removeCgroup(dir string) {
	for wait := time.Millisecond; wait < 64*time.Millisecond; wait *= 2 {
		if err := syscall.Rmdir(dir); !errors.Is(err, syscall.EBUSY) {
			return
		}
		time.Sleep(wait)
	}
}
