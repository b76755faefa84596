package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) rewardCmd() *cobra.Command {
	return group("reward", "Register reward functions, which are scaled by demand, and see what they cost",
		a.rewardRegisterCmd(), a.reads(a.rewardListCmd()), a.reads(a.rewardGetCmd()), a.rewardUpdateCmd(), a.rewardRemoveCmd())
}

// rewardFlags declare a reward function.
type rewardFlags struct {
	rewardScaleFlags
	pool, model, class, path, probe, protocol, dir string
	cores, gpus                                    uint32
	memory, gpuMemory                              size
	env                                            []string
	startTimeout                                   time.Duration
}

// rewardScaleFlags are those of a function that can be updated.
type rewardScaleFlags struct {
	min, max, concurrency, queue, retries uint32
	idle, timeout                         time.Duration
}

func (f *rewardScaleFlags) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Uint32Var(&f.min, "min", 0, "fewest replicas")
	fs.Uint32Var(&f.max, "max", 8, "most replicas")
	fs.Uint32Var(&f.concurrency, "concurrency", 1, "calls that a gateway gives one replica at once")
	fs.Uint32Var(&f.queue, "queue", 1024, "calls that wait at one gateway at most")
	fs.Uint32Var(&f.retries, "retries", 2, "how often a call is tried again that fails or takes too long")
	fs.DurationVar(&f.idle, "idle", time.Minute, "how long fewer replicas must be enough before there are fewer")
	fs.DurationVar(&f.timeout, "timeout", 30*time.Second, "longest time of one try of a call")
}

func (a *app) rewardRegisterCmd() *cobra.Command {
	var f rewardFlags
	cmd := &cobra.Command{
		Use: "register NAME [flags] -- COMMAND [ARG...]", Short: "Register a reward function, or change it",
		Long: `Registers a stateless HTTP service under a name. Gateways take its calls at /v1/rewards/NAME.
rota starts as many replicas as the calls need, from --min to --max, and ends them when fewer
have been enough for --idle. If the command or its resources change, the replicas are replaced.
They run in the namespace of --namespace.

The command must listen on 127.0.0.1 and on the port that {{port}} becomes. With --gpus and
--model, {{engine}} becomes the address of the model's engine on the replica's GPUs.

Needs an operator's certificate.`,
		Example: `  rota reward register math --cores 2 --max 16 --concurrency 4 -- python3 -m rota.reward --port {{port}} graders:math
  rota reward register judge --gpus 1 --model judge-7b --concurrency 32 --protocol verl -- ./judge --port {{port}} --engine {{engine}}`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageErrorf("give the name of the function, and after -- the command that starts a replica")
			}
			return nil
		},
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			spec, err := f.spec(a.settings.namespace, args[0], args[1:])
			if err != nil {
				return err
			}
			resp, err := call(ctx, a, c.Rewards.RegisterReward, &rotav1.RegisterRewardRequest{Spec: spec})
			if err != nil {
				return err
			}
			return a.printReward(resp.Reward)
		}),
	}
	f.addTo(cmd)
	return cmd
}

func (f *rewardFlags) addTo(cmd *cobra.Command) {
	f.rewardScaleFlags.addTo(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.pool, "pool", "", "pool whose nodes run the replicas")
	fs.Uint32Var(&f.cores, "cores", 1, "cores of each replica; 0 with --gpus")
	fs.Var(&f.memory, "memory", "memory of each replica, such as 512MiB; 0: not bounded")
	fs.Uint32Var(&f.gpus, "gpus", 0, "GPUs of each replica: 1, 2, 4 or 8")
	fs.StringVar(&f.class, "gpu-class", "", "class of the GPUs, such as H100")
	fs.Var(&f.gpuMemory, "gpu-memory", "memory on each GPU, such as 20GiB; 0: all of it")
	fs.StringVar(&f.model, "model", "", "model that is to be resident on the GPUs")
	fs.StringVar(&f.path, "path", "", `path at the replica of a call to /v1/rewards/NAME (default "/")`)
	fs.StringVar(&f.probe, "probe", "", "path that answers 200 once the replica can be called (default: it can as soon as it listens)")
	fs.DurationVar(&f.startTimeout, "start-timeout", 0, "longest time until a replica can be called; 0: 2 minutes")
	fs.StringVar(&f.protocol, "protocol", "rota", "what the clients make of a full queue: rota, slime (status 429) or verl (503)")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "environment variable of the replicas, NAME=VALUE; repeat the flag for more variables")
	fs.StringVar(&f.dir, "dir", "", "working directory: an absolute path that exists on the nodes (default: a fresh one)")
	words(cmd, "protocol", "rota", "verl", "slime")
}

