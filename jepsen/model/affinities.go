package model

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Hardware of workers: what operators said of a task class, and what follows from measured tokens.

const (
	affinitiesMax    = 1024
	affinitySpillMax = 10_000
)

func (m *Model) setAffinity(c *logv1.SetAffinity, got *logv1.Result) error {
	name := lengthName{c.Policy, c.TaskClass}
	there := m.workers.affinities[name] != nil
	if c.Remove {
		if !there {
			return refused(got, "AFFINITY_NOT_FOUND")
		}
		delete(m.workers.affinities, name)
		return result(got, &logv1.Result{Count: 1})
	}
	var v verdict
	v.refuse(c.Policy == "" || len(c.Policy) > policyNameMax || len(c.TaskClass) > nameBytesMax, "INVALID")
	v.refuse(len(c.Hardware) > hardwaresMax || c.CostPercent > 100 || c.SpillPercent > affinitySpillMax, "INVALID")
	v.refuse(len(c.Hardware) == 0 && (c.CostPercent == 0 || c.SpillPercent != 0), "INVALID")
	once := map[string]bool{}
	for _, h := range c.Hardware {
		v.refuse(h == "" || len(h) > workerTextMax || once[h], "INVALID")
		once[h] = true
	}
	v.refuse(!there && len(m.workers.affinities) >= affinitiesMax, "TOO_MANY_AFFINITIES")
	m.named(&v, c.Policy)
	if ok, err := v.judge(got); !ok {
		return err
	}
	m.policy(c.Policy)
	m.workers.affinities[name] = &state.Affinity{Policy: c.Policy, TaskClass: c.TaskClass, Hardware: c.Hardware, CostPercent: c.CostPercent, SpillPercent: c.SpillPercent}
	return result(got, &logv1.Result{Count: 1})
}

func (m *Model) forgetAffinities(policy string) {
	maps.DeleteFunc(m.workers.affinities, func(n lengthName, _ *state.Affinity) bool { return n.policy == policy })
}

func (m *Model) compareAffinities() error {
	if got := m.s.AffinityCount(); got != len(m.workers.affinities) {
		return fmt.Errorf("there are %d affinities, must be %d", got, len(m.workers.affinities))
	}
	for n, want := range m.workers.affinities {
		if got := m.s.Affinity(n.policy, n.class); got == nil || got.CostPercent != want.CostPercent || got.SpillPercent != want.SpillPercent || !slices.Equal(got.Hardware, want.Hardware) {
			return fmt.Errorf("the affinity of %q is %+v, must be %+v", n, got, *want)
		}
	}
	return nil
}

// home is a worker that may get a trajectory.
type home struct {
	w     *state.Worker
	rank  int
	work  int64
	score *big.Int // work and price
	own   *big.Int // the trajectory's own time and price
	count int
	// prompts is the part of its own time that prompts take, in percent.
	prompts int64
}

// best is where a trajectory must go: of each kind of hardware the worker whose work and price are
// least, and of these the one that its preferences or its own time say.
func (m *Model) best(g *state.Generation) (*state.Worker, state.PlacementChoice) {
	rule := m.workers.affinities[lengthName{g.Policy, g.TaskClass}]
	if rule == nil {
		rule = m.workers.affinities[lengthName{g.Policy, ""}]
	}
	if rule == nil {
		rule = &state.Affinity{}
	}
	wanted, by := g.Hardware, state.HardwareAsked
	if len(wanted) == 0 {
		wanted, by = rule.Hardware, state.HardwareRuled
	}
	all := m.homes(g, wanted, rule)
	if len(all) == 0 {
		return nil, state.PlacementChoice{}
	}
	kinds := map[string]bool{}
	for _, p := range all {
		kinds[p.w.Hardware] = true
	}
	var to *home
	choice := state.PlacementChoice{}
	switch {
	case len(wanted) > 0:
		to = first(all, len(wanted), int64(rule.SpillPercent))
		if to.rank < len(wanted) {
			choice.Preferred, choice.By = uint8(to.rank+1), by
		}
	case len(kinds) > 1:
		to, choice.By = quickest(all), state.HardwareMeasured
	default:
		to = least(all)
	}
	choice.WorkNS, choice.PrefillPercent = to.work, uint8(to.prompts)
	for _, p := range all {
		if len(wanted) > 0 && p.rank != to.rank {
			continue
		}
		choice.Candidates++
		if p != to && (choice.NextNS == 0 || p.work < choice.NextNS) {
			choice.NextNS = p.work
		}
	}
	return to.w, choice
}

// homes are all workers with room, by name.
func (m *Model) homes(g *state.Generation, wanted []string, rule *state.Affinity) (all []*home) {
	var there, cheapest int64
	for _, name := range slices.Sorted(maps.Keys(m.workers.all)) {
		w := m.workers.all[name]
		if w.Policy != g.Policy || !m.takesOver(w) {
			continue
		}
		rank := slices.Index(wanted, w.Hardware)
		if rank < 0 {
			rank = len(wanted)
		}
		all = append(all, &home{w: w, rank: rank, work: m.workOf(w, g), count: len(m.at(name))})
		there += int64(len(m.at(name)))
		if price := priceOf(w); cheapest == 0 || price < cheapest {
			cheapest = price
		}
	}
	for _, p := range all {
		p.score = weighed(big.NewInt(p.work), priceOf(p.w), cheapest, rule.CostPercent)
		own, prompts := ownTime(p.w, g, there/int64(len(all))+1)
		p.prompts = new(big.Int).Div(new(big.Int).Mul(prompts, big.NewInt(100)), own).Int64()
		p.own = weighed(own, priceOf(p.w), cheapest, rule.CostPercent)
	}
	return all
}

