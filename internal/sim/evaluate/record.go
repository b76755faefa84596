package evaluate

import (
	"cmp"
	"slices"

	"rota/internal/sim/workload"
)

// entry is what is known of an action that has ended. Times are nanoseconds.
type entry struct {
	submitted, act, queue, exec int64
	started, busy, resizes      int64
	class                       int32
	tries                       uint8
	kind                        workload.Kind
	failed, key                 bool
}

// recorder remembers what a run did.
type recorder struct {
	entries      []entry
	classes      []string
	known        map[string]int32
	steps        []int64
	trajectories int64
	think        int64
	end          int64
	forecasts    forecasts
}

// add records an action at its end.
func (c *recorder) add(now int64, a *call, ok bool) {
	class, found := c.known[a.Class]
	if !found {
		if c.known == nil {
			c.known = make(map[string]int32)
		}
		class = int32(len(c.classes))
		c.known[a.Class] = class
		c.classes = append(c.classes, a.Class)
	}
	c.entries = append(c.entries, entry{
		submitted: a.submitted, act: now - a.submitted, queue: a.queue, exec: a.exec,
		started: a.started, busy: a.busy, resizes: a.resizes, class: class, tries: uint8(min(a.try+1, 255)), kind: a.Kind, failed: !ok,
		key: a.busy > 0,
	})
	c.end = max(c.end, now)
	c.forecasts.add(a)
}

func (c *recorder) over(r *rollout) {
	c.trajectories++
	for i := range r.Turns {
		c.think += r.Turns[i].Think
	}
}

func (c *recorder) step(_ int, took int64) { c.steps = append(c.steps, took) }

// MS is a time in milliseconds, to the microsecond.
type MS float64

func ms(ns int64) MS { return MS(ns/1000) / 1000 }

// Stats describes actions.
type Stats struct {
	Actions      int64 `json:"actions"`
	ACTMean      MS    `json:"act_mean_ms"`
	ACTP50       MS    `json:"act_p50_ms"`
	ACTP90       MS    `json:"act_p90_ms"`
	ACTP99       MS    `json:"act_p99_ms"`
	QueueMean    MS    `json:"queue_mean_ms"`
	ExecMean     MS    `json:"exec_mean_ms"`
	OverheadMean MS    `json:"overhead_mean_ms"`
	// Failed are those that failed in the end, Retries what was tried again.
	Failed  int64 `json:"failed"`
	Retries int64 `json:"retries"`
	// Resizes are how often actions were given other cores, Resized how many were at all.
	Resizes int64 `json:"resizes"`
	Resized int64 `json:"resized_actions"`
}

// Result is what a policy made of a workload. Overhead is what is neither queue
// nor execution: commits, dispatch, set-up, pauses before another try.
type Result struct {
	Stats
	// Utilisation is busy units over capacity until the last action ended, Busy the
	// same over the time in which at least one action was under way.
	Utilisation int64    `json:"utilisation_ppm"`
	Busy        int64    `json:"utilisation_busy_ppm"`
	Capacity    Capacity `json:"capacity"`
	Makespan    MS       `json:"makespan_ms"`
	StepMean    MS       `json:"step_mean_ms"`
	// Of a trajectory: what its model thought, and the ACTs of its actions.
	Trajectories int64            `json:"trajectories"`
	ThinkMean    MS               `json:"trajectory_think_mean_ms"`
	ToolMean     MS               `json:"trajectory_tool_mean_ms"`
	RewardMean   MS               `json:"trajectory_reward_mean_ms"`
	Kinds        map[string]Stats `json:"kinds"`
	Classes      map[string]Stats `json:"classes"`

	// Estimates are nil unless the input asks for them.
	Estimates *Estimates `json:"estimates,omitempty"`

	entries   []entry
	end       int64
	forecasts forecasts
}

var kindNames = map[workload.Kind]string{workload.Tool: "tool", workload.Reward: "reward"}

// result computes what there is to say.
func (c *recorder) result(capacity Capacity) *Result {
	r := &Result{
		Stats: stats(c.entries, nil), Capacity: capacity, Makespan: ms(c.end), Trajectories: c.trajectories,
		Kinds: make(map[string]Stats), Classes: make(map[string]Stats), entries: c.entries, end: c.end,
		Estimates: c.forecasts.result(), forecasts: c.forecasts,
	}
	each := max(1, c.trajectories)
	sums := [2]int64{}
	for i := range c.entries {
		sums[c.entries[i].kind] += c.entries[i].act
	}
	r.ThinkMean, r.ToolMean, r.RewardMean = ms(c.think/each), ms(sums[workload.Tool]/each), ms(sums[workload.Reward]/each)
	for kind, name := range kindNames {
		if s := stats(c.entries, func(e *entry) bool { return e.kind == kind }); s.Actions > 0 {
			r.Kinds[name] = s
		}
	}
	for i, name := range c.classes {
		r.Classes[name] = stats(c.entries, func(e *entry) bool { return e.class == int32(i) })
	}
	total := int64(0)
	for _, took := range c.steps {
		total += took
	}
	r.StepMean = ms(total / max(1, int64(len(c.steps))))
	r.utilisation()
	return r
}

// utilisation relates what was busy to what there is.
func (r *Result) utilisation() {
	busy, spans := int64(0), make([][2]int64, 0, len(r.entries))
	for i := range r.entries {
		e := &r.entries[i]
		busy += e.busy
		if e.key {
			spans = append(spans, [2]int64{e.submitted, e.submitted + e.act})
		}
	}
	if r.Capacity.Units == 0 {
		return
	}
	r.Utilisation = perMillion(busy, r.Capacity.Units, r.end)
	r.Busy = perMillion(busy, r.Capacity.Units, covered(spans))
}

// covered is the time that at least one of the spans covers.
func covered(spans [][2]int64) (total int64) {
	slices.SortFunc(spans, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	end := int64(0)
	for _, s := range spans {
		if s[1] > end {
			total += s[1] - max(s[0], end)
			end = s[1]
		}
	}
	return total
}

// stats describes the entries that are asked for.
func stats(entries []entry, want func(*entry) bool) (s Stats) {
	acts := make([]int64, 0, len(entries))
	var act, queue, exec int64
	for i := range entries {
		e := &entries[i]
		if want != nil && !want(e) {
			continue
		}
		acts = append(acts, e.act)
		act += e.act
		queue += e.queue
		exec += e.exec
		s.Retries += int64(e.tries) - 1
		s.Resizes += e.resizes
		if e.resizes > 0 {
			s.Resized++
		}
		if e.failed {
			s.Failed++
		}
	}
	n := int64(len(acts))
	if n == 0 {
		return s
	}
	slices.Sort(acts)
	at := func(percent int64) MS { return ms(acts[percent*(n-1)/100]) }
	s.Actions = n
	s.ACTMean, s.QueueMean, s.ExecMean, s.OverheadMean = ms(act/n), ms(queue/n), ms(exec/n), ms((act-queue-exec)/n)
	s.ACTP50, s.ACTP90, s.ACTP99 = at(50), at(90), at(99)
	return s
}
