package fsm

import (
	"errors"
	"fmt"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// stageRestore keeps a part of a backup. It replaces nothing: commitRestore does, in one
// entry, so a server that is killed at any moment has the old state or the new one.
func (x *execution) stageRestore(c *logv1.StageRestore) *logv1.Result {
	first := x.s.RestorePart(0)
	switch {
	case c.Number == 0 && len(c.Data) == 0:
		if first != nil && first.Upload == c.Id { // not those of an upload that took its place
			x.s.DropRestoreParts()
		}
		return &logv1.Result{}
	case c.Id == "" || len(c.Id) > state.UploadBytesMax || c.Number >= state.RestorePartsMax || len(c.Data) == 0 || len(c.Data) > state.RestorePartBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "a part of a backup needs an ID of at most %d bytes, a number below %d and 1 to %d bytes",
			state.UploadBytesMax, state.RestorePartsMax, state.RestorePartBytesMax)
	case !c.Force && !x.s.Unused():
		return refuseRestore()
	case c.Number > 0 && (first == nil || first.Upload != c.Id):
		return refuse(codeFailedPrecondition, "RESTORE_SUPERSEDED", "the upload was given up, stood still for 10 minutes, or another one began since: begin again with part 0")
	case c.Number == 0 && (first == nil || first.Upload != c.Id):
		x.s.DropRestoreParts()
	}
	x.s.PutRestorePart(&state.RestorePart{Number: c.Number, Upload: c.Id, Data: c.Data, At: x.now()})
	return &logv1.Result{Count: 1}
}

// expireRestore drops the parts of an upload that stands still, so that an abandoned one takes no
// memory and no snapshot for ever.
func (x *execution) expireRestore() {
	if due, ok := x.s.RestoreDue(); ok && due <= x.now() {
		x.effects = append(x.effects, Effect{Kind: EffectUploadExpired, Name: x.s.RestorePart(0).Upload, Index: uint64(x.s.RestorePartCount())})
		x.s.DropRestoreParts()
	}
}

func refuseRestore() *logv1.Result {
	return refuse(codeFailedPrecondition, "CLUSTER_IN_USE",
		"a backup is restored into a new cluster, and this one has been used: found a new one, or give --force to replace all that is here")
}

// commitRestore replaces the state by that of the staged backup. The entry has no other
// command (see Weight).
func (x *execution) commitRestore(c *logv1.CommitRestore) *logv1.Result {
	if o := &x.s.Meta().Origin; o.Upload == c.Id && c.Id != "" {
		return &logv1.Result{Replayed: true}
	}
	if !c.Force && !x.s.Unused() {
		return refuseRestore()
	}
	backup, sum, err := x.s.Staged(c.Id, c.Parts)
	if err != nil {
		return refuse(codeFailedPrecondition, "RESTORE_INCOMPLETE", "%v: upload it again", err)
	}
	if sum != c.Sum {
		return refuse(codeFailedPrecondition, "RESTORE_INCOMPLETE", "the parts have the checksum %016x, not %016x: upload them again", sum, c.Sum)
	}
	restored, err := RestoreBackup(backup)
	if beyond := (*state.Beyond)(nil); errors.As(err, &beyond) {
		panic(beyond)
	}
	if err != nil {
		return refuse(codeInvalidArgument, "BACKUP_UNUSABLE", "the backup cannot be restored: %v", err)
	}
	m := restored.Meta()
	if m.ClusterID == "" || m.Level < state.LevelMin {
		return refuse(codeInvalidArgument, "BACKUP_UNUSABLE", "the backup is not of a cluster, or of a release before feature levels")
	}
	x.deciders.mustKnow(m.Level, m.Release)
	return &logv1.Result{Count: x.adopt(restored, c.Id)}
}

// adopt goes on with another state instead of its own, in the same cluster, and returns how
// many attempts ran in it.
func (x *execution) adopt(s *state.State, upload string) (running uint32) {
	own, m := *x.s.Meta(), *s.Meta()
	m.Origin = state.Origin{Kind: state.OriginRestored, Upload: upload, Cluster: m.ClusterID, Index: m.Applied, At: max(m.Now, own.Now)}
	m.Applied = x.index
	if own.Level > m.Level {
		m.Level, m.Release = own.Level, own.Release
	}
	s.SetMeta(m)
	s.DropRestoreParts() // a backup that was made while another one was uploaded
	s.Refound(own.ClusterID, own)
	// Nothing that the timers of this entry touched exists any more.
	*x = execution{
		s: s, index: x.index, results: x.results, faults: x.faults, stage: x.stage, fail: x.fail, deciders: x.deciders, budget: x.budget,
		effects: []Effect{{Kind: EffectRestored}},
	}
	return x.fence()
}

// recover gives a state that was found on the disk of one server another identity.
func (x *execution) recover(c *logv1.Refound) *logv1.Result {
	if c.ClusterId == "" || len(c.ClusterId) > nameBytesMax || c.ClusterId == x.s.Meta().ClusterID {
		return refuse(codeInvalidArgument, "INVALID", "a recovered cluster needs a new ID of 1 to %d bytes", nameBytesMax)
	}
	m := *x.s.Meta()
	m.Origin = state.Origin{Kind: state.OriginRecovered, Cluster: m.ClusterID, Index: c.Index, At: m.Now}
	x.s.SetMeta(m)
	x.s.DropRestoreParts()
	x.s.Refound(c.ClusterId)
	return &logv1.Result{Count: x.fence()}
}

// fence gives up everything that was started before the state came into its cluster: it may
// go on somewhere, and its agents and holders may have been told since what this state does
// not know. It returns how many attempts there are; they are settled by later entries, as
// those of a lost node.
func (x *execution) fence() (running uint32) {
	var turns []*logv1.EndTurn
	x.s.Turns(0, func(t *state.Turn) bool {
		if t.State.Live() {
			turns = append(turns, &logv1.EndTurn{TurnId: uint64(t.ID), Token: t.Token, Reason: endLost})
		}
		return true
	})
	for _, t := range turns {
		r := x.endTurn(t)
		state.Assert(r.Refusal == nil, "turn %d cannot be given up: %v", t.TurnId, r.Refusal)
	}
	var up []state.NodeID
	x.s.Nodes(0, func(n *state.Node) bool {
		running += n.Running
		if n.State == state.NodeUp {
			up = append(up, n.ID)
		}
		return true
	})
	for _, id := range up {
		x.giveUpNode(id, false)
	}
	return running
}

// whyFenced says why attempts are lost that were started before the state came into its
// cluster.
func (x *execution) whyFenced() string {
	o := &x.s.Meta().Origin
	if o.Kind == state.OriginRecovered {
		return fmt.Sprintf("it ran when a majority of cluster %s was lost", o.Cluster)
	}
	return fmt.Sprintf("it ran when the backup of cluster %s was made", o.Cluster)
}

// RecoveredLevel is the least feature level of a recovered state: it has fields of that.
const RecoveredLevel = sched.LevelResizing
