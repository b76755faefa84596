package leader

import (
	"slices"
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
	// pauses are of the pools whose starts were refused, by name.
	pauses map[string]startPause
}

// startPause is how long a pool starts no worker. It doubles with each refusal.
type startPause struct{ length, until int64 }

// startPauseMax is the longest pause of starts. What refuses one, such as a full queue, ends
// seldom within a second.
const startPauseMax = time.Minute

// starts reports whether the command starts a worker.
func starts(c *logv1.Command) bool {
	_, ok := c.GetChangeWorkerPool().GetChange().(*logv1.ChangeWorkerPool_Start)
	return ok
}

// due leaves out the starts of pools that pause.
func (w *workerPools) due(commands []*logv1.Command, now int64) []*logv1.Command {
	return slices.DeleteFunc(commands, func(c *logv1.Command) bool {
		return starts(c) && now < w.pauses[c.GetChangeWorkerPool().GetName()].until
	})
}

// pause notes which pools had a start refused, and which had none.
func (w *workerPools) pause(now int64, refused map[string]bool) {
	for name, some := range refused {
		if !some {
			delete(w.pauses, name)
			continue
		}
		if w.pauses == nil {
			w.pauses = map[string]startPause{}
		}
		length := min(max(2*w.pauses[name].length, 2*int64(workerPoolsEvery)), int64(startPauseMax))
		w.pauses[name] = startPause{length, now + length}
	}
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
	w.planned = share(w.due(plan.WorkerPools(w.machine.Fork(), now.Log), now.Mono), w.looks)
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

func (w *workerPools) answered(now Time, results []*logv1.Result) {
	if results == nil {
		w.logger.Warn("what is next for the worker pools was not committed; trying again")
		return
	}
	refused := map[string]bool{}
	for i, c := range w.planned {
		name := c.GetChangeWorkerPool().GetName()
		f := refusalOf(results, i)
		if f != nil {
			w.logger.Info("a step of a worker pool was refused; looking again", "pool", name, "reason", f.Message)
		}
		if starts(c) {
			refused[name] = refused[name] || f != nil
		}
	}
	w.pause(now.Mono, refused)
}
