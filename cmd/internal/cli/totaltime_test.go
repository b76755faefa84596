package cli

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
)

// Sums of core time may be longer than a time.Duration.
func TestTotalTimes(t *testing.T) {
	years := func(n int64) *durationpb.Duration {
		return &durationpb.Duration{Seconds: n * 365 * 24 * 3600, Nanos: 500_000_000}
	}
	for _, c := range []struct {
		d         *durationpb.Duration
		text, csv string
	}{
		{nil, "0s", "0.000"},
		{durationpb.New(1500 * time.Millisecond), "1.5s", "1.500"},
		{years(1), "8760h0m0.5s", "31536000.500"},
		{years(1000), "8760000h", "31536000000.500"},
	} {
		if text, csv := totalTime(false)(c.d), totalTime(true)(c.d); text != c.text || csv != c.csv {
			t.Errorf("%v is written %q and %q, want %q and %q", c.d, text, csv, c.text, c.csv)
		}
	}
	for _, c := range []struct{ held, used, want *durationpb.Duration }{
		{years(1000), years(1), &durationpb.Duration{Seconds: 999 * 365 * 24 * 3600}},
		{durationpb.New(2 * time.Second), durationpb.New(500 * time.Millisecond), durationpb.New(1500 * time.Millisecond)},
		{durationpb.New(time.Second), durationpb.New(1500 * time.Millisecond), &durationpb.Duration{}},
	} {
		if got := saved(c.held, c.used); got.Seconds != c.want.Seconds || got.Nanos != c.want.Nanos {
			t.Errorf("%v without %v is %v", c.held, c.used, got)
		}
	}
}
