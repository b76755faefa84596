package order

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"rota/fsm/state"
)

const pool1 = 1

// shared has namespaces 1, 2 and so on with these weights, at the level that shares.
func shared(weights ...uint32) *state.State {
	s := state.New()
	s.SetMeta(state.Meta{Level: state.LevelResizing, LastNamespace: state.NamespaceID(len(weights))})
	for i, w := range weights {
		id := state.NamespaceID(i + 1)
		s.PutNamespace(&state.Namespace{ID: id, Name: string(rune('a' + i))})
		s.PutSettings(&state.NamespaceSettings{Namespace: id, Weight: w})
	}
	return s
}

func queue(s *state.State, id state.ActionID, ns state.NamespaceID, cores uint32) {
	s.PutAction(&state.Action{ID: id, Namespace: ns, Pool: pool1, State: state.ActionQueued, CoresMin: cores, CoresMax: cores})
}

func drawQueue(r *rapid.T) *state.State {
	s := shared(rapid.SliceOfN(rapid.Uint32Range(1, 5), 1, 4).Draw(r, "weights")...)
	n := s.NamespaceCount()
	for id := range state.ActionID(rapid.IntRange(1, 60).Draw(r, "actions")) {
		queue(s, id+1, state.NamespaceID(rapid.IntRange(1, n).Draw(r, "namespace")), rapid.Uint32Range(1, 4).Draw(r, "cores"))
	}
	clocks := &state.FairClocks{Queue: state.QueueOf(state.PoolQueue, state.PoolID(pool1)).Key(), MeanUS: rapid.Uint64Range(0, 9_000_000).Draw(r, "mean")}
	for ns := range state.NamespaceID(n) {
		clocks.Clocks = append(clocks.Clocks, state.FairClock{
			Namespace: ns + 1, Lead: rapid.Int64Range(-20_000_000, 20_000_000).Draw(r, "lead"), MeanUS: rapid.Uint64Range(0, 9_000_000).Draw(r, "own mean"),
		})
	}
	s.PutClocks(clocks)
	return s
}

// TestTheOrderIsThatOfTheGrants compares what is read with what is granted one after the other:
// each time to the namespace whose clock is the furthest behind, by exact fractions.
func TestTheOrderIsThatOfTheGrants(t *testing.T) {
	q := state.QueueOf(state.PoolQueue, state.PoolID(pool1))
	rapid.Check(t, func(r *rapid.T) {
		s := drawQueue(r)
		waiting, tags := map[state.NamespaceID][]state.ActionID{}, map[state.NamespaceID]*big.Int{}
		s.Queued(q, 0, func(id state.ActionID) bool {
			ns := s.Action(id).Namespace
			waiting[ns] = append(waiting[ns], id)
			tags[ns] = big.NewInt(s.Clocks(q).Clock(ns).Lead)
			return true
		})
		f := NewFair(s, q, []state.Queue{q}, rapid.IntRange(1, 8).Draw(r, "ahead"))
		if len(waiting) < 2 {
			if f != nil {
				r.Fatalf("%d namespaces wait, and take turns", len(waiting))
			}
			return
		}
		for len(waiting) > 0 {
			var next state.NamespaceID
			for ns := range waiting {
				if c := 0; next == 0 {
					next = ns
				} else if c = tags[ns].Cmp(tags[next]); c < 0 || c == 0 && waiting[ns][0] < waiting[next][0] {
					next = ns
				}
			}
			got, _, ok := f.Next()
			if !ok || got.ID != waiting[next][0] {
				r.Fatalf("read %+v, want action %d of namespace %d", got, waiting[next][0], next)
			}
			k := s.Clocks(q).Clock(next)
			mean := k.MeanUS
			if mean == 0 {
				mean = s.Clocks(q).MeanUS
			}
			if mean == 0 {
				mean = meanUSUnknown
			}
			cost := new(big.Int).SetUint64(max(1, uint64(got.CoresMin)*mean/uint64(s.SettingsOf(next).Weight)))
			tags[next].Add(tags[next], cost)
			if waiting[next] = waiting[next][1:]; len(waiting[next]) == 0 {
				delete(waiting, next)
			}
		}
		if a, _, ok := f.Next(); ok {
			r.Fatalf("action %d is read twice", a.ID)
		}
	})
}

// TestGrantsKeepClocksTogether: whoever waits is granted units in turn, and the clocks of all who
// wait never are further apart than the two largest grants by weight.
func TestGrantsKeepClocksTogether(t *testing.T) {
	q := state.QueueOf(state.PoolQueue, state.PoolID(pool1))
	rapid.Check(t, func(r *rapid.T) {
		weights := rapid.SliceOfN(rapid.Uint32Range(1, 9), 2, 5).Draw(r, "weights")
		s := shared(weights...)
		most := int64(0)
		for i := range weights {
			queue(s, state.ActionID(i+1), state.NamespaceID(i+1), 1) // they wait for ever
		}
		var clocks *state.FairClocks
		for range 300 {
			next := state.NamespaceID(1)
			for ns := range state.NamespaceID(len(weights)) {
				if clocks.Clock(ns+1).Lead < clocks.Clock(next).Lead {
					next = ns + 1
				}
			}
			var us uint64
			clocks, us = Grant(s, clocks, q, next, rapid.Uint64Range(1, 8).Draw(r, "units"))
			most = max(most, int64(us)/int64(weights[next-1]))
			low, high := clocks.Clock(1).Lead, clocks.Clock(1).Lead
			for ns := range state.NamespaceID(len(weights)) {
				low, high = min(low, clocks.Clock(ns+1).Lead), max(high, clocks.Clock(ns+1).Lead)
			}
			if high-low > 2*most {
				r.Fatalf("the clocks are %+v, the largest grant is %d", clocks.Clocks, most)
			}
		}
	})
}

