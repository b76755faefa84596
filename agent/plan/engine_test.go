package plan

import (
	"strings"
	"testing"
)

var judge = Engine{Model: "judge", First: 2, GPUs: 2}

// judged is a desired state with one action that needs an engine.
func judged(index uint64) Desired {
	return Desired{Incarnation: 7, Index: index, Assignments: []Assignment{{Key: k(1), Engine: judge}}}
}

func accepted1(n *node) bool {
	for _, j := range take[Journal](n) {
		if len(j.Accept) > 0 {
			return true
		}
	}
	return false
}

func (n *node) judgeIs(s EngineStatus) {
	n.EnginesAre(map[Engine]EngineStatus{judge: s})
	n.settle()
}

func TestAnAttemptWaitsForItsEngine(t *testing.T) {
	n := newNode()
	n.Desire(judged(101))
	n.settle()
	if accepted1(n) || len(take[Start](n)) > 0 {
		t.Fatal("it is started, or entered into the journal, without its engine")
	}
	n.EnginesAre(map[Engine]EngineStatus{{Model: "judge", GPUs: 2}: {URL: "http://elsewhere"}})
	n.settle()
	if accepted1(n) {
		t.Fatal("an engine of the model on another chunk counts")
	}
	n.judgeIs(EngineStatus{URL: "http://here"})
	starts := take[Start](n)
	if !accepted1(n) || len(starts) != 1 || starts[0].EngineURL != "http://here" {
		t.Fatalf("started as %+v", starts)
	}
	if !n.UsesEngine(judge) || n.UsesEngine(Engine{Model: "judge", GPUs: 2}) {
		t.Error("the attempt uses its engine and no other")
	}
	n.Started(n.link.connection, k(1), OK, "", n.now)
	n.judgeIs(EngineStatus{Failed: "it crashes", FailedTry: NoTry})
	if !n.UsesEngine(judge) || len(take[Report](n)) > 0 {
		t.Error("what runs is left alone")
	}
	n.Exited(Exit{Key: k(1), Reason: ReasonExited})
	if n.settle(); n.UsesEngine(judge) {
		t.Error("what has ended uses the engine")
	}
}

// TestAnAttemptThatIsDroppedWhileItWaits leaves nothing behind, such as a port that was set aside for it.
func TestAnAttemptThatIsDroppedWhileItWaits(t *testing.T) {
	n := newNode()
	n.Desire(judged(101))
	n.settle()
	n.Desire(whole(102))
	n.settle()
	if f := take[Forget](n); len(f) != 1 || len(f[0].Keys) != 1 || f[0].Keys[0] != k(1) {
		t.Errorf("forgotten: %v", f)
	}
}

func TestAnAttemptWhoseEngineFailed(t *testing.T) {
	n := newNode()
	n.judgeIs(EngineStatus{Failed: "exited with code 2", Tries: 6, FailedTry: 5})
	n.Desire(judged(101))
	for _, s := range []EngineStatus{
		{Failed: "exited with code 2", Tries: 6, FailedTry: 5},
		{Failed: "exited with code 2", Tries: 6, FailedTry: 6}, // begun before the attempt came
		{Failed: "exited with code 2", Tries: 7, FailedTry: 6},
	} {
		if n.judgeIs(s); len(take[Report](n)) > 0 || accepted1(n) {
			t.Fatalf("the attempt does not get a try of its own: %+v", s)
		}
	}
	n.judgeIs(EngineStatus{Failed: "exited with code 3", Tries: 7, FailedTry: 7})
	r := take[Report](n)
	if len(r) != 1 || r[0].Exits[0].Reason != ReasonStartFailed || !strings.Contains(r[0].Exits[0].Message, "exited with code 3") {
		t.Fatalf("reported %+v", r)
	}
	if len(take[Start](n)) > 0 || !accepted1(n) {
		t.Error("it is started, or refused without the journal knowing")
	}
}

// TestAnEngineLeavesJustBefore an attempt is started that is in the journal: it waits on.
func TestAnEngineLeavesJustBefore(t *testing.T) {
	n := newNode()
	n.EnginesAre(map[Engine]EngineStatus{judge: {URL: "http://here"}})
	n.Desire(judged(101))
	steps, _ := n.Next(n.now)
	if len(steps) != 1 {
		t.Fatalf("%+v", steps)
	}
	n.EnginesAre(nil)
	n.Journaled()
	if n.settle(); len(take[Start](n)) > 0 || n.UsesEngine(judge) {
		t.Fatal("it is started without its engine, or keeps the engine from being replaced")
	}
	n.judgeIs(EngineStatus{URL: "http://again"})
	if s := take[Start](n); len(s) != 1 || s[0].EngineURL != "http://again" {
		t.Fatalf("%+v", s)
	}
}

