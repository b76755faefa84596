package rpc

import (
	"math/bits"

	"google.golang.org/protobuf/types/known/durationpb"
)

const nsPerSecond = 1_000_000_000

// totalSecondsMax is the longest duration that a message can say: about 10,000 years.
const totalSecondsMax = 315_576_000_000

// total is a sum of times, such as core time: an int64 of nanoseconds ends at 292 core-years. It stops
// at the longest duration that a message can say.
type total struct{ seconds, ns uint64 }

// add adds so many times a duration in nanoseconds. A negative one counts as none.
func (t *total) add(ns int64, times uint64) {
	hi, lo := bits.Mul64(uint64(max(ns, 0)), times)
	if hi >= nsPerSecond { // the quotient would not fit, and is beyond the limit
		t.seconds = totalSecondsMax
		return
	}
	seconds, rest := bits.Div64(hi, lo, nsPerSecond)
	t.join(total{seconds, rest})
}

// join adds another sum.
func (t *total) join(o total) {
	t.ns += o.ns
	t.seconds = min(t.seconds+t.ns/nsPerSecond+min(o.seconds, totalSecondsMax), totalSecondsMax)
	t.ns %= nsPerSecond
}

// message is the sum for clients.
func (t *total) message() *durationpb.Duration {
	if t.seconds == totalSecondsMax {
		return &durationpb.Duration{Seconds: totalSecondsMax}
	}
	return &durationpb.Duration{Seconds: int64(t.seconds), Nanos: int32(t.ns)}
}
