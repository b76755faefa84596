package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"rota/internal/sim/chart"
	"rota/internal/sim/turns"
)

const (
	ppm     = 1_000_000
	simNS   = 1_000_000_000
	simHour = 3600 * simNS
)

func (a *app) simPackingCmd() *cobra.Command {
	var f simFlags
	p := turns.DefaultPacking()
	per := "step"
	cmd := &cobra.Command{
		Use: "packing", Short: "Compare training jobs that share nodes with jobs that do not (PlexRL §6.2)", Args: exactly(),
		Long: `Simulates 1 to 6 training jobs of a model that share one group of nodes, on the real state
machine. Set-ups take 0 to 19 s. They are serial, or overlap with the turn before. The
GPU-hours per step are compared with split-async (the job alone, with separate nodes for
training and for rollouts) and with colocated. Models and phases come from PlexRL's
Tables 1 and 2.

With -o json, the output ends with one JSON object. Its "jobs" have the longest set-up,
overlapped.`,
		Example: "  rota sim compare packing\n  rota sim compare packing --turns operation\n  rota sim compare packing -o json --plot /tmp/plots",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch per {
			case "step":
				p.Turns = 1
			case "operation":
				p.Turns = 3
			default:
				return usageErrorf("--turns must be step or operation, not %q", per)
			}
			if p.Steps < 1 || p.Steps > 100_000 {
				return usageErrorf("--steps must be from 1 to 100000")
			}
			defer debug.SetGCPercent(debug.SetGCPercent(simCollectPercent))
			all, err := turns.Packing(cmd.Context(), p)
			if err != nil {
				return err
			}
			return a.printPacking(&f, per, all)
		},
	}
	fs := cmd.Flags()
	fs.Uint64Var(&p.Seed, "seed", p.Seed, "seed of all that is drawn")
	fs.Int64Var(&p.Steps, "steps", p.Steps, "number of steps of each job that count")
	fs.StringVar(&per, "turns", per, "unit of a turn: step (a step with all its operations) or operation")
	fs.StringVar(&f.plot, "plot", "", "folder to draw into (SVG)")
	fs.BoolVar(&f.markdown, "markdown", false, "write tables as Markdown")
	return cmd
}

// printPacking writes what a step saves, and what the baselines cost.
func (a *app) printPacking(f *simFlags, per string, all []turns.Packed) error {
	if f.plot != "" {
		if err := a.plotPacking(f.plot, all); err != nil {
			return err
		}
	}
	if a.json() {
		return writeJSON(a.out, packingJSON(all))
	}
	title := "simulated: packing, a turn for each " + per
	if err := a.printSim(f, title+", GPU-hours of a step saved beside split-async in % (longer steps in %)", packingHeader(all), packingRows(all)); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	return a.printSim(f, title+", GPU-hours of a step",
		[]string{"model", "set-up s", "split-async", "colocated, least", "colocated, most", "rota, two jobs", "rota, most jobs", "of split-async %"}, packingCosts(all))
}

// setUpName is a set-up in words.
func setUpName(s turns.SetUp) string {
	switch {
	case s.NS == 0:
		return "0"
	case s.Overlapped:
		return fmt.Sprintf("%d overlapped", s.NS/simNS)
	}
	return fmt.Sprintf("%d serial", s.NS/simNS)
}

func packingHeader(all []turns.Packed) []string {
	header := []string{"model", "set-up s"}
	for i := range all {
		if n := fmt.Sprintf("%d jobs", all[i].Jobs); all[i].Jobs > 1 && header[len(header)-1] != n && len(header) < 7 {
			header = append(header, n)
		}
	}
	return header
}

// packingRows have a line for each model and set-up. Where the ledger admits fewer jobs
// there is a dash.
func packingRows(all []turns.Packed) (rows [][]string) {
	for i := range all {
		x := &all[i]
		if x.Jobs == 1 {
			rows = append(rows, []string{x.Model.Name, setUpName(x.SetUp)})
			continue
		}
		cell := "-"
		if x.Admitted == x.Jobs {
			cell = fmt.Sprintf("%s (%s)", tenths(x.SavingPPM()), tenths(x.SlowdownPPM()))
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], cell)
	}
	return rows
}

