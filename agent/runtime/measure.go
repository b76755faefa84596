package runtime

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"rota/agent/plan"
)

// Use is what an attempt uses while it runs. Zero fields are unknown.
type Use struct {
	Key plan.Key
	// CPU time since it began.
	CPU time.Duration
	// Memory now, without files in the page cache that were not used lately, and the most with them; bytes.
	Memory, MemoryPeak uint64
	// Cache is the page cache of its files; bytes.
	Cache uint64
}

// measure returns what the attempts of a trajectory use that run, by their keys.
func (s *supervisor) measure(trajectory uint64) (out []Use) {
	for k, r := range s.reachesOf(trajectory) {
		u := r.box.measure()
		if now, err := s.reachOf(k); err != nil || now != r {
			continue // it has ended meanwhile, and another attempt may be where it was
		}
		out = append(out, Use{Key: k, CPU: u.cpu, Memory: u.memory, MemoryPeak: u.memoryPeak, Cache: u.cache})
	}
	slices.SortFunc(out, func(a, b Use) int { return cmp.Compare(a.Key.Action, b.Key.Action) })
	return out
}

// reachesOf returns how the attempts of a trajectory are reached that run.
func (s *supervisor) reachesOf(trajectory uint64) map[plan.Key]*reach {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[plan.Key]*reach{}
	for k, a := range s.attempts {
		if a.reach != nil && a.spec.Trajectory == trajectory {
			out[k] = a.reach
		}
	}
	return out
}

// measure adds what is used now to what was used so far. Without the memory controller it adds up the
// processes.
func (b *cgroupBox) measure() usage {
	u := b.consumed()
	switch h := b.all.holder("memory"); {
	case h == nil:
		u.memory = ofProcesses(readPIDs(filepath.Join(b.processDir(), "cgroup.procs"))).memory
	case h.v2:
		u.memory, u.cache = memoryOf(b.dir(h), "memory.current", "inactive_file", "file")
	default:
		u.memory, u.cache = memoryOf(b.dir(h), "memory.usage_in_bytes", "total_inactive_file", "total_cache")
	}
	return u
}

// memoryOf reads what a cgroup has: in a file all of it, and in memory.stat the files in the page
// cache, those that were not used lately and all.
func memoryOf(dir, all, inactive, cached string) (used, cache uint64) {
	stat := filepath.Join(dir, "memory.stat")
	used = readUint(filepath.Join(dir, all))
	return used - min(used, readField(stat, inactive)), readField(stat, cached)
}

// clockTick is the unit of CPU time in /proc, on all architectures of Go.
const clockTick = 10 * time.Millisecond

func (b *affinityBox) measure() usage { return ofProcesses(b.members()) }

// ofProcesses adds up processes. Of those that have ended it counts what one of these has waited for.
func ofProcesses(pids []int) (u usage) {
	for _, pid := range pids {
		f := statFields(pid)
		if len(f) < 22 {
			continue // it is gone
		}
		for _, ticks := range f[11:15] { // utime, stime, cutime, cstime
			n, _ := strconv.ParseUint(ticks, 10, 63)
			u.cpu += time.Duration(n) * clockTick
		}
		u.memory += residentBytes(f[21])
	}
	return u
}

// residentBytes is how much memory a number of pages is.
func residentBytes(pages string) uint64 {
	n, _ := strconv.ParseUint(pages, 10, 63)
	return n * uint64(os.Getpagesize())
}
