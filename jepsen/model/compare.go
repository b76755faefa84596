package model

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"rota/fsm/state"
)

// finish compares what the entry changed.
func (m *Model) finish() error {
	if err := m.compareMeta(); err != nil {
		return err
	}
	m.learnStops()
	if err := cmp.Or(m.learnGangStops(), m.judgeDivisions(), m.limitsHeld()); err != nil {
		return err
	}
	if err := m.compareLedger(); err != nil {
		return err
	}
	if err := m.compareQuotas(); err != nil {
		return err
	}
	for _, a := range m.touchedActions {
		a.touched = false
		if err := m.compareAction(a); err != nil {
			return err
		}
	}
	for _, t := range m.touchedTrajectories {
		t.touched = false
		if err := m.compareTrajectory(t); err != nil {
			return err
		}
	}
	for _, p := range m.touchedPools {
		p.touched = false
		m.learnBypasses(p)
		m.learnReserved(p)
		if err := m.compareAside(p); err != nil && !p.halted {
			return err
		}
		if m.s.HasWork() {
			continue
		}
		if err := m.nobodyForgotten(p); err != nil {
			return err
		}
	}
	if err := m.compareClasses(m.touchedClasses); err != nil {
		return err
	}
	for _, compare := range []func() error{m.compareStaged, m.compareMigrations, m.compareSnapshots, m.compareWorkers} {
		if err := compare(); err != nil {
			return err
		}
	}
	if err := cmp.Or(m.compareRollouts(), m.compareAccess()); err != nil {
		return err
	}
	if err := cmp.Or(m.compareUses(), m.compareShares(), m.compareRewards()); err != nil {
		return err
	}
	if err := m.compareEngines(m.touchedEngines); err != nil {
		return err
	}
	for _, id := range m.touchedRequests {
		if r := m.requests[id]; r != nil { // it was not forgotten since
			if err := m.compareRequest(id, r); err != nil {
				return err
			}
		}
	}
	for _, n := range m.touchedNodes {
		n.touched = false
		if err := m.compareNode(n); err != nil {
			return err
		}
	}
	return nil
}

// learnBypasses takes over how often the actions of a pool were bypassed. Where namespaces take
// turns, that is not judged.
func (m *Model) learnBypasses(p *pool) {
	patience := m.learnPatience
	if m.takesTurns() {
		patience = m.learnPasses
	}
	patience(&p.queue)
	m.learnPasses(&p.coreless)
	patience(&p.gangs)
	for _, q := range p.gpuQueues {
		patience(q)
	}
	for _, n := range p.nodes {
		patience(&n.queue)
		m.learnPasses(&n.coreless)
	}
}

// compareMeta compares what there is one of.
func (m *Model) compareMeta() error {
	meta := m.s.Meta()
	got := []uint64{meta.Revision, uint64(meta.LastAction), uint64(meta.LastTrajectory), meta.LastIncarnation,
		uint64(meta.LastNamespace), uint64(meta.LastPool), uint64(meta.LastNode), uint64(meta.LastClass), uint64(meta.Level),
		uint64(meta.LastQuota), uint64(m.s.QuotaCount()), uint64(m.s.RequestCount()),
		uint64(meta.LastGroup), uint64(meta.LastJob), uint64(meta.LastTurn), meta.LastToken, uint64(m.s.NodeGroupCount()), uint64(m.s.JobCount()),
		meta.LastGeneration, uint64(m.s.EngineCount())}
	want := []uint64{m.revision, uint64(m.lastAction), uint64(m.lastTrajectory), m.lastIncarnation,
		uint64(m.lastNamespace), uint64(m.lastPool), uint64(m.lastNode), uint64(m.lastClass), uint64(m.level),
		uint64(m.lastQuota), uint64(len(m.quotas)), uint64(len(m.requests)),
		uint64(m.lastGroup), uint64(m.lastJob), uint64(m.lastTurn), m.lastToken, uint64(len(m.groups)), uint64(len(m.jobs)),
		m.lastGeneration, uint64(len(m.engines))}
	if !slices.Equal(got, want) {
		return fmt.Errorf("revision, last action, trajectory, incarnation, namespace, pool, node, class, scheduler version, last quota, quotas, request IDs, last group, job, turn, token, groups, jobs, last generation and engines are %d, must be %d", got, want)
	}
	if got := m.s.Counts(); got != m.counts {
		return fmt.Errorf("counts are %+v, must be %+v", got, m.counts)
	}
	return nil
}