func (f *rewardFlags) spec(namespace, name string, argv []string) (*rotav1.RewardSpec, error) {
	env, err := parseEnv(f.env)
	if err != nil {
		return nil, err
	}
	protocol, known := rotav1.RewardProtocol_value["REWARD_PROTOCOL_"+strings.ToUpper(f.protocol)]
	switch {
	case !known || protocol == 0:
		return nil, usageErrorf("--protocol must be rota, verl or slime, not %q", f.protocol)
	case f.gpus == 0 && (f.model != "" || f.class != "" || f.gpuMemory > 0):
		return nil, usageErrorf("--model, --gpu-class and --gpu-memory need --gpus")
	case f.max == 0 || f.concurrency == 0:
		return nil, usageErrorf("--max and --concurrency must be at least 1")
	}
	spec := &rotav1.RewardSpec{
		Name: name, Namespace: namespace, Pool: f.pool, Command: &rotav1.Command{Argv: argv, Env: env, Dir: f.dir},
		Resources: &rotav1.Resources{Cores: proto.Uint32(f.cores), MemoryBytes: uint64(f.memory)},
		Min:       f.min, Max: f.max, Concurrency: f.concurrency, Queue: f.queue, Retries: proto.Uint32(f.retries),
		Idle: durationpb.New(f.idle), Timeout: durationpb.New(f.timeout), Path: f.path, ProbePath: f.probe, Protocol: rotav1.RewardProtocol(protocol),
	}
	if f.startTimeout > 0 {
		spec.StartTimeout = durationpb.New(f.startTimeout)
	}
	if f.gpus > 0 {
		spec.Resources.Gpus = &rotav1.GpuDemand{Class: f.class, Gpus: []uint32{f.gpus}, MemoryBytes: uint64(f.gpuMemory), Model: f.model}
	}
	return spec, nil
}

func (a *app) rewardListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List reward functions", Args: exactly(), Example: "  rota reward list",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			all := &rotav1.ListRewardsResponse{}
			req := &rotav1.ListRewardsRequest{PageSize: 100}
			err := pages(ctx, a, c.Rewards.ListRewards, req, &req.PageToken, func(page *rotav1.ListRewardsResponse) {
				all.Rewards = append(all.Rewards, page.Rewards...)
			})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(all.Rewards))
			for _, r := range all.Rewards {
				ready, live := replicaCounts(r)
				rows = append(rows, []string{
					r.Spec.Name, fmt.Sprintf("%d/%d", ready, live), fmt.Sprintf("%d-%d", r.Spec.Min, r.Spec.Max), fmt.Sprint(r.Running), fmt.Sprint(r.Waiting),
					fmt.Sprint(r.Calls), fmt.Sprint(r.FailedCalls), heldSeconds(r.CoreTime.AsDuration()), heldSeconds(r.GpuTime.AsDuration()), r.Message,
				})
			}
			return a.print(all, []string{"name", "ready", "bounds", "running", "waiting", "calls", "failed", "core seconds", "gpu seconds", "message"}, rows)
		}),
	}
}

// replicaCounts returns how many replicas can be called, of how many.
func replicaCounts(r *rotav1.Reward) (ready, live int) {
	for _, p := range r.Replicas {
		if p.State == rotav1.RewardReplicaState_REWARD_REPLICA_STATE_READY {
			ready++
		}
	}
	return ready, len(r.Replicas)
}

func (a *app) rewardGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show one reward function, its replicas and what it cost", Args: exactly("NAME"), Example: "  rota reward get math",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Rewards.GetReward, &rotav1.GetRewardRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return a.printReward(resp.Reward)
		}),
	}
}

