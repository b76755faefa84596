package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"rota/internal/sim/models"
	"rota/internal/sim/workload"
)

// simModelsFlags are those of sim compare models.
type simModelsFlags struct {
	simFlags
	setup       models.Setup
	load        []int64
	pods, loads string
	requests    int
}

func (a *app) simModelsCmd() *cobra.Command {
	f := simModelsFlags{setup: models.Setup{Nodes: 4, GPUs: 8, Seed: 1}}
	cmd := &cobra.Command{
		Use: "models", Short: "Compare which models are evicted from GPUs: by cost and uses, or the least recently used", Args: exactly(),
		Long: `Simulates requests for models on GPUs, on the real state machine at feature level 2 (LRU: the
least recently used models of the smallest free chunk are evicted) and at level 3 (rota: the
models with the smallest worth are evicted). The table has the set-up time of all requests and
the mean action completion time (ACT). Each load is the percentage of all GPUs that execution
takes, without set-ups.

With --pods and --loads, the requests are those of a trace of pods, and models take as long to
load as a trace of loads says. Without them, requests are generated.`,
		Example: "  rota sim compare models\n  rota sim compare models --pods openb_pods.csv --loads model_load.csv\n  rota sim compare models --load 30 --requests 500 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := f.input()
			if err != nil {
				return err
			}
			defer debug.SetGCPercent(debug.SetGCPercent(simCollectPercent))
			cases, err := models.Compare(cmd.Context(), in, f.setup, f.load, f.workers)
			if err != nil {
				return err
			}
			return a.printModels(&f, in, cases)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.pods, "pods", "", "CSV file of pods, with the columns memory_mib, num_gpu, gpu_milli; needs --loads")
	fs.StringVar(&f.loads, "loads", "", "CSV file of load times, with the column load_ms; needs --pods")
	fs.Int64Var(&f.setup.Nodes, "nodes", f.setup.Nodes, "number of nodes")
	fs.Int64Var(&f.setup.GPUs, "gpus", f.setup.GPUs, "GPUs of a node")
	fs.Int64SliceVar(&f.load, "load", []int64{10, 20, 30, 40}, "loads in percent")
	fs.IntVar(&f.requests, "requests", 0, "number of requests (default: all)")
	fs.Uint64Var(&f.setup.Seed, "seed", f.setup.Seed, "seed of all that is drawn")
	fs.IntVar(&f.workers, "workers", runtime.NumCPU(), "number of cases that run at the same time")
	fs.BoolVar(&f.markdown, "markdown", false, "write the table as Markdown")
	return cmd
}

// input checks the flags and reads the traces, if any are given.
func (f *simModelsFlags) input() (in *models.Input, err error) {
	switch {
	case f.setup.Nodes < 1 || f.setup.Nodes > 1000:
		return nil, usageErrorf("--nodes must be from 1 to 1000")
	case f.setup.GPUs < 1 || f.setup.GPUs > 64:
		return nil, usageErrorf("--gpus must be from 1 to 64")
	case f.requests < 0:
		return nil, usageErrorf("--requests must not be negative")
	case len(f.load) == 0:
		return nil, usageErrorf("--load is empty")
	case (f.pods == "") != (f.loads == ""):
		return nil, usageErrorf("--pods and --loads need each other: give both, or neither for generated requests")
	}
	for _, load := range f.load {
		if load < 1 || load > 200 {
			return nil, usageErrorf("--load must be from 1 to 200, not %d", load)
		}
	}
	if in = models.Generate(f.setup.Seed); f.pods != "" {
		if in, err = readModelTraces(f.pods, f.loads); err != nil {
			return nil, err
		}
	}
	if f.requests > 0 {
		in = in.First(f.requests)
	}
	for _, m := range in.Models {
		if int64(m.GPUs) > f.setup.GPUs {
			return nil, usageErrorf("--gpus %d: a model needs %d GPUs of a node", f.setup.GPUs, m.GPUs)
		}
	}
	return in, nil
}

func readModelTraces(podsPath, loadsPath string) (*models.Input, error) {
	pods, err := readTrace(podsPath, workload.ReadPods)
	if err != nil {
		return nil, err
	}
	loads, err := readTrace(loadsPath, workload.ReadLoads)
	if err != nil {
		return nil, err
	}
	return models.FromTrace(pods, loads)
}

// readTrace reads a CSV file.
func readTrace[T any](path string, read func(io.Reader) ([]T, error)) ([]T, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	rows, err := read(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rows, nil
}

// printModels writes a line for each case.
func (a *app) printModels(f *simModelsFlags, in *models.Input, cases []models.Case) error {
	if a.json() {
		return writeJSON(a.out, modelsJSON(in, cases))
	}
	title := fmt.Sprintf("simulated: %d requests (%s) for %d models, %d x %d GPUs, seed %d",
		len(in.Requests), in.Name, len(in.Models), f.setup.Nodes, f.setup.GPUs, f.setup.Seed)
	var rows [][]string
	for i := range cases {
		c := &cases[i]
		rows = append(rows, []string{c.Name, fmt.Sprint(c.Load), fmt.Sprint(c.LRU.SetUpNS / simNS), fmt.Sprint(c.Rota.SetUpNS / simNS), tenths(c.SavedPPM()),
			fmt.Sprint(c.LRU.Loads), fmt.Sprint(c.Rota.Loads), seconds(c.LRU.ACTNS), seconds(c.Rota.ACTNS)})
	}
	return a.printSim(&f.simFlags, title, []string{"case", "load %", "LRU set-up s", "rota set-up s", "saved %", "LRU loads", "rota loads", "LRU ACT s", "rota ACT s"}, rows)
}

// seconds writes nanoseconds as 10.5.
func seconds(ns int64) string { return fmt.Sprintf("%.1f", float64(ns)/simNS) }

type modelsResultJSON struct {
	Loads   int64 `json:"loads"`
	SetUpMS int64 `json:"set_up_ms"`
	ACTMS   int64 `json:"act_mean_ms"`
}

type modelsCaseJSON struct {
	Case  string           `json:"case"`
	Load  int64            `json:"load_percent"`
	LRU   modelsResultJSON `json:"lru"`
	Rota  modelsResultJSON `json:"rota"`
	Saved int64            `json:"set_up_saved_ppm"`
}

func modelsJSON(in *models.Input, cases []models.Case) any {
	out := struct {
		Simulated bool             `json:"simulated"`
		Input     string           `json:"requests_from"`
		Requests  int              `json:"requests"`
		Models    int              `json:"models"`
		Cases     []modelsCaseJSON `json:"cases"`
	}{true, in.Name, len(in.Requests), len(in.Models), nil}
	result := func(r *models.Result) modelsResultJSON {
		return modelsResultJSON{r.Loads, r.SetUpNS / 1_000_000, r.ACTNS / 1_000_000}
	}
	for i := range cases {
		c := &cases[i]
		out.Cases = append(out.Cases, modelsCaseJSON{c.Name, c.Load, result(&c.LRU), result(&c.Rota), c.SavedPPM()})
	}
	return out
}
