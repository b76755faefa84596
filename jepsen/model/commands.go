package model

import (
	"fmt"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

const defaultName = "default"

func orDefault(name string) string {
	if name == "" {
		return defaultName
	}
	return name
}

// command predicts the result of a command of the entry and does what it must have done.
func (m *Model) command(i int, c *logv1.Command, got *logv1.Result) error {
	if m.commandPlanted(i) {
		return refused(got, "COMMAND_FAILED")
	}
	if _, ok := c.Verb.(*logv1.Command_Bootstrap); !ok && m.cluster == "" {
		return refused(got, "NOT_BOOTSTRAPPED")
	}
	switch {
	case c.Token != "" && m.level < levelResizing:
		return refused(got, "LEVEL_NOT_ACTIVE")
	case !m.valid(c.Token):
		return refused(got, "TOKEN_INVALID", "LEVEL_NOT_ACTIVE")
	}
	switch v := c.Verb.(type) {
	case *logv1.Command_Bootstrap:
		return m.bootstrap(v.Bootstrap, got)
	case *logv1.Command_SubmitActions:
		return m.submit(v.SubmitActions, got)
	case *logv1.Command_CancelActions:
		return m.cancelActions(v.CancelActions, got)
	case *logv1.Command_OpenTrajectory:
		return m.open(v.OpenTrajectory, got)
	case *logv1.Command_CloseTrajectory:
		return m.close(v.CloseTrajectory, got)
	case *logv1.Command_ExtendTrajectory:
		return m.extend(v.ExtendTrajectory, got)
	case *logv1.Command_PauseTrajectory:
		return m.pausing(v.PauseTrajectory, got)
	case *logv1.Command_ReportFrozen:
		return m.froze(v.ReportFrozen, got)
	case *logv1.Command_RegisterNode:
		return m.register(v.RegisterNode, got)
	case *logv1.Command_ReportAttempts:
		return m.report(v.ReportAttempts, got)
	case *logv1.Command_ExpireNode:
		return m.expireNode(v.ExpireNode, got)
	case *logv1.Command_DrainNode:
		return m.drain(v.DrainNode, got)
	case *logv1.Command_ReportDisk:
		return m.reportDisk(v.ReportDisk, got)
	case *logv1.Command_RemoveNode:
		return m.removeNode(v.RemoveNode, got)
	case *logv1.Command_CreateNamespace:
		return m.createNamespace(v.CreateNamespace, got)
	case *logv1.Command_DeleteNamespace:
		return m.deleteNamespace(v.DeleteNamespace, got)
	case *logv1.Command_DeletePool:
		return m.deletePool(v.DeletePool, got)
	case *logv1.Command_ResumePool:
		return m.resumePool(v.ResumePool, got)
	case *logv1.Command_RaiseLevel:
		return m.raiseLevel(v.RaiseLevel, got)
	case *logv1.Command_DeleteClass:
		return m.deleteClass(v.DeleteClass, got)
	case *logv1.Command_CreateQuota:
		return m.createQuota(v.CreateQuota, got)
	case *logv1.Command_UpdateQuota:
		return m.updateQuota(v.UpdateQuota, got)
	case *logv1.Command_DeleteQuota:
		return m.deleteQuota(v.DeleteQuota, got)
	}
	return m.engineCommand(c, got)
}

// engineCommand is that of the verbs about engines.
func (m *Model) engineCommand(c *logv1.Command, got *logv1.Result) error {
	switch v := c.Verb.(type) {
	case *logv1.Command_RegisterEngine:
		return m.registerEngine(v.RegisterEngine, got)
	case *logv1.Command_RemoveEngine:
		return m.removeEngine(v.RemoveEngine, got)
	case *logv1.Command_ReportGpus:
		return m.reportGPUs(v.ReportGpus, got)
	case *logv1.Command_ReportEngines:
		return m.reportEngines(v.ReportEngines, got)
	}
	if known, err := m.migrationCommand(c, got); known {
		return err
	}
	if known, err := m.snapshotCommand(c, got); known {
		return err
	}
	if known, err := m.restoreCommand(c, got); known {
		return err
	}
	if known, err := m.workerCommand(c, got); known {
		return err
	}
	if known, err := m.rewardCommand(c, got); known {
		return err
	}
	if known, err := m.rolloutCommand(c, got); known {
		return err
	}
	if known, err := m.accessCommand(c, got); known {
		return err
	}
	if c.GetUpdateNamespace() != nil {
		return m.updateNamespace(c.GetUpdateNamespace(), got)
	}
	return m.ledgerCommand(c, got)
}

// ledgerCommand is that of the verbs about node groups, jobs and turns.
func (m *Model) ledgerCommand(c *logv1.Command, got *logv1.Result) error {
	switch v := c.Verb.(type) {
	case *logv1.Command_CreateNodeGroup:
		return m.createNodeGroup(v.CreateNodeGroup, got)
	case *logv1.Command_SetGroupMembers:
		return m.setGroupMembers(v.SetGroupMembers, got)
	case *logv1.Command_DeleteNodeGroup:
		return m.deleteNodeGroup(v.DeleteNodeGroup, got)
	case *logv1.Command_ResumeLedger:
		return m.resumeLedger(got)
	case *logv1.Command_SubmitJob:
		return m.submitJob(v.SubmitJob, got)
	case *logv1.Command_ChangeJob:
		return m.changeJob(v.ChangeJob, got)
	case *logv1.Command_MoveJob:
		return m.moveJob(v.MoveJob, got)
	case *logv1.Command_AcquireTurn:
		return m.acquireTurn(v.AcquireTurn, got)
	case *logv1.Command_EndTurn:
		return m.endTurn(v.EndTurn, got)
	case *logv1.Command_SubmitHook:
		return m.submitHook(v.SubmitHook, got)
	case *logv1.Command_EndContextSwitch:
		return m.endContextSwitch(v.EndContextSwitch, got)
	case *logv1.Command_QuoteHash, *logv1.Command_Tick:
		return result(got, &logv1.Result{})
	}
	return refused(got, "UNKNOWN_VERB")
}

// result compares an accepted command's result with the one it must have.
func result(got, want *logv1.Result) error {
	if r := got.Refusal; r != nil {
		return fmt.Errorf("refused with %s, although nothing forbids it: %s", r.Reason, r.Message)
	}
	if got.FirstId != want.FirstId || got.Count != want.Count || got.Replayed != want.Replayed || got.Incarnation != want.Incarnation {
		return fmt.Errorf("answered ID %d, count %d, replayed %v, incarnation %d, must be %d, %d, %v, %d",
			got.FirstId, got.Count, got.Replayed, got.Incarnation, want.FirstId, want.Count, want.Replayed, want.Incarnation)
	}
	return nil
}

// codes are the Connect codes of refusals.
var codes = map[string]uint32{
	"INVALID": 3, "UNSATISFIABLE": 3, "UNKNOWN_VERB": 3,
	"REQUEST_EXPIRED":  4,
	"COMMAND_FAILED":   13,
	"ACTION_NOT_FOUND": 5, "TRAJECTORY_NOT_FOUND": 5, "NODE_NOT_FOUND": 5, "NAMESPACE_NOT_FOUND": 5, "POOL_NOT_FOUND": 5,
	"QUOTA_NOT_FOUND": 5, "CLASS_NOT_FOUND": 5, "NODE_GROUP_NOT_FOUND": 5, "JOB_NOT_FOUND": 5, "TURN_NOT_FOUND": 5,
	"ENGINE_NOT_FOUND": 5, "TOO_MANY_ENGINES": 8,
	"PAUSE_HOLDS_GPUS": 9, "NODE_CANNOT_FREEZE": 9, "SNAPSHOT_NOT_FOUND": 5, "TOO_MANY_SNAPSHOTS": 8, "NODE_FULL": 8, "TRAJECTORY_PENDING": 9, "TRAJECTORY_BUSY": 9, "SNAPSHOT_LOST": 9, "SNAPSHOT_NOT_READY": 9, "NODE_DRAINED": 9,
	"NODE_GROUP_EXISTS": 6, "JOB_EXISTS": 6,
	"TOO_MANY_NODE_GROUPS": 8, "TOO_MANY_JOBS": 8, "TOO_MANY_DEPLOYMENTS": 8, "TOO_MANY_TURNS": 8,
	"NODE_GROUP_IN_USE": 9, "GPUS_TAKEN": 9, "NODE_GROUP_TOO_NARROW": 9, "TOO_FEW_SPARES": 9, "JOB_STATE": 9, "MOVE_REFUSED": 9, "TURN_FENCED": 9, "TURN_ENDED": 9, "TURN_WAITING": 9, "TURN_SETTING_UP": 9, "CONTEXT_SWITCH_OVER": 9,
	"REQUEST_MISMATCH": 6, "NAMESPACE_EXISTS": 6, "QUOTA_EXISTS": 6,
	"QUEUE_FULL": 8, "NAMESPACE_QUEUE_FULL": 8, "TOO_MANY_TRAJECTORIES": 8, "NAMESPACE_TRAJECTORIES_FULL": 8, "NAMESPACE_MEMORY_FULL": 8, "TOO_MANY_NAMESPACES": 8, "TOO_MANY_REQUESTS": 8, "TRAJECTORY_FULL": 8,
	"TOO_MANY_QUOTAS": 8, "TOO_MANY_CLASSES": 8, "TOO_MANY_GPU_CLASSES": 8, "TOO_MANY_SPREAD_LABELS": 8,
	"TRAJECTORY_ENDED": 9, "NODE_NAME_TAKEN": 9, "NODE_UP": 9, "BOOTSTRAPPED": 9, "LEVEL_ACTIVE": 9, "LEVEL_NOT_ACTIVE": 9, "QUOTA_IN_USE": 9, "CLASS_IN_USE": 9,
	"POOL_IN_USE": 9, "NAMESPACE_IN_USE": 9, "TOO_MANY_POOLS": 8, "TOO_MANY_NODES": 8,
	"REWARD_NOT_FOUND": 5, "TOO_MANY_REWARDS": 8, "REWARD_CHANGED": 9,
	"AFFINITY_NOT_FOUND": 5, "TOO_MANY_AFFINITIES": 8, "WORKER_NOT_FOUND": 5, "TOO_MANY_WORKERS": 8, "NO_GENERATION": 9,
	"WORKER_POOL_NOT_FOUND": 5, "TOO_MANY_WORKER_POOLS": 8, "PLAN_OUTDATED": 9, "POLICY_IN_USE": 9,
	"WORKER_POOL_MEMBER_NOT_FOUND": 5, "WORKER_POOL_MEMBER_LEAVES": 9, "WORKER_POOL_MEMBER_BUSY": 9,
	"MIGRATION_NOT_FOUND": 5, "TOO_MANY_MIGRATIONS": 8, "NO_CACHE": 9,
	"ROLLOUT_NOT_FOUND": 5, "POLICY_NOT_FOUND": 5, "POLICY_NOT_OWNED": 7, "TOO_MANY_ROLLOUTS": 8, "TOO_MANY_POLICIES": 8, "TOO_MANY_SAMPLES": 8, "BATCH_TOO_LARGE": 3,
	"ROLLOUT_CLOSED": 9, "GROUP_COMPLETE": 9, "GROUP_FULL": 9, "NO_ROLLOUT": 9, "VERSION_OLD": 9, "STEP_WRONG": 9, "GROUPS_MISSING": 9,
	"CLUSTER_IN_USE": 9, "RESTORE_SUPERSEDED": 9, "RESTORE_INCOMPLETE": 9, "BACKUP_UNUSABLE": 3,
	"ROLLOUT_HALTED": 9, "REVIEW_PENDING": 14,
	"ACCESS_POLICY_NOT_FOUND": 5, "AUTH_METHOD_NOT_FOUND": 5, "TOKEN_NOT_FOUND": 5, "TOKEN_EXISTS": 6, "TOKEN_INVALID": 16,
	"TOO_MANY_ACCESS_POLICIES": 8, "TOO_MANY_AUTH_METHODS": 8, "TOO_MANY_TOKENS": 8, "ACCESS_BOOTSTRAPPED": 9, "ACCESS_NOT_BOOTSTRAPPED": 9,
	"NODE_TEARDOWN": 14, "NOT_BOOTSTRAPPED": 14,
}

// refused checks that a command was refused, for one of these reasons.
func refused(got *logv1.Result, reasons ...string) error {
	r := got.Refusal
	switch {
	case r == nil:
		return fmt.Errorf("accepted, must be refused with %v", reasons)
	case !slices.Contains(reasons, r.Reason) || r.Code != codes[r.Reason]:
		return fmt.Errorf("refused with %s (code %d): %s; must be one of %v", r.Reason, r.Code, r.Message, reasons)
	case r.Message == "":
		return fmt.Errorf("refused with %s and no word what to do", r.Reason)
	case got.FirstId != 0 || got.Count != 0 || got.Replayed || got.Incarnation != 0:
		return fmt.Errorf("refused with %s and yet answered", r.Reason)
	}
	return nil
}

// verdict collects why a command must be refused, or may be where the documents
// leave room.
type verdict struct{ must, may []string }

func (v *verdict) refuse(when bool, reason string) {
	if when {
		v.must = append(v.must, reason)
	}
}

// tolerate allows a refusal without asking for it.
func (v *verdict) tolerate(when bool, reason string) {
	if when {
		v.may = append(v.may, reason)
	}
}

// judge reports whether the command was accepted, rightly.
func (v *verdict) judge(got *logv1.Result) (accepted bool, err error) {
	if len(v.must) > 0 || got.Refusal != nil && slices.Contains(v.may, got.Refusal.Reason) {
		return false, refused(got, append(v.must, v.may...)...)
	}
	return true, nil
}

func (m *Model) bootstrap(c *logv1.Bootstrap, got *logv1.Result) error {
	switch {
	case m.cluster == c.ClusterId && m.cluster != "":
		return result(got, &logv1.Result{Replayed: true})
	case m.cluster != "":
		return refused(got, "BOOTSTRAPPED")
	case c.ClusterId == "" || len(c.ClusterId) > nameBytesMax:
		return refused(got, "INVALID")
	}
	m.cluster = c.ClusterId
	meta := m.s.Meta()
	m.settings, m.level = meta.Settings, c.Level
	if m.level == 0 {
		m.level = 2
	}
	if err := settingsKept(c.Settings, meta.Settings); err != nil {
		return err
	}
	m.lastNamespace = 1
	m.namespaces[defaultName] = 1
	m.poolNamed(defaultName)
	return result(got, &logv1.Result{Count: 1})
}

// settingsKept: what was given is what holds, and nothing is without a limit.
func settingsKept(c *logv1.Settings, s state.Settings) error {
	for _, x := range []struct {
		name        string
		given, have int64
	}{
		{"lease", c.GetLeaseNs(), s.LeaseNS},
		{"lease margin", c.GetLeaseMarginNs(), s.LeaseMarginNS},
		{"queued actions", int64(c.GetQueueActionsMax()), int64(s.QueueActionsMax)},
		{"queued bytes", int64(c.GetQueueBytesMax()), int64(s.QueueBytesMax)},
		{"trajectories", int64(c.GetTrajectoriesMax()), int64(s.TrajectoriesMax)},
		{"retention", c.GetRetentionNs(), s.RetentionNS},
		{"retained bytes", int64(c.GetRetentionBytesMax()), int64(s.RetentionBytesMax)},
		{"events", int64(c.GetEventsMax()), int64(s.EventsMax)},
		{"bypasses", int64(c.GetBypassMax()), int64(s.BypassMax)},
		{"time of bypasses", c.GetBypassNsMax(), s.BypassNSMax},
		{"request IDs", int64(c.GetRequestsMax()), int64(s.RequestsMax)},
		{"slot", c.GetLedgerSlotNs(), s.LedgerSlotNS},
		{"slots", c.GetLedgerSlots(), s.LedgerSlots},
		{"stretch", c.GetLedgerStretchPpm(), s.LedgerStretchPPM},
		{"duty", c.GetLedgerDutyPpm(), s.LedgerDutyPPM},
		{"placement policy", int64(c.GetLedgerPolicy()), int64(s.LedgerPolicy)},
	} {
		if x.have <= 0 || x.given != 0 && x.given != x.have {
			return fmt.Errorf("setting %s was given as %d and is %d", x.name, x.given, x.have)
		}
	}
	return nil
}

func (m *Model) createNamespace(c *logv1.CreateNamespace, got *logv1.Result) error {
	var v verdict
	v.refuse(c.Name == "" || len(c.Name) > nameBytesMax, "INVALID")
	v.refuse(m.namespaces[c.Name] != 0, "NAMESPACE_EXISTS")
	v.refuse(len(m.namespaces) >= namespacesMax, "TOO_MANY_NAMESPACES")
	if ok, err := v.judge(got); !ok {
		return err
	}
	m.lastNamespace++
	m.namespaces[c.Name] = m.lastNamespace
	return result(got, &logv1.Result{Count: 1})
}

func (m *Model) poolNamed(name string) *pool {
	name = orDefault(name)
	p := m.pools[name]
	if p == nil {
		m.lastPool++
		p = &pool{id: m.lastPool, name: name}
		m.pools[name], m.poolByID[p.id] = p, p
	}
	return p
}

func (m *Model) resumePool(c *logv1.ResumePool, got *logv1.Result) error {
	p := m.pools[c.Name]
	if p == nil {
		return refused(got, "POOL_NOT_FOUND")
	}
	count := uint32(0)
	if p.halted {
		count = 1
	}
	p.halted = false
	m.touchPool(p)
	m.onlyArrivals = false
	return result(got, &logv1.Result{Count: count})
}

func (m *Model) raiseLevel(c *logv1.RaiseLevel, got *logv1.Result) error {
	if c.Level <= m.level {
		return refused(got, "LEVEL_ACTIVE")
	}
	m.level = c.Level
	return result(got, &logv1.Result{Count: 1})
}
