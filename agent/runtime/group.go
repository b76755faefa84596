package runtime

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// group is one cgroup of a hierarchy, for what happens once in the life of a
// supervisor; boxes have a faster way. Exactly one of v1 and v2 is set.
type group struct {
	dir  string
	v1   cgroup1.Cgroup
	name cgroup1.Name // of a controller of v1, by which the library finds the tree
	v2   *cgroup2.Manager
}

// makeGroup makes a cgroup and what is above it; a v1 cpuset gets what its
// parent has, without which nothing could run in it. One that exists is taken.
func (h *hierarchy) makeGroup(path string) (*group, error) {
	if h.v2 {
		m, err := cgroup2.NewManager(h.mount, path, &cgroup2.Resources{})
		return &group{dir: filepath.Join(h.mount, path), v2: m}, err
	}
	c, err := cgroup1.New(cgroup1.StaticPath(path), &specs.LinuxResources{}, h.only())
	return &group{dir: filepath.Join(h.mount, path), v1: c, name: h.subsystems[0].Name()}, err
}

// loadGroup returns a cgroup that exists.
func (h *hierarchy) loadGroup(path string) (*group, error) {
	if h.v2 {
		m, err := cgroup2.Load(path, cgroup2.WithMountpoint(h.mount))
		return &group{dir: filepath.Join(h.mount, path), v2: m}, err
	}
	c, err := cgroup1.Load(cgroup1.StaticPath(path), h.only())
	return &group{dir: filepath.Join(h.mount, path), v1: c, name: h.subsystems[0].Name()}, err
}

// only keeps the library to the controllers of this mount.
func (h *hierarchy) only() cgroup1.InitOpts {
	return cgroup1.WithHierarchy(func() ([]cgroup1.Subsystem, error) { return h.subsystems, nil })
}

// findGroup returns the cgroup of a directory in one of the hierarchies.
func findGroup(in []*hierarchy, dir string) (*group, error) {
	for _, h := range in {
		if path, ok := strings.CutPrefix(dir, h.mount+"/"); ok {
			return h.loadGroup("/" + path)
		}
	}
	return nil, &os.PathError{Op: "find cgroup of", Path: dir, Err: os.ErrNotExist}
}

// add moves a process into the cgroup.
func (g *group) add(pid int) error {
	if g.v2 != nil {
		return g.v2.AddProc(uint64(pid))
	}
	return g.v1.AddProc(uint64(pid))
}

// pids lists the processes in the cgroup and below. It fails if a cgroup below is
// removed meanwhile.
func (g *group) pids() (out []int, err error) {
	if g.v2 != nil {
		pids, err := g.v2.Procs(true)
		for _, p := range pids {
			out = append(out, int(p))
		}
		return out, err
	}
	procs, err := g.v1.Processes(g.name, true)
	for _, p := range procs {
		out = append(out, p.Pid)
	}
	return out, err
}

// kill sends SIGKILL to all processes of the cgroup and below, once.
func (g *group) kill() error {
	if g.v2 != nil && exists(filepath.Join(g.dir, "cgroup.kill")) {
		return g.v2.Kill()
	}
	var err error
	signalFrozen(g.dir, func() (pids []int) {
		pids, err = g.pids()
		return pids
	}, syscall.SIGKILL)
	return err
}

// remove removes the cgroup and what is below it, if nothing runs there. It
// waits for the last of the dying to be gone, but not for ever: an empty cgroup
// that stays does no harm, and the next supervisor removes it.
func (g *group) remove() error {
	if g.v2 != nil {
		return g.v2.Delete()
	}
	return g.v1.Delete()
}
