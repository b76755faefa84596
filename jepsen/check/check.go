package check

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"rota/jepsen/history"
)

// violationsMax is how many violations a verdict shows.
const violationsMax = 5

// Verdict is what one checker found in one record.
type Verdict struct {
	Checker string `json:"checker"`
	// Checked counts what was looked at, in the checker's own units. None is no
	// proof: see Vacuous.
	Checked int `json:"checked"`
	// Violations are sentences, each followed by the calls, executions or entries
	// that show it, one indented line each. The shortest comes first.
	Violations []string `json:"violations,omitempty"`
	// Total counts all violations, also those that are not shown.
	Total int `json:"total,omitempty"`
	// Partly is what kept the checker from looking at all that it is for; empty: nothing.
	Partly string `json:"partly,omitempty"`
	// Skipped is why the scenario says that the checker does not apply.
	Skipped string `json:"skipped,omitempty"`
}

// Vacuous reports whether the checker should have looked at something and found
// nothing to look at.
func (v Verdict) Vacuous() bool { return v.Checked == 0 && v.Skipped == "" }

// OK reports whether the promise was seen to be kept, or does not apply.
func (v Verdict) OK() bool { return len(v.Violations) == 0 && !v.Vacuous() }

// Checker holds one promise against a record.
type Checker struct {
	Name    string
	Promise string
	Check   func(*history.Record) Verdict

	find func(*evidence, *findings)
}

// Limits are what a scenario expects of its run.
type Limits struct {
	// OpsPerSecondMin is how many calls have to be answered per second from the
	// first fault until the load ends; 0: one.
	OpsPerSecondMin float64
	// RecoveryMax is how long after the end of a fault the first write may be answered, 0:
	// recoveryDefault; SettleMax how long after the load all must have ended, 0: settleDefault.
	RecoveryMax, SettleMax time.Duration
	// Skip has the checkers that do not apply, each with the reason.
	Skip map[string]string
}

const (
	recoveryDefault = 10 * time.Second
	settleDefault   = 60 * time.Second
)

func (l Limits) withDefaults() Limits {
	l.OpsPerSecondMin = cmp.Or(l.OpsPerSecondMin, 1)
	l.RecoveryMax = cmp.Or(l.RecoveryMax, recoveryDefault)
	l.SettleMax = cmp.Or(l.SettleMax, settleDefault)
	return l
}

// All returns every checker, those that cost most last. Their Check uses the
// default limits.
func All() []Checker {
	all := []Checker{
		{Name: "faults", Promise: "every fault took effect", find: faults},
		{Name: "rate", Promise: "calls went on being answered under the faults", find: rate},
		{Name: "recovery", Promise: "after each fault writes go on, and in the end everything ends and nothing is left", find: recovery},
		{Name: "leaders", Promise: "a term has one leader", find: leaders},
		{Name: "hashes", Promise: "servers have the same state at the same index", find: hashes},
		{Name: "members", Promise: "voters change only as asked", find: members},
		{Name: "logs", Promise: "servers have the same committed entries", find: logs},
		{Name: "abuse", Promise: "those who mean harm achieve nothing, and the ordinary load loses nothing by them", find: abuse},
		{Name: "latency", Promise: "those who mean harm do not slow the ordinary load down by more than three times", find: latency},
		{Name: "ends", Promise: "what ends while no server can be reached is told as it ended", find: ends},
		{Name: "at-most-one", Promise: "an action has one live execution at most, and in all as many as it allows", find: atMostOne},
		{Name: "cores", Promise: "a core has one user", find: cores},
		{Name: "widths", Promise: "an attempt has as many cores and GPUs as its action can use", find: widths},
		{Name: "gpus", Promise: "a GPU has one user, an action or a turn, and an action that has several has an aligned chunk", find: gpus},
		{Name: "engines", Promise: "an action is answered by the engine of its model on its own GPUs; engines that are awake fit, and none outlives its node's lease or its declaration", find: engines},
		{Name: "files", Promise: "what an action leaves in the directory of its trajectory, later ones find", find: lastingFiles},
		{Name: "samples", Promise: "a sample is given to one step, whole with its group and of an allowed version, and none that was accepted is lost", find: samples},
		{Name: "rewards", Promise: "a reward function wants as many replicas as its calls need, has no more than allowed, and is gone once removed", find: rewards},
		{Name: "tokens", Promise: "a client is streamed each token of its answer, once and in order", find: tokens},
		{Name: "versions", Promise: "no sample is generated with weights older than its trajectory, and a worker that misses a version serves nothing", find: versions},
		{Name: "quotas", Promise: "no more is in use at once than a provider allows", find: quotas},
		{Name: "windows", Promise: "no more falls into any window than a provider allows", find: windows},
		{Name: "turns", Promise: "a node group is held by one turn at a time, in order and with growing tokens, and every turn ends", find: turns},
		{Name: "nothing-lost", Promise: "what was acknowledged exists, once, and ends", find: nothingLost},
		{Name: "watch", Promise: "watchers see each event once, in order, without gaps", find: watch},
		{Name: "replay", Promise: "the log alone gives the state that the servers have, by the documented rules at every entry", find: replay},
		{Name: "linearizable", Promise: "calls take effect at one moment between start and end", find: linearizable},
	}
	for i, c := range all {
		all[i].Check = func(r *history.Record) Verdict { return c.run(gather(r, Limits{})) }
	}
	return all
}

// Run holds every checker against the record, but those that the scenario says
// do not apply.
func Run(r *history.Record, l Limits) []Verdict {
	e := gather(r, l)
	var verdicts []Verdict
	for _, c := range All() {
		if why := l.Skip[c.Name]; why != "" {
			verdicts = append(verdicts, Verdict{Checker: c.Name, Skipped: why})
			continue
		}
		verdicts = append(verdicts, c.run(e))
	}
	return verdicts
}

// run holds one checker against the record. What makes it panic is found, and others go on: the record
// of a broken cluster may be such that even the state machine's own assertions fail.
func (c Checker) run(e *evidence) (v Verdict) {
	var f findings
	defer func() {
		if r := recover(); r != nil {
			f.add(strings.Split(string(debug.Stack()), "\n"), "the checker panicked: %v", r)
			f.checked = max(1, f.checked)
			v = f.verdict(c.Name)
		}
	}()
	c.find(e, &f)
	return f.verdict(c.Name)
}

// findings collects what a checker sees.
type findings struct {
	checked int
	total   int
	kept    []finding
	partly  string
}

// finding is one violation with the lines that show it.
type finding struct {
	what    string
	witness []string
}

// findingsKept bounds what a broken run costs.
const findingsKept = 1000

func (f *findings) add(witness []string, format string, args ...any) {
	if f.total++; f.total <= findingsKept {
		f.kept = append(f.kept, finding{fmt.Sprintf(format, args...), witness})
	}
}

func (f *findings) verdict(name string) Verdict {
	slices.SortStableFunc(f.kept, func(a, b finding) int { return cmp.Compare(len(a.witness), len(b.witness)) })
	v := Verdict{Checker: name, Checked: f.checked, Total: f.total, Partly: f.partly}
	for _, k := range f.kept[:min(len(f.kept), violationsMax)] {
		v.Violations = append(v.Violations, strings.Join(append([]string{k.what}, k.witness...), "\n    "))
	}
	return v
}
