package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"rota/agent/engine/chunks"
	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/internal/clock"
	"rota/internal/failpoint"
)

const (
	// pollMax bounds how late the end of a lease is noticed after the machine was
	// suspended: timers stand still then, and the clock of the lease does not.
	pollMax     = 250 * time.Millisecond
	callTimeout = 5 * time.Second
)

// driver holds the plan, the engines of the node, and the connection to the runtime that
// their steps are for. They change together: a step is never done on a connection that the plan
// does not know, and no attempt starts on an engine that is about to leave.
type driver struct {
	mu      sync.Mutex
	plan    *plan.Plan
	engines *chunks.Chunks
	// engineURL is the address of an engine that exists.
	engineURL func(plan.Engine) string
	// engineLives reports whether a process of an engine may exist.
	engineLives func(plan.Engine) bool
	// orphans reports whether engines run that nobody knows, on any of this many GPUs.
	orphans func() bool
	gpus    int
	conn    runtime.Runtime // nil: none
	changed chan struct{}   // closed and replaced when the plan was told something
	// engineList is how the engines are; enginesMoved is closed and replaced when one has another
	// state.
	engineList   []chunks.Status
	enginesMoved chan struct{}
}

func newDriver(p *plan.Plan) *driver {
	return &driver{
		plan: p, engines: chunks.New(chunks.Limits{}), engineURL: func(plan.Engine) string { return "" }, engineLives: func(plan.Engine) bool { return false },
		orphans: func() bool { return false },
		changed: make(chan struct{}), enginesMoved: make(chan struct{}),
	}
}

// tell tells the plan what happened.
func (d *driver) tell(f func(p *plan.Plan, now int64)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.plan, clock.Boottime())
	close(d.changed)
	d.changed = make(chan struct{})
}

// read reads what the plan knows.
func (d *driver) read(f func(p *plan.Plan)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.plan)
}

// due are the steps that are due, the connection that they are for, how long there are no
// others, and what is closed if there are others sooner.
type due struct {
	steps   []plan.Step
	engines []chunks.Step
	conn    runtime.Runtime
	wait    time.Duration
	changed <-chan struct{}
}

func (d *driver) next() due {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := clock.Boottime()
	engines, engineAgain := d.nextEngines(now)
	steps, again := d.plan.Next(now)
	return due{steps, engines, d.conn, untilNext(min(again, engineAgain), now), d.changed}
}

// untilNext is how long to wait before the plan is asked again.
func untilNext(again, now int64) time.Duration {
	return time.Duration(min(max(again-now, 0), int64(pollMax)))
}

