package cli

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rota/internal/sim/rollouts"
	"rota/internal/sim/workload"
)

func (a *app) simRolloutsCmd() *cobra.Command {
	return group("rollouts", "Simulate rollouts: which worker generates for which trajectory, and in which order",
		a.simRolloutsCompareCmd(), a.simRolloutsTrainingCmd(), a.simRolloutsHardwareCmd(), a.simRolloutsPoliciesCmd())
}

// simRolloutsFlags are those of sim rollouts compare.
type simRolloutsFlags struct {
	simFlags
	policies     []string
	sweeps       []string
	seeds        int
	seed         uint64
	parallel     int
	task, model  string
	sessionsFile string
}

func (a *app) simRolloutsCompareCmd() *cobra.Command {
	var f simRolloutsFlags
	cmd := &cobra.Command{
		Use: "compare", Short: "Compare rota with other policies for rollouts", Args: exactly(),
		Long: `Simulates steps of rollouts on simulated engines, under several policies that have the same
trajectories and the same GPUs. The table has the throughput of the last step: tokens generated
until its last trajectory ended. Figures are medians over seeds, with the smallest and largest in
parentheses. Each ratio is how much more the first policy generates in a second.

--sweep repeats the comparison for several values of a setting, of task or of model. Given several
times, it repeats the comparison for all combinations.`,
		Example: "  rota sim rollouts compare\n  rota sim rollouts compare --task search --model 32b --seeds 3\n" +
			"  rota sim rollouts compare --sweep batch=32,96 --sweep skew=0,100 -o json\n" +
			"  rota sim rollouts compare --policies rota,rota-no-migration,rota-oracle\n" +
			"  rota sim rollouts compare --trace rollouts.csv --gap-cap 30s",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := a.compareRollouts(cmd, &f)
			if err != nil {
				return simRolloutsError(err)
			}
			return a.printRollouts(&f, r)
		},
	}
	f.addRolloutsTo(cmd.Flags())
	fs := cmd.Flags()
	fs.StringSliceVar(&f.policies, "policies", rollouts.DefaultPolicies(), "policies; for all of them see: rota sim rollouts policies")
	fs.IntVar(&f.parallel, "parallel", runtime.NumCPU(), "number of simulations that run at the same time")
	return cmd
}

// addRolloutsTo adds what both simulations of rollouts have.
func (f *simRolloutsFlags) addRolloutsTo(fs *pflag.FlagSet) {
	d := rollouts.Default()
	fs.StringVar(&f.task, "task", d.Task, "synthetic task: "+strings.Join(rollouts.TaskNames(), ", "))
	fs.StringVar(&f.model, "model", d.Model, "model: "+strings.Join(rollouts.ModelNames(), ", "))
	for _, name := range rollouts.SettingNames() {
		help, value := rollouts.SettingHelp(name)
		fs.Int64(name, value, help)
	}
	fs.Uint64Var(&f.seed, "seed", d.Seed, "first seed of all that is drawn")
	fs.IntVar(&f.seeds, "seeds", 5, "number of seeds")
	fs.StringArrayVar(&f.sweeps, "sweep", nil, "repeat the comparison for each value, NAME=VALUE,VALUE,...; for all combinations if given several times")
	fs.StringVar(&f.sessionsFile, "trace", "", "CSV file of turns to draw trajectories from, instead of a synthetic task; with the columns trajectory, turn, start_s, input_tokens, output_tokens, generate_s, gap_s, stop")
	fs.DurationVar(&f.gapCap, "gap-cap", time.Minute, "longest gap of the trace that counts")
	fs.BoolVar(&f.markdown, "markdown", false, "write the table as Markdown")
}

// simRolloutsError makes wrong settings a matter of the command line.
func simRolloutsError(err error) error {
	if errors.Is(err, rollouts.ErrSetup) {
		return usageErrorf("%w", err)
	}
	return err
}

