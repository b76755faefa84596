package fsm

import (
	"fmt"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
	"rota/sched/place/worker"
	"rota/sched/predict"
)

// Bounds of reports and plans.
const (
	generationReportsMax = 1024
	workerReportsMax     = 64
	generationMovesMax   = 256
	// placementLooksMax bounds how many workers one entry compares for trajectories. What is left
	// waits for the next entry.
	placementLooksMax = 1 << 18
	// placementCost is what it costs of that to give a trajectory to a worker, or to take it from
	// one.
	placementCost = 64
	// siblingsMax bounds how many siblings a prediction looks at. Groups have far fewer; one report
	// is about a thousand trajectories.
	siblingsMax = 64
)

// checkGeneration refuses what no trajectory can generate.
func (x *execution) checkGeneration(c *logv1.GenerationSpec) *logv1.Result {
	if c == nil {
		return nil
	}
	if _, r := x.existingPolicy(c.Policy); r != nil {
		return r
	}
	if len(c.TaskClass) > nameBytesMax || len(c.Hardware) > state.HardwaresMax {
		return refuse(codeInvalidArgument, "INVALID", "task_class must have at most %d bytes, and hardware at most %d kinds", nameBytesMax, state.HardwaresMax)
	}
	for _, h := range c.Hardware {
		if h == "" || len(h) > state.WorkerNameBytesMax {
			return refuse(codeInvalidArgument, "INVALID", "a kind of hardware must have a name of at most %d bytes", state.WorkerNameBytesMax)
		}
	}
	return nil
}

// openGeneration begins what a trajectory generates. It is given a worker at the end of the
// entry, if one has room.
func (x *execution) openGeneration(id state.TrajectoryID, c *logv1.GenerationSpec) {
	if c == nil {
		return
	}
	g := &state.Generation{
		Trajectory: id, Policy: c.Policy, TaskClass: c.TaskClass, Hardware: c.Hardware, Since: x.now(), Cause: state.PlacedOpened,
	}
	siblings := siblingsOf(x.s, id)
	g.Trace = predict.Begin(x.s.LengthClass(c.Policy, c.TaskClass), uint64(c.PromptTokens), siblings)
	x.predictLength(g, siblings)
	g.FirstPredicted = g.Predicted
	x.putGeneration(g)
}

// siblingsOf are the other trajectories of the prompt group of a trajectory that made their samples
// and of which a turn was reported: of many the last siblingsMax.
func siblingsOf(v *state.State, id state.TrajectoryID) (s predict.Siblings) {
	t := v.Trajectory(id)
	if t.Rollout == 0 {
		return s
	}
	g := v.RolloutGroup(state.KeyOfGroup(t.Rollout, t.Group))
	if g == nil {
		return s
	}
	sum := uint64(0)
	looks := siblingsMax
	for i := len(g.Members) - 1; i >= 0 && looks > 0; i-- {
		m := &g.Members[i]
		if m.State != state.MemberSampled || m.Trajectory == id {
			continue
		}
		looks--
		if o := v.Generation(m.Trajectory); o != nil && o.Ended && o.Trace.Turns > 0 {
			s.Finished++
			sum += o.Trace.OutputTokens
		}
	}
	s.MeanTokens = sum / uint64(max(1, s.Finished))
	return s
}

// predictLength sets what a trajectory is predicted to generate yet, with the prompts for that, and
// its priority. What a predictor service said before is outdated.
func (x *execution) predictLength(g *state.Generation, siblings predict.Siblings) {
	g.Service = state.ServicePrediction{}
	x.expectTokens(g, predict.Remaining(x.s.LengthClass(g.Policy, g.TaskClass), &g.Trace, siblings).Tokens)
}

// expectTokens sets how many tokens a trajectory is predicted to generate yet, and what follows from
// that.
func (x *execution) expectTokens(g *state.Generation, tokens uint64) {
	g.Predicted = tokens
	g.Prefill = predict.Prefill(x.s.LengthClass(g.Policy, g.TaskClass), &g.Trace, tokens)
	g.Priority = worker.Priority(tokens)
}

// putGeneration stores a row, and has gateways told if its route is another one.
func (x *execution) putGeneration(g *state.Generation) {
	old := x.s.Generation(g.Trajectory)
	waited := old != nil && x.s.WaitsForWorker(old)
	x.s.PutGeneration(g)
	if waits := x.s.WaitsForWorker(g); waits != waited && !g.Ended {
		x.idleFrom(g.Trajectory)
	}
	if old == nil || old.Worker != g.Worker || old.Priority != g.Priority || old.Suspended != g.Suspended || old.Ended != g.Ended {
		x.routes.generations.add(g.Trajectory)
	}
	if x.s.WaitsForWorker(g) {
		x.routes.policies.add(g.Policy)
	}
}

