package server

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/server/replica"
)

// Bounds of the time between two ticks. The lower one keeps work that goes on
// over many entries from filling the log; the upper one is for clocks that were
// estimated too late.
const (
	tickIntervalMin = 5 * time.Millisecond
	tickIntervalMax = 10 * time.Second
	bootstrapRetry  = 100 * time.Millisecond
)

// lead does what a leader has to do, whenever this server is one.
func (s *Server) lead(ctx context.Context) {
	end := func() {}
	defer func() { end() }()
	for {
		select {
		case <-ctx.Done():
			return
		case term := <-s.replica.LeaderCh():
			end()
			end = func() {}
			if term != 0 {
				end = s.beginTerm(replica.InTerm(ctx, term))
			}
		}
	}
}

// beginTerm starts the duties of a leader and returns what ends them. ctx is of the
// term: a proposal that one of them makes too late is not committed in the next.
func (s *Server) beginTerm(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var duties sync.WaitGroup
	for _, duty := range []func(context.Context){s.leases.lead, s.keepTime, s.repack, s.switches, s.prefetch} {
		duties.Go(func() { duty(ctx) })
	}
	return func() {
		cancel()
		duties.Wait()
	}
}

// keepTime bootstraps a new cluster, and then has its timers fire.
func (s *Server) keepTime(ctx context.Context) {
	s.bootstrap(ctx, s.replica)
	s.tick(ctx)
}

// bootstrap gives a new cluster its identity. Doing it twice is refused by the
// state machine, which keeps the first, so it is tried until it is known. What
// others propose may be applied, and is refused, before it.
func (s *Server) bootstrap(ctx context.Context, p proposer) {
	if len(s.cfg.Bootstrap) == 0 {
		return
	}
	for ; ctx.Err() == nil && !s.machine.Bootstrapped(); sleep(ctx, bootstrapRetry) {
		_, err := p.ProposeLocal(ctx, &logv1.Command{Verb: &logv1.Command_Bootstrap{
			Bootstrap: &logv1.Bootstrap{
				ClusterId: rand.Text(), Settings: s.cfg.Settings, Level: uint32(s.machine.LevelMax()), Release: s.cfg.Version,
			},
		}})
		if err == nil {
			return
		}
		s.logger.Warn("could not bootstrap the cluster yet", "error", err)
	}
}

// tick proposes an entry whenever something in state is due, and only then.
func (s *Server) tick(ctx context.Context) {
	for ctx.Err() == nil {
		wait := tickIntervalMax
		if due, ok := s.machine.NextDue(); ok {
			wait = min(wait, max(tickIntervalMin, time.Duration(due-s.logTime())))
			if due <= s.logTime() {
				s.proposeTick(ctx)
				wait = tickIntervalMin
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.applied: // what is due next may have changed
			sleep(ctx, tickIntervalMin)
		}
		timer.Stop()
	}
}

func (s *Server) proposeTick(ctx context.Context) {
	_, err := s.replica.ProposeLocal(ctx, &logv1.Command{Verb: &logv1.Command_Tick{Tick: &logv1.Tick{}}})
	if err != nil && ctx.Err() == nil {
		s.logger.Debug("tick was not committed", "error", err)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
