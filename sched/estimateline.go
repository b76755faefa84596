package sched

import (
	"cmp"
	"math/bits"
	"slices"

	"rota/fsm/state"
)

// amounts is what a server has, or an action needs: cores or units of a quota, bytes and
// bits a second.
type amounts struct {
	units             int64
	memory, bandwidth uint64
}

// server is something that serves a backlog: a node, or a key of a quota.
type server struct {
	node  state.NodeID
	free  amounts
	whole int64 // in all: cores, GPUs or units of a quota
	// gpus are the free ones of so many.
	gpus  state.GPUSet
	count uint32
	// lone: one that needs more than there are units is served when nothing is in use.
	lone bool
	// reserved is the action that the server is reserved for.
	reserved state.ActionID
}

// holder gives back what it holds of a server when it ends, or at the end of its window.
type holder struct {
	server int
	holds  amounts
	gpus   state.GPUSet
	ends   times
	// ended: it has, and what is known is when its window does.
	ended bool
}

// waiter is an action in a backlog.
type waiter struct {
	id      state.ActionID
	server  int // that it is pinned to; -1: any
	needs   amounts
	gpus    uint32
	lasts   times
	blocked bypasses
}

// bypasses is how often younger actions started before one, and since when.
type bypasses struct {
	count uint32
	since int64 // from now; negative: it was before
}

// backlog is the actions that wait for the same servers, oldest first, and what the servers
// are busy with. It is list scheduling: whenever something ends, those that fit start, in
// their order.
type backlog struct {
	servers []server
	holders []holder
	waiters []waiter
	// strict: nothing starts before an older one has. Otherwise that is bounded as in the
	// settings.
	strict   bool
	settings *state.Settings
	// quota that actions wait for; nil: for a node.
	quota *state.Quota
	now   int64
	// typical is what those on GPUs have.
	typical typical
	// parts are the queues that the waiters are from.
	parts  []part
	starts [draws][]int64
	// busy is for how long one waiter keeps all servers busy, on average.
	busy times
}

// part is what was looked at of a queue: every step-th action, so many of them.
type part struct {
	ranks      state.Ranks
	step, seen int
	cut        bool // there are more
}

// event is the end of a holder, or of a waiter that has started.
type event struct {
	at int64
	// of is the number of the waiter, or behind all of these that of the holder.
	of int
}

// play follows each course of events until all that wait have started.
func (l *backlog) play() {
	slices.SortStableFunc(l.waiters, func(a, b waiter) int { return cmp.Compare(a.id, b.id) })
	p := course{
		backlog: l, servers: make([]server, len(l.servers)), events: make(eventHeap, 0, len(l.holders)+len(l.waiters)),
		served: make([]where, len(l.waiters)),
	}
	starts := make([]int64, draws*len(l.waiters))
	for k := range l.starts {
		l.starts[k] = starts[k*len(l.waiters) : (k+1)*len(l.waiters)]
		p.play(k)
	}
	l.measure()
}

// course is one of the courses of events.
type course struct {
	*backlog
	k       int
	servers []server
	starts  []int64 // never: it has not
	served  []where
	events  eventHeap
	first   int // no older one waits
	passed  bypasses
	at      int64
}

// where is what a waiter was given.
type where struct {
	server int
	gpus   state.GPUSet
}

func (p *course) play(k int) {
	p.k, p.starts, p.events, p.first, p.at = k, p.backlog.starts[k], p.events[:0], 0, 0
	copy(p.servers, p.backlog.servers)
	for i := range p.starts {
		p.starts[i] = never
	}
	for i := range p.holders {
		h := &p.holders[i]
		p.push(h.ends[k], len(p.waiters)+i, h.ended)
	}
	if len(p.waiters) > 0 {
		p.passed = p.waiters[0].blocked
	}
	p.startAll()
	for p.first < len(p.waiters) && len(p.events) > 0 {
		for p.at = p.events[0].at; len(p.events) > 0 && p.events[0].at == p.at; {
			p.giveBack(p.events.pop().of)
		}
		p.startAll()
	}
}

func (p *course) giveBack(of int) {
	var (
		w    where
		what amounts
	)
	if of < len(p.waiters) {
		w, what = p.served[of], p.waiters[of].needs
	} else {
		h := &p.holders[of-len(p.waiters)]
		w, what = where{h.server, h.gpus}, h.holds
	}
	s := &p.servers[w.server]
	s.free.units += what.units
	s.free.memory += what.memory
	s.free.bandwidth += what.bandwidth
	s.gpus |= w.gpus
}

// push has something come back, if it is known when.
func (p *course) push(at int64, of int, ended bool) {
	if at >= never {
		return
	}
	if p.quota != nil && !ended {
		at = p.quota.ReturnsAt(p.now+at) - p.now
	}
	p.events.push(event{at, of})
}

// startAll starts what fits, as a pass of the scheduler would.
func (p *course) startAll() {
	unfit, last := 0, (*waiter)(nil)
	for i := p.first; i < len(p.waiters) && unfit < LookAhead; i++ {
		if p.starts[i] < never {
			continue
		}
		w := &p.waiters[i]
		if last != nil && last.alike(w) {
			unfit++
			continue
		}
		s := p.serverFor(w)
		switch {
		case s >= 0 && (unfit == 0 || p.mayPass()):
			p.start(i, s)
		case p.strict || s >= 0:
			return
		default:
			unfit, last = unfit+1, w
		}
	}
}

