package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) workerPoolCmd() *cobra.Command {
	return group("pool", "Have workers started by rota, with degrees of model parallelism that it plans",
		a.workerPoolRegisterCmd(), a.reads(a.workerPoolListCmd()), a.reads(a.workerPoolGetCmd()), a.reads(a.workerPoolPlanCmd()), a.workerPoolRemoveCmd())
}

// workerPoolFlags declare a pool of workers.
type workerPoolFlags struct {
	policy, dialect, hardware string
	pool, gpuClass            string
	degrees, env              []string
	gpus, port, slots, cores  uint32
	payBack                   uint32
	setUp, prefill            time.Duration
	memory, gpuMemory         size
}

func (a *app) workerPoolRegisterCmd() *cobra.Command {
	var f workerPoolFlags
	cmd := &cobra.Command{
		Use: "register NAME --policy POLICY --gpus GPUS --port PORT --degree DEGREE:PROFILE [flags] -- COMMAND [ARG...]", Short: "Register a worker pool, or change it",
		Long: `Registers GPUs that rota divides into workers of a policy. When a step or a rollout begins, the
leader plans how many GPUs each worker gets (its degree), from the lengths that trajectories are
expected to have. It changes degrees where that gains more than it costs. Registering a pool
again under the same name changes it. Needs an operator's certificate.

A worker is an action that runs the command. In arguments and variables, {{gpus}} becomes its
degree. ROTA_GPUS has the numbers of its GPUs. The engine must listen on the port of the pool and
the number of its first GPU, at the address of its node. The worker is named after the pool and
the action. It is used when the time of --setup is over, or as soon as the command has said:
rota worker update NAME-$ROTA_ACTION_ID --up, with --addr and what else the cluster asks for.

The profile of a degree is how long each request of a batch waits for its next token:
BATCH=TIME, several separated by commas.`,
		Example: `  rota worker pool register h100 --policy math-7b --gpus 16 --port 8000 --dialect vllm --setup 90s --degree 1:1=8ms,64=20ms --degree 2:1=5ms,64=13ms --degree 4:1=4ms,64=9ms -- /opt/serve.sh {{gpus}}`,
		Args:    func(cmd *cobra.Command, args []string) error { return f.check(args, cmd.ArgsLenAtDash()) },
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := f.spec(a.settings.namespace, args)
			if err != nil {
				return err
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), a, c.Workers.RegisterWorkerPool, &rotav1.RegisterWorkerPoolRequest{Spec: spec})
			if err != nil {
				return err
			}
			return a.printWorkerPool(resp.Pool)
		},
	}
	f.addTo(cmd)
	return cmd
}

func (f *workerPoolFlags) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.policy, "policy", "", "policy that the workers serve, and the name of the model in requests to them")
	fs.Uint32Var(&f.gpus, "gpus", 0, "GPUs of all workers together")
	fs.Uint32Var(&f.port, "port", 0, "port of a worker whose first GPU is GPU 0; that of GPU 1 is one higher")
	fs.StringArrayVar(&f.degrees, "degree", nil, "degree that workers may have, with its profile, such as 2:1=6ms,32=9ms; repeat the flag, in ascending order")
	fs.StringVar(&f.dialect, "dialect", "openai", "how to give requests a priority: openai (not at all), vllm or sglang")
	words(cmd, "dialect", "openai", "vllm", "sglang")
	fs.StringVar(&f.hardware, "hardware", "", "kind of hardware, such as h800; trajectories may prefer some kinds")
	fs.Uint32Var(&f.slots, "slots", 0, "trajectories that a worker generates for at once, for each GPU; 0: 1,024 for each worker")
	fs.DurationVar(&f.prefill, "prefill", 0, "time to compute 1,000 tokens of a prompt that are in no cache, on one GPU")
	fs.DurationVar(&f.setUp, "setup", 0, "how long an engine starts, as long as that was not measured")
	fs.Uint32Var(&f.payBack, "pay-back", 0, "within how many steps a change of degrees must gain the time that it costs; 0: 1")
	fs.StringVar(&f.pool, "pool", "", `pool of the nodes with the GPUs (default "default")`)
	fs.StringVar(&f.gpuClass, "gpu-class", "", "class of the GPUs, such as H100 (default: the only class of the pool)")
	fs.Var(&f.gpuMemory, "gpu-memory", "memory that a worker takes on each GPU; 0: all of it")
	fs.Uint32Var(&f.cores, "cores", 0, "cores of a worker; 0: none of its own")
	fs.Var(&f.memory, "memory", "memory of a worker, such as 8GiB")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "environment variable of a worker, NAME=VALUE; repeat the flag for more variables")
}

