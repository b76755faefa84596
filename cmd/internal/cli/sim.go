package cli

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rota/internal/sim/chart"
	"rota/internal/sim/evaluate"
	"rota/internal/sim/workload"
)

func (a *app) simCmd() *cobra.Command {
	return group("sim", "Simulate workloads on the real state machine and on the baselines",
		a.simRunCmd(), a.simCompareCmd(), a.simLogCmd(), a.simFiguresCmd(), a.simDocumentCmd(),
		a.simLengthsCmd(), a.simPlaceCmd(), a.simRolloutsCmd())
}

// simFlags are those of every simulation.
type simFlags struct {
	set       []string
	trace     string
	toolShare float64
	gapCap    time.Duration
	commit    time.Duration
	dispatch  time.Duration
	resize    time.Duration
	open      time.Duration
	plot      string
	markdown  bool
	workers   int
	kind      string
	breakdown bool
	estimates bool
}

// simCollectPercent is the garbage collector's target, in percent of the live heap: a
// simulation allocates much and retains little.
const simCollectPercent = 800

var simSettingHelp = map[string]string{
	"batch":      "trajectories in a step of each task",
	"steps":      "steps of each task",
	"nodes":      "nodes of each kind that the workload has",
	"cores":      "cores of a node",
	"gpus":       "GPUs of a node",
	"tool-width": "cores that a tool call uses, for the same time as with one core",
	"serial":     "mean serial fraction of rewards, in parts per million",
	"seed":       "seed of all random values",
	"known":      "what rota knows of how long actions take: profiles (what clients say), sizes (what it learns by size), classes (what it learns) or nothing",
	"objective":  "what rota divides cores for: mean (actions complete soon) or step (the last trajectory of a step ends soon)",
}

func (f *simFlags) addTo(fs *pflag.FlagSet) {
	for _, name := range evaluate.SettingNames() {
		what := simSettingHelp[name] + " (default: as the workload says)"
		if name == "seed" {
			what = simSettingHelp[name] + " (default 1)"
		}
		if evaluate.SettingWords(name) != nil {
			fs.String(name, "", what)
			continue
		}
		fs.Int64(name, 0, what)
	}
	fs.Lookup("seed").DefValue = "0"
	fs.StringArrayVar(&f.set, "set", nil, "set any figure, PATH=VALUE; for the paths see: rota sim figures")
	fs.StringVar(&f.trace, "trace", "", "CSV file of turns to replay, with the columns trajectory, turn, start_s, input_tokens, output_tokens, generate_s, gap_s, stop")
	fs.Float64Var(&f.toolShare, "tool-share", 0.5, "fraction of a gap of the trace in which a tool computes; the rest is waiting")
	fs.DurationVar(&f.gapCap, "gap-cap", 10*time.Minute, "longest gap of the trace that counts")
	fs.DurationVar(&f.commit, "commit", time.Duration(evaluate.DefaultLatency.Commit), "duration of a commit")
	fs.DurationVar(&f.dispatch, "dispatch", time.Duration(evaluate.DefaultLatency.Dispatch), "time to start a granted action on its node")
	fs.DurationVar(&f.resize, "resize", time.Duration(evaluate.DefaultLatency.Resize), "time for which an action does not get on when it is given other cores; 0: resizes cost nothing")
	fs.DurationVar(&f.open, "open", time.Duration(evaluate.DefaultLatency.Open), "time to open the sandbox of a trajectory after the trajectory got its node; actions on cores wait for it; pods have baseline.pods.start")
	fs.StringVar(&f.plot, "plot", "", "folder for charts (PNG)")
	fs.BoolVar(&f.markdown, "markdown", false, "write the table as Markdown")
	fs.IntVar(&f.workers, "workers", runtime.NumCPU(), "number of policies that run at the same time")
	fs.StringVar(&f.kind, "kind", "", "count only actions of this kind, tool or reward, except in the columns of the whole step")
	fs.BoolVar(&f.estimates, "estimates", false, "ask of each action when it would start, and show instead how good the answers were; of policies that run the state machine")
	fs.BoolVar(&f.breakdown, "breakdown", false, "show instead how a trajectory spends its time")
}

