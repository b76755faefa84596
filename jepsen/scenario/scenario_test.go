package scenario

import (
	"slices"
	"testing"
	"time"

	"rota/jepsen/fault"
)

func TestEveryFaultIsInAScenarioOfCI(t *testing.T) {
	var covered []string
	for _, s := range All() {
		if s.CI {
			covered = append(covered, s.Faults...)
		}
		if _, err := s.faults(); err != nil || len(s.Faults) == 0 || s.About == "" {
			t.Errorf("scenario %s is incomplete: %v", s.Name, err)
		}
		if got, ok := Named(s.Name); !ok || got.About != s.About {
			t.Errorf("scenario %s is not found by its name, or is there twice", s.Name)
		}
	}
	for _, f := range fault.All() {
		if !slices.Contains(covered, f.Name) {
			t.Errorf("no scenario of CI has the fault %s", f.Name)
		}
	}
}

func TestAScenarioHasWhatItsFaultsNeed(t *testing.T) {
	for _, s := range All() {
		for _, name := range s.Faults {
			switch name {
			case "ring":
				if s.Servers < 5 {
					t.Errorf("%s: a ring of %d servers is whole", s.Name, s.Servers)
				}
			case "loss", "delay", "resets":
				if !s.Proxy {
					t.Errorf("%s: %s needs a proxy", s.Name, name)
				}
			case "churn":
				if s.Standbys == 0 {
					t.Errorf("%s: churn needs a standby", s.Name)
				}
			case "power-loss", "torn-power-loss", "lying-fsync", "failing-write", "failing-fsync", "hanging-disk", "full-disk":
				if !s.Disks {
					t.Errorf("%s: %s needs disks that can be broken", s.Name, name)
				}
			}
		}
	}
}

func TestRoundsGoOnForTheDurationButAreWholeAtFirst(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name   string
		r      run
		began  time.Time
		count  int
		enough bool
	}{
		{"in the first round", run{}, now, 2, false},
		{"after it", run{}, now, 3, true},
		{"with time left", run{Options: Options{Duration: time.Hour}}, now, 30, false},
		{"after the time, in the first round", run{Options: Options{Duration: time.Minute}}, now.Add(-time.Hour), 2, false},
		{"after the time", run{Options: Options{Duration: time.Minute}}, now.Add(-time.Hour), 4, true},
		{"of a count", run{Scenario: Scenario{Count: 5}}, now, 4, false},
		{"at the count", run{Scenario: Scenario{Count: 5}}, now, 5, true},
		{"at a count that was asked for", run{Scenario: Scenario{Count: 5}, Options: Options{Count: 2}}, now, 2, true},
	} {
		if got := c.r.enough(c.began, c.count, 3); got != c.enough {
			t.Errorf("%s: enough is %v", c.name, got)
		}
	}
}
