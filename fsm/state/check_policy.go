package state

import "fmt"

// checkPolicies: they are bounded, have a name, and a version that was published if they have
// one.
func (s *State) checkPolicies() (err error) {
	s.Policies("", func(p *Policy) bool {
		switch {
		case p.Name == "" || len(p.Name) > PolicyNameBytesMax:
			err = fmt.Errorf("a policy has a name of %d bytes", len(p.Name))
		case p.TrainNS < 0 || p.WaitNS < 0 || p.Steps == 0 && p.TrainNS+p.WaitNS > 0:
			err = fmt.Errorf("policy %s was measured for %d steps of %d and %d ns", p.Name, p.Steps, p.TrainNS, p.WaitNS)
		case p.Version == 0 && p.PublishedAt != 0 || p.PublishedAt < 0 || p.PublishedAt > s.meta.Now:
			err = fmt.Errorf("policy %s has version %d, published at %d; it is %d", p.Name, p.Version, p.PublishedAt, s.meta.Now)
		case p.Namespace != 0 && s.Namespace(p.Namespace) == nil:
			err = fmt.Errorf("policy %s belongs to namespace %d, which does not exist", p.Name, p.Namespace)
		}
		return err == nil
	})
	if n := s.PolicyCount(); err == nil && n > PoliciesMax {
		err = fmt.Errorf("there are %d policies", n)
	}
	return err
}
