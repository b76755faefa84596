package server

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/internal/clock"
	"rota/internal/failpoint"
	"rota/server/leader"
	"rota/server/replica"
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
	duties.Go(func() {
		s.leases.table.Lead()
		defer s.leases.table.Follow()
		d := duty{proposer: s.replica, began: clock.Now(), logTime: s.logTime, applied: s.applied}
		d.run(ctx, leader.Config{
			Machine: s.machine, Leases: s.leases.table, Logger: s.logger.Named("leader"), Bootstrap: s.bootstrap(),
		})
	})
	duties.Go(func() { s.runAutopilot(ctx) })
	duties.Go(func() { s.runPredictor(ctx) })
	return func() {
		cancel()
		duties.Wait()
	}
}

// bootstrap is what this server founds a cluster with; nil if it was not told to.
func (s *Server) bootstrap() *logv1.Bootstrap {
	if len(s.cfg.Bootstrap) == 0 {
		return nil
	}
	return &logv1.Bootstrap{
		ClusterId: rand.Text(), Settings: s.cfg.Settings, Level: uint32(s.machine.LevelMax()), Release: s.cfg.Version,
	}
}

// duty drives a leader: it tells the time, carries proposals to the log, and brings back
// what became of them.
type duty struct {
	proposer proposer
	began    time.Time
	logTime  func() int64
	applied  <-chan struct{} // entries were applied
}

// answer is what became of a proposal: nil if that is not known, or nothing.
type answer struct {
	to      *leader.Proposal
	results []*logv1.Result
}

// run does the duties of a leader until ctx is done, which is when leadership ends.
func (d *duty) run(ctx context.Context, c leader.Config) {
	l := leader.New(c, d.now())
	answers := make(chan answer)
	var underWay sync.WaitGroup
	defer underWay.Wait()
	for ctx.Err() == nil {
		now := d.now()
		proposals, again := l.Next(now)
		for _, p := range proposals {
			underWay.Go(func() { d.propose(ctx, p, answers) })
		}
		timer := time.NewTimer(time.Duration(again - now.Mono))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case a := <-answers:
			l.Answered(d.now(), a.to, a.results)
		case <-d.applied:
			l.Applied()
		}
		timer.Stop()
	}
}

func (d *duty) now() leader.Time {
	return leader.Time{Mono: int64(clock.Now().Sub(d.began)), Log: d.logTime()}
}

func (d *duty) propose(ctx context.Context, p *leader.Proposal, answers chan<- answer) {
	if p.Expiry {
		failpoint.Hit(failpoint.NodeOverdue)
	}
	results, err := d.proposer.ProposeLocal(ctx, p.Commands...)
	if err != nil {
		results = nil
	} else if p.Expiry {
		failpoint.Hit(failpoint.NodeExpired)
	}
	select {
	case answers <- answer{p, results}:
	case <-ctx.Done():
	}
}