// alike reports whether another, younger action does not fit where this one does not.
func (w *waiter) alike(o *waiter) bool {
	return w.server == o.server && w.needs == o.needs && w.gpus == o.gpus
}

// mayPass counts a start before the first that waits, if there may be one more.
func (p *course) mayPass() bool {
	b := &p.passed
	if b.count > 0 && (b.count >= p.settings.BypassMax || p.at-b.since >= p.settings.BypassNSMax) {
		return false
	}
	if b.count == 0 {
		b.since = p.at
	}
	b.count++
	return true
}

func (p *course) start(i, server int) {
	w, s := &p.waiters[i], &p.servers[server]
	p.starts[i], p.served[i] = p.at, where{server: server}
	s.free.units -= w.needs.units
	s.free.memory -= w.needs.memory
	s.free.bandwidth -= w.needs.bandwidth
	if w.gpus > 0 {
		p.served[i].gpus, _ = s.chunk(w.gpus)
		s.gpus &^= p.served[i].gpus
	}
	if w.lasts[p.k] < never {
		p.push(p.at+w.lasts[p.k], i, false)
	}
	if s.reserved == w.id {
		s.reserved = 0
	}
	for p.first < len(p.starts) && p.starts[p.first] < never {
		if p.first++; p.first < len(p.waiters) {
			p.passed = p.waiters[p.first].blocked
		}
	}
}

// serverFor returns the server on which an action could start now: the one with most free
// units; -1 if there is none.
func (p *course) serverFor(w *waiter) int {
	if w.server >= 0 {
		if p.servers[w.server].fits(w) {
			return w.server
		}
		return -1
	}
	best := -1
	for i := range p.servers {
		if s := &p.servers[i]; s.fits(w) && (best < 0 || s.free.units > p.servers[best].free.units) {
			best = i
		}
	}
	return best
}

func (s *server) fits(w *waiter) bool {
	if s.reserved != 0 && s.reserved < w.id {
		return false
	}
	if s.free.units < w.needs.units && !(s.lone && s.free.units == s.whole) {
		return false
	}
	if s.free.memory < w.needs.memory || s.free.bandwidth < w.needs.bandwidth {
		return false
	}
	_, ok := s.chunk(w.gpus)
	return ok
}

// chunk returns the first aligned chunk of free GPUs.
func (s *server) chunk(n uint32) (state.GPUSet, bool) {
	if n == 0 {
		return 0, true
	}
	if uint32(bits.OnesCount64(uint64(s.gpus))) < n {
		return 0, false
	}
	for first := uint32(0); first+n <= s.count; first += n {
		if c := (state.Chunk{First: first, Units: n}).GPUs(); c&^s.gpus == 0 {
			return c, true
		}
	}
	return 0, false
}

// start returns when an action starts, before which also unseen others do that were not
// looked at: they keep the servers busy for as long as those that were.
func (l *backlog) start(id state.ActionID, unseen int) (out times) {
	i, found := l.find(id)
	if !found {
		i-- // it starts with the one that stands for it
	}
	for k := range out {
		if i >= 0 {
			out[k] = min(never, l.starts[k][i]+min(l.more(k, unseen), never-l.starts[k][i]))
		}
	}
	return out
}

func (l *backlog) find(id state.ActionID) (int, bool) {
	return slices.BinarySearchFunc(l.waiters, id, func(w waiter, id state.ActionID) int { return cmp.Compare(w.id, id) })
}

// measure finds out for how long one waiter keeps all servers busy.
func (l *backlog) measure() {
	whole, n := int64(0), uint64(len(l.waiters))
	for i := range l.servers {
		whole += l.servers[i].whole
	}
	for k := range l.busy {
		busy := uint64(0)
		for i := range l.waiters {
			w := &l.waiters[i]
			if w.lasts[k] >= never || whole == 0 {
				l.busy = always(never)
				return
			}
			lasts := w.lasts[k]
			if l.quota != nil {
				lasts = l.quota.ReturnsAt(l.now+lasts) - l.now
			}
			busy += state.MulDiv(uint64(lasts), w.width(), n)
		}
		l.busy[k] = int64(min(never, busy/uint64(max(1, whole))))
	}
}

// more is for how long more actions keep the servers busy.
func (l *backlog) more(k, actions int) int64 {
	return int64(min(never, state.MulDiv(uint64(l.busy[k]), uint64(actions), 1)))
}

// width is how much an action takes of what servers have most to do with.
func (w *waiter) width() uint64 {
	if w.gpus > 0 {
		return uint64(w.gpus)
	}
	return uint64(w.needs.units)
}

// unknown counts those who are not known to end: of what runs, and of what waits before an
// action. All of them are in of.
func (l *backlog) unknown(id state.ActionID) (unknown, of int) {
	for i := range l.holders {
		if l.holders[i].ends[0] >= never {
			unknown++
		}
	}
	before, _ := l.find(id)
	for i := range before {
		if l.waiters[i].lasts[0] >= never {
			unknown++
		}
	}
	return unknown, len(l.holders) + before
}

// eventHeap has the next event first.
type eventHeap []event

func (h *eventHeap) push(e event) {
	*h = append(*h, e)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if s[up].at <= s[i].at {
			break
		}
		s[up], s[i] = s[i], s[up]
		i = up
	}
}

func (h *eventHeap) pop() event {
	s := *h
	top, n := s[0], len(s)-1
	s[0] = s[n]
	s = s[:n]
	*h = s
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < n && s[down].at < s[least].at {
				least = down
			}
		}
		if least == i {
			return top
		}
		s[least], s[i] = s[i], s[least]
		i = least
	}
}
