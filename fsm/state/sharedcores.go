package state

import "fmt"

// Shared cores. An attempt that has run for long may stop having cores to itself when others wait for
// cores: from then on, until it ends or its trajectory is paused, it shares the cores that its node
// has set aside for such attempts. The kernel divides those among them.

// SharersPerCore is how many attempts that share cores count as much as one that does not.
const SharersPerCore = 8

// MayShare reports whether an action can do with shared cores: one that can do with a single core, which need
// not be its own.
func (r *Action) MayShare() bool { return !r.Fixed && r.CoresMin == 1 && r.GPUs() == nil }

// Follows reports whether an attempt of an action that starts on the node can be given other cores, or share
// some, while it runs.
func (r *Node) Follows(a *Action) bool {
	return r.Resizes && (a.Resizable() || r.ShareAfterNS > 0 && a.MayShare())
}

// ShareAt is the log time from which an attempt on the node may share cores; 0: never. One that was paused
// keeps the cores that it then waited for.
func (r *Node) ShareAt(t *Attempt) int64 {
	if !r.Resizes || r.ShareAfterNS == 0 || t.Least != 1 || t.Shares || t.Stop || t.Pause != 0 {
		return 0
	}
	return t.StartedAt + r.ShareAfterNS
}

// SharedLeast is how many cores so many attempts share at least: a core for each SharersPerCore.
func SharedLeast(sharing uint32) int {
	return int(sharing+SharersPerCore-1) / SharersPerCore
}

// SharedSpare is how many of the shared cores can be given to an attempt that starts. They are part of
// Spare.
func (r *Node) SharedSpare() uint32 {
	if !r.Resizes {
		return 0
	}
	return uint32(max(0, r.Shared.Len()-SharedLeast(r.Sharing)))
}

// SetShared changes the cores that attempts of the node share, and how many do. What was shared before,
// and is not now, is free.
func (r *Node) SetShared(cores CoreSet, sharing uint32) {
	r.Spare -= r.SharedSpare()
	if r.Shared == (CoreSet{}) && cores != (CoreSet{}) {
		r.SharedAnchor = cores.First(1).Slice()[0]
	}
	if cores == (CoreSet{}) {
		r.SharedAnchor = 0
	}
	r.Free = r.Free.Union(r.Shared).Minus(cores)
	r.Shared, r.Sharing = cores, sharing
	r.Spare += r.SharedSpare()
}

// SharesLess takes one attempt out of those that share cores.
func (r *Node) SharesLess() {
	cores := r.Shared
	if r.Sharing == 1 {
		cores = CoreSet{}
	}
	r.SetShared(cores, r.Sharing-1)
}

// checkShared: some cores are shared exactly if attempts share them, and they are enough.
func (r *Node) checkShared(sharing uint32) error {
	n := r.Shared.Len()
	if r.Sharing != sharing || (n > 0) != (sharing > 0) || n < SharedLeast(sharing) || n > 0 && !r.Shared.Has(int(r.SharedAnchor)) || n == 0 && r.SharedAnchor != 0 {
		return fmt.Errorf("node %s: %d attempts share cores, its row says %d, of cores %v with %d", r.Name, sharing, r.Sharing, r.Shared.Slice(), r.SharedAnchor)
	}
	return nil
}
