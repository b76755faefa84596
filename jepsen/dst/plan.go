package dst

import (
	"cmp"
	"fmt"
	"slices"

	"rota/fsm/state"
	"rota/internal/sim"
)

const (
	millisecond int64 = 1_000_000
	second            = 1000 * millisecond
	minute            = 60 * second
	hour              = 60 * minute
)

// Kind is what an event of a plan does.
type Kind string

// Events of the workload.
const (
	Submit    Kind = "submit"
	Gang      Kind = "submit gangs"
	Cancel    Kind = "cancel"
	Open      Kind = "open a trajectory"
	Close     Kind = "close a trajectory"
	Drain     Kind = "drain a node"
	Remove    Kind = "remove a node"
	Namespace Kind = "create a namespace"
	Forget    Kind = "delete a class"
	Activate  Kind = "raise the feature level"
	Upgrade   Kind = "upgrade a server"
	Watch     Kind = "watch"
	Quota     Kind = "change a quota"
	Train     Kind = "train a job"
	ChangeJob Kind = "change a job"
	Group     Kind = "change a node group"
	Read      Kind = "read"
	Engine    Kind = "change an engine"
	Engines   Kind = "report engines"
	Migrate   Kind = "migrate"
	RollOut   Kind = "roll out"
	// A policy is published, or given a batch.
	TrainPolicy Kind = "train a policy"
	Worker      Kind = "change a worker"
	Generate    Kind = "report what was generated"
	Reward      Kind = "change a reward function"
	CallReward  Kind = "report calls of reward functions"
	// GPUs are sick, or out of use, for a while.
	SickGPUs    Kind = "report sick GPUs"
	DisableGPUs Kind = "disable GPUs"
)

// Faults.
const (
	CrashAgent      Kind = "agent crashes"
	CrashSupervisor Kind = "supervisor crashes"
	CrashBoth       Kind = "agent and supervisor crash"
	Reboot          Kind = "machine is reset"
	Replace         Kind = "machine is replaced"
	PauseAgent      Kind = "agent is paused"
	PauseSupervisor Kind = "supervisor is paused"
	Cut             Kind = "node is cut off"
	CutOneWay       Kind = "node is cut off in one direction"
	CutSome         Kind = "node is cut off from some servers"
	Loss            Kind = "messages are lost"
	Delay           Kind = "messages are late"
	Duplicates      Kind = "messages arrive twice"
	Depose          Kind = "leader is deposed and does not know"
	Leaderless      Kind = "no leader"
	CrashServer     Kind = "server crashes"
	EraseServer     Kind = "server loses its disk"
	PauseServer     Kind = "server is paused"
	Stall           Kind = "replica lags"
	Save            Kind = "server takes a snapshot"
	SlowCommit      Kind = "commits are slow"
	Jump            Kind = "log time jumps forward"
	Panic           Kind = "decision panics"
	RollBack        Kind = "server is back at an older build"
	ActivateEarly   Kind = "feature level that not all know"
	KillTrainer     Kind = "trainers are killed"
	CutTrainer      Kind = "trainers are cut off"
	ReturnLate      Kind = "changed machine is back as its node is given up"
)

// Event is one line of a plan.
type Event struct {
	At   int64 `json:"at_ns"` // virtual time
	Kind Kind  `json:"kind"`
	// On is the number of a client, node or server, whichever Kind is about.
	On int `json:"on"`
	// For is how long it lasts, in nanoseconds; 0: it does not last.
	For int64 `json:"for_ns,omitempty"`
	// Level is the feature level that it is about.
	Level state.Level `json:"level,omitempty"`
	// Luck decides the details, so that an event means the same in every subset of
	// its plan.
	Luck uint64 `json:"luck,omitempty"`
}

func (e Event) String() string {
	s := fmt.Sprintf("%s  %s %d", clock(e.At), e.Kind, e.On)
	if e.For > 0 {
		s += fmt.Sprintf(" for %.1f s", float64(e.For)/1e9)
	}
	if e.Level > 0 {
		s += fmt.Sprintf(" to feature level %d", e.Level)
	}
	return s
}

// clock formats a virtual time.
func clock(ns int64) string {
	return fmt.Sprintf("%02d:%02d:%06.3f", ns/hour, ns/minute%60, float64(ns%minute)/1e9)
}

// Fault reports whether the event is one.
func (e Event) Fault() bool {
	return slices.ContainsFunc(faults, func(f fault) bool { return f.kind == e.Kind })
}

// fault says how often something goes wrong, and how long it lasts.
type fault struct {
	kind     Kind
	weight   int64
	min, max int64
}

var faults = []fault{
	{CrashAgent, 8, 100 * millisecond, 60 * second},
	{CrashSupervisor, 6, 0, 0},
	{CrashBoth, 4, 50 * millisecond, 1200 * millisecond},
	{Reboot, 4, 2 * second, 90 * second},
	{Replace, 3, second, 40 * second},
	{PauseAgent, 6, second, 60 * second},
	{PauseSupervisor, 5, second, 40 * second},
	{Cut, 9, 2 * second, 60 * second},
	{CutOneWay, 7, 2 * second, 60 * second},
	{CutSome, 5, 2 * second, 90 * second},
	{Loss, 4, 10 * second, 90 * second},
	{Delay, 4, 10 * second, 60 * second},
	{Duplicates, 6, 20 * second, 120 * second},
	{Depose, 14, 10 * millisecond, 30 * second},
	{Leaderless, 4, 200 * millisecond, 20 * second},
	{CrashServer, 8, 100 * millisecond, 60 * second},
	{EraseServer, 2, 100 * millisecond, 30 * second},
	{PauseServer, 7, 300 * millisecond, 60 * second},
	{Stall, 5, 1 * second, 180 * second},
	{Save, 6, 0, 0},
	{SlowCommit, 3, 5 * second, 60 * second},
	{Jump, 3, 0, 0},
	{Panic, 2, 2 * second, 20 * second},
	{RollBack, 3, second, 120 * second},
	{ActivateEarly, 2, 0, 0},
	{KillTrainer, 6, second, 60 * second},
	{CutTrainer, 6, 2 * second, 60 * second},
	{ReturnLate, 0, 0, 0}, // see lateReturns
}

