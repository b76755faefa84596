package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"rota/api/backoff"
	rotav1 "rota/api/gen/rota/v1"
)

// policy is a way of sharing the cores, with all that was measured under it.
type policy struct {
	name string
	// run runs a suite to its end and returns its output.
	run func(context.Context, arrival) ([]byte, error)

	mu      sync.Mutex
	took    []time.Duration
	rounds  []float64 // means in milliseconds
	reports SuiteReport
}

// allPolicies are those that are compared. Ratios are to the first.
func (e *elastic) allPolicies() []*policy {
	list := []*policy{{name: "resized", run: func(ctx context.Context, a arrival) ([]byte, error) {
		return e.runAction(ctx, e.commandOf(a, "{{cores}}"), &rotav1.Resources{Cores: proto.Uint32(1), MaxCores: uint32(len(e.cpus))})
	}}}
	if len(e.o.Widths) == 0 {
		for width := 1; width <= len(e.cpus); width *= 2 {
			e.o.Widths = append(e.o.Widths, width)
		}
	}
	for _, width := range e.o.Widths {
		list = append(list, &policy{name: fmt.Sprintf("fixed %d", width), run: func(ctx context.Context, a arrival) ([]byte, error) {
			return e.runFixed(ctx, width, a)
		}})
	}
	return append(list, &policy{name: "shares", run: func(ctx context.Context, a arrival) ([]byte, error) {
		return e.pods.run(ctx, e.commandOf(a, strconv.Itoa(len(e.cpus))))
	}})
}

func (e *elastic) runFixed(ctx context.Context, width int, a arrival) ([]byte, error) {
	return e.runAction(ctx, e.commandOf(a, "{{cores}}"), &rotav1.Resources{Cores: proto.Uint32(uint32(width))})
}

// runAction runs a command as an action of the cluster.
func (e *elastic) runAction(ctx context.Context, c command, r *rotav1.Resources) ([]byte, error) {
	action, err := runAction(ctx, e.h.api, &rotav1.ActionSpec{
		Name: "suite", Command: &rotav1.Command{Argv: c.argv, Env: c.env, Dir: c.dir}, Resources: r,
	})
	if err != nil {
		return nil, err
	}
	return action.Result.StdoutTail, nil
}

// ownCommand is the user's command, here and with this environment.
func ownCommand(argv []string, cores string) command {
	c := command{env: map[string]string{}}
	for _, arg := range argv {
		c.argv = append(c.argv, strings.ReplaceAll(arg, "{{cores}}", cores))
	}
	for _, kv := range os.Environ() {
		if k, v, _ := strings.Cut(kv, "="); !strings.HasPrefix(k, "ROTA_") {
			c.env[k] = v
		}
	}
	c.dir, _ = os.Getwd() // empty: a folder of its own
	return c
}

// turn lets the suites of a round arrive under one policy, and waits for all of them.
func (e *elastic) turn(ctx context.Context, p *policy, arrivals []arrival) error {
	afters := make([]time.Duration, len(arrivals))
	for i, a := range arrivals {
		afters[i] = a.after
	}
	first := len(p.took)
	err := arrive(ctx, afters, func(ctx context.Context, i int, arrived time.Time) error {
		out, err := p.run(ctx, arrivals[i])
		if err != nil {
			return err
		}
		return p.note(time.Since(arrived), out, len(e.o.Command) == 0)
	})
	if err != nil {
		return err
	}
	p.rounds = append(p.rounds, meanMS(p.took[first:]))
	return nil
}

// arrive runs something at each of these times from now on, and waits for all. The first that
// fails ends the others.
func arrive(ctx context.Context, afters []time.Duration, run func(ctx context.Context, i int, arrived time.Time) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	began := time.Now()
	for i, after := range afters {
		arrives := began.Add(after)
		wg.Go(func() {
			if backoff.Sleep(ctx, time.Until(arrives)) != nil {
				return
			}
			if err := run(ctx, i, arrives); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// note adds a suite that has ended.
func (p *policy) note(took time.Duration, out []byte, reports bool) error {
	var r SuiteReport
	if reports {
		if err := json.Unmarshal(out, &r); err != nil {
			return fmt.Errorf("the report of a suite, %q: %w", out, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.took = append(p.took, took)
	p.reports.Resizes += r.Resizes
	p.reports.Switches += r.Switches
	return nil
}

// result compares with the means of the first policy in the same rounds.
func (p *policy) result(first []float64) ElasticPolicy {
	n := float64(len(p.took))
	return ElasticPolicy{PolicyTimes: timesOf(p.name, p.took, p.rounds, first),
		Resizes: float64(p.reports.Resizes) / n, Switches: float64(p.reports.Switches) / n}
}

// timesOf sums up how long all took under a policy, with the means of its rounds, and compares
// these with the means of the first policy.
func timesOf(name string, took []time.Duration, rounds, first []float64) PolicyTimes {
	ratios := make([]float64, len(rounds))
	for i, mean := range rounds {
		ratios[i] = mean / first[i]
	}
	r := PolicyTimes{Policy: name, MeanMS: meanMS(took), RoundsMS: rounds, Ratio: spreadOf(ratios)}
	r.P50MS, r.P99MS, _ = quantiles(took)
	return r
}

func meanMS(list []time.Duration) float64 {
	var sum time.Duration
	for _, d := range list {
		sum += d
	}
	return ms(sum) / float64(len(list))
}
