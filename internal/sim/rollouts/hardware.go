package rollouts

import (
	"context"
	"fmt"
	"slices"

	"rota/fsm/state"
	"rota/internal/sim"
	place "rota/sched/place/worker"
	"rota/sched/predict"
)

// Kinds of hardware of a mixed fleet: one that computes prompts fast, and one that reads memory fast
// (RollArt's Table 2).
const (
	computeKind   = "h800"
	bandwidthKind = "h20"
)

// mixed are the tasks of CompareHardware: one that is dominated by prompts, and one by what is
// generated. RollArt's Table 1 gives the turns: 20 to 100, and up to 5. All else is assumed.
var mixedTasks = []Task{
	{
		Name: "game", Source: "FrozenLake, RollArt Table 1: turns. Assumed: a few words for each move, and a view of some hundred tokens",
		Prompt: logNormal{500, 300_000, 100, 4_000}, Output: logNormal{2_000, 400_000, 400, 8_000},
		Turns: logNormal{30, 300_000, 20, 100}, TurnSigmaPPM: 500_000,
		ToolTokens: logNormal{600, 300_000, 50, 2_000}, ToolNS: logNormal{50 * millisecond, 500_000, millisecond, 10 * second},
	},
	{
		Name: "math", Source: "GEM-Math, RollArt Table 1: turns. Assumed: long thoughts",
		Prompt: logNormal{200, 400_000, 50, 2_000}, Output: logNormal{6_000, 700_000, 500, 24_000},
		Turns: logNormal{2, 500_000, 1, 5}, TurnSigmaPPM: 500_000,
		ToolTokens: logNormal{40, 500_000, 5, 500}, ToolNS: logNormal{45 * millisecond, 500_000, millisecond, 10 * second},
	},
}

// affinities are what is said of each mixed task by a user who knows them.
var affinities = [][]string{{computeKind, bandwidthKind}, {bandwidthKind, computeKind}}

// fleet is a number of workers of kinds of hardware, and how trajectories find theirs.
type fleet struct {
	kinds []string
	// blind: placement does not see kinds and prompts, and takes the least work. count: it takes
	// the worker with the fewest trajectories. tags: it is told what suits each task.
	blind, count, tags bool
	spill              uint32
}

// Hardware is what CompareHardware compares.
type Hardware struct {
	// Compute and Bandwidth are the workers of the two kinds of a mixed fleet.
	Compute, Bandwidth int64
	// ComputeOnly and BandwidthOnly are those of fleets of one kind.
	ComputeOnly, BandwidthOnly int64
	// GamePercent is the share of trajectories that are dominated by prompts.
	GamePercent int64
	// Batch is the number of trajectories of a step.
	Batch int64
}

// DefaultHardware are the fleets of RollArt §7.3, an eighth of each: 72 H800, 208 H20, or 64 H800
// with 24 H20.
func DefaultHardware() Hardware {
	return Hardware{Compute: 8, Bandwidth: 3, ComputeOnly: 9, BandwidthOnly: 26, GamePercent: 50, Batch: 256}
}

// hardwareMax bounds the workers of a fleet.
const hardwareMax = 256

// Check says what is wrong.
func (h *Hardware) Check(s *Setup) error {
	for _, n := range []int64{h.Compute, h.Bandwidth, h.ComputeOnly, h.BandwidthOnly} {
		if n < 1 || n > hardwareMax {
			return fmt.Errorf("%w: a fleet must have 1 to %d workers of a kind, not %d", ErrSetup, hardwareMax, n)
		}
	}
	if h.GamePercent < 0 || h.GamePercent > 100 || h.Batch < s.Group || h.Batch > trajectoriesMax {
		return fmt.Errorf("%w: the share of games must be from 0 to 100 %%, and the batch from %d to %d", ErrSetup, s.Group, trajectoriesMax)
	}
	return nil
}

// HardwarePolicy is a fleet with a way to choose hardware.
type HardwarePolicy struct{ Name, Help string }

// hardwarePolicies are compared by CompareHardware; the first is rota without any tag.
func (h *Hardware) policies() ([]HardwarePolicy, []fleet) {
	mixed := slices.Concat(slices.Repeat([]string{computeKind}, int(h.Compute)), slices.Repeat([]string{bandwidthKind}, int(h.Bandwidth)))
	return []HardwarePolicy{
			{"measured", "mixed fleet, hardware by measured tokens"},
			{"tags", "mixed fleet, an affinity for each task, later kinds only when a kind is full"},
			{"tags-spill", "mixed fleet, an affinity for each task, later kinds when the work is longer by half"},
			{"blind", "mixed fleet, least work, without hardware and prompts"},
			{"least-load", "mixed fleet, fewest trajectories"},
			{"compute-only", "as many H800 as the mixed fleet may cost"},
			{"bandwidth-only", "as many H20 as RollArt compares"},
		}, []fleet{
			{kinds: mixed}, {kinds: mixed, tags: true}, {kinds: mixed, tags: true, spill: 50}, {kinds: mixed, blind: true}, {kinds: mixed, count: true},
			{kinds: slices.Repeat([]string{computeKind}, int(h.ComputeOnly))},
			{kinds: slices.Repeat([]string{bandwidthKind}, int(h.BandwidthOnly))},
		}
}

// HardwareResult is what was found of one policy, for each seed.
type HardwareResult struct {
	Name string        `json:"policy"`
	Help string        `json:"about"`
	Last []*StepResult `json:"last_step"`
	// Ratio is how much longer its last step takes than that of the first policy, and EndRatio how
	// much later trajectories end in it on average.
	Ratio    Range `json:"ratio"`
	EndRatio Range `json:"end_ratio"`
	// GamesOnCompute and MathOnCompute are the shares that went to the kind that computes.
	GamesOnCompute int64 `json:"games_on_compute_percent"`
	MathOnCompute  int64 `json:"math_on_compute_percent"`
}

