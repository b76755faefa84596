package cli

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rota/sched/place/partition"
	"rota/sched/scale/degrees"
)

// simPlaceFlags are those of sim place.
type simPlaceFlags struct {
	simFlags
	lengths, column string
	trajectories    int
	median, spread  float64
	seed            uint64
	placed, degrees []string
	gpus, slots     int
	literal         bool
}

func (a *app) simPlaceCmd() *cobra.Command {
	var f simPlaceFlags
	cmd := &cobra.Command{
		Use: "place", Short: "Plan which rollout worker generates for which trajectory", Args: exactly(),
		Long: `Divides trajectories of known lengths among rollout workers so that the last one ends early, as
servers do with predicted lengths, and prints the groups. Nothing runs: times follow from the
profiles. With --degree and --gpus it first decides how many GPUs each worker shares its model over.

A profile is the time for a token at one batch size or more, such as 1=8ms,64=13ms,256=30ms.`,
		Example: "  rota sim place\n  rota sim place --lengths rollouts.csv --column output_tokens --worker 8:1=8ms,64=13ms\n" +
			"  rota sim place --worker 4:1=5ms,64=9ms --worker 16:1=8ms,64=13ms --dp\n" +
			"  rota sim place --gpus 64 --degree 1:1=8ms,64=13ms --degree 4:1=3ms,64=4500us",
		RunE: func(*cobra.Command, []string) error {
			r, err := f.plan()
			if err != nil {
				return err
			}
			return a.printPlace(&f, r)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.lengths, "lengths", "", "CSV file with a line for each trajectory, the names of columns first (default: lengths are drawn)")
	fs.StringVar(&f.column, "column", "length", "column of the file that has the tokens to generate")
	fs.IntVar(&f.trajectories, "trajectories", 6400, "trajectories that are drawn")
	fs.Float64Var(&f.median, "median", 2000, "median of drawn lengths, in tokens")
	fs.Float64Var(&f.spread, "spread", 1.5, "standard deviation of drawn lengths, in octaves (log-normal)")
	fs.Uint64Var(&f.seed, "seed", 1, "seed of drawn lengths")
	fs.StringArrayVar(&f.placed, "worker", nil, "workers of one kind, COUNT:PROFILE; may be repeated (default 64:1=8ms,64=13ms,256=30ms, an assumption)")
	fs.IntVar(&f.slots, "slots", 0, "requests that a worker runs at once (default: as many as come)")
	fs.StringArrayVar(&f.degrees, "degree", nil, "a degree that workers may have, GPUS:PROFILE; may be repeated; needs --gpus")
	fs.IntVar(&f.gpus, "gpus", 0, "GPUs to allocate; needs --degree")
	fs.BoolVar(&f.literal, "dp", false, "run the dynamic programme of Heddle (§5.2) too, with workers in the order of the plan; it takes seconds for thousands of trajectories")
	fs.BoolVar(&f.markdown, "markdown", false, "write the table as Markdown")
	return cmd
}

// placeResult is a plan and how it came about.
type placeResult struct {
	Simulated  bool         `json:"simulated"`
	Title      string       `json:"title"`
	Groups     []placeGroup `json:"groups"`
	MakespanMS float64      `json:"makespan_ms"`
	PlanningMS float64      `json:"planning_ms"`
	GPUs       int          `json:"gpus,omitempty"`
	FewestGPUs int          `json:"fewest_gpus,omitempty"`
	DPMS       *float64     `json:"dp_makespan_ms,omitempty"`
	DPTakesMS  *float64     `json:"dp_planning_ms,omitempty"`
}

// placeGroup is what one worker gets.
type placeGroup struct {
	Worker       string  `json:"worker"`
	Trajectories int     `json:"trajectories"`
	Longest      int64   `json:"longest_tokens"`
	TokenMS      float64 `json:"token_ms"`
	EndMS        float64 `json:"end_ms"`
}

// placeKind is a class of workers, or a degree.
type placeKind struct {
	number int
	name   string
	worker partition.Worker
}

// plan does what the flags say.
func (f *simPlaceFlags) plan() (*placeResult, error) {
	if (len(f.degrees) > 0) != (f.gpus > 0) || len(f.degrees) > 0 && len(f.placed) > 0 {
		return nil, usageErrorf("--degree and --gpus need each other, and exclude --worker")
	}
	lengths, source, err := f.read()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	r := &placeResult{Simulated: true}
	kinds, workers, err := f.workers(lengths, r)
	if err != nil {
		return nil, err
	}
	plan, err := new(partition.Planner).Plan(partition.Trajectories{Lengths: lengths}, workers)
	if err != nil {
		return nil, usageErrorf("%w", err)
	}
	r.PlanningMS = milliseconds(int64(time.Since(begin)))
	r.MakespanMS = milliseconds(plan.MakespanNS)
	r.Title = fmt.Sprintf("simulated: placement of %d trajectories (%s) on %d workers", len(lengths), source, len(workers))
	rank := 0
	curves := make([]partition.Curve, 0, len(workers))
	for _, g := range plan.Groups {
		curve := workers[g.Worker].Curve
		curves = append(curves, curve)
		group := placeGroup{Worker: kinds[g.Worker], Trajectories: g.Size}
		if g.Size > 0 {
			group.Longest, group.TokenMS = lengths[rank], milliseconds(curve.TokenNS(g.Size))
			group.EndMS = milliseconds(lengths[rank] * curve.TokenNS(g.Size))
		}
		r.Groups = append(r.Groups, group)
		rank += g.Size
	}
	if f.literal {
		begin = time.Now()
		makespan := milliseconds(literalPlacement(lengths, curves))
		takes := milliseconds(int64(time.Since(begin)))
		r.DPMS, r.DPTakesMS = &makespan, &takes
	}
	return r, nil
}

func milliseconds(ns int64) float64 { return float64(ns) / 1e6 }

// workers are those of the flags, or of an allocation of degrees, with their names.
func (f *simPlaceFlags) workers(lengths []int64, r *placeResult) (names []string, workers []partition.Worker, err error) {
	specs := f.degrees
	if len(specs) == 0 {
		if specs = f.placed; len(specs) == 0 {
			specs = []string{"64:1=8ms,64=13ms,256=30ms"}
		}
	}
	var kinds []placeKind
	var options []degrees.Option
	for _, spec := range specs {
		kind, err := readPlaceKind(spec, f.slots)
		if err != nil {
			return nil, nil, usageErrorf("%q: %w", spec, err)
		}
		kinds, options = append(kinds, kind), append(options, degrees.Option{GPUs: kind.number, Worker: kind.worker})
	}
	if len(f.degrees) == 0 {
		for _, kind := range kinds {
			for range kind.number {
				names, workers = append(names, kind.name), append(workers, kind.worker)
			}
		}
		return names, workers, nil
	}
	allocation, err := new(degrees.Allocator).Allocate(partition.Trajectories{Lengths: lengths}, options, f.gpus)
	if err != nil {
		return nil, nil, usageErrorf("%w", err)
	}
	r.GPUs, r.FewestGPUs = allocation.GPUs, allocation.FewestGPUs
	for _, w := range allocation.Workers {
		names = append(names, fmt.Sprintf("degree %d", options[w.Option].GPUs))
		workers = append(workers, options[w.Option].Worker)
	}
	return names, workers, nil
}

// readPlaceKind reads NUMBER:BATCH=TIME,...
func readPlaceKind(spec string, slots int) (placeKind, error) {
	number, profile, ok := strings.Cut(spec, ":")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 1 || n > 10_000 {
		return placeKind{}, errors.New("write NUMBER:BATCH=TIME,BATCH=TIME,... with a number from 1 to 10000")
	}
	var points []partition.Point
	for _, point := range strings.Split(profile, ",") {
		batch, text, _ := strings.Cut(point, "=")
		size, err := strconv.Atoi(batch)
		took, durationErr := time.ParseDuration(text)
		if err != nil || durationErr != nil {
			return placeKind{}, fmt.Errorf("%q is not BATCH=TIME, such as 64=13ms", point)
		}
		points = append(points, partition.Point{Batch: size, TokenNS: int64(took)})
	}
	curve, err := partition.NewCurve(points, slots)
	return placeKind{number: n, name: profile, worker: partition.Worker{Curve: curve}}, err
}

// read reads or draws lengths, the longest first.
func (f *simPlaceFlags) read() (lengths []int64, source string, err error) {
	if f.lengths != "" {
		lengths, err = readTrace(f.lengths, func(r io.Reader) ([]int64, error) { return readColumn(r, f.column) })
		if err != nil {
			return nil, "", err
		}
		source = "of a file"
	} else {
		if f.trajectories < 1 || f.trajectories > partition.CountMax || !(f.median >= 1 && f.median <= partition.LengthMax) || !(f.spread >= 0 && f.spread <= 10) {
			return nil, "", usageErrorf("--trajectories must be from 1 to %d, --median from 1 to %d and --spread from 0 to 10", partition.CountMax, partition.LengthMax)
		}
		random := rand.New(rand.NewPCG(f.seed, 0))
		for range f.trajectories {
			length := f.median * math.Exp2(f.spread*random.NormFloat64())
			lengths = append(lengths, int64(min(max(length, 1), partition.LengthMax)))
		}
		source = fmt.Sprintf("drawn, median %g tokens, spread %g octaves, seed %d", f.median, f.spread, f.seed)
	}
	slices.SortFunc(lengths, func(a, b int64) int { return cmp.Compare(b, a) })
	return lengths, source, nil
}

// readColumn reads the whole numbers of a column.
func readColumn(r io.Reader, name string) (values []int64, err error) {
	lines := csv.NewReader(r)
	header, err := lines.Read()
	if err != nil {
		return nil, fmt.Errorf("no line with the names of columns: %w", err)
	}
	column := slices.Index(header, name)
	if column < 0 {
		return nil, fmt.Errorf("no column %q; name one of %s with --column", name, strings.Join(header, ", "))
	}
	for {
		line, err := lines.Read()
		if err == io.EOF && len(values) == 0 {
			return nil, errors.New("no line with a trajectory")
		}
		if err == io.EOF {
			return values, nil
		}
		if err != nil {
			return nil, err
		}
		value, err := strconv.ParseInt(line[column], 10, 64)
		if err != nil || value < 0 || value > partition.LengthMax {
			at, _ := lines.FieldPos(column)
			return nil, fmt.Errorf("line %d: %q is not a number of tokens from 0 to %d", at, line[column], partition.LengthMax)
		}
		values = append(values, value)
	}
}

// literalPlacement is the makespan by Heddle's dynamic programme (formula 3), workers in the given
// order.
func literalPlacement(lengths []int64, workers []partition.Curve) int64 {
	best := make([]int64, len(lengths)+1) // of the first trajectories, on the workers so far
	for i := range best[1:] {
		best[i+1] = math.MaxInt64
	}
	token := make([]int64, len(best))
	for _, curve := range workers {
		for n := 1; n < len(token); n++ {
			token[n] = curve.TokenNS(n)
		}
		for i := len(lengths); i > 0; i-- {
			for j := range i {
				best[i] = min(best[i], max(best[j], token[i-j]*max(lengths[j], 1)))
			}
		}
	}
	return best[len(lengths)]
}

// printPlace writes a line for each group, and what the plan is worth.
func (a *app) printPlace(f *simPlaceFlags, r *placeResult) error {
	if a.json() {
		return writeJSON(a.out, r)
	}
	var rows [][]string
	for i, g := range r.Groups {
		rows = append(rows, []string{fmt.Sprint(i + 1), g.Worker, fmt.Sprint(g.Trajectories), fmt.Sprint(g.Longest), fmt.Sprintf("%.2f", g.TokenMS), fmt.Sprintf("%.1f", g.EndMS/1e3)})
	}
	if err := a.printSim(&f.simFlags, r.Title, []string{"group", "worker", "trajectories", "longest", "token ms", "end s"}, rows); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "\nmakespan %.1f s, planned in %.3g ms\n", r.MakespanMS/1e3, r.PlanningMS)
	if r.GPUs > 0 {
		fmt.Fprintf(a.out, "%d GPUs are used; the makespan needs %d of them\n", r.GPUs, r.FewestGPUs)
	}
	if r.DPMS != nil {
		fmt.Fprintf(a.out, "dynamic programme of Heddle, workers in this order: %.1f s, planned in %.3g ms\n", *r.DPMS/1e3, *r.DPTakesMS)
	}
	return nil
}
