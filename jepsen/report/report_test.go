package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rota/jepsen/check"
	"rota/jepsen/history"
)

const second = int64(1e9)

// load answers a submission every 10 ms in 10 ms, but between from and to.
func load(until, from, to int64) (ops []history.Op) {
	for start := int64(0); start < until; start += second / 100 {
		op := history.Op{Verb: history.Submit, Start: start, End: start + second/100, Outcome: history.OK}
		if start >= from && start < to {
			op.Outcome = history.Unknown
		}
		ops = append(ops, op)
	}
	return ops
}

func record() *history.Record {
	return &history.Record{
		Scenario: "x", Seed: 7, Servers: []string{"a", "b", "c"}, Duration: 20 * second,
		Ops: load(20*second, 5*second, 7*second),
		Faults: []history.Fault{
			{Name: "pause", Start: 12 * second, End: 13 * second, Whole: 14 * second, Happened: "stood still"},
			{Name: "kill-leader", Start: 5 * second, End: 8 * second, Happened: "killed", Window: "vote-split", LeaderKilled: true},
		},
		Healing: history.Healing{Stopped: 13 * second, Settled: 15 * second},
	}
}

func TestAReportSaysWhatClientsFeltAroundEachFault(t *testing.T) {
	rep := New(record(), []check.Verdict{{Checker: "ok", Checked: 1}})
	kill := rep.Faults[0]
	if kill.Fault.Name != "kill-leader" {
		t.Fatalf("faults are not in order: %+v", rep.Faults)
	}
	if kill.Before.PerSecond < 95 || kill.Before.PerSecond > 105 || kill.Before.NotOK != 0 {
		t.Errorf("before %+v", kill.Before)
	}
	// 1 of the 3 seconds had answers.
	if kill.During.PerSecond < 30 || kill.During.PerSecond > 37 || kill.During.NotOK < 195 {
		t.Errorf("during %+v", kill.During)
	}
	if kill.After.P50 != 10 || kill.After.P99 != 10 {
		t.Errorf("after %+v", kill.After)
	}
	if kill.WriteAfter == nil || *kill.WriteAfter != 10 {
		t.Errorf("the first write after the kill: %v", kill.WriteAfter)
	}
	if len(rep.Failovers) != 1 || *rep.FailoverP50 != 2010 || *rep.FailoverP99 != 2010 {
		t.Errorf("failovers %v", rep.Failovers)
	}
	if rep.Operations != 1800 || rep.NotOK != 200 {
		t.Errorf("%d operations, %d others", rep.Operations, rep.NotOK)
	}
	if rep.UnderFaults.Seconds != 8 {
		t.Errorf("under faults for %v s", rep.UnderFaults.Seconds)
	}
}

func TestWindowsOfNeighboursDoNotOverlap(t *testing.T) {
	faults := []history.Fault{{Start: 5 * second, End: 6 * second}, {Start: 7 * second, End: 8 * second}}
	all := around(load(20*second, 0, 0), faults, 20*second)
	if all[0].After.Seconds != 1 || all[1].Before.Seconds != 1 || all[1].After.Seconds != 3 {
		t.Errorf("after the first %v s, before the second %v s, after it %v s", all[0].After.Seconds, all[1].Before.Seconds, all[1].After.Seconds)
	}
}

func TestOnlyWritesEndAFailover(t *testing.T) {
	killed := []history.Fault{{Start: second, LeaderKilled: true}}
	ops := []history.Op{
		{Verb: history.Submit, Start: second - 1, End: second + 1, Outcome: history.OK}, // began before
		{Verb: history.Get, Start: second + 1, End: second + 2, Outcome: history.OK},
		{Verb: history.Submit, Start: second + 1, End: second + 3, Outcome: history.Fail},
	}
	if got := failovers(ops, killed); len(got) != 0 {
		t.Errorf("failovers %v without a write", got)
	}
	ops = append(ops, history.Op{Verb: history.Drain, Start: second + 5, End: second + 9, Outcome: history.OK})
	if got := failovers(ops, killed); len(got) != 1 || got[0] != 9 {
		t.Errorf("failovers %v, want 9 ns", got)
	}
}

func TestARunIsVoidIfItProvedNothing(t *testing.T) {
	good := []check.Verdict{{Checker: "watch", Checked: 9}}
	for _, c := range []struct {
		name string
		rep  *Report
		void bool
	}{
		{"good", New(record(), good), false},
		{"without faults", New(&history.Record{}, good), true},
		{"with a vacuous checker", New(record(), []check.Verdict{{Checker: "watch"}}), true},
		{"with a skipped checker", New(record(), []check.Verdict{{Checker: "watch", Skipped: "no watchers"}}), false},
		{"with too little load", New(record(), []check.Verdict{{Checker: "rate", Checked: 1, Total: 1, Violations: []string{"slow"}}}), true},
		{"broken off", func() *Report { r := New(record(), good); r.Broken = "no leader"; return r }(), true},
	} {
		if void := len(c.rep.Void()) > 0; void != c.void || c.rep.Violations() != 0 {
			t.Errorf("%s: void %v, %d violations", c.name, c.rep.Void(), c.rep.Violations())
		}
	}
}

func TestReportsAreStoredAndSummedUp(t *testing.T) {
	rep := New(record(), []check.Verdict{
		{Checker: "faults", Checked: 2},
		{Checker: "watch", Checked: 9, Total: 3, Violations: []string{"event 4 came twice\n    at 1 s\n    at 2 s"}},
	})
	rep.Dir = t.TempDir()
	if err := rep.Save(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(rep.Dir, TextFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"VIOLATED", "seed 7", "stood still", "kill-leader", "3 VIOLATIONS", "event 4 came twice", "failover p50 2010 ms", "vote-split 1", "in none of these: log-appended"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the report does not say %q:\n%s", want, text)
		}
	}
	raw, err := os.ReadFile(filepath.Join(rep.Dir, JSONFile))
	if err != nil || !json.Valid(raw) {
		t.Errorf("JSON: %v", err)
	}
	var line bytes.Buffer
	if err := json.NewEncoder(&line).Encode(Sum([]*Report{rep, New(record(), nil), New(&history.Record{}, nil)})); err != nil {
		t.Fatal(err)
	}
	want := `{"operations":3600,"faults":4,"violations":3,"void":1,"failover_p50_ms":2010,"failover_p99_ms":2010,"checker":"watch","evidence":"event 4 came twice\n    at 1 s\n    at 2 s","alarms":{"watch":"event 4 came twice\n    at 1 s\n    at 2 s"}}`
	if strings.TrimSpace(line.String()) != want {
		t.Errorf("summary\n%s, want\n%s", line.String(), want)
	}
}
