package chunks

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rota/agent/plan"
)

var names = map[Action]string{Start: "start", Wake: "wake", Sleep: "sleep", Stop: "stop"}

// node is one GPU, and a way to write what is to be done with it.
type node struct {
	*Chunks
	now   int64
	under map[string]Step
	used  map[string]bool
}

func newNode(asleepMax int) *node {
	return &node{Chunks: New(Limits{GPUs: 1, MemoryBytes: memory, AsleepMax: asleepMax}), now: second,
		under: map[string]Step{}, used: map[string]bool{}}
}

func want(model string, generation uint64) Want {
	return Want{Engine: plan.Engine{Model: model, GPUs: 1}, Version: Version{Generation: generation, MemoryBytes: memory}, Sleeps: true}
}

// steps are those that are due, in words.
func (n *node) steps() (text []string) {
	list, _ := n.Next(n.now, true, func(e plan.Engine) bool { return n.used[e.Model] })
	for _, s := range list {
		n.under[s.Want.Engine.Model] = s
		text = append(text, fmt.Sprintf("%s %s/%d", names[s.Action], s.Want.Engine.Model, s.Want.Generation))
	}
	return text
}

func (n *node) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := n.steps(); !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// done answers the last step of a model.
func (n *node) done(model string, o Outcome) {
	s := n.under[model]
	n.now++
	n.Done(s.Want.Engine, s.Number, o, n.now)
}

func (n *node) state(model string) Status {
	s, _ := n.Status(plan.Engine{Model: model, GPUs: 1})
	return s
}

func TestNewcomersWaitForLeavers(t *testing.T) {
	n := newNode(4)
	n.Desire([]Want{want("a", 1)})
	n.expect(t, "start a/1")
	n.done("a", Outcome{})
	n.used["a"] = true
	n.Desire([]Want{want("b", 1)})
	n.expect(t) // an attempt uses a
	if s := n.state("b"); s.State != StateWaiting || s.Message == "" {
		t.Errorf("%+v", s)
	}
	n.used["a"] = false
	n.expect(t, "sleep a/1")
	n.expect(t) // a has not confirmed
	n.done("a", Outcome{})
	n.expect(t, "start b/1")
	n.done("b", Outcome{})
	n.Desire([]Want{want("a", 1)})
	n.expect(t, "sleep b/1")
	n.done("b", Outcome{})
	n.expect(t, "wake a/1")
	n.done("a", Outcome{})
	if s := n.state("a"); s.State != StateReady || s.Counts != (Counts{Starts: 1, Wakes: 1, Sleeps: 1}) || s.SetUpNS != 1 {
		t.Errorf("%+v", s)
	}
}

// TestRoomForSleep is made by stopping the engine that has not been used for longest.
func TestRoomForSleep(t *testing.T) {
	n := newNode(2)
	for _, model := range []string{"b", "a", "c"} {
		n.Desire([]Want{want(model, 1)})
		for len(n.steps()) > 0 {
			for m := range n.under {
				n.done(m, Outcome{})
			}
		}
	}
	n.Desire(nil)
	n.expect(t, "stop b/1")
	n.expect(t) // there is no room yet
	n.done("b", Outcome{Gone: true})
	n.expect(t, "sleep c/1")
}

// TestAnOlderGeneration is replaced when no attempt uses it, asleep or not.
func TestAnOlderGeneration(t *testing.T) {
	n := newNode(4)
	n.Desire([]Want{want("a", 1)})
	n.steps()
	n.done("a", Outcome{})
	n.used["a"] = true
	n.Desire([]Want{want("a", 2)})
	n.expect(t)
	n.used["a"] = false
	n.expect(t, "stop a/1")
	n.done("a", Outcome{Gone: true})
	n.expect(t, "start a/2")
}

