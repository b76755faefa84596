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

// checkNamespaces: they are found by their names, and what is of one finds it.
func (s *State) checkNamespaces() (err error) {
	s.Namespaces(func(n *Namespace) bool {
		if n.ID == 0 || n.ID > s.meta.LastNamespace || s.NamespaceByName(n.Name) != n {
			err = fmt.Errorf("namespace %d is called %q, which is another's name, or the last is %d", n.ID, n.Name, s.meta.LastNamespace)
		}
		return err == nil
	})
	db(s).index.nsReferrers.Scan(func(id NamespaceID, n int) bool {
		if s.Namespace(id) == nil {
			err = fmt.Errorf("namespace %d does not exist, and %d rows are of it", id, n)
		}
		return err == nil
	})
	return err
}

// checkPools: they are found by their names, and what is of one finds it.
func (s *State) checkPools() (err error) {
	s.Pools(func(p *Pool) bool {
		if p.ID == 0 || p.ID > s.meta.LastPool || s.PoolByName(p.Name) != p {
			err = fmt.Errorf("pool %d is called %q, which is another's name, or the last is %d", p.ID, p.Name, s.meta.LastPool)
		}
		return err == nil
	})
	db(s).index.poolReferrers.Scan(func(id PoolID, n int) bool {
		if s.Pool(id) == nil {
			err = fmt.Errorf("pool %d does not exist, and %d rows are of it", id, n)
		}
		return err == nil
	})
	return err
}

// checkRequests: what a repetition would be answered with was given out.
func (s *State) checkRequests() (err error) {
	db(s).requests.scan("", func(r *Request) bool {
		newest := uint64(s.meta.LastAction)
		switch r.Verb {
		case VerbOpenTrajectory:
			newest = uint64(s.meta.LastTrajectory)
		case VerbSubmitJob:
			newest = uint64(s.meta.LastJob)
		case VerbAcquireTurn:
			newest = uint64(s.meta.LastTurn)
		case VerbRequestMigration:
			newest = uint64(s.meta.LastMigration)
		case VerbCreateSnapshot:
			newest = uint64(s.meta.LastFileSnapshot)
		case VerbReportGenerations, VerbReportRewards:
			newest = 1
		case VerbCreateRollout:
			newest = uint64(s.meta.LastRollout)
		}
		if r.Verb == 0 || r.FirstID == 0 || r.Count == 0 || r.FirstID+uint64(r.Count)-1 > newest {
			err = fmt.Errorf("request %q stands for %d from %d on, the newest is %d", r.ID, r.Count, r.FirstID, newest)
		}
		if r.Namespace > s.meta.LastNamespace {
			err = fmt.Errorf("request %q is of namespace %d, the newest is %d", r.ID, r.Namespace, s.meta.LastNamespace)
		}
		return err == nil
	})
	return err
}

// checkWork: the work list has kinds of work that exist.
func (s *State) checkWork() error { return checkQueues(&db(s).work) }

// checkParked: work is parked only while some pool is halted.
func (s *State) checkParked() error {
	halted := false
	s.Pools(func(p *Pool) bool {
		halted = p.Halted != ""
		return !halted
	})
	if n := db(s).parked.rows.Len(); n > 0 && !halted {
		return fmt.Errorf("%d queues are parked, and no pool is halted", n)
	}
	return checkQueues(&db(s).parked)
}

func checkQueues(t *table[QueueKey, work, *work]) (err error) {
	t.scan(0, func(w *work) bool {
		if !w.Queue.Queue().known() {
			err = fmt.Errorf("queue %x is of no known kind", uint64(w.Queue))
		}
		return err == nil
	})
	return err
}
