package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	rotav1 "rota/api/gen/rota/v1"
)

// Why a request has no worker.
var (
	errNoRoutes   = errors.New("the gateway has not heard of any routes yet; it needs one server of the cluster that answers")
	errUnknown    = errors.New("is not known, or does not generate; open it with a policy first")
	errEnded      = errors.New("has ended")
	errSuspended  = errors.New("is suspended")
	errPublishing = errors.New("waits until the new version of its policy is published")
	errNoWorker   = errors.New("waits for a worker")
	errWorker     = errors.New("waits for its worker")
	errNoPolicy   = errors.New("no worker serves this policy")
)

const (
	// unknownGrace is how long a trajectory may be unknown: the watch may be a little late.
	unknownGrace = 2 * time.Second
	// endedMax is how many ended trajectories are remembered.
	endedMax = 1 << 16
)

// worker is an engine as the gateway sees it.
type worker struct {
	name, policy string
	dialect      dialect
	state        rotav1.WorkerState
	url          string
	pool         *pool
	// model is the policy as the value of a field.
	model      []byte
	registered int64 // seconds since 1970
	// revivals is the number of the last time that it came up again, or was named in a whole new set
	// of routes.
	revivals uint64
	// load is what the cluster says that it generates for.
	load uint32
	// running are the requests of this gateway; heard is when it last sent a byte, in Unix
	// nanoseconds; noAbort that it does not offer to end a request.
	running atomic.Int64
	heard   atomic.Int64
	noAbort atomic.Bool
}

// entry is a trajectory with a route.
type entry struct {
	policy, worker string
	priority       uint32
	suspended      bool
	flights        []*flight
	// turnEnd is when its last turn ended here.
	turnEnd time.Time
}

// target is where a request goes.
type target struct {
	*worker
	pool     *pool
	dialect  dialect
	policy   string
	model    []byte
	priority uint32
	// assigned: the cluster chose the worker.
	assigned bool
	revivals uint64
}

// failedAt is a worker that failed a request. It is not tried again before it was up again.
type failedAt struct {
	name     string
	revivals uint64
}

// table is what the gateway knows of routes. While no server answers it stays as it was.
type table struct {
	logger hclog.Logger
	roots  *tls.Config

	mu        sync.Mutex
	ready     bool // all of it was heard once
	entries   map[uint64]*entry
	workers   map[string]*worker
	suspended map[string]bool // policies
	// ended are the trajectories that ended last; endedAt is the next of order to replace.
	ended      map[uint64]bool
	endedOrder []uint64
	endedAt    int
	unassigned []*flight
	waiters    map[uint64][]chan struct{}
	// staged collects a whole new set of routes, until it is complete.
	staged *rotav1.WatchRoutesResponse
	// revivals counts those of all workers, so that one that is registered again under its name has
	// another number than the one before.
	revivals uint64
}

func newTable(logger hclog.Logger, roots *tls.Config) *table {
	return &table{
		logger: logger, roots: roots,
		entries: map[uint64]*entry{}, workers: map[string]*worker{}, suspended: map[string]bool{},
		ended: map[uint64]bool{}, waiters: map[uint64][]chan struct{}{},
	}
}

// apply takes over a message of the watch. The first message of a stream is a reset.
func (t *table) apply(m *rotav1.WatchRoutesResponse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.Reset_ {
		t.staged = &rotav1.WatchRoutesResponse{}
	}
	if t.staged == nil {
		t.merge(m)
		return
	}
	t.staged.Routes = append(t.staged.Routes, m.Routes...)
	t.staged.Workers = append(t.staged.Workers, m.Workers...)
	t.staged.SuspendedPolicies = append(t.staged.SuspendedPolicies, m.SuspendedPolicies...)
	t.staged.EndedTrajectoryIds = append(t.staged.EndedTrajectoryIds, m.EndedTrajectoryIds...)
	if m.Complete {
		t.replace(t.staged)
		t.staged = nil
	}
}

// replace takes over a whole new set. A table that is ready is never given a stale one, so
// trajectories that are not in it have ended.
func (t *table) replace(m *rotav1.WatchRoutesResponse) {
	named := make(map[string]bool, len(m.Workers))
	for _, w := range m.Workers {
		named[w.Spec.GetName()] = true
		if old := t.workers[w.Spec.GetName()]; old != nil {
			t.revive(old)
		}
	}
	for name := range t.workers {
		if !named[name] {
			t.removeWorker(name)
		}
	}
	routed := make(map[uint64]bool, len(m.Routes))
	for _, r := range m.Routes {
		routed[r.TrajectoryId] = true
	}
	for id := range t.entries {
		if !routed[id] {
			t.end(id)
		}
	}
	clear(t.suspended)
	t.ready = true
	t.merge(m)
	t.checkAll()
	t.wakeAll()
}

