package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) workerCmd() *cobra.Command {
	return group("worker", "Register the engines that generate for rollouts, and see what they do",
		a.workerRegisterCmd(), a.reads(a.workerListCmd()), a.reads(a.workerGetCmd()), a.workerUpdateCmd(), a.workerDrainCmd(), a.workerRemoveCmd(), a.completed(a.workerPoolCmd(), listWorkerPoolNames))
}

// workerFlags declare a worker.
type workerFlags struct {
	policy, url, dialect string
	node, hardware       string
	profile              string
	prefill              time.Duration
	degree, slots        uint32
	cost, version        uint64
}

func (a *app) workerRegisterCmd() *cobra.Command {
	var f workerFlags
	cmd := &cobra.Command{
		Use: "register NAME --policy POLICY --url URL --profile POINTS", Short: "Register a worker, or change it", Args: exactly("NAME"),
		Long: `Registers an engine that generates for the trajectories of a policy. Registering it again under
the same name changes it. Needs an operator's certificate.

The profile is how long each request of a batch waits for its next token, as measured of the
engine: BATCH=TIME, several separated by commas. The cluster compares workers by it.`,
		Example: `  rota worker register h800-1 --policy math-7b --url http://10.0.0.7:8000 --dialect vllm --profile 1=8ms,32=12ms,128=30ms --slots 128 --hardware h800
  rota worker register h20-1 --policy math-7b --url http://10.0.0.9:30000 --dialect sglang --profile 1=14ms,64=25ms --prefill 80ms --degree 2`,
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			spec, err := f.spec(args[0])
			if err != nil {
				return err
			}
			resp, err := call(ctx, a, c.Workers.RegisterWorker, &rotav1.RegisterWorkerRequest{Spec: spec})
			if err != nil {
				return err
			}
			return a.printWorker(resp.Worker)
		}),
	}
	f.addTo(cmd)
	return cmd
}

func (f *workerFlags) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.policy, "policy", "", "policy that it serves, and the name of the model in requests to it")
	fs.StringVar(&f.url, "url", "", "where the engine listens, such as http://10.0.0.7:8000")
	fs.StringVar(&f.dialect, "dialect", "openai", "how to give requests a priority: openai (not at all), vllm or sglang")
	words(cmd, "dialect", "openai", "vllm", "sglang")
	fs.StringVar(&f.node, "node", "", "node whose agent caches its KV cache")
	fs.StringVar(&f.hardware, "hardware", "", "kind of hardware, such as h800; trajectories may prefer some kinds")
	fs.StringVar(&f.profile, "profile", "", "time for a token by batch size, such as 1=8ms,32=12ms")
	fs.DurationVar(&f.prefill, "prefill", 0, "time to compute 1,000 tokens of a prompt that are in no cache")
	fs.Uint32Var(&f.degree, "degree", 0, "GPUs that it shares the model over; 0: 1")
	fs.Uint32Var(&f.slots, "slots", 0, "trajectories that it generates for at once; 0: 1,024")
	fs.Uint64Var(&f.cost, "cost", 0, "cost of an hour, in any one unit; 0: its degree")
	fs.Uint64Var(&f.version, "version", 0, "version of the policy that it has")
}

func (f *workerFlags) spec(name string) (*rotav1.WorkerSpec, error) {
	dialect, known := rotav1.WorkerDialect_value["WORKER_DIALECT_"+strings.ToUpper(f.dialect)]
	switch {
	case f.policy == "":
		return nil, usageErrorf("the policy that the worker serves is not given; give --policy POLICY")
	case f.url == "":
		return nil, usageErrorf("where the engine listens is not given; give --url URL")
	case f.profile == "":
		return nil, usageErrorf("the profile of the engine is not given; give --profile BATCH=TIME,..., such as --profile 1=8ms,32=12ms")
	case !known || dialect == 0:
		return nil, usageErrorf("--dialect must be openai, vllm or sglang, not %q", f.dialect)
	}
	profile, err := parseProfile("--profile", f.profile, f.prefill)
	if err != nil {
		return nil, err
	}
	return &rotav1.WorkerSpec{
		Name: name, Policy: f.policy, Url: f.url, Dialect: rotav1.WorkerDialect(dialect), Node: f.node, Degree: f.degree, Hardware: f.hardware,
		Cost: f.cost, Slots: f.slots, Version: f.version, Profile: profile,
	}, nil
}

