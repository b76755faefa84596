package sim

import (
	"time"

	"github.com/hashicorp/go-hclog"

	logv1 "rota/api/gen/log/v1"
	"rota/server/leader"
	"rota/server/lease"
)

// Lead does what a leader does between entries (package server/leader), for a state
// machine whose log never changes hands and whose nodes never lose their leases.
type Lead struct {
	loop    *Loop
	machine leader.Machine
	leader  *leader.Leader
	logTime func() int64
	propose func(commands []*logv1.Command, done func([]*logv1.Result))
	alarm   int64 // when the leader is asked at the latest; 0: never
}

// NewLead returns a leader that is asked for the first time at Applied. propose has
// commands committed in one entry, and tells their results.
func NewLead(loop *Loop, machine leader.Machine, logTime func() int64, propose func([]*logv1.Command, func([]*logv1.Result))) *Lead {
	l := &Lead{loop: loop, machine: machine, logTime: logTime, propose: propose}
	l.leader = leader.New(leader.Config{Machine: machine, Leases: leases{}, Logger: hclog.NewNullLogger()}, l.now())
	return l
}

// leases never end.
type leases struct{}

func (leases) Overdue() []lease.Due    { return nil }
func (leases) Patience() time.Duration { return time.Hour }

func (l *Lead) now() leader.Time { return leader.Time{Mono: l.loop.Now(), Log: l.logTime()} }

// Applied tells that an entry was applied.
func (l *Lead) Applied() {
	l.leader.Applied()
	l.ask()
}

// ask has the leader propose what is due.
func (l *Lead) ask() {
	proposals, again := l.leader.Next(l.now())
	for _, p := range proposals {
		l.propose(p.Commands, func(results []*logv1.Result) {
			l.leader.Answered(l.now(), p, results)
			l.ask()
		})
	}
	if l.alarm > l.loop.Now() && l.alarm <= again {
		return
	}
	// A world in which nothing else can happen ends.
	if _, due := l.machine.NextDue(); !due && l.loop.Empty() {
		return
	}
	l.alarm = again
	l.loop.At(again, func() {
		if l.alarm == again {
			l.alarm = 0
			l.ask()
		}
	})
}