// TestAFrozenSupervisorIsKilledForEngines of a session that is over, also if there is nothing else,
// and until something can start in the next one.
func TestAFrozenSupervisorIsKilledForEngines(t *testing.T) {
	// checked reports whether somebody looks after the supervisor within the margin.
	checked := func(n *node, next func()) bool {
		for end := n.now; n.now-end < marginNS; n.now += millisecond {
			if next(); len(take[CheckSupervisor](n)) > 0 {
				return true
			}
		}
		return false
	}
	n := newNode()
	n.EnginesDie(true)
	if checked(n, n.settle) {
		t.Error("while the lease holds, a supervisor is killed for an engine that is replaced")
	}
	n.cut, n.now = true, n.now+leaseNS-marginNS
	var register []Step
	unanswered := func() {
		steps, _ := n.Next(n.now)
		for _, s := range steps {
			if _, ok := s.(Register); ok {
				register = append(register, s)
				continue
			}
			n.do(s)
		}
	}
	if !checked(n, unanswered) || n.session.stage != asking || len(register) != 1 {
		t.Fatalf("nobody looks while the node asks to be let in again: stage %d, %d registrations", n.session.stage, len(register))
	}
	n.do(register[0])
	if !checked(n, n.settle) || n.session.stage != open {
		t.Errorf("nobody looks before anything can start: stage %d", n.session.stage)
	}
	n.EnginesDie(false)
	if checked(n, n.settle) {
		t.Error("somebody looks though nothing must die")
	}
}

// TestAnotherAgentDoesNotKnowWhoUsesWhat until a desired state says it.
func TestAnotherAgentDoesNotKnowWhoUsesWhat(t *testing.T) {
	n := &node{Plan: New(7, []Accepted{{Key: k(1)}}), now: 1}
	n.Connected([]Running{{Key: k(1)}}, nil, true, n.now)
	n.settle()
	other := Engine{Model: "other", GPUs: 1}
	if !n.UsesEngine(judge) || !n.UsesEngine(other) {
		t.Error("an attempt of an earlier agent may use any engine")
	}
	n.Desire(judged(101))
	if !n.UsesEngine(judge) || n.UsesEngine(other) {
		t.Error("the desired state says which")
	}
}

// TestAnEngineThatCannotBeTried ends the attempt at once.
func TestAnEngineThatCannotBeTried(t *testing.T) {
	n := newNode()
	n.Desire(judged(101))
	n.judgeIs(EngineStatus{Failed: "the node has 1 GPU", FailedTry: NoTry})
	if r := take[Report](n); len(r) != 1 || !strings.Contains(r[0].Exits[0].Message, "the node has 1 GPU") {
		t.Fatalf("reported %+v", r)
	}
}

// TestAnEngineThatIsRemoved ends the attempts that wait for it, and no others.
func TestAnEngineThatIsRemoved(t *testing.T) {
	n := newNode()
	n.EnginesAre(map[Engine]EngineStatus{judge: {URL: "http://here"}})
	n.Desire(judged(101))
	n.settle()
	n.Started(n.link.connection, k(1), OK, "", n.now)
	d := judged(102)
	d.Assignments = append(d.Assignments, Assignment{Key: k(2), Engine: Engine{Model: "judge", First: 4, GPUs: 2}})
	n.Desire(d)
	n.settle()
	n.EnginesRemoved(map[string]bool{"judge": true})
	n.settle()
	if r := take[Report](n); len(r) != 1 || len(r[0].Exits) != 1 || r[0].Exits[0].Key != k(2) || !strings.Contains(r[0].Exits[0].Message, "rota engine register") {
		t.Fatalf("reported %+v", r)
	}
}

// TestAnAttemptWaitsForTheEngineThatLeaves: an attempt without an engine starts when its GPUs are
// free. Others do not wait.
func TestAnAttemptWaitsForTheEngineThatLeaves(t *testing.T) {
	n := newNode()
	other := Engine{Model: "other", First: 2, GPUs: 1}
	n.EnginesAre(map[Engine]EngineStatus{judge: {}, other: {URL: "http://here"}})
	n.EnginesLeave([]Engine{judge})
	n.Desire(Desired{Incarnation: 7, Index: 101, Assignments: []Assignment{
		{Key: k(1), GPUs: []int{3}}, {Key: k(2), GPUs: []int{4}}, {Key: k(3)}, {Key: k(4), GPUs: []int{2}, Engine: other},
	}})
	n.settle()
	for _, j := range take[Journal](n) {
		for _, key := range j.Accept {
			if key == k(1) {
				t.Error("it is entered into the journal, and would be lost with the agent")
			}
		}
	}
	started := map[Key]bool{}
	for _, s := range take[Start](n) {
		started[s.Key] = true
	}
	if started[k(1)] || !started[k(2)] || !started[k(3)] || !started[k(4)] {
		t.Errorf("started %v", started)
	}
	n.EnginesLeave(nil)
	n.settle()
	if s := take[Start](n); !accepted1(n) || len(s) != 1 || s[0].Key != k(1) {
		t.Errorf("once the engine has left: %+v", s)
	}
}

// TestAnEngineHasToLeaveJustBefore an attempt is started that is in the journal: it waits on.
func TestAnEngineHasToLeaveJustBefore(t *testing.T) {
	n := newNode()
	n.Desire(Desired{Incarnation: 7, Index: 101, Assignments: []Assignment{{Key: k(1), GPUs: []int{3}}}})
	if steps, _ := n.Next(n.now); len(steps) != 1 {
		t.Fatalf("%+v", steps)
	}
	n.EnginesLeave([]Engine{judge})
	n.Journaled()
	if n.settle(); len(take[Start](n)) > 0 {
		t.Fatal("it is started while the engine has its GPU")
	}
	n.EnginesLeave(nil)
	if n.settle(); len(take[Start](n)) != 1 {
		t.Fatal("it is not started")
	}
}
