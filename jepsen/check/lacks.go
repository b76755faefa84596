package check

import (
	"slices"
	"strings"

	"rota/fsm/state"
	"rota/jepsen/history"
)

// span is a time in which something certainly was so.
type span struct{ from, until int64 }

// toldOfLosses: the holder of a turn hears of the members that its group lacks, and of no
// others. A renewal says so, which a holder makes at least once in a lease; else the turn is
// not its own any more.
func toldOfLosses(e *evidence, f *findings) {
	t, whole := e.whole(f)
	if !whole {
		return
	}
	losses := make(map[string][]span)
	for _, node := range e.Agents {
		losses[node] = append(e.drained(node), e.down(node)...)
	}
	tellMax := e.LeaseNS + int64(observationLag)
	for _, h := range e.Holdings {
		g := t.turns[h.Turn]
		for _, node := range e.Agents {
			told := slices.IndexFunc(h.Lacks, func(l history.Lack) bool { return namesNode(l.Text, node) })
			if told >= 0 && !g.lacked[node] {
				f.add(describeHoldings(h), "the holder of turn %d was told %q, and the group lacked nothing of %s", h.Turn, h.Lacks[told].Text, node)
			}
			if !slices.ContainsFunc(g.gpus, func(p place) bool { return p.node == node }) {
				continue
			}
			for _, lost := range losses[node] {
				from, until := max(lost.from, h.Start), min(lost.until, h.End)
				if until-from > tellMax && (told < 0 || h.Lacks[told].At > from+tellMax) {
					f.add(describeHoldings(h), "the holder of turn %d was not told by %s that its group lacks what is on %s, from %s on", h.Turn, at(from+tellMax), node, at(from))
					break
				}
			}
		}
	}
}

// namesNode reports whether a text that says what a group lacks names a node.
func namesNode(text, node string) bool { return strings.Contains(text, " "+node+":") }

// drained are times in which a node was certainly drained: from the answer to one who drained it
// until somebody else may have undone that.
func (e *evidence) drained(node string) (spans []span) {
	for _, op := range e.Ops {
		if op.Verb != history.Drain || op.Node != node || !op.Draining || op.Outcome != history.OK {
			continue
		}
		s := span{op.End, 1<<63 - 1}
		for _, undo := range e.Ops {
			if undo.Verb != history.Drain || undo.Node != node || undo.Draining || undo.Outcome == history.Fail {
				continue
			}
			if undo.Outcome == history.Unknown || undo.End >= op.Start { // it may come after the draining
				s.until = min(s.until, undo.Start)
			}
		}
		if s.from < s.until {
			spans = append(spans, s)
		}
	}
	return spans
}

// down are times in which a node was certainly lost: between two reads that say so, of the same
// incarnation.
func (e *evidence) down(node string) (spans []span) {
	var reads []history.Op
	for _, op := range e.Ops {
		if op.Verb == history.GetNode && op.Node == node && op.Outcome == history.OK && op.State == "DOWN" {
			reads = append(reads, op)
		}
	}
	for _, first := range reads {
		s := span{from: first.End}
		for _, last := range reads {
			if last.Incarnation == first.Incarnation {
				s.until = max(s.until, last.Start)
			}
		}
		if s.from < s.until {
			spans = append(spans, s)
		}
	}
	return spans
}

// learnLacks notes on which nodes a group lacks members while it has a turn.
func (g *turnGrant) learnLacks(group *state.NodeGroup) {
	for i := range group.Members.List {
		if m := &group.Members.List[i]; m.Lost != state.MemberThere {
			if g.lacked == nil {
				g.lacked = map[string]bool{}
			}
			g.lacked[m.Node] = true
		}
	}
}
