package workload

import (
	"fmt"
	"hash/fnv"

	"rota/internal/sim"
)

// Trajectory is one rollout: turns one after the other. It ends with its last
// action.
type Trajectory struct {
	Task string
	// Step is the RL step that it belongs to; Start is when it begins, in
	// nanoseconds after that step does.
	Step  int
	Start int64
	// Number tells it apart within its step, Group is what it shares a prompt
	// with.
	Number, Group int
	// Memory is held from the first action to the end, in bytes.
	Memory int64
	Turns  []Turn
	// After is how long it is held after its last action, in nanoseconds.
	After int64
	// Alone: it stands for a single action that belongs to no trajectory.
	Alone bool
	// OfStep: the last trajectory of its step is to end soon, not the mean action.
	OfStep bool
}

// Turn is one round of a trajectory: the language model thinks for Think
// nanoseconds, then the action is submitted.
type Turn struct {
	Think  int64
	Action Action
}

// Kind says what an action is for.
type Kind uint8

// The kinds of actions.
const (
	Tool Kind = iota
	Reward
)

// Action is one use of external resources.
type Action struct {
	// Key identifies the action in all its workload's draws.
	Key   Key
	Kind  Kind
	Class string
	// Cost is the vector of what it needs while it runs; the first entry is the
	// key resource. It is shared among actions and must not be changed.
	Cost []Cost
	// Single is what it really takes with one unit, Profiled what is known of that
	// before; 0 if nothing is.
	Single, Profiled int64
	// Size is how large it is, in a unit of its class; 0 if that is not known.
	Size int64
	// Curve says what more units are worth. That of an action which is not elastic
	// says what its fixed number of units makes of Single.
	Curve Curve
	// Service is the model that must be resident; empty if none.
	Service string
	// Fixed: it keeps the cores that it is started with.
	Fixed bool
	// Dispatch is from its grant to its start, in nanoseconds; 0: as of any action.
	Dispatch int64
}

// Cost is the amount of one resource: a range, and the allowed amounts in it if
// these are not all.
type Cost struct {
	Resource string
	Min, Max int64
	Set      []int64
}

// Elastic says whether the action may get different amounts.
func (a *Action) Elastic() bool { return a.Cost[0].Min < a.Cost[0].Max }

// Duration returns what the action really takes with units of its key resource.
func (a *Action) Duration(units int64) int64 { return a.Curve.Duration(a.Single, units) }

// Widest returns the largest allowed amount of the key resource that is not
// above limit, or the least one.
func (a *Action) Widest(limit int64) int64 {
	c := &a.Cost[0]
	if c.Set == nil {
		return max(c.Min, min(c.Max, limit))
	}
	best := c.Set[0]
	for _, n := range c.Set {
		if n <= limit {
			best = n
		}
	}
	return best
}

// Key is a task's number, a step, a trajectory and a turn.
type Key struct {
	Task int
	At   int64
}

func key(task, step, number, turn int) Key {
	return Key{task, int64(step)<<36 | int64(number)<<12 | int64(turn)}
}

// Generator makes the trajectories of a workload. What it draws goes by the
// name of what is drawn, the step, the trajectory and the turn, so that each
// can be made alone, and other parameters leave the luck of all others as it
// was. It may be used by many goroutines.
type Generator struct {
	params *Params
	draws  sim.Draws
	tasks  []task
}

type task struct {
	*Task
	tools, rewards choice
	// first is the number of trajectories of the tasks before.
	first int
	names struct{ start, memory, turns, think, tool, reward uint64 }
}

// choice is classes with running sums of their weights.
type choice struct {
	classes []class
	total   int64
}

type class struct {
	spec  *Spec
	upTo  int64
	costs []Cost
	ratio []Ratio
	// variants is nil if there are none.
	variants []variant
	weight   int64
	names    struct{ duration, noise, size, serial, variant, try uint64 }
}

type variant struct {
	Variant
	class string
	upTo  int64
}

