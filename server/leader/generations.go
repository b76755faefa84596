package leader

import (
	"time"

	"github.com/hashicorp/go-hclog"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched/plan"
)

// generationsEvery is how often a leader looks whether trajectories should be at other workers.
const generationsEvery = 15 * time.Second

// generations plans moves of trajectories between workers. The state machine accepts or leaves
// out each.
type generations struct {
	machine Machine
	logger  hclog.Logger
	next    int64
}

func (g *generations) propose(now Time) ([]*logv1.Command, int64) {
	if now.Mono < g.next {
		return nil, g.next
	}
	g.next = now.Mono + int64(generationsEvery)
	some := false
	g.machine.View(func(s *state.State) { some = s.WorkerCount() > 1 && s.GenerationCount() > 0 })
	if !some {
		return nil, g.next
	}
	return plan.Generations(g.machine.Fork()), g.next
}

func (g *generations) answered(_ Time, results []*logv1.Result) {
	if results == nil {
		g.logger.Warn("moves of trajectories to other workers were not committed; planning again later")
	}
}
