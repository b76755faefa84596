package state

import "cmp"

// request is what a live action asks of the node that its trajectory waits for: cores, or else
// bandwidth in bits/s.
type request struct {
	trajectory TrajectoryID
	bandwidth  bool
	amount     uint64
	action     ActionID
}

// less orders the requests of a trajectory for the same thing by amount, the largest first.
func (a request) less(b request) bool {
	if a.trajectory != b.trajectory {
		return a.trajectory < b.trajectory
	}
	if a.bandwidth != b.bandwidth {
		return b.bandwidth
	}
	return cmp.Or(cmp.Compare(b.amount, a.amount), cmp.Compare(a.action, b.action)) < 0
}

// Requested returns the most cores and bits/s that one of the live actions of a pending trajectory asks
// for.
func (s *State) Requested(id TrajectoryID) (cores uint32, bandwidth uint64) {
	return uint32(s.mostRequested(id, false)), s.mostRequested(id, true)
}

func (s *State) mostRequested(id TrajectoryID, bandwidth bool) (most uint64) {
	db(s).index.requests.Ascend(request{trajectory: id, bandwidth: bandwidth, amount: 1<<64 - 1}, func(k request) bool {
		if k.trajectory == id && k.bandwidth == bandwidth {
			most = k.amount
		}
		return false
	})
	return most
}

// eachRequest visits what an action asks of the node that its trajectory waits for.
func (r *Action) eachRequest(fn func(request)) {
	if r.Trajectory == 0 || r.Node != 0 || r.State.Final() {
		return
	}
	fn(request{trajectory: r.Trajectory, amount: uint64(r.CoresMin), action: r.ID})
	if b := r.Bandwidth(); b > 0 {
		fn(request{trajectory: r.Trajectory, bandwidth: true, amount: b, action: r.ID})
	}
}
