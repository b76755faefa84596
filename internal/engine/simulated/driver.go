package simulated

import (
	"context"
	"errors"
	"sync"
	"time"

	"rota/internal/engine/model"
)

const (
	// tick is how often a stream gets its tokens at most: those of several steps come together.
	tick = 2 * time.Millisecond
	// virtualMax is how much simulated time a process may use.
	virtualMax = 99 * 24 * time.Hour
)

var errTimeIsUp = errors.New("99 days of simulated time are over: start it again, or with a lower --speed")

// driver has the model do in real time what it does, or faster.
type driver struct {
	mu       sync.Mutex
	model    *model.Engine
	prefixes *prefixes
	speed    float64
	// At the real time since, base had passed for the model.
	since time.Time
	base  time.Duration

	live    map[uint64]*generation
	watched int
	last    uint64
	// operations are those who wait for the end of what Sleep, Wake or UpdateWeights began.
	operations []operationWait
	// changed is closed and replaced when something has ended.
	changed chan struct{}
	poke    chan struct{}
	events  []model.Event
	// tokens is how many were generated in all.
	tokens int64
}

type operationWait struct {
	kind model.Kind
	done chan struct{}
}

func newDriver(m *model.Engine, speed float64) *driver {
	return &driver{
		model: m, prefixes: newPrefixes(), speed: speed, since: time.Now(), live: map[uint64]*generation{},
		changed: make(chan struct{}), poke: make(chan struct{}, 1),
	}
}

// now is the time of the model.
func (d *driver) now() int64 {
	return int64(min(d.base+time.Duration(float64(time.Since(d.since))*d.speed), virtualMax))
}

// setSpeed changes how fast time passes for the model.
func (d *driver) setSpeed(speed float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.base, d.since, d.speed = time.Duration(d.now()), time.Now(), speed
	d.wake()
}

// wake has the loop look again.
func (d *driver) wake() {
	select {
	case d.poke <- struct{}{}:
	default:
	}
}

// run drives the model until the context ends. progress is told how many tokens were generated in
// all.
func (d *driver) run(ctx context.Context, progress func(tokens int64)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.poke:
		case <-timer.C:
		}
		d.mu.Lock()
		now := d.now()
		d.advance(now)
		wait, tokens := d.wait(now), d.tokens
		d.mu.Unlock()
		progress(tokens)
		if now >= int64(virtualMax) {
			return errTimeIsUp
		}
		timer.Reset(wait)
	}
}

// wait is the real time until the model has something to say.
func (d *driver) wait(now int64) time.Duration {
	at, ok := d.model.NextEvent()
	if token, some := d.model.NextToken(now); some && d.watched > 0 {
		token = max(token, now+int64(float64(tick)*d.speed))
		at, ok = min(at, token), true
	}
	if !ok {
		return time.Hour
	}
	return time.Duration(float64(max(at-now, 0))/d.speed) + 1
}

// advance brings everything up to a time.
func (d *driver) advance(now int64) {
	d.events = d.model.Advance(now, d.events[:0])
	for _, e := range d.events {
		d.see(e)
	}
	if d.watched > 0 {
		for _, g := range d.live {
			if g.watched {
				count, _ := d.model.Generated(now, g.id)
				d.reach(g, count)
			}
		}
	}
	if len(d.events) > 0 {
		close(d.changed)
		d.changed = make(chan struct{})
	}
}

func (d *driver) see(e model.Event) {
	switch e.Kind {
	case model.Updated, model.Asleep, model.Awake:
		for i := 0; i < len(d.operations); i++ {
			if w := d.operations[i]; w.kind == e.Kind {
				close(w.done)
				d.operations = append(d.operations[:i], d.operations[i+1:]...)
				i--
			}
		}
		return
	}
	g := d.live[e.ID]
	if g == nil {
		return
	}
	switch e.Kind {
	case model.Started:
		g.cached = max(g.cached, min(e.Cached, int64(len(g.prompt))))
	case model.Finished, model.Canceled:
		g.ended, g.aborted = true, e.Kind == model.Canceled
		delete(d.live, g.id)
		if g.watched {
			d.watched--
		}
		d.prefixes.ended(append(g.prompt[:len(g.prompt):len(g.prompt)], g.tokens[:e.Tokens]...), g.known)
	}
	d.reach(g, e.Tokens)
	if g.ended {
		notify(g)
	}
}

// reach says that a generation has so many tokens.
func (d *driver) reach(g *generation, count int64) {
	if count > g.count {
		d.tokens += count - g.count
		g.count = count
		notify(g)
	}
}

func notify(g *generation) {
	select {
	case g.notify <- struct{}{}:
	default:
	}
}

// submit begins a generation.
func (d *driver) submit(g *generation, priority int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	g.id = d.last
	r := model.Request{ID: g.id, Prompt: max(int64(len(g.prompt)), 1), Output: int64(len(g.tokens)), Priority: priority}
	g.known = d.prefixes.find(g.prompt, &r)
	if err := d.model.Submit(d.now(), r); err != nil {
		return err
	}
	d.live[g.id] = g
	if g.watched {
		d.watched++
	}
	d.wake()
	return nil
}

// progress is what a generation has by now.
func (d *driver) progress(g *generation) (count int64, ended bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return g.count, g.ended
}

// cancel ends a generation whose client has gone.
func (d *driver) cancel(g *generation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.model.Cancel(d.now(), g.id)
	d.wake()
}

// abort ends the generations that it is true for, and returns how many there were.
func (d *driver) abort(which func(g *generation) bool) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.live {
		if which(g) {
			d.model.Cancel(d.now(), g.id)
			n++
		}
	}
	d.wake()
	return n
}

// do calls the model, at a time.
func (d *driver) do(call func(m *model.Engine, now int64)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	call(d.model, d.now())
	d.wake()
}

// operate begins something that takes its time, and returns when it has ended.
func (d *driver) operate(ctx context.Context, kind model.Kind, begin func(m *model.Engine, now int64) error) error {
	w := operationWait{kind, make(chan struct{})}
	d.mu.Lock()
	err := begin(d.model, d.now())
	if err == nil {
		d.operations = append(d.operations, w)
	}
	d.wake()
	d.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// load is what the model has to do.
func (d *driver) load() model.Load {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	d.advance(now)
	return d.model.Load(now)
}

// idle returns when no request runs; none waits either, if all is true.
func (d *driver) idle(ctx context.Context, all bool) error {
	for {
		d.mu.Lock()
		l, changed := d.model.Load(d.now()), d.changed
		d.wake()
		d.mu.Unlock()
		if l.Running == 0 && (!all || l.Waiting == 0) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
