package leader

import (
	"time"

	"github.com/hashicorp/go-hclog"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched/plan"
)

// workerPoolsEvery is how often a leader looks what is next for the pools of workers.
const workerPoolsEvery = time.Second

// workerPoolSteps bounds what a look proposes, so that it fits an entry. What is left comes with
// the next looks.
const workerPoolSteps = 512

// workerPools starts and ends the workers of pools, and plans their degrees at the boundaries of
// steps. What is next is decided from the state alone, so a new leader goes on.
type workerPools struct {
	machine Machine
	logger  hclog.Logger
	planned []*logv1.Command
	next    int64
	looks   int
}

func (w *workerPools) propose(now Time) ([]*logv1.Command, int64) {
	if now.Mono < w.next {
		return nil, w.next
	}
	w.next = now.Mono + int64(workerPoolsEvery)
	some := false
	w.machine.View(func(s *state.State) { some = s.WorkerPoolCount() > 0 })
	if !some {
		return nil, w.next
	}
	w.planned = share(plan.WorkerPools(w.machine.Fork(), now.Log), w.looks)
	w.looks++
	return w.planned, w.next
}

// share returns as many of the commands as a look proposes: another share with each look, so that
// those that are refused again and again hold up no others.
func share(commands []*logv1.Command, look int) []*logv1.Command {
	shares := (len(commands) + workerPoolSteps - 1) / workerPoolSteps
	if shares <= 1 {
		return commands
	}
	first := look % shares * workerPoolSteps
	return commands[first:min(first+workerPoolSteps, len(commands))]
}

func (w *workerPools) answered(_ Time, results []*logv1.Result) {
	if results == nil {
		w.logger.Warn("what is next for the worker pools was not committed; trying again")
	}
	for i, c := range w.planned {
		if f := refusalOf(results, i); f != nil {
			w.logger.Info("a step of a worker pool was refused; looking again", "pool", c.GetChangeWorkerPool().GetName(), "reason", f.Message)
		}
	}
}
