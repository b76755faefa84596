package check

import (
	"fmt"
	"slices"
	"testing"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
	"rota/jepsen/workload/witness"
)

// What a play does with engines: those who need a model call its engine, which is there for as
// long as they are.

const playDeclaration = "c7.1"

// declareEngine declares the engine of the model that actions on GPUs need.
func (p *play) declareEngine() {
	var w witness.Witness
	spec := &rotav1.EngineSpec{Model: "m", Driver: rotav1.EngineDriver_ENGINE_DRIVER_PROCESS, Command: w.Serve("m", playDeclaration, 0)}
	data, err := spec.MarshalVT()
	if err != nil {
		p.t.Fatal(err)
	}
	op := history.Op{Client: 7, Verb: history.RegisterEngine, Model: "m", Declaration: playDeclaration, Start: p.now, Outcome: history.OK}
	p.commit(&logv1.Command{Verb: &logv1.Command_RegisterEngine{RegisterEngine: &logv1.RegisterEngine{Model: "m", Spec: data}}})
	p.jobOp(op)
}

// serve has an engine answer an execution.
func (p *play) serve(x *history.Execution) {
	if x.Asked.Model == "" {
		return
	}
	x.Answer = &history.Answer{Model: "m", Declaration: playDeclaration, GPUs: slices.Clone(x.GPUs)}
	s := history.Serving{
		Node: x.Node, Model: "m", Declaration: playDeclaration, GPUs: slices.Clone(x.GPUs), Start: x.Start - 2,
		Process: fmt.Sprintf("%d.%d", x.Action, x.Attempt),
	}
	p.awake[token{x.Action, x.Attempt}] = len(p.rec.Servings)
	held := s
	held.Awake, held.Start = true, x.Start-1
	p.rec.Servings = append(p.rec.Servings, s, held)
}

// stopEngine ends the engine of an execution that is over.
func (p *play) stopEngine(k token) {
	first, served := p.awake[k]
	if !served {
		return
	}
	for i := range 2 {
		s := &p.rec.Servings[first+i]
		s.Alive, s.End = p.now, p.now
	}
}

// awake picks times at which an engine held memory.
func awake(s *history.Serving) bool { return s.Awake }

// calling picks executions that an engine has answered.
func calling(x *history.Execution) bool { return x.Answer != nil }

// calledBy is the execution that an engine was there for.
func calledBy(t *testing.T, r *history.Record, process string) *history.Execution {
	t.Helper()
	return pick(t, r.Executions, func(x *history.Execution) bool { return fmt.Sprintf("%d.%d", x.Action, x.Attempt) == process })
}

// startFailed makes the end of an action that had called an engine one that was never started.
func startFailed(t *testing.T, r *history.Record) {
	t.Helper()
	x := *pick(t, r.Executions, calling)
	pick(t, r.Final, func(a *history.Action) bool { return a.ID == x.Action && a.Attempt == x.Attempt }).Reason = "START_FAILED"
}

