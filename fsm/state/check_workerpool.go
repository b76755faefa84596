package state

import "fmt"

// checkWorkerPools: each has a policy and what was declared, and members in order, of degrees that
// it may have or that leave.
func (s *State) checkWorkerPools() (err error) {
	s.WorkerPools(func(p *WorkerPool) bool { err = s.checkWorkerPool(p); return err == nil })
	if n := s.WorkerPoolCount(); err == nil && n > WorkerPoolsMax {
		err = fmt.Errorf("there are %d worker pools", n)
	}
	return err
}

func (s *State) checkWorkerPool(p *WorkerPool) error {
	switch {
	case p.Name == "" || len(p.Name) > WorkerPoolNameBytesMax || len(p.Start) == 0 || s.Policy(p.Policy) == nil:
		return fmt.Errorf("worker pool %q is of policy %q, which may not exist, and starts with %d bytes", p.Name, p.Policy, len(p.Start))
	case len(p.Options) == 0 || len(p.Options) > WorkerPoolOptionsMax || len(p.Members) > WorkerPoolMembersMax || p.Removed && len(p.Members) == 0:
		return fmt.Errorf("worker pool %s has %d degrees and %d members, removed %v", p.Name, len(p.Options), len(p.Members), p.Removed)
	case p.SetUpNS < 0 || p.PayBack == 0 || p.Plan.At > s.meta.Now:
		return fmt.Errorf("worker pool %s has set-up %d, %d steps and plan %+v", p.Name, p.SetUpNS, p.PayBack, p.Plan)
	}
	last, gpus := uint64(0), uint32(0)
	for _, m := range p.Members {
		if m.Serial <= last || m.Serial > p.LastSerial || (m.Action == 0) != (m.Starts == 0) || m.StartedAt > s.meta.Now || !m.Leaving && (p.Removed || p.Option(m.Degree) == nil) {
			return fmt.Errorf("worker pool %s has member %+v", p.Name, m)
		}
		last = m.Serial
		if !m.Leaving {
			gpus += m.Degree
		}
	}
	if gpus > p.GPUs {
		return fmt.Errorf("the workers of pool %s have %d GPUs of %d", p.Name, gpus, p.GPUs)
	}
	return nil
}
