package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"rota/api/backoff"
	"rota/jepsen/fault"
	"rota/jepsen/history"
	"rota/jepsen/workload"
)

const (
	// warmUp is how long there is load before the first fault.
	warmUp = 2 * time.Second
	// backMax is how long all members may take to be back after a fault.
	backMax = 45 * time.Second
	// settleSlack is what the settling gets beyond its limit, so that the checker
	// sees how late it was.
	settleSlack = 30 * time.Second
)

// lasting workloads go on until everything has settled.
var lasting = []string{"watches", "observers"}

// play puts load on the cluster, breaks it, and lets it settle.
func (r *run) play(ctx context.Context, faults []fault.Fault) error {
	watch, load := startWorkers(ctx), startWorkers(ctx)
	for _, w := range r.workloads() {
		if slices.Contains(lasting, w.Name) {
			watch.run(w, r.env, w.Rate)
		} else {
			load.run(w, r.env, w.Rate*r.Scenario.load())
		}
	}
	if r.Compact {
		compacting, done := context.WithCancel(ctx)
		defer done()
		go r.compact(compacting)
	}
	err := backoff.Sleep(ctx, warmUp)
	if err == nil && r.Quiet > 0 {
		err = r.beQuiet(ctx)
	}
	if err == nil {
		err = r.breakIt(ctx, faults)
	}
	stopped := r.world.Record.Now()
	if err = errors.Join(err, load.stop()); err == nil {
		err = r.settle(ctx, stopped)
	}
	return errors.Join(err, watch.stop())
}

// beQuiet lets time pass that what happens under faults is compared with.
func (r *run) beQuiet(ctx context.Context) error {
	r.Log("%6.1f s  quiet", time.Since(r.started).Seconds())
	r.world.Record.Update(func(rec *history.Record) { rec.Abuse = &history.Abuse{QuietStart: r.world.Record.Now()} })
	return backoff.Sleep(ctx, r.Quiet)
}

// breakIt injects faults in rounds, each of another order.
func (r *run) breakIt(ctx context.Context, faults []fault.Fault) error {
	began, count := time.Now(), 0
	for round := 0; ; round++ {
		for _, i := range r.world.Rand.Perm(len(faults)) {
			if r.enough(began, count, len(faults)) {
				return nil
			}
			f := faults[i]
			r.Log("%6.1f s  %s", time.Since(r.started).Seconds(), f.Name)
			if err := fault.Inject(ctx, &r.world, f, f.Hold.For(&r.world.Config)); err != nil {
				return err
			}
			if err := r.healthy(ctx); err != nil {
				// That is no failure of the run but what it is looking for.
				r.stuck = append(r.stuck, fmt.Sprintf("after %s the cluster was not whole again in %v: %v", f.Name, backMax, err))
				return ctx.Err()
			}
			r.world.Record.Update(func(rec *history.Record) { rec.Faults[len(rec.Faults)-1].Whole = r.world.Record.Now() })
			if err := backoff.Sleep(ctx, r.Scenario.pause()); err != nil {
				return err
			}
			count++
		}
	}
}

// enough reports whether no more faults are due.
func (r *run) enough(began time.Time, count, round int) bool {
	if n := max(r.Options.Count, 0); n > 0 {
		return count >= n
	}
	if r.Scenario.Count > 0 {
		return count >= r.Scenario.Count
	}
	return count >= round && time.Since(began) >= r.Duration
}

// healthy waits until all members are back.
func (r *run) healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, backMax)
	defer cancel()
	return r.world.Cluster.WaitHealthy(ctx)
}

// settle waits until everything has ended, and asks for the outcome.
func (r *run) settle(ctx context.Context, stopped int64) error {
	r.Log("%6.1f s  settling", time.Since(r.started).Seconds())
	most := r.Limits.SettleMax
	if most == 0 {
		most = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, most+settleSlack)
	defer cancel()
	var err error
	r.final, r.healing, err = workload.Settle(ctx, r.env, stopped)
	r.healing.Left = append(r.stuck, r.healing.Left...)
	if err != nil {
		r.healing.Left = append(r.healing.Left, err.Error())
		return nil // the checkers say so
	}
	r.healing.Left = append(r.healing.Left, r.leftRunning(ctx)...)
	if r.hashes, err = workload.Hashes(ctx, r.env); err != nil {
		r.healing.Left = append(r.healing.Left, err.Error())
	}
	return nil
}

// leftRunning are processes of actions although all have ended.
func (r *run) leftRunning(ctx context.Context) (left []string) {
	for range 20 {
		left = nil
		for _, a := range r.world.Cluster.Agents {
			for _, pid := range a.Attempts() {
				left = append(left, fmt.Sprintf("process %d of an action runs on %s", pid, a.Name))
			}
		}
		if len(left) == 0 || backoff.Sleep(ctx, 100*time.Millisecond) != nil {
			break
		}
	}
	return left
}

// workers are workloads that run until they are stopped together.
type workers struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	err    error
}

func startWorkers(ctx context.Context) *workers {
	w := &workers{}
	w.ctx, w.cancel = context.WithCancel(ctx)
	return w
}

func (w *workers) run(load workload.Workload, env *workload.Env, rate float64) {
	w.wg.Go(func() {
		if err := load.Run(w.ctx, env, rate); err != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.err = fmt.Errorf("workload %s: %w", load.Name, err)
		}
	})
}

// stop returns the first error of a workload that could not run.
func (w *workers) stop() error {
	w.cancel()
	w.wg.Wait()
	return w.err
}

// takeOut moves what was seen into the record.
func (r *run) takeOut(logs []history.Log) *history.Record {
	r.world.Record.Update(func(rec *history.Record) {
		rec.Final, rec.Healing, rec.Hashes, rec.Logs = r.final, r.healing, r.hashes, logs
		rec.Duration = r.world.Record.Now()
		if r.env != nil {
			rec.Executions, rec.Servings = r.env.Witness.Executions(), r.env.Witness.Servings()
		}
	})
	return r.world.Record.Record()
}
