package check

import (
	"slices"
	"strings"
	"testing"

	"rota/jepsen/history"
)

// verdictOf runs one checker.
func verdictOf(t *testing.T, name string, r *history.Record) Verdict {
	t.Helper()
	for _, c := range All() {
		if c.Name == name {
			return c.Check(r)
		}
	}
	t.Fatalf("there is no checker %q", name)
	return Verdict{}
}

func TestAHealthyRunPassesEveryChecker(t *testing.T) {
	r := healthy(t, 60)
	for _, v := range Run(r, Limits{}) {
		t.Logf("%s: %d checked", v.Checker, v.Checked)
		if !v.OK() {
			t.Errorf("%s: vacuous %v, %d violations:\n%s", v.Checker, v.Vacuous(), v.Total, strings.Join(v.Violations, "\n"))
		}
	}
}

// TestRetentionIsNoLoss: a run of hours, after which most rows have been dropped
// and most request IDs forgotten.
func TestRetentionIsNoLoss(t *testing.T) {
	r := healthy(t, 6000)
	submissions := 0
	for _, op := range r.Ops {
		if op.Verb == history.Submit && op.Outcome == history.OK {
			submissions += len(op.IDs)
		}
	}
	if len(r.Final) > submissions*3/4 {
		t.Fatalf("%d of %d actions are still there: this tests nothing", len(r.Final), submissions)
	}
	for _, v := range Run(r, Limits{}) {
		if !v.OK() {
			t.Errorf("%s: %d violations:\n%s", v.Checker, v.Total, strings.Join(v.Violations, "\n"))
		}
	}
	r.Final = r.Final[1:]
	if v := verdictOf(t, "nothing-lost", r); v.Total != 1 {
		t.Errorf("one of those that are kept is lost, and nothing-lost says %q", v.Violations)
	}
}

// TestWhatRunsUnderFaultsLookLike: everything here looks suspicious and breaks no
// promise. A checker that objects would cry wolf in every other run.
func TestWhatRunsUnderFaultsLookLike(t *testing.T) {
	for _, c := range slices.Concat(unsuspicious, unsuspiciousEngines, unsuspiciousMembers, unsuspiciousSamples, unsuspiciousRewards, unsuspiciousAnswers) {
		t.Run(c.name, func(t *testing.T) {
			r := healthy(t, 40)
			c.change(t, r)
			for _, v := range Run(r, Limits{}) {
				if len(v.Violations) > 0 {
					t.Errorf("%s objects: %s", v.Checker, strings.Join(v.Violations, "\n"))
				}
			}
		})
	}
}

// TestEveryCheckerSeesWhatItIsFor: each case spoils a healthy record in one way,
// and the checker must say so with the given words, and show what it saw.
func TestEveryCheckerSeesWhatItIsFor(t *testing.T) {
	spoiled := map[string]int{}
	for _, c := range slices.Concat(broken, brokenEngines, brokenMembers, brokenSamples, brokenRewards, brokenAnswers, brokenWatch) {
		spoiled[c.checker]++
		t.Run(c.checker+"/"+c.name, func(t *testing.T) {
			r := healthy(t, 40)
			c.change(t, r)
			v := verdictOf(t, c.checker, r)
			if v.OK() || !strings.Contains(strings.Join(v.Violations, "\n"), c.want) {
				t.Errorf("%d checked, %d violations, none says %q:\n%s", v.Checked, v.Total, c.want, strings.Join(v.Violations, "\n"))
			}
		})
	}
	for _, c := range All() {
		if spoiled[c.Name] == 0 {
			t.Errorf("no case shows that the checker %s can object", c.Name)
		}
	}
}

// TestNothingToCheckIsNoSuccess: every checker notices that it has nothing to
// look at, and a scenario can say that this is as it should be.
func TestNothingToCheckIsNoSuccess(t *testing.T) {
	skip := map[string]string{}
	for _, v := range Run(&history.Record{}, Limits{}) {
		if v.OK() || !v.Vacuous() {
			t.Errorf("%s is content with an empty record: %+v", v.Checker, v)
		}
		skip[v.Checker] = "nothing happens in this scenario"
	}
	for _, v := range Run(&history.Record{}, Limits{Skip: skip}) {
		if !v.OK() || v.Skipped == "" {
			t.Errorf("%s was not skipped: %+v", v.Checker, v)
		}
	}
}

func TestTheShortestViolationComesFirst(t *testing.T) {
	var f findings
	f.add([]string{"a", "b"}, "long")
	f.add(nil, "short")
	for range 2 * findingsKept {
		f.add([]string{"a"}, "many")
	}
	v := f.verdict("x")
	if len(v.Violations) != violationsMax || v.Violations[0] != "short" || v.Violations[1] != "many\n    a" || v.Total != 2*findingsKept+2 {
		t.Errorf("%d of %d violations, the first %q", len(v.Violations), v.Total, v.Violations)
	}
}

// A checker that panics has found something, and is no reason to ask no other.
func TestACheckerThatPanics(t *testing.T) {
	c := Checker{Name: "odd", find: func(*evidence, *findings) { panic("no such entry") }}
	v := c.run(&evidence{})
	if v.OK() || v.Total != 1 || !strings.Contains(v.Violations[0], "the checker panicked: no such entry") || !strings.Contains(v.Violations[0], "check_test.go") {
		t.Errorf("it says %+v", v)
	}
}

// TestARunThatWasBrokenOff proves nothing about what there would have been in the
// end. That is no violation.
func TestARunThatWasBrokenOff(t *testing.T) {
	r := healthy(t, 20)
	r.Final, r.Healing = nil, history.Healing{}
	if v := verdictOf(t, "nothing-lost", r); !v.Vacuous() || v.Total > 0 {
		t.Errorf("%+v", v)
	}
}

// Refusals by the state are answers: a cluster of which only these came is not one without load.
func TestRefusalsByTheStateAreAnswers(t *testing.T) {
	r := &history.Record{Duration: 2 * second}
	for range 3 {
		r.Ops = append(r.Ops, history.Op{End: second, Outcome: history.Fail, Error: "ACTION_NOT_FOUND", Refused: true})
	}
	if v := verdictOf(t, "rate", r); !v.OK() || v.Checked != 3 {
		t.Errorf("%+v", v)
	}
}

// Without a whole log, checkers that look at less say so. With one, none does.
func TestAVerdictSaysThatItIsPartial(t *testing.T) {
	r := healthy(t, 40)
	for _, v := range Run(r, Limits{}) {
		if v.Partly != "" {
			t.Errorf("%s with a whole log: %s", v.Checker, v.Partly)
		}
	}
	withoutLogs(r)
	var partly []string
	for _, v := range Run(r, Limits{}) {
		if v.Partly != "" {
			partly = append(partly, v.Checker)
		}
	}
	want := []string{"at-most-one", "cores", "gpus", "engines", "turns", "nothing-lost", "watch", "linearizable"}
	if !slices.Equal(partly, want) {
		t.Errorf("without a whole log these look at a part: %q, want %q", partly, want)
	}
}