func (a *app) workerListCmd() *cobra.Command {
	var policy string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List workers", Args: exactly(),
		Example: "  rota worker list --policy math-7b",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			all := &rotav1.ListWorkersResponse{}
			req := &rotav1.ListWorkersRequest{Policy: policy, PageSize: 1000}
			err := pages(ctx, a, c.Workers.ListWorkers, req, &req.PageToken, func(page *rotav1.ListWorkersResponse) {
				all.Workers = append(all.Workers, page.Workers...)
			})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(all.Workers))
			for _, w := range all.Workers {
				rows = append(rows, []string{
					w.Spec.Name, w.Spec.Policy, enumWord(w.State, "WORKER_STATE_"), fmt.Sprint(w.Spec.Version), w.Spec.Hardware, fmt.Sprint(hourlyCost(w.Spec)), fmt.Sprint(w.Spec.Degree),
					fmt.Sprint(w.Trajectories), fmt.Sprint(w.Generating), fmt.Sprint(w.PredictedTokens), fmt.Sprint(w.PredictedPromptTokens), fmt.Sprint(w.OutputTokens),
				})
			}
			return a.print(all, []string{"name", "policy", "state", "version", "hardware", "cost", "degree", "trajectories", "generating", "predicted", "prompts", "generated"}, rows)
		}),
	}
	cmd.Flags().StringVar(&policy, "policy", "", "list the workers of this policy only")
	return cmd
}

// hourlyCost is what placement takes a worker to cost.
func hourlyCost(w *rotav1.WorkerSpec) uint64 { return cmp.Or(w.GetCost(), uint64(w.GetDegree())) }

func (a *app) workerGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show one worker", Args: exactly("NAME"), Example: "  rota worker get h800-1",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Workers.GetWorker, &rotav1.GetWorkerRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return a.printWorker(resp.Worker)
		}),
	}
}

func (a *app) workerUpdateCmd() *cobra.Command {
	var version uint64
	var up bool
	cmd := &cobra.Command{
		Use: "update NAME", Short: "Say which version a worker has, or that it is up again", Args: exactly("NAME"),
		Example: "  rota worker update h800-1 --version 12\n  rota worker update h800-1 --up",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			req := &rotav1.UpdateWorkerRequest{Name: args[0], Up: up}
			if version > 0 {
				req.Version = &version
			}
			if !up && version == 0 {
				return usageErrorf("what to update is not given; give --version VERSION or --up")
			}
			return a.updateWorker(ctx, c, req)
		}),
	}
	cmd.Flags().Uint64Var(&version, "version", 0, "version of the policy that it has now")
	cmd.Flags().BoolVar(&up, "up", false, "it was restarted: try it at once")
	return cmd
}

func (a *app) workerDrainCmd() *cobra.Command {
	var undo bool
	cmd := &cobra.Command{
		Use: "drain NAME", Short: "Give a worker no further trajectories; its idle ones go to others", Args: exactly("NAME"),
		Example: "  rota worker drain h800-1\n  rota worker drain h800-1 --undo",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			draining := !undo
			return a.updateWorker(ctx, c, &rotav1.UpdateWorkerRequest{Name: args[0], Draining: &draining})
		}),
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "take it back into use")
	return cmd
}

func (a *app) updateWorker(ctx context.Context, c *client.Client, req *rotav1.UpdateWorkerRequest) error {
	resp, err := call(ctx, a, c.Workers.UpdateWorker, req)
	if err != nil {
		return err
	}
	return a.printWorker(resp.Worker)
}

func (a *app) workerRemoveCmd() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Forget a worker; its trajectories go on at others", Args: exactly("NAME"), Example: "  rota worker remove h800-1",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			_, err := call(ctx, a, c.Workers.RemoveWorker, &rotav1.RemoveWorkerRequest{Name: args[0]})
			return err
		}),
	}
}

