package chunks

import (
	"slices"

	"rota/agent/plan"
)

const (
	second int64 = 1_000_000_000
	never  int64 = 1<<63 - 1
	// pauseMin and pauseMax bound the pause after a failure, in nanoseconds. It doubles.
	pauseMin, pauseMax = second, 60 * second
	// FailuresMax failures in a row make an engine failed. It is tried on, less often.
	FailuresMax = 5
	// provenAfter is how long an engine has to be ready for its earlier failures not to count.
	provenAfter = 60 * second
)

// Version is what an engine runs with. An engine of another version is replaced when no
// attempt uses it.
type Version struct {
	// Generation of the declaration.
	Generation uint64
	// MemoryBytes that it may take of each GPU of its chunk.
	MemoryBytes uint64
}

// Want is an engine that should be ready, or how one runs.
type Want struct {
	Engine plan.Engine
	Version
	// Sleeps says that it can give its GPU memory back without being stopped.
	Sleeps bool
	// AsleepBytes of host memory that it keeps while it sleeps; 0: not known.
	AsleepBytes uint64
}

// Limits are what a node has for engines.
type Limits struct {
	// GPUs is their number, MemoryBytes the memory of each.
	GPUs        int
	MemoryBytes uint64
	// AsleepMax bounds how many engines sleep, AsleepBytesMax the host memory that they
	// keep; 0 bytes: no bound.
	AsleepMax      int
	AsleepBytesMax uint64
}

// Phase is how far an engine is.
type Phase uint8

// Phases. An engine holds GPU memory in all but Absent and Asleep, and while it is stopped
// from its sleep.
const (
	Absent Phase = iota
	Starting
	Waking
	Ready
	FallingAsleep
	Asleep
	// Broken: it runs, and nobody knows how. It must be stopped.
	Broken
	Stopping
)

// Action is what is done to an engine.
type Action uint8

// Actions.
const (
	Start Action = iota + 1
	Wake
	Sleep
	Stop
)

// Step is something to do. It is answered once, with Done. A Stop may come while another step is
// under way, which it ends: only the answer to the newest step of an engine counts.
type Step struct {
	Action Action
	// Want says how the engine is to run, or how it does.
	Want Want
	// Number identifies the step.
	Number uint64
}

// engine is the engine of a model on a chunk.
type engine struct {
	id    plan.Engine
	phase Phase
	// runs is how it runs, wants how it should; nil: it should not be ready.
	runs  Want
	wants *Want
	// step is the number of what is under way; 0: nothing is.
	step uint64
	// killed: it must end, whoever uses it.
	killed bool
	// slept says that it is stopped from its sleep. backed says that it may keep memory of the
	// host for its sleep.
	slept, backed bool
	used          bool
	// usedAt is when it was last used or became ready.
	usedAt, readyAt, stepAt int64
	// failures in a row; it is not tried before notBefore.
	failures  int
	notBefore int64
	// tries counts starts and wakes that were begun, failedTry is the newest that failed.
	// readyTry is the newest that made it ready.
	tries, failedTry, readyTry uint64
	message                    string
	counts                     Counts
	setUpNS                    int64
}

// holds reports whether it may hold GPU memory.
func (e *engine) holds() bool {
	return e.phase != Absent && e.phase != Asleep && !(e.phase == Stopping && e.slept)
}

// outdated reports whether it runs otherwise than it should.
func (e *engine) outdated() bool { return e.wants != nil && e.runs.Version != e.wants.Version }

// Chunks is what one node knows of its engines. Its methods must not be called at the same
// time. Times are nanoseconds of the node's own clock.
type Chunks struct {
	limits  Limits
	engines map[plan.Engine]*engine
	order   []*engine // by model and chunk
	steps   []Step
	number  uint64
	again   int64
	// removed are the models whose engine is not declared any more.
	removed map[string]bool
	// told: a desired state was seen. Before that nothing is put to sleep or stopped that
	// works.
	told bool
}

// New returns the engines of a node that has none.
func New(limits Limits) *Chunks {
	return &Chunks{limits: limits, engines: map[plan.Engine]*engine{}}
}

func (c *Chunks) engine(id plan.Engine) *engine {
	e := c.engines[id]
	if e == nil {
		e = &engine{id: id}
		c.engines[id] = e
		at, _ := slices.BinarySearchFunc(c.order, id, func(e *engine, id plan.Engine) int { return e.id.Compare(id) })
		c.order = slices.Insert(c.order, at, e)
	}
	return e
}

// Adopt takes an engine over that an earlier agent has started: Ready, Asleep, or Broken if
// nobody knows how it is.
func (c *Chunks) Adopt(runs Want, phase Phase, now int64) {
	e := c.engine(runs.Engine)
	e.runs, e.phase, e.usedAt, e.readyAt, e.backed = runs, phase, now, now, phase != Ready
}