// slowdownMax is how much longer a step may be for jobs to count as packed.
const slowdownMax = 50_000

// packingCosts compare two jobs, and as many as fit, with the baselines.
func packingCosts(all []turns.Packed) (rows [][]string) {
	hours := func(gpuMS int64) string { return fmt.Sprintf("%.3f", float64(gpuMS)/3.6e6) }
	for i := range all {
		if all[i].Jobs != 1 {
			continue
		}
		b := turns.NewBaseline(all[i].Model, all[i].SetUp.NS)
		cost := func(x *turns.Packed) string { return hours(b.SplitAsync * x.CostPPM() / ppm) }
		two, most := &all[i], &all[i]
		for k := i + 1; k < len(all) && all[k].Jobs > 1; k++ {
			x := &all[k]
			if x.Admitted != x.Jobs || x.SlowdownPPM() > slowdownMax {
				break
			}
			if most = x; x.Jobs == 2 {
				two = x
			}
		}
		rows = append(rows, []string{b.Model.Name, setUpName(all[i].SetUp), hours(b.SplitAsync), hours(b.ColocatedLeast), hours(b.ColocatedMost),
			cost(two), fmt.Sprintf("%s (%d)", cost(most), most.Jobs), tenths(most.CostPPM())})
	}
	return rows
}

// tenths writes parts per million as 5.2.
func tenths(v int64) string { return fmt.Sprintf("%.1f", float64(v)/1e4) }

type packedJSON struct {
	Saving   int64 `json:"saving_ppm"`
	Slowdown int64 `json:"slowdown_ppm"`
}

type packingModelJSON struct {
	// Jobs with the longest set-up, overlapped.
	Jobs map[string]packedJSON `json:"jobs"`
	// SetUps has all of them.
	SetUps map[string]map[string]packedJSON `json:"set_ups"`
	// GPU milliseconds of a step, with the longest set-up.
	SplitAsync     int64 `json:"split_async_gpu_ms"`
	ColocatedLeast int64 `json:"colocated_least_gpu_ms"`
	ColocatedMost  int64 `json:"colocated_most_gpu_ms"`
}

func packingJSON(all []turns.Packed) map[string]*packingModelJSON {
	out := make(map[string]*packingModelJSON)
	for i := range all {
		x := &all[i]
		m := out[x.Model.Name]
		if m == nil {
			b := turns.NewBaseline(x.Model, turns.SetUpMax)
			m = &packingModelJSON{make(map[string]packedJSON), make(map[string]map[string]packedJSON), b.SplitAsync, b.ColocatedLeast, b.ColocatedMost}
			out[x.Model.Name] = m
		}
		if x.Admitted != x.Jobs || x.Jobs == 1 {
			continue
		}
		name, jobs := setUpName(x.SetUp), strconv.FormatInt(x.Jobs, 10)
		if m.SetUps[name] == nil {
			m.SetUps[name] = make(map[string]packedJSON)
		}
		m.SetUps[name][jobs] = packedJSON{x.SavingPPM(), x.SlowdownPPM()}
		if x.SetUp.Overlapped && x.SetUp.NS == turns.SetUpMax {
			m.Jobs[jobs] = m.SetUps[name][jobs]
		}
	}
	return out
}

// plotPacking draws for each model what is saved over the number of jobs.
func (a *app) plotPacking(dir string, all []turns.Packed) error {
	for i := range turns.Models {
		name := turns.Models[i].Name
		var lines []chart.Line
		for k := range all {
			x := &all[k]
			if x.Model.Name != name || x.Admitted != x.Jobs {
				continue
			}
			if x.Jobs == 1 {
				lines = append(lines, chart.Line{Name: "set-up " + setUpName(x.SetUp) + " s"})
			}
			l := &lines[len(lines)-1]
			l.Points = append(l.Points, chart.XY{X: float64(x.Jobs), Y: float64(x.SavingPPM()) / 1e4})
		}
		file, err := chart.Lines(dir, "packing-"+name+".svg",
			chart.Axes{Title: "GPU-hours of a step saved beside split-async, " + name + " (simulated)", X: "jobs on a group", Y: "saved (%)"}, lines)
		if err != nil {
			return err
		}
		a.drawn(file)
	}
	return nil
}

