package inventory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// coresMax is how many CPU numbers the cluster can tell apart.
const coresMax = 512

// ErrTooFewCores means that more cores were to be declared than may be used.
var ErrTooFewCores = errors.New("inventory: the machine has fewer cores")

// Inventory is what a node offers.
type Inventory struct {
	// NUMA holds the CPUs of each NUMA node in ascending order, without empty
	// nodes.
	NUMA [][]int
	// MemoryBytes is what attempts and trajectories may use together.
	MemoryBytes uint64
	Labels      map[string]string
	// Pinned says that the CPUs exist. Without it they are only counted.
	Pinned bool
	GPUs   *GPUs // nil: none
}

// Options change what is read. The zero value reads the machine as it is.
type Options struct {
	// Root is put before every path; "/" if empty.
	Root string
	// Allowed are the CPUs that may be used; by default those of this process.
	Allowed []int
	// Cores declares only so many; 0 means all. Oversubscribe allows more than
	// there are; they are then not pinned.
	Cores         int
	Oversubscribe bool
	// MemoryBytes declares that much; 0 means the machine's, less a reserve.
	MemoryBytes uint64
	// Labels are added to those of the machine and win over them.
	Labels map[string]string
	// GPUs is GPUsAuto, GPUsAll or GPUsNone; SimulatedGPUs are declared instead of
	// any that are there.
	GPUs          string
	SimulatedGPUs *GPUs
}

// Read takes the inventory.
func Read(o Options) (*Inventory, error) {
	if o.Root == "" {
		o.Root = "/"
	}
	inv := &Inventory{Pinned: true, Labels: labels(o)}
	var err error
	if inv.NUMA, err = readNUMA(o); err != nil {
		return nil, err
	}
	if inv.MemoryBytes = o.MemoryBytes; inv.MemoryBytes == 0 {
		if inv.MemoryBytes, err = readMemory(o.Root); err != nil {
			return nil, err
		}
	}
	if inv.GPUs, err = readGPUs(o); err != nil {
		return nil, err
	}
	return inv, inv.declare(o)
}

// Cores returns how many cores the node offers.
func (inv *Inventory) Cores() int {
	n := 0
	for _, cpus := range inv.NUMA {
		n += len(cpus)
	}
	return n
}

// Has reports whether a CPU number is one that the node offers.
func (inv *Inventory) Has(cpu int) bool {
	return slices.ContainsFunc(inv.NUMA, func(cpus []int) bool { return slices.Contains(cpus, cpu) })
}

// declare applies the number of cores that the operator wants to be seen.
func (inv *Inventory) declare(o Options) error {
	have := inv.Cores()
	switch {
	case o.Cores < 0 || o.Cores > coresMax:
		return fmt.Errorf("inventory: a node has 1 to %d cores, not %d", coresMax, o.Cores)
	case o.Cores == 0 || o.Cores == have:
		return nil
	case o.Cores > have && !o.Oversubscribe:
		return fmt.Errorf("%w: it may use %d, %d were declared; allow oversubscription to run without pinning",
			ErrTooFewCores, have, o.Cores)
	case o.Cores > have:
		inv.NUMA, inv.Pinned = [][]int{span(o.Cores)}, false
		return nil
	}
	left := o.Cores
	for i, cpus := range inv.NUMA {
		inv.NUMA[i] = cpus[:min(left, len(cpus))]
		left -= len(inv.NUMA[i])
	}
	inv.NUMA = slices.DeleteFunc(inv.NUMA, func(cpus []int) bool { return len(cpus) == 0 })
	return nil
}

// readNUMA returns the usable CPUs by NUMA node. CPUs that no node lists, as
// on kernels without NUMA, form a node of their own.
func readNUMA(o Options) ([][]int, error) {
	usable, err := usableCPUs(o)
	if err != nil {
		return nil, err
	}
	dirs, err := filepath.Glob(filepath.Join(o.Root, "sys/devices/system/node/node[0-9]*"))
	if err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}
	slices.SortFunc(dirs, func(a, b string) int { return nodeNumber(a) - nodeNumber(b) })
	var numa [][]int
	for _, dir := range dirs {
		listed, err := readList(filepath.Join(dir, "cpulist"))
		if err != nil {
			return nil, err
		}
		var cpus []int
		for _, cpu := range listed {
			if usable[cpu] {
				cpus = append(cpus, cpu)
				delete(usable, cpu)
			}
		}
		if len(cpus) > 0 {
			numa = append(numa, cpus)
		}
	}
	var rest []int
	for cpu := range usable {
		rest = append(rest, cpu)
	}
	if slices.Sort(rest); len(rest) > 0 {
		numa = append(numa, rest)
	}
	if len(numa) == 0 {
		return nil, errors.New("inventory: no CPU is both online and allowed for this process")
	}
	return numa, nil
}

// usableCPUs are the CPUs that are online, allowed and have a number that the
// cluster can express.
func usableCPUs(o Options) (map[int]bool, error) {
	online, err := readList(filepath.Join(o.Root, "sys/devices/system/cpu/online"))
	if err != nil {
		return nil, err
	}
	allowed := o.Allowed
	if allowed == nil {
		if allowed, err = affinity(); err != nil {
			return nil, err
		}
	}
	usable := map[int]bool{}
	for _, cpu := range online {
		if cpu < coresMax && slices.Contains(allowed, cpu) {
			usable[cpu] = true
		}
	}
	return usable, nil
}

func affinity() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("inventory: CPU affinity: %w", err)
	}
	var cpus []int
	for cpu := range coresMax {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

func nodeNumber(dir string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "node"))
	return n
}

func readList(path string) ([]int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}
	cpus, err := ParseList(strings.TrimSpace(string(b)))
	if err != nil {
		return nil, fmt.Errorf("inventory: %s: %w", path, err)
	}
	return cpus, nil
}

// ParseList reads the kernel's list format, such as "0-3,8". An empty list is
// no CPUs.
func ParseList(s string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		if part == "" && s == "" {
			break
		}
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.ParseUint(first, 10, 16)
		b, errB := strconv.ParseUint(last, 10, 16)
		if errA != nil || errB != nil || b < a {
			return nil, fmt.Errorf("%q is not a list of CPUs", s)
		}
		for cpu := a; cpu <= b; cpu++ {
			out = append(out, int(cpu))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func span(n int) []int {
	cpus := make([]int, n)
	for i := range cpus {
		cpus[i] = i
	}
	return cpus
}

func labels(o Options) map[string]string {
	l := map[string]string{"arch": goruntime.GOARCH}
	for label, path := range map[string]string{"kernel": "osrelease", "hostname": "hostname"} {
		if b, err := os.ReadFile(filepath.Join(o.Root, "proc/sys/kernel", path)); err == nil {
			l[label] = strings.TrimSpace(string(b))
		}
	}
	for k, v := range o.Labels {
		l[k] = v
	}
	return l
}
