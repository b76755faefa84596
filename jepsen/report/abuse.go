package report

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"rota/jepsen/history"
)

// Abuse is what those who meant harm cost the ordinary load.
type Abuse struct {
	Quiet  Turnarounds `json:"quiet"`
	Abused Turnarounds `json:"abused"`
	// Ratio of the p99, abused to quiet.
	Ratio float64 `json:"p99_ratio"`
	// MemoryPeaks are in bytes, by server.
	MemoryPeaks map[string]uint64 `json:"memory_peaks"`
	Tried       int               `json:"tried"`
	Skipped     []string          `json:"skipped,omitempty"`
}

// Turnarounds are the actions of the ordinary load in one phase, in milliseconds from
// their submission to when their clients knew their end.
type Turnarounds struct {
	Actions int     `json:"actions"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
}

// abused is nil if nobody meant harm.
func abused(r *history.Record) *Abuse {
	a := r.Abuse
	if a == nil {
		return nil
	}
	phase := func(from, to int64) Turnarounds {
		all := r.TurnaroundsOf(from, to)
		return Turnarounds{len(all), millis(history.Took(all, 50)), millis(history.Took(all, 99))}
	}
	out := &Abuse{
		Quiet: phase(a.QuietStart, a.Start), Abused: phase(a.Start, a.End), MemoryPeaks: a.MemoryPeaks, Skipped: a.Skipped,
	}
	if out.Quiet.P99 > 0 {
		out.Ratio = out.Abused.P99 / out.Quiet.P99
	}
	for _, n := range a.Tried {
		out.Tried += n
	}
	return out
}

func (r *Report) writeAbuse(w io.Writer) {
	a := r.Abuse
	if a == nil {
		return
	}
	table(w, "ordinary actions, from submission to known end", func(row func(string, ...any)) {
		row("phase\tactions\tp50 ms\tp99 ms")
		row("quiet\t%d\t%.1f\t%.1f", a.Quiet.Actions, a.Quiet.P50, a.Quiet.P99)
		row("abused\t%d\t%.1f\t%.1f", a.Abused.Actions, a.Abused.P50, a.Abused.P99)
	})
	fmt.Fprintf(w, "  p99 is %.2f times its quiet value; %d hostile attempts\n", a.Ratio, a.Tried)
	for _, server := range slices.Sorted(maps.Keys(a.MemoryPeaks)) {
		fmt.Fprintf(w, "  %s has had %d MiB of memory resident\n", server, a.MemoryPeaks[server]>>20)
	}
	for _, why := range a.Skipped {
		fmt.Fprintf(w, "  %s\n", why)
	}
}
