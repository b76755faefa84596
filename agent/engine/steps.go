package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"rota/agent/engine/chunks"
	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/api/backoff"
)

const (
	// DefaultStartTimeout is how long an engine may take to become ready after its start.
	DefaultStartTimeout = 10 * time.Minute
	// DefaultCallTimeout is how long it may take to fall asleep, or to wake.
	DefaultCallTimeout = 2 * time.Minute
	// callMax bounds one call of the supervisor.
	callMax = 5 * time.Second
	// portTries is how often an engine is started whose port is in use, until that counts as a failure.
	portTries = 3
	// killAgain is when a kill is repeated if the engine has not ended.
	killAgain = time.Second
)

var (
	// errEnded means that the process ended during a step.
	errEnded = errors.New("the engine ended")
	// errStopped means that it is being stopped meanwhile.
	errStopped = errors.New("the engine is being stopped")
)

// Begin notes a step and returns what does it, which may take long, and tells what came of it.
// Begin is called in the order in which the steps were decided. There is no answer when the
// context ends: the next agent then finds an engine to which something was being done. conn is
// the connection that the step was decided for.
func (m *Manager) Begin(ctx context.Context, step chunks.Step, conn runtime.Runtime) (do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.newest[step.Want.Engine] = step.Number
	return func() { m.do(ctx, step, conn) }
}

func (m *Manager) do(ctx context.Context, step chunks.Step, conn runtime.Runtime) {
	e := step.Want.Engine
	log := m.Logger.With("model", e.Model, "gpu", e.First, "gpus", e.GPUs, "generation", step.Want.Generation)
	began := time.Now()
	outcome := m.perform(ctx, step, conn)
	if ctx.Err() != nil && !outcome.Gone {
		return
	}
	name := actionNames[step.Action]
	if outcome.Failed {
		log.Warn("an engine failed", "step", name, "error", outcome.Message, "after", time.Since(began))
	} else {
		log.Info("an engine did as it was told", "step", name, "after", time.Since(began))
	}
	m.Tell(func(c *chunks.Chunks, now int64) {
		if !outcome.Failed && !outcome.Gone && !m.Lives(e) { // since then, which was not told during the step
			outcome = chunks.Outcome{Failed: true, Gone: true, Message: errEnded.Error()}
		}
		c.Done(e, step.Number, outcome, now)
	})
}

var actionNames = map[chunks.Action]string{
	chunks.Start: "start", chunks.Wake: "wake", chunks.Sleep: "sleep", chunks.Stop: "stop",
}

func (m *Manager) perform(ctx context.Context, step chunks.Step, conn runtime.Runtime) chunks.Outcome {
	if step.Action == chunks.Start {
		return m.start(ctx, step, conn)
	}
	m.mu.Lock()
	p := m.processes[step.Want.Engine]
	stale := m.newest[step.Want.Engine] != step.Number // another one may have been started since
	m.mu.Unlock()
	if p == nil || stale { // it has ended
		return chunks.Outcome{Failed: step.Action != chunks.Stop, Gone: true, Message: errEnded.Error()}
	}
	switch within := limit(p.spec.GetCallTimeout(), DefaultCallTimeout); step.Action {
	case chunks.Wake:
		return m.during(ctx, p, leftAwake, within, func(ctx context.Context) error { return m.wake(ctx, p) })
	case chunks.Sleep:
		return m.during(ctx, p, leftAsleep, within, func(ctx context.Context) error { return m.sleep(ctx, p) })
	default:
		return m.stop(ctx, p, within)
	}
}

// start starts an engine and waits until it serves. Another program may have taken the port of the
// engine before the engine did: then it is started again, with another port.
func (m *Manager) start(ctx context.Context, step chunks.Step, conn runtime.Runtime) (o chunks.Outcome) {
	for try := 1; try <= portTries; try++ {
		p, err := m.enroll(step)
		if err != nil {
			return chunks.Outcome{Failed: true, Gone: true, Message: err.Error()}
		}
		if o = m.startOnce(ctx, p, conn); !o.Gone || !portTaken(p.exit) {
			return o
		}
		m.Logger.Warn("the port of an engine was in use", "model", step.Want.Engine.Model, "port", p.port, "try", try)
	}
	return o
}

func (m *Manager) startOnce(ctx context.Context, p *process, conn runtime.Runtime) chunks.Outcome {
	known := sync.OnceFunc(func() { close(p.launched) })
	defer known()
	return m.during(ctx, p, leftAwake, limit(p.spec.GetStartTimeout(), DefaultStartTimeout), func(ctx context.Context) error {
		err := m.launch(ctx, p, conn)
		if known(); err != nil {
			return err
		}
		return m.client(p).serves(ctx)
	})
}

