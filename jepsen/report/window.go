package report

import (
	"cmp"
	"slices"
	"time"

	"rota/jepsen/history"
)

// windowMax is the longest stretch that is looked at before and after a fault.
const windowMax = int64(3 * time.Second)

// Window is what clients felt in a stretch of time.
type Window struct {
	Seconds float64 `json:"seconds"`
	// PerSecond counts the calls that were answered with success; percentiles
	// are of these, in milliseconds.
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	// NotOK counts the calls that were refused or whose outcome is unknown.
	NotOK int `json:"not_ok"`
}

// Around is one fault with what clients felt before, during and after it.
type Around struct {
	Fault  history.Fault `json:"fault"`
	Before Window        `json:"before"`
	During Window        `json:"during"`
	After  Window        `json:"after"`
	// WriteAfter is how long after its end the first write that began then was
	// acknowledged, in milliseconds; nil: none was.
	WriteAfter *float64 `json:"write_after_ms"`
}

// around cuts the run at its faults. Neighbours are kept out of the windows
// before and after a fault as far as there is room between them.
func around(ops []history.Op, faults []history.Fault, end int64) []Around {
	ended := slices.Clone(ops)
	slices.SortFunc(ended, func(a, b history.Op) int { return cmp.Compare(a.End, b.End) })
	var all []Around
	for i, f := range faults {
		stop := f.End
		if stop == 0 {
			stop = f.Start + windowMax
		}
		from, to := f.Start-windowMax, stop+windowMax
		for j, other := range faults {
			if j < i {
				from = max(from, min(other.End, f.Start))
			}
			if j > i && other.Start >= stop {
				to = min(to, other.Start)
			}
		}
		var write *float64
		if first := history.FirstWrite(ops, stop); first > 0 {
			took := millis(first - stop)
			write = &took
		}
		all = append(all, Around{
			WriteAfter: write,
			Fault:      f,
			Before:     window(ended, max(from, 0), f.Start),
			During:     window(ended, f.Start, stop),
			After:      window(ended, stop, max(min(to, end), stop)),
		})
	}
	return all
}

// window looks at the calls that ended in [from, to). They are sorted by end.
func window(ended []history.Op, from, to int64) Window {
	at := func(t int64) int {
		i, _ := slices.BinarySearchFunc(ended, t, func(op history.Op, t int64) int { return cmp.Compare(op.End, t) })
		return i
	}
	w := Window{Seconds: float64(to-from) / 1e9}
	var took []int64
	for _, op := range ended[at(from):at(to)] {
		if op.Outcome == history.OK {
			took = append(took, op.End-op.Start)
		} else {
			w.NotOK++
		}
	}
	if w.Seconds > 0 {
		w.PerSecond = float64(len(took)) / w.Seconds
	}
	w.P50, w.P99 = millis(history.Percentile(took, 50)), millis(history.Percentile(took, 99))
	return w
}

// failovers are the times from each kill of a leader to the end of the first
// write that began after it and was acknowledged. A kill that no write follows
// has none.
func failovers(ops []history.Op, faults []history.Fault) (took []int64) {
	for _, f := range faults {
		if first := history.FirstWrite(ops, f.Start); f.LeaderKilled && first > 0 {
			took = append(took, first-f.Start)
		}
	}
	return took
}

func millis(ns int64) float64 { return float64(ns/1000) / 1000 }
