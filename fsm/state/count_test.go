package state

import "testing"

// TestCountersOfNothingAreNotKept: what has had queued actions once leaves nothing
// behind when they have left the queue, however many there were.
func TestCountersOfNothingAreNotKept(t *testing.T) {
	s := New()
	s.SetMeta(Meta{Level: LevelResizing})
	for id, name := range []string{"", "a", "b"} {
		s.PutNamespace(&Namespace{ID: NamespaceID(id), Name: name}) // which share
	}
	queued := func(id uint64) []*Action {
		return []*Action{
			{ID: ActionID(4 * id), Namespace: NamespaceID(id), Pool: PoolID(id), State: ActionQueued, CoresMin: 1, CoresMax: 1},
			{ID: ActionID(4*id + 1), Namespace: NamespaceID(id), Pool: PoolID(id), State: ActionQueued, Trajectory: 1, Node: NodeID(id), CoresMin: 1, CoresMax: 1},
			{ID: ActionID(4*id + 2), Namespace: NamespaceID(id), Pool: PoolID(id), State: ActionQueued, Needs: &Needs{Quotas: []QuotaUse{{Quota: QuotaID(id), Units: 1}}}},
			{ID: ActionID(4*id + 3), Namespace: NamespaceID(id), Pool: PoolID(id), State: ActionQueued, Aside: true, Needs: &Needs{Quotas: []QuotaUse{{Quota: QuotaID(id), Units: 1}}}},
		}
	}
	sizes := func() []int {
		x := &db(s).index
		return []int{x.queueLen.Len(), x.nsQueued.Len(), x.queueOf.Len(), x.heads.Len(), x.waiting.Len(), x.poolQueued.Len(), x.poolForQuota.Len(), x.nodeQueued.Len()}
	}
	const rounds = 100
	for id := uint64(1); id <= rounds; id++ {
		for _, a := range queued(id) {
			s.PutAction(a)
		}
		for i, n := range sizes() {
			if n == 0 {
				t.Fatalf("counter %d counts nothing: nothing is tested", i)
			}
		}
		for _, a := range queued(id) {
			s.DeleteAction(a.ID)
		}
	}
	for i, n := range sizes() {
		if n != 0 {
			t.Errorf("counter %d has %d entries after %d rounds, want none", i, n, rounds)
		}
	}
}
