package state

const (
	// PoliciesMax bounds the policies.
	PoliciesMax = 4096
	// PolicyNameBytesMax bounds the name of a policy.
	PolicyNameBytesMax = 128
)

// Policy is a model that is trained. It exists from the first rollout, worker or version that
// names it.
type Policy struct {
	Name string
	// Version is the current version of its weights; it only grows.
	Version uint64
	// Suspended: gateways hold its requests, so that its weights can change.
	Suspended bool
	// Step is the last step of training that was given a batch; 0: none was.
	Step uint64
	// PublishedAt is the log time at which the current version was published; 0: none was.
	PublishedAt int64
	// Steps is how many steps were measured. TrainNS and WaitNS are means of them in nanoseconds,
	// the last ones most: from the batch of a step to the last version before the next batch, and
	// from there to that batch.
	Steps           uint64
	TrainNS, WaitNS int64
	// Namespace is the one to which it belongs, for whose rollout or version it was first named so; 0:
	// none. Rights to it are of this namespace.
	Namespace NamespaceID
}

// policyStepsMemory is how many steps a mean is made of.
const policyStepsMemory = 16

// Measured returns the policy with one more step, whose batch was taken at a log time, when the
// next one is taken at another. It is the same if no version was published in between.
func (r *Policy) Measured(takenAt, now int64) *Policy {
	if r.PublishedAt < takenAt || r.PublishedAt == 0 {
		return r
	}
	p := *r
	n := int64(min(p.Steps+1, policyStepsMemory))
	p.Steps++
	p.TrainNS += (r.PublishedAt - takenAt - p.TrainNS) / n
	p.WaitNS += (now - r.PublishedAt - p.WaitNS) / n
	return &p
}

func (r *Policy) code(c *codec) {
	c.text(&r.Name)
	number(c, &r.Version)
	c.flag(&r.Suspended)
	number(c, &r.Step)
	signed(c, &r.PublishedAt)
	number(c, &r.Steps)
	signed(c, &r.TrainNS)
	signed(c, &r.WaitNS)
	trailing(c, &r.Namespace, number)
}

// OwnerOf returns the namespace to which a policy belongs; nil: to none.
func (s *State) OwnerOf(r *Policy) *Namespace { return s.Namespace(r.Namespace) }

// PutPolicy stores a policy.
func (s *State) PutPolicy(r *Policy) {
	s.referPolicy(db(s).policies.put(db(s).enc, r.Name, r), -1)
	s.referPolicy(r, 1)
}

// PoliciesOf returns how many policies belong to a namespace.
func (s *State) PoliciesOf(ns NamespaceID) int {
	n, _ := db(s).index.nsPolicies.Get(ns)
	return n
}

// DeletePolicy forgets a policy that nothing names.
func (s *State) DeletePolicy(name string) { s.referPolicy(db(s).policies.delete(name), -1) }

// referPolicy counts a policy for its namespace; nil: there is none.
func (s *State) referPolicy(r *Policy, by int) {
	if r != nil {
		tally(&db(s).index.nsPolicies, r.Namespace, by)
		s.refer(r.Namespace, 0, by)
	}
}

// Policy returns a policy, nil if nothing has named it.
func (s *State) Policy(name string) *Policy { return db(s).policies.get(name) }

// Policies visits the policies whose names are after one, in the order of their names.
func (s *State) Policies(after string, fn func(*Policy) bool) {
	db(s).policies.scan(following(after), fn)
}

// PolicyCount returns how many policies there are.
func (s *State) PolicyCount() int { return db(s).policies.rows.Len() }
