package partition

import "fmt"

// Running is a trajectory that has begun.
type Running struct {
	// Home is the index of its worker. -1, and any other that is no worker's:
	// the trajectory has none, and gets one without further conditions.
	Home int
	// Movable: it may move now, because its model waits for a tool.
	Movable bool
	// MoveNS is what a move costs it: the time to copy its KV cache, or to compute its prefix again.
	MoveNS int64
	// Refuses says by worker that it does not move there; nil: it moves anywhere.
	Refuses []bool
}

// Move is the way of a trajectory to another worker.
type Move struct {
	// Trajectory is its rank by length.
	Trajectory int
	// From and To are indexes of workers. From is the Home of one without a worker.
	From, To int
	// GainNS is how much earlier the later one of the two workers has drained, costs not counted; 0 for a
	// trajectory without a worker.
	GainNS int64
}

// Rebalance returns which trajectories go to another worker, since predictions and trajectories
// have changed since they were placed. The trajectories are those that are active now, with what is
// predicted now, the longest first; running has the same order.
//
// Trajectories without a worker get the one that has drained first with them. Of the others, the
// longest first, each movable one goes to the worker with which most is gained, if the later one of
// both workers then has drained earlier by more than the move costs; at most the given number, each
// counted upon those before. So no move makes the last worker end later.
func (p *Planner) Rebalance(t Trajectories, running []Running, workers []Worker, most int) ([]Move, error) {
	if len(running) != len(t.Lengths) {
		return nil, fmt.Errorf("%d trajectories run, %d have lengths: give one each", len(running), len(t.Lengths))
	}
	if err := p.begin(t, workers); err != nil || len(running) == 0 {
		return nil, err
	}
	loads := p.homed(running, workers)
	var moves []Move
	for rank, r := range running {
		if r.Home >= 0 && r.Home < len(workers) {
			continue
		}
		to := p.soonest(loads, rank)
		p.put(to, none, rank)
		moves = append(moves, Move{Trajectory: rank, From: r.Home, To: to.worker})
	}
	for rank, r := range running {
		if most <= 0 {
			break
		}
		if !r.Movable || r.Home < 0 || r.Home >= len(workers) {
			continue
		}
		from := &loads[r.Home]
		to := p.gainful(loads, from, rank, r.Refuses)
		if gain, ok := p.move(from, to, rank, r.MoveNS); ok {
			moves = append(moves, Move{Trajectory: rank, From: from.worker, To: to.worker, GainNS: gain})
			most--
		}
	}
	return moves, nil
}

// homed are the loads of workers with the trajectories that are there.
func (p *Planner) homed(running []Running, workers []Worker) []load {
	loads := p.drains(nil, workers)
	for rank, r := range running {
		if r.Home >= 0 && r.Home < len(workers) {
			loads[r.Home].members = append(loads[r.Home].members, rank)
		}
	}
	for i := range loads {
		p.sumUp(&loads[i])
	}
	return loads
}

// soonest is the load that has drained first with another trajectory.
func (p *Planner) soonest(loads []load, rank int) *load {
	at, least := 0, int64(0)
	for i := range loads {
		if ns := p.timeOf(&loads[i], none, rank); i == 0 || ns < least {
			at, least = i, ns
		}
	}
	return &loads[at]
}

// gainful is the load to which a move gains most, of those that are not refused; from if there is
// none.
func (p *Planner) gainful(loads []load, from *load, rank int, refuses []bool) *load {
	best, most := from, int64(0)
	fromNS := p.timeOf(from, rank, none)
	for i := range loads {
		to := &loads[i]
		if to == from || to.timeNS >= from.timeNS || refuses != nil && refuses[to.worker] {
			continue
		}
		gain := from.timeNS - max(fromNS, p.timeOf(to, none, rank))
		if gain > most {
			best, most = to, gain
		}
	}
	return best
}

// move gives a trajectory to another worker if that gains more than it costs.
func (p *Planner) move(from, to *load, rank int, costNS int64) (gainNS int64, ok bool) {
	if from == to {
		return 0, false
	}
	fromNS, toNS := p.timeOf(from, rank, none), p.timeOf(to, none, rank)
	gainNS = max(from.timeNS, to.timeNS) - max(fromNS, toNS)
	if gainNS <= max(costNS, 0) {
		return 0, false
	}
	p.put(from, rank, none)
	p.put(to, none, rank)
	from.timeNS, to.timeNS = fromNS, toNS
	return gainNS, true
}