// compareRollouts runs what the flags say.
func (a *app) compareRollouts(cmd *cobra.Command, f *simRolloutsFlags) (*rollouts.Report, error) {
	s, err := f.rolloutSetup(cmd)
	if err != nil {
		return nil, err
	}
	o := rollouts.Options{Policies: f.policies, Seeds: f.seeds, Parallel: f.parallel}
	if o.Axes, err = f.axes(s.Pool != nil); err != nil {
		return nil, err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(simCollectPercent))
	bar := newSimBar(a.err)
	bar.what = "simulations"
	defer bar.end()
	o.Progress = bar.progress()
	return rollouts.Compare(cmd.Context(), s, o)
}

// axes reads the sweeps.
func (f *simRolloutsFlags) axes(trace bool) (out []rollouts.Axis, err error) {
	for _, text := range f.sweeps {
		axis, err := rollouts.ParseAxis(text)
		if err != nil {
			return nil, err
		}
		if axis.Name == "task" && trace {
			return nil, usageErrorf("--sweep task and --trace exclude each other: a trace is the task")
		}
		out = append(out, axis)
	}
	return out, nil
}

// rolloutSetup reads the settings.
func (f *simRolloutsFlags) rolloutSetup(cmd *cobra.Command) (rollouts.Setup, error) {
	s := rollouts.Default()
	s.Seed = f.seed
	set := map[string]string{"task": f.task, "model": f.model}
	for _, name := range rollouts.SettingNames() {
		set[name] = cmd.Flags().Lookup(name).Value.String()
	}
	for name, value := range set {
		if err := s.Set(name, value); err != nil {
			return s, err
		}
	}
	if f.gapCap < 0 || f.gapCap > 24*time.Hour {
		return s, usageErrorf("--gap-cap must be from 0 to 24h")
	}
	if f.sessionsFile == "" {
		return s, nil
	}
	if cmd.Flags().Changed("task") {
		return s, usageErrorf("--task and --trace exclude each other: a trace is the task")
	}
	file, err := os.Open(f.sessionsFile)
	if err != nil {
		return s, fmt.Errorf("trace: %w", err)
	}
	defer file.Close()
	sessions, err := workload.ReadSessions(file)
	if err != nil {
		return s, fmt.Errorf("%s: %w", f.sessionsFile, err)
	}
	s.Pool, err = rollouts.FromSessions(sessions, int64(f.gapCap))
	return s, err
}

func (a *app) simRolloutsPoliciesCmd() *cobra.Command {
	return &cobra.Command{
		Use: "policies", Short: "List the policies for rollouts", Args: exactly(),
		Long:    "Lists the policies that \"rota sim rollouts compare\" simulates: rota, those of others, and rota without its parts.",
		Example: "  rota sim rollouts policies",
		RunE: func(*cobra.Command, []string) error {
			if a.json() {
				return writeJSON(a.out, rollouts.Policies())
			}
			var rows [][]string
			for _, p := range rollouts.Policies() {
				rows = append(rows, []string{p.Name, p.Help})
			}
			writeTable(a.out, []string{"policy", "what it does"}, rows)
			return nil
		},
	}
}

// printRollouts writes a report: a line for each policy, or of a sweep one for each point.
func (a *app) printRollouts(f *simRolloutsFlags, r *rollouts.Report) error {
	if a.json() {
		return writeJSON(a.out, r)
	}
	if len(r.Sweep) > 0 {
		header, rows := rolloutsSweep(r)
		title := fmt.Sprintf("%s, how much more %s generates; lowest of all: %.2f", rolloutsTitle(r), r.Order[0], float64(r.LowestPPM)/1e6)
		return a.printSim(&f.simFlags, title, header, rows)
	}
	return a.printSim(&f.simFlags, rolloutsTitle(r), rolloutsHeader(r), rolloutsRows(r))
}

