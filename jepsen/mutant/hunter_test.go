package mutant

import (
	"context"
	"slices"
	"testing"

	"rota/jepsen/check"
)

// TestHuntsNameTheirCheckers: a run on a busy machine may alarm a checker that says nothing of
// the bug.
func TestHuntsNameTheirCheckers(t *testing.T) {
	for _, m := range All() {
		if (m.Hunt.Engine == Processes) != (len(m.Hunt.By) > 0) {
			t.Errorf("mutant %s is hunted by %s and caught by %v", m.Name, m.Hunt.Engine, m.Hunt.By)
		}
		for _, name := range m.Hunt.By {
			if name == "faults" || name == "rate" || !slices.ContainsFunc(check.All(), func(c check.Checker) bool { return c.Name == name }) {
				t.Errorf("mutant %s is to be caught by %s, which finds no broken promise", m.Name, name)
			}
		}
	}
}

func TestAnAlarmOfAnotherCheckerIsNoCatch(t *testing.T) {
	alarms := func(names ...string) *Finding {
		f := &Finding{Violations: len(names), Checker: names[0], Evidence: "of " + names[0], Alarms: map[string]string{}}
		for _, name := range names {
			f.Alarms[name] = "of " + name
		}
		return f
	}
	for _, c := range []struct {
		finding   *Finding
		by        []string
		caught    string
		other     string
		goesAgain bool
	}{
		{alarms("turns"), []string{"turns"}, "turns", "", false},
		{alarms("recovery", "turns"), []string{"turns"}, "turns", "", false},
		{alarms("recovery"), []string{"turns"}, "", "recovery: of recovery", true},
		{alarms("recovery"), nil, "recovery", "", false},
		{&Finding{}, nil, "", "", true},
	} {
		var got Catch
		again := got.note(c.finding, nil, c.by)
		if got.Caught != (c.caught != "") || got.By != c.caught || got.Other != c.other || again != c.goesAgain {
			t.Errorf("%v, to be caught by %v: %+v, again %v", c.finding.Alarms, c.by, got, again)
		}
	}
}

// TestARunThatIsCutOff: a hunt of which no try came to its end says nothing.
func TestARunThatIsCutOff(t *testing.T) {
	c := Catch{Tries: 1}
	if c.note(nil, context.DeadlineExceeded, nil); c.Error == "" {
		t.Error("the only try was cut off, and the hunt says that nothing was noticed")
	}
	if c = (Catch{Tries: 2}); !c.note(nil, context.DeadlineExceeded, nil) || c.Error != "" {
		t.Errorf("the last try of several was cut off: %+v", c)
	}
}

// TestAVoidTryDoesNotCount: a hunt of one try without a bug tries again, as the next seed may prove
// something. One by simulation would do the same again.
func TestAVoidTryDoesNotCount(t *testing.T) {
	for _, c := range []struct {
		hunt Hunt
		void int
		want Catch
	}{
		{run("kills"), 0, Catch{Tries: 1}},
		{run("kills"), 2, Catch{Tries: 3}},
		{simulate(), 2, Catch{Tries: 1, Error: errVoid.Error()}},
	} {
		c.hunt.Tries = 1
		var got Catch
		got.repeat(t.Context(), &c.hunt, func(number int) (*Finding, error) {
			if number <= c.void {
				return nil, errVoid
			}
			return &Finding{}, nil
		})
		if got != c.want {
			t.Errorf("%s with %d void tries: %+v, want %+v", c.hunt.Engine, c.void, got, c.want)
		}
	}
}

// TestControlsAreTriedAsOften: as the slowest of their mutants, by any checker.
func TestControlsAreTriedAsOften(t *testing.T) {
	mutants := []Mutant{
		{Name: "a", Hunt: run("kills").by("engines")}, {Name: "b", Hunt: run("kills").by("turns")},
		{Name: "c", Hunt: run("kills").by("turns")}, {Name: "d", Hunt: simulate()},
	}
	controls := Controls(mutants, []Catch{{Caught: true, Tries: 2}, {Caught: true, Tries: 3}, {Tries: 9}, {Caught: true, Tries: 1}})
	if len(controls) != 2 || controls[0].Hunt.Tries != 3 || controls[1].Hunt.Tries != 1 || len(controls[0].Hunt.By)+len(controls[0].Edits) > 0 {
		t.Errorf("the controls are %+v", controls)
	}
}
