package sched

import (
	"cmp"
	"fmt"
	"slices"

	"rota/fsm/state"
	"rota/sched/place"
	"rota/sched/place/chunk"
)

// Given is what an action was given of GPUs; Node is 0 if it waits.
type Given struct {
	Node    state.NodeID
	Chunk   state.Chunk
	Hit     bool
	Evicted []state.Resident // on Node
}

// Spared is a model that stays resident, and why.
type Spared struct {
	Node   state.NodeID
	Model  state.Resident
	Reason string
}

// ExplainSpared says why models stay on GPUs of the class that an action asks for, in the state
// before the action was given something; its own model too, where it is not given that. Those
// that are cheapest to evict come first, at most so many; more says that there are others.
func ExplainSpared(v *state.State, a *state.Action, given Given, most int) (out []Spared, more bool) {
	s := newSparing(v, a, given)
	nodes := gpuNodes
	v.NodesByFreeGPUs(a.Queue(), func(n *state.Node) bool {
		for _, m := range v.ModelsOn(n.ID) {
			if !s.isGiven(n.ID, &m) && !s.isEvicted(n.ID, &m) {
				out = append(out, Spared{Node: n.ID, Model: m})
			}
		}
		nodes--
		return nodes > 0
	})
	slices.SortStableFunc(out, func(a, b Spared) int {
		return cmp.Or(cmp.Compare(a.Model.Worth, b.Model.Worth), cmp.Compare(a.Model.UsedAt, b.Model.UsedAt))
	})
	if more = len(out) > most; more {
		out = out[:most]
	}
	for i := range out {
		out[i].Reason = s.reason(v.Node(out[i].Node), &out[i].Model)
	}
	return out, more
}

// sparing knows what the scheduler compares for an action.
type sparing struct {
	view   *state.State
	action *state.Action
	given  Given
	units  uint32
	// gap: the action was given GPUs of a node group.
	gap  bool
	all  []chunk.Alternative
	best *chunk.Alternative // the one that was chosen, nil if none was
}

func newSparing(v *state.State, a *state.Action, given Given) *sparing {
	if v.Class(a.Class) == nil { // it comes into being with the action
		classless := *a
		classless.Class = 0
		a = &classless
	}
	s := &sparing{view: v, action: a, given: given, units: a.GPUs().Degrees[0]}
	p := newGPUPass(v, a.Queue())
	p.refresh()
	if v.Meta().Level >= levelExploring {
		p.nodes.await(a.GPUs().Model, 0) // by cost, as the newest action chooses: nothing waits behind it
	}
	from := gpuView{fleet: p.nodes, action: a, avoid: p.nodes.hasFailed(a.GPUs().Model)}
	if n := v.Node(given.Node); n != nil {
		s.units = given.Chunk.Units
		if s.gap = v.GroupGPUs(n)&given.Chunk.GPUs() != 0; s.gap {
			from.until = p.nodes.endsBy(p, a, s.units)
		}
	}
	s.all = chunk.Alternatives(from, p.nodes.request(v, a.GPUs(), s.units))
	for i := range s.all {
		if c := &s.all[i]; state.NodeID(c.Node) == given.Node && gpusOf(c.Chunk) == given.Chunk.GPUs() {
			s.best = c
		}
	}
	return s
}

func gpusOf(c chunk.Chunk) state.GPUSet { return state.GPUSet(c.GPUs()) }

// isGiven reports whether the action uses a resident.
func (s *sparing) isGiven(id state.NodeID, m *state.Resident) bool {
	return id == s.given.Node && s.given.Hit && m.Model == s.action.GPUs().Model && m.Chunk == s.given.Chunk
}

func (s *sparing) isEvicted(id state.NodeID, m *state.Resident) bool {
	return id == s.given.Node && slices.ContainsFunc(s.given.Evicted, func(e state.Resident) bool { return e.Same(m) })
}

// reason says why a model stays on a node.
func (s *sparing) reason(n *state.Node, m *state.Resident) string {
	switch own := m.Chunk.GPUs(); {
	case own&n.GPUs.Free == 0:
		return s.heldBy(n, m)
	case s.given.Hit:
		return "nothing has to leave: the model is resident where the action starts"
	case n.KeptFrom(s.action.ID):
		return fmt.Sprintf("node %s is reserved for action %d", n.Name, n.ReservedFor)
	case n.GPUs.Memory < s.action.GPUs().Memory:
		return fmt.Sprintf("the GPUs of node %s have less memory than the model takes", n.Name)
	case !place.Fits(n, s.action):
		return fmt.Sprintf("node %s lacks %s", n.Name, besides(s.action))
	case !s.gap && own&n.GPUs.Free&^s.view.GroupGPUs(n) == 0:
		return "its GPUs belong to a node group: other GPUs come first, and the action must end before the next reservation"
	}
	return s.comparison(n, m)
}

// heldBy names what has the GPUs of a model.
func (s *sparing) heldBy(n *state.Node, m *state.Resident) (text string) {
	if m.Chunk.GPUs()&n.Withheld != 0 {
		return "a turn has its GPUs"
	}
	s.view.Attempts(n.ID, func(t *state.Attempt) bool {
		switch {
		case t.Chunk.GPUs()&m.Chunk.GPUs() == 0:
			return true
		case t.Chunk == m.Chunk && s.view.Action(t.Action).GPUs().Model == m.Model:
			text = fmt.Sprintf("action %d uses it", t.Action)
		default:
			text = fmt.Sprintf("action %d has its GPUs", t.Action)
		}
		return false
	})
	return text
}

// comparison says why no chunk was chosen on which the model would be evicted.
func (s *sparing) comparison(n *state.Node, m *state.Resident) string {
	there, evicts := false, (*chunk.Alternative)(nil)
	for i := range s.all { // the best first
		c := &s.all[i]
		if state.NodeID(c.Node) != n.ID || gpusOf(c.Chunk)&m.Chunk.GPUs() == 0 {
			continue
		}
		there = true
		if evicts == nil && slices.ContainsFunc(c.Evict, func(r chunk.Resident) bool {
			return gpusOf(r.Chunk) == m.Chunk.GPUs() && r.Used == m.UsedAt && r.Worth == m.Worth
		}) {
			evicts = c
		}
	}
	switch best := s.best; {
	case !there:
		return fmt.Sprintf("no free chunk of %d GPUs that may be given to the action has its GPUs", s.units)
	case evicts == nil:
		return "there is room for both"
	case best == nil:
		return "the action waits"
	case len(best.Evict) == 0:
		return "another chunk has room without an eviction"
	case evicts.Cost > best.Cost:
		return fmt.Sprintf("evicting it costs more: %s instead of %s", worthText(evicts.Cost), worthText(best.Cost))
	}
	return "evicting it costs the same, and the other chunk is the smaller one, or its models were used longer ago"
}

// worthText says what an eviction costs; a worth is in microseconds.
func worthText(worth uint64) string {
	return fmt.Sprintf("%d.%03d s", worth/1_000_000, worth/1000%1000)
}
