package dst

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Campaign is many seeds.
type Campaign struct {
	Options
	From, Seeds uint64
	// Parallel is how many seeds run at the same time.
	Parallel int
	// UntilViolation begins no seed any more once one has failed.
	UntilViolation bool
	// Each is called with every outcome, one at a time, in no order.
	Each func(Outcome)
}

// Summary is what a campaign comes to.
type Summary struct {
	Seeds          int     `json:"seeds"`
	SimulatedHours float64 `json:"simulated_hours"`
	// Speed is simulated seconds per second of one core.
	Speed   float64 `json:"speed"`
	Actions int     `json:"actions"`
	Faults  int     `json:"faults"`
	// Turns that held a node group, as their holders saw it.
	Turns      int `json:"turns"`
	Violations int `json:"violations"`
	// Partitions of a node that outlasted its lease, and how many of them the
	// leader changed in.
	Partitions    int `json:"partitions"`
	PartitionsLed int `json:"partitions_led"`
	// Checker is what noticed the first violation that was seen, and Evidence what
	// it said.
	Checker  string `json:"checker,omitempty"`
	Evidence string `json:"evidence,omitempty"`

	// GapActions started on members of a group between its turns; Overruns of them still ran when a
	// reservation began.
	GapActions int `json:"gap_actions"`
	Overruns   int `json:"overruns"`

	// Totals that only the text shows.
	Executions, Resizes, Frozen, Sharing, Entries, Expiries, Elections, Upgrades, Stops, Late                        int `json:"-"`
	Replicas, ReplicasReady, ReplicasFailed                                                                          int `json:"-"`
	Gangs, GangsEnded, Jobs, TurnsLost, Hooks, Transfers, SharedTurns, Overtaken, Reads, Batches, Samples, Generated int `json:"-"`

	Happened map[Kind]int `json:"-"`
	CPU      float64      `json:"-"` // seconds

	// Planned are the faults of all plans, and Partitioned says that nodes were to lose their
	// leases in them.
	Planned     map[Kind]int `json:"-"`
	Partitioned bool         `json:"-"`
}

// Run simulates the seeds until all are done or ctx is.
func (c Campaign) Run(ctx context.Context) Summary {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sum := Summary{Happened: map[Kind]int{}, Planned: map[Kind]int{}}
	began := cpuTime()
	seeds := make(chan uint64)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range max(1, c.Parallel) {
		workers.Go(func() {
			for seed := range seeds {
				out := Run(seed, c.Options)
				mu.Lock()
				sum.add(out)
				if c.UntilViolation && out.Violation != nil {
					stop()
				}
				if c.Each != nil {
					c.Each(out)
				}
				mu.Unlock()
			}
		})
	}
	for seed := c.From; seed < c.From+c.Seeds && ctx.Err() == nil; seed++ {
		select {
		case seeds <- seed:
		case <-ctx.Done():
		}
	}
	close(seeds)
	workers.Wait()
	sum.CPU = (cpuTime() - began).Seconds()
	sum.Speed = sum.SimulatedHours * 3600 / max(sum.CPU, 1e-9)
	return sum
}

func (s *Summary) add(o Outcome) {
	s.Seeds++
	s.SimulatedHours += o.Simulated.Hours()
	s.Actions += o.Actions
	s.Faults += o.Faults
	s.Executions += o.Executions
	s.Resizes += o.Resizes
	s.Frozen += o.Frozen
	s.Sharing += o.Sharing
	s.Entries += o.Entries
	s.Expiries += o.Expiries
	s.Elections += o.Elections
	s.Overtaken += o.Overtaken
	s.Reads += o.Reads
	s.Partitions += o.Partitions
	s.PartitionsLed += o.PartitionsLed
	s.Upgrades += o.Upgrades
	s.Late += o.Late
	s.Gangs += o.Gangs
	s.GangsEnded += o.GangsEnded
	s.Replicas += o.Replicas
	s.ReplicasReady += o.ReplicasReady
	s.ReplicasFailed += o.ReplicasFailed
	s.Jobs += o.Jobs
	s.Turns += o.Turns
	s.TurnsLost += o.TurnsLost
	s.Hooks += o.Hooks
	s.Transfers += o.Transfers
	s.Batches += o.Batches
	s.Samples += o.Samples
	s.Generated += o.Generated
	s.SharedTurns += o.SharedTurns
	s.GapActions += o.GapActions
	s.Overruns += o.Overruns
	s.Stops += o.Stops
	for kind, n := range o.Happened {
		s.Happened[kind] += n
	}
	for _, e := range o.Plan.Events {
		if e.Fault() {
			s.Planned[e.Kind]++
		}
	}
	s.Partitioned = s.Partitioned || o.Plan.Partitions
	if o.Violation == nil {
		return
	}
	if s.Violations++; s.Violations == 1 {
		s.Checker = o.Violation.Checker
		s.Evidence, _, _ = strings.Cut(o.Violation.What, "\n")
	}
}

// thoroughHours is the length from which on a campaign has each fault of its plans.
const thoroughHours = 50

// Void says why a campaign without violations proves nothing all the same, empty
// if it does prove something.
func (s Summary) Void() string {
	if s.Seeds == 0 {
		return "no seed was simulated"
	}
	if s.Partitioned && s.Partitions == 0 {
		return "no partition outlasted the lease of its node"
	}
	if s.SimulatedHours >= thoroughHours {
		for _, f := range faults {
			if s.Planned[f.kind] > 0 && s.Happened[f.kind] == 0 {
				return fmt.Sprintf("in %.0f simulated hours it never happened that %s", s.SimulatedHours, f.kind)
			}
		}
	}
	return tooThin(s.SimulatedHours, s.Actions, s.Faults, s.Turns)
}

// cpuTime is what this process has used of all cores.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
