package cli

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"rota/agent"
	"rota/agent/runtime"
	"rota/agent/runtime/container"
	"rota/server/gossip"
)

// agentFlags are the flags of `rota agent`.
type agentFlags struct {
	containers agent.Containers
	processFlags
	name, pool    string
	metrics       string
	servers       []string
	labels        []string
	cores         int
	oversubscribe bool
	shareAfter    time.Duration
	memory        size
	imagesMax     size
	allowProcess  bool
	runAs         string
	attemptUIDs   string
	namespaces    string
	confine       string
	cgroupParent  string
	processesMax  int
	diskFloor     string
	killOnExit    bool
	dev           bool
	devices       deviceFlags
	kv            kvFlags
	state         stateFlags
	registry      registryFlags
	asleepMax     int
	asleepMemory  size
}

func (a *app) agentCmd() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use: "agent", Short: "Run an agent, which runs actions on this machine", Args: exactly(),
		Long: `Registers this machine as a node and runs the actions that the servers grant to it.
The agent finds servers by gossip (--join), by address (--servers), or both.

The agent runs commands only with --allow-process. If the agent is root, each action or
trajectory then runs as its own unprivileged user. Use --dev only for trials: it allows
commands, runs them as the agent's own user, and kills them when the agent ends.

You can set every flag as ROTA_AGENT_NAME in the environment, or as "name" in the
section "agent" of the config file.`,
		Example: "  rota agent --join 10.0.0.1:7401 --allow-process --gossip-key gossip.key \\\n" +
			"    --listen 10.0.0.9:7410 --ca pki/ca.pem --cert pki/node-1.pem --key pki/node-1-key.pem",
		Annotations: map[string]string{annotationSection: "agent"},
		RunE:        func(cmd *cobra.Command, _ []string) error { return a.agent(cmd, &f) },
	}
	f.processFlags.addTo(cmd.Flags(), agent.DefaultListen, "127.0.0.1:7411", "rota-agent")
	fs := cmd.Flags()
	fs.StringVar(&f.name, "name", "", "name of the node (default: the host name)")
	fs.StringVar(&f.metrics, "metrics", agent.DefaultMetrics, `address to serve metrics and health on; without TLS, loopback only; "" for none`)
	fs.StringVar(&f.pool, "pool", agent.DefaultPool, "pool of the node")
	fs.StringSliceVar(&f.servers, "servers", nil, "addresses of servers")
	fs.StringSliceVar(&f.labels, "label", nil, "labels of the node, NAME=VALUE")
	fs.IntVar(&f.cores, "cores", 0, "cores to offer; 0: all")
	fs.BoolVar(&f.oversubscribe, "oversubscribe", false, "allow more --cores than the machine has; commands are then not pinned to cores")
	fs.DurationVar(&f.shareAfter, "share-cores-after", 0, "age from which actions that can do with one core share some, such as 10s, while others wait for cores; 0: each core has one user")
	fs.Var(&f.memory, "memory", "memory to offer, such as 64GiB; 0: the machine's memory minus a reserve")
	fs.BoolVar(&f.allowProcess, "allow-process", false, "run commands of actions as processes of this machine")
	fs.StringVar(&f.runAs, "run-as", "", "run all commands as this user, instead of --attempt-uids")
	fs.StringVar(&f.attemptUIDs, "attempt-uids", runtime.Auto, "range of user IDs, FIRST-LAST; each running action or trajectory gets its own user; auto: "+
		runtime.DefaultAttemptUIDs+" if the agent is root; none: all run as the user nobody")
	fs.StringVar(&f.namespaces, "attempt-namespaces", runtime.Auto, "give each action its own /proc, /tmp and IPC: auto (only if the agent is root), on or none")
	fs.StringVar(&f.confine, "confine", "", "require cgroup-v2, cgroup-v1, hybrid or affinity (default: the best available)")
	fs.StringVar(&f.cgroupParent, "cgroup-parent", runtime.DefaultCgroupParent, "cgroup in which the agent creates cgroups")
	fs.IntVar(&f.processesMax, "processes-max", runtime.DefaultProcessesMax, "maximum number of processes and threads of an attempt at once")
	fs.StringVar(&f.diskFloor, "disk-floor", runtime.Auto, "take no new work if --data-dir has less free space than this, such as 20GiB; 0: no limit; auto: 1GiB, or 5% of a smaller disk")
	fs.IntVar(&f.asleepMax, "engines-asleep-max", agent.DefaultEnginesAsleepMax, "most engines of models that sleep at once on this node; others are stopped")
	fs.Var(&f.asleepMemory, "engines-asleep-memory", "memory that is kept for sleeping engines, such as 200GiB, and not offered to actions; 0: they keep up to half of the node's memory, which actions are offered, too")
	fs.StringVar(&f.containers.Address, "containerd", none, "socket of containerd, for trajectories in containers; auto: "+
		container.DefaultAddress+" if containerd listens there; none: no containers")
	fs.StringVar(&f.containers.Images, "images", "", "folder of OCI archives that containers may name as images")
	fs.StringSliceVar(&f.containers.Pull.Hosts, "pull", nil, "registry that images are pulled from which the node does not have, such as docker.io or registry.example.com:5000 (default: images are not pulled)")
	f.registry.addTo(fs)
	fs.Var(&f.imagesMax, "images-max", "remove images that no sandbox uses, the least recently used first, when all take more than this in containerd, such as 100GiB; 0: never")
	fs.StringVar(&f.containers.Init, "rota-init", "", "program that is the first process of containers (default: rota-init beside this program)")
	fs.BoolVar(&f.killOnExit, "kill-on-exit", false, "kill running actions when the agent stops, instead of leaving them for the next agent")
	fs.BoolVar(&f.dev, "dev", false, "for trials: allow commands, run them as the agent's own user, and kill them at the end")
	f.devices.addTo(cmd)
	f.kv.addTo(cmd)
	f.state.addTo(cmd)
	words(cmd, "attempt-namespaces", runtime.Auto, runtime.On, none)
	words(cmd, "confine", runtime.ModeCgroupV2, runtime.ModeCgroupV1, runtime.ModeHybrid, runtime.ModeAffinity)
	return cmd
}

