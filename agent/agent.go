package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/agent/internal/record"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/httpx"
	"rota/api/pki"

	"rota/agent/engine"
	"rota/agent/inventory"
	"rota/agent/journal"
	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/agent/runtime/container"
)

const (
	// killOnExitMax is how long a stopping agent waits for attempts to die.
	killOnExitMax = 5 * time.Second
	// leaveMax is how long the parts of a stopping agent get to end, and closeMax each store: its
	// disk may hang.
	leaveMax = 5 * time.Second
	closeMax = 12 * time.Second
	// gpuLookMax is how long a starting agent waits to hear how its GPUs are.
	gpuLookMax = 15 * time.Second
	// runtimeMax is how many bytes servers take for the runtime's description.
	runtimeMax = 256
)

// refusedSentence is what owners of actions are told where processes are off.
const refusedSentence = "node %s does not run commands: its process runtime is off; " +
	"start it with `rota agent --allow-process` to allow it"

// agent is one running agent.
type agent struct {
	cfg     Config
	log     hclog.Logger
	inv     *inventory.Inventory
	journal *journal.Journal
	driver  *driver
	engines *engine.Manager
	// recorded are the engines that an earlier agent has left.
	recorded []plan.Engine
	servers  *servers
	disk     *disk
	cluster  string    // that the node registered with last; only register uses it
	gpus     *gpuWatch // nil: no GPUs
	kv       *kv       // nil: no cache
	mover    *mover
	states   *states // nil: no state manager
	homes    *homes
	forks    *forks
	// sandboxes are the containers of trajectories; nil: this node runs none.
	sandboxes *container.Manager
	ahead     *aheadOpener // nil: this node runs no containers
	// images removes those that take too much; nil: they stay.
	images  *container.Collector
	specs   specifier
	runtime string // what the runtime can and cannot enforce
	resizes bool   // attempts can get other CPUs while they run
	address string
	metrics *metrics
	traces  *traces
	dial    func(context.Context) (runtime.Runtime, error)
}

// Run runs an agent until the context is done, and then returns nil. Any other
// end is an error after which the process should be restarted: attempts go on
// meanwhile, under the supervisor and for as long as the lease lasts.
func Run(ctx context.Context, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	a, err := open(cfg)
	if err != nil {
		return err
	}
	defer a.journal.Close()
	defer a.servers.http.CloseIdleConnections()
	listener, err := a.listen()
	if err != nil {
		return err
	}
	defer listener.Close()
	status, err := a.listenStatus()
	if err != nil {
		return err
	}
	if status != nil {
		defer status.Close()
	}
	if a.kv, err = a.openKV(); err != nil {
		return err
	}
	if a.kv != nil {
		defer a.closeInTime("the KV cache", func() { a.closeKV(a.kv) })
	}
	peers, err := a.openMover()
	if err != nil {
		return err
	}
	defer peers.CloseIdleConnections()
	if a.states, err = a.openStates(); err != nil {
		return err
	}
	if a.states != nil {
		defer a.closeInTime("the state manager", func() { a.closeStates(a.states) })
	}
	first, err := a.connect(ctx)
	if err != nil {
		return err
	}
	closeContainers, err := a.openContainers(ctx, first)
	if err != nil {
		return err
	}
	defer closeContainers()
	if err := a.openForks(); err != nil {
		return err
	}
	if a.forks.store != nil {
		defer a.closeInTime("the snapshots", a.forks.store.Close)
	}
	a.runtime = short(a.describeRuntime(first), runtimeMax)
	a.resizes = a.inv.Pinned && first.Describe().Resizes
	if cfg.ShareAfter > 0 && !a.resizes {
		return fmt.Errorf("%w: actions of this node cannot share cores: that takes cgroups with the cpuset controller, and no more cores than the machine has; leave out --share-cores-after", ErrConfig)
	}
	a.log.Info("agent started", "node", cfg.Name, "pool", cfg.Pool, "output_address", a.address, "runtime", a.runtime)
	if err := a.run(ctx, listener, status, first); ctx.Err() == nil {
		return err
	}
	return nil
}

// closeInTime closes a store, unless its disk hangs.
func (a *agent) closeInTime(what string, closeIt func()) {
	if !inTime(closeMax, closeIt) {
		a.log.Error("a part of the agent did not close in time: its disk may hang", "part", what, "waited", closeMax)
	}
}

