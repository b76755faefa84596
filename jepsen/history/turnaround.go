package history

import "slices"

// Turnaround is one action of the ordinary load, whose actions are all alike, from its
// submission to when its client knew its end. How long they take says how the cluster
// does.
type Turnaround struct {
	Start int64 `json:"start"`
	End   int64 `json:"end"`
	// Action is 0 if it was not accepted, and Error why it, or its end, is not known.
	Action  uint64 `json:"action,omitempty"`
	State   string `json:"state,omitempty"`
	Attempt uint32 `json:"attempt,omitempty"`
	Error   string `json:"error,omitempty"`
}

// TurnaroundsOf are those that began in [from, to) and came to an end.
func (rec *Record) TurnaroundsOf(from, to int64) (all []Turnaround) {
	for _, t := range rec.Turnarounds {
		if t.Start >= from && t.Start < to && t.Error == "" {
			all = append(all, t)
		}
	}
	return all
}

// AddTurnaround adds an action of the ordinary load.
func (r *Recorder) AddTurnaround(t Turnaround) {
	r.Update(func(rec *Record) { rec.Turnarounds = append(rec.Turnarounds, t) })
}

// Took is the p-th percentile of how long they took, in nanoseconds.
func Took(all []Turnaround, p int) int64 {
	var took []int64
	for _, t := range all {
		took = append(took, t.End-t.Start)
	}
	return Percentile(took, p)
}

// Percentile is the smallest value that at least p percent do not exceed, 0 of nothing.
func Percentile(values []int64, p int) int64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}