// endGeneration ends what a trajectory generates, with the trajectory. The class learns from it.
func (x *execution) endGeneration(t *state.Trajectory, reason state.EndReason) {
	old := x.s.Generation(t.ID)
	if old == nil || old.Ended {
		return
	}
	g := *old
	g.Ended, g.Generating = true, false
	x.putGeneration(&g)
	x.roomFor(g.Policy)
	x.learnLength(g.Policy, g.TaskClass, &g.Trace, old.Generating || reason == state.EndNodeLost || x.endedByRollout(t))
}

// endedByRollout reports whether the rollout of a trajectory ended it, as it is redundant, stale, or of
// a rollout that was closed. One that ends by itself runs or has its sample until then.
func (x *execution) endedByRollout(t *state.Trajectory) bool {
	if t.Rollout == 0 {
		return false
	}
	g := x.s.RolloutGroup(t.GroupKey())
	if g == nil {
		return false
	}
	m := g.Member(t.ID)
	return m != nil && !m.State.Holds()
}

// roomFor has the trajectories of a policy looked at that wait for a worker or are to leave one.
func (x *execution) roomFor(policy string) {
	leaving := false
	x.s.LeavingWorkers(policy, func(*state.Worker) bool { leaving = true; return false })
	if leaving || x.s.NextWaiting(policy) != nil {
		x.routes.policies.add(policy)
	}
}

// reportGenerations adds what trajectories generated, also before they ended.
func (x *execution) reportGenerations(c *logv1.ReportGenerations) *logv1.Result {
	if r := x.replay(c.Request, nil, state.VerbReportGenerations, 1); r != nil {
		return r
	}
	if r := checkReport(c); r != nil {
		return r
	}
	for _, r := range c.Generations {
		x.reportGeneration(r)
	}
	for _, r := range c.Workers {
		x.workerFailed(r)
	}
	x.remember(c.Request, nil, state.VerbReportGenerations, 1, 1)
	return &logv1.Result{FirstId: 1, Count: 1}
}

func checkReport(c *logv1.ReportGenerations) *logv1.Result {
	if len(c.Generations) > generationReportsMax || len(c.Workers) > workerReportsMax {
		return refuse(codeInvalidArgument, "INVALID", "%d trajectories and %d workers are reported at once; at most %d and %d are allowed",
			len(c.Generations), len(c.Workers), generationReportsMax, workerReportsMax)
	}
	for _, r := range c.Generations {
		if r.GenerateNs < 0 || r.ToolNs < 0 || max(r.OutputTokens, r.ContextTokens) > state.LengthTokensMax {
			return refuse(codeInvalidArgument, "INVALID", "the report of trajectory %d has a negative time, or more than %d tokens", r.TrajectoryId, uint64(state.LengthTokensMax))
		}
	}
	for _, r := range c.Workers {
		if len(r.Message) > state.WorkerMessageBytesMax {
			return refuse(codeInvalidArgument, "INVALID", "the message about worker %q has %d bytes; at most %d are allowed", r.Worker, len(r.Message), state.WorkerMessageBytesMax)
		}
	}
	return nil
}

// reportGeneration adds one trajectory's report. Its priority follows its prediction after each
// turn.
func (x *execution) reportGeneration(r *logv1.GenerationReport) {
	x.generated(r)
	old := x.s.Generation(state.TrajectoryID(r.TrajectoryId))
	if old == nil {
		return
	}
	if old.Ended {
		x.reportEnded(old, r)
		return
	}
	g, siblings := x.followed(old, r)
	g.Generating = r.Generating
	if r.Turns > 0 {
		x.predictLength(&g, siblings)
	}
	x.putGeneration(&g)
	x.idleFrom(g.Trajectory)
	if old.Generating && !g.Generating && x.s.Worker(g.Worker) != nil && x.s.Worker(g.Worker).Leaves() {
		x.routes.policies.add(g.Policy)
	}
}

// followed is a row with what was reported, and the siblings of the trajectory if a turn ended.
func (x *execution) followed(old *state.Generation, r *logv1.GenerationReport) (g state.Generation, siblings predict.Siblings) {
	g = *old
	g.GenerateNS, g.ToolNS = added(g.GenerateNS, r.GenerateNs), added(g.ToolNS, r.ToolNs)
	if r.Turns > 0 {
		siblings = siblingsOf(x.s, g.Trajectory)
	}
	g.Trace = predict.Follow(x.s.LengthClass(g.Policy, g.TaskClass), &old.Trace, predict.Report{
		Turns: r.Turns, OutputTokens: r.OutputTokens, ContextTokens: r.ContextTokens, ToolNS: r.ToolNs, FinishReason: r.FinishReason,
	}, siblings)
	return g, siblings
}

// reportEnded adds what a gateway reports after the end of a trajectory, as its last turn often ended
// just before. Siblings are predicted by it. The class learns from it if no turn was known at the end.
func (x *execution) reportEnded(old *state.Generation, r *logv1.GenerationReport) {
	if r.Turns == 0 || x.s.Policy(old.Policy) == nil {
		return
	}
	g, _ := x.followed(old, r)
	x.putGeneration(&g)
	if old.Trace.Turns == 0 {
		t := x.s.Trajectory(g.Trajectory)
		x.learnLength(g.Policy, g.TaskClass, &g.Trace, t.EndReason == state.EndNodeLost || x.endedByRollout(t))
	}
}

