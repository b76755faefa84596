package worker

import (
	"fmt"
	"strings"

	"rota/fsm/state"
)

// Explain says in one sentence why a trajectory is at its worker, or why it has none.
func Explain(s *state.State, g *state.Generation) string {
	switch {
	case g.Ended && g.Last == "":
		return "ended before it was given a worker"
	case g.Ended:
		return fmt.Sprintf("ended; was at worker %s: %s", g.Last, chosen(s, g))
	case g.Worker != "":
		return arrived(s, g) + chosen(s, g)
	case g.Suspended:
		return "has no worker, and is given one when it is resumed"
	case !s.WaitsForWorker(g):
		return "waits for its node, and is given a worker then"
	}
	return waits(s, g)
}

// arrived says why a trajectory left the worker before, and what is the matter with this one.
func arrived(s *state.State, g *state.Generation) string {
	why := map[state.PlacementCause]string{ // for look-up only
		state.PlacedFailed: "its worker failed: ", state.PlacedDrained: "its worker drains: ", state.PlacedStale: "its worker missed a version: ",
		state.PlacedRemoved: "its worker was removed: ", state.PlacedChanged: "its worker was registered again: ",
	}[g.Cause]
	switch w := s.Worker(g.Worker); s.WorkerState(w) {
	case state.WorkerStale:
		return fmt.Sprintf("waits until its worker has version %d of the policy, which has %d: %s", s.Policy(w.Policy).Version, w.Version, why)
	case state.WorkerDraining:
		return "its worker drains, and it leaves between two turns if another has room: " + why
	}
	return why
}

// chosen says what was compared when the worker was chosen.
func chosen(s *state.State, g *state.Generation) string {
	if g.Cause == state.PlacedByPlan {
		return "moved by a plan, as its predicted length changed"
	}
	of, took := fmt.Sprintf("of %d workers with free slots", g.Choice.Candidates), "its predicted work took least"
	if g.Choice.Candidates == 1 {
		of, took = "the only worker with a free slot", "its predicted work took"
	}
	switch p := int(g.Choice.Preferred); {
	case g.Choice.By == state.HardwareRuled:
		of += fmt.Sprintf(" and hardware that the affinity of its task class prefers, choice %d,", p)
	case p > 0 && p <= len(g.Hardware):
		of += fmt.Sprintf(" and hardware %s, choice %d of %d,", g.Hardware[p-1], p, len(g.Hardware))
	case len(g.Hardware) > 0:
		of += fmt.Sprintf(", none of hardware %s%s,", strings.Join(g.Hardware, " or "), little(s.AffinityOf(g.Policy, g.TaskClass)))
	case g.Choice.By == state.HardwareMeasured:
		return fmt.Sprintf("%s, its hardware suits the trajectory best for the work that it has: prompts are predicted to take %d %% of its time (%s); all work there takes %s%s",
			of, g.Choice.PrefillPercent, heavy(g.Choice.PrefillPercent), seconds(g.Choice.WorkNS), next(g.Choice.NextNS))
	}
	if g.Choice.NextNS != 0 && g.Choice.NextNS < g.Choice.WorkNS {
		took = "its predicted work took least for its price:"
	}
	text := fmt.Sprintf("%s %s %s", strings.TrimSuffix(of, ",")+",", took, seconds(g.Choice.WorkNS))
	return text + next(g.Choice.NextNS)
}

// little says what else keeps workers of the hardware that a trajectory prefers from being chosen.
func little(a *state.Affinity) string {
	if a == nil || a.SpillPercent == 0 {
		return ""
	}
	return " with little enough work"
}

// heavy says what a trajectory is dominated by (RollArt §3.1).
func heavy(prefillPercent uint8) string {
	if prefillPercent >= 50 {
		return "prefill-heavy"
	}
	return "decode-heavy"
}

// next says how long the work of the next best worker takes.
func next(ns int64) string {
	if ns == 0 {
		return ""
	}
	return fmt.Sprintf(" (next: %s)", seconds(ns))
}

// waits says why none of the workers takes a trajectory.
func waits(s *state.State, g *state.Generation) string {
	v := Of(s, g.Policy)
	if len(v) == 0 {
		return fmt.Sprintf("waits for a worker: policy %s has none; see: rota worker register", g.Policy)
	}
	if at, _ := v.Choose(g, s.AffinityOf(g.Policy, g.TaskClass)); at >= 0 {
		return "waits for a worker: it is placed with the next entry"
	}
	var n [state.WorkerDraining + 1]int
	for i := range v {
		n[v[i].State]++
	}
	var parts []string
	for i, what := range []string{"full", "without the version of the policy", "down", "draining"} {
		if count := n[i+1]; count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count, what))
		}
	}
	return fmt.Sprintf("waits for a worker: of policy %s, %s", g.Policy, strings.Join(parts, ", "))
}

// seconds formats nanoseconds.
func seconds(ns int64) string {
	tenths := ns / 100_000_000
	return fmt.Sprintf("%d.%d s", tenths/10, tenths%10)
}
