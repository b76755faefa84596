package chunks

import (
	"fmt"
	"slices"

	"rota/agent/plan"
)

// State is what is said of an engine. The values are those of rota.v1.EngineState.
type State uint8

// States.
const (
	StateWaiting       State = 1
	StateStarting      State = 2
	StateWaking        State = 3
	StateReady         State = 4
	StateFallingAsleep State = 5
	StateAsleep        State = 6
	StateFailed        State = 7
)

// Counts of what was done to an engine on its chunk and succeeded, and of failures.
type Counts struct{ Starts, Wakes, Sleeps, Failures uint64 }

// Status is what is known of an engine.
type Status struct {
	Engine     plan.Engine
	Generation uint64
	State      State
	Message    string
	Counts     Counts
	// SetUpNS is how long it took to become ready, if it is ready and was not adopted; 0: not
	// known.
	SetUpNS int64
	// Tries counts starts and wakes that were begun. FailedTry is the newest that failed;
	// plan.NoTry: the engine cannot be tried.
	Tries, FailedTry uint64
}

// Status returns what is known of an engine. ok: it exists, or should, or failed when it last
// should: the cluster chooses other chunks for its model then.
func (c *Chunks) Status(id plan.Engine) (s Status, ok bool) {
	e := c.engines[id]
	if e == nil || e.phase == Absent && e.wants == nil && (!e.hasFailed() || c.removed[id.Model]) {
		return Status{Engine: id}, false
	}
	return c.status(e), true
}

// Leaves reports whether an engine should not be ready and may still hold GPU memory.
func (c *Chunks) Leaves(id plan.Engine) bool {
	e := c.engines[id]
	return e != nil && e.wants == nil && e.holds()
}

// Dying reports whether an engine must end, whoever uses it, and has not yet. lives says whether a
// process of one may exist: its memory may take longer to become free.
func (c *Chunks) Dying(lives func(plan.Engine) bool) bool {
	return slices.ContainsFunc(c.order, func(e *engine) bool { return e.killed && lives(e.id) })
}

// List returns all engines that exist, should or failed, by model and chunk.
func (c *Chunks) List() (all []Status) {
	for _, e := range c.order {
		if s, ok := c.Status(e.id); ok {
			all = append(all, s)
		}
	}
	return all
}

func (c *Chunks) status(e *engine) Status {
	s := Status{Engine: e.id, Generation: e.runs.Generation, Message: e.message, Counts: e.counts, Tries: e.tries, FailedTry: e.failedTry}
	if e.phase == Absent && e.wants != nil {
		s.Generation = e.wants.Generation
	}
	switch e.phase {
	case Ready:
		s.State, s.SetUpNS = StateReady, e.setUpNS
	case Starting:
		s.State = StateStarting
	case Waking:
		s.State = StateWaking
	case FallingAsleep:
		s.State = StateFallingAsleep
	case Asleep:
		s.State = StateAsleep
	case Broken, Stopping:
		s.State = StateFallingAsleep
	}
	switch {
	case e.wants != nil && e.phase != Ready:
		c.expected(e, &s)
	case e.phase == Absent:
		s.State, s.Message = StateFailed, e.failureText()
	}
	return s
}

// failed reports whether so many tries failed in a row that it is said to have failed.
func (e *engine) failed() bool { return e.failures >= FailuresMax }

// hasFailed reports whether it had failed when nothing wanted it any more. One that was ready
// since and was then put to sleep has not.
func (e *engine) hasFailed() bool {
	return e.failed() && e.failedTry >= e.readyTry
}

func (e *engine) failureText() string {
	return fmt.Sprintf("failed %d times in a row, most recently: %s", e.failures, e.message)
}

// expected completes the status of an engine that should be ready and is not.
func (c *Chunks) expected(e *engine, s *Status) {
	switch {
	case e.failed():
		s.State, s.Message = StateFailed, e.failureText()
	case !c.Exists(e.id):
		s.State, s.FailedTry = StateFailed, plan.NoTry
		s.Message = fmt.Sprintf("the node has %d GPUs, and no chunk of %d from GPU %d on", c.limits.GPUs, e.id.GPUs, e.id.First)
	case e.wants.MemoryBytes > c.limits.MemoryBytes:
		s.State, s.FailedTry = StateFailed, plan.NoTry
		s.Message = fmt.Sprintf("it needs %d bytes of each GPU, and a GPU has %d", e.wants.MemoryBytes, c.limits.MemoryBytes)
	case e.phase != Starting && e.phase != Waking:
		s.State = StateWaiting
		if s.Message == "" {
			s.Message = "waits for the memory of engines that leave its chunk"
		}
	}
}