// New returns the generator of a workload for a seed. The parameters must not
// be changed afterwards.
func New(p *Params, seed uint64) (*Generator, error) {
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrParams, err)
	}
	g := &Generator{params: p, draws: sim.Draws(seed)}
	count := 0
	for i := range p.Tasks {
		t := task{Task: &p.Tasks[i], first: count}
		n := &t.names
		n.start, n.memory, n.turns = named(t.Name, "start"), named(t.Name, "memory"), named(t.Name, "turns")
		n.think, n.tool, n.reward = named(t.Name, "think"), named(t.Name, "tool"), named(t.Name, "reward")
		t.tools, t.rewards = choose(t.Name, t.Tools), choose(t.Name, t.Rewards)
		g.tasks = append(g.tasks, t)
		count += int(t.Batch.Value * t.Steps.Value)
	}
	return g, nil
}

// named is the name of draws: a task, a class and what of it.
func named(parts ...string) uint64 {
	h := fnv.New64a()
	for _, part := range parts {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return h.Sum64()
}

func choose(task string, specs []Spec) choice {
	var c choice
	for i := range specs {
		s := &specs[i]
		c.total += int64(s.Weight.Value)
		u := s.Units.Value
		k := class{spec: s, upTo: c.total, costs: []Cost{{s.Resource, u.Min, u.Max, u.Set}}}
		if s.Also != nil {
			for _, n := range s.Also.Value {
				k.costs = append(k.costs, Cost{Resource: n.Resource, Min: n.Units, Max: n.Units})
			}
		}
		if s.RatioPPM != nil {
			for _, r := range s.RatioPPM.Value {
				k.ratio = append(k.ratio, Ratio{r[0], r[1]})
			}
		}
		if s.Variants != nil {
			for _, v := range s.Variants.Value {
				k.weight += v.Weight
				k.variants = append(k.variants, variant{v, s.Class + ":" + v.Name, k.weight})
			}
		}
		n := &k.names
		n.duration, n.noise, n.serial = named(task, s.Class, "duration"), named(task, s.Class, "noise"), named(task, s.Class, "serial")
		n.size, n.variant, n.try = named(task, s.Class, "size"), named(task, s.Class, "variant"), named(task, s.Class, "try")
		c.classes = append(c.classes, k)
	}
	return c
}

// pick returns the class for a draw.
func (c *choice) pick(d sim.Draw) *class {
	at := d.N(c.total)
	for i := range c.classes {
		if at < c.classes[i].upTo {
			return &c.classes[i]
		}
	}
	return &c.classes[len(c.classes)-1]
}

// Params returns the parameters of the workload.
func (g *Generator) Params() *Params { return g.params }

// Len returns the number of trajectories, those of all tasks and steps.
func (g *Generator) Len() int {
	last := &g.tasks[len(g.tasks)-1]
	return last.first + int(last.Batch.Value*last.Steps.Value)
}

// Trajectory returns one of Len trajectories: task after task, step after step.
func (g *Generator) Trajectory(i int) Trajectory {
	var t Trajectory
	g.Fill(&t, i)
	return t
}

// Fill is Trajectory that reuses the memory of t.
func (g *Generator) Fill(t *Trajectory, i int) {
	n := len(g.tasks) - 1
	for g.tasks[n].first > i {
		n--
	}
	k := &g.tasks[n]
	batch := int(k.Batch.Value)
	step, number := (i-k.first)/batch, (i-k.first)%batch
	g.begin(t, n, step, number)

	reward, scale := g.reward(n, step, number)
	turns := int(g.draw(k.names.turns, key(n, step, number, 0), k.Turns.Value))
	for turn := range turns {
		at := key(n, step, number, turn)
		picked := k.tools.pick(g.draws.Of(k.names.tool, at.At))
		t.Turns = append(t.Turns, Turn{g.think(k, at, scale), g.action(picked, at, at, Tool)})
	}
	if len(k.Rewards) > 0 {
		at := key(n, step, number, turns)
		reward.Key = at
		t.Turns = append(t.Turns, Turn{g.think(k, at, scale), reward})
	}
}

// begin sets what a trajectory has but its turns.
func (g *Generator) begin(t *Trajectory, n, step, number int) {
	k, at := &g.tasks[n], key(n, step, number, 0)
	*t = Trajectory{
		Task: k.Name, Step: step, Number: number, Group: number / int(k.Group.Value),
		Start:  g.draw(k.names.start, at, k.Start.Value),
		Memory: g.draw(k.names.memory, at, k.Memory.Value),
		Turns:  t.Turns[:0],
	}
}

// reward returns the last action of a trajectory, which its group has in common
// but for noise, and how its model scales thinking.
func (g *Generator) reward(n, step, number int) (Action, int64) {
	k := &g.tasks[n]
	if len(k.Rewards) == 0 {
		return Action{}, million
	}
	group := number - number%int(k.Group.Value)
	shared, own := key(n, step, group, 0), key(n, step, number, 0)
	picked := k.rewards.pick(g.draws.Of(k.names.reward, shared.At))
	scale := int64(million)
	if v := g.variant(picked, shared); v != nil {
		scale = v.ThinkPPM
	}
	return g.action(picked, shared, own, Reward), scale
}

func (g *Generator) variant(c *class, at Key) *variant {
	if c.variants == nil {
		return nil
	}
	d := g.draws.Of(c.names.variant, at.At)
	x := d.N(c.weight)
	for i := range c.variants {
		if x < c.variants[i].upTo {
			return &c.variants[i]
		}
	}
	return nil
}

// action draws an action of a class: what its group shares from one key, what
// is its own from another.
func (g *Generator) action(c *class, shared, own Key, kind Kind) Action {
	s := c.spec
	a := Action{Key: own, Kind: kind, Class: s.Class, Cost: c.costs, Service: s.Service, Curve: Curve{Ratio: c.ratio}}
	a.Single = max(1, g.draw(c.names.duration, shared, s.Duration.Value))
	if v := g.variant(c, shared); v != nil {
		a.Class, a.Service = v.class, v.Name
		a.Single = max(1, mulDiv(a.Single, v.DurationPPM, million))
	}
	if s.SerialPPM != nil {
		a.Curve.SerialPPM = g.draw(c.names.serial, shared, s.SerialPPM.Value)
	}
	if s.Profiled != nil && s.Profiled.Value {
		a.Profiled = a.Single
	}
	if s.Size != nil {
		a.Size = max(1, mulDiv(a.Single/1_000_000, g.draw(c.names.size, shared, s.Size.Value), million))
	}
	if s.Noise != nil {
		a.Single = max(1, mulDiv(a.Single, g.draw(c.names.noise, own, s.Noise.Value), million))
	}
	return a
}

func (g *Generator) think(k *task, at Key, scale int64) int64 {
	d := g.draw(k.names.think, at, k.Think.Value)
	return mulDiv(mulDiv(d, int64(k.ThinkPPM.Value), million), scale, million)
}

func (g *Generator) draw(name uint64, at Key, from Dist) int64 {
	d := g.draws.Of(name, at.At)
	return from.At(d.Uint64())
}

// Try is the luck of one attempt at a call of an API.
type Try struct {
	// Latency is what the call takes if the provider answers it.
	Latency int64
	// Luck is below a provider's ErrorPPM if the call fails within the limits, and
	// Overrun below its OverrunErrorPPM if it is refused beyond them, after
	// Refusal; otherwise it hangs.
	Luck, Overrun int64
	Refusal       int64
}

// Try returns the luck of an action's attempt, counted from 0. The latency of
// the first is the action's own duration.
func (g *Generator) Try(a *Action, attempt int) Try {
	t := &g.tasks[a.Key.Task]
	for i := range t.tools.classes {
		c := &t.tools.classes[i]
		if c.spec.Class != a.Class {
			continue
		}
		d := g.draws.Of(c.names.try+uint64(attempt), a.Key.At)
		try := Try{Latency: a.Single, Luck: d.N(million), Overrun: d.N(million)}
		if p := g.params.provider(a); p != nil {
			try.Refusal = p.OverrunLatency.Value.At(d.Uint64())
		}
		if attempt > 0 {
			try.Latency = max(1, c.spec.Duration.Value.At(d.Uint64()))
		}
		return try
	}
	return Try{Latency: a.Single}
}

// provider is that of the action's key resource.
func (p *Params) provider(a *Action) *Provider {
	const prefix = "quota:"
	if name := a.Cost[0].Resource; len(name) > len(prefix) && name[:len(prefix)] == prefix {
		return p.Provider(name[len(prefix):])
	}
	return nil
}