// portTaken reports whether an engine said at its end that its port was in use.
func portTaken(e plan.Exit) bool {
	said := strings.ToLower(string(e.Stderr))
	return strings.Contains(said, "address already in use") || strings.Contains(said, "eaddrinuse")
}

// limit is a time limit, or its default.
func limit(d *durationpb.Duration, otherwise time.Duration) time.Duration {
	if d.AsDuration() > 0 {
		return d.AsDuration()
	}
	return otherwise
}

func (m *Manager) client(p *process) *client {
	return &client{spec: p.spec, base: URL(p.port), http: m.http}
}

func (m *Manager) sleep(ctx context.Context, p *process) error {
	if err := m.client(p).sleep(ctx); err != nil {
		return err
	}
	return m.untilFree(ctx, p)
}

func (m *Manager) wake(ctx context.Context, p *process) error {
	if err := m.untilFree(ctx, p); err != nil {
		return err
	}
	if err := m.client(p).wake(ctx); err != nil {
		return err
	}
	return m.client(p).serves(ctx)
}

// during does something to an engine that takes its time, and notes how it was left. It breaks
// off when the engine ends, or is to be stopped.
func (m *Manager) during(ctx context.Context, p *process, after left, within time.Duration, do func(context.Context) error) chunks.Outcome {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := m.enter(p, cancel); err != nil {
		return m.leave(p, after, err)
	}
	// Not before: a disk that hangs in enter takes none of the engine's time.
	ctx, release := context.WithTimeoutCause(ctx, within, fmt.Errorf("not done within %v", within))
	defer release()
	ctx, ended := context.WithCancelCause(ctx)
	defer ended(nil)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-p.exited:
			ended(errEnded)
		case <-stop:
		}
	}()
	return m.leave(p, after, do(ctx))
}

// enter notes that something is being done to an engine.
func (m *Manager) enter(p *process, cancel context.CancelFunc) error {
	m.mu.Lock()
	p.cancel = cancel
	stopping, recorded := p.stopping, p.left == leftBusy
	p.left = leftBusy
	m.mu.Unlock()
	switch {
	case stopping:
		return errStopped
	case recorded:
		return nil
	}
	if err := m.remember(); errors.Is(err, errStale) {
		return err
	}
	return nil
}

// leave notes what came of it.
func (m *Manager) leave(p *process, after left, err error) chunks.Outcome {
	if err == nil {
		m.mu.Lock()
		p.left, p.failedProbes = after, 0
		m.mu.Unlock()
		// Before an attempt uses the engine: the next agent is to leave it alone then. Where this fails
		// the engine works none the less.
		_ = m.remember()
	}
	m.mu.Lock()
	p.cancel = nil
	gone := p.ceased()
	m.mu.Unlock()
	switch {
	case gone:
		m.drop(p)
		message := endText(p.exit)
		if err != nil && !errors.Is(err, errEnded) {
			message = err.Error()
		}
		return chunks.Outcome{Failed: true, Gone: true, Message: message}
	case err != nil:
		return chunks.Outcome{Failed: true, Message: err.Error()}
	}
	return chunks.Outcome{}
}

// launch has the supervisor start an engine, once there is memory for it.
func (m *Manager) launch(ctx context.Context, p *process, conn runtime.Runtime) error {
	var spec runtime.Spec
	err := m.untilNoOrphans(ctx)
	if err == nil {
		err = m.untilFree(ctx, p)
	}
	if err == nil && conn == nil {
		err = runtime.ErrStopping
	}
	if err == nil {
		spec, err = m.prepare(p)
	}
	if err == nil {
		err = context.Cause(ctx) // the disk may have taken its time
	}
	if err == nil {
		err = m.begin(p)
	}
	if err != nil {
		m.never(p)
		return err
	}
	// An answer that does not come leaves open whether it was started.
	callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callMax)
	defer cancel()
	if err = conn.Start(callCtx, spec); err != nil && nothingStarted(err) {
		m.never(p)
	}
	return err
}

