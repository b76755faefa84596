package runtime_test

import (
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"rota/agent/plan"
	"rota/agent/runtime"
)

// BenchmarkStartNoop runs /bin/true as an attempt and as a bare fork and exec in
// turns, and reports the medians and their difference.
func BenchmarkStartNoop(b *testing.B) {
	for _, mode := range []string{runtime.ModeHybrid, runtime.ModeCgroupV1, runtime.ModeCgroupV2, runtime.ModeAffinity} {
		b.Run(mode, func(b *testing.B) {
			c := dial(b, options(b.TempDir(), mode))
			var bare, attempt []time.Duration
			n := uint64(0)
			for b.Loop() {
				begin := time.Now()
				pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
					b.Fatal(err)
				}
				bare = append(bare, time.Since(begin))
				n++
				begin = time.Now()
				runOne(b, c, noop(n))
				attempt = append(attempt, time.Since(begin))
				if err := c.Forget(b.Context(), []plan.Key{key(n)}); err != nil {
					b.Fatal(err)
				}
			}
			slices.Sort(bare)
			slices.Sort(attempt)
			half := len(bare) / 2
			us := func(d time.Duration) float64 { return float64(d.Microseconds()) }
			b.ReportMetric(us(bare[half]), "µs-bare-p50")
			b.ReportMetric(us(attempt[half]), "µs-attempt-p50")
			b.ReportMetric(us(attempt[half]-bare[half]), "µs-overhead-p50")
		})
	}
}

func noop(n uint64) runtime.Spec {
	return runtime.Spec{Key: key(n), Argv: []string{"/bin/true"}, CPUs: []int{int(n % 2)}, MemoryBytes: 64 << 20}
}

// BenchmarkThroughput keeps 16 no-ops going.
func BenchmarkThroughput(b *testing.B) {
	c := dial(b, options(b.TempDir(), ""))
	var n atomic.Uint64
	var done []plan.Key
	const ahead = 16
	for range ahead {
		start(b, c, noop(n.Add(1)))
	}
	for b.Loop() {
		done = append(done, nextExit(b, c).Key)
		start(b, c, noop(n.Add(1)))
		if len(done) == 64 {
			if err := c.Forget(b.Context(), done); err != nil {
				b.Fatal(err)
			}
			done = done[:0]
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "attempts/s")
	for range ahead {
		nextExit(b, c)
	}
}

// BenchmarkCall is the way to the supervisor and back, with nothing to do there.
func BenchmarkCall(b *testing.B) {
	c := dial(b, options(b.TempDir(), runtime.ModeAffinity))
	for b.Loop() {
		if err := c.Kill(b.Context(), key(1), plan.ReasonCanceled); err != nil {
			b.Fatal(err)
		}
	}
}