func (a *app) rewardUpdateCmd() *cobra.Command {
	var f rewardScaleFlags
	cmd := &cobra.Command{
		Use: "update NAME", Short: "Change how a reward function is scaled and called; its replicas stay", Args: exactly("NAME"),
		Example: "  rota reward update math --max 32 --idle 5m",
	}
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		req := f.update(cmd, args[0])
		if proto.Equal(req, &rotav1.UpdateRewardRequest{Name: args[0]}) {
			return usageErrorf("what to update is not given; give --min, --max, --concurrency, --queue, --retries, --idle or --timeout")
		}
		resp, err := call(ctx, a, c.Rewards.UpdateReward, req)
		if err != nil {
			return err
		}
		return a.printReward(resp.Reward)
	})
	f.addTo(cmd)
	return cmd
}

// update has the flags that were given.
func (f *rewardScaleFlags) update(cmd *cobra.Command, name string) *rotav1.UpdateRewardRequest {
	req, given := &rotav1.UpdateRewardRequest{Name: name}, cmd.Flags().Changed
	for flag, to := range map[string]**uint32{"min": &req.Min, "max": &req.Max, "concurrency": &req.Concurrency, "queue": &req.Queue, "retries": &req.Retries} {
		if given(flag) {
			*to = map[string]*uint32{"min": &f.min, "max": &f.max, "concurrency": &f.concurrency, "queue": &f.queue, "retries": &f.retries}[flag]
		}
	}
	if given("idle") {
		req.Idle = durationpb.New(f.idle)
	}
	if given("timeout") {
		req.Timeout = durationpb.New(f.timeout)
	}
	return req
}

func (a *app) rewardRemoveCmd() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Forget a reward function, and end its replicas and their calls", Args: exactly("NAME"), Example: "  rota reward remove math",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			_, err := call(ctx, a, c.Rewards.RemoveReward, &rotav1.RemoveRewardRequest{Name: args[0]})
			return err
		}),
	}
}

// heldSeconds prints a time that something was held.
func heldSeconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) }

func (a *app) printReward(r *rotav1.Reward) error {
	ready, live := replicaCounts(r)
	rows := [][]string{
		{"name", r.Spec.Name}, {"command", strings.Join(r.Spec.GetCommand().GetArgv(), " ")},
		{"replicas", fmt.Sprintf("%d ready of %d; the calls need %d; %d to %d allowed", ready, live, r.Wanted, r.Spec.Min, r.Spec.Max)},
		{"calls", fmt.Sprintf("%d, %d of them failed; %d run and %d wait at %d gateways", r.Calls, r.FailedCalls, r.Running, r.Waiting, r.Gateways)},
		{"held", fmt.Sprintf("%s core seconds, %s GPU seconds", heldSeconds(r.CoreTime.AsDuration()), heldSeconds(r.GpuTime.AsDuration()))},
	}
	if n := float64(r.Calls); n > 0 {
		rows = append(rows, []string{"per call", fmt.Sprintf("%.3f s at a replica, %.3f core seconds, %.3f GPU seconds",
			r.CallTime.AsDuration().Seconds()/n, r.CoreTime.AsDuration().Seconds()/n, r.GpuTime.AsDuration().Seconds()/n)})
	}
	if r.Message != "" {
		rows = append(rows, []string{"last failure", fmt.Sprintf("%s (%d in a row)", r.Message, r.Failures)})
	}
	for _, p := range r.Replicas {
		where := "waits for its resources"
		if p.Node != "" {
			where = "on " + p.Node
		}
		rows = append(rows, []string{fmt.Sprintf("action %d", p.ActionId), enumWord(p.State, "REWARD_REPLICA_STATE_") + ", " + where})
	}
	return a.print(r, []string{"field", "value"}, rows)
}

func listRewardNames(ctx context.Context, c *client.Client, _ *settings) (all []string, err error) {
	resp, err := c.Rewards.ListRewards(ctx, &rotav1.ListRewardsRequest{PageSize: completionsMax, AllowStale: true})
	for _, r := range resp.GetRewards() {
		ready, live := replicaCounts(r)
		all = append(all, fmt.Sprintf("%s\t%d of %d replicas are ready", r.Spec.GetName(), ready, live))
	}
	return all, err
}