// merge takes over what changed.
func (t *table) merge(m *rotav1.WatchRoutesResponse) {
	for _, w := range m.Workers {
		t.updateWorker(w)
	}
	for _, name := range m.RemovedWorkers {
		t.removeWorker(name)
	}
	for _, p := range m.SuspendedPolicies {
		t.suspended[p] = true
	}
	for _, p := range m.ResumedPolicies {
		delete(t.suspended, p)
	}
	for _, r := range m.Routes {
		t.updateRoute(r)
	}
	for _, id := range m.EndedTrajectoryIds {
		t.end(id)
	}
	if len(m.SuspendedPolicies) > 0 {
		t.checkAll()
	}
	if len(m.Workers)+len(m.RemovedWorkers)+len(m.ResumedPolicies) > 0 {
		t.wakeAll()
	}
}

func (t *table) updateRoute(r *rotav1.Route) {
	e := t.entries[r.TrajectoryId]
	if e == nil {
		e = new(entry)
		t.entries[r.TrajectoryId] = e
	}
	e.policy, e.worker, e.priority, e.suspended = r.Policy, r.Worker, r.Priority, r.Suspended
	t.check(e)
	t.wake(r.TrajectoryId)
}

func (t *table) updateWorker(m *rotav1.Worker) {
	spec := m.Spec
	if spec == nil || spec.Name == "" {
		return
	}
	w := t.workers[spec.Name]
	if w == nil {
		w = &worker{name: spec.Name}
		t.workers[spec.Name] = w
	}
	if w.url != spec.Url || w.pool == nil {
		w.close()
		w.url = spec.Url
		var err error
		if w.pool, err = newPool(spec.Url, t.roots); err != nil {
			t.logger.Error("a worker cannot be used", "worker", spec.Name, "error", err)
		}
	}
	if m.State == rotav1.WorkerState_WORKER_STATE_UP && w.state != m.State {
		t.revive(w)
	}
	if w.policy != spec.Policy || w.model == nil {
		w.model, _ = json.Marshal(spec.Policy) // a string always has an encoding
	}
	w.policy, w.state, w.load, w.registered = spec.Policy, m.State, m.Generating, m.RegisterTime.GetSeconds()
	if w.dialect = dialect(spec.Dialect); w.dialect == 0 {
		w.dialect = openAI
	}
}

// revive notes that a worker may be tried again where it failed before.
func (t *table) revive(w *worker) {
	t.revivals++
	w.revivals = t.revivals
}

func (t *table) removeWorker(name string) {
	if w := t.workers[name]; w != nil {
		w.close()
		delete(t.workers, name)
	}
}

func (w *worker) close() {
	if w.pool != nil {
		w.pool.close()
		w.pool = nil
	}
}

// end ends a trajectory, with the requests of it that run.
func (t *table) end(id uint64) {
	if e := t.entries[id]; e != nil {
		for _, f := range e.flights {
			f.interrupt(errEnded)
		}
		delete(t.entries, id)
	}
	if !t.ended[id] {
		if len(t.endedOrder) < endedMax {
			t.endedOrder = append(t.endedOrder, id)
		} else {
			delete(t.ended, t.endedOrder[t.endedAt])
			t.endedOrder[t.endedAt] = id
			t.endedAt = (t.endedAt + 1) % endedMax
		}
		t.ended[id] = true
	}
	t.wake(id)
}

// check interrupts the requests of a trajectory that may not run now, if they can go on later
// without losing anything. A new worker alone interrupts nothing: it gets the next request.
func (t *table) check(e *entry) {
	why := t.held(e.policy, e.suspended)
	if why == nil {
		return
	}
	for _, f := range e.flights {
		f.hold(why)
	}
}

func (t *table) checkAll() {
	for _, e := range t.entries {
		t.check(e)
	}
	for _, f := range t.unassigned {
		if why := t.held(f.policy, false); why != nil {
			f.hold(why)
		}
	}
}

// held is why requests of a policy, or of a trajectory, may not run now.
func (t *table) held(policy string, suspended bool) error {
	switch {
	case suspended:
		return errSuspended
	case t.suspended[policy]:
		return errPublishing
	}
	return nil
}

// isHeld reports whether a request may not run now.
func (t *table) isHeld(f *flight) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	policy, suspended := f.policy, false
	if e := t.entries[f.id]; e != nil {
		policy, suspended = e.policy, e.suspended
	}
	return t.held(policy, suspended) != nil
}

func (t *table) wake(id uint64) {
	for _, ch := range t.waiters[id] {
		close(ch)
	}
	delete(t.waiters, id)
}

func (t *table) wakeAll() {
	for id := range t.waiters {
		t.wake(id)
	}
}

// acquire waits until a request may go to a worker, and notes that it does. Release must follow.
// The error says what the request waited for.
func (t *table) acquire(ctx context.Context, f *flight, avoid failedAt, until time.Time) (target, error) {
	began := time.Now()
	for {
		to, wake, why := t.try(f, avoid, began)
		if why == nil {
			return to, nil
		}
		limit := until
		if errors.Is(why, errUnknown) && began.Add(unknownGrace).Before(limit) {
			limit = began.Add(unknownGrace)
		}
		if wake == nil || !sleep(ctx, wake, time.Until(limit)) {
			t.forget(f.id, wake)
			if err := context.Cause(ctx); err != nil {
				return to, err
			}
			return to, why
		}
	}
}