func (a *app) simReplayCmd() *cobra.Command {
	var (
		f       simFlags
		loads   []string
		p       = turns.DefaultReplay()
		workers int
	)
	cmd := &cobra.Command{
		Use: "replay", Short: "Replay three months of training jobs under four policies (PlexRL §6.3)", Args: exactly(),
		Long: `Replays a synthetic trace of three months on the real state machine, under the policies
isolated, pack, spread and spread+backfill. It compares the makespan, and how long jobs
wait for placement as a fraction of their duration. The documentation of package
internal/sim/turns describes the trace.

--compress divides hours and steps, so that the replay ends in minutes. Arrivals, sizes
and the ratios of durations do not change. --gpus is the size of the cluster, and the
load is relative to this size. Several loads give a sweep. With -o json, the output ends
with one JSON object. Its "policies" are the policies of the last load.`,
		Example: "  rota sim compare replay\n  rota sim compare replay --load 1,1.5,2,3\n  rota sim compare replay --gpus 2048 --compress 1",
		RunE: func(cmd *cobra.Command, _ []string) error {
			t := &p.Trace
			if t.GPUs < 256 || t.GPUs > 1<<20 || t.Compress < 1 || t.Compress > 1000 || workers < 1 || len(loads) == 0 {
				return usageErrorf("--gpus must be 256 to 1048576, --compress 1 to 1000, --workers at least 1, and --load not empty")
			}
			defer debug.SetGCPercent(debug.SetGCPercent(simCollectPercent))
			var points []replayPoint
			for _, text := range loads {
				load, err := strconv.ParseFloat(text, 64)
				if err != nil || !(load > 0 && load <= 20) {
					return usageErrorf("--load %q is not a number above 0 and up to 20", text)
				}
				t.LoadPPM = int64(load * ppm)
				at := replayPoint{load: text}
				for _, policy := range turns.Policies {
					r, err := turns.Replay(cmd.Context(), policy, p, workers)
					if err != nil {
						return err
					}
					at.policies = append(at.policies, r)
				}
				points = append(points, at)
			}
			return a.printReplay(&f, &p, points)
		},
	}
	fs := cmd.Flags()
	fs.Uint64Var(&p.Trace.Seed, "seed", p.Trace.Seed, "seed of all that is drawn")
	fs.StringSliceVar(&loads, "load", []string{"2"}, "GPU time of the jobs alone, as a fraction of the cluster's GPU time in three months")
	fs.Int64Var(&p.Trace.GPUs, "gpus", p.Trace.GPUs, "GPUs of the cluster")
	fs.Int64Var(&p.Trace.Compress, "compress", p.Trace.Compress, "divisor of hours and steps")
	fs.IntVar(&workers, "workers", runtime.NumCPU(), "number of parts of the cluster that are simulated at the same time")
	fs.StringVar(&f.plot, "plot", "", "folder to draw into (SVG)")
	fs.BoolVar(&f.markdown, "markdown", false, "write tables as Markdown")
	return cmd
}

// replayPoint is what became of the trace of one load.
type replayPoint struct {
	load     string
	policies []*turns.Replayed
}

func (a *app) printReplay(f *simFlags, p *turns.ReplayParams, points []replayPoint) error {
	if f.plot != "" {
		if err := a.plotReplay(f.plot, points); err != nil {
			return err
		}
	}
	if a.json() {
		return writeJSON(a.out, replayJSON(points))
	}
	title := fmt.Sprintf("simulated: replay, %d GPUs, %d days at 1/%d, set-up %s s, seed %d",
		p.Trace.GPUs, p.Trace.Hours/24, p.Trace.Compress, setUpName(p.SetUp), p.Trace.Seed)
	header := []string{"load", "jobs", "policy", "makespan days", "of isolated %", "delay p50 %", "p90 %", "p99 %", "longer %", "backfilled", "set-ups waited for %", "groups x jobs", "days (longer %) of each"}
	var rows [][]string
	for _, at := range points {
		base := at.policies[0].MakespanNS
		for _, r := range at.policies {
			rows = append(rows, []string{at.load, strconv.Itoa(r.Jobs), r.Policy,
				days(r.MakespanNS, p.Trace.Compress), fmt.Sprintf("%.1f", 100*float64(r.MakespanNS)/float64(base)),
				tenths(r.Quantile(ppm / 2)), tenths(r.Quantile(ppm / 10 * 9)), tenths(r.Quantile(ppm / 100 * 99)),
				tenths(r.SlowerPPM), strconv.Itoa(r.Backfilled), tenths(r.StalledPPM), layoutText(r.Layouts), modelsText(r, p.Trace.Compress)})
		}
	}
	return a.printSim(f, title, header, rows)
}

