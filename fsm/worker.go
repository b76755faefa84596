package fsm

import (
	"cmp"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Bounds of workers, in nanoseconds.
const (
	workerTokenMax   = 60 * 1_000_000_000   // for one token
	workerPrefillMax = 3600 * 1_000_000_000 // for 1,000 tokens of a prompt
	// A worker that failed is tried again after workerRetryMin, after twice that when it fails
	// again, and so on up to workerRetryMax.
	workerRetryMin = 5 * 1_000_000_000
	workerRetryMax = 300 * 1_000_000_000
	// workerLeaveAfter is for how long a worker may lack the version of its policy before its
	// idle trajectories go to others.
	workerLeaveAfter = 30 * 1_000_000_000
	// workerDialectMax is the last of rota.v1.WorkerDialect.
	workerDialectMax = 3
)

// workerVerb carries out a command about workers and what they generate; nil if it is not one.
func (x *execution) workerVerb(c *logv1.Command) *logv1.Result {
	switch v := c.Verb.(type) {
	case *logv1.Command_RegisterWorker:
		return x.registerWorker(v.RegisterWorker)
	case *logv1.Command_UpdateWorker:
		return x.updateWorker(v.UpdateWorker)
	case *logv1.Command_RemoveWorker:
		return x.removeWorker(v.RemoveWorker)
	case *logv1.Command_ReportGenerations:
		return x.reportGenerations(v.ReportGenerations)
	case *logv1.Command_SuspendTrajectory:
		return x.suspendTrajectory(v.SuspendTrajectory)
	case *logv1.Command_MoveGenerations:
		return x.moveGenerations(v.MoveGenerations)
	case *logv1.Command_PredictGenerations:
		return x.predictGenerations(v.PredictGenerations)
	case *logv1.Command_ChangeWorkerPool:
		return x.changeWorkerPool(v.ChangeWorkerPool)
	case *logv1.Command_SetAffinity:
		return x.setAffinity(v.SetAffinity)
	}
	return nil
}

// registerWorker declares a worker, or changes it. Either way it is tried at once, unless its engine
// is said to start.
func (x *execution) registerWorker(c *logv1.RegisterWorker) *logv1.Result {
	if r := checkWorkerSpec(c); r != nil {
		return r
	}
	old := x.s.Worker(c.Name)
	if old == nil && x.s.WorkerCount() >= state.WorkersMax {
		return refuse(codeResourceExhausted, "TOO_MANY_WORKERS", "there are %d workers already, which is the limit: remove some with: rota worker remove", state.WorkersMax)
	}
	p, r := x.policy(c.Policy)
	if r != nil {
		return r
	}
	w := &state.Worker{
		Name: c.Name, Policy: p.Name, URL: c.Url, Dialect: uint8(max(1, c.Dialect)), Node: c.Node, Degree: max(1, c.Degree),
		Hardware: c.Hardware, Cost: c.Cost, Slots: c.Slots, Prefill1kNS: c.Prefill_1KNs, Version: c.Version, RegisteredAt: x.now(),
		Pool: c.Pool,
	}
	w.Starting = c.StartNs > 0 || c.Pool != "" && (old == nil || old.Starting)
	if c.StartNs > 0 {
		w.RetryAt, w.Message = x.now()+c.StartNs, "its engine starts"
	}
	for _, point := range c.Profile {
		w.Profile = append(w.Profile, state.WorkerPoint{Batch: point.BatchSize, TokenNS: point.TokenNs})
	}
	if old != nil {
		w.Draining, w.RegisteredAt, w.OutputTokens = old.Draining, old.RegisteredAt, old.OutputTokens
		if old.Policy == w.Policy { // it has no more time to receive a version
			w.LeaveAt, w.Overdue = old.LeaveAt, old.Overdue
		}
	}
	x.putWorker(w)
	if old != nil {
		x.dismissSurplus(old, w)
	}
	return &logv1.Result{Count: 1}
}

// checkWorkerSpec refuses what no worker can be.
func checkWorkerSpec(c *logv1.RegisterWorker) *logv1.Result {
	switch {
	case c.Name == "" || max(len(c.Name), len(c.Node), len(c.Hardware), len(c.Pool)) > state.WorkerNameBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "a worker needs a name; name, node, hardware and pool may have at most %d bytes", state.WorkerNameBytesMax)
	case c.Url == "" || len(c.Url) > state.WorkerURLBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "worker %q needs a URL of at most %d bytes", c.Name, state.WorkerURLBytesMax)
	case c.Dialect > workerDialectMax:
		return refuse(codeInvalidArgument, "INVALID", "worker %q speaks dialect %d, which is none", c.Name, c.Dialect)
	case c.Slots > state.WorkerSlotsMax:
		return refuse(codeInvalidArgument, "INVALID", "worker %q has %d slots; at most %d are allowed, and 0 stands for these", c.Name, c.Slots, state.WorkerSlotsMax)
	case c.StartNs < 0 || c.StartNs > workerPrefillMax:
		return refuse(codeInvalidArgument, "INVALID", "the engine of worker %q must not take a negative time to start, nor more than an hour", c.Name)
	}
	return checkWorkerProfile("worker "+c.Name, c.Profile, c.Prefill_1KNs)
}