// Desire tells which engines should be ready: always all of them.
func (c *Chunks) Desire(wants []Want) {
	c.told = true
	for _, e := range c.order {
		e.wants = nil
	}
	for i := range wants {
		e := c.engine(wants[i].Engine)
		if e.phase == Absent && e.runs.Generation != wants[i].Generation { // another one
			e.failures, e.notBefore, e.message = 0, 0, ""
		}
		e.wants = &wants[i]
	}
}

// Removed tells of which models the engine is not declared any more: always all of them. Their
// engines do not sleep, and it is not told any more that they failed.
func (c *Chunks) Removed(models map[string]bool) { c.removed = models }

// KillAll ends every engine, whoever uses it, and forgets what is desired.
func (c *Chunks) KillAll() {
	c.Kill(func(plan.Engine) bool { return true })
	c.told = false
	for _, e := range c.order {
		e.wants = nil
	}
}

// Kill ends engines, whoever uses them. They start again if they should be ready.
func (c *Chunks) Kill(which func(plan.Engine) bool) {
	for _, e := range c.order {
		if e.phase != Absent && which(e.id) {
			e.killed = true
		}
	}
}

// Next returns the steps that are due now, and the time at which to call it again. It has to
// be called again also after anything that it is told. Without ready nothing is begun but
// what ends engines. used says which engines attempts use.
func (c *Chunks) Next(now int64, ready bool, used func(plan.Engine) bool) (steps []Step, again int64) {
	c.again = never
	for _, e := range c.order {
		if e.used = used(e.id); e.used {
			e.usedAt = now
		}
		if e.phase == Ready && e.failures > 0 {
			if now >= e.readyAt+provenAfter {
				e.failures = 0
			} else {
				c.again = min(c.again, e.readyAt+provenAfter)
			}
		}
	}
	for _, e := range c.order {
		c.end(e, now)
	}
	if ready && c.told {
		for _, e := range c.order {
			c.leave(e, now)
		}
		c.trim(now)
		for _, e := range c.order {
			c.arrive(e, now)
		}
	}
	steps, c.steps = c.steps, nil
	return steps, c.again
}

func (c *Chunks) begin(e *engine, action Action, phase Phase, now int64) {
	c.number++
	e.phase, e.step, e.stepAt = phase, c.number, now
	if action == Start || action == Wake {
		e.tries++
	}
	c.steps = append(c.steps, Step{Action: action, Want: e.runs, Number: c.number})
}

func (c *Chunks) stop(e *engine, now int64) {
	if e.phase == Stopping && e.step != 0 {
		return
	}
	e.slept = e.phase == Asleep || e.phase == Stopping && e.slept
	c.begin(e, Stop, Stopping, now)
}

// end stops what must end whoever uses it.
func (c *Chunks) end(e *engine, now int64) {
	switch {
	case e.phase == Stopping && e.step == 0: // it did not end
		if now < e.notBefore {
			c.again = min(c.again, e.notBefore)
			return
		}
		c.stop(e, now)
	case e.phase == Broken, e.killed:
		c.stop(e, now)
	}
}

// leave puts an engine to sleep or stops it that should not be ready, or runs with an older
// declaration or one that was removed.
func (c *Chunks) leave(e *engine, now int64) {
	unwanted := e.wants == nil || e.outdated()
	switch {
	case e.used || !unwanted:
	case e.phase == Starting, (e.outdated() || c.removed[e.id.Model]) && e.step == 0 && (e.phase == Ready || e.phase == Asleep):
		c.stop(e, now)
	case e.phase == Ready && e.step == 0:
		c.sleep(e, now)
	}
}

// sleep puts an engine to sleep if there is room for it. It makes room by stopping the engine
// that has slept for longest, and waits for that. Without any room the engine is stopped.
func (c *Chunks) sleep(e *engine, now int64) {
	if !e.runs.Sleeps || c.limits.AsleepMax < 1 || c.limits.AsleepBytesMax > 0 && e.runs.AsleepBytes > c.limits.AsleepBytesMax {
		c.stop(e, now)
		return
	}
	if c.room(1, e.runs.AsleepBytes) {
		e.backed = true
		c.begin(e, Sleep, FallingAsleep, now)
		return
	}
	if c.moving() { // whoever it is will leave room, or will sleep
		return
	}
	oldest := c.oldest()
	if oldest == nil { // those that sleep wait for memory, perhaps for that of this one
		c.stop(e, now)
		return
	}
	c.stop(oldest, now)
}

// room reports whether so many more engines may sleep, with so many bytes of the host.
func (c *Chunks) room(more int, bytes uint64) bool {
	for _, e := range c.order {
		if e.backed {
			more++
			bytes += e.runs.AsleepBytes
		}
	}
	return more <= c.limits.AsleepMax && (c.limits.AsleepBytesMax == 0 || bytes <= c.limits.AsleepBytesMax)
}

