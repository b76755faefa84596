package cli

import (
	"context"
	"os"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"rota/agent"
	"rota/agent/runtime"
	"rota/server/gossip"
)

// agentFlags are what an agent can be told.
type agentFlags struct {
	processFlags
	name, pool    string
	servers       []string
	labels        []string
	cores         int
	oversubscribe bool
	memory        size
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
}

func (a *app) agentCmd() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use: "agent", Short: "Run an agent: carry out actions on this machine", Args: exactly(),
		Long: `Registers this machine as a node and runs what the servers grant to it. Servers are
found by gossip (--join), by address (--servers), or both.

Running commands is off until --allow-process turns it on. If the agent is root, each
action or trajectory then runs as an unprivileged user of its own. --dev is for
playing: it allows commands, runs them as the user of the agent, and kills them when
the agent ends.

Every flag can be set as ROTA_AGENT_NAME, or as "name" in "agent" of the config
file.`,
		Example: "  rota agent --join 10.0.0.1:7401 --allow-process --gossip-key gossip.key \\\n" +
			"    --listen 10.0.0.9:7410 --ca pki/ca.pem --cert pki/node-1.pem --key pki/node-1-key.pem",
		Annotations: map[string]string{annotationSection: "agent"},
		RunE:        func(cmd *cobra.Command, _ []string) error { return a.agent(cmd.Context(), &f) },
	}
	f.processFlags.addTo(cmd.Flags(), agent.DefaultListen, "127.0.0.1:7411", "rota-agent")
	fs := cmd.Flags()
	fs.StringVar(&f.name, "name", "", "name of the node (default: the host name)")
	fs.StringVar(&f.pool, "pool", agent.DefaultPool, "pool of the node")
	fs.StringSliceVar(&f.servers, "servers", nil, "addresses of servers")
	fs.StringArrayVar(&f.labels, "label", nil, "label of the node, NAME=VALUE; may be repeated")
	fs.IntVar(&f.cores, "cores", 0, "cores to offer; 0: all")
	fs.BoolVar(&f.oversubscribe, "oversubscribe", false, "allow more --cores than there are; nothing is pinned then")
	fs.Var(&f.memory, "memory", "memory to offer, such as 64GiB; 0: the machine's less a reserve")
	fs.BoolVar(&f.allowProcess, "allow-process", false, "run commands of actions as processes of this machine")
	fs.StringVar(&f.runAs, "run-as", "", "user that all of them run as, instead of --attempt-uids")
	fs.StringVar(&f.attemptUIDs, "attempt-uids", runtime.Auto, "users, FIRST-LAST, of which each action or trajectory that runs has its own; auto: "+
		runtime.DefaultAttemptUIDs+" if the agent is root; none: all run as nobody")
	fs.StringVar(&f.namespaces, "attempt-namespaces", runtime.Auto, "give each action its own /proc, /tmp and IPC: auto (if the agent is root), on or none")
	fs.StringVar(&f.confine, "confine", "", "insist on cgroup-v2, cgroup-v1, hybrid or affinity (default: the best there is)")
	fs.StringVar(&f.cgroupParent, "cgroup-parent", runtime.DefaultCgroupParent, "where to make cgroups")
	fs.IntVar(&f.processesMax, "processes-max", runtime.DefaultProcessesMax, "processes and threads that one attempt may have at once")
	fs.StringVar(&f.diskFloor, "disk-floor", runtime.Auto, "free space of --data-dir below which the node takes no new work, such as 20GiB; 0: none; auto: 1GiB, or 5% of a smaller disk")
	fs.BoolVar(&f.killOnExit, "kill-on-exit", false, "kill what runs when the agent is told to stop, instead of leaving it for the next")
	fs.BoolVar(&f.dev, "dev", false, "for playing: allow commands, as the agent's own user, and kill them at the end")
	f.devices.addTo(cmd)
	words(cmd, "attempt-namespaces", runtime.Auto, runtime.On, none)
	words(cmd, "confine", runtime.ModeCgroupV2, runtime.ModeCgroupV1, runtime.ModeHybrid, runtime.ModeAffinity)
	return cmd
}

func (a *app) agent(ctx context.Context, f *agentFlags) error {
	logger, err := f.logger("agent", a.err)
	if err != nil {
		return err
	}
	cfg, err := f.config(&a.settings, logger)
	if err != nil {
		return err
	}
	if f.gossip.bind != "" {
		g, err := f.startGossip(cfg.Name, logger)
		if err != nil {
			return err
		}
		defer g.Stop()
		cfg.Discover = func(context.Context) []string { return g.Servers() }
	}
	return agent.Run(ctx, cfg)
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
		Listen: f.listen, Advertise: f.advertise, Labels: labels,
		Cores: f.cores, Oversubscribe: f.oversubscribe, MemoryBytes: uint64(f.memory),
		KillOnExit: f.killOnExit || f.dev, Logger: logger,
	}
	if err := f.devices.apply(&cfg); err != nil {
		return cfg, err
	}
	cfg.Process.Enabled = f.allowProcess || f.dev
	cfg.Process.Mode, cfg.Process.CgroupParent = f.confine, f.cgroupParent
	if f.processesMax < 1 {
		return cfg, usageErrorf("--processes-max is %d; an attempt needs at least 1 process", f.processesMax)
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

// none turns off what is automatic.
const none = "none"

// isolate says as whom commands run and what they share. --dev and an agent that is
// not root leave out what is automatic.
func (f *agentFlags) isolate(o *runtime.SuperviseOptions) error {
	automatic := f.allowProcess && !f.dev
	if o.Namespaces = f.namespaces; o.Namespaces == none || o.Namespaces == runtime.Auto && !automatic {
		o.Namespaces = ""
	}
	named := f.attemptUIDs != none && f.attemptUIDs != runtime.Auto
	if named && f.runAs != "" {
		return usageErrorf("--run-as is one user for all actions, and --attempt-uids one for each; give one of them")
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
