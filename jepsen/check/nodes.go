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
// cores that it was granted.
func cores(e *evidence, f *findings) {
	users := make(map[place][]history.Execution)
	for _, x := range e.Executions {
		g, known := e.grantOf(x)
		if known && len(x.Cores) > 0 && !slices.Equal(x.Cores, g.cores) {
			f.add(describeExecutions(x), "action %d ran on cores %v and was granted %v", x.Action, x.Cores, g.cores)
		}
		used := e.coresOf(x)
		for _, core := range used {
			users[place{x.Node, core}] = append(users[place{x.Node, core}], x)
		}
		if len(used) > 0 {
			f.checked++
		}
	}
	oneUser("core", users, f)
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

// gpus: no GPU of a node has two users at once. An execution has those that it was
// granted, and they are a chunk: a power of two of them, one after the other, that
// begin at a multiple of their number.
func gpus(e *evidence, f *findings) {
	users := make(map[place][]history.Execution)
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
			users[place{x.Node, gpu}] = append(users[place{x.Node, gpu}], x)
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
		if used := e.coresOf(x); len(used) > 0 && len(used) != cores {
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
func oneUser(what string, users map[place][]history.Execution, f *findings) {
	order := func(a, b place) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.number, b.number)) }
	for _, p := range slices.SortedFunc(maps.Keys(users), order) {
		list := byStart(users[p])
		user := list[0] // who has it longest
		for _, x := range list[1:] {
			if x.Start < until(user) {
				f.add(describeExecutions(user, x), "%s has two users at %s", fmt.Sprintf("%s %d of %s", what, p.number, p.node), at(x.Start))
			}
			if until(x) > until(user) {
				user = x
			}
		}
	}
}

func byStart(list []history.Execution) []history.Execution {
	slices.SortStableFunc(list, func(a, b history.Execution) int { return cmp.Compare(a.Start, b.Start) })
	return list
}