// checkWorkerProfile refuses what cannot be measured of an engine.
func checkWorkerProfile(of string, points []*logv1.WorkerProfilePoint, prefillNS int64) *logv1.Result {
	switch {
	case len(points) == 0 || len(points) > state.WorkerPointsMax:
		return refuse(codeInvalidArgument, "INVALID", "the profile of %s has %d points; it must have 1 to %d", of, len(points), state.WorkerPointsMax)
	case prefillNS < 0 || prefillNS > workerPrefillMax:
		return refuse(codeInvalidArgument, "INVALID", "prefill_1k of %s must not be negative nor longer than an hour", of)
	}
	for i, p := range points {
		if p.BatchSize == 0 || p.TokenNs <= 0 || p.TokenNs > workerTokenMax || i > 0 && p.BatchSize <= points[i-1].BatchSize {
			return refuse(codeInvalidArgument, "INVALID", "the profile of %s must have ascending batch sizes from 1 on, and token times above 0 and of at most a minute", of)
		}
	}
	return nil
}

// putWorker stores a worker whose state may have changed: gateways hear of it, and those that
// wait are placed. One that lacks the version of its policy gets time to receive it.
func (x *execution) putWorker(w *state.Worker) {
	switch stale := x.s.Stale(w); {
	case !stale:
		w.LeaveAt, w.Overdue = 0, false
	case w.LeaveAt == 0 && !w.Overdue:
		w.LeaveAt = x.now() + workerLeaveAfter
	}
	x.s.PutWorker(w)
	x.routes.workers.add(w.Name)
	x.routes.policies.add(w.Policy)
}

// dismissSurplus takes trajectories from a worker that was registered again: all if it serves
// another policy now, and the newest if it has more than its slots.
func (x *execution) dismissSurplus(old, w *state.Worker) {
	keep := int(w.SlotsOrMax())
	if old.Policy != w.Policy {
		keep = 0
		x.routes.policies.add(old.Policy)
	}
	at := x.generationsAt(w.Name)
	for _, g := range at[min(keep, len(at)):] {
		x.dismiss(g, state.PlacedChanged)
	}
}

// worker finds a worker by its name.
func (x *execution) worker(name string) (*state.Worker, *logv1.Result) {
	w := x.s.Worker(name)
	if w == nil {
		return nil, refuse(codeNotFound, "WORKER_NOT_FOUND", "there is no worker %q; see: rota worker list", name)
	}
	return w, nil
}

// updateWorker changes how a worker is used.
func (x *execution) updateWorker(c *logv1.UpdateWorker) *logv1.Result {
	old, r := x.worker(c.Name)
	if r != nil {
		return r
	}
	w := *old
	if c.Draining != nil {
		w.Draining = *c.Draining
	}
	if c.Version != nil {
		w.Version = *c.Version
	}
	if c.Up {
		if w.Starting && w.OutputTokens == 0 { // else it has served for longer
			x.measureStart(&w)
		}
		w.RetryAt, w.Message, w.Failures, w.Starting = 0, "", 0, false
	}
	x.putWorker(&w)
	return &logv1.Result{Count: 1}
}

// removeWorker forgets a worker. Its trajectories go on at others.
func (x *execution) removeWorker(c *logv1.RemoveWorker) *logv1.Result {
	w, r := x.worker(c.Name)
	if r != nil {
		return r
	}
	for _, g := range x.generationsAt(w.Name) {
		x.dismiss(g, state.PlacedRemoved)
	}
	x.s.DeleteWorker(w.Name)
	x.routes.workers.add(w.Name)
	x.routes.policies.add(w.Policy)
	return &logv1.Result{Count: 1}
}

// workerFailed takes a worker out of use for a while. Said again while it is, nothing changes:
// many gateways see the same failure.
func (x *execution) workerFailed(r *logv1.WorkerReport) {
	old := x.s.Worker(r.Worker)
	if old == nil || old.RetryAt != 0 || !r.Failed {
		return
	}
	w := *old
	w.Failures = min(w.Failures+1, 16)
	w.RetryAt = x.now() + min(int64(workerRetryMin)<<(w.Failures-1), workerRetryMax)
	w.Message = cmp.Or(r.Message, "a gateway could not use it and did not say why")
	x.putWorker(&w)
}

// workerDue tries a worker again, or lets the trajectories of one that missed a version go.
func (x *execution) workerDue() bool {
	at, name, ok := x.s.WorkerDue()
	if !ok || at > x.now() {
		return false
	}
	w := *x.s.Worker(name)
	if w.RetryAt == at {
		w.RetryAt, w.Message = 0, ""
	}
	if w.LeaveAt == at {
		w.LeaveAt, w.Overdue = 0, true
	}
	x.putWorker(&w)
	return true
}

// versionPublished has the workers of a policy that lack its version generate nothing.
func (x *execution) versionPublished(policy string) {
	var stale []*state.Worker
	x.s.WorkersOf(policy, func(w *state.Worker) bool {
		if x.s.Stale(w) {
			stale = append(stale, w)
		}
		return true
	})
	for _, old := range stale {
		w := *old
		x.putWorker(&w)
	}
}
