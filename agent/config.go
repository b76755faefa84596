package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/pki"
	"rota/internal/telemetry"
	"rota/internal/telemetry/tracing"

	"rota/agent/inventory"
	"rota/agent/runtime"
)

// Defaults of Config.
const (
	DefaultListen  = "127.0.0.1:7410"
	DefaultMetrics = "127.0.0.1:7412"
	DefaultPool    = "default"
	// DefaultEnginesAsleepMax is how many engines of models sleep at once on a node.
	DefaultEnginesAsleepMax = 4
)

// ErrConfig means that the agent cannot be started as asked.
var ErrConfig = errors.New("invalid agent configuration")

// Process configures the process runtime.
type Process struct {
	// Enabled allows commands of actions to be run as processes of this machine.
	// Without it they end with START_FAILED.
	Enabled bool
	// SuperviseOptions says as whom and how; Dir is set by the agent.
	runtime.SuperviseOptions
	// Executable is the binary whose "supervise" command is the supervisor, and
	// whose "http-call" command makes HTTP calls; empty: this one.
	Executable string
}

// Config is everything an agent is told when it starts.
type Config struct {
	// Name of the node, unique in the cluster; the host name if empty.
	Name string
	// Pool the node belongs to; "default" if empty.
	Pool string
	// Dir holds journal, supervisor and output. One agent per directory.
	Dir string
	// Servers are addresses (host:port) of servers that are known beforehand.
	Servers []string
	// Discover returns addresses that were found meanwhile. It is asked every
	// two seconds and may be nil.
	Discover func(context.Context) []string
	// Keyring changes the gossip keys of this process for servers; nil: it does not gossip.
	Keyring rotav1connect.KeyringServiceHandler
	// TLS makes every connection mutually authenticated. Without it the agent
	// listens on loopback only.
	TLS pki.Files
	// Listen is where servers read output; "127.0.0.1:7410" if empty. Port 0
	// takes a free one.
	Listen string
	// Metrics is where Prometheus reads metrics, and operators ask for health, profiles and the
	// log; empty: nowhere.
	Metrics string
	// Advertise is the address that is told to servers; that of Listen if empty.
	Advertise string
	// Labels are added to those of the machine and win over them.
	Labels map[string]string
	// Cores declares fewer cores than the machine has; 0 means all. With
	// Oversubscribe it may be more, and nothing is pinned then.
	Cores         int
	Oversubscribe bool
	// MemoryBytes declares so much memory; 0 means the machine's less a reserve.
	MemoryBytes uint64
	// GPUs says which GPUs are declared: inventory.GPUsAuto if empty. SimulatedGPUs
	// declares some that do not exist.
	GPUs          string
	SimulatedGPUs *inventory.GPUs
	// SimulatedGPUHealth is a file that says which simulated GPUs are sick, a line for each:
	// its number and a reason. It is watched; while it is not there, all are well.
	SimulatedGPUHealth string
	// ShareAfter is the age from which actions may share cores when others wait for cores, on a node
	// that can change the cores of what runs; 0: they do not.
	ShareAfter time.Duration
	// BandwidthBPS declares so much bandwidth of the network, in bits a second.
	BandwidthBPS uint64
	// DiskFloor is how many bytes of Dir's file system have to be free for the node to
	// take new work, and 0 turns that off. nil: 1 GiB, or a twentieth of a smaller one.
	DiskFloor *uint64
	Process   Process
	// Containers says how sandboxes are opened.
	Containers Containers
	// KV is the cache of the node for KV caches of engines.
	KV KV
	// State is the state manager of the node, for weights and optimizers of workers.
	State State
	// EnginesAsleepMax bounds how many engines of models sleep at once; nil: the default.
	// EnginesAsleepBytes is the memory of the machine that is kept for them, and not offered to
	// actions; 0: they keep up to half of what is declared, which actions are offered, too.
	EnginesAsleepMax   *int
	EnginesAsleepBytes uint64
	// KillOnExit ends everything that runs when the agent is told to stop, and
	// the supervisor too. Otherwise attempts go on and are found again by the
	// next agent, if it comes before the lease ends.
	KillOnExit bool
	Logger     hclog.Logger
	// Recent remembers the newest lines of the log; nil: none. Settings are the flags that the
	// agent runs with, for operators. Version is that of the program.
	Recent   *telemetry.Recent
	Settings map[string]string
	// Tracer makes spans; nil: none.
	Tracer  *tracing.Tracer
	Version string

	// dial replaces the process runtime in tests.
	dial func(context.Context) (runtime.Runtime, error)
	// bootID replaces the machine's in tests.
	bootID string
	// gpuProbe replaces the driver of GPUs in tests.
	gpuProbe inventory.Probe
	// givesUpAfter replaces leaveMax and gpuLookMax in tests.
	givesUpAfter time.Duration
	// readRoom replaces the file system in tests.
	readRoom func(dir string) (room, error)
	// pull replaces the transfer of migrations in tests, and pullRetryFor pullRetryFor.
	pull         pull
	pullRetryFor time.Duration
	// watchEnginesEvery replaces the pause between two probes of an engine in tests.
	watchEnginesEvery time.Duration
}

var nameRE = regexp.MustCompile(`^[a-z0-9.-]+$`)

const nameBytesMax = 128

// withDefaults checks the configuration and fills in what it leaves open.
func (c Config) withDefaults() (Config, error) {
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("%w: no name given, and no host name: %w", ErrConfig, err)
		}
		c.Name = strings.ToLower(host)
	}
	if len(c.Name) > nameBytesMax || !nameRE.MatchString(c.Name) {
		return c, fmt.Errorf("%w: node name %q is not 1 to 128 of a-z, 0-9, '-', '.'", ErrConfig, c.Name)
	}
	if c.Pool == "" {
		c.Pool = DefaultPool
	}
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if c.Dir == "" {
		return c, fmt.Errorf("%w: no data directory", ErrConfig)
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, fmt.Errorf("%w: data directory: %w", ErrConfig, err)
	}
	c.Dir = dir
	if len(c.Servers) == 0 && c.Discover == nil {
		return c, fmt.Errorf("%w: no server address and no gossip peer; give one of them", ErrConfig)
	}
	for _, addr := range c.Servers {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return c, fmt.Errorf("%w: server address %q is not host:port", ErrConfig, addr)
		}
	}
	if c.ShareAfter < 0 {
		return c, fmt.Errorf("%w: actions cannot share cores from the age of %v on; give a longer one, or 0: they never do", ErrConfig, c.ShareAfter)
	}
	if c.SimulatedGPUHealth != "" && c.SimulatedGPUs == nil {
		return c, fmt.Errorf("%w: a file says which simulated GPUs are sick, and none are simulated; declare them with --simulated-gpus", ErrConfig)
	}
	if err := c.Containers.check(); err != nil {
		return c, err
	}
	c.Process.Dir = filepath.Join(c.Dir, "runtime")
	if c.KV, err = c.KV.withDefaults(); err != nil {
		return c, err
	}
	c.State, err = c.State.withDefaults(c.Dir)
	return c, err
}

func (c Config) inventory() (*inventory.Inventory, error) {
	return inventory.Read(inventory.Options{
		Cores: c.Cores, Oversubscribe: c.Oversubscribe, MemoryBytes: c.MemoryBytes, Labels: c.Labels,
		GPUs: c.GPUs, SimulatedGPUs: c.SimulatedGPUs,
	})
}
