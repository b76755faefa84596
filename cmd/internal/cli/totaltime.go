package cli

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
)

// totalTime returns how sums of times are written: in seconds for CSV. A sum such as core time may be
// longer than a time.Duration, which ends at 292 years.
func totalTime(asCSV bool) func(*durationpb.Duration) string {
	return func(d *durationpb.Duration) string {
		if asCSV {
			return fmt.Sprintf("%d.%03d", d.GetSeconds(), d.GetNanos()/int32(time.Millisecond))
		}
		if d.GetSeconds() < int64(longTotal/time.Second) {
			return formatDuration(d.AsDuration())
		}
		return fmt.Sprintf("%dh", d.GetSeconds()/int64(time.Hour/time.Second))
	}
}

// longTotal is from where on a sum is written in whole hours.
const longTotal = 100 * 365 * 24 * time.Hour

// saved is how much shorter the second sum is than the first, not less than nothing.
func saved(held, used *durationpb.Duration) *durationpb.Duration {
	d := &durationpb.Duration{Seconds: held.GetSeconds() - used.GetSeconds(), Nanos: held.GetNanos() - used.GetNanos()}
	if d.Nanos < 0 {
		d.Seconds, d.Nanos = d.Seconds-1, d.Nanos+int32(time.Second)
	}
	if d.Seconds < 0 {
		return &durationpb.Duration{}
	}
	return d
}