var brokenEngines = []caseOf{
	{"engines", "the engine of another model", "was answered by an engine of model other", func(t *testing.T, r *history.Record) {
		pick(t, r.Executions, calling).Answer.Model = "other"
	}},
	{"engines", "the engine of another chunk", "was answered by an engine on GPUs [62]", func(t *testing.T, r *history.Record) {
		pick(t, r.Executions, calling).Answer.GPUs = []int{62}
	}},
	{"engines", "an engine that nobody saw", "that nobody saw awake", func(t *testing.T, r *history.Record) {
		pick(t, r.Executions, calling).Answer.Declaration = "c9.9"
	}},
	{"engines", "an engine that slept already", "that nobody saw awake", func(t *testing.T, r *history.Record) {
		h := pick(t, r.Servings, awake)
		h.End = calledBy(t, r, h.Process).Start
	}},
	{"engines", "an engine that is put to sleep while it is used", "was put to sleep at", func(t *testing.T, r *history.Record) {
		h := pick(t, r.Servings, awake)
		x := calledBy(t, r, h.Process)
		x.Alive, x.End = x.Start+second, x.Start+second
		h.Alive, h.End = x.Start+second/4, x.Start+second/4
		life := pick(t, r.Servings, func(s *history.Serving) bool { return s.Process == h.Process })
		life.Alive, life.End = x.End, x.End
	}},
	{"engines", "two engines that do not fit", "and engines hold", func(t *testing.T, r *history.Record) {
		more := *pick(t, r.Servings, awake)
		more.Process, more.Start, more.MemoryBytes = "1.1", more.Start+1, 1
		r.Servings = append(r.Servings, more)
	}},
	{"engines", "an engine that outlives its node's lease", "outlives the lease of its node", func(t *testing.T, r *history.Record) {
		s := *pick(t, r.Servings, awake)
		r.Ops = append(r.Ops, history.Op{Verb: history.GetNode, Outcome: ok, Node: s.Node, State: "DOWN", Start: s.Start + 1, End: s.Start + 2})
		life := pick(t, r.Servings, func(o *history.Serving) bool { return o.Process == s.Process })
		life.Alive, life.End = s.Start+second, s.Start+second
	}},
	{"engines", "an engine that is left", "is left in the end", func(t *testing.T, r *history.Record) {
		s := pick(t, r.Servings, func(s *history.Serving) bool { return !s.Awake })
		s.End = 0
	}},
	{"engines", "a declaration that is lost", "was answered ok, and is in the log: false", func(_ *testing.T, r *history.Record) {
		r.Ops = append(r.Ops, history.Op{Verb: history.RegisterEngine, Model: "m", Declaration: "c7.2", Outcome: ok})
	}},
	{"engines", "a declaration that was refused and made", "was answered fail, and is in the log: true", func(t *testing.T, r *history.Record) {
		pick(t, r.Ops, func(op *history.Op) bool { return op.Verb == history.RegisterEngine }).Outcome = fail
	}},
	{"engines", "an action that is not told where its engine is", "which was declared all the time", func(t *testing.T, r *history.Record) {
		x := pick(t, r.Executions, calling)
		x.Answer, x.Unserved = nil, true
	}},
	{"engines", "an action that is not started for nothing", "was neither removed nor did it ever fail there", startFailed},
}

// unsuspiciousEngines looks like a violation and is none.
var unsuspiciousEngines = []caseOf{
	{name: "an engine that died while it was used", change: func(t *testing.T, r *history.Record) {
		h := pick(t, r.Servings, awake)
		x := calledBy(t, r, h.Process)
		for i := range r.Servings {
			if s := &r.Servings[i]; s.Process == h.Process {
				s.Alive, s.End = x.Start+1, x.Start+2
			}
		}
	}},
	{name: "a node that was lost when its engine was dead, which was noticed late", change: func(t *testing.T, r *history.Record) {
		s := pick(t, r.Servings, awake)
		r.Ops = append(r.Ops, history.Op{Verb: history.GetNode, Outcome: ok, Node: s.Node, State: "DOWN", Start: s.Alive, End: s.Alive + 1})
	}},
	{name: "a declaration without an answer", change: func(_ *testing.T, r *history.Record) {
		r.Ops = append(r.Ops, history.Op{Verb: history.RegisterEngine, Model: "m", Declaration: "c7.2", Outcome: unknown})
	}},
}

// TestWhenAnEngineWasDeclared: removals and declarations between the grant of an attempt and its
// end explain that it had no engine, or that it had one.
func TestWhenAnEngineWasDeclared(t *testing.T) {
	log := &truth{engines: map[string][]declared{"m": {{10, "a"}, {20, "b"}, {30, ""}, {40, "c"}}}}
	for _, c := range []struct {
		granted, ended uint64
		missing, there bool
	}{
		{1, 9, true, false}, {1, 10, true, true}, {11, 29, false, true}, {11, 30, true, true},
		{31, 39, true, false}, {31, 40, true, true}, {41, 50, false, true}, {41, 0, false, true}, {25, 0, true, true},
	} {
		missing, there := log.engineDuring("m", grant{index: c.granted, ended: c.ended})
		if missing != c.missing || there != c.there {
			t.Errorf("from %d to %d: missing %v, there %v", c.granted, c.ended, missing, there)
		}
	}
	if missing, there := log.engineDuring("other", grant{index: 5}); !missing || there {
		t.Error("an engine was declared that never was")
	}
}