// rolloutsTitle says what was simulated, but for what is swept.
func rolloutsTitle(r *rollouts.Report) string {
	swept := func(name string) bool {
		for _, s := range r.Sweep {
			if s == name {
				return true
			}
		}
		return false
	}
	parts := []string{"simulated: rollouts"}
	for _, of := range [][2]string{{"task", r.Base.Task}, {"model", r.Base.Model}} {
		if !swept(of[0]) {
			parts = append(parts, of[0]+" "+of[1])
		}
	}
	for _, name := range rollouts.SettingNames() {
		if _, usual := rollouts.SettingHelp(name); !swept(name) && (usual != r.Base.Values[name] || name == "workers" || name == "batch") {
			parts = append(parts, fmt.Sprintf("%s %d", name, r.Base.Values[name]))
		}
	}
	return fmt.Sprintf("%s, seeds %d to %d", strings.Join(parts, ", "), r.Base.Seed, r.Base.Seed+uint64(r.Seeds)-1)
}

func rolloutsHeader(r *rollouts.Report) []string {
	ratio := r.Order[0] + " gives"
	return []string{"policy", "tokens/s", ratio, "in step 1", "step s", "mean s", "p99 s", "queue s", "busy %", "recomputed %", "moves", "preempted", "degrees"}
}

func rolloutsRows(r *rollouts.Report) (rows [][]string) {
	for _, name := range r.Order {
		p := r.Points[0].Policies[name]
		of := func(figure func(s *rollouts.StepResult) int64) float64 { return float64(p.Median(figure)) }
		last := p.Last[0]
		rows = append(rows, []string{
			name, fmt.Sprintf("%.0f", p.Throughput.Median), ranged(p.Ratio), ranged(p.FirstRatio),
			fmt.Sprintf("%.1f", of(func(s *rollouts.StepResult) int64 { return s.MakespanNS })/simNS),
			fmt.Sprintf("%.1f", of(func(s *rollouts.StepResult) int64 { return s.CompletionMeanNS })/simNS),
			fmt.Sprintf("%.1f", of(func(s *rollouts.StepResult) int64 { return s.CompletionP99NS })/simNS),
			fmt.Sprintf("%.1f", of(func(s *rollouts.StepResult) int64 { return s.QueueMeanNS })/simNS),
			fmt.Sprintf("%.0f", of(func(s *rollouts.StepResult) int64 { return s.BusyPPM })/1e4),
			fmt.Sprintf("%.1f", 100*of(func(s *rollouts.StepResult) int64 { return s.RecomputedTokens })/float64(max(1, last.PromptTokens))),
			fmt.Sprintf("%.0f", of(func(s *rollouts.StepResult) int64 { return s.Moves })),
			fmt.Sprintf("%.0f", of(func(s *rollouts.StepResult) int64 { return s.Preemptions })),
			degreesText(last.Degrees),
		})
	}
	return rows
}

// ranged writes a median with its range, as 2.05 (1.90-2.21).
func ranged(r rollouts.Range) string {
	return fmt.Sprintf("%.2f (%.2f-%.2f)", r.Median, r.Least, r.Most)
}

// degreesText writes degrees as 1x4 4x1: one worker of four GPUs, four of one.
func degreesText(degrees []int64) string {
	var parts []string
	for i := 0; i < len(degrees); {
		n := i
		for n < len(degrees) && degrees[n] == degrees[i] {
			n++
		}
		parts = append(parts, fmt.Sprintf("%dx%d", n-i, degrees[i]))
		i = n
	}
	return strings.Join(parts, " ")
}

func rolloutsSweep(r *rollouts.Report) (header []string, rows [][]string) {
	header = append(header, r.Sweep...)
	header = append(header, r.Order[0]+" tokens/s", "step s")
	header = append(header, r.Order[1:]...)
	for _, p := range r.Points {
		row := append([]string(nil), p.At...)
		base := p.Policies[r.Order[0]]
		row = append(row, fmt.Sprintf("%.0f", base.Throughput.Median), seconds(base.Median(func(s *rollouts.StepResult) int64 { return s.MakespanNS })))
		for _, name := range r.Order[1:] {
			row = append(row, ranged(p.Policies[name].Ratio))
		}
		rows = append(rows, row)
	}
	return header, rows
}
