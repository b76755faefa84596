package state

import "cmp"

const (
	// WorkersMax bounds the workers.
	WorkersMax = 2048
	// WorkerNameBytesMax bounds the name of a worker, of its node and of its hardware.
	WorkerNameBytesMax = 128
	// WorkerURLBytesMax bounds the URL of a worker.
	WorkerURLBytesMax = 512
	// WorkerMessageBytesMax bounds what is said of a worker that is down.
	WorkerMessageBytesMax = 512
	// WorkerPointsMax bounds the points of a profile.
	WorkerPointsMax = 32
	// WorkerSlotsMax is how many trajectories a worker has at most.
	WorkerSlotsMax = 1024
)

// WorkerState has the values of rota.v1.WorkerState.
type WorkerState uint8

// States of workers. Only those that are up get trajectories.
const (
	WorkerUp WorkerState = 1 + iota
	WorkerStale
	WorkerDown
	WorkerDraining
)

// WorkerPoint is the time that each request of a batch waits for its next token.
type WorkerPoint struct {
	Batch   uint32
	TokenNS int64
}

// Worker is an engine that generates for the trajectories of a policy.
type Worker struct {
	Name, Policy, URL string
	Dialect           uint8 // as rota.v1.WorkerDialect
	// Node is the name of the node that has its KV cache; empty: none has.
	Node     string
	Degree   uint32 // of parallelism, in GPUs
	Hardware string
	Cost     uint64
	// Slots is how many trajectories it may have; 0: WorkerSlotsMax.
	Slots       uint32
	Profile     []WorkerPoint // in ascending order of batch sizes
	Prefill1kNS int64
	// Version of the policy that it has.
	Version      uint64
	Draining     bool
	RegisteredAt int64
	// RetryAt is the log time from which it is tried again; 0: it is not down. Message says why
	// it is, Failures how often it failed since it last generated something.
	RetryAt  int64
	Message  string
	Failures uint32
	// LeaveAt is the log time from which its idle trajectories may go to others, as it has not
	// the version of its policy; 0: it has, or the time has passed and it is Overdue.
	LeaveAt int64
	Overdue bool
	// OutputTokens is what it generated since it was registered.
	OutputTokens uint64
	// Pool is the name of the worker pool that started it; empty: none did. Starting: it was
	// not said to be up since it was registered. How long that takes is measured for the pool.
	Pool     string
	Starting bool
}

// SlotsOrMax is how many trajectories the worker may have.
func (r *Worker) SlotsOrMax() uint32 { return cmp.Or(r.Slots, WorkerSlotsMax) }

// Leaves reports whether the idle trajectories of the worker go to others.
func (r *Worker) Leaves() bool { return r.Draining || r.Overdue }

// due is when something happens to the worker by log time; 0: never.
func (r *Worker) due() int64 {
	if r.RetryAt == 0 || r.LeaveAt == 0 {
		return r.RetryAt + r.LeaveAt
	}
	return min(r.RetryAt, r.LeaveAt)
}

func (r *Worker) code(c *codec) {
	for _, text := range []*string{&r.Name, &r.Policy, &r.URL, &r.Node, &r.Hardware, &r.Message} {
		c.text(text)
	}
	number(c, &r.Dialect)
	for _, n := range []*uint32{&r.Degree, &r.Slots, &r.Failures} {
		number(c, n)
	}
	for _, n := range []*uint64{&r.Cost, &r.Version, &r.OutputTokens} {
		number(c, n)
	}
	list(c, &r.Profile, func(c *codec, p *WorkerPoint) {
		number(c, &p.Batch)
		signed(c, &p.TokenNS)
	})
	for _, at := range []*int64{&r.Prefill1kNS, &r.RegisteredAt, &r.RetryAt, &r.LeaveAt} {
		signed(c, at)
	}
	c.flag(&r.Draining)
	c.flag(&r.Overdue)
	c.text(&r.Pool)
	c.flag(&r.Starting)
}

// WorkerLoad is what a worker has to do.
type WorkerLoad struct {
	// Trajectories that it generates for, and those of them that generate now.
	Trajectories, Generating uint32
	// Predicted is how many tokens these are predicted to generate yet, Prefill how many tokens of
	// their prompts are predicted to be computed yet.
	Predicted, Prefill uint64
}

type (
	policyWorker struct{ policy, name string }
	workerDue    struct {
		at   int64
		name string
	}
)

func (a policyWorker) less(b policyWorker) bool {
	if a.policy != b.policy {
		return a.policy < b.policy
	}
	return a.name < b.name
}

func (a workerDue) less(b workerDue) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.name < b.name
}

// PutWorker stores a worker.
func (s *State) PutWorker(r *Worker) {
	if old := db(s).workers.put(db(s).enc, r.Name, r); old != nil {
		s.indexWorker(old, false)
	}
	s.indexWorker(r, true)
}

// DeleteWorker forgets a worker, which has no trajectories.
func (s *State) DeleteWorker(name string) {
	Assert(s.WorkerLoad(name).Trajectories == 0, "worker %s is removed and has trajectories", name)
	if old := db(s).workers.delete(name); old != nil {
		s.indexWorker(old, false)
	}
}

func (s *State) indexWorker(r *Worker, in bool) {
	x := &db(s).index
	include(&x.policyWorkers, policyWorker{r.Policy, r.Name}, in)
	if at := r.due(); at != 0 {
		include(&x.workerDues, workerDue{at, r.Name}, in)
	}
	if r.Leaves() {
		include(&x.leavingWorkers, policyWorker{r.Policy, r.Name}, in)
	}
}

// Worker returns a worker, nil if there is none.
func (s *State) Worker(name string) *Worker { return db(s).workers.get(name) }

// WorkerCount returns how many workers there are.
func (s *State) WorkerCount() int { return db(s).workers.rows.Len() }

// Workers visits the workers whose names are after one, in the order of their names.
func (s *State) Workers(after string, fn func(*Worker) bool) {
	db(s).workers.scan(following(after), fn)
}

// WorkersOf visits the workers of a policy in the order of their names.
func (s *State) WorkersOf(policy string, fn func(*Worker) bool) {
	db(s).index.policyWorkers.Ascend(policyWorker{policy, ""}, func(p policyWorker) bool {
		return p.policy == policy && fn(db(s).workers.get(p.name))
	})
}

// LeavingWorkers visits the workers of a policy whose idle trajectories go to others.
func (s *State) LeavingWorkers(policy string, fn func(*Worker) bool) {
	db(s).index.leavingWorkers.Ascend(policyWorker{policy, ""}, func(p policyWorker) bool {
		return p.policy == policy && fn(db(s).workers.get(p.name))
	})
}

// WorkerDue returns the worker to which something happens first by log time, and when.
func (s *State) WorkerDue() (at int64, name string, ok bool) {
	d, ok := db(s).index.workerDues.Min()
	return d.at, d.name, ok
}

// WorkerLoad returns what a worker has to do.
func (s *State) WorkerLoad(name string) WorkerLoad {
	l, _ := db(s).index.workerLoads.Get(name)
	return l
}

// Stale reports whether a worker has not the version of its policy.
func (s *State) Stale(r *Worker) bool {
	p := s.Policy(r.Policy)
	return p != nil && r.Version < p.Version
}

// WorkerState says how a worker is used.
func (s *State) WorkerState(r *Worker) WorkerState {
	switch {
	case r.RetryAt != 0:
		return WorkerDown
	case s.Stale(r):
		return WorkerStale
	case r.Draining:
		return WorkerDraining
	}
	return WorkerUp
}
