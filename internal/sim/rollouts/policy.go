package rollouts

import (
	"fmt"
	"slices"
	"strings"
)

// routing is how a request finds its worker.
type routing uint8

const (
	// pinned: trajectories are given to workers in turn, and stay.
	pinned routing = iota
	// leastRequests: each request goes to the worker with the fewest.
	leastRequests
	// cacheAware: each request goes where most of its prefix is, unless the load is uneven.
	cacheAware
	// stickyLeast: a trajectory is given to the worker with the fewest requests, and stays.
	stickyLeast
	// planned: the partition of rota, and its migrations.
	planned
)

// ordering is what an engine prefers when not all requests fit.
type ordering uint8

const (
	fcfs ordering = iota
	// leastAttained: the trajectory that has generated least (Autellix).
	leastAttained
	// longestFirst: the trajectory with most predicted tokens yet (Heddle §4.2).
	longestFirst
)

// knowledge is what a policy knows of lengths.
type knowledge uint8

const (
	nothing knowledge = iota
	// fromPrompt: what is predicted before the first turn, and never corrected.
	fromPrompt
	// progressive: predicted again after each turn.
	progressive
	// oracle: the true lengths.
	oracle
)

// Policy is one way to run a step.
type Policy struct {
	Name, Help string

	routing   routing
	ordering  ordering
	knowledge knowledge
	preempt   bool // a waiting request may take the place of a running one
	degrees   bool // GPUs are divided into workers of different degrees
	migrate   bool // trajectories move in tool gaps
}

// rota does not preempt: where the memory of an engine is full, the prefix of a preempted request
// is evicted and computed again, and the step ends later.
var rota = Policy{Name: "rota", Help: "predicted lengths, the longest first without preemption, degrees, placement and moves", routing: planned, ordering: longestFirst,
	knowledge: progressive, degrees: true, migrate: true}

// variant is rota with another part, or without one.
func variant(name, help string, change func(p *Policy)) Policy {
	p := rota
	p.Name, p.Help = name, help
	change(&p)
	return p
}

var policies = []Policy{
	rota,
	{Name: "round-robin", Help: "trajectories pinned to workers in turn, FCFS (verl as in Heddle §7)", routing: pinned},
	{Name: "least-load", Help: "each request to the worker with the fewest, FCFS (slime)", routing: leastRequests},
	{Name: "cache-aware", Help: "each request to the longest cached prefix, within a bound on uneven load, FCFS (SGLang's router, Verl* in Heddle §7)", routing: cacheAware},
	{Name: "autellix", Help: "trajectories pinned by load, least attained service first, preemptive", routing: stickyLeast, ordering: leastAttained, preempt: true},
	variant("rota-no-migration", "no migration", func(p *Policy) { p.migrate = false }),
	variant("rota-preemption", "a waiting request takes the place of a running one that is shorter (Heddle §4.2)", func(p *Policy) { p.preempt = true }),
	variant("rota-no-degrees", "all workers have the degree of the baselines", func(p *Policy) { p.degrees = false }),
	variant("rota-prompt", "predictions from the prompt and history only, never corrected", func(p *Policy) { p.knowledge = fromPrompt }),
	variant("rota-blind", "no prediction: all trajectories count as equal", func(p *Policy) { p.knowledge = nothing }),
	variant("rota-oracle", "true lengths instead of predictions, which no user has", func(p *Policy) { p.knowledge = oracle }),
}

// PolicyNames lists all policies, rota first.
func PolicyNames() []string {
	out := make([]string, len(policies))
	for i := range policies {
		out[i] = policies[i].Name
	}
	return out
}

// Policies returns all policies.
func Policies() []Policy { return slices.Clone(policies) }

// Baselines are the policies of others.
func Baselines() []string { return []string{"round-robin", "least-load", "cache-aware", "autellix"} }

// DefaultPolicies are rota and the policies of others.
func DefaultPolicies() []string { return append([]string{rota.Name}, Baselines()...) }

// Find returns the policies of some names.
func Find(names []string) ([]Policy, error) {
	out := make([]Policy, 0, len(names))
	for i, name := range names {
		at := slices.IndexFunc(policies, func(p Policy) bool { return p.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("%w: there is no policy %q; there are %s", ErrSetup, name, strings.Join(PolicyNames(), ", "))
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("%w: policy %q is named twice", ErrSetup, name)
		}
		out = append(out, policies[at])
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: no policy is named; there are %s", ErrSetup, strings.Join(PolicyNames(), ", "))
	}
	return out, nil
}