// learnStops takes over that the running actions of closing trajectories were
// told to stop, which no event says. That may take several entries, in which nothing
// else happens to the trajectory.
func (m *Model) learnStops() {
	for _, id := range slices.Sorted(maps.Keys(m.trajectories)) {
		t := m.trajectories[id]
		if t.State != state.TrajectoryClosing {
			continue
		}
		all := !m.s.WorkLeft(state.QueueOf(state.TrajectoryTeardown, t.ID)) && !t.pool.halted
		for _, a := range t.live {
			if a.State == state.ActionRunning && a.CancelReason == 0 && (all || m.s.Action(a.ID).CancelReason == state.EndTrajectoryEnded) {
				a.CancelReason = state.EndTrajectoryEnded
				m.stopsThawing(a)
				m.touchAction(a)
			}
		}
	}
}

// learnReserved takes over which nodes of a pool are reserved for whom, which no event
// says.
func (m *Model) learnReserved(p *pool) {
	for _, n := range p.nodes {
		held := m.reservedFor(n)
		n.served = false
		if n.ReservedFor == held {
			continue
		}
		if a := m.actions[n.ReservedFor]; a != nil && a.ReservedOn == n.ID {
			a.ReservedOn, a.passed = 0, 0
			if first := m.actions[a.Gang]; first != nil {
				first.passed = 0
			}
		}
		n.ReservedFor = held
		if a := m.actions[held]; a != nil {
			a.ReservedOn, a.passed = n.ID, 0
		}
	}
}

// compareAction compares a row with what it must be. What the model does not
// know by itself is judged elsewhere: how often it was bypassed, what is held.
func (m *Model) compareAction(a *action) error {
	got := m.s.Action(a.ID)
	if got == nil {
		return fmt.Errorf("action %d is missing", a.ID)
	}
	x, y := *got, a.Action
	x.Spec, x.Result, y.Spec, y.Result = nil, nil, nil, nil
	x.Bypassed, x.BlockedAt, x.ReservedOn = y.Bypassed, y.BlockedAt, y.ReservedOn
	switch {
	case !sameAction(&x, &y):
		return fmt.Errorf("action %d is %+v, must be %+v", a.ID, x, y)
	case !bytes.Equal(got.Spec, a.Spec):
		return fmt.Errorf("action %d has another spec than was submitted", a.ID)
	case got.Bypassed > m.settings.BypassMax:
		return fmt.Errorf("action %d was bypassed %d times, at most %d are allowed", a.ID, got.Bypassed, m.settings.BypassMax)
	case !sameResult(got.Result, a.Result):
		return fmt.Errorf("action %d has result %+v, must be %+v", a.ID, got.Result, a.Result)
	}
	return m.compareAttempt(a)
}

func sameAction(x, y *state.Action) bool {
	return x.ID == y.ID && x.Namespace == y.Namespace && x.Pool == y.Pool && x.Trajectory == y.Trajectory &&
		x.State == y.State && x.CoresMin == y.CoresMin && x.CoresMax == y.CoresMax && x.Memory == y.Memory &&
		x.AttemptsMax == y.AttemptsMax && x.Attempt == y.Attempt && x.Node == y.Node &&
		x.QueueDeadline == y.QueueDeadline && x.SubmittedAt == y.SubmittedAt && x.StartedAt == y.StartedAt &&
		x.EndedAt == y.EndedAt && x.CancelReason == y.CancelReason && x.Revision == y.Revision &&
		x.QuotasHeld == y.QuotasHeld && slices.Equal(x.QuotaKeys, y.QuotaKeys) && slices.Equal(x.Used, y.Used) &&
		x.Gang == y.Gang && x.GangSize == y.GangSize && x.GangSpread == y.GangSpread && x.GangEndedBy == y.GangEndedBy &&
		x.Class == y.Class && x.Fixed == y.Fixed && x.SizeHint == y.SizeHint && x.Labels == y.Labels && (x.Needs == y.Needs || reflect.DeepEqual(x.Needs, y.Needs))
}

