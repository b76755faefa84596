package past

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"rota/fsm/state"
	"rota/internal/sim/evaluate"
	"rota/internal/sim/workload"
)

// ErrNothing: what was read has nothing that can be replayed.
var ErrNothing = errors.New("nothing to replay")

// What rota knows of how long actions take; empty: what it knew.
const (
	KnownProfiles = "profiles" // clients say it exactly
	KnownSizes    = "sizes"    // classes learn it, by the sizes that clients said
	KnownClasses  = "classes"  // classes learn it
	KnownNothing  = "nothing"
)

// Options say what is different in a replay. The zero value is the cluster as it was.
type Options struct {
	Pool   string           // empty: the one with the most actions
	Nodes  int              // 0: as many as there were
	Cores  int              // of each node; 0: as many as it had
	Quotas map[string]int64 // limits of each key, by the names of quotas
	Known  string
}

// builder makes a workload of a past.
type builder struct {
	past    *Past
	pool    *state.Pool
	known   string
	learned map[state.ClassID]int64
	curves  struct{ client, learned, assumed int }
	// Counts of what the user is told.
	omitted                map[string]int
	unmeasured, beside     int
	again, begunBefore     int
	actions                []*action // that are replayed, by submission
	rollouts               []workload.Trajectory
	overheads              []int64
	observed               []evaluate.Observed
	trajectories, notEnded int
}

// build makes a workload of what can be replayed.
func (p *Past) build(o *Options) (*builder, *evaluate.Input, error) {
	b := &builder{past: p, known: o.Known, learned: make(map[state.ClassID]int64), omitted: make(map[string]int)}
	if err := b.choosePool(o.Pool); err != nil {
		return nil, nil, err
	}
	nodes, err := b.nodes(o)
	if err != nil {
		return nil, nil, err
	}
	b.chooseActions()
	if len(b.actions) == 0 {
		return nil, nil, fmt.Errorf("%w: no action of pool %q ended by itself on cores", ErrNothing, b.pool.Name)
	}
	if now, first := p.last.Meta().Now, b.actions[0].SubmittedAt; first < 0 || now-first > spanNSMax {
		return nil, nil, fmt.Errorf("the log says that %d ns passed since its first action, which is more than 10 years: it is damaged", now-first)
	}
	if err := b.fits(nodes); err != nil {
		return nil, nil, err
	}
	b.makeRollouts()
	params, err := b.params(o, nodes)
	if err != nil {
		return nil, nil, err
	}
	slices.Sort(b.overheads)
	// Actions have their own, which also has what resizes cost them. Cores are taken away
	// before anything can start on them.
	latency := evaluate.Latency{Dispatch: b.overheads[0]}
	in, err := evaluate.Given(params, b.rollouts, latency, o.Known == KnownNothing)
	return b, in, err
}

// choosePool finds the pool that is replayed.
func (b *builder) choosePool(name string) error {
	if name != "" {
		if b.pool = b.past.last.PoolByName(name); b.pool == nil {
			return fmt.Errorf("%w: there is no pool %q", workload.ErrParams, name)
		}
		return nil
	}
	count := make(map[state.PoolID]int)
	for i := range b.past.actions {
		count[b.past.actions[i].Pool]++
	}
	b.past.last.Pools(func(p *state.Pool) bool {
		if count[p.ID] > 0 && (b.pool == nil || count[p.ID] > count[b.pool.ID]) {
			b.pool = p
		}
		return true
	})
	if b.pool == nil {
		return fmt.Errorf("%w: no action has ended", ErrNothing)
	}
	return nil
}

// chooseActions takes the actions that can be replayed, and counts the others.
func (b *builder) chooseActions() {
	for i := range b.past.actions {
		a := &b.past.actions[i]
		if why := b.leftOut(a); why != "" {
			b.omitted[why]++
			continue
		}
		b.actions = append(b.actions, a)
		b.overheads = append(b.overheads, a.overhead())
		if a.CoresMin < a.CoresMax && a.held == nil {
			b.unmeasured++
		}
		if a.Attempt > 1 {
			b.again++
		}
	}
	slices.SortFunc(b.actions, func(x, y *action) int { return cmp.Compare(x.ID, y.ID) })
	for _, a := range b.actions {
		b.observed = append(b.observed, b.observe(a))
	}
	b.past.last.Actions(0, func(a *state.Action) bool {
		if !a.State.Final() {
			b.notEnded++
		}
		return true
	})
}