// layoutText says how a cluster was divided: groups times jobs.
func layoutText(all []turns.Layout) string {
	var parts []string
	for _, l := range all {
		parts = append(parts, fmt.Sprintf("%s %dx%d", l.Model.Name, l.Groups, l.Jobs))
	}
	return strings.Join(parts, ", ")
}

// modelsText says how long the jobs of each model took.
func modelsText(r *turns.Replayed, compress int64) string {
	var parts []string
	for _, m := range r.Models {
		parts = append(parts, fmt.Sprintf("%s (%s)", days(m.MakespanNS, compress), tenths(m.SlowerPPM)))
	}
	return strings.Join(parts, ", ")
}

// days of the trace, as it was before hours were divided.
func days(ns, compress int64) string {
	return fmt.Sprintf("%.1f", float64(ns)/simHour/24*float64(compress))
}

type replayedJSON struct {
	Makespan int64 `json:"makespan_s"`
	P50      int64 `json:"delay_p50_ppm"`
	P99      int64 `json:"delay_p99_ppm"`
	Slower   int64 `json:"longer_ppm"`
}

type replayPointJSON struct {
	Load     string                  `json:"load,omitempty"`
	Policies map[string]replayedJSON `json:"policies"`
}

// replayJSON has the last load's policies where those of a single one are.
func replayJSON(points []replayPoint) any {
	var out struct {
		Simulated bool              `json:"simulated"`
		Sweep     []replayPointJSON `json:"sweep,omitempty"`
		replayPointJSON
	}
	out.Simulated = true
	for _, at := range points {
		x := replayPointJSON{at.load, make(map[string]replayedJSON)}
		for _, r := range at.policies {
			x.Policies[r.Policy] = replayedJSON{r.MakespanNS / simNS, r.Quantile(ppm / 2), r.Quantile(ppm / 100 * 99), r.SlowerPPM}
		}
		out.Sweep = append(out.Sweep, x)
	}
	out.replayPointJSON = replayPointJSON{Policies: out.Sweep[len(out.Sweep)-1].Policies}
	if len(out.Sweep) == 1 {
		out.Sweep = nil
	}
	return out
}

// cdfPoints is how many points a drawn distribution has.
const cdfPoints = 100

// plotReplay draws the distribution of delays for each load, and makespans over loads.
func (a *app) plotReplay(dir string, points []replayPoint) error {
	makespan := make([]chart.Line, len(turns.Policies))
	for _, at := range points {
		x, _ := strconv.ParseFloat(at.load, 64)
		var lines []chart.Line
		for i, r := range at.policies {
			l := chart.Line{Name: r.Policy, Steps: true}
			for k := range int64(cdfPoints + 1) {
				delay := max(float64(r.Quantile(k*ppm/cdfPoints))/ppm, 0.001)
				l.Points = append(l.Points, chart.XY{X: delay, Y: float64(k * 100 / cdfPoints)})
			}
			lines = append(lines, l)
			makespan[i].Name = r.Policy
			makespan[i].Points = append(makespan[i].Points, chart.XY{X: x, Y: 100 * float64(r.MakespanNS) / float64(at.policies[0].MakespanNS)})
		}
		file, err := chart.Lines(dir, "replay-delay-"+at.load+".svg", chart.Axes{
			Title: "Delay of jobs at load " + at.load + " (simulated)", X: "time waited / duration; 0.001 is at most that", Y: "jobs (%)", LogX: true}, lines)
		if err != nil {
			return err
		}
		a.drawn(file)
	}
	if len(points) < 2 {
		return nil
	}
	file, err := chart.Lines(dir, "replay-makespan.svg", chart.Axes{Title: "Makespan beside isolated (simulated)", X: "load", Y: "of isolated (%)"}, makespan)
	a.drawn(file)
	return err
}
