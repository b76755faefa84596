package model

import (
	"errors"
	"fmt"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// staged is a backup that is being uploaded.
type staged struct {
	upload string
	parts  map[uint32]string
	at     int64 // log time at which the newest part came
}

// restoreIdleNS is how long an upload may stand still.
const restoreIdleNS = 600_000_000_000

// fireStaged drops an upload that stands still.
func (m *Model) fireStaged() {
	if m.staged.upload != "" && m.staged.at+restoreIdleNS <= m.now {
		m.staged = staged{}
	}
}

// errRestored ends the comparison: the model knows what the log says, and a restored state
// came from elsewhere.
var errRestored = errors.New("a backup was restored: the model cannot know what is in it")

// restoreCommand is that of the verbs about backups; false if it is another.
func (m *Model) restoreCommand(c *logv1.Command, got *logv1.Result) (known bool, err error) {
	switch v := c.Verb.(type) {
	case *logv1.Command_StageRestore:
		if m.level < levelResizing {
			return true, refused(got, "LEVEL_NOT_ACTIVE")
		}
		return true, m.stageRestore(v.StageRestore, got)
	case *logv1.Command_CommitRestore:
		if m.level < levelResizing {
			return true, refused(got, "LEVEL_NOT_ACTIVE")
		}
		return true, m.commitRestore(v.CommitRestore, got)
	case *logv1.Command_Refound:
		return true, errRestored
	}
	return false, nil
}

// used says that something was submitted or declared.
func (m *Model) used() bool {
	return m.lastAction > 0 || m.lastTrajectory > 0 || m.lastQuota > 0 || m.lastClass > 0 || m.lastNamespace > 1 ||
		m.lastGeneration > 0 || m.s.Meta().LastJob > 0 || m.s.Meta().LastTurn > 0 || m.s.Meta().LastGroup > 0 ||
		m.s.Meta().LastMigration > 0 || m.snapshots.last > 0 || m.rollouts.last > 0 || len(m.rollouts.policies) > 0 || len(m.workers.all) > 0 ||
		m.s.EngineCount() > 0 || m.s.RewardCount() > 0 || m.s.AccessPolicyCount() > 0 || m.s.AuthMethodCount() > 0 || m.s.AccessTokenCount() > 0
}

func (m *Model) stageRestore(c *logv1.StageRestore, got *logv1.Result) error {
	if c.Number == 0 && len(c.Data) == 0 {
		if m.staged.upload == c.Id {
			m.staged = staged{}
		}
		return result(got, &logv1.Result{})
	}
	var v verdict
	v.refuse(c.Id == "" || len(c.Id) > 64 || c.Number >= 16384 || len(c.Data) == 0 || len(c.Data) > 524288, "INVALID")
	v.refuse(!c.Force && m.used(), "CLUSTER_IN_USE")
	v.refuse(c.Number > 0 && m.staged.upload != c.Id, "RESTORE_SUPERSEDED")
	accepted, err := v.judge(got)
	if !accepted {
		return err
	}
	if m.staged.upload != c.Id {
		m.staged = staged{upload: c.Id, parts: map[uint32]string{}}
	}
	m.staged.parts[c.Number] = string(c.Data)
	m.staged.at = m.now
	return result(got, &logv1.Result{Count: 1})
}

func (m *Model) commitRestore(c *logv1.CommitRestore, got *logv1.Result) error {
	var v verdict
	v.refuse(!c.Force && m.used(), "CLUSTER_IN_USE")
	v.refuse(m.staged.upload != c.Id || c.Id == "" || len(m.staged.parts) != int(c.Parts), "RESTORE_INCOMPLETE")
	v.tolerate(true, "RESTORE_INCOMPLETE") // its checksum is not of the parts
	v.tolerate(true, "BACKUP_UNUSABLE")
	if accepted, err := v.judge(got); !accepted {
		return err
	}
	return errRestored
}

// compareStaged compares the parts that are kept.
func (m *Model) compareStaged() error {
	if got := m.s.RestorePartCount(); got != len(m.staged.parts) {
		return fmt.Errorf("%d parts of a backup are kept, must be %d", got, len(m.staged.parts))
	}
	if due, ok := m.s.RestoreDue(); ok && due != m.staged.at+restoreIdleNS {
		return fmt.Errorf("the upload of a backup is given up at %d, must be at %d", due, m.staged.at+restoreIdleNS)
	}
	for n, data := range m.staged.parts {
		if got, want := m.s.RestorePart(n), (&state.RestorePart{Number: n, Upload: m.staged.upload}); got == nil ||
			got.Number != want.Number || got.At > m.staged.at || got.Upload != want.Upload || string(got.Data) != data {
			return fmt.Errorf("part %d of a backup is not what was uploaded", n)
		}
	}
	return nil
}
