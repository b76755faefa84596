package runtime

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// BenchmarkControlFiles compares what is done at every attempt with the same
// through the cgroups library, which does everything else.
func BenchmarkControlFiles(b *testing.B) {
	c, err := newCgroups(SuperviseOptions{Dir: b.TempDir(), CgroupParent: "rota-bench-" + strconv.Itoa(os.Getpid())})
	if err != nil {
		b.Fatal(err)
	}
	if c == nil {
		b.Skip("this user can make no cgroups here")
	}
	defer func() { c.leaveSupervisor(); c.removeBases() }()
	loop := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	box, err := c.makeBox()
	if err != nil {
		b.Fatal(err)
	}
	defer box.remove()
	groups := libraryGroups(b, c, box.name)
	loop("limit/direct", func() error { return box.limit(&Spec{CPUs: []int{0}, MemoryBytes: 64 << 20}) })
	loop("limit/library", func() error { return each(groups, libraryLimit) })
	loop("usage/direct", func() error { box.usage(); return nil })
	loop("usage/library", func() error { return each(groups, libraryUsage) })
	loop("empty/direct", func() error { box.empty(); return nil })
	loop("empty/library", func() error { _, err := groups[0].pids(); return err })
	loop("make-and-remove/direct", func() error {
		box, err := c.makeBox()
		if err == nil {
			box.remove()
		}
		return err
	})
	loop("make-and-remove/library", func() error {
		return each(libraryGroups(b, c, "library"), (*group).remove)
	})
}

// libraryGroups makes a cgroup in each hierarchy in use.
func libraryGroups(b *testing.B, c *cgroups, name string) []*group {
	b.Helper()
	var out []*group
	for _, h := range c.hierarchies() {
		path, err := filepath.Rel(h.mount, filepath.Join(h.base, name))
		if err != nil {
			b.Fatal(err)
		}
		g, err := h.makeGroup("/" + path)
		if err != nil {
			b.Fatal(err)
		}
		out = append(out, g)
	}
	return out
}

func each(groups []*group, f func(*group) error) error {
	for _, g := range groups {
		if err := f(g); err != nil {
			return err
		}
	}
	return nil
}

func libraryLimit(g *group) error {
	bytes := int64(64 << 20)
	if g.v2 != nil {
		var r cgroup2.Resources
		if exists(filepath.Join(g.dir, "memory.max")) {
			r.Memory = &cgroup2.Memory{Max: &bytes}
		}
		if exists(filepath.Join(g.dir, "cpuset.cpus")) {
			r.CPU = &cgroup2.CPU{Cpus: "0"}
		}
		return g.v2.Update(&r)
	}
	return g.v1.Update(&specs.LinuxResources{
		CPU: &specs.LinuxCPU{Cpus: "0"}, Memory: &specs.LinuxMemory{Limit: &bytes, Swap: &bytes},
	})
}

func libraryUsage(g *group) (err error) {
	if g.v2 != nil {
		_, err = g.v2.StatFiltered(cgroup2.StatCPU | cgroup2.StatMemory | cgroup2.StatMemoryEvents)
	} else {
		_, err = g.v1.Stat()
	}
	return err
}