// open reads what is on the machine and on disk.
func open(cfg Config) (*agent, error) {
	a := &agent{cfg: cfg, log: cfg.Logger, disk: newDisk(&cfg), dial: cfg.dial, metrics: newMetrics(), traces: newTraces(cfg.Tracer)}
	var err error
	if a.inv, err = cfg.inventory(); err != nil {
		return nil, err
	}
	if err := a.takeMemory("KV cache", cfg.KV.MemoryBytes); err != nil {
		return nil, err
	}
	if err := a.takeMemory("state manager", cfg.State.hostBytes()); err != nil {
		return nil, err
	}
	if err := a.takeMemory("sleeping engines", cfg.EnginesAsleepBytes); err != nil {
		return nil, err
	}
	a.specs = specifier{node: cfg.Name, inv: a.inv, runtimeDir: cfg.Process.Dir, self: self(cfg.Process)}
	client, err := newHTTPClient(cfg.TLS)
	if err != nil {
		return nil, fmt.Errorf("%w: TLS: %w", ErrConfig, err)
	}
	a.servers = newServers(a.log, client, cfg.TLS.Enabled(), cfg.Servers, cfg.Name)
	if err := a.openJournal(); err != nil {
		return nil, err
	}
	attempts := a.journal.Attempts()
	if a.specs.ports, err = openPorts(filepath.Join(cfg.Dir, "ports"), func(key plan.Key) bool { _, known := attempts[key]; return known }); err != nil {
		return nil, errors.Join(err, a.journal.Close())
	}
	if err := a.openEngines(); err != nil {
		return nil, errors.Join(err, a.journal.Close())
	}
	a.chooseRuntime()
	return a, nil
}

// self is where the program is that makes HTTP calls; empty if the machine does not
// say. It is asked for as the agent starts: when an upgrade has put a newer file in
// its place, which is as good, the kernel says only that this one is deleted.
func self(process Process) string {
	if process.Executable != "" {
		return process.Executable
	}
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}

func newHTTPClient(files pki.Files) (*http.Client, error) {
	if !files.Enabled() {
		return httpx.NewClient(nil), nil
	}
	conf, err := pki.ClientConfig(files, pki.RoleServer)
	if err != nil {
		return nil, err
	}
	return httpx.NewClient(conf), nil
}

// openJournal restores the attempts of an earlier run. A damaged journal is
// set aside: the new one has no incarnation, so everything left over is killed
// before the node registers as one that holds nothing.
func (a *agent) openJournal() error {
	// Attempts of another user have to get through to their directories.
	if err := os.MkdirAll(a.cfg.Dir, 0o711); err != nil {
		return fmt.Errorf("%w: data directory: %w", ErrConfig, err)
	}
	bootID := a.cfg.bootID
	if bootID == "" {
		var err error
		if bootID, err = record.BootID(); err != nil {
			return err
		}
	}
	path := filepath.Join(a.cfg.Dir, "agent.journal")
	j, err := journal.Open(path, bootID)
	if errors.Is(err, journal.ErrCorrupt) {
		aside, asideErr := journal.SetAside(path)
		if asideErr != nil {
			return errors.Join(err, asideErr)
		}
		a.log.Error("the journal is damaged; killing everything that is left over and starting from nothing",
			"error", err, "kept_as", aside)
		j, err = journal.Open(path, bootID)
	}
	if err != nil {
		return err
	}
	a.journal = j
	if a.gpus, err = a.openGPUs(bootID); err != nil {
		return errors.Join(err, j.Close())
	}
	var accepted []plan.Accepted
	for key, s := range j.Attempts() {
		accepted = append(accepted, plan.Accepted{Key: key, Reported: s.Reported, Rebooted: s.Rebooted})
	}
	p := plan.New(j.Incarnation(), accepted)
	if known := j.Machine(); known != "" && known != a.machine() {
		a.log.Warn("the node has other resources than it registered with; killing what is left over before it registers again")
		p.Changed()
	}
	a.driver = newDriver(p)
	a.homes = newHomes(a.log, a.driver.connection)
	return nil
}

