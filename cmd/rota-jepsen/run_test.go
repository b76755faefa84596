package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"rota/jepsen/check"
	"rota/jepsen/history"
	"rota/jepsen/report"
	"rota/jepsen/scenario"
)

// Outcomes of a scenario that is only pretended.
const (
	passed   = "passed"
	slow     = "slow"
	vacuous  = "vacuous"
	noEffect = "no effect"
	violated = "violated"
	broke    = "broke off"
	both     = "slow and violated"
	fails    = "fails"
)

// pretend returns the report of a run with an outcome.
func pretend(outcome string, o scenario.Options) (*report.Report, error) {
	rec := &history.Record{Scenario: "pretended", Seed: o.Seed, Faults: []history.Fault{{Name: "kill-leader", Happened: "killed"}}}
	rate, watch := check.Verdict{Checker: "rate", Checked: 1}, check.Verdict{Checker: "watch", Checked: 1}
	faults := check.Verdict{Checker: "faults", Checked: 1}
	fail := func(v *check.Verdict) { v.Total, v.Violations = 1, []string{"seen by " + v.Checker} }
	if outcome == slow || outcome == both {
		fail(&rate)
	}
	if outcome == violated || outcome == both {
		fail(&watch)
	}
	switch outcome {
	case noEffect:
		fail(&faults)
	case vacuous:
		watch.Checked = 0
	case fails:
		return nil, errors.New("the disk is full")
	}
	rep := report.New(rec, []check.Verdict{faults, rate, watch})
	if outcome == broke {
		rep.Broken = "the cluster did not come up"
	}
	return rep, nil
}

// runs is a command that runs a scenario so often, with the outcomes in turn.
type runs struct {
	outcomes []string
	seeds    []int64
	said     bytes.Buffer
	sum      report.Summary
}

func (r *runs) run(t *testing.T, repeat, retries int) (code int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f := runFlags{seed: 100, repeat: repeat, voidRetries: retries, output: "json"}
	f.play = func(_ context.Context, _ scenario.Scenario, o scenario.Options) (*report.Report, error) {
		outcome, interrupted := strings.CutSuffix(r.outcomes[len(r.seeds)], ", interrupted")
		if interrupted {
			cancel()
		}
		r.seeds = append(r.seeds, o.Seed)
		return pretend(outcome, o)
	}
	cmd := newRun()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&r.said)
	cmd.SetContext(ctx)
	err := f.all(cmd, []scenario.Scenario{{Name: "pretended"}}, t.TempDir())
	if err := json.NewDecoder(&out).Decode(&r.sum); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	var coded *codeError
	if err != nil && !errors.As(err, &coded) {
		t.Fatal(err)
	}
	if coded != nil {
		return coded.code
	}
	return 0
}

func TestOnlyAVoidRunIsTriedAgain(t *testing.T) {
	for _, c := range []struct {
		retries, code int
		outcomes      []string // all of them happen
	}{
		{0, 0, []string{passed}},
		{0, exitVoid, []string{slow}},
		{1, 0, []string{passed}},
		{1, 0, []string{slow, passed}},
		{1, 0, []string{noEffect, passed}},
		{1, 0, []string{vacuous, passed}},
		{1, exitVoid, []string{slow, slow}},
		{1, exitViolation, []string{slow, violated}},
		{3, 0, []string{slow, vacuous, noEffect, passed}},
		{3, exitVoid, []string{slow, slow, slow, slow}},
		{3, exitViolation, []string{violated}},
		{3, exitViolation, []string{both}},
		{3, exitVoid, []string{broke}},
		{3, exitVoid, []string{slow, broke}},
		{3, exitVoid, []string{fails}},
		{3, exitVoid, []string{slow, fails}},
		{3, exitVoid, []string{slow + ", interrupted"}},
	} {
		t.Run(fmt.Sprint(c.retries, " ", strings.Join(c.outcomes, " ")), func(t *testing.T) {
			r := runs{outcomes: append(c.outcomes, passed)}
			code := r.run(t, 1, c.retries)
			if code != c.code || len(r.seeds) != len(c.outcomes) {
				t.Errorf("%d runs and exit code %d, want %d and %d", len(r.seeds), code, len(c.outcomes), c.code)
			}
			if n := strings.Count(r.said.String(), "is void, is tried again"); n != len(c.outcomes)-1 {
				t.Errorf("it said %d times that it tries again:\n%s", n, r.said.String())
			}
		})
	}
}

// TestRunsThatAreTriedAgainCount in the summary, and none takes the seed of another.
func TestRunsThatAreTriedAgainCount(t *testing.T) {
	r := runs{outcomes: []string{slow, vacuous, passed, passed, slow, passed}}
	if code := r.run(t, 3, 2); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if want := []int64{100, 103, 106, 101, 102, 105}; !slices.Equal(r.seeds, want) {
		t.Errorf("seeds %v, want %v", r.seeds, want)
	}
	if r.sum.Faults != 6 || r.sum.Void != 3 || r.sum.Violations != 0 {
		t.Errorf("summary %+v", r.sum)
	}
	if said := r.said.String(); !strings.Contains(said, "pretended with seed 103 is void, is tried again: the checker watch had nothing to check") {
		t.Errorf("it said:\n%s", said)
	}
}
