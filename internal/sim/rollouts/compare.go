package rollouts

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Report is what a comparison found.
type Report struct {
	// Simulated is always true: nothing of this was measured on an engine.
	Simulated bool       `json:"simulated"`
	Seeds     int        `json:"seeds"`
	Points    []*Point   `json:"points"`
	Order     []string   `json:"policies"`
	Sweep     []string   `json:"sweep,omitempty"`
	Base      Parameters `json:"parameters"`
	// LowestPPM is the smallest ratio of the first policy's throughput to another's, over all
	// points and seeds.
	LowestPPM int64 `json:"lowest_ratio_ppm"`
}

// Parameters are the settings of a setup.
type Parameters struct {
	Task   string           `json:"task"`
	Model  string           `json:"model"`
	Seed   uint64           `json:"first_seed"`
	Values map[string]int64 `json:"settings"`
}

func (s *Setup) parameters() Parameters {
	p := Parameters{Task: s.Task, Model: s.Model, Seed: s.Seed, Values: make(map[string]int64)}
	if s.Pool != nil {
		p.Task = TraceTask
	}
	for i := range settings {
		p.Values[settings[i].name] = *settings[i].of(s)
	}
	return p
}

// TraceTask is the name that a trace has where others have that of a task.
const TraceTask = "trace"

// Point is what was found with one setup.
type Point struct {
	// At are the values of the settings that are swept, in their order.
	At       []string             `json:"at,omitempty"`
	Policies map[string]*Policied `json:"policies"`
	setup    Setup
}

// Policied is what was found of a policy, for each seed.
type Policied struct {
	// Last are the last steps, First the first ones, in which nothing is learned yet.
	Last  []*StepResult `json:"last_step"`
	First []*StepResult `json:"first_step"`
	// Throughput is that of the last steps in tokens per second.
	Throughput Range `json:"tokens_per_second"`
	// Ratio is how much more the first policy of the comparison generates in a second, in its
	// last steps and in its first ones.
	Ratio      Range `json:"ratio"`
	FirstRatio Range `json:"first_step_ratio"`
}

// Range is a median over seeds, and the smallest and largest value: with five seeds the median
// of all seeds lies between these in 15 of 16 cases.
type Range struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

// rangeOf sums up values of seeds.
func rangeOf(values []float64) Range {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return Range{Median: (v[(n-1)/2] + v[n/2]) / 2, Least: v[0], Most: v[n-1]}
}

// median of a figure of steps.
func median(of []*StepResult, figure func(r *StepResult) int64) int64 {
	v := make([]int64, len(of))
	for i, r := range of {
		v[i] = figure(r)
	}
	slices.Sort(v)
	return v[(len(v)-1)/2]
}

// Median is the median of a figure over the last steps of all seeds, the smaller of two.
func (p *Policied) Median(figure func(r *StepResult) int64) int64 { return median(p.Last, figure) }

// Axis is a setting with the values that a sweep gives it.
type Axis struct {
	Name   string
	Values []string
}

// ParseAxis reads NAME=VALUE,VALUE,...
func ParseAxis(text string) (Axis, error) {
	name, values, ok := strings.Cut(text, "=")
	if !ok || values == "" {
		return Axis{}, fmt.Errorf("%w: sweep %q does not have the form NAME=VALUE,VALUE", ErrSetup, text)
	}
	return Axis{name, strings.Split(values, ",")}, nil
}

// Options say how much is compared.
type Options struct {
	Policies []string
	Axes     []Axis // all combinations of their values
	Seeds    int
	Parallel int // simulations at the same time
	// Progress is told how many of how many simulations are over, from several goroutines.
	Progress func(over, all int64)
}

// Compare runs all policies with all setups of a sweep. The same setup and options give the same
// report.
func Compare(ctx context.Context, s Setup, o Options) (*Report, error) {
	chosen, err := Find(o.Policies)
	if err != nil {
		return nil, err
	}
	if o.Seeds < 1 || o.Seeds > seedsMax {
		return nil, fmt.Errorf("%w: seeds must be from 1 to %d, not %d", ErrSetup, seedsMax, o.Seeds)
	}
	r := &Report{Simulated: true, Seeds: o.Seeds, Order: o.Policies, Base: s.parameters()}
	if r.Points, err = points(s, o.Axes); err != nil {
		return nil, err
	}
	for _, a := range o.Axes {
		r.Sweep = append(r.Sweep, a.Name)
	}
	if err := r.run(ctx, chosen, &o); err != nil {
		return nil, err
	}
	r.sumUp()
	return r, nil
}

