package rpc

import (
	"testing"
	"time"
)

// TestRangesOfTime: what lies outside of a range does not count, and no bound is no bound.
func TestRangesOfTime(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	for _, c := range []struct {
		r        timeRange
		from, to int64
		want     time.Duration
	}{
		{timeRange{}, 10, 30, 20 * time.Second},
		{timeRange{from: at(20)}, 10, 30, 10 * time.Second},
		{timeRange{to: at(20)}, 10, 30, 10 * time.Second},
		{timeRange{at(15), at(25)}, 10, 30, 10 * time.Second},
		{timeRange{at(40), at(50)}, 10, 30, 0},
		{timeRange{at(0), at(5)}, 10, 30, 0},
	} {
		if got := c.r.overlap(at(c.from), at(c.to)); got != c.want {
			t.Errorf("%v with %d to %d: %v, want %v", c.r, c.from, c.to, got, c.want)
		}
	}
	r := timeRange{at(10), at(20)}
	if r.has(at(9)) || !r.has(at(10)) || !r.has(at(19)) || r.has(at(20)) {
		t.Error("a range has its beginning and not its end")
	}
}
