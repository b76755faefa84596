package demo

import (
	"fmt"
	"io"
	"slices"
	"time"

	"rota/cmd/internal/spin"
)

// Summary is the outcome of a demo. Its JSON form is what `rota demo -o json`
// prints. Times are in milliseconds.
type Summary struct {
	ActionsSubmitted int `json:"actions_submitted"`
	ActionsSucceeded int `json:"actions_succeeded"`
	// AcknowledgedLost counts actions whose submission returned OK and that a
	// linearizable read at the end does not show ended with a result, or that
	// are said to have succeeded although no execution bore witness.
	AcknowledgedLost int `json:"acknowledged_lost"`
	// DuplicateExecutions counts executions of an action beyond its first.
	DuplicateExecutions int `json:"duplicate_executions"`
	LeaderKills         int `json:"leader_kills"`
	// FailoverMS is from the kill to the first decision committed after it.
	FailoverMS float64 `json:"failover_ms"`
	// ACT is the action completion time: from submission to the moment the
	// submitter knows that it ended.
	ActMeanMS   float64 `json:"act_mean_ms"`
	ActP50MS    float64 `json:"act_p50_ms"`
	ActP99MS    float64 `json:"act_p99_ms"`
	QueueMeanMS float64 `json:"queue_mean_ms"`
	ExecMeanMS  float64 `json:"exec_mean_ms"`
	// Overhead is what of the ACT is neither queueing nor running; its ratio is
	// to the ACT.
	OverheadMeanMS    float64 `json:"overhead_mean_ms"`
	OverheadRatio     float64 `json:"overhead_ratio"`
	ReservedActMeanMS float64 `json:"reserved_act_mean_ms"`
	// ReservedRatios have, for each batch, ReservedActMeanMS over ActMeanMS.
	ReservedRatios []float64 `json:"reserved_ratios"`
	// Noise is how much the machine's speed varied between batches.
	Noise            spin.Noise `json:"noise"`
	StateHashesEqual bool       `json:"state_hashes_equal"`
	// Elasticity is nil on a machine with one core.
	Elasticity *Elasticity `json:"elasticity"`
	// Resizing is nil where the cores of running actions cannot be changed.
	Resizing *Resizing `json:"resizing"`
}

// OK reports whether nothing was lost, nothing ran twice and all servers agree.
func (s *Summary) OK() bool {
	return s.AcknowledgedLost == 0 && s.DuplicateExecutions == 0 && s.StateHashesEqual
}

// addTimes adds the samples of all batches.
func (s *Summary) addTimes(rotas, reserveds [][]sample) {
	for i, reserved := range reserveds {
		s.ReservedRatios = append(s.ReservedRatios, ratio(actMean(reserved), actMean(rotas[i])))
	}
	rota := slices.Concat(rotas...)
	acts := column(rota, func(x sample) time.Duration { return x.act })
	slices.Sort(acts)
	s.ActMeanMS, s.ActP50MS, s.ActP99MS = mean(acts), ms(quantile(acts, 50)), ms(quantile(acts, 99))
	s.QueueMeanMS = mean(column(rota, func(x sample) time.Duration { return x.queue }))
	s.ExecMeanMS = mean(column(rota, func(x sample) time.Duration { return x.exec }))
	s.OverheadMeanMS = mean(column(rota, sample.overhead))
	if s.ActMeanMS > 0 {
		s.OverheadRatio = s.OverheadMeanMS / s.ActMeanMS
	}
	s.ReservedActMeanMS = actMean(slices.Concat(reserveds...))
}

func actMean(samples []sample) float64 {
	return mean(column(samples, func(x sample) time.Duration { return x.act }))
}

func column(samples []sample, f func(sample) time.Duration) []time.Duration {
	list := make([]time.Duration, len(samples))
	for i, s := range samples {
		list[i] = f(s)
	}
	return list
}

func mean(list []time.Duration) float64 {
	if len(list) == 0 {
		return 0
	}
	var sum time.Duration
	for _, d := range list {
		sum += d
	}
	return ms(sum) / float64(len(list))
}

// quantile is the nearest rank of sorted values.
func quantile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*percent + 99) / 100
	return sorted[max(1, rank)-1]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Write writes the summary for people.
func (s *Summary) Write(w io.Writer) {
	verdict := "Nothing was lost, nothing ran twice, and all servers hold the same state."
	if !s.OK() {
		verdict = "THIS IS WRONG: see the counts above that should be zero, or the hashes that should be equal."
	}
	fmt.Fprintf(w, `
actions                 %d submitted, %d succeeded
acknowledged and lost   %d
executed more than once %d
leaders killed          %d; next decision after %.0f ms
state hashes            %s

action completion time  %8.0f ms mean, %.0f ms median, %.0f ms p99
  waiting for cores     %8.0f ms mean
  running               %8.0f ms mean
  overhead of rota      %8.1f ms mean, %.1f %%
`, s.ActionsSubmitted, s.ActionsSucceeded, s.AcknowledgedLost, s.DuplicateExecutions,
		s.LeaderKills, s.FailoverMS, hashWord(s.StateHashesEqual),
		s.ActMeanMS, s.ActP50MS, s.ActP99MS, s.QueueMeanMS, s.ExecMeanMS,
		s.OverheadMeanMS, 100*s.OverheadRatio)
	s.writeReserved(w)
	fmt.Fprintf(w, "noise of the machine    %v\n\n", s.Noise)
	if s.Elasticity != nil {
		s.Elasticity.write(w)
	}
	if s.Resizing != nil {
		s.Resizing.write(w)
	}
	fmt.Fprintf(w, "\n%s\n", verdict)
}

func (s *Summary) writeReserved(w io.Writer) {
	if len(s.ReservedRatios) == 0 {
		return
	}
	fmt.Fprintf(w, `with reserved cores     %8.0f ms mean, %.1f times as long (%.1f to %.1f times in %d batches)
  (one core for each trajectory, also while it thinks; its wait for the core
  counts for its first action)
`, s.ReservedActMeanMS, ratio(s.ReservedActMeanMS, s.ActMeanMS),
		slices.Min(s.ReservedRatios), slices.Max(s.ReservedRatios), len(s.ReservedRatios))
}

func hashWord(equal bool) string {
	if equal {
		return "equal on all servers"
	}
	return "NOT EQUAL"
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