// TestFailuresInARow are followed by longer and longer pauses, and make the engine failed.
func TestFailuresInARow(t *testing.T) {
	n := newNode(4)
	n.Desire([]Want{want("a", 1)})
	var pauses []int64
	for i := range FailuresMax + 3 {
		failed := n.state("a").State == StateFailed
		if failed != (i >= FailuresMax) {
			t.Fatalf("after %d failures: %+v", i, n.state("a"))
		}
		n.expect(t, "start a/1")
		n.done("a", Outcome{Failed: true, Gone: true, Message: "exited with code 3"})
		before := n.now
		_, again := n.Next(n.now, true, func(plan.Engine) bool { return false })
		pauses, n.now = append(pauses, (again-before)/second), again
	}
	if want := []int64{1, 2, 4, 8, 16, 32, 60, 60}; !slices.Equal(pauses, want) {
		t.Errorf("pauses of %v s, want %v", pauses, want)
	}
	if s := n.state("a"); !strings.Contains(s.Message, "failed 8 times in a row") || !strings.Contains(s.Message, "exited with code 3") {
		t.Errorf("%+v", s)
	}
	n.Desire(nil)
	n.steps()
	if s := n.state("a"); s.State != StateFailed || s.Generation != 1 || len(n.List()) != 1 {
		t.Errorf("the cluster does not hear any more that it failed: %+v", s)
	}
	n.Desire([]Want{want("a", 1)})
	if s := n.state("a"); s.State != StateFailed || s.Tries != 8 || s.FailedTry != 8 {
		t.Errorf("8 tries failed: %+v", s)
	}
	n.expect(t, "start a/1")
	if s := n.state("a"); s.Tries != 9 || s.FailedTry != 8 {
		t.Errorf("the ninth try is under way: %+v", s)
	}
	n.done("a", Outcome{})
	if s := n.state("a"); s.State != StateReady {
		t.Errorf("%+v", s)
	}
	n.now += provenAfter
	n.steps()
	n.Lost(want("a", 1).Engine, Outcome{Gone: true, Message: "ended by signal 9"}, n.now)
	if _, again := n.Next(n.now, true, func(plan.Engine) bool { return false }); again != n.now+second {
		t.Error("failures of long ago count")
	}
}

// TestNothingLeavesUnasked: before a desired state was seen, what was taken over stays.
func TestNothingLeavesUnasked(t *testing.T) {
	n := newNode(4)
	n.Adopt(want("a", 1), Ready, n.now)
	n.expect(t)
	n.Desire(nil)
	n.expect(t, "sleep a/1")
}

// TestKillAll ends engines that are in use or under way, and they start when they are desired again.
func TestKillAll(t *testing.T) {
	n := newNode(4)
	n.Desire([]Want{want("a", 1)})
	n.expect(t, "start a/1")
	n.used["a"] = true
	n.KillAll()
	n.expect(t, "stop a/1")
	n.Desire([]Want{want("a", 1)})
	n.expect(t)
	n.done("a", Outcome{Gone: true})
	n.expect(t, "start a/1")
}

// TestThoseThatSleepWaitForTheOneThatLeaves: with all room for sleep taken by an engine that is to
// wake, the other is stopped.
// TestAKillDoesNotWaitForAStep that hangs, whatever the step is.
func TestAKillDoesNotWaitForAStep(t *testing.T) {
	for _, under := range []string{"start", "sleep", "wake"} {
		n := newNode(4)
		n.Desire([]Want{want("a", 1)})
		n.expect(t, "start a/1")
		if under != "start" {
			n.done("a", Outcome{})
			n.Desire(nil)
			n.expect(t, "sleep a/1")
		}
		if under == "wake" {
			n.done("a", Outcome{})
			n.Desire([]Want{want("a", 1)})
			n.expect(t, "wake a/1")
		}
		overtaken := n.under["a"]
		n.KillAll()
		n.expect(t, "stop a/1")
		n.Done(overtaken.Want.Engine, overtaken.Number, Outcome{}, n.now) // too late
		if n.expect(t); !n.Leaves(overtaken.Want.Engine) {
			t.Errorf("after a %s that was overtaken it does not leave: %+v", under, n.state("a"))
		}
		n.done("a", Outcome{Gone: true})
		n.expect(t)
	}
}

func TestThoseThatSleepWaitForTheOneThatLeaves(t *testing.T) {
	n := newNode(1)
	for _, model := range []string{"a", "b"} {
		n.Desire([]Want{want(model, 1)})
		for len(n.steps()) > 0 {
			for m := range n.under {
				n.done(m, Outcome{})
			}
		}
	}
	n.Desire([]Want{want("a", 1)})
	n.expect(t, "stop b/1")
	n.done("b", Outcome{Gone: true})
	n.expect(t, "wake a/1")
}

