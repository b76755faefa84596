package leader

import (
	"time"

	"github.com/hashicorp/go-hclog"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

const (
	// tickPace keeps work that goes on over many entries from filling the log.
	tickPace = 5 * time.Millisecond
	// tickIntervalMax is for log time that was estimated too late.
	tickIntervalMax = 10 * time.Second
	bootstrapRetry  = 100 * time.Millisecond
)

// timers proposes a tick when something in state is due, and only then.
type timers struct{ machine Machine }

func (t *timers) propose(now Time) ([]*logv1.Command, int64) {
	due, ok := t.machine.NextDue()
	switch {
	case !ok:
		return nil, now.Mono + int64(tickIntervalMax)
	case due > now.Log:
		return nil, now.Mono + min(int64(tickIntervalMax), max(int64(tickPace), due-now.Log))
	}
	return []*logv1.Command{{Verb: &logv1.Command_Tick{Tick: &logv1.Tick{}}}}, 0
}

func (*timers) answered(Time, []*logv1.Result) {}

// bootstrap gives a new cluster its identity. The state machine keeps the first and refuses
// a second, so it is tried until it is known. Other commands may be applied, and
// are refused, before it.
type bootstrap struct {
	machine Machine
	command *logv1.Bootstrap
	logger  hclog.Logger
	next    int64
}

func (b *bootstrap) propose(now Time) ([]*logv1.Command, int64) {
	known := false
	b.machine.View(func(s *state.State) { known = s.Meta().ClusterID != "" })
	if b.command == nil || known {
		return nil, never
	}
	if now.Mono < b.next {
		return nil, b.next
	}
	return []*logv1.Command{{Verb: &logv1.Command_Bootstrap{Bootstrap: b.command}}}, 0
}

func (b *bootstrap) answered(now Time, results []*logv1.Result) {
	b.next = now.Mono + int64(bootstrapRetry)
	if f := refusalOf(results, 0); f != nil {
		b.logger.Warn("could not bootstrap the cluster yet", "reason", f.Message)
	}
}
