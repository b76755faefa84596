package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"rota/cmd/internal/spin"
)

// Suite is a parallel test suite of the benchmark: some units of work one after the other,
// then others that as many workers do as there are.
type Suite struct{ Serial, Parallel, Workers int }

// SuiteReport is what a suite saw while it ran.
type SuiteReport struct {
	// Resizes counts how often its CPUs changed.
	Resizes int64 `json:"resizes"`
	// Switches are the context switches of its threads.
	Switches int64 `json:"switches"`
}

// UnitTime asks the binary that runs suites how long a unit of work takes. This process may be
// built otherwise, with the race detector for example, which makes a unit many times as long.
func UnitTime(ctx context.Context, binary string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, binary, "bench", "suite", "--measure-unit")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("measure a unit of work: %w %s", err, bytes.TrimSpace(said.Bytes()))
	}
	unit, err := time.ParseDuration(strings.TrimSpace(string(out)))
	if err != nil || unit <= 0 {
		return 0, fmt.Errorf("measure a unit of work: %s says %q", binary, out)
	}
	return unit, nil
}

// Run does the work.
func (s Suite) Run() SuiteReport {
	runtime.GOMAXPROCS(s.Workers) // also where it may run on fewer CPUs: they may become more
	var report SuiteReport
	seen := &cpusSeen{file: os.Getenv("ROTA_CORES_FILE")}
	first := spin.NewWorker()
	for range s.Serial {
		first.Unit()
		seen.look()
	}
	var left atomic.Int64
	left.Store(int64(s.Parallel))
	var wg sync.WaitGroup
	for range s.Workers {
		wg.Go(func() {
			for w := spin.NewWorker(); left.Add(-1) >= 0; seen.look() {
				w.Unit()
			}
		})
	}
	wg.Wait()
	report.Resizes = seen.changes
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) == nil {
		report.Switches = used.Nvcsw + used.Nivcsw
	}
	return report
}

// cpusSeen counts changes of the CPUs in the file that names them.
type cpusSeen struct {
	file string // empty: they do not change

	mu      sync.Mutex
	last    string
	changes int64
}

func (c *cpusSeen) look() {
	if c.file == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := os.ReadFile(c.file)
	if err != nil {
		return // the attempt is about to be killed
	}
	now := strings.TrimSpace(string(text))
	if c.last != "" && now != c.last {
		c.changes++
	}
	c.last = now
}
