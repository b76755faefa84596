package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"rota/api/backoff"
	rotav1 "rota/api/gen/rota/v1"
	"rota/internal/sim/workload"
)

// OverheadOptions say how much of the workload AI coding to run for real.
type OverheadOptions struct {
	Cluster ClusterOptions
	// Trajectories are open at the same time; one that ends is followed by another.
	Trajectories int
	// Duration is the measured time, after WarmUp. What begins in it counts, and is
	// waited for: were those left out that end later, the long ones would be missing.
	Duration, WarmUp time.Duration
	Seed             uint64
}

// OverheadResult is what rota adds to the executions of AI coding (ARL-Tangram
// §6.5, Table 1). Times are means in milliseconds.
type OverheadResult struct {
	Trajectories     int     `json:"trajectories"`
	Actions          int     `json:"actions"`
	ActionsPerSecond float64 `json:"actions_per_second"`
	ActMS            float64 `json:"act_ms"`
	ExecMS           float64 `json:"exec_ms"`
	// OverheadMS is all of ActMS that is not ExecMS, a wait for cores included.
	// There are 512, so hardly anything waits.
	OverheadMS float64 `json:"overhead_ms"`
	// OverheadP50MS is the median of the same.
	OverheadP50MS float64 `json:"overhead_p50_ms"`
	// OverheadPPM is OverheadMS over ExecMS.
	OverheadPPM int64 `json:"overhead_ppm"`
	// BusyPPM is how much of the CPUs of this machine everything used meanwhile.
	BusyPPM int64 `json:"cpu_busy_ppm"`
}

// rewardCores is the width of a reward: the same for all, as nothing is scarce.
const rewardCores = 32

// overheadCores is how many cores the agent says that it has: as many as a node
// can, so that no action waits for another's.
const overheadCores = 512

// overhead is the measurement while it runs.
type overhead struct {
	h     *held
	o     OverheadOptions
	begin time.Time
	end   time.Time

	mu        sync.Mutex
	act, exec []time.Duration
}

// Overhead runs trajectories of AI coding with real processes that wait as long
// as the actions of the workload take.
func Overhead(ctx context.Context, o OverheadOptions) (*OverheadResult, error) {
	params, err := workload.Load("coding")
	if err != nil {
		return nil, err
	}
	params.SetBatch(int64(o.Trajectories))
	generator, err := workload.New(params, o.Seed)
	if err != nil {
		return nil, err
	}
	o.Cluster.AgentArgs = []string{"--cores", strconv.Itoa(overheadCores), "--oversubscribe"}
	h, err := startCluster(ctx, o.Cluster, 1)
	if err != nil {
		return nil, err
	}
	defer h.stop()
	m := &overhead{h: h, o: o, begin: time.Now().Add(o.WarmUp)}
	m.end = m.begin.Add(o.Duration)
	return m.measure(ctx, generator)
}

func (m *overhead) measure(ctx context.Context, g *workload.Generator) (*OverheadResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range m.o.Trajectories {
		wg.Go(func() {
			if err := m.trajectories(ctx, g.Trajectory(i)); err != nil {
				cancel(err)
			}
		})
	}
	if err := backoff.Sleep(ctx, time.Until(m.begin)); err != nil {
		return nil, err
	}
	before, err := readCPU()
	if err != nil {
		return nil, err
	}
	if err := backoff.Sleep(ctx, time.Until(m.end)); err != nil {
		return nil, err
	}
	after, err := readCPU()
	if err != nil {
		return nil, err
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return m.result(after.since(before))
}

// trajectories lives through one trajectory again and again, until the end of the
// measurement. The first time it begins somewhere in its midst, so that all are at
// different turns.
func (m *overhead) trajectories(ctx context.Context, t workload.Trajectory) error {
	for turn := t.Number * len(t.Turns) / m.o.Trajectories; time.Now().Before(m.end); turn = 0 {
		if err := m.live(ctx, t, turn); err != nil {
			return err
		}
	}
	return nil
}

func (m *overhead) live(ctx context.Context, t workload.Trajectory, turn int) error {
	opened, err := m.h.api.OpenTrajectory(ctx, &rotav1.OpenTrajectoryRequest{Name: "coding"})
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		// The cluster ends soon, and the trajectory with it.
		_, _ = m.h.api.CloseTrajectory(end, opened.Id)
	}()
	for ; turn < len(t.Turns); turn++ {
		thought := time.Now().Add(time.Duration(t.Turns[turn].Think))
		if thought.After(m.end) {
			return backoff.Sleep(ctx, time.Until(m.end))
		}
		if err := backoff.Sleep(ctx, time.Until(thought)); err != nil {
			return err
		}
		if err := m.run(ctx, opened.Id, &t.Turns[turn].Action); err != nil {
			return err
		}
	}
	return nil
}

// run runs one action of the workload and notes how long it took.
func (m *overhead) run(ctx context.Context, trajectory uint64, a *workload.Action) error {
	cores := a.Widest(rewardCores)
	takes := time.Duration(a.Duration(cores))
	began := time.Now()
	action, err := runAction(ctx, m.h.api, &rotav1.ActionSpec{
		TrajectoryId: trajectory, Name: a.Class,
		Command:   &rotav1.Command{Argv: []string{"sleep", fmt.Sprintf("%.6f", takes.Seconds())}},
		Resources: &rotav1.Resources{Cores: proto.Uint32(uint32(cores))},
	})
	if err != nil {
		return err
	}
	took := time.Since(began)
	if began.After(m.begin) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.act = append(m.act, took)
		m.exec = append(m.exec, action.Result.ExecDuration.AsDuration())
	}
	return nil
}

func (m *overhead) result(busyPPM int64) (*OverheadResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.act)
	if n == 0 {
		return nil, errors.New("no action began within the measured time; make it longer")
	}
	var act, exec time.Duration
	each := make([]time.Duration, n)
	for i := range m.act {
		act, exec = act+m.act[i], exec+m.exec[i]
		each[i] = m.act[i] - m.exec[i]
	}
	p50, _, _ := quantiles(each)
	return &OverheadResult{
		Trajectories: m.o.Trajectories, Actions: n, ActionsPerSecond: float64(n) / m.o.Duration.Seconds(),
		ActMS: ms(act) / float64(n), ExecMS: ms(exec) / float64(n), OverheadMS: ms(act-exec) / float64(n),
		OverheadP50MS: p50, OverheadPPM: int64(1e6 * float64(act-exec) / float64(exec)), BusyPPM: busyPPM,
	}, nil
}

// cpu is how long all CPUs of the machine were busy and were there, in ticks.
type cpu struct{ busy, total int64 }

func readCPU() (c cpu, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return c, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	const idle, iowait, steal = 4, 5, 8
	for i := 1; i < len(fields) && i <= steal; i++ {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return c, fmt.Errorf("/proc/stat: %w", err)
		}
		c.total += n
		if i != idle && i != iowait {
			c.busy += n
		}
	}
	return c, nil
}

// since returns how busy the CPUs were since before, in parts per million.
func (c cpu) since(before cpu) int64 {
	return 1_000_000 * (c.busy - before.busy) / max(1, c.total-before.total)
}
