package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rota/jepsen/cluster"
	"rota/jepsen/disk"
	"rota/jepsen/fault"
	"rota/jepsen/history"
	"rota/jepsen/hostile"
	"rota/jepsen/proxy"
	"rota/jepsen/report"
	"rota/jepsen/workload"
	"rota/jepsen/workload/witness"
)

// Options of a run.
type Options struct {
	Seed int64
	// Duration of the faults: rounds are added until it is over. Faults of the
	// first round all happen, however short it is.
	Duration time.Duration
	// Count of faults, 0: that of the scenario.
	Count int
	// LogStore is what keeps the log of the servers, "": their default.
	LogStore string
	// Dir is for what members keep. It is not removed.
	Dir string
	// Store is where the folder of the report is made.
	Store string
	// Binary is the rota to test, built with -tags faults, and OtherBinary another
	// build of it for rolling restarts.
	Binary, OtherBinary string
	// Log is told what happens.
	Log func(format string, args ...any)
}

// run is one run under way.
type run struct {
	Scenario
	Options
	world   fault.World
	env     *workload.Env // once the cluster runs
	started time.Time
	stuck   []string // what was not whole again after a fault
	close   []func() error
	hashes  []history.Sample
	final   []history.Action
	healing history.Healing
}

// Run runs a scenario. The report says what was found, also if the run broke
// off on the way. An error means that there is none.
func Run(ctx context.Context, s Scenario, o Options) (*report.Report, error) {
	r := &run{Scenario: s, Options: o, started: time.Now()}
	faults, err := s.faults()
	if err != nil {
		return nil, err
	}
	broken := r.prepare(ctx)
	if broken == nil {
		broken = r.play(ctx, faults)
	}
	logs, err := r.stop()
	return r.judge(logs, errors.Join(broken, err))
}

// prepare starts the cluster and everything around it.
func (r *run) prepare(ctx context.Context) error {
	config := r.cluster()
	if r.LogStore != "" {
		config.ServerArgs = append(config.ServerArgs, "--log-store", r.LogStore)
	}
	r.world = fault.World{
		Config: config, Disks: map[string]*disk.FS{}, Rotten: map[string]bool{}, Dir: filepath.Join(r.Dir, "faults"), OtherBinary: r.OtherBinary, Pool: agentPool,
		Rand: rand.New(rand.NewPCG(uint64(r.Seed), 0)),
	}
	config.Dir, config.Binary = r.Dir, r.Binary
	if r.Disks {
		config.Disk = r.mount
	}
	if r.Proxy {
		config.Route = r.route
	}
	r.world.Record = history.NewRecorder(history.Record{
		Scenario: r.Name, Seed: r.Seed, LeaseNS: int64(r.lease()), MarginNS: int64(margin), GPUMemoryBytes: gpuMemoryBytes,
	})
	w, err := r.openWitness(ctx)
	if err != nil {
		return err
	}
	if r.Ordinary {
		if r.world.Intruder, err = cluster.Build(ctx, cluster.SharedDir, cluster.BuildOptions{Package: hostile.Package}); err != nil {
			return err
		}
	}
	if r.world.Cluster, err = cluster.Start(ctx, config); err != nil {
		return err
	}
	r.close = append(r.close, r.world.Cluster.Stop)
	r.setEnv(w, config)
	if err := r.healthy(ctx); err != nil {
		return fmt.Errorf("the cluster did not come up: %w", err)
	}
	return nil
}

func (r *run) openWitness(ctx context.Context) (*witness.Witness, error) {
	w, err := witness.Listen(filepath.Join(cluster.SharedDir, "witness"), r.world.Record.Now)
	if err != nil {
		return nil, err
	}
	r.close = append(r.close, w.Close)
	if w.Probe, err = cluster.Build(ctx, cluster.SharedDir, cluster.BuildOptions{Package: witness.Package}); err != nil {
		return w, err
	}
	w.Engine, err = cluster.Build(ctx, cluster.SharedDir, cluster.BuildOptions{Package: witness.EnginePackage})
	return w, err
}

// mount makes the folder of a server a disk that can be broken.
func (r *run) mount(name, dir string) (string, func() error, error) {
	if !strings.HasPrefix(name, serverPrefix) {
		return dir, nil, nil
	}
	backing := backingOf(dir)
	if err := errors.Join(os.MkdirAll(backing, 0o755), os.MkdirAll(dir, 0o755)); err != nil {
		return "", nil, err
	}
	d, err := disk.Mount(backing, dir)
	if err != nil {
		return "", nil, err
	}
	r.world.Disks[name] = d
	return dir, d.Close, nil
}

const serverPrefix = "server"

// backingOf is the folder below a disk that is mounted at dir.
func backingOf(dir string) string { return dir + ".disk" }

// route leads to a server through the proxy, which is made for the first one.
func (r *run) route(m *cluster.Member) (route cluster.Route, err error) {
	if r.world.Proxy == nil {
		r.world.Proxy = proxy.New(r.addresses(), uint64(r.Seed))
		r.close = append(r.close, r.world.Proxy.Close)
	}
	p := r.world.Proxy
	if route.API, err = p.TCP(m.Name, cluster.HubIP+":0", m.Addr); err != nil {
		return route, err
	}
	route.Gossip, err = p.Both(m.Name, cluster.HubIP+":0", net.JoinHostPort(m.IP, gossipPort))
	return route, err
}

// gossipPort is that of servers.
const gossipPort = "7401"

// addresses of all members by name, as the network gives them out.
func (r *run) addresses() map[string]string {
	ips := map[string]string{}
	for i := range r.Servers + r.Standbys {
		ips[fmt.Sprintf("server-%d", i+1)] = memberIP(i)
	}
	for i := range r.Agents {
		ips[fmt.Sprintf("node-%d", i+1)] = memberIP(r.Servers + r.Standbys + i)
	}
	return ips
}

func memberIP(number int) string { return fmt.Sprintf("10.77.0.%d", 11+number) }

func (r *run) setEnv(w *witness.Witness, config cluster.Config) {
	c := r.world.Cluster
	r.env = &workload.Env{
		Record: r.world.Record, TLS: c.TLS(), Witness: w, Seed: uint64(r.Seed),
		Pool: agentPool, HeldPool: heldPool, Cores: config.Cores, GPUs: gpusPerAgent, Policy: cluster.Policy,
	}
	if r.Long {
		r.env.LongPerCent = longPerCent
	}
	var servers, agents []string
	for _, m := range c.Servers[:r.Servers] {
		servers = append(servers, m.Name)
		r.env.Servers = append(r.env.Servers, workload.Server{ID: m.Name, Addr: m.Addr})
	}
	for _, m := range c.Agents {
		agents = append(agents, m.Name)
	}
	for _, m := range c.Gateways {
		r.env.Gateways = append(r.env.Gateways, m.Addr)
	}
	for _, m := range c.Generators {
		r.env.Generators = append(r.env.Generators, workload.Server{ID: m.Name, Addr: m.Addr})
	}
	r.env.Nodes = agents
	r.world.Record.Update(func(rec *history.Record) { rec.Servers, rec.Agents = servers, agents })
}