func sameResult(x, y *state.Result) bool {
	if x == nil || y == nil {
		return x == y
	}
	return x.Message == y.Message && x.Reason == y.Reason && x.ExitCode == y.ExitCode && x.Signal == y.Signal &&
		x.ExecNS == y.ExecNS && x.CPUNS == y.CPUNS && x.MemoryPeak == y.MemoryPeak &&
		bytes.Equal(x.Stdout, y.Stdout) && bytes.Equal(x.Stderr, y.Stderr)
}

func (m *Model) compareAttempt(a *action) error {
	at := m.s.Attempt(a.Node, a.ID)
	if a.State != state.ActionRunning {
		if at != nil {
			return fmt.Errorf("action %d does not run and has attempt %d on node %d", a.ID, at.Number, at.Node)
		}
		return nil
	}
	switch {
	case at == nil:
		return fmt.Errorf("action %d runs on node %d and has no attempt there", a.ID, a.Node)
	case at.Number != a.Attempt || at.Incarnation != a.incarnation || at.Cores != a.cores || at.Shares != a.shares || at.Reserved != a.reserved:
		return fmt.Errorf("action %d has attempt %+v, must be %d of incarnation %d on cores %v", a.ID, at, a.Attempt, a.incarnation, a.cores.Slice())
	case at.Chunk != a.chunk || at.SetUpNS != a.setUp || at.Bandwidth != a.Bandwidth():
		return fmt.Errorf("action %d holds chunk %+v with a set-up of %d ns and %d bit/s, must be %+v, %d and %d", a.ID, at.Chunk, at.SetUpNS, at.Bandwidth, a.chunk, a.setUp, a.Bandwidth())
	case at.Stop != (a.CancelReason != 0):
		return fmt.Errorf("action %d was told to stop: %v, must be %v", a.ID, at.Stop, a.CancelReason != 0)
	}
	return a.comparePause(at)
}

func (m *Model) compareTrajectory(t *trajectory) error {
	got := m.s.Trajectory(t.ID)
	if got == nil {
		return fmt.Errorf("trajectory %d is missing", t.ID)
	}
	if t.State == state.TrajectoryPending {
		t.RequestedCores, t.RequestedBandwidth = t.asks()
		t.Aside = got.Aside // which is judged with its pool
	} else {
		t.RequestedCores, t.RequestedBandwidth, t.Aside = 0, 0, false
	}
	if *got != t.Trajectory {
		return fmt.Errorf("trajectory %d is %+v, must be %+v", t.ID, *got, t.Trajectory)
	}
	if t.State != state.TrajectoryClosing || t.pool.halted || m.s.WorkLeft(state.QueueOf(state.TrajectoryTeardown, t.ID)) {
		return nil
	}
	if len(t.live) == 0 {
		return fmt.Errorf("trajectory %d is closing with no live action", t.ID)
	}
	for _, a := range t.live {
		if a.State == state.ActionQueued {
			return fmt.Errorf("trajectory %d is closing and its action %d is still queued", t.ID, a.ID)
		}
	}
	return nil
}

func (m *Model) compareNode(n *node) error {
	got := m.s.NodeByName(n.Name)
	if now := m.nodes[n.Name]; now != n { // removed, and maybe another has its name
		if got != nil && now == nil {
			return fmt.Errorf("node %s was removed and is there", n.Name)
		}
		return nil
	}
	if got == nil {
		return fmt.Errorf("node %s is missing", n.Name)
	}
	x, y := got, &n.Node
	gpus := x.GPUs
	gpus.Free |= x.Withheld &^ n.out() // which is judged with the groups
	same := x.ID == y.ID && x.Pool == y.Pool && x.Incarnation == y.Incarnation && x.JournalID == y.JournalID &&
		x.State == y.State && x.Draining == y.Draining && x.Address == y.Address && x.Runtime == y.Runtime &&
		slices.Equal(x.Labels, y.Labels) && slices.Equal(x.NUMA, y.NUMA) && x.Free == y.Free &&
		x.Memory == y.Memory && x.FreeMemory == y.FreeMemory && x.RegisteredAt == y.RegisteredAt &&
		x.Running == y.Running && x.Trajectories == y.Trajectories && x.ReservedFor == y.ReservedFor &&
		gpus == y.GPUs && x.Bandwidth == y.Bandwidth && x.FreeBandwidth == y.FreeBandwidth &&
		slices.Equal(x.Sick, y.Sick) && slices.Equal(x.Disabled, y.Disabled) && x.Trusted == y.Trusted && x.CacheBytes == y.CacheBytes &&
		x.LowDisk == y.LowDisk && x.Drained == y.Drained && x.Resizes == y.Resizes && x.Spare == y.Spare &&
		x.Containers == y.Containers && x.ShareAfterNS == y.ShareAfterNS && x.Shared == y.Shared && x.Sharing == y.Sharing && x.SharedAnchor == y.SharedAnchor
	if !same {
		return fmt.Errorf("node %s is %+v, must be %+v", n.Name, *x, *y)
	}
	if err := m.compareModels(n); err != nil {
		return err
	}
	return m.compareInstances(n)
}

