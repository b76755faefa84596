package agent

import (
	"context"
	"sync"
)

// forkJobsMax bounds the jobs that work at once.
const forkJobsMax = 8

// Kinds of jobs. What cannot be removed has a name, too, so that it is said once.
const (
	takeJob   = "take"
	countJob  = "count"
	beginJob  = "begin"
	sweepJob  = "sweep"
	removeJob = "remove"
)

// forkJob names what is done for one snapshot or one trajectory.
type forkJob struct {
	kind string
	id   uint64
}

// forkJobs are what takes long, so that none waits for another. Only one goroutine at a time asks for
// jobs; they end in others.
type forkJobs struct {
	ended func() // is called after the end of each
	slots chan struct{}

	mu      sync.Mutex
	jobs    map[forkJob]*jobState
	running int
	idle    chan struct{} // closed when none runs any more
}

type jobState struct {
	cancel context.CancelFunc
	over   bool
	// stopped: it was to end before it had ended, so that it means nothing how it did.
	stopped bool
	bytes   uint64
	err     error
}

func newForkJobs(ended func()) *forkJobs {
	return &forkJobs{ended: ended, slots: make(chan struct{}, forkJobsMax), jobs: map[forkJob]*jobState{}}
}

// do begins a job, unless it has been begun. It returns, and forgets, what one returned that is over.
func (j *forkJobs) do(ctx context.Context, name forkJob, work func(ctx context.Context) (bytes uint64, err error)) (over bool, bytes uint64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if state := j.jobs[name]; state != nil {
		if !state.over {
			return false, 0, nil
		}
		delete(j.jobs, name)
		if !state.stopped {
			return true, state.bytes, state.err
		}
	}
	state := &jobState{}
	ctx, state.cancel = context.WithCancel(ctx)
	j.jobs[name] = state
	if j.running++; j.running == 1 {
		j.idle = make(chan struct{})
	}
	go func() {
		bytes, err := j.work(ctx, work)
		j.end(ctx, state, bytes, err)
		j.ended()
	}()
	return false, 0, nil
}

func (j *forkJobs) end(ctx context.Context, state *jobState, bytes uint64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	state.over, state.stopped, state.bytes, state.err = true, ctx.Err() != nil, bytes, err
	state.cancel()
	if j.running--; j.running == 0 {
		close(j.idle)
	}
}

// work waits for its turn.
func (j *forkJobs) work(ctx context.Context, work func(ctx context.Context) (uint64, error)) (uint64, error) {
	select {
	case j.slots <- struct{}{}:
		defer func() { <-j.slots }()
		return work(ctx)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// has reports whether a job runs, or has ended and was not asked for since.
func (j *forkJobs) has(name forkJob) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.jobs[name] != nil
}

// stop ends a job, and reports whether nothing of it is left.
func (j *forkJobs) stop(name forkJob) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stopLocked(name)
}

func (j *forkJobs) stopLocked(name forkJob) bool {
	state := j.jobs[name]
	switch {
	case state == nil:
	case state.over:
		delete(j.jobs, name)
	default:
		state.cancel()
		return false
	}
	return true
}

// keep stops what is not wanted.
func (j *forkJobs) keep(wanted map[forkJob]bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for name := range j.jobs {
		if !wanted[name] {
			j.stopLocked(name)
		}
	}
}

// wait returns when none runs.
func (j *forkJobs) wait() {
	j.mu.Lock()
	idle := j.idle
	j.mu.Unlock()
	if idle != nil {
		<-idle
	}
}

// saidOnce remembers the troubles that were said, so that what is tried again is not said again.
type saidOnce struct {
	mu   sync.Mutex
	last map[forkJob]string
}

// news reports whether an error has not been said of something. None has its trouble forgotten.
func (s *saidOnce) news(of forkJob, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.last, of)
		return false
	}
	if s.last[of] == err.Error() {
		return false
	}
	if s.last == nil {
		s.last = map[forkJob]string{}
	}
	s.last[of] = err.Error()
	return true
}

// keep forgets the troubles of what is not wanted any more.
func (s *saidOnce) keep(wanted map[forkJob]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of := range s.last {
		if !wanted[of] {
			delete(s.last, of)
		}
	}
}
