package runtime

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cgroup "github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"
)

// Where the library expects the v2 tree: alone, or beside those of v1.
const (
	unifiedMount = "/sys/fs/cgroup"
	hybridMount  = "/sys/fs/cgroup/unified"
)

// hierarchy is a mounted cgroup tree and this supervisor's part of it.
type hierarchy struct {
	v2          bool
	mount       string
	subsystems  []cgroup1.Subsystem // of a v1 mount
	controllers []string            // v1: of the mount; v2: enabled for boxes
	base        string              // holds one cgroup per attempt, and the supervisor's
	claimed     *os.File            // the base, locked
}

func (h *hierarchy) has(controller string) bool { return slices.Contains(h.controllers, controller) }

// boxControllers are used for boxes wherever they are. In v1 the freezer makes killing
// complete and cpuacct counts; v2 has both in every cgroup.
var boxControllers = []string{"cpuset", "memory", "pids", "cpu"}

// supervisorCgroup is the name, beside the boxes, of where the supervisor is.
const supervisorCgroup = "supervisor"

// othersCgroup is where the processes of a delegated cgroup are moved, so that
// it can have cgroups with controllers in it.
const othersCgroup = "rota-others"

// systemdCgroup is the named v1 hierarchy without controllers.
const systemdCgroup = "systemd"

// findHierarchies returns the mounted trees, that of v2 first.
func findHierarchies() ([]*hierarchy, error) {
	var out []*hierarchy
	switch cgroup.Mode() {
	case cgroup.Unavailable:
		return nil, nil
	case cgroup.Unified:
		return []*hierarchy{{v2: true, mount: unifiedMount}}, nil
	case cgroup.Hybrid:
		out = append(out, &hierarchy{v2: true, mount: hybridMount})
	}
	subsystems, err := cgroup1.Default()
	if errors.Is(err, cgroup1.ErrMountPointNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	return append(out, groupByMount(subsystems)...), nil
}

// mounted is a subsystem of which there is a directory.
type mounted interface{ Path(string) string }

// groupByMount joins the controllers that share a mount, of which all names but
// one are symbolic links.
func groupByMount(subsystems []cgroup1.Subsystem) []*hierarchy {
	var out []*hierarchy
	byMount := make(map[string]*hierarchy)
	for _, s := range subsystems {
		p, ok := s.(mounted)
		if !ok {
			continue
		}
		mount, err := filepath.EvalSymlinks(p.Path("/"))
		if err != nil {
			continue
		}
		h := byMount[mount]
		if h == nil {
			h = &hierarchy{mount: mount}
			byMount[mount] = h
			out = append(out, h)
		}
		h.subsystems = append(h.subsystems, s)
		h.controllers = append(h.controllers, string(s.Name()))
	}
	return out
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
	if slices.ContainsFunc(boxControllers, h.has) {
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
func (h *hierarchy) setup(parent, name string) (err error) {
	for range setupTries {
		if err = h.setupOnce(parent, name); err == nil || errors.Is(err, os.ErrPermission) {
			break
		}
	}
	return err
}

// setupTries is how often a base is made. Another supervisor that ends may take the
// parent away in between, which was empty.
const setupTries = 5

func (h *hierarchy) setupOnce(parent, name string) error {
	err := h.setupBelow("/", parent, name)
	if err == nil || !h.v2 {
		return err
	}
	// Not the owner of the whole tree: perhaps of the part we are in.
	own, ownErr := ownCgroup(parent)
	if ownErr != nil || own == "/" {
		return err
	}
	return h.setupBelow(own, parent, name)
}

// setupBelow makes the base below top, a path in the tree.
func (h *hierarchy) setupBelow(top, parent, name string) error {
	dir := filepath.Join(h.mount, top)
	if unix.Access(dir, unix.W_OK) != nil || unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) != nil {
		return fmt.Errorf("%s: %w", dir, os.ErrPermission)
	}
	base := filepath.Join(top, parent, name)
	if _, err := h.makeGroup(base); err != nil {
		return fmt.Errorf("make cgroup %s: %w", base, err)
	}
	h.base = filepath.Join(h.mount, base)
	if err := h.claim(); err != nil {
		return err
	}
	if h.v2 {
		return h.enable(top, base)
	}
	return nil
}

// enable passes on to the children of base what of boxControllers there is.
func (h *hierarchy) enable(top, base string) error {
	above, err := cgroup2.Load(top, cgroup2.WithMountpoint(h.mount))
	if err != nil {
		return err
	}
	// The library enables for a cgroup: above it, in every cgroup it may.
	box, err := cgroup2.Load(filepath.Join(base, "box"), cgroup2.WithMountpoint(h.mount))
	if err != nil {
		return err
	}
	have, err := above.Controllers()
	if err != nil {
		return fmt.Errorf("read controllers: %w", err)
	}
	h.controllers = nil
	for _, c := range boxControllers {
		if !slices.Contains(have, c) {
			continue
		}
		err := box.ToggleControllers([]string{c}, cgroup2.Enable)
		if err != nil && exists(filepath.Join(h.mount, top, "cgroup.type")) {
			// Only a cgroup without processes can pass controllers on. The root
			// of all, which has no type, is free of that rule.
			h.evacuate(above, top)
			err = box.ToggleControllers([]string{c}, cgroup2.Enable)
		}
		if err == nil {
			h.controllers = append(h.controllers, c)
		}
	}
	return nil
}

// evacuate moves the processes of a delegated cgroup one level down.
func (h *hierarchy) evacuate(from *cgroup2.Manager, path string) {
	leaf, err := h.makeGroup(filepath.Join(path, othersCgroup))
	if err != nil {
		return
	}
	pids, _ := from.Procs(false)
	for _, pid := range pids {
		_ = leaf.add(int(pid)) // it may be gone
	}
}

// ownCgroup returns the path of the v2 cgroup that this process is in.
func ownCgroup(parent string) (string, error) {
	_, path, err := cgroup.ParseCgroupFileUnified("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("find own cgroup: %w", err)
	}
	if path == "" {
		return "", errors.New("no v2 cgroup in /proc/self/cgroup")
	}
	// A supervisor that is already in its place looks from above it.
	if above, _, ok := strings.Cut(path, "/"+parent+"/"); ok {
		path = above
	}
	return filepath.Join("/", strings.TrimSuffix(path, "/"+othersCgroup)), nil
}
