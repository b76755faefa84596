package workload

import (
	"context"
	"crypto/tls"
	"sync/atomic"
	"time"

	"rota/jepsen/history"
	"rota/jepsen/workload/witness"
)

// Server is one server as clients reach it.
type Server struct {
	ID   string
	Addr string // of its API, host:port
}

// Env is what the workloads of one run share. All fields are set before the
// first of them runs and stay as they are.
type Env struct {
	Record  *history.Recorder
	Servers []Server
	TLS     *tls.Config // of a client; nil: none
	// Gateways are addresses of gateways, Generators the engines behind them, which serve Policy.
	Gateways   []string
	Generators []Server
	Policy     string
	Nodes      []string // names
	// Pool is that of the agents. HeldPool is one that exists and has no nodes,
	// so that what is submitted to it waits: the pool "default" has none if all
	// agents are in another.
	Pool, HeldPool string
	// Cores and GPUs of a node: no action asks for more.
	Cores   int
	GPUs    int
	Witness *witness.Witness
	// LongPerCent is how much of the work outlasts a lease, 0: 2.
	LongPerCent int
	// Seed decides what is called, together with the order in which answers come.
	Seed uint64
	// CallTimeout is that of each call, 0: 1.5 s.
	CallTimeout time.Duration

	known             known
	clock             logClock
	clients, watchers atomic.Int64
	watched           positions
	// serves: engines were declared, which are to be brought to rest.
	serves atomic.Bool
	// trains: there were rollouts, whose groups are to be given to steps.
	trains atomic.Bool
}

// Workload is one kind of load.
type Workload struct {
	Name  string
	About string // one line
	// Rate is a good number of calls a second. What is answered more slowly is
	// called less often.
	Rate float64
	// Run makes calls at a rate until ctx is done, and returns soon after. An
	// error says why it could not even begin: refusals and lost connections are
	// what is being recorded.
	Run func(ctx context.Context, env *Env, rate float64) error
}

// All returns all workloads.
func All() []Workload {
	return []Workload{
		{"submissions", "submits actions that agents execute, repeats some requests, cancels some", 40, submissions},
		{"library", "submits and waits through the client library, as programs do", 10, library},
		{"held", "submits actions that only wait, and cancels them", 300, held},
		{"reads", "reads actions and lists at every server, linearizably and not", 150, reads},
		{"trajectories", "opens trajectories, runs actions in them and closes them", 20, trajectories},
		{"quotas", "submits calls that contend for limits of an outside, and changes these limits", 15, quotas},
		{"gpus", "submits actions on GPUs, of which some leave models behind", 8, gpus},
		{"engines", "declares engines of models, some of which misbehave, calls them by actions, changes and removes them", 6, engines},
		{"jobs", "submits training jobs, holds their turns, loses some, and operates the jobs meanwhile", 3, jobs},
		{"rollouts", "opens trajectories of rollouts, puts their samples, and takes batches of them while versions are published", 12, rollouts},
		{"rewards", "registers reward functions, reports calls of them, changes and removes them, while replicas come, fail and go", 8, rewards},
		{"agentloop", "runs agent loops that generate through gateways, while a trainer changes the weights of their engines", 120, agentLoop},
		{"drains", "takes nodes out of use and back, and reads them", 10, drains},
		{"watches", "follows all events at every server, and goes on after a loss", 0, watches},
		{"observers", "samples status and state hash of every server", 5, observers},
	}
}
