package evaluate

import (
	"fmt"
	"strconv"
	"strings"

	"rota/internal/sim/workload"
)

// Policies returns those that a workload is compared on by default, rota first.
func Policies(p *workload.Params) []string {
	out := []string{"rota"}
	b := &p.Baseline
	switch {
	case b.Calls != nil:
		out = append(out, "baseline")
	case b.Static != nil:
		out = append(out, "static")
	case b.Pods != nil:
		out = append(out, "pod")
	}
	if b.FixedDoP != nil {
		for _, n := range b.FixedDoP.Value {
			out = append(out, "fixed-"+strconv.FormatInt(n, 10))
		}
	}
	return out
}

// PolicyNames are those that there are; N is any number, of units or, for shared and aged, of seconds.
func PolicyNames() []string {
	return []string{"rota", "shared-N", "fixed-N", "pod", "static", "uncontrolled", "baseline", "equal", "aged-N"}
}

func newPolicy(w *world, name string) (policy, error) {
	if n, ok := strings.CutPrefix(name, "fixed-"); ok {
		units, err := strconv.ParseInt(n, 10, 32)
		if err != nil || units < 1 {
			return nil, fmt.Errorf("%q is not a number of units", n)
		}
		return newMachine(w, mapping{fixed: units})
	}
	p := w.in.generator.Params()
	split := &byResource{w: w}
	has := func(what string) bool { return name == what || name == "baseline" }
	if n, ok := strings.CutPrefix(name, "aged-"); ok {
		age, err := seconds(n)
		if err != nil {
			return nil, err
		}
		split.cpu = newEqual(w, age)
		return split, split.check(p)
	}
	if n, ok := strings.CutPrefix(name, "shared-"); ok {
		age, err := seconds(n)
		if err != nil {
			return nil, err
		}
		return newMachine(w, mapping{shareAfter: age})
	}
	switch name {
	case "rota":
		return newMachine(w, mapping{})
	case "equal":
		split.cpu = newEqual(w, 0)
	case "pod", "static", "uncontrolled", "baseline":
	default:
		return nil, fmt.Errorf("there is none of that name, only %s", strings.Join(PolicyNames(), ", "))
	}
	if b := p.Baseline.Pods; b != nil && has("pod") {
		split.cpu = newPods(w, b)
	}
	if p.Baseline.Static != nil && has("static") {
		split.gpu = newStatic(w)
	}
	if b := p.Baseline.Calls; b != nil && has("uncontrolled") {
		split.quota = newUncontrolled(w)
	}
	return split, split.check(p)
}

// seconds returns a number of seconds in nanoseconds.
func seconds(n string) (int64, error) {
	s, err := strconv.ParseInt(n, 10, 32)
	if err != nil || s < 1 {
		return 0, fmt.Errorf("%q is not a number of seconds", n)
	}
	return s * 1_000_000_000, nil
}

// byResource hands each call to a policy that can serve its key resource.
type byResource struct {
	w               *world
	cpu, gpu, quota policy
}

func (b *byResource) all() (out []policy) {
	for _, p := range []policy{b.cpu, b.gpu, b.quota} {
		if p != nil {
			out = append(out, p)
		}
	}
	return out
}

func (b *byResource) of(resource string) policy {
	switch resource {
	case "cpu":
		return b.cpu
	case "gpu":
		return b.gpu
	}
	return b.quota
}

// check says what a workload needs that no part can serve.
func (b *byResource) check(p *workload.Params) error {
	for i := range p.Tasks {
		for _, list := range [][]workload.Spec{p.Tasks[i].Tools, p.Tasks[i].Rewards} {
			for j := range list {
				if b.of(list[j].Resource) == nil {
					return fmt.Errorf("it does nothing for %s, which class %s needs; the parameters of %s have no baseline for that, or it is another: try policy baseline",
						list[j].Resource, list[j].Class, p.Name)
				}
			}
		}
	}
	return nil
}

func (b *byResource) begin(r *rollout) {
	for _, p := range b.all() {
		p.begin(r)
	}
}

func (b *byResource) end(r *rollout) {
	for _, p := range b.all() {
		p.end(r)
	}
}

func (b *byResource) submit(c *call) {
	if c.Cost[0].Max == 0 { // it needs nothing that could be shared
		b.w.loop.After(c.Single, func() {
			c.exec += c.Single
			b.w.ended(c, true)
		})
		return
	}
	b.of(c.Cost[0].Resource).submit(c)
}

func (b *byResource) capacity() Capacity {
	for _, p := range b.all() {
		if c := p.capacity(); c.Units > 0 {
			return c
		}
	}
	return Capacity{}
}
