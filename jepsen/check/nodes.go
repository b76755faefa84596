package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"rota/fsm/state"
	"rota/jepsen/history"
)

// cores: no core of a node has two users at once, and each execution has the
// cores that it was granted, or was to have later.
func cores(e *evidence, f *findings) {
	e.whole(f)
	users := make(map[place][]use)
	for _, x := range e.Executions {
		g, known := e.grantOf(x)
		if known && len(x.Cores) > 0 {
			ranWhereGranted(x, g, f)
		}
		for _, s := range e.seen(x) {
			u := use{x: x, from: s.From, until: s.Until, certain: s.Until, seen: len(x.Seen) > 0}
			if !u.seen {
				u.certain = min(u.until, aliveAt(x))
			}
			for _, core := range s.Cores {
				users[place{x.Node, core}] = append(users[place{x.Node, core}], u)
			}
		}
		if len(e.coresOf(x)) > 0 {
			f.checked++
		}
	}
	oneUser("core", users, f)
}

// ranWhereGranted: one that keeps its cores has those that it was granted. One that follows
// has never run on one that it never had, nor on none.
func ranWhereGranted(x history.Execution, g grant, f *findings) {
	if !g.follows {
		if !slices.Equal(x.Cores, g.cores) {
			f.add(describeExecutions(x), "action %d ran on cores %v and was granted %v", x.Action, x.Cores, g.cores)
		}
		return
	}
	for _, s := range append([]history.Seen{{Cores: x.Cores}}, x.Seen...) {
		stray := slices.ContainsFunc(s.Cores, func(core int) bool { return !slices.Contains(g.any, core) })
		if stray || len(s.Cores) == 0 {
			f.add(describeExecutions(x), "action %d ran on cores %v and was granted none but %v", x.Action, s.Cores, g.any)
		}
	}
}

// mayFollow: the cores of an execution may have changed. Of what the log does not have any
// more, that is what can use different numbers of them.
func (e *evidence) mayFollow(x history.Execution) bool {
	if g, known := e.grantOf(x); known {
		return g.follows
	}
	return len(x.Asked.Cores) > 1
}

// use is a time in which an execution used something: certainly until certain, and until
// by when its end was recorded, which may be late. No start is recorded before an end that it
// follows. But seen is what an execution or the holder of a turn says of itself: nobody keeps
// that in order with the ends of others.
type use struct {
	x                    history.Execution
	turn                 *history.Holding // whose use it is; nil: that of x
	from, until, certain int64
	seen                 bool
}

// goesOn reports whether a use was not over when another began.
func (u use) goesOn(other use) bool {
	if other.seen {
		return other.from < u.certain
	}
	return other.from < u.until
}

// seen is when an execution certainly used which cores: all the time the same, unless they
// may have changed.
func (e *evidence) seen(x history.Execution) []history.Seen {
	if len(x.Seen) > 0 {
		return x.Seen
	}
	if e.mayFollow(x) {
		return []history.Seen{{Cores: x.Cores, From: x.Start, Until: x.Start + 1}} // it was gone before it could look again
	}
	return []history.Seen{{Cores: e.coresOf(x), From: x.Start, Until: until(x)}}
}

// coresOf are the cores that an execution used. On nodes that do not pin, where
// cores are only counted, they are those that the log grants it.
func (e *evidence) coresOf(x history.Execution) []int {
	if g, known := e.grantOf(x); known && len(x.Cores) == 0 {
		return g.cores
	}
	return x.Cores
}

// grantOf is what the log grants to an execution.
func (e *evidence) grantOf(x history.Execution) (grant, bool) {
	g, known := e.truth().grants[token{x.Action, x.Attempt}]
	return g, known
}