// read makes the setup that the flags describe.
func (f *simFlags) read(fs *pflag.FlagSet, name string) (evaluate.Setup, error) {
	s := evaluate.Setup{Workload: name, Seed: 1, Estimates: f.estimates, Latency: evaluate.Latency{
		Commit: int64(f.commit), Dispatch: int64(f.dispatch), Resize: int64(f.resize), Open: int64(f.open),
	}}
	for _, d := range []time.Duration{f.commit, f.dispatch, f.resize, f.open} {
		if d < 0 || d > time.Minute {
			return s, usageErrorf("--commit, --dispatch, --resize and --open must be from 0 to 1 minute")
		}
	}
	var err error
	set := func(name, value string) {
		if e := s.Set(name, value); e != nil && err == nil {
			err = e
		}
	}
	for _, name := range evaluate.SettingNames() {
		if flag := fs.Lookup(name); flag.Changed {
			set(name, flag.Value.String())
		}
	}
	for _, pair := range f.set {
		path, value, ok := strings.Cut(pair, "=")
		if !ok {
			return s, usageErrorf("--set %q is not PATH=VALUE", pair)
		}
		set(path, value)
	}
	if err != nil || f.trace == "" {
		return s, err
	}
	if !(f.toolShare >= 0 && f.toolShare <= 1) || f.gapCap < 0 {
		return s, usageErrorf("--tool-share must be from 0 to 1, and --gap-cap must not be negative")
	}
	s.Replay.SharePPM, s.Replay.CapNS = int64(math.Round(f.toolShare*1e6)), int64(f.gapCap)
	file, err := os.Open(f.trace)
	if err != nil {
		return s, fmt.Errorf("trace: %w", err)
	}
	defer file.Close()
	s.Sessions, err = workload.ReadSessions(file)
	return s, err
}

func (a *app) simRunCmd() *cobra.Command {
	var (
		f      simFlags
		policy string
	)
	cmd := &cobra.Command{
		Use: "run WORKLOAD", Short: "Run a workload under one policy, in virtual time", Args: exactly("WORKLOAD"),
		Long: `Simulates the real state machine, or a baseline, under one of the workloads coding, mopd,
deepsearch and mopd+deepsearch. The same seed gives the same result. JSON is the same
object that "rota sim compare" writes.`,
		Example: "  rota sim run coding --batch 1280 --steps 20\n  rota sim run coding --policy fixed-8 --plot /tmp/plots",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.simulate(cmd, &f, args[0], []string{policy}, "")
		},
	}
	f.addTo(cmd.Flags())
	cmd.Flags().StringVar(&policy, "policy", "rota", "policy, one of "+strings.Join(evaluate.PolicyNames(), ", "))
	simWords(cmd)
	return cmd
}

func (a *app) simCompareCmd() *cobra.Command {
	var (
		f        simFlags
		policies []string
		sweep    string
	)
	cmd := &cobra.Command{
		Use: "compare WORKLOAD", Short: "Compare rota with other policies on a workload", Args: exactly("WORKLOAD"),
		Long: `Runs the same trajectories under several policies and compares the action completion time
(ACT). By default, the policies are the baselines of ARL-Tangram for the workload. With
-o json, the output ends with one JSON object.

--sweep repeats the comparison for several values of a setting or of any figure.`,
		Example: "  rota sim compare coding\n  rota sim compare coding --batch 256 -o json\n" +
			"  rota sim compare coding --sweep batch=128,512,1280,1536\n" +
			"  rota sim compare coding --kind reward --policies rota,fixed-4,fixed-16\n" +
			"  rota sim compare coding --breakdown\n" +
			"  rota sim compare coding --trace rollouts.csv --tool-share 0.3",
		RunE: func(cmd *cobra.Command, args []string) error {
			if policies != nil && len(policies) == 0 {
				return usageErrorf("--policies is empty")
			}
			return a.simulate(cmd, &f, args[0], policies, sweep)
		},
	}
	f.addTo(cmd.Flags())
	cmd.Flags().StringSliceVar(&policies, "policies", nil, "policies to compare: "+strings.Join(evaluate.PolicyNames(), ", "))
	cmd.AddCommand(a.simPackingCmd(), a.simReplayCmd(), a.simModelsCmd())
	cmd.Flags().StringVar(&sweep, "sweep", "", "repeat the comparison for each value, NAME=VALUE,VALUE,...; NAME is a flag such as batch, or the path of a figure")
	simWords(cmd)
	return cmd
}

// simWords completes the names of workloads.
func simWords(cmd *cobra.Command) {
	cmd.ValidArgs = workload.Names()
}

