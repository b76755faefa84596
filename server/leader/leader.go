package leader

import (
	"time"

	"github.com/hashicorp/go-hclog"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/server/lease"
)

// Time is when a leader is asked.
type Time struct {
	// Mono is the server's monotonic clock, in nanoseconds.
	Mono int64
	// Log is log time as the server estimates it, in nanoseconds.
	Log int64
}

// Machine is the state machine of the server that leads.
type Machine interface {
	View(func(*state.State))
	// Fork returns a copy that stays as it is.
	Fork() *state.State
	// NextDue returns the log time at which a tick has to be proposed.
	NextDue() (ns int64, ok bool)
}

// Leases says whose lease has ended.
type Leases interface {
	Overdue() []lease.Due
	Patience() time.Duration
}

// Config is what a leadership needs.
type Config struct {
	Machine Machine
	Leases  Leases
	Logger  hclog.Logger
	// Bootstrap founds the cluster, if that has not happened yet; nil: another server does.
	Bootstrap *logv1.Bootstrap
}

// Proposal is for the log. Its commands go into one entry.
type Proposal struct {
	Commands []*logv1.Command
	// Expiry says that it gives up nodes or turns.
	Expiry bool

	of *scheduled
}

// duty is one of the things that a leader does. It is not asked again while its proposal
// is under way.
type duty interface {
	// propose returns what to propose now, if anything, and when on the monotonic clock to
	// be asked again at the latest.
	propose(now Time) (commands []*logv1.Command, again int64)
	// answered tells what became of the commands, each with its result; nil: they were
	// not committed, or that is not known.
	answered(now Time, results []*logv1.Result)
}

// scheduled is a duty with when it is next asked.
type scheduled struct {
	duty
	again    int64
	underWay bool
	// pace is the least time between two looks of a duty that is also asked when the state
	// has changed; 0: it is not. looked is when the last look was.
	pace, looked int64
}

// Leader is one leadership. Its methods must not be called at the same time.
type Leader struct{ duties []*scheduled }

// New begins a leadership.
func New(c Config, now Time) *Leader {
	return &Leader{[]*scheduled{
		{duty: &bootstrap{machine: c.Machine, command: c.Bootstrap, logger: c.Logger}},
		{duty: &timers{machine: c.Machine}, pace: int64(tickPace)},
		{duty: &expiry{leases: c.Leases, logger: c.Logger}},
		{duty: &contextSwitches{machine: c.Machine, logger: c.Logger, refused: map[hookKey]refusal{}}, pace: int64(hookPace)},
		{duty: &prefetches{machine: c.Machine, logger: c.Logger}, again: now.Mono + int64(prefetchEvery)},
		{duty: &moves{machine: c.Machine, logger: c.Logger}, again: now.Mono + int64(repackEvery)},
		{duty: &generations{machine: c.Machine, logger: c.Logger}, again: now.Mono + int64(generationsEvery)},
		{duty: &workerPools{machine: c.Machine, logger: c.Logger}, again: now.Mono + int64(workerPoolsEvery)},
	}}
}

// never is later than anything.
const never = 1<<63 - 1

// Next returns what to propose now, and when on the monotonic clock to ask again. Each
// proposal is to be answered.
func (l *Leader) Next(now Time) (proposals []*Proposal, again int64) {
	again = never
	for _, d := range l.duties {
		if d.underWay {
			continue
		}
		if d.again <= now.Mono {
			var commands []*logv1.Command
			d.looked = now.Mono
			commands, d.again = d.propose(now)
			if len(commands) > 0 {
				_, expires := d.duty.(*expiry)
				d.underWay = true
				proposals = append(proposals, &Proposal{Commands: commands, Expiry: expires, of: d})
				continue
			}
		}
		again = min(again, d.again)
	}
	return proposals, again
}

// Answered tells what became of a proposal: the results of its commands, or nil if it was
// not committed or that is not known.
func (l *Leader) Answered(now Time, p *Proposal, results []*logv1.Result) {
	p.of.underWay = false
	p.of.again = now.Mono + p.of.pace
	p.of.answered(now, results)
}

// Applied tells that the state has changed: what is due next may be another thing.
func (l *Leader) Applied() {
	for _, d := range l.duties {
		if d.pace > 0 {
			d.again = min(d.again, d.looked+d.pace)
		}
	}
}

func refusalOf(results []*logv1.Result, i int) *logv1.Refusal {
	if i >= len(results) {
		return nil
	}
	return results[i].Refusal
}