// sleep waits for a channel that is closed, and reports whether it was in time.
func sleep(ctx context.Context, wake <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-wake:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

// try returns the target of a request, or why it has none and what to wait for. Without a
// channel there is nothing to wait for.
func (t *table) try(f *flight, avoid failedAt, began time.Time) (target, chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	to, why := t.find(f, avoid)
	switch {
	case why == nil:
		to.running.Add(1)
		f.goTo(to.worker)
		if f.id == 0 {
			t.unassigned = append(t.unassigned, f)
		} else {
			e := t.entries[f.id]
			e.flights = append(e.flights, f)
		}
		return to, nil, nil
	case errors.Is(why, errEnded), errors.Is(why, errUnknown) && time.Since(began) >= unknownGrace:
		return to, nil, why
	}
	wake := make(chan struct{})
	t.waiters[f.id] = append(t.waiters[f.id], wake)
	return to, wake, why
}

// forget stops waiting.
func (t *table) forget(id uint64, wake chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.waiters[id]
	if i := slices.Index(list, wake); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if t.waiters[id] = list; len(list) == 0 {
		delete(t.waiters, id)
	}
}

// find is where a request goes now.
func (t *table) find(f *flight, avoid failedAt) (target, error) {
	if !t.ready {
		return target{}, errNoRoutes
	}
	if f.id == 0 {
		return t.leastLoaded(f.policy, avoid)
	}
	e := t.entries[f.id]
	switch {
	case e == nil && t.ended[f.id]:
		return target{}, errEnded
	case e == nil:
		return target{}, errUnknown
	}
	to := target{policy: e.policy, priority: e.priority, assigned: true}
	if why := t.held(e.policy, e.suspended); why != nil {
		return to, why
	}
	if e.worker == "" {
		return to, errNoWorker
	}
	w := t.workers[e.worker]
	if w == nil || !w.usable(true) {
		return to, fmt.Errorf("%w %q, which does not generate now", errWorker, e.worker)
	}
	if w.name == avoid.name && w.revivals == avoid.revivals {
		return to, fmt.Errorf("%w %q, which failed, to come up, or for another one", errWorker, e.worker)
	}
	to.set(w)
	return to, nil
}

func (to *target) set(w *worker) {
	to.worker, to.pool, to.dialect, to.model, to.revivals = w, w.pool, w.dialect, w.model, w.revivals
}

// usable reports whether a worker generates, for trajectories that it has or for others.
func (w *worker) usable(assigned bool) bool {
	if w.pool == nil {
		return false
	}
	return w.state == rotav1.WorkerState_WORKER_STATE_UP || assigned && w.state == rotav1.WorkerState_WORKER_STATE_DRAINING
}

// leastLoaded is for requests without a trajectory: the worker of their policy that generates
// for the fewest.
func (t *table) leastLoaded(policy string, avoid failedAt) (target, error) {
	to := target{policy: policy}
	if t.suspended[policy] {
		return to, errPublishing
	}
	var best *worker
	known := false
	for _, w := range t.workers {
		if w.policy != policy {
			continue
		}
		known = true
		if !w.usable(false) || w.name == avoid.name && w.revivals == avoid.revivals {
			continue
		}
		if best == nil || w.busier(best) < 0 {
			best = w
		}
	}
	switch {
	case !known:
		return to, fmt.Errorf("%w: %q", errNoPolicy, policy)
	case best == nil:
		return to, errNoWorker
	}
	to.set(best)
	return to, nil
}

// busier compares two workers by what runs at them, then by name.
func (w *worker) busier(other *worker) int {
	mine, its := max(w.running.Load(), int64(w.load)), max(other.running.Load(), int64(other.load))
	return cmp.Or(cmp.Compare(mine, its), cmp.Compare(w.name, other.name))
}

// release notes that a request no longer runs at its worker.
func (t *table) release(f *flight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.worker.running.Add(-1)
	list := &t.unassigned
	if f.id != 0 {
		e := t.entries[f.id]
		if e == nil {
			return
		}
		list = &e.flights
	}
	if i := slices.Index(*list, f); i >= 0 {
		*list = slices.Delete(*list, i, i+1)
	}
}

// turnBegins returns when the turn before ended; zero if that is not known, or another request
// of the trajectory runs.
func (t *table) turnBegins(id uint64) (ended time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[id]; e != nil && len(e.flights) == 0 {
		ended, e.turnEnd = e.turnEnd, time.Time{}
	}
	return ended
}

func (t *table) turnEnds(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[id]; e != nil {
		e.turnEnd = time.Now()
	}
}

// policies are the names of all policies, and when the first worker of each was registered.
func (t *table) policies() (registered map[string]int64, ready bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	registered = map[string]int64{}
	for _, w := range t.workers {
		if at, ok := registered[w.policy]; !ok || w.registered < at {
			registered[w.policy] = w.registered
		}
	}
	return registered, t.ready
}

// isReady reports whether all routes were heard once.
func (t *table) isReady() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ready
}

// counts are for metrics.
func (t *table) counts() (routes, workers int, ready bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entries), len(t.workers), t.ready
}

// close closes idle connections to all workers.
func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.workers {
		w.close()
	}
}