// simulate runs what the flags say and prints it.
func (a *app) simulate(cmd *cobra.Command, f *simFlags, name string, policies []string, sweep string) error {
	s, err := f.read(cmd.Flags(), name)
	if err != nil {
		return simError(err)
	}
	if f.kind != "" && f.kind != "tool" && f.kind != "reward" {
		return usageErrorf("--kind must be tool or reward, not %q", f.kind)
	}
	if f.breakdown && sweep != "" {
		return usageErrorf("--breakdown works for one comparison only; leave out --sweep")
	}
	if f.estimates && (f.breakdown || f.kind != "") {
		return usageErrorf("--estimates shows a table of its own, of all actions; leave out --breakdown and --kind")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(simCollectPercent))
	bar := newSimBar(a.err)
	defer bar.end()
	if sweep == "" {
		r, err := evaluate.Compare(cmd.Context(), s, policies, f.workers, bar.progress())
		if err != nil {
			return simError(err)
		}
		bar.end()
		if err := f.counts(r); err != nil {
			return err
		}
		return a.printReport(f, r)
	}
	what, values, ok := strings.Cut(sweep, "=")
	if !ok || values == "" {
		return usageErrorf("--sweep %q is not NAME=VALUE,VALUE,...", sweep)
	}
	points, err := evaluate.Sweep(cmd.Context(), s, what, strings.Split(values, ","), policies, f.workers, bar.progress())
	if err != nil {
		return simError(err)
	}
	bar.end()
	var all []*evaluate.Report
	for _, p := range points {
		all = append(all, p.Report)
	}
	if err := f.counts(all...); err != nil {
		return err
	}
	return a.printSweep(f, what, points)
}

// counts refuses a kind without simulated actions: zeros would look like a result.
func (f *simFlags) counts(reports ...*evaluate.Report) error {
	if f.kind == "" {
		return nil
	}
	for _, r := range reports {
		for _, result := range r.Policies {
			if f.of(result).Actions > 0 {
				return nil
			}
		}
	}
	return usageErrorf("--kind %s: there are no %ss in the simulated workload %s; leave out --kind", f.kind, f.kind, reports[0].Workload)
}

// simError makes wrong parameters a matter of the command line.
func simError(err error) error {
	if errors.Is(err, workload.ErrParams) {
		return usageErrorf("%w", err)
	}
	return err
}

func (a *app) printReport(f *simFlags, r *evaluate.Report) error {
	if f.plot != "" {
		files, err := chart.Compare(f.plot, r)
		if err != nil {
			return err
		}
		a.drawn(files...)
	}
	switch {
	case a.json():
		return writeJSON(a.out, r)
	case f.estimates:
		return a.printSim(f, simTitle(r, "")+estimatesTitle, append([]string{"policy"}, estimatesHeader...), estimatesRows(r, ""))
	case f.breakdown:
		return a.printSim(f, simTitle(r, "")+", of a trajectory", breakdownHeader, breakdownRows(r))
	}
	return a.printSim(f, simTitle(r, "")+f.counted(), simHeader, simRows(f, r))
}

func (a *app) printSweep(f *simFlags, name string, points []evaluate.Point) error {
	if f.plot != "" {
		file, err := chart.Sweep(f.plot, name, points)
		if err != nil {
			return err
		}
		a.drawn(file)
	}
	if a.json() {
		return writeJSON(a.out, sweepJSON(name, points))
	}
	if f.estimates {
		var rows [][]string
		for _, p := range points {
			rows = append(rows, estimatesRows(p.Report, p.Value)...)
		}
		return a.printSim(f, simTitle(points[0].Report, name)+estimatesTitle, append([]string{name, "policy"}, estimatesHeader...), rows)
	}
	header, rows := sweepTable(f, name, points)
	return a.printSim(f, simTitle(points[0].Report, name)+f.counted(), header, rows)
}

func (a *app) drawn(files ...string) {
	for _, file := range files {
		fmt.Fprintf(a.err, "drawn: %s\n", file)
	}
}

func (a *app) simFiguresCmd() *cobra.Command {
	return &cobra.Command{
		Use: "figures WORKLOAD", Short: "List the figures of a workload and their sources", Args: exactly("WORKLOAD"),
		Long:      "Lists every figure of a workload with its source. Use the paths with --set of the other commands.",
		Example:   "  rota sim figures coding",
		ValidArgs: workload.Names(),
		RunE: func(_ *cobra.Command, args []string) error {
			figures, err := workload.Figures(args[0])
			if err != nil {
				return simError(err)
			}
			if a.json() {
				return writeJSON(a.out, figures)
			}
			var rows [][]string
			for _, r := range figures {
				rows = append(rows, []string{r.Path, shorten(r.Value, 48), r.Source})
			}
			writeTable(a.out, []string{"path", "value", "source"}, rows)
			return nil
		},
	}
}

func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most-3] + "..."
}
