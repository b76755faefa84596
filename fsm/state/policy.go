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
}

func (r *Policy) code(c *codec) {
	c.text(&r.Name)
	number(c, &r.Version)
	c.flag(&r.Suspended)
	number(c, &r.Step)
	signed(c, &r.PublishedAt)
}

// PutPolicy stores a policy.
func (s *State) PutPolicy(r *Policy) { db(s).policies.put(db(s).enc, r.Name, r) }

// DeletePolicy forgets a policy that nothing names.
func (s *State) DeletePolicy(name string) { db(s).policies.delete(name) }

// Policy returns a policy, nil if nothing has named it.
func (s *State) Policy(name string) *Policy { return db(s).policies.get(name) }

// Policies visits the policies whose names are after one, in the order of their names.
func (s *State) Policies(after string, fn func(*Policy) bool) {
	db(s).policies.scan(following(after), fn)
}

// PolicyCount returns how many policies there are.
func (s *State) PolicyCount() int { return db(s).policies.rows.Len() }