const seedsMax = 100

// points are the combinations of a sweep.
func points(s Setup, axes []Axis) ([]*Point, error) {
	out := []*Point{{setup: s}}
	for i, a := range axes {
		if slices.ContainsFunc(axes[:i], func(o Axis) bool { return o.Name == a.Name }) {
			return nil, fmt.Errorf("%w: %s is swept twice", ErrSetup, a.Name)
		}
		var next []*Point
		for _, p := range out {
			for _, v := range a.Values {
				n := &Point{At: append(slices.Clone(p.At), v), setup: p.setup}
				if err := n.setup.Set(a.Name, v); err != nil {
					return nil, err
				}
				next = append(next, n)
			}
		}
		out = next
	}
	for _, p := range out {
		if err := p.setup.Check(); err != nil {
			return nil, err
		}
		p.Policies = make(map[string]*Policied)
	}
	return out, nil
}

// run fills the points: a simulation for each point, policy and seed.
func (r *Report) run(ctx context.Context, chosen []Policy, o *Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		wg    sync.WaitGroup
		over  atomic.Int64
		first sync.Once
		err   error
	)
	all := int64(len(r.Points) * len(chosen) * o.Seeds)
	tokens := make(chan struct{}, max(1, o.Parallel))
	for _, p := range r.Points {
		for i := range chosen {
			into := &Policied{Last: make([]*StepResult, o.Seeds), First: make([]*StepResult, o.Seeds)}
			p.Policies[chosen[i].Name] = into
			for seed := range o.Seeds {
				wg.Go(func() {
					tokens <- struct{}{}
					defer func() { <-tokens }()
					setup := p.setup
					setup.Seed += uint64(seed)
					steps, e := Run(ctx, setup, chosen[i])
					if e != nil {
						first.Do(func() { err = fmt.Errorf("%s, seed %d: %w", chosen[i].Name, setup.Seed, e) })
						cancel()
						return
					}
					into.First[seed], into.Last[seed] = steps[0], steps[len(steps)-1]
					if done := over.Add(1); o.Progress != nil {
						o.Progress(done, all)
					}
				})
			}
		}
	}
	wg.Wait()
	return err
}

// sumUp computes what is over all seeds.
func (r *Report) sumUp() {
	lowest := 0.0
	for _, p := range r.Points {
		base := p.Policies[r.Order[0]]
		for _, name := range r.Order {
			of := p.Policies[name]
			speed, ratio, firstRatio := make([]float64, r.Seeds), make([]float64, r.Seeds), make([]float64, r.Seeds)
			for i := range of.Last {
				speed[i] = of.Last[i].TokensPerSecond()
				ratio[i] = base.Last[i].TokensPerSecond() / of.Last[i].TokensPerSecond()
				firstRatio[i] = base.First[i].TokensPerSecond() / of.First[i].TokensPerSecond()
			}
			of.Throughput, of.Ratio, of.FirstRatio = rangeOf(speed), rangeOf(ratio), rangeOf(firstRatio)
			if name != r.Order[0] && (lowest == 0 || of.Ratio.Least < lowest) {
				lowest = of.Ratio.Least
			}
		}
	}
	r.LowestPPM = int64(cmp.Or(lowest, 1) * million)
}

// Run simulates the steps of a setup one after the other under one policy. The predictor begins
// with nothing learned, and learns from each step. Of a policy that learns nothing, only the first
// and the last step are simulated and returned: those between change nothing.
func Run(ctx context.Context, s Setup, p Policy) ([]*StepResult, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	learned := newLearner(&s)
	out := make([]*StepResult, 0, s.Steps)
	for n := range s.Steps {
		if !p.learns() && n > 0 && n < s.Steps-1 {
			continue
		}
		r, err := runStep(ctx, &s, &p, s.step(n), learned)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", n+1, err)
		}
		out = append(out, r)
	}
	return out, nil
}