// Density of a plan per simulated hour. The bounds below which a run is void are
// in run.go.
const (
	burstsPerHour = 100
	faultsPerHour = 45
)

// Plan is what happens in a run.
type Plan struct {
	Seed   uint64  `json:"seed"`
	Length int64   `json:"length_ns"` // of the phase with faults
	Events []Event `json:"events"`
	// Partitions: nodes are to be cut off for longer than their leases.
	Partitions bool `json:"partitions,omitempty"`
}

// newPlan draws the plan of a seed.
func newPlan(c config, length int64) Plan {
	p := Plan{Seed: c.seed, Length: length}
	d := sim.Draws(c.seed).Of(luckPlan, 0)
	p.bursts(&d, c)
	p.others(&d, c)
	p.gangs(c)
	p.quotaChanges(c)
	p.engines(c)
	p.migrations(c)
	p.rollouts(c)
	p.workers(c)
	p.rewards(c)
	p.gpuHealth(c)
	p.trainings(c)
	p.faults(&d, c)
	p.upgrades(c)
	p.lateReturns(c)
	p.reads(c)
	slices.SortStableFunc(p.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return p
}

// bursts are submissions that come close together, so that queues form.
func (p *Plan) bursts(d *sim.Draw, c config) {
	for range p.Length * burstsPerHour / hour {
		at := d.N(p.Length)
		for range d.Between(4, 12) {
			p.add(Event{At: at, Kind: Submit, On: int(d.N(clients)), Luck: d.Uint64()})
			at += d.Skewed(0, 2*second)
		}
	}
}

func (p *Plan) others(d *sim.Draw, c config) {
	for _, k := range []struct {
		kind    Kind
		perHour int64
		on      int
		max     int64
	}{
		{Open, 40, clients, 0}, {Close, 30, clients, 0}, {Cancel, 40, clients, 0},
		{Drain, 8, c.nodes, 90 * second}, {Remove, 6, c.nodes, 0}, {Namespace, 3, clients, 0}, {Forget, 20, clients, 0},
		{Activate, 3, clients, 0}, {Watch, 120, watchers, 0},
	} {
		for range max(1, p.Length*k.perHour/hour) {
			e := Event{At: d.N(p.Length), Kind: k.kind, On: int(d.N(int64(k.on))), Luck: d.Uint64()}
			if k.max > 0 {
				e.For = d.Skewed(second, k.max)
			}
			p.add(e)
		}
	}
}

// upgrades are rolling upgrades through all feature levels, each of
// which is activated when the servers should all know it, or by some who cannot
// wait when all but one do.
func (p *Plan) upgrades(c config) {
	d := sim.Draws(c.seed).Of(luckPlan, 2)
	step := p.Length / int64(levelMax-state.LevelMax+2) / int64(c.servers)
	at := d.N(p.Length / 8)
	for level := state.LevelMax + 1; level <= levelMax; level++ {
		first := int(d.N(int64(c.servers)))
		for i := range c.servers {
			p.add(Event{At: at, Kind: Upgrade, On: (first + i) % c.servers, Level: level, For: d.Skewed(100*millisecond, 20*second)})
			at += d.Between(step/2, step*3/2)
			if i == c.servers-2 && d.Chance(400_000) {
				p.add(Event{At: at - step/4, Kind: ActivateEarly})
			}
		}
		p.add(Event{At: at, Kind: Activate, On: int(d.N(clients)), Level: level})
		at += d.N(step)
	}
}

// lateReturnsPerHour is how often a changed machine is back just as its node is given up.
const lateReturnsPerHour = 2

func (p *Plan) lateReturns(c config) {
	d := sim.Draws(c.seed).Of(luckPlan, 3)
	for range max(1, p.Length*lateReturnsPerHour/hour) {
		p.add(Event{At: d.N(p.Length), Kind: ReturnLate, On: int(d.N(int64(c.nodes))), Luck: d.Uint64()})
	}
}

func (p *Plan) faults(d *sim.Draw, c config) {
	total := int64(0)
	for _, f := range faults {
		total += f.weight
	}
	for range max(1, p.Length*faultsPerHour/hour) {
		n := d.N(total)
		for _, f := range faults {
			if n -= f.weight; n < 0 {
				p.addFault(d, c, f, d.N(p.Length))
				break
			}
		}
	}
}

func (p *Plan) addFault(d *sim.Draw, c config, f fault, at int64) {
	e := Event{At: at, Kind: f.kind, For: d.Skewed(f.min, f.max), Luck: d.Uint64()}
	switch f.kind {
	case CrashServer, EraseServer, PauseServer, Stall, Save, RollBack:
		e.On = int(d.N(int64(c.servers)))
	default:
		e.On = int(d.N(int64(c.nodes)))
	}
	p.add(e)
}

func (p *Plan) add(e Event) {
	if e.At < p.Length {
		p.Events = append(p.Events, e)
	}
}
