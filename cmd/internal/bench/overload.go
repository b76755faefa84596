package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
)

// OverloadOptions say how much too much to offer.
type OverloadOptions struct {
	Cluster ClusterOptions
	// Factors of what the cluster takes.
	Factors []float64
	// Duration of each, and of the measurement of what the cluster takes.
	Duration time.Duration
	// Submitters are the clients while it is measured what the cluster takes, Clients those that
	// offer too much. Each has at most one request of Batch actions of Size bytes under way. They
	// share Programs, each of which has one client of package client.
	Submitters, Clients, Programs, Batch, Size int
	// Impatient clients do not wait as refusals ask them to. They are not those of package client.
	Impatient bool
	// Queue is how many actions may be queued.
	Queue int
}

// OverloadStep is what became of one offer. Rates are actions per second.
type OverloadStep struct {
	// Factor of what the cluster takes, 0 if clients wait for each answer.
	Factor float64 `json:"factor"`
	// Wanted is what clients wanted to submit, Tried what they sent, with all that was repeated.
	Wanted float64 `json:"wanted_per_second"`
	Tried  float64 `json:"tried_per_second"`
	// AcceptedRate is what was accepted, Goodput what ended. Until the queue is full, more is accepted.
	AcceptedRate float64 `json:"accepted_per_second"`
	Goodput      float64 `json:"goodput_per_second"`
	// GoodputPercent is that of the best goodput, without overload or at any factor.
	GoodputPercent float64 `json:"goodput_percent"`
	Offered        `json:"requests"`
	// Cores are the CPU seconds that each kind of process used in a second.
	Cores Cores `json:"cores"`
	// PerServerCore is the goodput for each CPU second of all servers. It says what servers lose to
	// refusals also where clients or other work take CPU time from them.
	PerServerCore float64 `json:"goodput_per_server_core"`
	// Health during the step: changes of the term, the fewest nodes up, and the slowest answers to
	// linearizable reads, which were made all the time.
	TermChanges uint64  `json:"term_changes"`
	NodesUpMin  uint64  `json:"nodes_up_min"`
	ReadP99MS   float64 `json:"read_p99_ms"`
}

// Cores are CPU seconds per second of the leader, of both followers, of the process with the
// simulated nodes, and of that with the clients.
type Cores struct {
	Leader    float64 `json:"leader"`
	Followers float64 `json:"followers"`
	Nodes     float64 `json:"nodes"`
	Clients   float64 `json:"clients"`
}

// OverloadResult is what overload does to a cluster.
type OverloadResult struct {
	Nodes int `json:"nodes"`
	// Capacity is what the cluster takes from clients that wait for each answer.
	Capacity OverloadStep   `json:"capacity"`
	Steps    []OverloadStep `json:"steps"`
}

// Overload measures what a cluster with simulated nodes takes, and then has more clients, which
// repeat what is refused, offer it more.
func Overload(ctx context.Context, o OverloadOptions, each func(OverloadStep)) (*OverloadResult, error) {
	o.Cluster.ServerArgs = []string{"--queue-actions-max", strconv.Itoa(o.Queue)}
	h, err := startHeld(ctx, o.Cluster)
	if err != nil {
		return nil, err
	}
	defer h.stop()
	r := &OverloadResult{Nodes: o.Cluster.SimulatedNodes}
	offer := Offer{Addr: h.leader, Clients: o.Submitters, Programs: o.Programs, Batch: o.Batch, Size: o.Size, Duration: o.Duration}
	if r.Capacity, err = h.overload(ctx, offer); err != nil {
		return nil, err
	}
	if r.Capacity.Goodput == 0 {
		return nil, fmt.Errorf("no submission was accepted without overload: %s", r.Capacity.FirstError)
	}
	offer.Clients, offer.Impatient = o.Clients, o.Impatient
	for _, factor := range o.Factors {
		offer.PerSecond = factor * r.Capacity.Goodput
		s, err := h.overload(ctx, offer)
		if err != nil {
			return nil, err
		}
		s.Factor, s.Wanted = factor, offer.PerSecond
		each(s)
		r.Steps = append(r.Steps, s)
	}
	r.compare()
	return r, nil
}

// compare sets what part of the best goodput each is.
func (r *OverloadResult) compare() {
	best := r.Capacity.Goodput
	for _, s := range r.Steps {
		best = max(best, s.Goodput)
	}
	r.Capacity.GoodputPercent = 100 * r.Capacity.Goodput / best
	for i := range r.Steps {
		r.Steps[i].GoodputPercent = 100 * r.Steps[i].Goodput / best
	}
}