func (f *workerPoolFlags) check(args []string, before int) error {
	switch {
	case len(args) < 2 || before != 1:
		return usageErrorf("the name of the pool and the command that is a worker are not given; give NAME [flags] -- COMMAND")
	case f.policy == "":
		return usageErrorf("the policy that the workers serve is not given; give --policy POLICY")
	case f.gpus == 0 || f.port == 0:
		return usageErrorf("how many GPUs the pool has, or where its workers listen, is not given; give --gpus GPUS and --port PORT")
	case len(f.degrees) == 0:
		return usageErrorf("the degrees that workers may have are not given; give --degree DEGREE:BATCH=TIME,..., such as --degree 2:1=6ms,32=9ms")
	}
	return nil
}

func (f *workerPoolFlags) spec(namespace string, args []string) (*rotav1.WorkerPoolSpec, error) {
	env, err := parseEnv(f.env)
	if err != nil {
		return nil, err
	}
	dialect, known := rotav1.WorkerDialect_value["WORKER_DIALECT_"+strings.ToUpper(f.dialect)]
	if !known || dialect == 0 {
		return nil, usageErrorf("--dialect must be openai, vllm or sglang, not %q", f.dialect)
	}
	spec := &rotav1.WorkerPoolSpec{
		Name: args[0], Policy: f.policy, Namespace: namespace, Gpus: f.gpus, Port: f.port, Dialect: rotav1.WorkerDialect(dialect), Hardware: f.hardware,
		PayBackSteps: f.payBack, SetUp: durationpb.New(f.setUp),
		Start: &rotav1.ActionSpec{Pool: f.pool, Command: &rotav1.Command{Argv: args[1:], Env: env}, Resources: &rotav1.Resources{
			Cores: proto.Uint32(f.cores), MemoryBytes: uint64(f.memory), Gpus: &rotav1.GpuDemand{Class: f.gpuClass, MemoryBytes: uint64(f.gpuMemory)},
		}},
	}
	for _, text := range f.degrees {
		degree, points, _ := strings.Cut(text, ":")
		n, err := strconv.ParseUint(degree, 10, 32)
		profile, profileErr := parseProfile("--degree", points, f.prefill/time.Duration(max(1, n)))
		if err != nil || profileErr != nil {
			return nil, usageErrorf("--degree %q is not DEGREE:BATCH=TIME,..., such as 2:1=6ms,32=9ms", text)
		}
		spec.Options = append(spec.Options, &rotav1.WorkerPoolOption{Degree: uint32(n), Slots: f.slots * uint32(n), Profile: profile})
	}
	return spec, nil
}

// parseProfile reads BATCH=TIME,... of a flag.
func parseProfile(flag, text string, prefill time.Duration) (*rotav1.WorkerProfile, error) {
	profile := &rotav1.WorkerProfile{}
	if prefill > 0 {
		profile.Prefill_1K = durationpb.New(prefill)
	}
	for _, point := range strings.Split(text, ",") {
		batch, takes, _ := strings.Cut(point, "=")
		n, err := strconv.ParseUint(batch, 10, 32)
		d, timeErr := time.ParseDuration(takes)
		if err != nil || timeErr != nil {
			return nil, usageErrorf("%s has the point %q, which is not BATCH=TIME, such as 32=12ms", flag, point)
		}
		profile.Points = append(profile.Points, &rotav1.WorkerProfilePoint{BatchSize: uint32(n), TokenTime: durationpb.New(d)})
	}
	return profile, nil
}

func (a *app) workerPoolListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List worker pools", Args: exactly(), Example: "  rota worker pool list",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			resp, err := call(ctx, a, c.Workers.ListWorkerPools, &rotav1.ListWorkerPoolsRequest{})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(resp.Pools))
			for _, p := range resp.Pools {
				rows = append(rows, []string{p.Spec.Name, p.Spec.Policy, fmt.Sprint(p.Spec.Gpus), fmt.Sprint(len(p.Members)), degreesOf(p), p.SetUp.AsDuration().String(), formatTime(p.PlanTime)})
			}
			return a.print(resp, []string{"name", "policy", "gpus", "workers", "degrees", "set-up", "planned"}, rows)
		}),
	}
}

