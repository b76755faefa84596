package state

import "cmp"

// NodeCount returns how many nodes are known.
func (s *State) NodeCount() int { return db(s).nodes.rows.Len() }

// PoolCount returns how many pools there are.
func (s *State) PoolCount() int { return db(s).pools.rows.Len() }

// NamespaceCount returns how many namespaces there are.
func (s *State) NamespaceCount() int { return db(s).namespaces.rows.Len() }

// PoolReferrers returns how many nodes, trajectories and actions are of a pool, those
// that have ended among them.
func (s *State) PoolReferrers(id PoolID) int {
	n, _ := db(s).index.poolReferrers.Get(id)
	return n
}

// NamespaceReferrers returns how many actions, trajectories, classes, jobs, policies and the like are of a
// namespace, those that have ended among them.
func (s *State) NamespaceReferrers(id NamespaceID) int {
	n, _ := db(s).index.nsReferrers.Get(id)
	return n
}

// refer counts a row that came, or one that went, by what it refers to; 0 is nothing.
func (s *State) refer(ns NamespaceID, pool PoolID, by int) {
	tally(&db(s).index.nsReferrers, ns, by)
	tally(&db(s).index.poolReferrers, pool, by)
}

// tally counts, and forgets what nothing is left of.
func tally[K cmp.Ordered](m *dict[K, int], k K, by int) {
	var none K
	if k == none {
		return
	}
	if n, _ := m.Get(k); n+by == 0 {
		m.Delete(k)
	} else {
		m.Set(k, n+by)
	}
}

// DeletePool forgets a pool that nothing refers to.
func (s *State) DeletePool(id PoolID) {
	Assert(s.PoolReferrers(id) == 0, "pool %d is referred to", id)
	if old := db(s).pools.delete(id); old != nil {
		db(s).index.poolNames.Delete(old.Name)
		s.DeleteClocks(func(q Queue) bool {
			pool, _ := q.GPUs()
			return q == QueueOf(PoolQueue, id) || q.Kind == GPUQueue && pool == id
		})
	}
}

// DeleteNamespace forgets a namespace that nothing refers to.
func (s *State) DeleteNamespace(id NamespaceID) {
	Assert(s.NamespaceReferrers(id) == 0, "namespace %d is referred to", id)
	if old := db(s).namespaces.delete(id); old != nil {
		db(s).index.namespaceNames.Delete(old.Name)
		db(s).uses.delete(id)
		s.forgetShares(id)
		s.keepShares()
	}
}
