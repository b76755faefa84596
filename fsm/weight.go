package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// EntryWeight is what the commands of one entry should weigh together, so that applying
// it takes less than 10 ms: all other entries wait for it.
const EntryWeight = 4096

// ReportWeight is what the report of an attempt weighs: it settles an action, and others
// start on what that held.
const ReportWeight = 8

// engineWeight is what a change of an engine's declaration weighs: it looks at what is resident
// on all nodes.
const engineWeight = EntryWeight / 4

// rewardWeight is what it weighs to say something of a reward function or a replica: the function
// is stored anew, with what was declared.
const rewardWeight = 16

// generationWeight is what it weighs to report or to predict what one trajectory generates, or to take
// one sample, and twice that to move a trajectory: rows are stored anew, with what the trajectory waits
// for.
const generationWeight = 4

// groupWeight is what it weighs to give a complete group to a step.
const groupWeight = 4

// cycleWeight is what it weighs to begin a step of a job's training: the ledger of its group is built.
const cycleWeight = placeCost / 2

// snapshotWeight is what it weighs to ask for a snapshot: the actions of its trajectory are looked at,
// or all snapshots.
const snapshotWeight = EntryWeight / 4

// Weight is what a command costs to apply. The unit is an action submitted, which takes
// about a microsecond. What a command leaves to the scheduler is not among it: the budget
// of an entry bounds that.
func Weight(c *logv1.Command) int {
	switch v := c.Verb.(type) {
	case *logv1.Command_SubmitActions:
		return max(1, len(v.SubmitActions.Actions))
	case *logv1.Command_CancelActions:
		return max(1, len(v.CancelActions.Ids))
	case *logv1.Command_ReportAttempts:
		return max(1, ReportWeight*len(v.ReportAttempts.Reports))
	case *logv1.Command_ReportEngines:
		return 4 + len(v.ReportEngines.Reports)
	case *logv1.Command_RegisterEngine, *logv1.Command_RemoveEngine:
		return engineWeight
	case *logv1.Command_ReportRewards:
		return min(EntryWeight, 4+rewardWeight*(len(v.ReportRewards.Demands)+len(v.ReportRewards.Replicas)))
	case *logv1.Command_RemoveReward:
		return state.RewardReplicasMax // it cancels as many actions
	case *logv1.Command_ChangeSnapshot, *logv1.Command_PauseTrajectory:
		return snapshotWeight // each looks at all live actions of its trajectory
	case *logv1.Command_ReportFrozen:
		return max(1, ReportWeight*len(v.ReportFrozen.Attempts))
	case *logv1.Command_ReportSnapshots:
		return 4 + len(v.ReportSnapshots.Reports)
	case *logv1.Command_AcquireTurn:
		if v.AcquireTurn.Step > 0 {
			return cycleWeight // whether it is a new step is not known before
		}
	case *logv1.Command_ChangeJob:
		return turnsPerJobMax // it may end as many turns, and build the ledger of a group
	case *logv1.Command_PublishVersion:
		return EntryWeight // all workers and rollouts of its policy are looked at
	case *logv1.Command_TakeBatch:
		return 4 + groupWeight*int(min(v.TakeBatch.Groups, EntryWeight/groupWeight-1))
	case *logv1.Command_ReportGenerations:
		return min(EntryWeight, 4+generationWeight*(len(v.ReportGenerations.Generations)+len(v.ReportGenerations.Workers)))
	case *logv1.Command_PredictGenerations:
		return min(EntryWeight, 4+generationWeight*len(v.PredictGenerations.Predictions))
	case *logv1.Command_MoveGenerations:
		return min(EntryWeight, 4+2*generationWeight*len(v.MoveGenerations.Moves))
	case *logv1.Command_MoveJob:
		return placeCost // the ledger of two groups is built; a plan has 8 at most
	case *logv1.Command_CommitRestore, *logv1.Command_Refound:
		return EntryWeight // alone: nothing that was decided before it in its entry may count
	case *logv1.Command_QuoteHash, *logv1.Command_Tick:
		return 1
	}
	return 4
}
