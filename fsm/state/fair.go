package state

import (
	"cmp"
	"fmt"
	"slices"
)

// NamespaceWeightMax is the largest weight of a namespace.
const NamespaceWeightMax = 1000

// NamespaceSettings are what an operator said of a namespace. One of which nothing was said has
// no row: see SettingsOf.
type NamespaceSettings struct {
	Namespace NamespaceID
	// Weight is in what proportion to the others it is served where they compete.
	Weight uint32
	// At most so many actions may be queued or run, and cores and GPUs be held by those that run;
	// 0: no limit.
	QueuedMax, RunningMax, CoresMax, GPUsMax uint32
	// TrajectoriesMax is how many trajectories may be open; 0: no limit.
	TrajectoriesMax uint32
	// MemoryMax is how many bytes open trajectories and running actions may reserve; 0: no limit.
	MemoryMax uint64
}

func (r *NamespaceSettings) code(c *codec) {
	number(c, &r.Namespace)
	number(c, &r.Weight)
	number(c, &r.QueuedMax)
	number(c, &r.RunningMax)
	number(c, &r.CoresMax)
	number(c, &r.GPUsMax)
	trailing(c, &r.TrajectoriesMax, number)
	trailing(c, &r.MemoryMax, number)
}

// Limits reports whether actions of the namespace may have to wait for each other.
func (r *NamespaceSettings) Limits() bool {
	return r.RunningMax > 0 || r.CoresMax > 0 || r.GPUsMax > 0 || r.MemoryMax > 0
}

// FairClocks are the clocks by which the namespaces are served that compete for one resource: the
// cores of a pool, a class of its GPUs, or a quota. All are relative to the virtual time of the
// resource, which is that of the last grant (docs/scheduling.md, "Shares of namespaces").
type FairClocks struct {
	// Queue is that of the resource: see Action.Resource.
	Queue QueueKey
	// MeanUS is how long what is granted of it is held, in microseconds; 0: nothing is known.
	MeanUS uint64
	Clocks []FairClock // by namespace
}

// FairClock is the clock of one namespace. It is 0 unless there is a row.
type FairClock struct {
	Namespace NamespaceID
	// Lead is by how much it is ahead of the virtual time, in unit-microseconds by weight. Who is
	// behind is served first.
	Lead int64
	// MeanUS is how long the namespace holds what it is granted; 0: nothing is known.
	MeanUS uint64
}

func (r *FairClocks) code(c *codec) {
	number(c, &r.Queue)
	number(c, &r.MeanUS)
	list(c, &r.Clocks, func(c *codec, k *FairClock) {
		number(c, &k.Namespace)
		signed(c, &k.Lead)
		number(c, &k.MeanUS)
	})
}

// Clock returns the clock of a namespace. Of a resource that was never contended, r is nil.
func (r *FairClocks) Clock(id NamespaceID) FairClock {
	if r != nil {
		if i, known := r.find(id); known {
			return r.Clocks[i]
		}
	}
	return FairClock{Namespace: id}
}

// With returns a copy with the clock of a namespace.
func (r *FairClocks) With(k FairClock) *FairClocks {
	out := *r
	out.Clocks = slices.Clone(r.Clocks)
	i, known := r.find(k.Namespace)
	if !known {
		out.Clocks = slices.Insert(out.Clocks, i, k)
	}
	out.Clocks[i] = k
	return &out
}

func (r *FairClocks) find(id NamespaceID) (i int, known bool) {
	return slices.BinarySearchFunc(r.Clocks, id, func(k FairClock, id NamespaceID) int { return cmp.Compare(k.Namespace, id) })
}

// Resource returns the queue that stands for the resource that an action waits for or holds next,
// by which namespaces take turns: that of a quota, of GPUs, or of the pool whose cores it needs,
// also if it waits for one node. It is the zero Queue if namespaces do not compete for it, as for
// what gangs wait for.
func (r *Action) Resource() Queue {
	if r.Aside || r.Gang != 0 || r.Trajectory != 0 && r.Node == 0 {
		return Queue{}
	}
	if quota := r.missing(); quota != 0 {
		return QueueOf(QuotaQueue, quota)
	}
	return r.KeyResource()
}

