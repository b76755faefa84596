package demo

import (
	"context"
	"sync"
	"time"

	"rota/api/backoff"
)

// runner is a way of running actions: with rota, or with reserved cores.
type runner interface {
	// open begins a trajectory. It returns what runs its actions and a function
	// that ends it.
	open(ctx context.Context, t trajectory) (act actFunc, end func(), err error)
}

// actFunc runs one action to its end.
type actFunc func(ctx context.Context, t turn) (sample, error)

// sample is what one action took.
type sample struct {
	id        uint64 // of rota; 0 in the other way
	succeeded bool
	// act is from submission to the moment its owner knows that it ended.
	act time.Duration
	// queue is the part before it was granted cores, exec the part in which its
	// command ran.
	queue, exec time.Duration
}

// overhead is what is neither waiting for cores nor running.
func (s sample) overhead() time.Duration { return max(0, s.act-s.queue-s.exec) }

// runBatch runs all trajectories at the same time and returns a sample for each
// action. The first error ends it.
func runBatch(ctx context.Context, r runner, batch []trajectory, progress *progress) ([]sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		mu      sync.Mutex
		samples []sample
		wg      sync.WaitGroup
	)
	for _, t := range batch {
		wg.Go(func() {
			err := runTrajectory(ctx, r, t, progress, func(s sample) {
				mu.Lock()
				defer mu.Unlock()
				samples = append(samples, s)
			})
			if err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return samples, context.Cause(ctx)
}

func runTrajectory(ctx context.Context, r runner, t trajectory, progress *progress, done func(sample)) error {
	act, end, err := r.open(ctx, t)
	if err != nil {
		return err
	}
	defer end()
	for _, turn := range t.turns {
		progress.think(1)
		if backoff.Sleep(ctx, turn.think) != nil {
			return nil // another trajectory has failed
		}
		progress.think(-1)
		progress.submitted()
		s, err := act(ctx, turn)
		if err != nil {
			return err
		}
		progress.ended()
		done(s)
	}
	return nil
}