// prepare gives an engine a port, just before it takes the port itself, and records it for the next
// agent.
func (m *Manager) prepare(p *process) (spec runtime.Spec, err error) {
	m.mu.Lock()
	p.port, err = m.freePort()
	m.mu.Unlock()
	if err == nil {
		spec, err = m.Describe(Launch{Key: p.key, Spec: p.spec, Engine: p.runs.Engine, Port: p.port})
	}
	if err != nil {
		return spec, err
	}
	if err := m.remember(); err != nil {
		return spec, fmt.Errorf("not started, as another agent would not know of it; make room for %s: %w", m.record.path, err)
	}
	return spec, nil
}

// begin notes that an engine is started now, unless it is being stopped.
func (m *Manager) begin(p *process) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.stopping {
		return errStopped
	}
	p.begun = true
	return nil
}

// never notes that an engine was not started.
func (m *Manager) never(p *process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cease(p, plan.Exit{Key: p.key, Message: "it was not started"})
}

// nothingStarted reports whether the supervisor said that it started nothing.
func nothingStarted(err error) bool {
	for _, certain := range []error{runtime.ErrDeadlinePassed, runtime.ErrStopping, runtime.ErrTooMany, runtime.ErrJournal, runtime.ErrInvalidSpec, runtime.ErrDuplicate} {
		if errors.Is(err, certain) {
			return true
		}
	}
	return false
}

// enroll notes an engine that is about to be started.
func (m *Manager) enroll(step chunks.Step) (*process, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	want := step.Want
	spec := m.specs[want.Engine]
	if spec == nil || m.newest[want.Engine] != step.Number {
		return nil, errors.New("it is no longer wanted")
	}
	m.number++
	p := &process{
		runs: want, spec: spec, exited: make(chan struct{}), launched: make(chan struct{}), left: leftBusy,
		key: plan.Key{Action: m.number, Incarnation: m.incarnation},
	}
	m.processes[want.Engine] = p
	return p, nil
}

// drop forgets an engine of which no process exists. Nothing waits for the record: an agent that
// finds the engine there finds out that it is gone.
func (m *Manager) drop(p *process) {
	m.mu.Lock()
	if m.processes[p.runs.Engine] == p {
		delete(m.processes, p.runs.Engine)
	}
	m.mu.Unlock()
	m.tasks.Go(func() { _ = m.remember() })
	m.forget(p.key)
}

// stop ends an engine, whatever is being done to it, and waits for its GPU memory.
func (m *Manager) stop(ctx context.Context, p *process, within time.Duration) chunks.Outcome {
	m.mu.Lock()
	p.stopping = true
	if p.cancel != nil {
		p.cancel()
	}
	begun := p.begun
	m.mu.Unlock()
	if begun {
		<-p.launched // soon, and then it is known what there is to kill
	} else {
		m.never(p)
	}
	if !m.kill(ctx, p) {
		return chunks.Outcome{Failed: true, Message: context.Cause(ctx).Error()}
	}
	m.drop(p)
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := m.untilFree(ctx, p); err != nil { // who needs it will wait for it
		m.Logger.Warn("the memory of an engine that has ended is not free", "model", p.runs.Engine.Model, "error", err)
	}
	return chunks.Outcome{Gone: true}
}

// kill ends a process, again and again until it has. It returns false if the context ends.
func (m *Manager) kill(ctx context.Context, p *process) bool {
	for {
		if conn := m.Runtime(); conn != nil {
			m.killOnce(ctx, p, conn)
		}
		timer := time.NewTimer(killAgain)
		select {
		case <-p.exited:
			timer.Stop()
			return true
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

// killOnce also finds out whether there is anything to kill: a start that was not answered may
// have started nothing.
func (m *Manager) killOnce(ctx context.Context, p *process, conn runtime.Runtime) {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	err := conn.Kill(ctx, p.key, plan.ReasonCanceled)
	var running []plan.Running
	var ended []plan.Exit
	if err == nil {
		running, ended, err = conn.List(ctx)
	}
	if err != nil {
		if ctx.Err() == nil {
			m.Logger.Error("kill failed; trying on", "engine", p.key, "error", err)
		}
		return
	}
	known := slices.ContainsFunc(running, func(r plan.Running) bool { return r.Key == p.key }) ||
		slices.ContainsFunc(ended, func(e plan.Exit) bool { return e.Key == p.key })
	if !known { // what has ended is told
		m.never(p)
	}
}

// untilNoOrphans waits for engines to end that nobody knows.
func (m *Manager) untilNoOrphans(ctx context.Context) error {
	for {
		m.mu.Lock()
		n := len(m.orphans)
		m.mu.Unlock()
		if n == 0 {
			return nil
		}
		if err := backoff.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}
