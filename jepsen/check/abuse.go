package check

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"rota/jepsen/history"
)

const (
	// turnaroundsMin is how many ordinary actions each phase has at least, so that a
	// percentile means something.
	turnaroundsMin = 200
	// serverMemoryMax is what a server may have resident, whoever sends what.
	serverMemoryMax = 1 << 30
	// officesMax is how many elections there may be: attackers, commands and servers share
	// the CPUs of one machine, and a leader that gets none for half a second steps down.
	// The scenario abuse-latency is played on a quiet machine, and allows none.
	officesMax = 3
	// slowerMax is how many times its quiet value the p99 of the ordinary load may be.
	slowerMax = 3
)

// abuse: those who mean harm achieve nothing, and the ordinary load goes on as before.
func abuse(e *evidence, f *findings) {
	a := e.Abuse
	if a == nil {
		return // and nothing was checked
	}
	for _, n := range a.Tried {
		f.checked += n
	}
	if len(a.Achieved) > 0 {
		f.add(a.Achieved, "%d things were achieved that must not be possible", len(a.Achieved))
	}
	inOffice(a, f)
	for _, server := range slices.Sorted(maps.Keys(a.MemoryPeaks)) {
		if peak := a.MemoryPeaks[server]; peak > serverMemoryMax {
			f.add(nil, "%s has had %d MiB of memory, at most %d MiB are allowed", server, peak>>20, serverMemoryMax>>20)
		}
	}
	allSucceeded(e, f)
}

// inOffice: there is a leader in the end, and there were not many before it.
func inOffice(a *history.Abuse, f *findings) {
	if a.After.LeaderID == "" || a.After.Term > a.Before.Term+officesMax {
		f.add([]string{describeSample(a.Before), describeSample(a.After)}, "leaders did not stay in office")
	}
}

// allSucceeded: each action of the ordinary load is accepted, and succeeds in its only
// attempt.
func allSucceeded(e *evidence, f *findings) {
	for _, t := range e.Turnarounds {
		f.checked++
		if t.Error != "" || t.State != "SUCCEEDED" || t.Attempt != 1 {
			f.add([]string{describeTurnaround(t)}, "action %d of the ordinary load did not succeed in its only attempt", t.Action)
		}
	}
}

// latency: the ordinary load does not wait much longer than before.
func latency(e *evidence, f *findings) {
	a := e.Abuse
	if a == nil {
		return // and nothing was checked
	}
	if a.Before.LeaderID != a.After.LeaderID || a.Before.Term != a.After.Term {
		f.add([]string{describeSample(a.Before), describeSample(a.After)}, "the leader did not stay in office")
	}
	quiet, abused := e.TurnaroundsOf(a.QuietStart, a.Start), e.TurnaroundsOf(a.Start, a.End)
	f.checked = len(quiet) + len(abused)
	if min(len(quiet), len(abused)) < turnaroundsMin {
		f.add(nil, "the ordinary load had %d actions in the quiet phase and %d in the abused one, at least %d of each are wanted", len(quiet), len(abused), turnaroundsMin)
		return
	}
	if was, is := history.Took(quiet, 99), history.Took(abused, 99); is > slowerMax*was {
		f.add(slowest(abused), "an ordinary action took %v at p99 and %v when quiet: more than %d times as long",
			time.Duration(is).Round(time.Millisecond), time.Duration(was).Round(time.Millisecond), slowerMax)
	}
}

// slowest are a few of those that took longest.
func slowest(all []history.Turnaround) (lines []string) {
	slices.SortFunc(all, func(a, b history.Turnaround) int { return int(b.End - b.Start - a.End + a.Start) })
	for _, t := range all[:min(len(all), violationsMax)] {
		lines = append(lines, describeTurnaround(t))
	}
	return lines
}

func describeTurnaround(t history.Turnaround) string {
	return fmt.Sprintf("%s to %s: action %d %s, attempt %d %s", at(t.Start), at(t.End), t.Action, t.State, t.Attempt, t.Error)
}
