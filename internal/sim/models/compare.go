package models

import (
	"context"
	"fmt"
	"sync"

	"rota/fsm/state"
	"rota/sched"
)

// Case is one comparison.
type Case struct {
	Name string
	Load int64 // in percent
	// LRU is what feature level 2 makes of the requests, Rota what level 3 does.
	LRU, Rota Result
}

// SavedPPM is how much less set-up time there is than with LRU, in parts per million of that.
func (c *Case) SavedPPM() int64 {
	if c.LRU.SetUpNS == 0 {
		return 0
	}
	return int64((1 - float64(c.Rota.SetUpNS)/float64(c.LRU.SetUpNS)) * 1e6)
}

// Compare runs all cases, so many at a time.
func Compare(ctx context.Context, in *Input, s Setup, loads []int64, workers int) ([]Case, error) {
	uniform, equal := in.Uniform(s.Seed), in.Equal()
	kinds := []struct {
		name       string
		in         *Input
		undeclared bool
	}{
		{"as it is", in, false},
		{"set-ups not declared", in, true},
		{"equal set-ups", equal, false},
		{"uniform popularity", uniform, false},
		{"uniform, equal, not declared", uniform.Equal(), true},
	}
	cases := make([]Case, len(kinds)*len(loads))
	errs := make([]error, len(cases))
	tokens := make(chan struct{}, max(1, workers))
	var wg sync.WaitGroup
	for i := range cases {
		k, c := kinds[i/len(loads)], &cases[i]
		c.Name, c.Load = k.name, loads[i%len(loads)]
		wg.Go(func() {
			tokens <- struct{}{}
			defer func() { <-tokens }()
			one := s
			one.Load, one.Undeclared = c.Load, k.undeclared
			for level, result := range map[state.Level]*Result{state.LevelMin: &c.LRU, sched.LevelResizing: &c.Rota} {
				one.Level = level
				if *result, errs[i] = Run(ctx, k.in, one); errs[i] != nil {
					errs[i] = fmt.Errorf("%s, load %d %%: %w", c.Name, c.Load, errs[i])
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return cases, nil
}
