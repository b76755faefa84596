package model_test

import (
	"slices"

	"rota/internal/engine/model"
)

// naive is the model token by token and without any cleverness: the oracle of the tests. It shares
// nothing with the model but its types.
type naive struct {
	c       model.Config
	now     int64         // ps
	running []*generation // in the order of admission
	waiting []*generation
	cache   []cached // the least recently used first
	arrived int
	events  []model.Event
	version uint64

	paused, draining, retracting, asleep bool

	op      *command
	opBegun bool
	opEnd   int64
}

type cached struct {
	key    uint64
	tokens int64
}

type generation struct {
	model.Request
	arrival  int
	has      int64 // tokens generated
	goal     int64 // tokens that the prompt has, with what was generated before
	computed int64 // of these
	since    int64 // tokens generated since it was admitted
	canceled bool
}

// command is what is asked of an engine.
type command struct {
	at      int64 // ns
	what    string
	request model.Request
	id      uint64
	value   int64
	mode    model.PauseMode
}

// run carries out commands, which are in the order of time, and returns what happened.
func (n *naive) run(commands []command) []model.Event {
	for {
		n.boundary()
		next := int64(-1)
		if stepping := len(n.running) > 0 && !n.paused && !n.asleep && n.op == nil; stepping {
			next = n.now + n.step()
			commands = n.obey(commands, next)
			n.now = next
			n.work()
			continue
		}
		if n.op != nil {
			next = n.opEnd
		}
		if len(commands) > 0 && (next < 0 || commands[0].at*1000 < next) {
			next = commands[0].at * 1000
		}
		if next < 0 {
			return n.events
		}
		n.now = max(n.now, next)
		commands = n.obey(commands, n.now)
	}
}

func (n *naive) obey(commands []command, until int64) []command {
	for len(commands) > 0 && commands[0].at*1000 <= until {
		n.do(commands[0])
		commands = commands[1:]
	}
	return commands
}

func (n *naive) do(c command) {
	switch c.what {
	case "submit":
		n.arrived++
		n.waiting = append(n.waiting, &generation{Request: c.request, arrival: n.arrived})
	case "cancel":
		n.cancel(c.at, c.id)
	case "priority":
		for _, r := range slices.Concat(n.running, n.waiting) {
			if r.ID == c.id {
				r.Priority = c.value
			}
		}
	case "pause":
		n.paused, n.draining, n.retracting = c.mode != model.PauseWait, c.mode == model.PauseWait, c.mode == model.PauseRetract
		if c.mode == model.PauseAbort {
			all := slices.Concat(n.running, n.waiting)
			slices.SortFunc(all, func(a, b *generation) int { return a.arrival - b.arrival })
			for _, r := range all {
				n.cancel(c.at, r.ID)
			}
		}
	case "resume":
		n.paused, n.draining, n.retracting = false, false, false
	default: // sleep, wake, update
		if n.op == nil {
			n.op, n.opBegun, n.opEnd = &c, false, n.now
		}
	}
}

func (n *naive) cancel(at int64, id uint64) {
	for _, r := range n.running {
		if r.ID == id {
			r.canceled = true
		}
	}
	for i, r := range n.waiting {
		if r.ID == id {
			n.events = append(n.events, model.Event{AtNS: at, Kind: model.Canceled, ID: id, Tokens: r.has, Version: n.version})
			n.waiting = slices.Delete(n.waiting, i, i+1)
			n.remove(r.own())
			return
		}
	}
}

// own is the key that only this request has, if it has no other.
func (r *generation) own() uint64 { return 1<<63 | r.ID }

func (r *generation) key() uint64 {
	if r.Key == 0 {
		return r.own()
	}
	return r.Key
}

func (r *generation) tokens() int64 { return r.goal + r.since }

func (r *generation) decodes() bool { return r.computed == r.goal }

// step is how long the next step takes.
func (n *naive) step() int64 {
	p := n.c.Profile
	budget, batch, sum := n.c.ChunkTokens, int64(0), int64(0)
	for _, r := range n.running {
		switch {
		case r.decodes():
			batch++
			sum += r.tokens() * p.KVReadPS
		case budget > 0:
			batch++
			for i := range min(budget, r.goal-r.computed) {
				sum += p.PrefillTokenPS + (r.computed+i)*p.PrefillPairPS
				budget--
			}
		}
	}
	return sum + interpolate(p.Batch, batch)
}

func interpolate(points []model.Point, batch int64) int64 {
	if batch <= points[0].Batch || len(points) == 1 {
		return points[0].StepPS
	}
	for i := 1; ; i++ {
		a, b := points[i-1], points[i]
		if batch <= b.Batch || i == len(points)-1 {
			return a.StepPS + (b.StepPS-a.StepPS)*(batch-a.Batch)/(b.Batch-a.Batch)
		}
	}
}

// work is what a step does.
func (n *naive) work() {
	budget := n.c.ChunkTokens
	for _, r := range n.running {
		if r.decodes() {
			r.since++
			r.has++
			continue
		}
		tokens := min(budget, r.goal-r.computed)
		budget -= tokens
		r.computed += tokens
		if tokens > 0 && r.decodes() {
			r.since++
			r.has++
			n.tell(model.FirstToken, r, 0)
			if r.Parent != 0 && r.Parent != r.key() && n.size(r.Parent) < min(r.ParentTokens, r.Prompt) {
				n.remove(r.Parent)
				n.cache = append(n.cache, cached{r.Parent, min(r.ParentTokens, r.Prompt)})
			}
		}
	}
	n.evict()
}