func priceOf(w *state.Worker) int64 {
	if w.Cost > 0 {
		return int64(w.Cost)
	}
	return int64(w.Degree)
}

// weighed is a time, longer by the part of the price above the cheapest that counts.
func weighed(ns *big.Int, price, cheapest int64, percent uint32) *big.Int {
	more := new(big.Int).Mul(ns, big.NewInt(price-cheapest))
	more.Div(more, big.NewInt(cheapest))
	more.Div(more.Mul(more, big.NewInt(int64(percent))), big.NewInt(100))
	return more.Add(more, ns)
}

// ownTime is what a trajectory takes of a worker with a batch of a size, and what prompts take of
// that.
func ownTime(w *state.Worker, g *state.Generation, batch int64) (own, prompts *big.Int) {
	own = new(big.Int).Mul(new(big.Int).SetUint64(max(1, g.Predicted)), tokenTime(w.Profile, batch))
	own.Div(own, big.NewInt(batch))
	prompts = promptTime(w, freshPrompts(g))
	if own.Add(own, prompts); own.Sign() == 0 {
		own.SetInt64(1)
	}
	return own, prompts
}

// freshPrompts are the tokens of prompts that a worker computes that has nothing of a trajectory.
func freshPrompts(g *state.Generation) *big.Int {
	n := new(big.Int).SetUint64(g.Prefill)
	if g.Trace.Turns > 0 {
		n.Add(n, new(big.Int).SetUint64(max(g.Trace.PromptTokens, g.Trace.ContextTokens)))
	}
	return n
}

func promptTime(w *state.Worker, tokens *big.Int) *big.Int {
	t := new(big.Int).Mul(tokens, big.NewInt(w.Prefill1kNS))
	return t.Div(t, big.NewInt(1000))
}

// least has the least work and price; of equal ones the fewest trajectories, then the first name.
func least(all []*home) *home {
	return slices.MinFunc(all, func(a, b *home) int {
		if c := a.score.Cmp(b.score); c != 0 {
			return c
		}
		if a.count != b.count {
			return a.count - b.count
		}
		return strings.Compare(a.w.Name, b.w.Name)
	})
}

// bestOfKinds are the best of each kind of hardware, in the order in which the kinds come.
func bestOfKinds(all []*home) (best []*home) {
	var kinds []string
	for _, p := range all {
		if !slices.Contains(kinds, p.w.Hardware) {
			kinds = append(kinds, p.w.Hardware)
		}
	}
	for _, kind := range kinds {
		best = append(best, least(slices.DeleteFunc(slices.Clone(all), func(p *home) bool { return p.w.Hardware != kind })))
	}
	return best
}

// first is of the first rank that is there, unless its work is so much more than that of the next
// ones.
func first(all []*home, ranks int, spill int64) *home {
	var to *home
	for rank := range ranks + 1 {
		var of *home
		for _, p := range bestOfKinds(all) {
			if p.rank == rank && (of == nil || p.score.Cmp(of.score) < 0) {
				of = p
			}
		}
		switch {
		case of == nil:
		case to == nil:
			to = of
		case spill > 0:
			longer := new(big.Int).Mul(of.score, big.NewInt(100+spill))
			if longer.Div(longer, big.NewInt(100)).Cmp(to.score) < 0 {
				to = of
			}
		}
	}
	return to
}

// quickest is the kind with the least product of own time and the square of work, which is counted
// in 1/1024 of the least work, and up to 1,024 times that.
func quickest(all []*home) *home {
	shortest := least(all).score
	if shortest.Sign() == 0 {
		shortest = big.NewInt(1)
	}
	product := func(p *home) *big.Int {
		part := new(big.Int).Mul(p.score, big.NewInt(1024))
		if part.Div(part, shortest); part.Cmp(big.NewInt(1<<20)) > 0 {
			part.SetInt64(1 << 20)
		}
		return part.Mul(part.Mul(part, part), p.own)
	}
	var to *home
	for _, p := range bestOfKinds(all) {
		if to == nil || product(p).Cmp(product(to)) < 0 {
			to = p
		}
	}
	return to
}

// workOf is how long all requests of a worker take together with a trajectory more: each waits for
// all tokens that a batch of all takes, and for all prompts.
func (m *Model) workOf(w *state.Worker, g *state.Generation) int64 {
	there := m.at(w.Name)
	tokens, prompts := new(big.Int).SetUint64(max(1, g.Predicted)), freshPrompts(g)
	for _, o := range there {
		tokens.Add(tokens, new(big.Int).SetUint64(o.Predicted))
		prompts.Add(prompts, new(big.Int).SetUint64(o.Prefill))
	}
	n := int64(len(there) + 1)
	wait := promptTime(w, prompts)
	sum := tokens.Add(tokens.Mul(tokens, tokenTime(w.Profile, n)), wait.Mul(wait, big.NewInt(n)))
	if !sum.IsInt64() {
		return 1<<63 - 1
	}
	return sum.Int64()
}
