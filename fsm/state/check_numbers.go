package state

import "fmt"

// The tables that others refer to and count on: each has its check here or in
// check.go, and Check makes them all.

// checkMeta: a cluster that was bootstrapped has all its settings.
func (s *State) checkMeta() error {
	if m := &s.meta; m.ClusterID != "" && m.Settings != m.Settings.WithDefaults() {
		return fmt.Errorf("a setting has no value: %+v", m.Settings)
	}
	return nil
}

// checkNamespaces: they are numbered without gaps, and found by their names.
func (s *State) checkNamespaces() (err error) {
	next := NamespaceID(1)
	s.Namespaces(func(n *Namespace) bool {
		if n.ID != next || s.NamespaceByName(n.Name) != n {
			err = fmt.Errorf("namespace %d is called %q, which is another's name, or %d is missing", n.ID, n.Name, next)
		}
		next++
		return err == nil
	})
	if err == nil && next != s.meta.LastNamespace+1 {
		err = fmt.Errorf("the last namespace is %d, not %d", next-1, s.meta.LastNamespace)
	}
	return err
}

// checkPools: they are numbered without gaps, and found by their names.
func (s *State) checkPools() (err error) {
	next := PoolID(1)
	s.Pools(func(p *Pool) bool {
		if p.ID != next || s.PoolByName(p.Name) != p {
			err = fmt.Errorf("pool %d is called %q, which is another's name, or %d is missing", p.ID, p.Name, next)
		}
		next++
		return err == nil
	})
	if err == nil && next != s.meta.LastPool+1 {
		err = fmt.Errorf("the last pool is %d, not %d", next-1, s.meta.LastPool)
	}
	return err
}

// checkRequests: what a repetition would be answered with was given out.
func (s *State) checkRequests() (err error) {
	s.requests.scan("", func(r *Request) bool {
		newest := uint64(s.meta.LastAction)
		switch r.Verb {
		case VerbOpenTrajectory:
			newest = uint64(s.meta.LastTrajectory)
		case VerbSubmitJob:
			newest = uint64(s.meta.LastJob)
		case VerbAcquireTurn:
			newest = uint64(s.meta.LastTurn)
		}
		if r.Verb == 0 || r.FirstID == 0 || r.Count == 0 || r.FirstID+uint64(r.Count)-1 > newest {
			err = fmt.Errorf("request %q stands for %d from %d on, the newest is %d", r.ID, r.Count, r.FirstID, newest)
		}
		return err == nil
	})
	return err
}

// checkWork: the work list has kinds of work that exist.
func (s *State) checkWork() error { return checkInstances(&s.work) }

// checkParked: work is parked only while some pool is halted.
func (s *State) checkParked() error {
	halted := false
	s.Pools(func(p *Pool) bool {
		halted = p.Halted != ""
		return !halted
	})
	if n := s.parked.rows.Len(); n > 0 && !halted {
		return fmt.Errorf("%d instances are parked, and no pool is halted", n)
	}
	return checkInstances(&s.parked)
}

func checkInstances(t *table[Instance, work, *work]) (err error) {
	t.scan(0, func(w *work) bool {
		_, pool := w.Instance.Pool()
		_, node := w.Instance.Node()
		_, trajectory := w.Instance.EndingTrajectory()
		_, _, gpu := w.Instance.GPU()
		_, quota := w.Instance.Quota()
		_, corelessPool := w.Instance.CorelessPool()
		_, corelessNode := w.Instance.CorelessNode()
		_, group := w.Instance.NodeGroup()
		if !group && !w.Instance.Placement() && !pool && !node && !trajectory && !gpu && !quota && !corelessPool && !corelessNode {
			err = fmt.Errorf("instance %x is of no known kind", uint64(w.Instance))
		}
		return err == nil
	})
	return err
}