func (n *naive) boundary() {
	order := slices.Clone(n.running)
	slices.SortFunc(order, func(a, b *generation) int { return a.arrival - b.arrival })
	for _, r := range order {
		if r.decodes() && r.has == r.Output {
			n.tell(model.Finished, r, 0)
			n.end(r)
		}
	}
	for _, r := range order {
		if r.canceled && slices.Contains(n.running, r) {
			n.tell(model.Canceled, r, 0)
			n.end(r)
		}
	}
	if n.retracting {
		n.retract(order)
	}
	n.evict()
	if n.operate(order) || n.paused || n.asleep {
		return
	}
	relieved := false
	for n.kv()+int64(len(n.running)) > n.c.KVTokens {
		n.preempt(n.lowest(), n.c.Preemption == model.PreemptKeep)
		relieved = true
	}
	for !relieved && !n.draining && n.admit() {
	}
	n.evict()
}

func (n *naive) operate(order []*generation) bool {
	if n.op == nil {
		return false
	}
	p := n.c.Profile
	takes := map[string]int64{"sleep": p.SleepNS, "wake": p.WakeNS, "update": p.UpdateNS}[n.op.what] * 1000
	if !n.opBegun {
		n.opBegun, n.opEnd = true, n.now+takes
		if n.op.what == "sleep" {
			n.retract(order)
			n.cache = nil
		}
	}
	if n.now < n.opEnd {
		return true
	}
	kind := model.Updated
	switch n.op.what {
	case "update":
		n.version = uint64(n.op.value)
		n.cache = nil
	case "sleep":
		kind, n.asleep = model.Asleep, true
	case "wake":
		kind, n.asleep = model.Awake, false
	}
	n.op = nil
	n.tell(kind, &generation{}, 0)
	return false
}

// admit admits the first of the queue or makes room for it, and reports whether it did anything.
func (n *naive) admit() bool {
	var first *generation
	for _, r := range n.waiting {
		if first == nil || r.Priority > first.Priority || r.Priority == first.Priority && r.arrival < first.arrival {
			first = r
		}
	}
	if first == nil {
		return false
	}
	batch := int64(len(n.running))
	if batch < int64(n.c.Slots) && n.kv()+first.Prompt+first.has+batch+1 <= n.c.KVTokens {
		n.start(first)
		return true
	}
	if lowest := n.lowest(); n.c.Preemption != model.PreemptForMemory && lowest != nil && lowest.Priority < first.Priority {
		n.preempt(lowest, n.c.Preemption == model.PreemptKeep)
		return true
	}
	return false
}

func (n *naive) start(r *generation) {
	hit := n.reach(r.key())
	if r.Match > 0 && r.has == 0 {
		hit = min(hit, r.Match)
	}
	if r.Parent != 0 {
		hit = max(hit, min(n.reach(r.Parent), r.ParentTokens, r.Prompt))
	}
	n.remove(r.key())
	if tokens := n.size(r.Parent); tokens > 0 {
		n.remove(r.Parent)
		n.cache = append(n.cache, cached{r.Parent, tokens})
	}
	r.goal, r.since = r.Prompt+r.has, 0
	r.computed = min(hit, r.goal-1)
	n.waiting = slices.DeleteFunc(n.waiting, func(w *generation) bool { return w == r })
	n.running = append(n.running, r)
	n.tell(model.Started, r, r.computed)
}

// reach is how much of a key's tokens is computed.
func (n *naive) reach(key uint64) int64 {
	most := n.size(key)
	for _, other := range n.running {
		if other.key() == key && other.decodes() {
			most = max(most, other.Prompt)
		}
	}
	return most
}

func (n *naive) lowest() (lowest *generation) {
	for _, r := range n.running {
		if lowest == nil || r.Priority < lowest.Priority || r.Priority == lowest.Priority && r.arrival > lowest.arrival {
			lowest = r
		}
	}
	return lowest
}

func (n *naive) retract(order []*generation) {
	for _, r := range order {
		if slices.Contains(n.running, r) {
			n.preempt(r, false)
		}
	}
}

func (n *naive) preempt(r *generation, keep bool) {
	n.running = slices.DeleteFunc(n.running, func(o *generation) bool { return o == r })
	if keep {
		n.keep(r)
	}
	n.tell(model.Preempted, r, 0)
	n.waiting = append(n.waiting, r)
}

func (n *naive) end(r *generation) {
	n.running = slices.DeleteFunc(n.running, func(o *generation) bool { return o == r })
	n.keep(r)
	n.remove(r.own())
}

func (n *naive) keep(r *generation) {
	if tokens := r.computed + r.since; tokens > n.size(r.key()) {
		n.remove(r.key())
		n.cache = append(n.cache, cached{r.key(), tokens})
	}
}

func (n *naive) kv() (sum int64) {
	for _, r := range n.running {
		sum += r.tokens()
	}
	return sum
}

func (n *naive) size(key uint64) int64 {
	for _, c := range n.cache {
		if c.key == key {
			return c.tokens
		}
	}
	return 0
}

func (n *naive) remove(key uint64) {
	n.cache = slices.DeleteFunc(n.cache, func(c cached) bool { return c.key == key })
}

// evict evicts tokens one by one.
func (n *naive) evict() {
	sum := n.kv()
	for _, c := range n.cache {
		sum += c.tokens
	}
	for ; sum > n.c.KVTokens && len(n.cache) > 0; sum-- {
		if n.cache[0].tokens--; n.cache[0].tokens == 0 {
			n.cache = n.cache[1:]
		}
	}
}

func (n *naive) tell(kind model.Kind, r *generation, hit int64) {
	n.events = append(n.events, model.Event{AtNS: (n.now + 999) / 1000, Kind: kind, ID: r.ID, Tokens: r.has, Cached: hit, Version: n.version})
}