func (a *app) agent(cmd *cobra.Command, f *agentFlags) error {
	logger, recent, err := f.logger("agent", a.err)
	if err != nil {
		return err
	}
	cfg, err := f.config(&a.settings, logger)
	if err != nil {
		return err
	}
	cfg.Recent, cfg.Settings, cfg.Version = recent, flagsOf(cmd), Version
	if f.gossip.bind != "" {
		g, err := f.startGossip(cfg.Name, logger)
		if err != nil {
			return err
		}
		defer g.Stop()
		cfg.Keyring = g
		cfg.Discover = func(context.Context) []string { return g.Servers() }
	}
	if cfg.Tracer, err = f.tracer("rota-agent", cfg.Name, logger); err != nil {
		return err
	}
	defer cfg.Tracer.Close()
	a.reloads(cmd, logger)
	return agent.Run(cmd.Context(), cfg)
}

func (f *agentFlags) config(s *settings, logger hclog.Logger) (agent.Config, error) {
	labels := map[string]string{}
	for _, kv := range f.labels {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return agent.Config{}, usageErrorf("--label %q is not NAME=VALUE", kv)
		}
		labels[k] = v
	}
	if f.name == "" {
		host, err := os.Hostname()
		if err != nil {
			return agent.Config{}, err
		}
		f.name = strings.ToLower(host)
	}
	cfg := agent.Config{
		Name: f.name, Pool: f.pool, Dir: f.dataDir, Servers: f.servers, TLS: s.tlsFiles(),
		Listen: f.listen, Metrics: f.metrics, Advertise: f.advertise, Labels: labels,
		Cores: f.cores, Oversubscribe: f.oversubscribe, MemoryBytes: uint64(f.memory),
		EnginesAsleepMax: &f.asleepMax, EnginesAsleepBytes: uint64(f.asleepMemory),
		KillOnExit: f.killOnExit || f.dev, Logger: logger, Containers: f.containers, ShareAfter: f.shareAfter,
	}
	if err := f.registry.apply(&cfg.Containers.Pull); err != nil {
		return cfg, err
	}
	cfg.Containers.ImagesBytesMax = uint64(f.imagesMax)
	if f.containers.Address == none {
		cfg.Containers.Address = ""
	}
	if f.asleepMax < 0 {
		return cfg, usageErrorf("--engines-asleep-max is %d; set it to 0 or more", f.asleepMax)
	}
	if err := f.devices.apply(&cfg); err != nil {
		return cfg, err
	}
	if err := f.kv.apply(&cfg); err != nil {
		return cfg, err
	}
	f.state.apply(&cfg)
	cfg.Process.Enabled = f.allowProcess || f.dev
	cfg.Process.Mode, cfg.Process.CgroupParent = f.confine, f.cgroupParent
	if f.processesMax < 1 {
		return cfg, usageErrorf("--processes-max is %d; set it to 1 or more, because an attempt needs a process", f.processesMax)
	}
	cfg.Process.ProcessesMax = f.processesMax
	if f.diskFloor != runtime.Auto {
		floor, err := parseSize(f.diskFloor)
		if err != nil {
			return cfg, usageErrorf("--disk-floor: %w", err)
		}
		cfg.DiskFloor = &floor
	}
	return cfg, f.isolate(&cfg.Process.SuperviseOptions)
}

// none turns off an automatic choice.
const none = "none"

// isolate sets the user of commands and what commands share. Automatic isolation is off
// with --dev and in an agent that is not root.
func (f *agentFlags) isolate(o *runtime.SuperviseOptions) error {
	automatic := f.allowProcess && !f.dev
	if o.Namespaces = f.namespaces; o.Namespaces == none || o.Namespaces == runtime.Auto && !automatic {
		o.Namespaces = ""
	}
	named := f.attemptUIDs != none && f.attemptUIDs != runtime.Auto
	if named && f.runAs != "" {
		return usageErrorf("--run-as sets one user for all actions, and --attempt-uids one for each; give only one of them")
	}
	if named || f.attemptUIDs == runtime.Auto && f.runAs == "" && automatic {
		o.AttemptUIDs = f.attemptUIDs
	}
	if !automatic {
		return nil
	}
	var err error
	o.User, err = runAs(f.runAs)
	return err
}

func (f *agentFlags) startGossip(name string, logger hclog.Logger) (*gossip.Gossip, error) {
	addr := f.advertise
	if addr == "" {
		addr = f.listen
	}
	c, err := f.gossip.config(name, gossip.RoleAgent, addr, logger)
	if err != nil {
		return nil, err
	}
	return gossip.Start(c)
}

func supervise(ctx context.Context, args []string) error {
	opts, err := runtime.ParseSuperviseArgs(args)
	if err != nil {
		return err
	}
	return runtime.Supervise(ctx, opts)
}