// chooseRuntime decides how attempts are run. With processes off, a supervisor
// is used only to take care of what an earlier run has left to it.
func (a *agent) chooseRuntime() {
	process := a.cfg.Process
	process.HideDevices = a.inv.GPUs != nil && len(a.inv.GPUs.Devices) > 0
	if !process.Enabled {
		a.specs.refuse = fmt.Sprintf(refusedSentence, a.cfg.Name)
	}
	switch {
	case a.dial != nil:
	case process.Enabled || len(a.journal.Attempts())+len(a.recorded) > 0 || a.journal.Incarnation() == 0 && exists(process.Dir):
		a.dial = func(ctx context.Context) (runtime.Runtime, error) {
			return runtime.Dial(ctx, runtime.Options{
				SuperviseOptions: process.SuperviseOptions, Executable: process.Executable, Logger: a.log.Named("supervisor"),
			})
		}
	default:
		a.dial = func(context.Context) (runtime.Runtime, error) { return newNothing(), nil }
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// describeRuntime says in words what the node can and cannot enforce.
func (a *agent) describeRuntime(c runtime.Runtime) string {
	if a.specs.refuse != "" {
		return "none: the process runtime is off (--allow-process turns it on)"
	}
	desc := c.Describe()
	words := append([]string{desc.Mode}, desc.NotEnforced...)
	switch g := a.inv.GPUs; {
	case g != nil && g.Simulated():
		words = append(words, "GPUs simulated: they do not exist")
	case g != nil && (len(g.Devices) == 0 || !desc.HidesDevices):
		words = append(words, "GPUs of others: CUDA_VISIBLE_DEVICES hides them, which a command can change")
	}
	if a.sandboxes != nil {
		words = append(words, "containers")
	}
	if !a.inv.Pinned {
		words = append(words, "cores oversubscribed: not pinned")
	}
	return strings.Join(words, "; ")
}

// describe is the registration of this node.
func (a *agent) describe() *rotav1.RegisterNodeRequest {
	req := &rotav1.RegisterNodeRequest{
		Name: a.cfg.Name, Pool: a.cfg.Pool, Address: a.address, Labels: a.inv.Labels,
		MemoryBytes: a.inv.MemoryBytes, Runtime: a.runtime,
		BandwidthBps: a.cfg.BandwidthBPS, Resizes: a.resizes, Containers: a.sandboxes != nil,
	}
	if a.resizes && a.cfg.ShareAfter > 0 {
		req.ShareAfter = durationpb.New(a.cfg.ShareAfter)
	}
	if a.kv != nil {
		req.CacheBytes = a.cfg.KV.MemoryBytes + a.cfg.KV.DiskBytes
	}
	if g := a.inv.GPUs; g != nil {
		req.Gpus = &rotav1.GpuInventory{Class: g.Class, Count: uint32(g.Count), MemoryBytes: g.MemoryBytes}
	}
	for _, cpus := range a.inv.NUMA {
		node := &rotav1.NumaNode{}
		for _, cpu := range cpus {
			node.Cpus = append(node.Cpus, uint32(cpu))
		}
		req.NumaNodes = append(req.NumaNodes, node)
	}
	return req
}

// run works until the context is done or a part of the agent fails.
func (a *agent) run(ctx context.Context, listener, status net.Listener, first connection) error {
	// The runtime's side outlives the work for the cluster, so that attempts can still be
	// killed and their ends be seen at the very end.
	inner, outer := newGroup(context.WithoutCancel(ctx)), newGroup(ctx)
	inner.within, outer.within = cmp.Or(a.cfg.givesUpAfter, leaveMax), cmp.Or(a.cfg.givesUpAfter, leaveMax)
	// Before the first session says how they are.
	a.disk.look()
	if a.gpus != nil {
		outer.Go(a.gpus.watch)
		a.gpus.untilLooked(ctx, cmp.Or(a.cfg.givesUpAfter, gpuLookMax))
	}
	inner.Go(func(ctx context.Context) error { return a.supervise(ctx, first) })
	inner.Go(func(ctx context.Context) error { return a.drive(ctx, outer) })
	outer.Go(a.disk.watch)
	outer.Go(a.engines.Watch)
	outer.Go(a.homes.keep)
	outer.Go(a.keepSandboxes)
	if a.ahead != nil {
		outer.Go(a.ahead.run)
	}
	outer.Go(a.keepImages)
	outer.Go(func(ctx context.Context) error { return a.serveOutput(ctx, listener) })
	if status != nil {
		outer.Go(func(ctx context.Context) error { return a.serveStatus(ctx, status) })
	}
	if a.kv != nil {
		outer.Go(a.kv.serve)
		if a.kv.files != nil {
			outer.Go(a.kv.files.Serve)
		}
	}
	if a.states != nil {
		outer.Go(a.states.serve)
	}
	if a.cfg.Discover != nil {
		outer.Go(func(ctx context.Context) error { a.servers.discover(ctx, a.cfg.Discover); return ctx.Err() })
	}
	stop := context.AfterFunc(inner.ctx, outer.cancel)
	defer stop()
	err := outer.Wait()
	if errors.Is(err, errStuck) {
		a.log.Error("the agent stops without some part of it", "error", err)
	}
	failed := inner.ctx.Err() != nil
	if a.cfg.KillOnExit && !failed {
		a.killOnExit(inner.ctx)
	}
	inner.cancel()
	defer a.engines.Wait()
	if innerErr := inner.Wait(); failed {
		return innerErr
	}
	return err
}

// killOnExit leaves nothing behind, not even the supervisor.
func (a *agent) killOnExit(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, killOnExitMax)
	defer cancel()
	a.driver.tell(func(p *plan.Plan, _ int64) { p.Quit() })
	if err := a.driver.until(ctx, (*plan.Plan).Dead); err != nil {
		a.log.Error("attempts still run at exit", "error", err)
	}
	var c runtime.Runtime
	if a.driver.read(func(*plan.Plan) { c = a.driver.conn }); c == nil {
		return
	}
	if err := c.Stop(ctx); err != nil {
		a.log.Error("the supervisor did not stop", "error", err)
	}
}