// KeyResource is the Resource of an action that has its quotas.
func (r *Action) KeyResource() Queue {
	switch {
	case r.Needs.gpus() != nil:
		return QueueOfGPUs(r.Pool, r.Needs.GPUs.Class)
	case r.CoresMin > 0:
		return QueueOf(PoolQueue, r.Pool)
	}
	return Queue{}
}

// PutSettings stores what an operator said of a namespace.
func (s *State) PutSettings(r *NamespaceSettings) {
	db(s).settings.put(db(s).enc, r.Namespace, r)
	s.keepShares()
}

// SettingsOf returns the settings of a namespace: a weight of 1 and no limits unless an operator
// said something else.
func (s *State) SettingsOf(id NamespaceID) *NamespaceSettings {
	if r := db(s).settings.get(id); r != nil {
		return r
	}
	return &NamespaceSettings{Namespace: id, Weight: 1}
}

// AnySettings reports whether an operator said something of any namespace.
func (s *State) AnySettings() bool { return db(s).settings.rows.Len() > 0 }

// Shares reports whether namespaces may compete: there are several.
func (s *State) Shares() bool { return s.meta.Level >= LevelResizing && s.NamespaceCount() > 1 }

// PutClocks stores the clocks of a resource.
func (s *State) PutClocks(r *FairClocks) { db(s).clocks.put(db(s).enc, r.Queue, r) }

// Clocks returns the clocks of a resource; nil if nobody has competed for it.
func (s *State) Clocks(q Queue) *FairClocks { return db(s).clocks.get(q.Key()) }

// AllClocks visits the clocks of all resources.
func (s *State) AllClocks(fn func(*FairClocks) bool) { db(s).clocks.scan(0, fn) }

// DeleteClocks forgets the clocks of resources that are gone.
func (s *State) DeleteClocks(gone func(Queue) bool) {
	for _, k := range db(s).clocks.rows.Keys() {
		if gone(k.Queue()) {
			db(s).clocks.delete(k)
		}
	}
}

// forgetShares forgets the settings and the clocks of a namespace that is deleted.
func (s *State) forgetShares(id NamespaceID) {
	db(s).settings.delete(id)
	for _, k := range db(s).clocks.rows.Keys() {
		r := db(s).clocks.get(k)
		if i, known := r.find(id); known {
			out := *r
			out.Clocks = slices.Delete(slices.Clone(r.Clocks), i, i+1)
			s.PutClocks(&out)
		}
	}
}

// checkSettings: they are of namespaces that exist, with a weight.
func (s *State) checkSettings() (err error) {
	db(s).settings.scan(0, func(r *NamespaceSettings) bool {
		if s.Namespace(r.Namespace) == nil || r.Weight == 0 || r.Weight > NamespaceWeightMax {
			err = fmt.Errorf("namespace %d has weight %d, or does not exist", r.Namespace, r.Weight)
		}
		return err == nil
	})
	return err
}

// checkClocks: they are of resources and namespaces that exist, in order.
func (s *State) checkClocks() (err error) {
	s.AllClocks(func(r *FairClocks) bool {
		q := r.Queue.Queue()
		pool, class := q.GPUs()
		there := q.Kind == PoolQueue && s.Pool(PoolID(q.ID)) != nil || q.Kind == QuotaQueue && s.Quota(QuotaID(q.ID)) != nil ||
			q.Kind == GPUQueue && s.Pool(pool) != nil && s.GPUClass(class) != nil
		if !there {
			err = fmt.Errorf("there are clocks of %v, which does not exist or is not shared", q)
		}
		for i, k := range r.Clocks {
			if s.Namespace(k.Namespace) == nil || i > 0 && k.Namespace <= r.Clocks[i-1].Namespace {
				err = fmt.Errorf("clock of namespace %d for %v: it does not exist, or is out of order", k.Namespace, q)
			}
		}
		return err == nil
	})
	return err
}