// TestReadySinceItFailed: an engine that has slept since is not said to have failed.
func TestReadySinceItFailed(t *testing.T) {
	n := newNode(0)
	n.Desire([]Want{want("a", 1)})
	for range FailuresMax {
		n.expect(t, "start a/1")
		n.done("a", Outcome{Failed: true, Gone: true, Message: "exited with code 3"})
		_, n.now = n.Next(n.now, true, func(plan.Engine) bool { return false })
	}
	n.expect(t, "start a/1")
	n.done("a", Outcome{})
	n.Desire(nil)
	n.expect(t, "stop a/1")
	n.done("a", Outcome{Gone: true})
	if list := n.List(); len(list) > 0 {
		t.Errorf("%+v", list)
	}
}

// TestNothingToTry: an engine on a chunk that the node does not have has failed before any try.
func TestNothingToTry(t *testing.T) {
	n := newNode(4)
	w := want("a", 1)
	w.Engine.GPUs = 2
	n.Desire([]Want{w})
	n.expect(t)
	if s, _ := n.Status(w.Engine); s.State != StateFailed || s.FailedTry != plan.NoTry {
		t.Errorf("%+v", s)
	}
}

// TestARemovedDeclaration: engines of the model are stopped instead of put to sleep, asleep or not,
// as soon as no attempt uses them.
func TestARemovedDeclaration(t *testing.T) {
	for _, asleep := range []bool{false, true} {
		n := newNode(4)
		n.Desire([]Want{want("a", 1)})
		n.expect(t, "start a/1")
		n.done("a", Outcome{})
		n.Desire(nil)
		if asleep {
			n.expect(t, "sleep a/1")
			n.done("a", Outcome{})
		}
		n.used["a"] = true
		n.Removed(map[string]bool{"a": true})
		n.expect(t)
		n.used["a"] = false
		n.expect(t, "stop a/1")
		n.done("a", Outcome{Gone: true})
		n.Desire([]Want{want("a", 2)})
		n.Removed(nil)
		n.expect(t, "start a/2")
	}
}

// TestARemovedDeclarationThatFailed is not said to have failed.
func TestARemovedDeclarationThatFailed(t *testing.T) {
	n := newNode(4)
	n.Desire([]Want{want("a", 1)})
	for range FailuresMax {
		n.expect(t, "start a/1")
		n.done("a", Outcome{Failed: true, Gone: true, Message: "exited with code 3"})
		_, n.now = n.Next(n.now, true, func(plan.Engine) bool { return false })
	}
	n.Desire(nil)
	if n.Removed(map[string]bool{"a": true}); len(n.List()) > 0 {
		t.Errorf("%+v", n.List())
	}
}

// TestWhoLeaves: an engine that should not be ready, until it holds no memory any more.
func TestWhoLeaves(t *testing.T) {
	n := newNode(4)
	leaves := func(want bool, when string) {
		t.Helper()
		if got := n.Leaves(plan.Engine{Model: "a", GPUs: 1}); got != want {
			t.Errorf("%s: %v", when, got)
		}
	}
	leaves(false, "unknown")
	n.Desire([]Want{want("a", 1)})
	n.expect(t, "start a/1")
	leaves(false, "starting")
	n.done("a", Outcome{})
	n.Desire(nil)
	leaves(true, "ready and not wanted")
	n.expect(t, "sleep a/1")
	leaves(true, "falling asleep")
	n.done("a", Outcome{Failed: true, Message: "it hangs"})
	leaves(true, "awake though told to sleep")
	n.expect(t, "stop a/1")
	leaves(true, "being stopped")
	n.done("a", Outcome{Gone: true})
	leaves(false, "gone")
	n.Desire([]Want{want("a", 1)})
	n.now += pauseMin
	n.expect(t, "start a/1")
	n.done("a", Outcome{})
	n.Desire(nil)
	n.expect(t, "sleep a/1")
	n.done("a", Outcome{})
	leaves(false, "asleep")
}