// idleFrom has the idle timeout of a trajectory counted from now on: what is generated for it is a
// sign of life, as its actions are.
func (x *execution) idleFrom(id state.TrajectoryID) {
	if t := x.s.Trajectory(id); t.IdleTimeoutNS > 0 && t.Live == 0 {
		u := *t
		u.IdleSince = x.idleSince(t)
		x.s.PutTrajectory(&u)
	}
}

// idleSince is from when on a trajectory is idle that shows a sign of life now: not while rota has it
// wait for memory or a worker.
func (x *execution) idleSince(t *state.Trajectory) int64 {
	g := x.s.Generation(t.ID)
	waits := t.WaitsForMemory() || g != nil && x.s.WaitsForWorker(g)
	if waits && t.IdleTimeoutNS > 0 && x.s.Meta().Level >= state.LevelResizing {
		return state.NotIdle
	}
	return x.now()
}

// added is a sum of durations, which ends at the largest.
func added(a, b int64) int64 {
	if a > 1<<63-1-b {
		return 1<<63 - 1
	}
	return a + b
}

// generated counts what a worker generated: it does not fail, then.
func (x *execution) generated(r *logv1.GenerationReport) {
	old := x.s.Worker(r.Worker)
	if old == nil || r.OutputTokens == 0 {
		return
	}
	w := *old
	w.OutputTokens += r.OutputTokens
	if w.RetryAt == 0 {
		w.Failures = 0
	}
	x.s.PutWorker(&w)
}

// suspendTrajectory holds the requests of a trajectory, or lets them go on. Said again, nothing
// changes.
func (x *execution) suspendTrajectory(c *logv1.SuspendTrajectory) *logv1.Result {
	old := x.s.Generation(state.TrajectoryID(c.Id))
	switch t := x.s.Trajectory(state.TrajectoryID(c.Id)); {
	case t == nil:
		return refuse(codeNotFound, "TRAJECTORY_NOT_FOUND", "trajectory %d does not exist, or ended too long ago to be kept", c.Id)
	case old == nil:
		return refuse(codeFailedPrecondition, "NO_GENERATION", "trajectory %d was opened without a policy, so no worker generates for it", c.Id)
	case old.Ended:
		return refuse(codeFailedPrecondition, "TRAJECTORY_ENDED", "trajectory %d has ended", c.Id)
	case old.Suspended != c.Resume:
		return &logv1.Result{}
	}
	g := *old
	g.Suspended = !c.Resume
	if g.Worker == "" {
		g.Since = x.now()
	}
	x.putGeneration(&g)
	return &logv1.Result{Count: 1}
}

// moveGenerations carries out a plan. A move whose trajectory or target is not what the plan saw
// is left out.
func (x *execution) moveGenerations(c *logv1.MoveGenerations) *logv1.Result {
	if len(c.Moves) > generationMovesMax {
		return refuse(codeInvalidArgument, "INVALID", "a plan moves %d trajectories; at most %d are allowed", len(c.Moves), generationMovesMax)
	}
	done := uint32(0)
	for _, m := range c.Moves {
		g, to := x.s.Generation(state.TrajectoryID(m.TrajectoryId)), x.s.Worker(m.To)
		if g == nil || g.Ended || g.Generating || g.Worker == "" || g.Worker != m.From || m.From == m.To || to == nil || to.Policy != g.Policy {
			continue
		}
		target := worker.Candidate{Row: to, State: x.s.WorkerState(to), Load: x.s.WorkerLoad(to.Name)}
		if !target.Takes() {
			continue
		}
		moved := *g
		moved.Cause = state.PlacedByPlan
		x.assign(&moved, to.Name, state.PlacementChoice{})
		x.migrateCache(&moved, x.s.Worker(m.From), to)
		x.roomFor(g.Policy)
		done++
	}
	return &logv1.Result{Count: done}
}

// migrateCache queues a copy of a trajectory's KV cache to its new worker, if both workers are on
// nodes with caches. Without one the prefix is computed again.
func (x *execution) migrateCache(g *state.Generation, from, to *state.Worker) {
	if from == nil || from.Node == "" || to.Node == "" || from.Node == to.Node {
		return
	}
	selector, err := (&rotav1.MigrationSelector{Tag: fmt.Sprintf("trajectory%%%d", g.Trajectory)}).MarshalVT()
	state.Assert(err == nil, "the selector of trajectory %d cannot be encoded: %v", g.Trajectory, err)
	row, refusal := x.newMigration(&logv1.RequestMigration{
		Namespace: x.s.Namespace(x.s.Trajectory(g.Trajectory).Namespace).Name, TrajectoryId: uint64(g.Trajectory),
		Source: from.Node, Target: to.Node, Selector: selector, Length: g.Predicted,
	})
	if refusal == nil {
		x.queueMigration(row)
	}
}
