package leader

import (
	"time"

	"github.com/hashicorp/go-hclog"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched/plan"
)

// repackEvery is how often a leader looks whether jobs should be on other groups.
const repackEvery = 30 * time.Second

// moves plans moves of jobs between groups. The state machine accepts or refuses each.
type moves struct {
	machine Machine
	logger  hclog.Logger
	planned []*logv1.Command
	next    int64
}

func (m *moves) propose(now Time) ([]*logv1.Command, int64) {
	if now.Mono < m.next {
		return nil, m.next
	}
	m.next = now.Mono + int64(repackEvery)
	jobs := 0
	m.machine.View(func(s *state.State) { jobs = s.JobCount() })
	if jobs == 0 {
		return nil, m.next
	}
	m.planned = plan.Repack(m.machine.Fork())
	return m.planned, m.next
}

func (m *moves) answered(_ Time, results []*logv1.Result) {
	if results == nil {
		m.logger.Warn("moves of jobs were not committed; planning again later")
	}
	for i, c := range m.planned {
		if f := refusalOf(results, i); f != nil {
			m.logger.Info("a job was not moved", "job", c.GetMoveJob().JobId, "reason", f.Message)
		}
	}
}