func (a *app) printWorker(w *rotav1.Worker) error {
	spec := w.GetSpec()
	var points []string
	for _, p := range spec.GetProfile().GetPoints() {
		points = append(points, fmt.Sprintf("%d=%v", p.BatchSize, p.TokenTime.AsDuration()))
	}
	return a.printFields(w, []field{
		{"worker", spec.GetName()},
		{"policy", spec.GetPolicy()},
		{"state", enumWord(w.GetState(), "WORKER_STATE_")},
		{"message", w.GetMessage()},
		{"version", fmt.Sprint(spec.GetVersion())},
		{"url", spec.GetUrl()},
		{"dialect", enumWord(spec.GetDialect(), "WORKER_DIALECT_")},
		{"node", spec.GetNode()},
		{"hardware", spec.GetHardware()},
		{"cost of an hour", fmt.Sprint(hourlyCost(spec))},
		{"degree", fmt.Sprint(spec.GetDegree())},
		{"slots", fmt.Sprint(spec.GetSlots())},
		{"time for a token", strings.Join(points, " ")},
		{"trajectories", fmt.Sprintf("%d, of which %d generate", w.GetTrajectories(), w.GetGenerating())},
		{"predicted tokens", fmt.Sprintf("%d, and %d of prompts", w.GetPredictedTokens(), w.GetPredictedPromptTokens())},
		{"generated tokens", fmt.Sprint(w.GetOutputTokens())},
		{"registered", formatTime(w.GetRegisterTime())},
		{"worker pool", w.GetPool()},
	})
}

// generationFlags say what a trajectory generates.
type generationFlags struct {
	policy, class string
	promptTokens  uint32
	hardware      []string
}

func (f *generationFlags) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.policy, "policy", "", "policy that generates for it; a worker of the policy is chosen")
	fs.StringVar(&f.class, "class", "", "class of its task; tasks of one class generate about as much")
	fs.Uint32Var(&f.promptTokens, "prompt-tokens", 0, "tokens of its prompt")
	fs.StringSliceVar(&f.hardware, "hardware", nil, "kinds of hardware of the worker, the best first, such as h800,h20")
}

func (f *generationFlags) spec() (*rotav1.GenerationSpec, error) {
	if f.policy == "" {
		if f.class != "" || f.promptTokens > 0 || len(f.hardware) > 0 {
			return nil, usageErrorf("--class, --prompt-tokens and --hardware describe what a policy generates; give --policy POLICY too")
		}
		return nil, nil
	}
	return &rotav1.GenerationSpec{Policy: f.policy, TaskClass: f.class, PromptTokens: f.promptTokens, Hardware: f.hardware}, nil
}

// generationFields show what a trajectory generates; none if it generates nothing.
func generationFields(g *rotav1.Generation) []field {
	if g == nil {
		return nil
	}
	return []field{
		{"policy", g.Spec.GetPolicy()},
		{"task class", g.Spec.GetTaskClass()},
		{"generation", enumWord(g.State, "GENERATION_STATE_")},
		{"worker", g.Worker},
		{"why there", g.Reason},
		{"priority", fmt.Sprint(g.Priority)},
		{"generated", fmt.Sprintf("%d tokens in %d turns", g.OutputTokens, g.Turns)},
		{"predicted", fmt.Sprintf("%d tokens more (%d in all before its first turn)", g.PredictedTokens, g.FirstPredictedTokens)},
		{"predicted by", predictedBy(g.Prediction)},
		{"moves", fmt.Sprint(g.Moves)},
	}
}

// predictedBy says whose prediction it is, and what else a predictor service said.
func predictedBy(p *rotav1.GenerationPrediction) string {
	switch p.GetBy() {
	case rotav1.Predictor_PREDICTOR_OWN:
		return "rota"
	case rotav1.Predictor_PREDICTOR_SERVICE:
		return fmt.Sprintf("the predictor service: %d tokens in half of the cases, %d in 9 of 10, in %s; rota itself predicted %d tokens",
			p.TokensP50, p.TokensP90, plural(int(p.Turns), "turn"), p.OwnTokens)
	}
	return ""
}

func (a *app) trajectorySuspendCmd() *cobra.Command {
	return a.trajectoryVerb("suspend", "Hold the requests of a trajectory until it is resumed", "  rota trajectory suspend 7",
		func(ctx context.Context, c *client.Client, id uint64) (*rotav1.Trajectory, error) {
			if _, err := call(ctx, a, c.Workers.SuspendGeneration, &rotav1.SuspendGenerationRequest{Id: id}); err != nil {
				return nil, err
			}
			resp, err := call(ctx, a, c.Trajectories.GetTrajectory, &rotav1.GetTrajectoryRequest{Id: id})
			return resp.GetTrajectory(), err
		})
}

func listWorkerNames(ctx context.Context, c *client.Client, _ *settings) (all []string, err error) {
	resp, err := c.Workers.ListWorkers(ctx, &rotav1.ListWorkersRequest{PageSize: completionsMax, AllowStale: true})
	for _, w := range resp.GetWorkers() {
		all = append(all, w.Spec.GetName()+"\t"+enumWord(w.State, "WORKER_STATE_")+" "+w.Spec.GetPolicy())
	}
	return all, err
}