func (m *Model) compareRequest(id string, r *request) error {
	got := m.s.Request(id)
	if got == nil || got.Expires != r.expires || got.Verb != r.verb || got.Digest != r.digest || got.FirstID != r.first || got.Count != r.count || got.Namespace != r.namespace {
		return fmt.Errorf("request %q is remembered as %+v, must be %+v", id, got, *r)
	}
	return nil
}

// Compare compares everything that the model knows with a state that has applied
// the same entries.
func (m *Model) Compare(s *state.State) error {
	m.s = s
	if err := m.compareMeta(); err != nil {
		return err
	}
	for _, err := range []error{
		compareAll(m.actions, m.compareAction), compareAll(m.trajectories, m.compareTrajectory), compareAll(m.nodes, m.compareNode),
	} {
		if err != nil {
			return err
		}
	}
	for id := range m.workers.generations {
		m.workers.touched[id] = true
	}
	m.workers.lengths.touchAll()
	if err := m.compareWorkers(); err != nil {
		return err
	}
	for id := range m.rollouts.all {
		m.rollouts.touched[id] = true
	}
	for name := range m.rollouts.policies {
		m.rollouts.policiesTouched[name] = true
	}
	if err := m.compareRollouts(); err != nil {
		return err
	}
	m.access.touched = true
	if err := m.compareAccess(); err != nil {
		return err
	}
	for id, r := range m.requests {
		if err := m.compareRequest(id, r); err != nil {
			return err
		}
	}
	if err := m.compareAllClasses(); err != nil {
		return err
	}
	if err := m.compareEngines(slices.Sorted(maps.Keys(m.engines))); err != nil {
		return err
	}
	if err := m.compareAllOfLedger(); err != nil {
		return err
	}
	return m.nothingElse(s)
}

func compareAll[K comparable, R any](rows map[K]*R, compare func(*R) error) error {
	for _, r := range rows {
		if err := compare(r); err != nil {
			return err
		}
	}
	return nil
}

// nothingElse: the state has no row that the model does not have.
func (m *Model) nothingElse(s *state.State) (err error) {
	s.Actions(0, func(a *state.Action) bool {
		if m.actions[a.ID] == nil {
			err = fmt.Errorf("action %d should have been dropped", a.ID)
		}
		return err == nil
	})
	s.Trajectories(0, func(t *state.Trajectory) bool {
		if m.trajectories[t.ID] == nil {
			err = fmt.Errorf("trajectory %d should have been dropped", t.ID)
		}
		return err == nil
	})
	s.Nodes(0, func(n *state.Node) bool {
		if m.nodes[n.Name] == nil {
			err = fmt.Errorf("node %s should have been removed", n.Name)
		}
		return err == nil
	})
	if a, b, c, d := s.NamespaceCount(), len(m.namespaces), s.PoolCount(), len(m.pools); a != b || c != d {
		return fmt.Errorf("there are %d namespaces, must be %d, and %d pools, must be %d", a, b, c, d)
	}
	s.Namespaces(func(n *state.Namespace) bool {
		if m.namespaces[n.Name] != n.ID {
			err = fmt.Errorf("namespace %s has ID %d, must be %d", n.Name, n.ID, m.namespaces[n.Name])
		}
		return err == nil
	})
	s.Pools(func(p *state.Pool) bool {
		if known := m.pools[p.Name]; known == nil || known.id != p.ID || known.halted != (p.Halted != "") {
			err = fmt.Errorf("pool %s has ID %d, halted %q", p.Name, p.ID, p.Halted)
		}
		return err == nil
	})
	return err
}
