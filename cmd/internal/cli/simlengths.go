package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"rota/internal/sim/lengths"
	"rota/internal/sim/workload"
)

// simLengthsFlags are those of sim lengths.
type simLengthsFlags struct {
	simFlags
	setup   lengths.Setup
	planted lengths.Planted
}

func (a *app) simLengthsCmd() *cobra.Command {
	f := simLengthsFlags{
		setup:   lengths.Setup{Folds: 10, Repeats: 5, Seed: 1, After: []int{0, 1, 2, 4, 8, 16}, Bootstraps: 1000},
		planted: lengths.Planted{Groups: 100, Samples: 8, Alike: 1, Within: 0.7, Shown: 0.5},
	}
	cmd := &cobra.Command{
		Use: "lengths [FILE]", Short: "Evaluate how well the lengths of unseen trajectories are predicted", Args: atMostOne("FILE"),
		Long: `Predicts what trajectories generate in all, after some turns, and compares this with the truth:
the recall of the longest 10 % and 20 %, and Pearson's correlation, with 95 % confidence
intervals (bootstrap). Beside rota there are simpler predictors: a line through prompts and lengths, the mean of
history, the tokens so far, continued to the mean number of turns, and least squares on
rota's features. Each session is predicted by what was learned from other folds only.

FILE is a CSV file of turns with the columns trajectory, turn, start_s, input_tokens, output_tokens,
generate_s, gap_s, stop. Without one, sessions are simulated in prompt groups, and siblings
that have finished are used, too.`,
		Example: "  rota sim lengths rollouts.csv\n  rota sim lengths --groups 200 --samples 8\n  rota sim lengths rollouts.csv --after 1,2 -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			sessions, title, err := f.input(args)
			if err != nil {
				return err
			}
			if err := f.setup.Check(sessions); err != nil {
				return usageErrorf("%w", err)
			}
			results, err := lengths.Evaluate(cmd.Context(), sessions, f.setup)
			if err != nil {
				return err
			}
			return a.printLengths(&f, title, len(args) == 0, results)
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&f.setup.Folds, "folds", f.setup.Folds, "folds: each is predicted by what was learned from the others")
	fs.IntVar(&f.setup.Repeats, "repeats", f.setup.Repeats, "repetitions with other folds, of which means are taken")
	fs.IntSliceVar(&f.setup.After, "after", f.setup.After, "after how many turns to predict")
	fs.IntVar(&f.setup.Bootstraps, "bootstraps", f.setup.Bootstraps, "samples that the intervals are computed from")
	fs.Uint64Var(&f.setup.Seed, "seed", f.setup.Seed, "seed of all that is drawn")
	fs.IntVar(&f.planted.Groups, "groups", f.planted.Groups, "prompt groups of the simulated sessions")
	fs.IntVar(&f.planted.Samples, "samples", f.planted.Samples, "sessions of a simulated group")
	fs.Float64Var(&f.planted.Alike, "between", f.planted.Alike, "by how many octaves simulated groups differ in turns (standard deviation)")
	fs.Float64Var(&f.planted.Within, "within", f.planted.Within, "by how many octaves the sessions of a simulated group differ in turns (standard deviation)")
	fs.Float64Var(&f.planted.Shown, "shown", f.planted.Shown, "how much of these differences prompts and tool calls show, from 0 to 1")
	fs.BoolVar(&f.markdown, "markdown", false, "write the table as Markdown")
	return cmd
}

// input reads the trace, or simulates sessions, and says what they are.
func (f *simLengthsFlags) input(args []string) ([]lengths.Session, string, error) {
	if len(args) == 1 {
		trace, err := readTrace(args[0], workload.ReadSessions)
		if err != nil {
			return nil, "", err
		}
		sessions := lengths.FromTrace(trace)
		return sessions, fmt.Sprintf("lengths: %d sessions of a trace, %d folds, %d repetitions, seed %d", len(sessions), f.setup.Folds, f.setup.Repeats, f.setup.Seed), nil
	}
	if err := f.planted.Check(); err != nil {
		return nil, "", usageErrorf("%w", err)
	}
	p := f.planted
	return lengths.Generate(p, f.setup.Seed), fmt.Sprintf("simulated: lengths of %d groups of %d sessions, groups differ by %g octaves, their sessions by %g, of which %g is shown, %d folds, %d repetitions, seed %d",
		p.Groups, p.Samples, p.Alike, p.Within, p.Shown, f.setup.Folds, f.setup.Repeats, f.setup.Seed), nil
}

var lengthsHeader = []string{"turns", "predictor", "sessions", "recall 10 %", "recall 20 %", "Pearson", "within p50 %", "within p90 %"}

// printLengths writes a line for each predictor and number of turns.
func (a *app) printLengths(f *simLengthsFlags, title string, simulated bool, results []lengths.Result) error {
	if a.json() {
		return writeJSON(a.out, struct {
			Simulated bool             `json:"simulated"`
			Title     string           `json:"title"`
			Results   []lengths.Result `json:"results"`
		}{simulated, title, results})
	}
	within := func(part float64) string {
		if part < 0 {
			return "-"
		}
		return fmt.Sprintf("%.0f", 100*part)
	}
	interval := func(i lengths.Interval) string { return fmt.Sprintf("%.2f (%.2f to %.2f)", i.Value, i.Low, i.High) }
	var rows [][]string
	for _, r := range results {
		rows = append(rows, []string{fmt.Sprint(r.After), r.Predictor, fmt.Sprint(r.Sessions), interval(r.Recall10), interval(r.Recall20), interval(r.Pearson),
			within(r.WithinP50), within(r.WithinP90)})
	}
	return a.printSim(&f.simFlags, title, lengthsHeader, rows)
}
