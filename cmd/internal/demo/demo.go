package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"rota/api/client"
	"rota/cmd/internal/devcluster"
	"rota/cmd/internal/spin"
)

// Options are what a demo can be told.
type Options struct {
	// Binary is the rota to run; this process's own if empty.
	Binary string
	// Dir for all data; a temporary folder if empty.
	Dir string
	// Keep the folder at the end.
	Keep bool
	Seed uint64
	// Trajectories of each batch; 0: two for each core.
	Trajectories int
	// Reserved: also run the comparison with reserved cores.
	Reserved bool
	// Progress is written here.
	Progress io.Writer
}

// batches is how often the two ways take turns. It is even, so that each is first as often as second:
// noise that grows or fades hits both alike.
const batches = 2

// Limits of what may take long on a slow machine.
const (
	readyTimeout = 30 * time.Second
	afterTimeout = 30 * time.Second
)

// demo is one run of it.
type demo struct {
	options  Options
	progress *progress
	tools    *toolchain
	cluster  *devcluster.Cluster
	api      *client.Client
	rota     *withRota
	reserved *reserved
	batches  [][]trajectory
	kill     kill
	cores    int
	meter    *spin.Meter

	elasticity *Elasticity // nil on a machine with one core
	resizing   *Resizing   // nil where cores of what runs cannot be changed

	// One list for each batch.
	rotaSamples, reservedSamples [][]sample
}

// kill is the killing of the leader, in the background of a batch.
type kill struct {
	once sync.Once
	done chan struct{}
	took time.Duration
	err  error
}

// Run runs the demo.
func Run(ctx context.Context, options Options) (*Summary, error) {
	dir, err := makeDir(options.Dir)
	if err != nil {
		return nil, err
	}
	d := &demo{options: options, kill: kill{done: make(chan struct{})}, meter: spin.NewMeter()}
	if d.tools, err = findToolchain(ctx, dir); err != nil {
		return nil, err
	}
	d.progress = newProgress(options.Progress)
	defer d.progress.close()
	if options.Keep || options.Dir != "" {
		defer d.progress.say("data and logs are in %s", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	if err := d.prepare(ctx, dir); err != nil {
		return nil, err
	}
	defer d.cluster.Stop()
	defer d.api.Close()
	for i, batch := range d.batches {
		if err := d.compare(ctx, i, batch); err != nil {
			return nil, err
		}
	}
	if err := d.beElastic(ctx); err != nil {
		return nil, fmt.Errorf("elastic test suites: %w", err)
	}
	if err := d.resize(ctx); err != nil {
		return nil, fmt.Errorf("an action that makes room: %w", err)
	}
	return d.account(ctx)
}

func makeDir(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "rota-demo-")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return filepath.Abs(dir)
}

// prepare starts the cluster and makes the workload. On an error nothing is left
// running.
func (d *demo) prepare(ctx context.Context, dir string) error {
	d.progress.begin("warming the build cache", 0, nil)
	if err := d.tools.warm(ctx); err != nil {
		return err
	}
	if err := d.tools.buildSuite(ctx); err != nil {
		return err
	}
	d.progress.begin("starting three servers and an agent", 0, nil)
	cpus, err := usableCPUs()
	if err != nil {
		return err
	}
	d.cores = len(cpus)
	d.cluster, err = devcluster.Start(devcluster.Config{
		Binary: d.options.Binary, Dir: filepath.Join(dir, "cluster"), Servers: 3, Agents: 1,
	})
	if err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := d.cluster.WaitReady(ready); err != nil {
		d.cluster.Stop()
		return err
	}
	if d.api, err = d.cluster.Dial(); err != nil {
		d.cluster.Stop()
		return err
	}
	n := d.options.Trajectories
	if n == 0 {
		n = 2 * d.cores
	}
	for i := range batches {
		d.batches = append(d.batches, makeTrajectories(d.options.Seed, i, n, uint32(d.cores)))
	}
	d.rota = &withRota{api: d.api, env: d.tools.env(), witness: witness{filepath.Join(dir, "witness")}}
	d.reserved = newReserved(cpus, envList(d.tools.env()), dir)
	d.progress.say("three servers and an agent with %d cores are up; %d trajectories a batch", d.cores, n)
	return nil
}

// compare runs one batch both ways, in an order that alternates.
func (d *demo) compare(ctx context.Context, i int, batch []trajectory) error {
	ways := []func(context.Context, int, []trajectory) error{d.runWithRota}
	if d.options.Reserved {
		ways = append(ways, d.runReserved)
	}
	if i%2 == 0 {
		slices.Reverse(ways)
	}
	for _, run := range ways {
		d.meter.Sample()
		if err := run(ctx, i, batch); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) runReserved(ctx context.Context, i int, batch []trajectory) error {
	d.progress.begin(fmt.Sprintf("batch %d with reserved cores", i+1), countTurns(batch), nil)
	samples, err := runBatch(ctx, d.reserved, batch, d.progress)
	d.reservedSamples = append(d.reservedSamples, samples)
	return err
}

func (d *demo) runWithRota(ctx context.Context, i int, batch []trajectory) error {
	total := countTurns(batch)
	var hook func(int)
	if i == 0 {
		hook = func(submitted int) {
			if submitted >= total/2 {
				d.kill.once.Do(func() { go d.killLeader(ctx) })
			}
		}
	}
	d.progress.begin(fmt.Sprintf("batch %d with rota", i+1), total, hook)
	samples, err := runBatch(ctx, d.rota, batch, d.progress)
	d.rotaSamples = append(d.rotaSamples, samples)
	if i == 0 && err == nil {
		<-d.kill.done
		err = d.kill.err
	}
	return err
}

// killLeader kills the leader and starts it again once another has taken over.
func (d *demo) killLeader(ctx context.Context) {
	defer close(d.kill.done)
	failover, err := d.cluster.KillLeader(ctx, d.api)
	if err != nil {
		d.kill.err = fmt.Errorf("kill the leader: %w", err)
		return
	}
	d.kill.took = failover.Took
	d.progress.say("killed %s, the leader, with SIGKILL; next decision %.0f ms later", failover.Killed.Name, ms(failover.Took))
	if err := failover.Killed.Start(); err != nil {
		d.kill.err = err
		return
	}
	d.progress.say("started %s again", failover.Killed.Name)
}

// account looks at every action after the end.
func (d *demo) account(ctx context.Context) (*Summary, error) {
	d.progress.begin("accounting for every action", 0, nil)
	ctx, cancel := context.WithTimeout(ctx, afterTimeout)
	defer cancel()
	executions, err := d.rota.witness.executions()
	if err != nil {
		return nil, err
	}
	s := &Summary{ActionsSubmitted: d.rota.submitted, LeaderKills: 1, FailoverMS: ms(d.kill.took),
		Noise: d.meter.Noise(), Elasticity: d.elasticity, Resizing: d.resizing}
	for _, n := range executions {
		s.DuplicateExecutions += max(0, n-1)
	}
	for _, id := range d.rota.acknowledged {
		action, err := d.api.Get(ctx, id)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, err
		case err != nil || !client.Final(action.State) || action.Result == nil:
			s.AcknowledgedLost++
		case succeeded(action) && executions[id] == 0:
			s.AcknowledgedLost++
		case succeeded(action):
			s.ActionsSucceeded++
		}
	}
	report, err := d.cluster.HashesEqual(ctx)
	if err != nil {
		return nil, err
	}
	s.StateHashesEqual = report.Equal
	s.addTimes(d.rotaSamples, d.reservedSamples)
	return s, nil
}
