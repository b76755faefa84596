package state

import (
	"fmt"
	"math/bits"
)

// NamespaceUse is what the actions of a namespace have used since the namespace was created, of
// attempts that have ended, and its trajectories. Hooks of jobs count as other actions do.
type NamespaceUse struct {
	Namespace NamespaceID
	// CoreUS and GPUUS are core- and GPU-microseconds that attempts held, whether busy or not.
	CoreUS, GPUUS uint64
	// MemoryMiBS is MiB-seconds of memory that attempts reserved for themselves, and trajectories,
	// and MemoryRest the MiB-nanoseconds beyond, less than a second.
	MemoryMiBS, MemoryRest uint64
	// CPUUS is the CPU time that agents measured, in microseconds.
	CPUUS uint64
	// Attempts counts those that have ended, Ended the actions, and Succeeded those of them.
	Attempts, Ended, Succeeded uint64
	// MemoryAt is the log time until which the memory of trajectories is counted; 0: none is.
	MemoryAt int64
}

func (r *NamespaceUse) code(c *codec) {
	number(c, &r.Namespace)
	number(c, &r.CoreUS)
	number(c, &r.GPUUS)
	number(c, &r.MemoryMiBS)
	number(c, &r.MemoryRest)
	number(c, &r.CPUUS)
	number(c, &r.Attempts)
	number(c, &r.Ended)
	number(c, &r.Succeeded)
	trailing(c, &r.MemoryAt, signed)
}

// AddAttempt counts an attempt that ends at a log time.
func (r *NamespaceUse) AddAttempt(t *Attempt, now int64) {
	held := uint64(max(0, now-t.StartedAt))
	r.CoreUS += t.Used(now) / 1000
	r.GPUUS += uint64(t.Chunk.Units) * (held / 1000)
	r.addMemory(t.Reserved>>20, held)
	r.Attempts++
}

// AddTrajectories counts bytes that trajectories have reserved from MemoryAt to a log time.
func (r *NamespaceUse) AddTrajectories(memory uint64, now int64) {
	if r.MemoryAt != 0 {
		r.addMemory(memory>>20, uint64(max(0, now-r.MemoryAt)))
	}
	r.MemoryAt = now
}

// addMemory counts MiB that were reserved for some nanoseconds.
func (r *NamespaceUse) addMemory(mib, held uint64) {
	const second = 1_000_000_000
	hi, lo := bits.Mul64(mib, held)
	lo, carry := bits.Add64(lo, r.MemoryRest, 0)
	seconds, rest := bits.Div64((hi+carry)%second, lo, second) // no memory lasts for 500 years
	r.MemoryMiBS += seconds
	r.MemoryRest = rest
}

// PutUse stores what a namespace has used.
func (s *State) PutUse(r *NamespaceUse) { db(s).uses.put(db(s).enc, r.Namespace, r) }

// Use returns what a namespace has used; nil: nothing yet.
func (s *State) Use(id NamespaceID) *NamespaceUse { return db(s).uses.get(id) }

// UseNow is Use with the memory of trajectories until now.
func (s *State) UseNow(id NamespaceID) *NamespaceUse {
	r := s.Use(id)
	if r == nil {
		return nil
	}
	u := *r
	u.AddTrajectories(s.Opened(id).Placed, s.meta.Now)
	return &u
}

// checkUses: they are of namespaces that exist.
func (s *State) checkUses() (err error) {
	db(s).uses.scan(0, func(u *NamespaceUse) bool {
		if s.Namespace(u.Namespace) == nil || u.Succeeded > u.Ended || u.MemoryRest >= 1_000_000_000 {
			err = fmt.Errorf("use of namespace %d, which does not exist or has %d of %d actions that succeeded", u.Namespace, u.Succeeded, u.Ended)
		}
		return err == nil
	})
	return err
}
