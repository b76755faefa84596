package rollouts

import (
	"rota/internal/engine/model"
)

// worker is a simulated engine of a world.
type worker struct {
	w       *world
	id      int
	degree  int64
	profile *model.Profile
	engine  *model.Engine
	// requests are those that have not ended.
	requests int
	// poked: it is looked at before time passes. wakeAt is when it is looked at otherwise.
	poked  bool
	wakeAt int64
	// busy is how long it had requests, until since.
	busy, since int64
	events      []model.Event
}

// newWorker makes a worker of so many GPUs.
func (w *world) newWorker(id int, degree int64) (*worker, error) {
	kind := hardware
	if w.fleet != nil {
		kind = w.fleet.kinds[id]
	}
	profile, err := profileOn(kind, w.setup.Model, degree)
	if err != nil {
		return nil, err
	}
	config := model.Config{Profile: profile, Slots: int(w.setup.Slots)}
	if w.policy.preempt {
		config.Preemption = model.PreemptKeep
	}
	e, err := model.New(config)
	if err != nil {
		return nil, err
	}
	return &worker{w: w, id: id, degree: degree, profile: profile, engine: e, wakeAt: -1}, nil
}

// Keys of prefixes: of a trajectory, and of the prompt that its group shares.
func keyOf(r *run) uint64    { return uint64(r.id + 1) }
func parentOf(r *run) uint64 { return 1<<32 + uint64(r.Group+1) }

// submit sends a trajectory's turn.
func (w *world) submit(o *worker, r *run) {
	r.waiting = w.loop.Now()
	err := o.engine.Submit(w.loop.Now(), model.Request{
		ID: keyOf(r), Key: keyOf(r), Parent: parentOf(r), ParentTokens: r.Prompt,
		Prompt: r.context, Output: r.Turns[r.turn].Output, Priority: w.priority(r),
	})
	if err != nil {
		w.fail(err)
		return
	}
	o.count(1)
	o.poke()
}

// count changes how many requests a worker has.
func (o *worker) count(by int) {
	now := o.w.loop.Now()
	if o.requests > 0 {
		o.busy += now - o.since
	}
	o.since = now
	o.requests += by
}

// poke has a worker looked at when all that happens at this time is known.
func (o *worker) poke() {
	if !o.poked {
		o.poked = true
		o.w.loop.After(0, o.look)
	}
}

// look takes what has happened at a worker, and plans when to look again.
func (o *worker) look() {
	o.poked = false
	now := o.w.loop.Now()
	o.events = o.engine.Advance(now, o.events[:0])
	for i := range o.events {
		o.happened(&o.events[i])
	}
	at, ok := o.engine.NextEvent()
	if o.poked || !ok || at == o.wakeAt && at > now {
		return
	}
	o.wakeAt = at
	o.w.loop.At(at, func() {
		if o.wakeAt == at && !o.poked {
			o.look()
		}
	})
}

// happened is told of an event of the engine.
func (o *worker) happened(e *model.Event) {
	w := o.w
	if e.ID == 0 {
		return
	}
	r := w.runs[e.ID-1]
	switch e.Kind {
	case model.Started:
		w.result.queueNS += e.AtNS - r.waiting
		computed := r.context + e.Tokens - e.Cached
		w.result.PromptTokens += computed
		// One token is always computed, even if all of the prefix is there.
		w.result.RecomputedTokens += max(0, computed-r.fresh-1)
		r.fresh = 0
	case model.Preempted:
		r.waiting = e.AtNS
		w.result.Preemptions++
	case model.Finished:
		o.count(-1)
		if !r.aborted {
			w.finished(r)
		}
	case model.Canceled:
		o.count(-1)
	}
}

// busyNS is how long a worker had requests.
func (o *worker) busyNS() int64 {
	o.count(0)
	return o.busy
}

// forget drops what a worker has in its cache of a trajectory that is not there any more.
func (w *world) forget(o *worker, r *run) {
	o.engine.Drop(w.loop.Now(), keyOf(r))
	o.poke()
}

// install puts the KV cache of a trajectory into a worker's cache, as far as there is room.
func (w *world) install(o *worker, r *run) {
	o.engine.Import(w.loop.Now(), keyOf(r), r.context-r.fresh)
	o.poke()
}