// overload has clients make an offer and looks at the cluster meanwhile.
func (h *held) overload(ctx context.Context, offer Offer) (s OverloadStep, err error) {
	binary, err := os.Executable()
	if err != nil {
		return s, err
	}
	watched, stop := context.WithCancel(ctx)
	defer stop()
	health := make(chan error, 1)
	go func() { health <- h.watchHealth(watched, &s) }()
	before, err := h.cpu()
	if err != nil {
		return s, err
	}
	began := time.Now()
	done, clients, err := offer.run(ctx, binary)
	stop()
	if err := errors.Join(err, <-health); err != nil {
		return s, err
	}
	after, err := h.cpu()
	if err != nil {
		return s, err
	}
	wall := time.Since(began).Seconds()
	s.Offered = done
	rate := func(requests int) float64 { return float64(requests*offer.Batch) / offer.Duration.Seconds() }
	s.AcceptedRate, s.Tried = rate(done.Accepted), rate(done.Accepted+done.Refused+done.Failed)
	s.Cores = Cores{
		Leader: (after.Leader - before.Leader) / wall, Followers: (after.Followers - before.Followers) / wall,
		Nodes: (after.Nodes - before.Nodes) / wall, Clients: clients.Seconds() / wall,
	}
	if servers := s.Cores.Leader + s.Cores.Followers; servers > 0 {
		s.PerServerCore = s.Goodput / servers
	}
	return s, nil
}

// cpu is how many CPU seconds the processes have used so far, without clients.
func (h *held) cpu() (c Cores, err error) {
	for _, p := range h.cluster.Servers {
		used, err := cpuSeconds(p)
		if err != nil {
			return c, err
		}
		if p.Addr == h.leader {
			c.Leader += used
		} else {
			c.Followers += used
		}
	}
	var own unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err != nil {
		return c, fmt.Errorf("CPU time of the simulated nodes: %w", err)
	}
	c.Nodes = float64(own.Utime.Nano()+own.Stime.Nano()) / 1e9
	return c, nil
}

// ticksPerSecond is the unit of times in /proc/PID/stat on all that Go supports.
const ticksPerSecond = 100

// cpuSeconds is how much CPU time a process has used.
func cpuSeconds(p *devcluster.Process) (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
	if err != nil {
		return 0, err
	}
	// The name of the program, in parentheses, may have blanks. User and system time are the
	// 12th and 13th field after it.
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", p.Pid(), len(fields))
	}
	ticks := 0.0
	for _, f := range fields[11:13] {
		n, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", p.Pid(), err)
		}
		ticks += n
	}
	return ticks / ticksPerSecond, nil
}

// watchHealth looks at the leader until ctx is done: its term, how many nodes are up, and how long a
// linearizable read takes.
func (h *held) watchHealth(ctx context.Context, s *OverloadStep) error {
	first, err := h.api.Operator.GetStatus(ctx, &rotav1.GetStatusRequest{})
	if err != nil {
		return fmt.Errorf("the cluster does not say how it is: %w", err)
	}
	s.NodesUpMin = first.NodesUp
	var reads []time.Duration
	var ended endings
	measured := time.Now().Add(warmUp)
	for ctx.Err() == nil {
		began := time.Now()
		namespaces, err := h.api.Operator.ListNamespaces(ctx, &rotav1.ListNamespacesRequest{})
		now, e := h.api.Operator.GetStatus(ctx, &rotav1.GetStatusRequest{})
		if err := errors.Join(err, e); err != nil {
			if ctx.Err() != nil {
				break
			}
			return fmt.Errorf("the cluster does not say how it is: %w", err)
		}
		reads = append(reads, time.Since(began))
		if began.After(measured) {
			ended.note(began, namespaces.Namespaces)
		}
		s.NodesUpMin = min(s.NodesUpMin, now.NodesUp)
		s.TermChanges = now.Term - first.Term
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	_, s.ReadP99MS, _ = quantiles(reads)
	s.Goodput = ended.perSecond()
	return nil
}

// endings are how many actions had ended at two times.
type endings struct {
	from, to     time.Time
	before, last uint64
}

func (e *endings) note(at time.Time, namespaces []*rotav1.Namespace) {
	n := uint64(0)
	for _, ns := range namespaces {
		n += ns.Usage.GetEndedActions()
	}
	if e.from.IsZero() {
		e.from, e.before = at, n
	}
	e.to, e.last = at, n
}

func (e *endings) perSecond() float64 {
	if !e.to.After(e.from) {
		return 0
	}
	return float64(e.last-e.before) / e.to.Sub(e.from).Seconds()
}
