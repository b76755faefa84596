package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"rota/agent/plan"
	"rota/api/backoff"
)

// ResizeCost is what it costs to give an attempt that computes with two threads a second
// core, or to take it away: the call of an agent to its supervisor.
type ResizeCost struct {
	Resizes int     `json:"resizes"`
	P50US   float64 `json:"p50_us"`
	P99US   float64 `json:"p99_us"`
	// Switches are the context switches of the attempt that a resize adds to those that it
	// has anyway, half of the time with one core and half with two.
	Switches float64 `json:"switches_each"`
}

const (
	// resizeEvery is how soon the cores change again: as often as rota may divide a node.
	resizeEvery = 50 * time.Millisecond
	// Resizes in a row, and how often that many follow as long a time without any.
	resizesInRow, resizeRows = 20, 5
)

// resizeCost measures one attempt while nothing else runs.
func (e *elastic) resizeCost(ctx context.Context) (cost ResizeCost, err error) {
	pidFile := filepath.Join(e.dir, "pid")
	suite := e.builtIn(arrival{parallel: 1 << 40}, "2")
	suite.argv = append([]string{"sh", "-c", `echo $$ > "$0" && exec "$@"`, pidFile}, suite.argv...)
	m := &resizeMeter{pods: e.pods, one: e.cpus[:1], two: e.cpus[:2], pidFile: pidFile}
	if m.key, _, err = e.pods.start(ctx, suite, m.one); err != nil {
		return cost, err
	}
	cost, err = m.measure(ctx)
	if killed := e.pods.client.Kill(ctx, m.key, plan.ReasonCanceled); err == nil {
		err = killed
	}
	return cost, err
}

// resizeMeter measures the resizes of one attempt.
type resizeMeter struct {
	pods     *pods
	key      plan.Key
	one, two []int // CPUs
	pidFile  string

	took           []time.Duration
	still, resized int64 // context switches
}

func (m *resizeMeter) measure(ctx context.Context) (r ResizeCost, err error) {
	const warmUp = time.Second
	if err := backoff.Sleep(ctx, warmUp); err != nil {
		return r, err
	}
	for range resizeRows {
		if err := m.row(ctx); err != nil {
			return r, err
		}
	}
	p50, p99, _ := quantiles(m.took)
	n := len(m.took)
	return ResizeCost{Resizes: n, P50US: 1000 * p50, P99US: 1000 * p99, Switches: float64(m.resized-m.still) / float64(n)}, nil
}

// row leaves the attempt alone with one core and with two, and then changes the number
// for as long.
func (m *resizeMeter) row(ctx context.Context) error {
	const half = resizesInRow / 2 * resizeEvery
	for _, cpus := range [][]int{m.one, m.two} {
		if err := m.pods.client.Resize(ctx, m.key, cpus); err != nil {
			return err
		}
		err := m.count(&m.still, func() error { return backoff.Sleep(ctx, half) })
		if err != nil {
			return err
		}
	}
	return m.count(&m.resized, func() error {
		for i := range resizesInRow {
			cpus := m.one
			if i%2 == 1 {
				cpus = m.two
			}
			began := time.Now()
			if err := m.pods.client.Resize(ctx, m.key, cpus); err != nil {
				return err
			}
			m.took = append(m.took, time.Since(began))
			if err := backoff.Sleep(ctx, resizeEvery); err != nil {
				return err
			}
		}
		return nil
	})
}

// count adds the context switches of the attempt during something.
func (m *resizeMeter) count(sum *int64, during func() error) error {
	before, err := m.switches()
	if err != nil {
		return err
	}
	if err := during(); err != nil {
		return err
	}
	after, err := m.switches()
	*sum += after - before
	return err
}

// switches are the context switches of all threads of the attempt so far.
func (m *resizeMeter) switches() (sum int64, err error) {
	pid, err := os.ReadFile(m.pidFile)
	if err != nil {
		return 0, err
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%s/task/*/status", strings.TrimSpace(string(pid))))
	if err != nil || len(threads) == 0 {
		return 0, fmt.Errorf("the attempt that is resized has no threads: %w", err)
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for line := range strings.Lines(string(text)) {
			if name, count, _ := strings.Cut(line, ":"); strings.HasSuffix(name, "_ctxt_switches") {
				n, err := strconv.ParseInt(strings.TrimSpace(count), 10, 64)
				if err != nil {
					return 0, fmt.Errorf("%s: %w", path, err)
				}
				sum += n
			}
		}
	}
	return sum, nil
}
