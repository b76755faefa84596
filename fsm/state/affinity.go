package state

import (
	"fmt"
	"slices"
)

const (
	// AffinitiesMax bounds the affinities.
	AffinitiesMax = 1024
	// AffinityCostMax is the highest weight of a price, in percent.
	AffinityCostMax = 100
	// AffinitySpillMax is by how many percent work may be longer at most before a later kind of
	// hardware is taken.
	AffinitySpillMax = 10_000
)

// Affinity says which hardware the trajectories of a task class go to (RollArt §4.1).
type Affinity struct {
	// Policy and TaskClass name the class. An empty class stands for all classes of the policy
	// that have no row.
	Policy, TaskClass string
	// Hardware are kinds of hardware, the best first. Empty: measured tokens decide.
	Hardware []string
	// CostPercent is how much the price of a worker counts, from 0 to AffinityCostMax.
	CostPercent uint32
	// SpillPercent: a later kind is taken if the work of an earlier one is longer by more than so
	// many percent. 0: only if the workers of the earlier one take none.
	SpillPercent uint32
}

func (r *Affinity) code(c *codec) {
	c.text(&r.Policy)
	c.text(&r.TaskClass)
	list(c, &r.Hardware, (*codec).text)
	number(c, &r.CostPercent)
	number(c, &r.SpillPercent)
}

// Validate says what of an affinity cannot be.
func (r *Affinity) Validate() error {
	switch {
	case r.Policy == "" || max(len(r.Policy), len(r.TaskClass)) > lengthNameBytesMax:
		return fmt.Errorf("an affinity needs a policy; policy and task class may have at most %d bytes", lengthNameBytesMax)
	case len(r.Hardware) > HardwaresMax:
		return fmt.Errorf("an affinity has %d kinds of hardware; at most %d are allowed", len(r.Hardware), HardwaresMax)
	case r.CostPercent > AffinityCostMax || r.SpillPercent > AffinitySpillMax:
		return fmt.Errorf("cost_percent must be at most %d and spill_percent at most %d, not %d and %d", AffinityCostMax, AffinitySpillMax, r.CostPercent, r.SpillPercent)
	case len(r.Hardware) == 0 && (r.CostPercent == 0 || r.SpillPercent > 0):
		return fmt.Errorf("an affinity needs kinds of hardware or cost_percent, and spill_percent needs kinds of hardware")
	}
	for i, h := range r.Hardware {
		if h == "" || len(h) > WorkerNameBytesMax || slices.Contains(r.Hardware[:i], h) {
			return fmt.Errorf("a kind of hardware must have a name of at most %d bytes, and be named once", WorkerNameBytesMax)
		}
	}
	return nil
}

// PutAffinity stores an affinity.
func (s *State) PutAffinity(r *Affinity) {
	db(s).affinities.put(db(s).enc, lengthKey(r.Policy, r.TaskClass), r)
}

// DeleteAffinity forgets an affinity.
func (s *State) DeleteAffinity(policy, class string) {
	db(s).affinities.delete(lengthKey(policy, class))
}

// Affinity returns what was said of a task class by its names, nil if nothing was.
func (s *State) Affinity(policy, class string) *Affinity {
	return db(s).affinities.get(lengthKey(policy, class))
}

// AffinityOf returns the affinity that holds for a task class: its own, or that of all classes of
// the policy; nil if there is none.
func (s *State) AffinityOf(policy, class string) *Affinity {
	if r := s.Affinity(policy, class); r != nil || class == "" {
		return r
	}
	return s.Affinity(policy, "")
}

// Affinities visits all affinities.
func (s *State) Affinities(fn func(*Affinity) bool) { db(s).affinities.scan("", fn) }

// AffinityCount returns how many affinities there are.
func (s *State) AffinityCount() int { return db(s).affinities.rows.Len() }

// checkAffinities: each has what was said, of a policy that exists.
func (s *State) checkAffinities() (err error) {
	s.Affinities(func(r *Affinity) bool {
		if err = r.Validate(); err == nil && s.Policy(r.Policy) == nil {
			err = fmt.Errorf("an affinity is of policy %q, which does not exist", r.Policy)
		}
		return err == nil
	})
	if n := s.AffinityCount(); err == nil && n > AffinitiesMax {
		err = fmt.Errorf("there are %d affinities", n)
	}
	return err
}
