package evaluate

import "rota/internal/sim/workload"

// apis are what is called outside, under whatever policy: they count what is on
// its way and refuse what is too much.
type apis struct {
	w         *world
	timeout   int64
	providers map[string]*api
}

// api is a provider with the limit of all its keys together. Pooling them is what
// a well-behaved client would do at best.
type api struct {
	*workload.Provider
	limit int64
	// inFlight is for limits of calls at once, recent for those in a window: when
	// each unit was taken, oldest first.
	inFlight int64
	recent   []int64
}

func newAPIs(w *world) *apis {
	p := w.in.generator.Params()
	a := &apis{w: w, providers: make(map[string]*api)}
	for i := range p.Providers {
		v := &p.Providers[i]
		a.providers[quotaOf+v.Name] = &api{Provider: v, limit: int64(v.Limit.Value * v.Keys.Value)}
	}
	if p.Baseline.Calls != nil {
		a.timeout = int64(p.Baseline.Calls.Timeout.Value)
	}
	return a
}

const quotaOf = "quota:"

// call makes a call, and has then called when it has ended or was given up.
// What goes beyond a limit of any of its providers is refused, or hangs.
func (a *apis) call(c *call, then func(ok bool)) {
	try := a.w.in.generator.Try(c.Action, c.try)
	key := a.providers[c.Cost[0].Resource]
	if over := a.overrun(c); over != nil {
		d := a.timeout
		if try.Overrun < int64(over.OverrunErrorPPM.Value) || d == 0 {
			d = try.Refusal
		}
		a.w.loop.After(d, func() { then(false) })
		return
	}
	a.take(c, 1)
	d, ok := try.Latency, try.Luck >= int64(key.ErrorPPM.Value)
	if a.timeout > 0 && d > a.timeout {
		d, ok = a.timeout, false
	}
	a.w.loop.After(d, func() {
		a.take(c, -1)
		then(ok)
	})
}

// overrun returns a provider that has not got what a call needs of it.
func (a *apis) overrun(c *call) *api {
	for i := range c.Cost {
		if v := a.providers[c.Cost[i].Resource]; v != nil && v.used(a.w.loop.Now())+c.Cost[i].Min > v.limit {
			return v
		}
	}
	return nil
}

// take counts the units of a call that begins, or ends if by is -1. Those of a
// window are used up when it begins.
func (a *apis) take(c *call, by int64) {
	for i := range c.Cost {
		v := a.providers[c.Cost[i].Resource]
		switch {
		case v == nil:
		case v.Window.Value == 0:
			v.inFlight += by * c.Cost[i].Min
		case by > 0:
			for range c.Cost[i].Min {
				v.recent = append(v.recent, a.w.loop.Now())
			}
		}
	}
}

// used returns how much of the limit is used.
func (v *api) used(now int64) int64 {
	for len(v.recent) > 0 && v.recent[0]+int64(v.Window.Value) <= now {
		v.recent = v.recent[1:]
	}
	return v.inFlight + int64(len(v.recent))
}

// uncontrolled lets every client call whenever it wants to.
type uncontrolled struct {
	w    *world
	apis *apis
}

func newUncontrolled(w *world) *uncontrolled { return &uncontrolled{w, newAPIs(w)} }

func (u *uncontrolled) begin(*rollout) {}
func (u *uncontrolled) end(*rollout)   {}

func (u *uncontrolled) submit(c *call) {
	c.started = u.w.loop.Now()
	u.apis.call(c, func(ok bool) {
		c.exec += u.w.loop.Now() - c.started
		u.w.ended(c, ok)
	})
}

func (u *uncontrolled) capacity() Capacity { return Capacity{} }
