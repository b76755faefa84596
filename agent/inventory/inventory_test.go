package inventory_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"rota/agent/inventory"
)

// machine is a tree of the kernel's files.
type machine map[string]string

func (m machine) root(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range m {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	online  = "sys/devices/system/cpu/online"
	node    = "sys/devices/system/node/"
	meminfo = "proc/meminfo"
	gib     = uint64(1) << 30
)

func twoSockets() machine {
	return machine{
		online: "0-7", node + "node0/cpulist": "0-1,4-5", node + "node1/cpulist": "2-3,6-7",
		meminfo:                     "MemFree: 1 kB\nMemTotal:       33554432 kB",
		"proc/sys/kernel/osrelease": "6.12.0", "proc/sys/kernel/hostname": "box",
	}
}

func span(first, last int) (cpus []int) {
	for c := first; c <= last; c++ {
		cpus = append(cpus, c)
	}
	return cpus
}

func TestCores(t *testing.T) {
	ten := machine{online: "0-11", node + "node10/cpulist": "10-11", node + "node2/cpulist": "0-9", meminfo: twoSockets()[meminfo]}
	flat := machine{online: "0-3", meminfo: twoSockets()[meminfo]}
	huge := machine{online: "0-1023", node + "node0/cpulist": "0-1023", meminfo: twoSockets()[meminfo]}
	for name, c := range map[string]struct {
		machine machine
		o       inventory.Options
		want    [][]int
		pinned  bool
	}{
		"two sockets":                {twoSockets(), inventory.Options{Allowed: span(0, 7)}, [][]int{{0, 1, 4, 5}, {2, 3, 6, 7}}, true},
		"nodes in numeric order":     {ten, inventory.Options{Allowed: span(0, 11)}, [][]int{span(0, 9), {10, 11}}, true},
		"only what is allowed":       {twoSockets(), inventory.Options{Allowed: []int{3, 6, 99}}, [][]int{{3, 6}}, true},
		"without NUMA":               {flat, inventory.Options{Allowed: span(0, 3)}, [][]int{{0, 1, 2, 3}}, true},
		"more than can be numbered":  {huge, inventory.Options{Allowed: span(0, 1023)}, [][]int{span(0, 511)}, true},
		"fewer declared":             {twoSockets(), inventory.Options{Allowed: span(0, 7), Cores: 5}, [][]int{{0, 1, 4, 5}, {2}}, true},
		"one socket declared":        {twoSockets(), inventory.Options{Allowed: span(0, 7), Cores: 2}, [][]int{{0, 1}}, true},
		"more declared, not pinned":  {flat, inventory.Options{Allowed: span(0, 3), Cores: 6, Oversubscribe: true}, [][]int{span(0, 5)}, false},
		"as many declared as exist":  {flat, inventory.Options{Allowed: span(0, 3), Cores: 4, Oversubscribe: true}, [][]int{span(0, 3)}, true},
		"offline CPUs are not there": {machine{online: "0,2", node + "node0/cpulist": "0-3", meminfo: twoSockets()[meminfo]}, inventory.Options{Allowed: span(0, 3)}, [][]int{{0, 2}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Root = c.machine.root(t)
			inv, err := inventory.Read(c.o)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(inv.NUMA, c.want) || inv.Pinned != c.pinned {
				t.Errorf("cores %v pinned %v, want %v pinned %v", inv.NUMA, inv.Pinned, c.want, c.pinned)
			}
		})
	}
}

func TestMoreCoresThanThereAreAreRefused(t *testing.T) {
	_, err := inventory.Read(inventory.Options{Root: twoSockets().root(t), Allowed: span(0, 7), Cores: 9})
	if !errors.Is(err, inventory.ErrTooFewCores) {
		t.Errorf("9 of 8 cores: %v, want ErrTooFewCores", err)
	}
	for _, cores := range []int{-1, 513} {
		_, err := inventory.Read(inventory.Options{Root: twoSockets().root(t), Allowed: span(0, 7), Cores: cores, Oversubscribe: true})
		if err == nil {
			t.Errorf("%d cores were accepted", cores)
		}
	}
}

func TestMemory(t *testing.T) {
	with := func(files ...string) machine {
		m := twoSockets()
		for i := 0; i < len(files); i += 2 {
			m[files[i]] = files[i+1]
		}
		return m
	}
	for name, c := range map[string]struct {
		machine  machine
		declared uint64
		want     uint64
	}{
		"the machine's less 2 GiB": {with(), 0, 30 * gib},
		"a small machine's less a tenth": {
			with(meminfo, "MemTotal: 10485760 kB"), 0, 9 * gib},
		"declared": {with(), 5 * gib, 5 * gib},
		"limited by the own group": {
			with("proc/self/cgroup", "0::/a/b", "sys/fs/cgroup/a/b/memory.max", "10737418240", "sys/fs/cgroup/a/memory.max", "max"), 0, 9 * gib},
		"limited by a group above": {
			with("proc/self/cgroup", "0::/a/b", "sys/fs/cgroup/a/b/memory.max", "max", "sys/fs/cgroup/a/memory.max", "10737418240"), 0, 9 * gib},
		"limited by version 1": {
			with("proc/self/cgroup", "3:cpuset:/\n5:memory:/a\n0::/", "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "10737418240",
				"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"), 0, 9 * gib},
		"in a container that sees only its own root": {
			with("proc/self/cgroup", "0::/not/there", "sys/fs/cgroup/memory.max", "10737418240"), 0, 9 * gib},
	} {
		t.Run(name, func(t *testing.T) {
			inv, err := inventory.Read(inventory.Options{Root: c.machine.root(t), Allowed: span(0, 7), MemoryBytes: c.declared})
			if err != nil {
				t.Fatal(err)
			}
			if inv.MemoryBytes != c.want {
				t.Errorf("%d bytes, want %d", inv.MemoryBytes, c.want)
			}
		})
	}
}

func TestLabels(t *testing.T) {
	inv, err := inventory.Read(inventory.Options{
		Root: twoSockets().root(t), Allowed: span(0, 7), Labels: map[string]string{"hostname": "mine", "rack": "r1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{"kernel": "6.12.0", "hostname": "mine", "rack": "r1"} {
		if inv.Labels[k] != want {
			t.Errorf("label %s is %q, want %q", k, inv.Labels[k], want)
		}
	}
	if inv.Labels["arch"] == "" {
		t.Error("no label says the architecture")
	}
}

func TestParseList(t *testing.T) {
	for s, want := range map[string][]int{
		"": nil, "0": {0}, "0-2": {0, 1, 2}, "3,0-1": {0, 1, 3}, "1,1-2": {1, 2},
	} {
		if got, err := inventory.ParseList(s); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{",", "a", "1-", "-1", "2-1", "0,,1", "1-2-3", "99999999999"} {
		if got, err := inventory.ParseList(s); err == nil {
			t.Errorf("%q was read as %v", s, got)
		}
	}
}

func TestThisMachine(t *testing.T) {
	inv, err := inventory.Read(inventory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if inv.Cores() == 0 || inv.MemoryBytes == 0 || !inv.Pinned {
		t.Errorf("%+v", inv)
	}
}
