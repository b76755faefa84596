package plan

import (
	"cmp"
	"slices"
)

// Engine is the engine of a model on a chunk of GPUs of the node. The zero value is none.
type Engine struct {
	Model string
	// First is the number of the chunk's first GPU, GPUs how many it has.
	First, GPUs int
}

// Compare orders engines by model and chunk.
func (e Engine) Compare(f Engine) int {
	return cmp.Or(cmp.Compare(e.Model, f.Model), cmp.Compare(e.First, f.First), cmp.Compare(e.GPUs, f.GPUs))
}

// Has reports whether a GPU is one of the chunk.
func (e Engine) Has(gpu int) bool { return e.First <= gpu && gpu < e.First+e.GPUs }

// EngineStatus is what an attempt has to know of its engine.
type EngineStatus struct {
	// URL of an engine that is ready; empty: it is not.
	URL string
	// Failed says in words that it will not be ready soon; empty: it may be.
	Failed string
	// Tries counts how often it was begun to make it ready. FailedTry is the newest of these
	// that failed; NoTry: it cannot be tried.
	Tries, FailedTry uint64
}

// NoTry is the FailedTry of an engine that cannot be tried, as on a chunk that does not exist.
const NoTry uint64 = 1<<64 - 1

// EnginesAre tells how each engine of the node is: always all of them. Attempts start only
// when their engine is ready, and end if it failed.
func (p *Plan) EnginesAre(engines map[Engine]EngineStatus) { p.engines = engines }

// EnginesLeave tells which engines should not be ready and may still hold memory of their GPUs:
// always all of them. Attempts without an engine do not start on these GPUs.
func (p *Plan) EnginesLeave(leavers []Engine) { p.leavers = leavers }

// EnginesDie tells whether some must end, whoever uses them, and may not have yet. Those of a session
// that is over are killed by the supervisor, which is killed if it is frozen.
func (p *Plan) EnginesDie(die bool) { p.enginesDie = die }

// EnginesRemoved tells of which models the engine is not declared any more: always all of them.
// Attempts that wait for one end.
func (p *Plan) EnginesRemoved(models map[string]bool) { p.removed = models }

// Told reports whether the newest desired state is that of an index, and counts.
func (p *Plan) Told(incarnation, index uint64) bool {
	return p.session.stage == open && p.table.incarnation == incarnation && p.table.index == index
}

// UsesEngine reports whether an attempt may use an engine now. Attempts that an earlier agent
// has started may use any, until a desired state says which.
func (p *Plan) UsesEngine(e Engine) bool {
	return slices.ContainsFunc(p.table.attempts, func(a *attempt) bool {
		return !a.gone && a.phase.live() && (a.engine == e || a.named == 0)
	})
}

// Ready says that something may be started: the node is registered, the lease is held, and
// the supervisor will enforce its end.
func (p *Plan) Ready(now int64) bool { return p.ready(now) }

// served reports whether an attempt has the engine that it needs, or needs none and has its GPUs:
// an engine that had to leave them for it needs a while to give their memory back. Who needs an
// engine need not ask, as that takes memory only when those that leave have given it back.
func (p *Plan) served(a *attempt) bool {
	if a.engine != (Engine{}) {
		return p.engines[a.engine].URL != ""
	}
	return !slices.ContainsFunc(p.leavers, func(e Engine) bool { return slices.ContainsFunc(a.gpus, e.Has) })
}

// refuse ends an attempt whose engine failed. It has not been started. The engine must have
// failed in a try that began after the attempt was first seen: earlier failures may be over.
func (p *Plan) refuse(a *attempt) {
	if a.engine == (Engine{}) || a.phase > accepted {
		return
	}
	status := p.engines[a.engine]
	if p.removed[a.engine.Model] {
		status = EngineStatus{Failed: "its declaration was removed; declare it again with: rota engine register", FailedTry: NoTry}
	}
	if !a.awaits {
		a.awaits, a.triesBefore = true, status.Tries
	}
	if status.Failed == "" || status.FailedTry <= a.triesBefore {
		return
	}
	exit := Exit{Key: a.key, Reason: ReasonStartFailed, Message: "the engine of model " + a.engine.Model + " on this node: " + status.Failed}
	switch {
	case a.phase == wanted && a.refusal == nil:
		a.refusal = &exit
	case a.phase == accepted:
		p.end(a, exit)
	}
}
