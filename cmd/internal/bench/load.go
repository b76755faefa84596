package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Rate is how fast something went.
type Rate struct {
	What       string  `json:"what"`
	Submitters int     `json:"submitters"`
	Seconds    float64 `json:"seconds"`
	Count      int     `json:"count"`
	PerSecond  float64 `json:"per_second"`
	// Of one call, in milliseconds.
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	MaxMS float64 `json:"max_ms"`
}

// call is one request of a load; it returns how many things it got done.
type call func(ctx context.Context, worker int) (int, error)

// warmUp is how long a load runs before it is measured.
const warmUp = time.Second

// load makes calls from n workers for a while, one after the other each. Only
// calls that end within the measured time count.
func load(ctx context.Context, what string, n int, d time.Duration, do call) (Rate, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	begin := time.Now().Add(warmUp)
	end := begin.Add(d)
	latencies := make([][]time.Duration, n)
	counts := make([]int, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				if began.After(end) {
					return
				}
				done, err := do(ctx, i)
				if err != nil {
					cancel(fmt.Errorf("%s: %w", what, err))
					return
				}
				if now := time.Now(); now.After(begin) && now.Before(end) {
					latencies[i] = append(latencies[i], now.Sub(began))
					counts[i] += done
				}
			}
		})
	}
	wg.Wait()
	r := Rate{What: what, Submitters: n, Seconds: d.Seconds()}
	for _, c := range counts {
		r.Count += c
	}
	r.PerSecond = float64(r.Count) / d.Seconds()
	r.P50MS, r.P99MS, r.MaxMS = quantiles(slices.Concat(latencies...))
	err := context.Cause(ctx)
	if err == nil && r.Count == 0 {
		err = errors.New(what + ": not one call ended in the measured time")
	}
	return r, err
}

// quantiles sorts its argument and returns the median, the 99th percentile and
// the maximum in milliseconds.
func quantiles(list []time.Duration) (p50, p99, most float64) {
	if len(list) == 0 {
		return 0, 0, 0
	}
	slices.Sort(list)
	return ms(rank(list, 50)), ms(rank(list, 99)), ms(list[len(list)-1])
}

// rank is the nearest rank of sorted values.
func rank(sorted []time.Duration, percent int) time.Duration {
	return sorted[max(1, (len(sorted)*percent+99)/100)-1]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