// fits refuses nodes that are too small for an action: it would wait for ever.
func (b *builder) fits(nodes []workload.Node) error {
	most := int64(0)
	for i := range nodes {
		most = max(most, nodes[i].Cores())
	}
	for _, a := range b.actions {
		if int64(a.CoresMin) > most {
			return fmt.Errorf("%w: action %d needs %d cores, and the largest of the nodes has %d: simulate larger nodes", workload.ErrParams, a.ID, a.CoresMin, most)
		}
	}
	return nil
}

// makeRollouts makes trajectories of actions. Of those that ran at the same time in one,
// the later is replayed by itself.
func (b *builder) makeRollouts() {
	of := make(map[state.TrajectoryID][]*action)
	for _, a := range b.actions {
		chain := of[a.Trajectory]
		switch n := len(chain); {
		case a.Trajectory == 0:
			b.alone(a)
		case n > 0 && a.SubmittedAt < chain[n-1].EndedAt:
			b.beside++
			b.alone(a)
		default:
			of[a.Trajectory] = append(chain, a)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(of)) {
		b.trajectory(id, of[id])
	}
	b.trajectories = len(of)
	begin := b.rollouts[0].Start
	for i := range b.rollouts {
		begin = min(begin, b.rollouts[i].Start)
	}
	for i := range b.rollouts {
		b.rollouts[i].Start -= begin
		b.rollouts[i].Number = i
	}
	for i := range b.observed {
		b.observed[i].Submitted -= begin
	}
}

func (b *builder) alone(a *action) {
	b.rollouts = append(b.rollouts, workload.Trajectory{
		Start: a.SubmittedAt, Memory: int64(a.Memory), Alone: true, Turns: []workload.Turn{{Action: b.action(a)}},
	})
}

// trajectory adds one with its actions, which is not empty.
func (b *builder) trajectory(id state.TrajectoryID, chain []*action) {
	t := workload.Trajectory{Start: chain[0].SubmittedAt}
	end := b.past.last.Meta().Now
	if row := b.past.trajectories[id]; row != nil {
		t.Memory, t.OfStep = int64(row.Memory), row.Objective == state.ObjectiveStep
		switch {
		case b.past.Whole || row.OpenedAt >= b.past.began:
			t.Start = row.OpenedAt
		default: // its first actions may be forgotten
			b.begunBefore++
		}
		if row.EndedAt > 0 {
			end = row.EndedAt
		}
	}
	last := t.Start
	for _, a := range chain {
		t.Turns = append(t.Turns, workload.Turn{Think: max(0, a.SubmittedAt-last), Action: b.action(a)})
		last = a.EndedAt
	}
	t.After = max(0, end-last)
	b.rollouts = append(b.rollouts, t)
}

// params describe the cluster to the simulation.
func (b *builder) params(o *Options, nodes []workload.Node) (*workload.Params, error) {
	p := &workload.Params{Name: "log"}
	p.Cluster.Own = nodes
	p.Cluster.CoresPerNode.Value, p.Cluster.NUMAPerNode.Value = 1, 1 // of no node
	p.Tasks = []workload.Task{{Name: "log"}}
	task := &p.Tasks[0]
	task.Batch.Value, task.Steps.Value, task.Group.Value = workload.Quantity(len(b.rollouts)), 1, 1
	coding, err := workload.Load("coding")
	if err != nil {
		return nil, err
	}
	p.Baseline.Pods = coding.Baseline.Pods
	b.past.last.Quotas(func(q *state.Quota) bool {
		v := workload.Provider{Name: q.Name}
		limit := cmp.Or(o.Quotas[q.Name], int64(q.Limit))
		v.Limit.Value, v.Keys.Value = workload.Quantity(min(limit, 1<<20)), workload.Quantity(q.Keys)
		if q.Windowed() {
			v.Window.Value = workload.Quantity(q.WindowNS)
		}
		p.Providers = append(p.Providers, v)
		return true
	})
	for _, name := range slices.Sorted(maps.Keys(o.Quotas)) {
		if p.Provider(name) == nil {
			return nil, fmt.Errorf("%w: there is no quota %q", workload.ErrParams, name)
		}
	}
	return p, nil
}
