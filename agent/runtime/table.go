package runtime

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rota/agent/plan"
	supervisorv1 "rota/api/gen/supervisor/v1"
	"rota/internal/failpoint"
)

// This file is the table of attempts: each change is journaled before it counts.

// startAttempt records an attempt and begins it.
func (s *supervisor) startAttempt(spec *Spec) error {
	if err := spec.validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopping:
		return ErrStopping
	case s.over():
		return ErrDeadlinePassed
	case s.attempts[spec.Key] != nil:
		return fmt.Errorf("%w: %s", ErrDuplicate, spec.Key)
	case len(s.attempts) >= attemptsMax:
		return fmt.Errorf("%w: %d are known", ErrTooMany, len(s.attempts))
	}
	if s.unsaid {
		if err := s.compact(); err != nil {
			return fmt.Errorf("%w: %w", ErrJournal, err)
		}
	}
	if err := s.journal.write(&record{Start: &spec.Key}); err != nil {
		return err
	}
	a := newAttempt(spec)
	s.attempts[spec.Key] = a
	s.enlist(a)
	s.running++
	s.runners.Go(func() { s.finish(a, s.run(a)) })
	return nil
}

// started records who leads an attempt, where no cgroup says it.
func (s *supervisor) started(k plan.Key, pid int) {
	if s.confine.mode() != ModeAffinity {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.attempts[k]
	a.child = &childRecord{Key: k, PID: pid, StartTime: startTime(pid)}
	if err := s.journal.write(&record{Child: a.child}); err != nil {
		s.log.Error("journal", "error", err)
	}
}

// finish records the end of an attempt and tells the agent. If it cannot be
// recorded it is told all the same: that is worth more than nothing.
func (s *supervisor) finish(a *attempt, e plan.Exit) {
	failpoint.Hit(failpoint.AttemptDead)
	s.delist(a)
	if len(e.Message) > endMessageMax { // it may quote a command, which is long
		e.Message = strings.ToValidUTF8(e.Message[:endMessageMax], "") + "..."
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.journal.write(&record{End: &e}); err != nil {
		s.log.Error("journal", "error", err)
	}
	failpoint.Hit(failpoint.EndJournaled)
	a.ended = &e
	a.spec = Spec{Key: e.Key} // its environment is not needed any more
	s.running--
	if ss := s.session.Load(); ss != nil {
		ss.ends.push(e)
	}
}

// resizeAttempt gives an attempt other CPUs. One that is about to be started gets them
// when it is.
func (s *supervisor) resizeAttempt(k plan.Key, cpus []int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.attempts[k]
	switch {
	case a == nil || a.ended != nil:
		return nil
	case !s.confine.resizes():
		return fmt.Errorf("%w: CPUs of what runs cannot be changed here: no cpuset controller", ErrInvalidSpec)
	case len(cpus) == 0 || len(a.cpus) == 0:
		return fmt.Errorf("%w: an attempt has CPUs of its own from its start to its end, or none", ErrInvalidSpec)
	}
	// One that is about to be started must not fail then for CPUs that are not there.
	if err := s.confine.has(cpus); err != nil {
		return err
	}
	if a.box != nil {
		if err := a.box.resize(cpus); err != nil {
			return err
		}
	}
	a.cpus = cpus
	if a.box != nil && a.coresDir != "" {
		s.cores.change(a)
	}
	return nil
}

// boxed notes where an attempt is about to be started, and gives it the CPUs that it was
// given meanwhile. If they may change again, the file that says which they are is in a
// folder that it returns.
func (s *supervisor) boxed(a *attempt, b box) (coresDir string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.box = b
	if !slices.Equal(a.cpus, a.spec.CPUs) {
		if err := b.resize(a.cpus); err != nil {
			return "", err
		}
	}
	if !a.spec.Follows || len(a.cpus) == 0 {
		return "", nil
	}
	dir := s.cores.dirOf(&a.spec)
	if dir == "" {
		return "", nil
	}
	if err := s.cores.make(dir, a.cpus); err != nil {
		return "", err
	}
	a.coresDir = dir
	return filepath.Join(s.cores.root.Name(), dir), nil
}

// unboxed notes that the attempt has left its box.
func (s *supervisor) unboxed(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.box = nil
}

// killAttempt orders the end of an attempt for the agent of a session. It takes neither serving nor mu, which
// are held while files are written.
func (s *supervisor) killAttempt(session uint64, k plan.Key, reason plan.Reason) error {
	if reason == 0 {
		return fmt.Errorf("kill %s: no reason given", k)
	}
	s.killing.Lock()
	defer s.killing.Unlock()
	if !s.isCurrent(session) { // until killing is given back
		return errReplaced
	}
	for a := range s.live {
		if a.spec.Key == k {
			a.ending.order(killOrder{reason: reason})
		}
	}
	return nil
}

func (s *supervisor) list() (running []plan.Running, ended []plan.Exit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, a := range s.attempts {
		if a.ended == nil {
			running = append(running, plan.Running{Key: k, CPUs: a.cpus, Frozen: a.frozen})
		} else {
			ended = append(ended, *a.ended)
		}
	}
	return running, ended
}

// forget drops ended attempts; what runs is kept.
func (s *supervisor) forget(keys []plan.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var gone []plan.Key
	for _, k := range keys {
		if a := s.attempts[k]; a != nil && a.ended != nil {
			gone = append(gone, k)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if err := s.journal.write(&record{Forget: gone}); err != nil {
		return err
	}
	for _, k := range gone {
		delete(s.attempts, k)
	}
	if s.journal.size > s.compactAt || (len(s.attempts) == 0 && s.journal.size > journalBytesMin/16) {
		s.tryCompact(time.Now())
	}
	return nil
}

// compactPause is the time between tries to compact a journal for which the disk has no room.
const compactPause = 5 * time.Second

// tryCompact compacts the journal, or has it tried again later: until then it is longer than it
// needs to be, and has room of its own to grow.
func (s *supervisor) tryCompact(now time.Time) {
	if now.Before(s.compactLate) {
		return
	}
	if err := s.compact(); err != nil {
		if s.compactLate.IsZero() {
			s.log.Error("the journal stays as it is; trying again", "error", err)
		}
		s.compactLate = now.Add(compactPause)
	}
}

// compactAgain compacts a journal that could not be compacted before.
func (s *supervisor) compactAgain(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.compactLate.IsZero() {
		s.tryCompact(now)
	}
}

// takeOver makes the journal that of this supervisor, in which the attempts of a dead one are lost. On a
// full disk there is no room for another file, but for some records in the old one.
func (s *supervisor) takeOver(lost []*plan.Exit) {
	s.tryCompact(time.Now())
	if s.compactLate.IsZero() {
		return
	}
	// First the ends: what an earlier supervisor started is not taken for something of this one.
	full, short := []*record{}, []*record{}
	for _, e := range lost {
		bare := *e
		bare.Stdout, bare.Stderr = nil, nil
		full, short = append(full, &record{End: e}), append(short, &record{End: &bare})
	}
	boot := s.bootRecord()
	err := s.journal.write(append(full, boot)...)
	if err != nil {
		err = s.journal.write(append(short, boot)...)
	}
	if err != nil {
		s.log.Error("nothing can start until the disk has room for the journal", "error", err)
		s.unsaid = true
	}
}

// bootRecord says that what follows is of this supervisor.
func (s *supervisor) bootRecord() *record {
	return &record{Boot: &bootRecord{BootID: bootID(), PID: os.Getpid(), Cgroups: s.confine.roots()}}
}

// compact rewrites the journal to what is known now. The next time is when it
// has doubled, so that the work stays proportional to what is written.
func (s *supervisor) compact() error {
	recs := []*record{s.bootRecord()}
	for k, a := range s.attempts {
		if a.ended != nil {
			recs = append(recs, &record{End: a.ended})
			continue
		}
		recs = append(recs, &record{Start: &k})
		if a.child != nil {
			recs = append(recs, &record{Child: a.child})
		}
	}
	if err := s.journal.rewrite(recs); err != nil {
		return err
	}
	s.compactAt = max(journalBytesMin, 2*s.journal.size)
	s.compactLate, s.unsaid = time.Time{}, false
	return nil
}

// attach makes a new session the one that ends are sent to, first all those that are
// known, and says what the supervisor is.
func (s *supervisor) attach() (*session, *supervisorv1.Supervisor, error) {
	s.serving.Lock() // after the request that is being handled
	defer s.serving.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, nil, ErrStopping
	}
	if old := s.session.Load(); old != nil {
		old.ends.drop()
	}
	ss := &session{id: rand.Uint64(), ends: newExitQueue(), done: make(chan struct{})}
	s.killing.Lock() // after the kill that is being ordered
	s.session.Store(ss)
	s.killing.Unlock()
	for _, a := range s.attempts {
		if a.ended != nil {
			ss.ends.push(*a.ended)
		}
	}
	return ss, &supervisorv1.Supervisor{
		Session: ss.id, Pid: int32(os.Getpid()), Running: uint32(s.running),
		Mode: s.confine.mode(), NotEnforced: s.notEnforced(), Args: SuperviseArgs(s.opts),
		Resizes: s.confine.resizes(), HidesDevices: s.confine.hidesDevices(),
	}, nil
}

// isCurrent reports whether a request is from the agent that attached last. Numbers of
// sessions are random, so none is that of an earlier supervisor.
func (s *supervisor) isCurrent(session uint64) bool {
	current := s.session.Load()
	return current != nil && current.id == session
}

func (s *supervisor) detach(ss *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session.CompareAndSwap(ss, nil)
}
