package spin

import (
	"compress/flate"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"
)

// unitBytes of text are compressed by a unit: some milliseconds of a core.
const unitBytes = 24 << 10

// Worker does work on one core. It is used by one goroutine at a time.
type Worker struct {
	text []byte
	w    *flate.Writer
}

// NewWorker returns a worker. All workers do the same.
func NewWorker() *Worker {
	w, err := flate.NewWriter(io.Discard, flate.BestCompression)
	if err != nil {
		panic(err) // the level is one that there is
	}
	rng, text := rand.New(rand.NewPCG(1, 2)), make([]byte, 0, unitBytes+8)
	for len(text) < unitBytes {
		text = fmt.Appendf(text, "w%d ", rng.IntN(2000))
	}
	return &Worker{text: text, w: w}
}

// Unit does one unit of work.
func (w *Worker) Unit() {
	w.w.Reset(io.Discard)
	_, _ = w.w.Write(w.text) // io.Discard takes everything
	_ = w.w.Close()
}

// UnitTime returns how long a unit takes on a core of its own: the shortest of several
// times, as anything else that runs makes the others longer.
func UnitTime() time.Duration {
	worker, least := NewWorker(), time.Duration(math.MaxInt64)
	for range 50 {
		began := time.Now()
		worker.Unit()
		least = min(least, time.Since(began))
	}
	return least
}

// Meter measures how much the speed of this machine varies.
type Meter struct {
	workers []*Worker
	samples []time.Duration
}

// NewMeter returns a meter of as many CPUs as this process may use.
func NewMeter() *Meter {
	m := &Meter{}
	for range runtime.NumCPU() {
		m.workers = append(m.workers, NewWorker())
	}
	return m
}

// sampleUnits is what each CPU does in a sample: about a tenth of a second.
const sampleUnits = 40

// Sample does the same work on all CPUs at once, and notes how long it took until the
// last of them was done. Call it when nothing that is measured runs.
func (m *Meter) Sample() {
	began := time.Now()
	var wg sync.WaitGroup
	for _, w := range m.workers {
		wg.Go(func() {
			for range sampleUnits {
				w.Unit()
			}
		})
	}
	wg.Wait()
	m.samples = append(m.samples, time.Since(began))
}

// Noise is how much equal samples differed. On a quiet machine, CV is a few percent.
type Noise struct {
	Samples int     `json:"samples"`
	MeanMS  float64 `json:"mean_ms"`
	// CV is the coefficient of variation: the standard deviation over the mean.
	CV float64 `json:"cv"`
	// Slowest is the longest sample over the shortest.
	Slowest float64 `json:"slowest_over_fastest"`
}

// Noise returns what the samples so far say; zeros without samples.
func (m *Meter) Noise() Noise {
	n := Noise{Samples: len(m.samples)}
	if n.Samples == 0 {
		return n
	}
	var sum, squares float64
	for _, s := range m.samples {
		sum += s.Seconds()
	}
	mean := sum / float64(n.Samples)
	for _, s := range m.samples {
		squares += (s.Seconds() - mean) * (s.Seconds() - mean)
	}
	if n.Samples > 1 {
		n.CV = math.Sqrt(squares/float64(n.Samples-1)) / mean
	}
	n.MeanMS = 1000 * mean
	n.Slowest = slices.Max(m.samples).Seconds() / slices.Min(m.samples).Seconds()
	return n
}

// String says it in a line.
func (n Noise) String() string {
	return fmt.Sprintf("the same work took %.0f ms on average, with a coefficient of variation of %.0f %%; the slowest of %d samples took %.1f times as long as the fastest",
		n.MeanMS, 100*n.CV, n.Samples, n.Slowest)
}
