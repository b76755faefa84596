package fsm

import "rota/fsm/state"

// EffectKind says what an effect is about.
type EffectKind uint8

// Kinds of effects. They are hints: state is the truth.
const (
	// EffectNode says that the desired state of Node changed.
	EffectNode EffectKind = 1 + iota
	// EffectEvents says that there are new events.
	EffectEvents
	// EffectRestored says that the whole state was replaced.
	EffectRestored
	// EffectCheckpoint says that Hash is the state hash at Index and should be
	// quoted.
	EffectCheckpoint
	// EffectRoute says that the route of Trajectory changed, EffectWorker that the worker Name
	// did, EffectPolicy that the requests of the policy Name are held or go on.
	EffectRoute
	EffectWorker
	EffectPolicy
	// EffectPolicies says that a policy changed, or that groups of one became complete.
	EffectPolicies
	// EffectResized says that a running attempt of Node was given other cores.
	EffectResized
	// EffectReward says that the reward function Name or one of its replicas changed.
	EffectReward
	// EffectUploadExpired says that the upload Name of a backup was dropped, with Index parts.
	EffectUploadExpired
	// EffectPlaced says that a trajectory with a container got Node.
	EffectPlaced
)

// Effect names something that became dirty.
type Effect struct {
	Kind        EffectKind
	Node        state.NodeID
	Index, Hash uint64
	Trajectory  state.TrajectoryID
	Name        string
}
