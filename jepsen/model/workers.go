package model

import (
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Workers, and what trajectories generate: where, and in which order. The model looks at all
// policies after each entry, whatever changed. How much a trajectory is predicted to generate yet
// is taken over; what it is predicted from and what follows from it are not.

const (
	workersMax         = 2048
	workerTextMax      = 128
	workerURLMax       = 512
	workerMessageMax   = 512
	workerSlotsMax     = 1024
	workerPointsMax    = 32
	workerTokenMax     = 60 * 1_000_000_000
	workerPrefillMax   = 3600 * 1_000_000_000
	workerRetryFirst   = 5 * 1_000_000_000
	workerRetryLast    = 300 * 1_000_000_000
	workerLeaveAfter   = 30 * 1_000_000_000
	generationWaitMax  = 60 * 1_000_000_000
	generationsMax     = 1024 // reports at once
	workerReportsMax   = 64
	generationMovesMax = 256
	hardwaresMax       = 8
	tokensMax          = 1 << 40
)

// workers is what the model knows of them.
type workers struct {
	all         map[string]*state.Worker
	pools       map[string]*state.WorkerPool
	affinities  map[lengthName]*state.Affinity
	generations map[state.TrajectoryID]*state.Generation
	// traces are what happened to them, lengths what was learned from those that have ended.
	traces  map[state.TrajectoryID]*lengthTrace
	lengths lengths
	// ending are those of which nothing was learned yet; true: they were cut off.
	ending map[state.TrajectoryID]bool
	// touched are the trajectories whose rows the entry changed; grown those whose prediction is
	// taken over.
	touched, grown map[state.TrajectoryID]bool
	// said is what the predictor service said in the entry.
	said map[state.TrajectoryID]saidLength
}

func newWorkers() workers {
	return workers{
		all: map[string]*state.Worker{}, pools: map[string]*state.WorkerPool{}, affinities: map[lengthName]*state.Affinity{}, generations: map[state.TrajectoryID]*state.Generation{},
		traces: map[state.TrajectoryID]*lengthTrace{}, ending: map[state.TrajectoryID]bool{},
		touched: map[state.TrajectoryID]bool{}, grown: map[state.TrajectoryID]bool{},
		said: map[state.TrajectoryID]saidLength{},
	}
}

func (m *Model) beginWorkers() {
	clear(m.workers.touched)
	clear(m.workers.grown)
	clear(m.workers.said)
}

func (m *Model) workerCommand(c *logv1.Command, got *logv1.Result) (known bool, err error) {
	var do func() error
	switch v := c.Verb.(type) {
	case *logv1.Command_RegisterWorker:
		do = func() error { return m.registerWorker(v.RegisterWorker, got) }
	case *logv1.Command_UpdateWorker:
		do = func() error { return m.updateWorker(v.UpdateWorker, got) }
	case *logv1.Command_RemoveWorker:
		do = func() error { return m.removeWorker(v.RemoveWorker, got) }
	case *logv1.Command_ReportGenerations:
		do = func() error { return m.reportGenerations(v.ReportGenerations, got) }
	case *logv1.Command_SuspendTrajectory:
		do = func() error { return m.suspendTrajectory(v.SuspendTrajectory, got) }
	case *logv1.Command_MoveGenerations:
		do = func() error { return m.moveGenerations(v.MoveGenerations, got) }
	case *logv1.Command_PredictGenerations:
		do = func() error { return m.predictGenerations(v.PredictGenerations, got) }
	case *logv1.Command_ChangeWorkerPool:
		do = func() error { return m.changeWorkerPool(v.ChangeWorkerPool, got) }
	case *logv1.Command_SetAffinity:
		do = func() error { return m.setAffinity(v.SetAffinity, got) }
	default:
		return false, nil
	}
	if m.level < levelResizing {
		return true, refused(got, "LEVEL_NOT_ACTIVE")
	}
	return true, do()
}

func (m *Model) stale(w *state.Worker) bool { return w.Version < m.rollouts.policies[w.Policy].Version }

// takesOver: the worker is up, and has a free slot.
func (m *Model) takesOver(w *state.Worker) bool {
	return w.RetryAt == 0 && !m.stale(w) && !w.Draining && len(m.at(w.Name)) < slotsOf(w)
}

func slotsOf(w *state.Worker) int {
	if w.Slots == 0 {
		return workerSlotsMax
	}
	return int(w.Slots)
}

// at are the trajectories of a worker by ID.
func (m *Model) at(name string) (at []*state.Generation) {
	for _, id := range slices.Sorted(maps.Keys(m.workers.generations)) {
		if g := m.workers.generations[id]; g.Worker == name && !g.Ended {
			at = append(at, g)
		}
	}
	return at
}

func (m *Model) registerWorker(c *logv1.RegisterWorker, got *logv1.Result) error {
	var v verdict
	v.refuse(c.Name == "" || max(len(c.Name), len(c.Node), len(c.Hardware), len(c.Pool)) > workerTextMax || c.Url == "" || len(c.Url) > workerURLMax, "INVALID")
	v.refuse(c.Dialect > 3 || c.Slots > workerSlotsMax || c.StartNs < 0 || c.StartNs > workerPrefillMax, "INVALID")
	profile, sound := profileOf(c.Profile, c.Prefill_1KNs)
	v.refuse(!sound, "INVALID")
	w := &state.Worker{
		Name: c.Name, Policy: c.Policy, URL: c.Url, Dialect: uint8(max(c.Dialect, 1)), Node: c.Node, Degree: max(c.Degree, 1), Hardware: c.Hardware,
		Cost: c.Cost, Slots: c.Slots, Prefill1kNS: c.Prefill_1KNs, Version: c.Version, RegisteredAt: m.now,
		Pool: c.Pool, Profile: profile,
	}
	if w.Starting = c.StartNs != 0; c.StartNs != 0 {
		w.RetryAt, w.Message = m.now+c.StartNs, "its engine starts"
	}
	old := m.workers.all[c.Name]
	if c.Pool != "" { // how long it takes is unknown until somebody says that it is up
		w.Starting = w.Starting || old == nil || old.Starting
	}
	v.refuse(old == nil && len(m.workers.all) >= workersMax, "TOO_MANY_WORKERS")
	m.named(&v, c.Policy)
	if ok, err := v.judge(got); !ok {
		return err
	}
	m.policy(c.Policy)
	m.workers.all[w.Name] = w
	if old != nil {
		w.Draining, w.RegisteredAt, w.OutputTokens = old.Draining, old.RegisteredAt, old.OutputTokens
		if w.Policy == old.Policy {
			w.LeaveAt, w.Overdue = old.LeaveAt, old.Overdue
		}
		for i, g := range m.at(w.Name) {
			if i >= slotsOf(w) || g.Policy != w.Policy {
				m.dismiss(g, state.PlacedChanged)
			}
		}
	}
	m.judgeVersion(w)
	return result(got, &logv1.Result{Count: 1})
}

// judgeVersion gives a worker time to receive a version that it lacks.
func (m *Model) judgeVersion(w *state.Worker) {
	if !m.stale(w) {
		w.LeaveAt, w.Overdue = 0, false
	} else if w.LeaveAt == 0 && !w.Overdue {
		w.LeaveAt = m.now + workerLeaveAfter
	}
}

func (m *Model) updateWorker(c *logv1.UpdateWorker, got *logv1.Result) error {
	w := m.workers.all[c.Name]
	if w == nil {
		return refused(got, "WORKER_NOT_FOUND")
	}
	if c.Draining != nil {
		w.Draining = *c.Draining
	}
	if c.Version != nil {
		w.Version = *c.Version
	}
	if c.Up {
		if w.Starting && w.OutputTokens == 0 {
			m.measureStart(w)
		}
		w.RetryAt, w.Message, w.Failures, w.Starting = 0, "", 0, false
	}
	m.judgeVersion(w)
	return result(got, &logv1.Result{Count: 1})
}

func (m *Model) removeWorker(c *logv1.RemoveWorker, got *logv1.Result) error {
	if m.workers.all[c.Name] == nil {
		return refused(got, "WORKER_NOT_FOUND")
	}
	for _, g := range m.at(c.Name) {
		m.dismiss(g, state.PlacedRemoved)
	}
	delete(m.workers.all, c.Name)
	return result(got, &logv1.Result{Count: 1})
}

// generates says why a trajectory cannot be opened to generate.
func (m *Model) generates(v *verdict, c *logv1.GenerationSpec) {
	if c == nil {
		return
	}
	v.refuse(m.rollouts.policies[c.Policy] == nil, "POLICY_NOT_FOUND")
	v.refuse(len(c.TaskClass) > nameBytesMax || len(c.Hardware) > hardwaresMax, "INVALID")
	for _, h := range c.Hardware {
		v.refuse(h == "" || len(h) > workerTextMax, "INVALID")
	}
}

func (m *Model) openGeneration(id state.TrajectoryID, c *logv1.GenerationSpec) {
	if c == nil {
		return
	}
	said, mean := m.siblings(id)
	trace := m.workers.lengths.begin(lengthName{c.Policy, c.TaskClass}, uint64(c.PromptTokens), said, mean)
	m.workers.traces[id] = trace
	m.workers.generations[id] = &state.Generation{
		Trajectory: id, Policy: c.Policy, TaskClass: c.TaskClass, Hardware: c.Hardware, Since: m.now, Cause: state.PlacedOpened,
		Trace: trace.row(),
	}
	m.workers.touched[id], m.workers.grown[id] = true, true
}

// siblingsMax is how many of a group that made samples are looked at, the last ones.
const siblingsMax = 64

// siblings are how many others of a trajectory's group made samples and have ended, and the mean
// of what they generated.
func (m *Model) siblings(id state.TrajectoryID) (said uint32, mean uint64) {
	t := m.trajectories[id]
	r := m.rollouts.all[t.Rollout]
	if r == nil || r.groups[t.Group] == nil {
		return 0, 0
	}
	sampled := slices.DeleteFunc(slices.Clone(r.groups[t.Group].Members), func(x state.GroupMembership) bool {
		return x.State != state.MemberSampled || x.Trajectory == id
	})
	for _, x := range sampled[max(0, len(sampled)-siblingsMax):] {
		if g := m.workers.generations[x.Trajectory]; g != nil && g.Ended && g.Trace.Turns > 0 {
			said++
			mean += g.Trace.OutputTokens
		}
	}
	return said, mean / uint64(max(1, said))
}

// endGeneration is followed by learnEnd when the order of what ends in this entry is known.
// One that its rollout ends, as it is redundant or stale, or with all of it, is cut off.
func (m *Model) endGeneration(t *trajectory, reason state.EndReason) {
	id := t.ID
	if g := m.workers.generations[id]; g != nil && !g.Ended {
		m.workers.ending[id] = g.Generating || reason == state.EndNodeLost || m.closedByRollout(t)
		g.Ended, g.Generating = true, false
		m.workers.touched[id] = true
	}
}

func (m *Model) closedByRollout(t *trajectory) bool {
	r := m.rollouts.all[t.Rollout]
	if r == nil || r.groups[t.Group] == nil {
		return false
	}
	x := memberOf(r.groups[t.Group], t.ID)
	return x != nil && x.State > state.MemberSampled
}

// learnEnd learns from a trajectory whose end was said to clients: lengths are learned in the
// order of these events.
func (m *Model) learnEnd(e state.Event) {
	if e.Kind != state.EventTrajectory || state.TrajectoryState(e.State) != state.TrajectoryClosing {
		return
	}
	id := state.TrajectoryID(e.Subject)
	if cut, ok := m.workers.ending[id]; ok {
		g := m.workers.generations[id]
		m.workers.lengths.learn(lengthName{g.Policy, g.TaskClass}, m.workers.traces[id], cut, m.now)
		delete(m.workers.ending, id)
	}
}

func (m *Model) reportGenerations(c *logv1.ReportGenerations, got *logv1.Result) error {
	if done, err := m.replayed(c.Request, 0, state.VerbReportGenerations, 1, got); done {
		return err
	}
	var v verdict
	v.refuse(len(c.Generations) > generationsMax || len(c.Workers) > workerReportsMax, "INVALID")
	for _, r := range c.Generations {
		v.refuse(min(r.GenerateNs, r.ToolNs) < 0 || max(r.OutputTokens, r.ContextTokens) > tokensMax, "INVALID")
	}
	for _, r := range c.Workers {
		v.refuse(len(r.Message) > workerMessageMax, "INVALID")
	}
	if ok, err := v.judge(got); !ok {
		return err
	}
	for _, r := range c.Generations {
		m.reportGeneration(r)
	}
	for _, r := range c.Workers {
		w := m.workers.all[r.Worker]
		if w == nil || !r.Failed || w.RetryAt != 0 {
			continue
		}
		w.Failures = min(w.Failures+1, 16)
		pause := int64(workerRetryFirst)
		for range w.Failures - 1 {
			pause = min(2*pause, workerRetryLast)
		}
		w.RetryAt, w.Message = m.now+pause, r.Message
		if r.Message == "" {
			w.Message = "a gateway could not use it and did not say why"
		}
	}
	m.remember(c.Request, 0, state.VerbReportGenerations, 1, 1)
	return result(got, &logv1.Result{FirstId: 1, Count: 1})
}

func (m *Model) reportGeneration(r *logv1.GenerationReport) {
	if w := m.workers.all[r.Worker]; w != nil && r.OutputTokens > 0 {
		w.OutputTokens += r.OutputTokens
		if w.RetryAt == 0 {
			w.Failures = 0
		}
	}
	id := state.TrajectoryID(r.TrajectoryId)
	g := m.workers.generations[id]
	if g == nil {
		return
	}
	if g.Ended {
		m.reportLate(g, r)
		return
	}
	g.Generating = r.Generating
	m.follow(g, r)
	if r.Turns > 0 {
		g.Service = state.ServicePrediction{}
		delete(m.workers.said, id)
	}
	m.workers.touched[id], m.workers.grown[id] = true, true
	m.aliveIfIdle(id)
}

// follow adds a report to what happened to a trajectory.
func (m *Model) follow(g *state.Generation, r *logv1.GenerationReport) {
	g.GenerateNS += r.GenerateNs
	g.ToolNS += r.ToolNs
	said, mean := m.siblings(g.Trajectory)
	trace := m.workers.traces[g.Trajectory]
	m.workers.lengths.follow(lengthName{g.Policy, g.TaskClass}, trace, lengthReport{
		turns: r.Turns, output: r.OutputTokens, context: r.ContextTokens, toolNS: r.ToolNs, finish: r.FinishReason,
	}, said, mean)
	g.Trace = trace.row()
}

// reportLate: turns are reported of a trajectory that has ended. If they are all that is known, it
// teaches its class.
func (m *Model) reportLate(g *state.Generation, r *logv1.GenerationReport) {
	if r.Turns == 0 || m.rollouts.policies[g.Policy] == nil {
		return
	}
	first := g.Trace.Turns == 0
	m.follow(g, r)
	m.workers.touched[g.Trajectory] = true
	if first {
		t := m.trajectories[g.Trajectory]
		cut := t.EndReason == state.EndNodeLost || m.closedByRollout(t)
		m.workers.lengths.learn(lengthName{g.Policy, g.TaskClass}, m.workers.traces[g.Trajectory], cut, m.now)
	}
}

func (m *Model) suspendTrajectory(c *logv1.SuspendTrajectory, got *logv1.Result) error {
	id := state.TrajectoryID(c.Id)
	g := m.workers.generations[id]
	switch {
	case m.trajectories[id] == nil:
		return refused(got, "TRAJECTORY_NOT_FOUND")
	case g == nil:
		return refused(got, "NO_GENERATION")
	case g.Ended:
		return refused(got, "TRAJECTORY_ENDED")
	case g.Suspended == !c.Resume:
		return result(got, &logv1.Result{})
	}
	g.Suspended = !c.Resume
	if g.Worker == "" {
		g.Since = m.now
		m.aliveIfIdle(id)
	}
	m.workers.touched[id] = true
	return result(got, &logv1.Result{Count: 1})
}

func (m *Model) moveGenerations(c *logv1.MoveGenerations, got *logv1.Result) error {
	if len(c.Moves) > generationMovesMax {
		return refused(got, "INVALID")
	}
	done := uint32(0)
	for _, move := range c.Moves {
		g, to := m.workers.generations[state.TrajectoryID(move.TrajectoryId)], m.workers.all[move.To]
		if g == nil || to == nil || g.Ended || g.Generating || g.Worker == "" || g.Worker != move.From || move.To == move.From || g.Policy != to.Policy || !m.takesOver(to) {
			continue
		}
		g.Cause = state.PlacedByPlan
		m.assign(g, to, state.PlacementChoice{})
		m.migrateCache(g, m.workers.all[move.From], to)
		done++
	}
	return result(got, &logv1.Result{Count: done})
}

// migrateCache queues a copy of what the old worker's node has cached, if the new one's caches too.
func (m *Model) migrateCache(g *state.Generation, from, to *state.Worker) {
	if from == nil || from.Node == to.Node {
		return
	}
	a, b := m.nodes[from.Node], m.nodes[to.Node]
	if a == nil || b == nil || a.CacheBytes == 0 || b.CacheBytes == 0 {
		return
	}
	tag := fmt.Sprintf("trajectory%%%d", g.Trajectory)
	selector := append([]byte{1<<3 | 2, byte(len(tag))}, tag...)
	live, selectors := m.liveMigrations()
	if live >= migrationsMax || selectors+len(selector) > selectorsBytesMax {
		return
	}
	row := &state.Migration{
		Namespace: m.trajectories[g.Trajectory].Namespace, Trajectory: g.Trajectory, Source: a.ID, Target: b.ID,
		State: state.MigrationQueued, Selector: selector, RequestedAt: m.now,
	}
	if now := m.s.Migration(m.migrations.last + 1); now != nil {
		row.Length = now.Length // what was predicted then
	}
	m.queueMigration(row)
}

func (m *Model) dismiss(g *state.Generation, why state.PlacementCause) {
	g.Worker, g.Since, g.Cause = "", m.now, why
	m.workers.touched[g.Trajectory] = true
	if !g.Suspended {
		m.aliveIfIdle(g.Trajectory)
	}
}

func (m *Model) assign(g *state.Generation, w *state.Worker, choice state.PlacementChoice) {
	if g.Last != "" && g.Last != w.Name {
		g.Moves++
	}
	waited := m.waitsForWorker(g)
	g.Worker, g.Last, g.Since, g.Choice = w.Name, w.Name, m.now, choice
	m.workers.touched[g.Trajectory] = true
	if waited {
		m.aliveIfIdle(g.Trajectory)
	}
}

// fireWorkers does what is due for workers by log time. If not everything that is due was done,
// the state says whether this was.
func (m *Model) fireWorkers(left bool) {
	for _, w := range m.workers.all {
		now := m.s.Worker(w.Name)
		if w.RetryAt != 0 && w.RetryAt <= m.now && !(left && now != nil && now.RetryAt == w.RetryAt) {
			w.RetryAt, w.Message = 0, ""
			m.budget--
		}
		if w.LeaveAt != 0 && w.LeaveAt <= m.now && !(left && now != nil && now.LeaveAt == w.LeaveAt) {
			w.LeaveAt, w.Overdue = 0, true
			m.budget--
		}
	}
}

// takePredictions takes over what trajectories are predicted to generate that the entry has said
// something of.
func (m *Model) takePredictions() {
	for id := range m.workers.grown {
		got, g := m.s.Generation(id), m.workers.generations[id]
		if got == nil || g == nil {
			continue
		}
		m.takePrediction(g, got)
		p := new(big.Int).SetUint64(g.Predicted)
		of := new(big.Int).Add(p, big.NewInt(16384))
		p.Div(p.Mul(p, big.NewInt(1_000_000)), of)
		g.Priority = uint32(p.Int64() / 5000 * 5000)
	}
}

// placeGenerations is what must have become of all trajectories that generate at the end of an
// entry.
func (m *Model) placeGenerations() {
	m.takePredictions()
	for _, w := range m.workers.all {
		m.judgeVersion(w)
		if w.RetryAt != 0 {
			for _, g := range m.at(w.Name) {
				m.dismiss(g, state.PlacedFailed)
			}
		}
	}
	for _, policy := range slices.Sorted(maps.Keys(m.rollouts.policies)) {
		for m.placeNext(policy) {
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.workers.all)) {
		w := m.workers.all[name]
		if !w.Draining && !w.Overdue {
			continue
		}
		for _, g := range m.at(name) {
			if to, choice := m.best(g); to != nil && !g.Generating {
				g.Cause = state.PlacedStale
				if w.Draining {
					g.Cause = state.PlacedDrained
				}
				m.assign(g, to, choice)
			}
		}
	}
}

// waitsForWorker: a trajectory is the next to get a worker, or one of the next. It has the memory that it
// asked for.
func (m *Model) waitsForWorker(g *state.Generation) bool {
	return g != nil && g.Worker == "" && !g.Suspended && !g.Ended && !lacksMemory(m.trajectories[g.Trajectory])
}

// lacksMemory: a trajectory asked for memory, and no node has given it yet.
func lacksMemory(t *trajectory) bool { return t.State == state.TrajectoryPending && t.Memory != 0 }

// mayHaveWorker: a trajectory got its memory, and waits for a worker from now on, if it needs one.
func (m *Model) mayHaveWorker(t *trajectory) {
	if t.Memory == 0 {
		return
	}
	if g := m.workers.generations[t.ID]; g != nil {
		g.Since = m.now
		m.workers.touched[t.ID] = true
	}
	m.aliveIfIdle(t.ID)
}

// placeNext gives a worker to the trajectory of a policy whose turn it is, and reports whether
// there is one.
func (m *Model) placeNext(policy string) bool {
	var waiting []*state.Generation
	for _, g := range m.workers.generations {
		if g.Policy == policy && m.waitsForWorker(g) {
			waiting = append(waiting, g)
		}
	}
	if len(waiting) == 0 {
		return false
	}
	next := slices.MinFunc(waiting, func(a, b *state.Generation) int {
		aLong, bLong := a.Since+generationWaitMax <= m.now, b.Since+generationWaitMax <= m.now
		switch {
		case aLong != bLong && aLong, aLong && bLong && a.Since < b.Since, !aLong && !bLong && a.Predicted > b.Predicted:
			return -1
		case aLong != bLong, aLong && bLong && a.Since > b.Since, !aLong && !bLong && a.Predicted < b.Predicted:
			return 1
		}
		return int(int64(a.Trajectory) - int64(b.Trajectory))
	})
	to, choice := m.best(next)
	if to != nil {
		m.assign(next, to, choice)
	}
	return to != nil
}

// tokenTime is on the line through the two points around a batch size.
func tokenTime(points []state.WorkerPoint, batch int64) *big.Int {
	first, last := points[0], points[len(points)-1]
	if batch <= int64(first.Batch) || len(points) == 1 {
		return big.NewInt(first.TokenNS)
	}
	i := 1
	for i < len(points)-1 && int64(points[i].Batch) < batch {
		i++
	}
	a, b := points[i-1], points[i]
	rise := big.NewInt(b.TokenNS - a.TokenNS)
	rise.Quo(rise.Mul(rise, big.NewInt(batch-int64(a.Batch))), big.NewInt(int64(b.Batch)-int64(a.Batch)))
	at := rise.Add(rise, big.NewInt(a.TokenNS))
	if batch > int64(last.Batch) && at.Cmp(big.NewInt(last.TokenNS)) < 0 {
		return big.NewInt(last.TokenNS)
	}
	return at
}

// compareWorkers compares all workers, and the trajectories that the entry changed.
func (m *Model) compareWorkers() error {
	if got := m.s.WorkerCount(); got != len(m.workers.all) || m.s.GenerationCount() != len(m.workers.generations) {
		return fmt.Errorf("there are %d workers and %d trajectories that generate, must be %d and %d", got, m.s.GenerationCount(), len(m.workers.all), len(m.workers.generations))
	}
	if err := m.workers.lengths.compare(m.s); err != nil {
		return err
	}
	if err := m.compareWorkerPools(); err != nil {
		return err
	}
	if err := m.compareAffinities(); err != nil {
		return err
	}
	for name, want := range m.workers.all {
		if got := m.s.Worker(name); got == nil || !reflect.DeepEqual(got, want) {
			return fmt.Errorf("worker %s is %+v, must be %+v", name, got, *want)
		}
	}
	for id := range m.workers.touched {
		got, want := m.s.Generation(id), m.workers.generations[id]
		if got == nil && want == nil {
			continue
		}
		if got == nil || want == nil {
			return fmt.Errorf("trajectory %d is known to generate: %v, must be %v", id, got != nil, want != nil)
		}
		if !reflect.DeepEqual(withoutEmpty(*got), withoutEmpty(*want)) {
			return fmt.Errorf("trajectory %d generates %+v, must be %+v", id, *got, *want)
		}
	}
	return nil
}

// withoutEmpty has no list of nothing, which is as none.
func withoutEmpty(g state.Generation) state.Generation {
	if len(g.Hardware) == 0 {
		g.Hardware = nil
	}
	return g
}
