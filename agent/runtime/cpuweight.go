package runtime

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// That each attempt has a cgroup in the cpu controller is what keeps a command with a
// thousand processes from taking more of a CPU than one with a single process, and from
// starving the supervisor. Weights are of a whole cgroup, and the kernel divides them among
// the CPUs on which it runs. So what may run on many has as many times the weight, and on
// each CPU all count the same.

// Weights for one CPU. The scale is that of v2, in which 100 is the default.
const (
	fullPart = 100
	// corelessPart is for attempts without CPUs of their own: they make way.
	corelessPart = 6
	// weightMax is the largest that the kernel takes.
	weightMax = 10_000
)

// cpuPart is the weight of an attempt with so many CPUs of its own.
func cpuPart(cpus int) int {
	if cpus == 0 {
		return corelessPart
	}
	return min(fullPart*cpus, weightMax)
}

// weigh gives a cgroup its part of CPU time.
func weigh(h *hierarchy, dir string, weight int) error {
	file, value := "cpu.weight", weight
	if !h.v2 {
		file, value = "cpu.shares", weight*1024/fullPart
	}
	if err := writeFile(filepath.Join(dir, file), strconv.Itoa(value)); err != nil {
		return fmt.Errorf("set the part of CPU time: %w", err)
	}
	return nil
}

// weighAll gives all attempts together, and the supervisor among them, as much of each
// CPU as anything else that runs there. The cgroup above the base has nothing in it but
// bases, unless it is the top of the tree.
func (c *cgroups) weighAll() error {
	h := c.holder("cpu")
	if h == nil {
		return nil
	}
	all := cpuPart(len(c.allowed))
	dirs := []string{h.base, filepath.Join(h.base, supervisorCgroup)}
	if above := filepath.Dir(h.base); above != h.mount {
		dirs = append(dirs, above)
	}
	for _, dir := range dirs {
		if err := ignoreMissing(weigh(h, dir, all)); err != nil {
			return err
		}
	}
	return nil
}