// moving reports whether some engine is on its way into sleep or out of it.
func (c *Chunks) moving() bool {
	return slices.ContainsFunc(c.order, func(e *engine) bool { return e.backed && e.phase != Asleep })
}

// oldest is the engine that may be stopped and has not been used for longest; nil: none.
func (c *Chunks) oldest() (oldest *engine) {
	for _, e := range c.order {
		if e.phase == Asleep && e.wants == nil && !e.used && (oldest == nil || e.usedAt < oldest.usedAt) {
			oldest = e
		}
	}
	return oldest
}

// trim stops what sleeps beyond the limits, as they may have been lowered.
func (c *Chunks) trim(now int64) {
	if c.room(0, 0) || c.moving() {
		return
	}
	if e := c.oldest(); e != nil {
		c.stop(e, now)
	}
}

// arrive starts or wakes an engine that should be ready, where there is memory for it.
func (c *Chunks) arrive(e *engine, now int64) {
	switch {
	case e.wants == nil || e.killed || e.step != 0 || e.phase != Absent && e.phase != Asleep:
	case now < e.notBefore:
		c.again = min(c.again, e.notBefore)
	case !c.fits(e):
	case e.phase == Asleep && !e.outdated():
		c.begin(e, Wake, Waking, now)
	case e.phase == Absent:
		e.runs = *e.wants
		c.begin(e, Start, Starting, now)
	}
}

// fits reports whether each GPU of the chunk has the memory for an engine.
func (c *Chunks) fits(e *engine) bool {
	if !c.Exists(e.id) {
		return false
	}
	for gpu := e.id.First; gpu < e.id.First+e.id.GPUs; gpu++ {
		left := c.limits.MemoryBytes
		for _, other := range c.order {
			if other == e || !other.holds() || !other.id.Has(gpu) {
				continue
			}
			if other.runs.MemoryBytes > left {
				return false
			}
			left -= other.runs.MemoryBytes
		}
		if e.wants.MemoryBytes > left {
			return false
		}
	}
	return true
}

// Exists reports whether the node has the chunk.
func (c *Chunks) Exists(id plan.Engine) bool {
	return id.GPUs > 0 && id.First >= 0 && id.First+id.GPUs <= c.limits.GPUs
}

// Outcome is what came of a step, or of an engine that was left alone.
type Outcome struct {
	// Failed says that it did not do as it should.
	Failed bool
	// Gone says that no process of it exists.
	Gone bool
	// Message says why it failed, for people.
	Message string
}

// Done answers a step.
func (c *Chunks) Done(id plan.Engine, number uint64, o Outcome, now int64) {
	e := c.engines[id]
	if e == nil || e.step != number || number == 0 {
		return
	}
	e.step = 0
	action := e.phase
	if action == Stopping {
		c.stopped(e, o, now)
		return
	}
	if o.Failed || o.Gone {
		c.fail(e, o, now)
		return
	}
	switch action {
	case Starting:
		e.counts.Starts++
		c.becomeReady(e, now)
	case Waking:
		e.counts.Wakes++
		e.backed = false
		c.becomeReady(e, now)
	case FallingAsleep:
		e.counts.Sleeps++
		e.phase, e.message = Asleep, ""
	}
}

func (c *Chunks) becomeReady(e *engine, now int64) {
	e.phase, e.message, e.readyAt, e.usedAt, e.setUpNS = Ready, "", now, now, max(now-e.stepAt, 1)
	e.readyTry = e.tries
}

// stopped deals with the answer to a Stop. One that failed is repeated.
func (c *Chunks) stopped(e *engine, o Outcome, now int64) {
	if !o.Gone {
		e.notBefore, e.message = now+pauseMin, o.Message
		return
	}
	e.gone()
}

func (e *engine) gone() { e.phase, e.killed, e.slept, e.backed = Absent, false, false, false }

// fail notes a failure. What still runs has to be stopped before anything else.
func (c *Chunks) fail(e *engine, o Outcome, now int64) {
	e.failures++
	e.failedTry = e.tries
	e.counts.Failures++
	e.message = o.Message
	e.notBefore = now + Pause(e.failures)
	e.phase = Broken
	if o.Gone {
		e.gone()
	}
}

// Pause is how long to wait after so many failures in a row, in nanoseconds.
func Pause(failures int) int64 { return min(pauseMin<<min(max(failures-1, 0), 16), pauseMax) }

// Lost tells that an engine that was left alone has ended or does not answer any more. While
// a step is under way, its answer says so.
func (c *Chunks) Lost(id plan.Engine, o Outcome, now int64) {
	if e := c.engines[id]; e != nil && e.step == 0 && e.phase != Absent {
		if e.phase == Stopping {
			c.stopped(e, o, now)
			return
		}
		o.Failed = true
		c.fail(e, o, now)
	}
}