// gpus: no GPU of a node has two users at once, neither actions nor turns that have it as a
// member of their group. An execution has those that it was
// granted, and they are a chunk: a power of two of them, one after the other, that
// begin at a multiple of their number.
func gpus(e *evidence, f *findings) {
	t, _ := e.whole(f)
	users := make(map[place][]use)
	for _, x := range e.Executions {
		if g, known := e.grantOf(x); known && !slices.Equal(x.GPUs, g.gpus) {
			f.add(describeExecutions(x), "action %d ran on GPUs %v and was granted %v", x.Action, x.GPUs, g.gpus)
		}
		if len(x.GPUs) == 0 {
			continue
		}
		f.checked++
		chunk := state.Chunk{First: uint32(x.GPUs[0]), Units: uint32(len(x.GPUs))}
		if last := x.GPUs[len(x.GPUs)-1]; !chunk.Aligned(state.GPUsPerNodeMax) || last != x.GPUs[0]+len(x.GPUs)-1 {
			f.add(describeExecutions(x), "action %d ran on GPUs %v, which are no chunk", x.Action, x.GPUs)
		}
		for _, gpu := range x.GPUs {
			users[place{x.Node, gpu}] = append(users[place{x.Node, gpu}], use{x: x, from: x.Start, until: until(x), certain: aliveAt(x)})
		}
	}
	for i := range e.Holdings {
		h := &e.Holdings[i]
		for _, p := range t.turns[h.Turn].gpus {
			f.checked++
			users[p] = append(users[p], use{turn: h, from: h.Start, until: h.End, certain: h.End, seen: true})
		}
	}
	oneUser("GPU", users, f)
}

// widths: the number of cores and of GPUs of an execution is one that its action
// can use, and what it was told is what it has. Only those that could have been
// given another number count as checked.
func widths(e *evidence, f *findings) {
	for _, x := range e.Executions {
		cores := x.Width
		if slices.Equal(x.Asked.Cores, []int{0}) {
			cores-- // it is told 1, as it is to work with one
		}
		used := e.coresOf(x)
		switch {
		case e.mayFollow(x) && len(used) > 0: // it was told of the most that it may get
			if cores < len(used) || len(x.Asked.Cores) > 0 && cores > slices.Max(x.Asked.Cores) {
				f.add(describeExecutions(x), "action %d can use %v cores, began with %d and was told that it may get %d", x.Action, x.Asked.Cores, len(used), cores)
			}
			cores = len(used)
		case len(used) > 0 && len(used) != cores:
			f.add(describeExecutions(x), "action %d ran on cores %v and was told that it has %d", x.Action, used, cores)
		}
		width("cores", cores, x.Asked.Cores, x, f)
		if len(x.GPUs)+len(x.Asked.GPUs) > 0 {
			width("GPUs", len(x.GPUs), x.Asked.GPUs, x, f)
		}
	}
}

func width(what string, given int, allowed []int, x history.Execution, f *findings) {
	if len(allowed) > 1 {
		f.checked++
	}
	if !slices.Contains(allowed, given) {
		f.add(describeExecutions(x), "action %d ran with %d %s and can use %v", x.Action, given, what, allowed)
	}
}

// place is a core or a GPU of a node.
type place struct {
	node   string
	number int
}

// oneUser finds those who used the same thing at once.
func oneUser(what string, users map[place][]use, f *findings) {
	order := func(a, b place) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.number, b.number)) }
	for _, p := range slices.SortedFunc(maps.Keys(users), order) {
		list := users[p]
		slices.SortStableFunc(list, func(a, b use) int { return cmp.Compare(a.from, b.from) })
		longest, surest := list[0], list[0] // who has it longest
		for _, u := range list[1:] {
			for _, user := range []use{longest, surest} {
				if user.goesOn(u) && !u.same(user) {
					f.add([]string{user.describe(), u.describe()}, "%s has two users at %s", fmt.Sprintf("%s %d of %s", what, p.number, p.node), at(u.from))
					break
				}
			}
			if u.until > longest.until {
				longest = u
			}
			if u.certain > surest.certain {
				surest = u
			}
		}
	}
}

// same reports whether both are of one execution or of one turn.
func (u use) same(o use) bool {
	return u.turn == o.turn && u.x.Action == o.x.Action && u.x.Attempt == o.x.Attempt && u.x.Start == o.x.Start
}

func (u use) describe() string {
	if u.turn != nil {
		return describeHolding(*u.turn)
	}
	return describeExecution(u.x)
}
