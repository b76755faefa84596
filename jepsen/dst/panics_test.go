package dst

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// withPanics returns a plan in which decisions panic on purpose.
func withPanics(t *testing.T) Plan {
	for seed := range uint64(20) {
		p := Random(seed, int64(20*time.Minute))
		if slices.ContainsFunc(p.Events, func(e Event) bool { return e.Kind == Panic }) {
			return p
		}
	}
	t.Fatal("no decision panics in any of 20 plans")
	return Plan{}
}

// TestAPanicThatNobodyPlanted: the second opinion knows which decisions panic on purpose, and
// every other panic is a violation.
func TestAPanicThatNobodyPlanted(t *testing.T) {
	p := withPanics(t)
	if out := RunPlan(p, Options{}); out.Violation != nil {
		t.Fatalf("seed %d: %v", p.Seed, out.Violation)
	}
	out := RunPlan(p, Options{Flaws: Flaws{Panics: true}})
	if out.Violation == nil || !strings.Contains(out.Violation.What, "is halted") {
		t.Errorf("decisions about quotas panicked, and the violation is %v", out.Violation)
	}
}

// TestAPanicCountsWhenItHappens: a fault that comes too late to do anything is none.
func TestAPanicCountsWhenItHappens(t *testing.T) {
	length := int64(time.Minute)
	late := Event{At: length - 1, Kind: Panic, For: second}
	early := Event{At: millisecond, Kind: Panic, For: 20 * second}
	for luck := range uint64(40) {
		late.Luck, early.Luck = luck, luck
		if out := RunPlan(Plan{Seed: 1, Length: length, Events: []Event{late}}, Options{}); out.Happened[Panic] != 0 || out.Faults != 0 {
			t.Fatalf("luck %d: nothing was decided, and %d panics count", luck, out.Happened[Panic])
		}
		if out := RunPlan(Plan{Seed: 1, Length: length, Events: []Event{early}}, Options{}); out.Happened[Panic] == 1 {
			return
		}
	}
	t.Error("no decision panicked while nodes registered, whichever was to")
}
