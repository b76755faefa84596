package state

import (
	"cmp"
	"fmt"
)

// Check verifies every invariant of the state from its rows alone: cores held
// once, memory and counters adding up, rows pointing at rows that exist, indexes
// equal to what the rows say. It visits everything, so it is for tests and fault
// injection; what a write can see locally is asserted by the write.
func (s *State) Check() error {
	if err := s.CheckRows(); err != nil {
		return err
	}
	fresh := s.rebuild()
	for _, check := range []func() error{
		func() error { return s.checkIndexes(fresh) }, func() error { return s.checkHash(fresh) }, s.checkEvents,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// CheckRows is the part of Check that looks at rows as they are and rebuilds
// nothing, for those who check so often that they cannot afford the rest. The state machine decides
// by it whether a backup is accepted: see RestoreForeign before you change a check.
func (s *State) CheckRows() error {
	for _, check := range []func() error{
		s.checkMeta, s.checkNamespaces, s.checkPools, s.checkNodes, s.checkTrajectories, s.checkActions,
		s.checkAttempts, s.checkRequests, s.checkWork, s.checkParked, s.checkClasses, s.checkQuotas, s.checkReturns,
		s.checkGpuClasses, s.checkResidency, s.checkNodeGroups, s.checkJobs, s.checkReservations, s.checkTurns,
		s.checkEngines, s.checkNodeEngines, s.checkMigrations, s.checkLengths, s.checkLevels, s.checkFileSnapshots,
		s.checkPolicies,
		s.checkWorkers, s.checkGenerations, s.checkWorkerPools,
		s.checkRollouts, s.checkRolloutGroups, s.checkSamples, s.checkBatches, s.checkUses, s.checkSettings, s.checkClocks,
		s.checkAccessPolicies, s.checkAccessTokens, s.checkAuthMethods,
		s.checkRestoreParts,
		s.checkRewards, s.checkReplicas, s.checkLabels, s.checkAffinities,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkNodes: each core of a node is free or held by exactly one attempt of the
// node's incarnation; all memory that is not free is reserved.
func (s *State) checkNodes() (err error) {
	s.Nodes(0, func(n *Node) bool { err = s.checkNode(n); return err == nil })
	return err
}

func (s *State) checkNode(n *Node) error {
	held, reserved, running, spare, thawing, sharing := n.Shared, uint64(0), uint32(0), n.SharedSpare(), uint32(0), uint32(0)
	var err error
	s.Attempts(n.ID, func(a *Attempt) bool {
		switch {
		case held.Intersect(a.Cores) != CoreSet{}:
			err = fmt.Errorf("node %s: action %d holds cores that another holds", n.Name, a.Action)
		case a.Incarnation != n.Incarnation:
			err = fmt.Errorf("node %s: attempt of action %d has incarnation %d, not %d", n.Name, a.Action, a.Incarnation, n.Incarnation)
		}
		held = held.Union(a.Cores)
		reserved += a.Reserved
		spare += a.Spare()
		running++
		if a.Ice == IceThawing {
			thawing++
		}
		if a.Shares {
			sharing++
		}
		return err == nil
	})
	var trajectories, open uint32
	s.NodeTrajectories(n.ID, func(t *Trajectory) bool {
		trajectories++
		reserved += t.Memory
		if t.State == TrajectoryOpen {
			open++
		}
		return true
	})
	switch {
	case err != nil:
		return err
	case n.Free != n.Cores().Minus(held):
		return fmt.Errorf("node %s: free cores %v, held %v", n.Name, n.Free.Slice(), held.Slice())
	case n.Spare != spare || spare > 0 && !n.Resizes:
		return fmt.Errorf("node %s: %d cores can be taken from what runs, and its row says %d; it resizes: %v", n.Name, spare, n.Spare, n.Resizes)
	case n.FreeMemory+reserved != n.Memory:
		return fmt.Errorf("node %s: %d bytes free and %d reserved of %d", n.Name, n.FreeMemory, reserved, n.Memory)
	case n.Running != running || n.Trajectories != trajectories:
		return fmt.Errorf("node %s: counts %d running and %d trajectories, has %d and %d", n.Name, n.Running, n.Trajectories, running, trajectories)
	case n.LowDisk && !n.Draining || n.Drained && !n.LowDisk:
		return fmt.Errorf("node %s: low on disk %v, drained besides %v, gets no new work %v", n.Name, n.LowDisk, n.Drained, n.Draining)
	case n.State == NodeDown && s.endLater(QueueOf(NodeTeardown, n.ID)): // its attempts are being settled
	case n.State == NodeDown && running > 0:
		return fmt.Errorf("node %s is down and still runs %d attempts", n.Name, running)
	case n.State == NodeDown && open > 0:
		return fmt.Errorf("node %s is down and keeps %d open trajectories", n.Name, open)
	case n.ID > s.meta.LastNode || n.Incarnation > s.meta.LastIncarnation:
		return fmt.Errorf("node %s has ID %d and incarnation %d, the newest are %d and %d", n.Name, n.ID, n.Incarnation, s.meta.LastNode, s.meta.LastIncarnation)
	case n.Containers && s.meta.Level < LevelResizing:
		return fmt.Errorf("node %s runs containers, and the feature level is %d", n.Name, s.meta.Level)
	case n.ReservedFor != 0 && (s.Action(n.ReservedFor) == nil || s.Action(n.ReservedFor).ReservedOn != n.ID):
		return fmt.Errorf("node %s is reserved for action %d, which does not know", n.Name, n.ReservedFor)
	}
	return cmp.Or(n.checkShared(sharing), s.checkThawing(n, thawing), s.checkWithheld(n), s.checkGPUs(n), s.checkGPUHealth(n))
}

// endLater reports whether a teardown goes on in a later entry.
func (s *State) endLater(q Queue) bool { return s.WorkLeft(q) || db(s).parked.get(q.Key()) != nil }

// checkActions: an action runs exactly if it has a live attempt, and has a
// result exactly if it has ended.
func (s *State) checkActions() (err error) {
	s.Actions(0, func(a *Action) bool {
		at := db(s).attempts.get(a.ID)
		switch {
		case (a.State == ActionRunning) != (at != nil):
			err = fmt.Errorf("action %d: state %d, live attempt %v", a.ID, a.State, at != nil)
		case at != nil && (at.Number != a.Attempt || at.Node != a.Node):
			err = fmt.Errorf("action %d: attempt %d on node %d, row says %d on %d", a.ID, at.Number, at.Node, a.Attempt, a.Node)
		case a.State.Final() != (a.Result != nil):
			err = fmt.Errorf("action %d: state %d, result %v", a.ID, a.State, a.Result != nil)
		case s.Namespace(a.Namespace) == nil || s.Pool(a.Pool) == nil:
			err = fmt.Errorf("action %d: namespace or pool does not exist", a.ID)
		case a.ReservedOn != 0 && (s.Node(a.ReservedOn) == nil || s.Node(a.ReservedOn).ReservedFor != a.ID):
			err = fmt.Errorf("action %d has node %d reserved, which does not know", a.ID, a.ReservedOn)
		case !a.State.Final() && a.Trajectory != 0 && (s.Trajectory(a.Trajectory) == nil || s.Trajectory(a.Trajectory).Node != a.Node):
			err = fmt.Errorf("action %d is not on the node of its trajectory", a.ID)
		case len(a.QuotaKeys) != int(a.QuotasHeld), a.State == ActionRunning && a.missing() != 0, a.State.Final() && a.QuotasHeld > 0:
			err = fmt.Errorf("action %d in state %d holds keys %v of its quotas, counts %d", a.ID, a.State, a.QuotaKeys, a.QuotasHeld)
		case a.ID > s.meta.LastAction:
			err = fmt.Errorf("action %d is beyond the last ID %d", a.ID, s.meta.LastAction)
		default:
			err = s.checkGang(a)
		}
		return err == nil
	})
	return err
}

// checkAttempts: whatever is live belongs to an action that runs, on a node that
// exists.
func (s *State) checkAttempts() (err error) {
	db(s).attempts.scan(0, func(at *Attempt) bool {
		a := s.Action(at.Action)
		switch {
		case a == nil || a.State != ActionRunning || s.Node(at.Node) == nil:
			err = fmt.Errorf("attempt %d of action %d on node %d is of no running action, or the node does not exist", at.Number, at.Action, at.Node)
		case at.Shares && (at.Cores != CoreSet{} || at.Ice > IceWanted || !a.MayShare()):
			err = fmt.Errorf("attempt %d of action %d shares cores, has %v to itself, and may do with %d", at.Number, at.Action, at.Cores.Slice(), at.Least)
		case at.Ice <= IceWanted && !at.Shares && (at.Cores == CoreSet{}) != (a.CoresMin == 0):
			err = fmt.Errorf("attempt %d of action %d holds cores %v, it asks for %d at least", at.Number, at.Action, at.Cores.Slice(), a.CoresMin)
		case at.Ice <= IceWanted && at.Least != 0 && !at.Shares && (at.Least != a.CoresMin || !a.Resizable() && !a.MayShare() || at.Cores.Len() < int(at.Least) || !at.Cores.Has(int(at.Anchor))):
			err = fmt.Errorf("attempt %d of action %d holds cores %v, and may not lose %d of them and core %d", at.Number, at.Action, at.Cores.Slice(), at.Least, at.Anchor)
		case (at.Chunk.Units != 0) != (a.GPUs() != nil) || at.Bandwidth != a.Bandwidth():
			err = fmt.Errorf("attempt %d of action %d holds chunk %+v and %d bit/s", at.Number, at.Action, at.Chunk, at.Bandwidth)
		default:
			err = s.checkIce(at, a)
		}
		return err == nil
	})
	return err
}

// checkTrajectories: live counts add up, and only pending ones have no node.
func (s *State) checkTrajectories() (err error) {
	s.Trajectories(0, func(t *Trajectory) bool {
		var live uint32
		s.TrajectoryActions(t.ID, 0, func(a *Action) bool {
			if !a.State.Final() {
				live++
			}
			return true
		})
		switch {
		case t.ID > s.meta.LastTrajectory:
			err = fmt.Errorf("trajectory %d is beyond the last ID %d", t.ID, s.meta.LastTrajectory)
		case live != t.Live:
			err = fmt.Errorf("trajectory %d: %d live actions, row says %d", t.ID, live, t.Live)
		case t.State == TrajectoryPending && t.Node != 0, t.State == TrajectoryOpen && t.Node == 0:
			err = fmt.Errorf("trajectory %d: state %d on node %d", t.ID, t.State, t.Node)
		case t.Container && s.meta.Level < LevelResizing:
			err = fmt.Errorf("trajectory %d has a container, and the feature level is %d", t.ID, s.meta.Level)
		case t.Snapshot > s.meta.LastFileSnapshot || t.Snapshot != 0 && t.State == TrajectoryPending:
			err = fmt.Errorf("trajectory %d in state %d began with snapshot %d, and the last is %d", t.ID, t.State, t.Snapshot, s.meta.LastFileSnapshot)
		case t.State.Ended() && live > 0:
			err = fmt.Errorf("trajectory %d has ended with %d live actions", t.ID, live)
		default:
			err = cmp.Or(s.checkSpread(t), s.checkPause(t))
		}
		return err == nil
	})
	return err
}

// checkIndexes compares what was derived with what is derived again from the rows.
func (s *State) checkIndexes(fresh *State) error {
	if a, b := db(fresh).index.counts, db(s).index.counts; a != b {
		return fmt.Errorf("counts %+v, rows say %+v", b, a)
	}
	if db(fresh).index.queuedBytes != db(s).index.queuedBytes || db(fresh).index.endedBytes != db(s).index.endedBytes {
		return fmt.Errorf("byte counts differ from the rows")
	}
	if a, b := db(fresh).index.migrationCounts, db(s).index.migrationCounts; a != b {
		return fmt.Errorf("counts of migrations are %+v, rows say %+v", b, a)
	}
	if a, b := db(fresh).index.rolloutTotals, db(s).index.rolloutTotals; a != b {
		return fmt.Errorf("totals of rollouts are %+v, rows say %+v", b, a)
	}
	for _, i := range indexed {
		if !i.same(&db(fresh).index, &db(s).index) {
			return fmt.Errorf("index %s differs from the rows", i.name)
		}
	}
	return nil
}

// checkHash compares the incremental hash with one from scratch.
func (s *State) checkHash(fresh *State) error {
	if a, b := fresh.Hash()+db(s).events.hash, s.Hash(); a != b {
		return fmt.Errorf("hash is %016x, rows say %016x", b, a)
	}
	return nil
}

func (s *State) checkEvents() error {
	if db(s).events.next != s.meta.Revision+1 {
		return fmt.Errorf("newest event is %d, revision %d", db(s).events.next-1, s.meta.Revision)
	}
	for rev := db(s).events.first; rev < db(s).events.next; rev++ {
		if e := db(s).events.at(rev); e.Revision != rev {
			return fmt.Errorf("event %d stands at %d", e.Revision, rev)
		}
	}
	return nil
}

// rebuild stores every row again, which computes indexes and hashes afresh.
// Events are left out.
func (s *State) rebuild() *State {
	f := New()
	f.SetMeta(s.meta)
	for i := range tables {
		tables[i].copyTo(s, f)
	}
	return f
}

func sameItems[T comparable](a, b *set[T]) bool {
	if a.Len() != b.Len() {
		return false
	}
	i := b.tree.Iter()
	defer i.Release()
	same, more := true, i.First()
	a.Scan(func(item T) bool {
		same = more && item == i.Item()
		more = i.Next()
		return same
	})
	return same
}

func sameValues[K cmp.Ordered, V comparable](a, b *dict[K, V]) bool {
	same := a.Len() == b.Len()
	a.Scan(func(k K, n V) bool {
		m, _ := b.Get(k)
		same = same && m == n
		return same
	})
	return same
}