// until waits for a condition on the plan.
func (d *driver) until(ctx context.Context, cond func(*plan.Plan) bool) error {
	for {
		d.mu.Lock()
		ok, changed := cond(d.plan), d.changed
		d.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// connect sets the connection in use, nil for none, as the plan is told of it.
func (d *driver) connect(c runtime.Runtime, f func(p *plan.Plan, now int64)) {
	d.tell(func(p *plan.Plan, now int64) {
		d.conn = c
		f(p, now)
	})
}

// drive does what the plan decides until the context ends. No step waits for another: the
// plan knows which may be done at the same time. What concerns the cluster, and starts,
// belongs to the work: it ends with it, and a step that fails for good ends it.
func (a *agent) drive(ctx context.Context, work *group) error {
	s := &steps{
		agent: a, ctx: ctx, work: work.ctx, fail: work.fail, session: func() {},
		preparing: map[plan.Key]context.CancelCauseFunc{},
		reports:   newRounds(20*time.Millisecond, time.Second), frozen: newRounds(20*time.Millisecond, time.Second)}
	defer s.doing.Wait()
	defer func() { s.session() }()
	for {
		due := a.driver.next()
		for _, step := range due.engines {
			s.doing.Go(a.engines.Begin(ctx, step, due.conn))
		}
		for _, step := range due.steps {
			s.do(step, due.conn)
		}
		timer := time.NewTimer(due.wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-due.changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// steps does the steps of a plan.
type steps struct {
	*agent
	ctx, work context.Context
	// fail ends the work.
	fail  func(error)
	doing sync.WaitGroup
	// inSession ends with session, which ends what Open began.
	inSession context.Context
	session   context.CancelFunc
	// preparing ends what comes before the supervisor is asked to start an attempt.
	mu        sync.Mutex
	preparing map[plan.Key]context.CancelCauseFunc
	// Pauses after failures. One renewal and one report are under way at a time.
	renewals, reports, frozen *rounds
}

// do begins a step. It does not wait.
func (s *steps) do(step plan.Step, conn runtime.Runtime) {
	switch step := step.(type) {
	case plan.Note:
		s.log.Warn(step.Text, "action", step.Key.Action, "attempt", step.Key.Attempt)
	case plan.Open:
		s.open(step)
	case plan.Close:
		s.log.Error("killing everything that runs here", "reason", step.Why)
		s.session()
		s.driver.tellEngines(func(c *chunks.Chunks, _ int64) { c.KillAll() })
	case plan.Register:
		s.doing.Go(func() { s.doRegister(step) })
	case plan.Renew:
		ctx, pause := s.inSession, s.renewals
		s.doing.Go(func() { s.renew(ctx, step, pause) })
	case plan.Report:
		s.doing.Go(func() { s.report(s.work, step, s.reports) })
	case plan.ReportFrozen:
		s.doing.Go(func() { s.reportFrozen(s.work, step, s.frozen) })
	case plan.Journal:
		s.doing.Go(func() { s.write(step) })
	case plan.Start:
		ctx, done := s.prepare(step.Key)
		s.doing.Go(func() {
			defer done()
			s.start(ctx, step, conn)
		})
	case plan.Abandon:
		s.abandon(step.Key)
	default:
		s.doing.Go(func() { s.ask(step, conn) })
	}
}

func (s *steps) doRegister(step plan.Register) {
	terms, err := s.register(s.work, step.Incarnation)
	switch {
	case s.work.Err() != nil:
	case err != nil:
		s.fail(err)
	default:
		if err := s.journal.SetMachine(s.machine()); err != nil {
			s.fail(fmt.Errorf("note what the node registered as: %w", err))
			return
		}
		failpoint.Hit(failpoint.NodeRegistered)
		s.driver.tell(func(p *plan.Plan, _ int64) { p.Registered(terms) })
	}
}

// open begins a session.
func (s *steps) open(step plan.Open) {
	s.log.Info("registered", "incarnation", step.Incarnation, "lease", time.Duration(step.LeaseNS), "cores", s.inv.Cores())
	s.inSession, s.session = context.WithCancel(s.work)
	ctx, lease := s.inSession, time.Duration(step.LeaseNS)
	s.renewals = newRounds(lease/200, lease/12)
	s.traces.keep(step.Incarnation)
	older := s.engines.Open(step.Incarnation)
	s.driver.tellEngines(func(c *chunks.Chunks, _ int64) { c.Kill(older) })
	s.doing.Go(func() { s.reportEngines(ctx, step.Incarnation) })
	s.doing.Go(func() { s.migrate(ctx, step.Incarnation) })
	s.doing.Go(func() { s.follow(ctx, step.Incarnation) })
	s.doing.Go(func() { s.keepForks(ctx, step.Incarnation) })
	s.doing.Go(func() { s.reportDisk(ctx, step.Incarnation) })
	if s.gpus != nil {
		s.doing.Go(func() { s.reportGPUs(ctx, step.Incarnation) })
	}
}

// write enters into the journal what the step says, in its order.
func (s *steps) write(step plan.Journal) {
	if step.Incarnation != 0 {
		if err := s.journal.SetIncarnation(step.Incarnation); err != nil {
			s.fail(err)
			return
		}
		failpoint.Hit(failpoint.IncarnationJournaled)
	}
	if err := errors.Join(s.journal.Report(step.Reported), s.journal.Forget(step.Forget)); err != nil {
		s.fail(fmt.Errorf("note what was reported: %w", err))
		return
	}
	if len(step.Accept) > 0 {
		began := time.Now()
		if err := s.journal.Accept(step.Accept); err != nil {
			s.fail(fmt.Errorf("accept attempts: %w", err))
			return
		}
		s.metrics.took(phaseJournal, began)
		failpoint.Hit(failpoint.AttemptsJournaled)
	}
	s.driver.tell(func(p *plan.Plan, _ int64) { p.Journaled() })
}

// prepare returns the context of what comes before an attempt is handed to the runtime.
func (s *steps) prepare(k plan.Key) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(s.work)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.preparing[k] = cancel
	return ctx, func() {
		cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.preparing, k)
	}
}

// abandon breaks off what comes before an attempt is handed to the runtime.
func (s *steps) abandon(k plan.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.preparing[k]; cancel != nil {
		cancel(errAbandoned)
	}
}

// start hands an attempt to the runtime and tells what it answered.
func (s *steps) start(ctx context.Context, step plan.Start, conn runtime.Runtime) {
	began := time.Now()
	err := runtime.ErrStopping // so nothing is started
	if s.work.Err() == nil {
		failpoint.Hit(failpoint.StartSending)
		var spec runtime.Spec
		if spec, err = step.Work.(work).on(step.EngineURL); err == nil {
			spec.CPUs = step.CPUs
			err = s.startSpec(ctx, conn, spec, step.Work.(work))
		}
		failpoint.Hit(failpoint.StartAnswered)
	}
	answer, text := answerOf(err)
	s.metrics.starts.WithLabelValues(answerNames[answer]).Inc()
	if answer == plan.OK {
		s.traces.startTook(step.Key, began, time.Now())
		s.metrics.took(phaseStart, began)
	}
	s.driver.tell(func(p *plan.Plan, now int64) { p.Started(step.Connection, step.Key, answer, text, now) })
	if errors.Is(err, runtime.ErrJournal) {
		s.fail(fmt.Errorf("start attempts: %w", err))
	}
}

// startSpec hands a specification to the runtime, in the sandbox of its trajectory and with the files
// that this begins with. The context ends what comes before that, and not the call.
func (s *steps) startSpec(ctx context.Context, conn runtime.Runtime, spec runtime.Spec, w work) error {
	done, err := s.forks.use(ctx, spec.Trajectory, w.snapshot)
	if err != nil {
		return err
	}
	defer done()
	if w.container != nil {
		if err := s.openSandbox(ctx, conn, &spec, w.container); err != nil {
			return err
		}
	}
	if err := s.specs.ports.keep(spec.Key); err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrInvalidSpec, err)
	}
	if ctx.Err() != nil { // the disk may have taken its time
		return notReady(ctx, context.Cause(ctx))
	}
	return conn.Start(s.work, spec)
}

// answerNames are the labels of answers.
var answerNames = map[plan.Answer]string{
	plan.OK: "ok", plan.Disarmed: "disarmed", plan.Full: "full", plan.Impossible: "impossible", plan.Unknown: "unknown",
}

// answerOf is what an error of Start means.
func answerOf(err error) (answer plan.Answer, text string) {
	switch {
	case err == nil:
		return plan.OK, ""
	case errors.Is(err, runtime.ErrDeadlinePassed), errors.Is(err, runtime.ErrStopping):
		answer = plan.Disarmed
	case errors.Is(err, runtime.ErrTooMany), errors.Is(err, runtime.ErrJournal), errors.Is(err, errNotYet):
		answer = plan.Full
	case errors.Is(err, runtime.ErrInvalidSpec):
		answer = plan.Impossible
	default:
		answer = plan.Unknown
	}
	return answer, err.Error()
}

// ask does the steps that are one call of the runtime. A connection on which a call
// fails that must not, or is not answered in time, is given up: the next one tells what is so. A
// supervisor that does not answer that either is killed.
func (s *steps) ask(step plan.Step, conn runtime.Runtime) {
	var err error
	ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
	defer cancel()
	switch step := step.(type) {
	case plan.Resize:
		s.resize(step, conn)
	case plan.Freeze:
		s.freeze(step, conn)
	case plan.Kill:
		s.kill(step, conn)
	case plan.Forget:
		s.specs.ports.forget(step.Keys)
		failpoint.Hit(failpoint.ReportJournaled)
		if err := conn.Forget(ctx, step.Keys); err != nil {
			s.log.Debug("the supervisor did not forget; it will be told again", "error", err)
		}
	case plan.CheckSupervisor:
		s.killFrozenSupervisor(s.ctx, time.Duration(step.WithinNS))
	case plan.Arm:
		if err = conn.SetDeadline(ctx, step.Deadline); err == nil {
			s.driver.tell(func(p *plan.Plan, _ int64) { p.Armed(step.Connection, step.Deadline) })
		}
	case plan.List:
		var running []plan.Running
		var ended []plan.Exit
		if running, ended, err = conn.List(ctx); err == nil {
			running, ended = withoutEngines(running, ended)
			s.driver.tell(func(p *plan.Plan, now int64) { p.Listed(step.Connection, running, ended, now) })
		}
	default:
		panic(fmt.Sprintf("agent: unknown step %T", step))
	}
	if err != nil && s.ctx.Err() == nil {
		s.log.Error("the supervisor did not do what it was asked; connecting again", "step", fmt.Sprintf("%T", step), "error", err)
		_ = conn.Close()
	}
}

// resize gives an attempt other CPUs. If that fails, the plan tries again. A call without
// an answer might be served after a later one, unless its connection is given up.
func (s *steps) resize(step plan.Resize, conn runtime.Runtime) {
	ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
	defer cancel()
	err := conn.Resize(ctx, step.Key, step.CPUs)
	s.metrics.resizes.WithLabelValues(result(err)).Inc()
	if err != nil && ctx.Err() == nil {
		s.log.Error("the CPUs of an attempt were not changed; trying on", "action", step.Key.Action, "attempt", step.Key.Attempt, "error", err)
	}
	if ctx.Err() != nil {
		_ = conn.Close()
	}
	s.driver.tell(func(p *plan.Plan, now int64) { p.Resized(step.Connection, step.Key, err == nil, now) })
}

// kill ends what must not go on. It is repeated until the attempt has ended.
func (s *steps) kill(step plan.Kill, conn runtime.Runtime) {
	ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
	defer cancel()
	if err := conn.Kill(ctx, step.Key, step.Reason); err != nil && ctx.Err() == nil {
		s.log.Error("kill failed; trying on", "action", step.Key.Action, "attempt", step.Key.Attempt, "error", err)
	}
}
