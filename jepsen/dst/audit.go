package dst

import (
	"cmp"
	"fmt"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/internal/sim"
	"rota/jepsen/late"
	"rota/jepsen/model"
	"rota/sched"
)

// Model is a second opinion on the state machine, see jepsen/model.
type Model interface {
	Step(index, term uint64, e *logv1.Entry, results []*logv1.Result, s *state.State) error
}

// audit checks every revision once, at the first server that has it, and keeps
// what the others are compared with.
type audit struct {
	w       *World
	model   Model
	late    *late.Watch
	every   uint64   // full checks are of each so many entries
	checked uint64   // index of the newest entry that was checked
	hashes  []uint64 // by index, from 1 on
	events  []state.Event
	level   state.Level // the active feature level
	// ended has the actions that were seen to end.
	ended map[uint64]state.ActionState
	// endedTurns likewise.
	endedTurns map[uint64]bool
}

func newAudit(w *World, o Options) *audit {
	a := &audit{w: w, late: late.New(), every: cmp.Or(o.CheckEvery, 16), ended: map[uint64]state.ActionState{}, endedTurns: map[uint64]bool{}}
	if o.Model != nil {
		a.model = o.Model()
	} else {
		m := model.New()
		m.Planted = w.panicked
		a.model = m
	}
	return a
}

// check looks at the state after an entry.
func (a *audit) check(e sim.Entry, results []*logv1.Result, s *state.State) {
	a.checked = e.Index
	a.hashes = append(a.hashes, s.Hash())
	a.w.mix(s.Hash())
	if e.Data == nil {
		return
	}
	if err := a.examine(e, results, s); err != nil {
		a.w.fail("state", "after entry %d: %v", e.Index, err)
	}
}

func (a *audit) examine(e sim.Entry, results []*logv1.Result, s *state.State) error {
	var entry logv1.Entry
	if err := entry.UnmarshalVT(e.Data); err != nil {
		return err
	}
	a.w.describe(e.Index, &entry, results)
	if err := a.model.Step(e.Index, e.Term, &entry, results, s); err != nil {
		return fmt.Errorf("the model disagrees: %w", err)
	}
	if err := a.late.Step(s); err != nil {
		return err
	}
	a.level = s.Meta().Level
	for i, c := range entry.Commands {
		a.w.witness.queuedHook(c.GetSubmitHook(), results[i])
		a.w.witness.handedOver(c.GetEndContextSwitch(), results[i])
		a.w.countOvertaken(c.GetExpireNode(), s)
	}
	a.w.witness.changesHands(s)
	if err := a.w.witness.gangsOf(s, uint64(len(a.events))); err != nil {
		return err
	}
	if err := a.w.witness.rewardsOf(s, &entry); err != nil {
		return err
	}
	check := s.CheckRows
	if e.Index%a.every == 0 {
		check = s.Check
	}
	if err := check(); err != nil {
		return fmt.Errorf("an invariant is broken: %w", err)
	}
	for rev := uint64(len(a.events)) + 1; rev <= s.Meta().Revision; rev++ {
		event, ok := s.Event(rev)
		if !ok {
			return fmt.Errorf("event %d was dropped by the entry that made it", rev)
		}
		a.events = append(a.events, event)
		if err := a.see(event); err != nil {
			return err
		}
	}
	return nil
}

// countOvertaken counts nodes that came back while their earlier life was being given up.
func (w *World) countOvertaken(c *logv1.ExpireNode, s *state.State) {
	if c == nil {
		return
	}
	if n := s.NodeByName(c.Name); n != nil && n.Incarnation > c.Incarnation {
		w.overtaken++
	}
}

// see follows the life of an action or a turn.
func (a *audit) see(e state.Event) error {
	if e.Kind == state.EventTurn && !state.TurnState(e.State).Live() {
		if a.endedTurns[e.Subject] {
			return fmt.Errorf("turn %d ends a second time, in state %d", e.Subject, e.State)
		}
		a.endedTurns[e.Subject] = true
	}
	if e.Kind != state.EventAction || !state.ActionState(e.State).Final() {
		return nil
	}
	if before, ok := a.ended[e.Subject]; ok {
		return fmt.Errorf("action %d ends a second time, as %d after %d", e.Subject, e.State, before)
	}
	a.ended[e.Subject] = state.ActionState(e.State)
	return a.w.witness.judge(e)
}

// compare holds a server's hash against that of the first server at the index.
func (a *audit) compare(server int, index, hash uint64) {
	if index == 0 || index > a.checked {
		return
	}
	if want := a.hashes[index-1]; hash != want {
		a.w.fail("hashes", "server %d has hash %016x at entry %d, the first to apply it had %016x", server, hash, index, want)
	}
}

// replay applies the whole log to a machine that has seen nothing, in the newest
// build.
func (a *audit) replay() error {
	fresh := sim.NewReplica(sim.ReplicaOptions{Voters: func() int { return a.w.config.servers }, Plant: a.w.plant, Deciders: func() []sched.Scheduler { return a.w.deciders }})
	for index := uint64(1); index <= a.w.log.Last(); index++ {
		if _, err := fresh.Apply(a.w.log.At(index)); err != nil {
			return fmt.Errorf("replay from nothing: %w", err)
		}
		if fresh.Hash() != a.hashes[index-1] {
			return fmt.Errorf("replay from nothing: at entry %d the hash is %016x, it was %016x", index, fresh.Hash(), a.hashes[index-1])
		}
	}
	return nil
}

// watcher is a client that follows events, and goes on somewhere else or from an
// earlier one now and then.
type watcher struct {
	w    *World
	id   int
	next uint64 // revision
	read int
}

// poll reads on at a server.
func (t *watcher) poll(server int, back uint64) {
	s := t.w.servers[server%len(t.w.servers)]
	if !s.proc.Runs() {
		return
	}
	t.next = max(1, t.next)
	t.next -= min(t.next-1, back)
	s.rep.View(func(st *state.State) { t.readAt(s.id, st) })
}

func (t *watcher) readAt(server int, st *state.State) {
	if t.next < st.FirstRevision() && st.FirstRevision() > 1 {
		t.next = st.Meta().Revision + 1 // out of range: list, and go on from there
		return
	}
	for ; t.next <= st.Meta().Revision; t.next++ {
		e, ok := st.Event(t.next)
		if !ok || t.next > uint64(len(t.w.audit.events)) || e != t.w.audit.events[t.next-1] {
			t.w.fail("watch", "watcher %d at server %d: event %d is %+v, found %v; it was another where it was first seen", t.id, server, t.next, e, ok)
			return
		}
		t.read++
	}
}