// degreesOf says "4 2 2", of the members that stay.
func degreesOf(p *rotav1.WorkerPool) string {
	var degrees []string
	for _, m := range p.GetMembers() {
		if m.State != rotav1.WorkerPoolMemberState_WORKER_POOL_MEMBER_STATE_LEAVING {
			degrees = append(degrees, fmt.Sprint(m.Degree))
		}
	}
	return strings.Join(degrees, " ")
}

func (a *app) workerPoolGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show a worker pool, its workers and its last plan", Args: exactly("NAME"), Example: "  rota worker pool get h100",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Workers.GetWorkerPool, &rotav1.GetWorkerPoolRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return a.printWorkerPool(resp.Pool)
		}),
	}
}

func (a *app) printWorkerPool(p *rotav1.WorkerPool) error {
	spec := p.GetSpec()
	var allowed []string
	for _, o := range spec.GetOptions() {
		allowed = append(allowed, fmt.Sprint(o.Degree))
	}
	fields := []field{
		{"worker pool", spec.GetName()}, {"policy", spec.GetPolicy()}, {"GPUs", fmt.Sprint(spec.GetGpus())}, {"allowed degrees", strings.Join(allowed, " ")},
		{"set-up", fmt.Sprintf("%v, %d measured", p.GetSetUp().AsDuration(), p.GetSetUps())},
	}
	if p.GetRemoved() {
		fields = append(fields, field{"removed", "as soon as its workers are gone"})
	}
	if p.GetPlanTime() != nil {
		change := "degrees stay"
		if p.PlanChanged {
			change = "degrees change"
		}
		fields = append(fields, field{"last plan", fmt.Sprintf("%s: %s, for %d trajectories; expected to end after %v, before it after %v", formatTime(p.PlanTime), change,
			p.PlanTrajectories, p.PlanExpected.AsDuration().Round(time.Second/10), p.PlanExpectedBefore.AsDuration().Round(time.Second/10))})
	}
	for _, m := range p.GetMembers() {
		text := fmt.Sprintf("degree %d, %s", m.Degree, enumWord(m.State, "WORKER_POOL_MEMBER_STATE_"))
		if m.ActionId > 0 {
			text += fmt.Sprintf(", action %d, started %d times", m.ActionId, m.Starts)
		}
		if m.Worker != "" {
			text += ", worker " + m.Worker
		}
		fields = append(fields, field{"member", text})
	}
	return a.printFields(p, fields)
}

func (a *app) workerPoolPlanCmd() *cobra.Command {
	var apply bool
	cmd := &cobra.Command{
		Use: "plan NAME", Short: "Say which degrees the workers of a pool should have now", Args: exactly("NAME"),
		Long: `Says which degrees the workers of a pool should have now, what that gains, what it costs, and whether
it is worth it. With --apply, the degrees are changed anyway. Needs an operator's certificate.`,
		Example: "  rota worker pool plan h100\n  rota worker pool plan h100 --apply",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Workers.PlanWorkerPool, &rotav1.PlanWorkerPoolRequest{Name: args[0], Apply: apply})
			if err != nil {
				return err
			}
			advice := resp.GetAdvice()
			applied := "no"
			if resp.Applied {
				applied = "yes"
			}
			return a.printFields(resp, []field{
				{"degrees", strings.Trim(fmt.Sprint(advice.GetDegrees()), "[]")}, {"trajectories", fmt.Sprint(advice.GetTrajectories())},
				{"expected now", advice.GetExpectedNow().AsDuration().Round(time.Second / 10).String()},
				{"expected then", advice.GetExpected().AsDuration().Round(time.Second / 10).String()},
				{"cost", advice.GetCost().AsDuration().String()}, {"why", advice.GetReason()}, {"applied", applied},
			})
		}),
	}
	cmd.Flags().BoolVar(&apply, "apply", false, "change the degrees, even if that is not worth it")
	return cmd
}

func (a *app) workerPoolRemoveCmd() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Drain and end the workers of a pool, and forget it then", Args: exactly("NAME"), Example: "  rota worker pool remove h100",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			_, err := call(ctx, a, c.Workers.RemoveWorkerPool, &rotav1.RemoveWorkerPoolRequest{Name: args[0]})
			return err
		}),
	}
}

func listWorkerPoolNames(ctx context.Context, c *client.Client, _ *settings) (all []string, err error) {
	resp, err := c.Workers.ListWorkerPools(ctx, &rotav1.ListWorkerPoolsRequest{AllowStale: true})
	for _, p := range resp.GetPools() {
		all = append(all, p.Spec.GetName()+"\t"+p.Spec.GetPolicy())
	}
	return all, err
}