// TestNobodyIsOwedForBeingIdle: whoever does not wait keeps up with the virtual time; who waits and
// gets nothing falls behind it, but not without bound.
func TestNobodyIsOwedForBeingIdle(t *testing.T) {
	q := state.QueueOf(state.PoolQueue, state.PoolID(pool1))
	s := shared(1, 1, 1)
	queue(s, 1, 1, 1)
	queue(s, 2, 2, 1)
	var clocks *state.FairClocks
	for _, ns := range []state.NamespaceID{1, 2, 3} {
		clocks, _ = Grant(s, clocks, q, ns, 1)
	}
	for range 10_000 {
		clocks, _ = Grant(s, clocks, q, 1, 1)
	}
	if got := clocks.Clock(3).Lead; got != 0 {
		t.Errorf("the idle namespace is at %d", got)
	}
	if got := clocks.Clock(2).Lead; got != -creditMax*meanUSUnknown {
		t.Errorf("the one that waits is at %d", got)
	}
}

func TestExceeds(t *testing.T) {
	gpus := &state.Action{Needs: &state.Needs{GPUs: &state.GPUDemand{Degrees: []uint32{2, 4}}}}
	for _, c := range []struct {
		name string
		s    state.NamespaceSettings
		held state.Held
		a    *state.Action
		want Limit
	}{
		{"no limits", state.NamespaceSettings{}, state.Held{Running: 9, Cores: 9, GPUs: 9}, gpus, NoLimit},
		{"room for one", state.NamespaceSettings{RunningMax: 2}, state.Held{Running: 1}, gpus, NoLimit},
		{"no room for one", state.NamespaceSettings{RunningMax: 2}, state.Held{Running: 2}, gpus, RunningLimit},
		{"just enough cores", state.NamespaceSettings{CoresMax: 4}, state.Held{Cores: 1}, &state.Action{CoresMin: 3}, NoLimit},
		{"too few cores", state.NamespaceSettings{CoresMax: 4}, state.Held{Cores: 2}, &state.Action{CoresMin: 3}, CoresLimit},
		{"no cores needed", state.NamespaceSettings{CoresMax: 4}, state.Held{Cores: 4}, gpus, NoLimit},
		{"too few GPUs", state.NamespaceSettings{GPUsMax: 3}, state.Held{GPUs: 2}, gpus, GPUsLimit},
		{"no GPUs needed", state.NamespaceSettings{GPUsMax: 3}, state.Held{GPUs: 3}, &state.Action{CoresMin: 1}, NoLimit},
	} {
		if got := Exceeds(&c.s, c.held, c.a); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestChargesDoNotOverflow: many units for a long time are never charged less than few.
func TestChargesDoNotOverflow(t *testing.T) {
	const units, day = 1_000_000_000, 24 * 3600 * 1_000_000
	s := shared(1, 1)
	q := state.QueueOf(state.QuotaQueue, state.QuotaID(1))
	r := &state.FairClocks{Queue: q.Key(), MeanUS: day, Clocks: []state.FairClock{{Namespace: 1, MeanUS: day}, {Namespace: 2, MeanUS: day}}}
	granted, charged := Grant(s, r, q, 1, units)
	if lead := granted.Clock(1).Lead; lead != leadMax || charged != leadMax {
		t.Errorf("%d units for a day are charged %d, and the clock is at %d", units, charged, lead)
	}
	if lead := Settle(s, r, 1, 1, leadMax*8, day).Clock(1).Lead; lead < leadMax/2 {
		t.Errorf("when they are settled, the clock is at %d", lead)
	}
	long := &state.FairClocks{Queue: q.Key(), MeanUS: 1 << 53, Clocks: r.Clocks}
	long = long.With(state.FairClock{Namespace: 2, Lead: -5})
	if lead := must(Grant(s, long, q, 1, 1)).Clock(2).Lead; lead > 0 {
		t.Errorf("one that does not wait is at %d", lead)
	}
}

func must(r *state.FairClocks, _ uint64) *state.FairClocks { return r }

// TestWhatWasNotHeldTeachesNothing: how long a grant is held is not learned from one that was given
// back unused.
func TestWhatWasNotHeldTeachesNothing(t *testing.T) {
	r := &state.FairClocks{MeanUS: 5000, Clocks: []state.FairClock{{Namespace: 1, MeanUS: 7000}}}
	if got := Settle(shared(1), r, 1, 7000, 0, 0); got.MeanUS != 5000 || got.Clock(1).MeanUS != 7000 {
		t.Errorf("it is %d of all, and %d of its namespace", got.MeanUS, got.Clock(1).MeanUS)
	}
}
