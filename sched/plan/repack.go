package plan

import (
	"math"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
	"rota/sched/ledger"
)

// movesMax bounds one plan.
const movesMax = 8

// Repack plans which jobs of the ledger go to another group (PlexRL §5.2): to empty
// groups for queued jobs that need one for themselves, and to take jobs away from
// where they are slowed down. A move takes a job's state off one group and onto
// another, so it costs twice its set-up on the nodes of both; moves that cost more
// than they gain in one horizon are left out.
func Repack(v *state.State) []*logv1.Command {
	m := v.Meta()
	if m.PlacementHalted != "" {
		return nil
	}
	l := sched.Ledger(v)
	groups, reservations := l.Rows()
	head, _ := l.Window()
	promise, _ := sched.Promised(v, math.MaxUint64)
	p, err := ledger.Repack(l.Config(), head, groups, reservations, ledger.RepackRequest{
		Empty: wanted(v), MovesMax: movesMax, Policy: sched.Policy(v), Promise: promise,
		Transfer: func(job ledger.JobID, _, _ ledger.GroupID) int64 { return transfer(v, state.JobID(job)) },
	})
	if err != nil {
		return nil // the rows are checked where they are written
	}
	var moves []*logv1.Command
	for _, move := range p.Moves {
		moves = append(moves, &logv1.Command{Verb: &logv1.Command_MoveJob{MoveJob: &logv1.MoveJob{
			JobId: uint64(move.Job), From: uint64(move.From), To: uint64(move.To),
			Was: move.Was, Period: move.Period, CostMax: move.CostMax, Transfer: move.Transfer,
		}}})
	}
	return moves
}

// wanted is how many groups without jobs are wanted: one for each queued job whose
// cycle is not known.
func wanted(v *state.State) (groups int) {
	v.QueuedJobs(0, func(j *state.Job) bool {
		if j.Cycle.Period == 0 && !j.Backfill {
			groups++
		}
		return true
	})
	return groups
}

// transfer is for how many slots a job's state is on its way: away from one group and
// onto another. A job that holds its group cannot be moved.
func transfer(v *state.State, id state.JobID) int64 {
	if v.HeldTurn(id) != nil {
		return -1
	}
	j := v.Job(id)
	setUp := j.SetUpNS
	for _, d := range j.Deployments {
		setUp = max(setUp, d.SetUpNS)
	}
	return ledger.Cover(v.Meta().Settings.LedgerSlotNS, 2*setUp)
}