// CompareHardware runs mixed tasks on two kinds of hardware.
func CompareHardware(ctx context.Context, s Setup, h Hardware, seeds int) ([]*HardwareResult, error) {
	if seeds < 1 || seeds > seedsMax {
		return nil, fmt.Errorf("%w: seeds must be from 1 to %d, not %d", ErrSetup, seedsMax, seeds)
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	if err := h.Check(&s); err != nil {
		return nil, err
	}
	names, fleets := h.policies()
	out := make([]*HardwareResult, len(names))
	for i := range names {
		out[i] = &HardwareResult{Name: names[i].Name, Help: names[i].Help}
		var on [2][2]int64 // by task: on the kind that computes, and all
		for seed := range seeds {
			setup := s
			setup.Seed += uint64(seed)
			if err := out[i].run(ctx, &setup, &h, &fleets[i], &on); err != nil {
				return nil, fmt.Errorf("%s, seed %d: %w", names[i].Name, setup.Seed, err)
			}
		}
		out[i].GamesOnCompute, out[i].MathOnCompute = on[0][0]*100/max(1, on[0][1]), on[1][0]*100/max(1, on[1][1])
	}
	for _, r := range out {
		ratios, ends := make([]float64, seeds), make([]float64, seeds)
		for i := range seeds {
			ratios[i] = float64(r.Last[i].MakespanNS) / float64(out[0].Last[i].MakespanNS)
			ends[i] = float64(r.Last[i].CompletionMeanNS) / float64(out[0].Last[i].CompletionMeanNS)
		}
		r.Ratio, r.EndRatio = rangeOf(ratios), rangeOf(ends)
	}
	return out, nil
}

// run simulates the steps of one seed.
func (r *HardwareResult) run(ctx context.Context, s *Setup, h *Hardware, f *fleet, on *[2][2]int64) error {
	p := Policy{Name: r.Name, routing: planned, ordering: longestFirst, knowledge: progressive}
	learned := newLearner(s)
	learned.classes = append(learned.classes, state.LengthClass{Policy: s.Model, Name: mixedTasks[1].Name})
	for n := range s.Steps {
		w := &world{ctx: ctx, setup: s, policy: &p, learned: learned, result: &StepResult{}, fleet: f}
		trajectories := h.step(s, n)
		w.open = len(trajectories)
		result, err := w.run(trajectories)
		if err != nil {
			return fmt.Errorf("step %d: %w", n+1, err)
		}
		if n < s.Steps-1 {
			continue
		}
		r.Last = append(r.Last, result)
		for _, t := range w.runs {
			on[t.Task][1]++
			if f.kinds[t.target] == computeKind {
				on[t.Task][0]++
			}
		}
	}
	return nil
}

// step draws the trajectories of a step: groups of the two tasks, in a random order.
func (h *Hardware) step(s *Setup, n int64) []Trajectory {
	sized := *s
	sized.Batch, sized.Workers = h.Batch, 1
	tasks := [2][]Trajectory{synthetic(&mixedTasks[0], &sized, 2*n), synthetic(&mixedTasks[1], &sized, 2*n+1)}
	draws, size := sim.Draws(s.Seed), int(s.Group)
	var out []Trajectory
	for g := range int(sized.trajectories()) / size {
		d := draws.Of(drawMix, n<<32|int64(g))
		task := 0
		if !d.Chance(h.GamePercent * 10_000) {
			task = 1
		}
		for _, t := range tasks[task][g*size : (g+1)*size] {
			t.Task = task
			out = append(out, t)
		}
	}
	return out
}

// assignAll gives all trajectories to workers in the order in which they are opened, as the state
// machine does.
func (w *world) assignAll() error {
	view := w.view()
	for _, r := range w.runs {
		g := &state.Generation{Predicted: uint64(r.predicted), Trace: r.trace}
		switch {
		case w.fleet.count:
			g.Predicted = 1
		case !w.fleet.blind:
			g.Prefill = predict.Prefill(w.learned.class(r), &r.trace, g.Predicted)
		}
		var a *state.Affinity
		if w.fleet.tags {
			a = &state.Affinity{Hardware: affinities[r.Task], SpillPercent: w.fleet.spill}
		}
		at, _ := view.Choose(g, a)
		if at < 0 {
			return fmt.Errorf("%w: %d trajectories are more than the slots of %d workers", ErrSetup, len(w.runs), len(w.workers))
		}
		view.Add(at, g)
		r.target = at
	}
	return nil
}

// view describes the workers as they would be registered.
func (w *world) view() (v place.View) {
	for i, o := range w.workers {
		row := &state.Worker{Name: fmt.Sprintf("w%03d", i), Hardware: w.fleet.kinds[i], Degree: uint32(o.degree), Slots: uint32(w.setup.Slots), Prefill1kNS: o.profile.PrefillNS(1000, 0)}
		if w.fleet.blind || w.fleet.count {
			row.Hardware = ""
		}
		if w.fleet.count {
			row.Profile, row.Prefill1kNS = []state.WorkerPoint{{Batch: 1, TokenNS: 1}}, 0
			v = append(v, place.Candidate{Row: row, State: state.WorkerUp})
			continue
		}
		for _, at := range o.profile.Batch {
			row.Profile = append(row.Profile, state.WorkerPoint{Batch: uint32(at.Batch), TokenNS: at.StepPS / 1000})
		}
		v = append(v, place.Candidate{Row: row, State: state.WorkerUp})
	}
	return v
}

// Median is the median of a figure of the last steps, the smaller of two.
func (r *HardwareResult) Median(figure func(r *StepResult) int64) int64 {
	return median(r.Last, figure)
}
