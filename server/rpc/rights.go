package rpc

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/rights"
	"rota/fsm/state"
)

// right is what a call needs: a verb on a noun, in the namespaces that place finds in the
// request.
type right struct {
	noun, verb string
	place      place
	// listed is the field of the rows of an answer by which those are left out that the caller
	// may not read; empty: nothing is left out.
	listed protoreflect.Name
	// renamed: place looks for a name that can be used again, so the server must have caught up.
	renamed bool
	// self: every caller with an identity may, as it is about the caller, or what client libraries
	// need of the cluster.
	self bool
}

// place finds the namespaces that a request is about. known is false if it names something that
// this server does not have. No namespaces: it is about something that belongs to none, or, of a
// list, about all.
type place func(st *state.State, req protoreflect.Message) (namespaces []string, known bool)

// requiredRights has every call but those of agents, of outputs and of other servers, which only
// certificates may make. A test compares it with the descriptors of the services.
var requiredRights = joinRights(actionRights, jobRights, clusterRights, accessRights)

var actionRights = map[string]right{
	rotav1connect.ActionServiceSubmitActionsProcedure:      {noun: "action", verb: rights.Submit, place: named},
	rotav1connect.ActionServiceBatchSubmitActionsProcedure: {noun: "action", verb: rights.Submit, place: ofEachRequest},
	rotav1connect.ActionServiceRunActionProcedure:          {noun: "action", verb: rights.Submit, place: named},
	rotav1connect.ActionServiceGetActionProcedure:          {noun: "action", verb: rights.Read, place: ofActions("id")},
	rotav1connect.ActionServiceReadActionOutputProcedure:   {noun: "action", verb: rights.Read, place: ofActions("action_id")},
	rotav1connect.ActionServiceListActionsProcedure:        {noun: "action", verb: rights.Read, place: filtered, listed: "namespace"},
	rotav1connect.ActionServiceSummarizeActionsProcedure:   {noun: "action", verb: rights.Read, place: filtered, listed: "namespace"},
	rotav1connect.ActionServiceWatchActionsProcedure:       {noun: "action", verb: rights.Read, place: filtered, listed: "namespace"},
	rotav1connect.ActionServiceCancelActionsProcedure:      {noun: "action", verb: rights.Cancel, place: ofActions("ids")},

	rotav1connect.StreamServiceWriteActionInputProcedure:     {noun: "action", verb: rights.Submit, place: ofActions("action_id")},
	rotav1connect.StreamServiceSignalActionProcedure:         {noun: "action", verb: rights.Cancel, place: ofActions("action_id")},
	rotav1connect.StreamServiceResizeActionTerminalProcedure: {noun: "action", verb: rights.Submit, place: ofActions("action_id")},

	rotav1connect.TrajectoryServiceOpenTrajectoryProcedure:   {noun: "trajectory", verb: rights.Submit, place: named},
	rotav1connect.TrajectoryServiceExtendTrajectoryProcedure: {noun: "trajectory", verb: rights.Cancel, place: ofTrajectory("id")},
	rotav1connect.TrajectoryServicePauseTrajectoryProcedure:  {noun: "trajectory", verb: rights.Cancel, place: ofTrajectory("id")},
	rotav1connect.TrajectoryServiceResumeTrajectoryProcedure: {noun: "trajectory", verb: rights.Submit, place: ofTrajectory("id")},
	rotav1connect.TrajectoryServiceCloseTrajectoryProcedure:  {noun: "trajectory", verb: rights.Cancel, place: ofTrajectory("id")},
	rotav1connect.TrajectoryServiceGetTrajectoryProcedure:    {noun: "trajectory", verb: rights.Read, place: ofTrajectory("id")},
	rotav1connect.TrajectoryServiceListTrajectoriesProcedure: {noun: "trajectory", verb: rights.Read, place: filtered, listed: "namespace"},
	rotav1connect.WorkerServiceSuspendGenerationProcedure:    {noun: "trajectory", verb: rights.Submit, place: ofTrajectory("id")},
	rotav1connect.WorkerServiceResumeGenerationProcedure:     {noun: "trajectory", verb: rights.Submit, place: ofTrajectory("id")},

	rotav1connect.UsageServiceGetTrajectoryUsageProcedure: {noun: "trajectory", verb: rights.Read, place: ofTrajectory("trajectory_id")},

	rotav1connect.FileServiceListFilesProcedure:     {noun: "file", verb: rights.Read, place: ofTrajectory("trajectory_id")},
	rotav1connect.FileServiceStatFileProcedure:      {noun: "file", verb: rights.Read, place: ofTrajectory("trajectory_id")},
	rotav1connect.FileServiceReadFileProcedure:      {noun: "file", verb: rights.Read, place: ofTrajectory("trajectory_id")},
	rotav1connect.FileServiceWriteFileProcedure:     {noun: "file", verb: rights.Submit, place: ofTrajectory("trajectory_id")},
	rotav1connect.FileServiceMakeDirectoryProcedure: {noun: "file", verb: rights.Submit, place: ofTrajectory("trajectory_id")},
	rotav1connect.FileServiceMoveFileProcedure:      {noun: "file", verb: rights.Submit, place: ofTrajectory("trajectory_id")},
	rotav1connect.FileServiceRemoveFileProcedure:    {noun: "file", verb: rights.Cancel, place: ofTrajectory("trajectory_id")},

	rotav1connect.ClassServiceGetClassProcedure:    {noun: "class", verb: rights.Read, place: named},
	rotav1connect.ClassServiceListClassesProcedure: {noun: "class", verb: rights.Read, place: filtered, listed: "namespace"},
	rotav1connect.ClassServiceDeleteClassProcedure: {noun: "class", verb: rights.Operate, place: named},

	rotav1connect.MigrationServiceRequestMigrationProcedure: {noun: "migration", verb: rights.Submit, place: named},
	rotav1connect.MigrationServiceGetMigrationProcedure:     {noun: "migration", verb: rights.Read, place: ofMigration},
	rotav1connect.MigrationServiceListMigrationsProcedure:   {noun: "migration", verb: rights.Read, place: filtered, listed: "namespace"},
	rotav1connect.MigrationServiceCancelMigrationProcedure:  {noun: "migration", verb: rights.Cancel, place: ofMigration},

	rotav1connect.SnapshotServiceCreateSnapshotProcedure: {noun: "snapshot", verb: rights.Submit, place: ofTrajectory("trajectory_id")},
	rotav1connect.SnapshotServiceGetSnapshotProcedure:    {noun: "snapshot", verb: rights.Read, place: ofSnapshot},
	rotav1connect.SnapshotServiceListSnapshotsProcedure:  {noun: "snapshot", verb: rights.Read, place: filtered, listed: "namespace"},
	rotav1connect.SnapshotServiceDeleteSnapshotProcedure: {noun: "snapshot", verb: rights.Cancel, place: ofSnapshot},

	rotav1connect.RolloutServiceCreateRolloutProcedure: {noun: "rollout", verb: rights.Submit, place: named},
	rotav1connect.RolloutServiceCloseRolloutProcedure:  {noun: "rollout", verb: rights.Cancel, place: ofRollout},
	rotav1connect.RolloutServiceGetRolloutProcedure:    {noun: "rollout", verb: rights.Read, place: ofRollout},
	rotav1connect.RolloutServiceListRolloutsProcedure:  {noun: "rollout", verb: rights.Read, place: filtered, listed: "namespace"},
	rotav1connect.RolloutServicePutSampleProcedure:     {noun: "rollout", verb: rights.Submit, place: ofTrajectory("trajectory_id")},

	rotav1connect.RolloutServiceGetBatchProcedure:       {noun: "policy", verb: rights.Submit, place: ofPolicy, renamed: true},
	rotav1connect.RolloutServiceSuspendPolicyProcedure:  {noun: "policy", verb: rights.Submit, place: ofPolicy, renamed: true},
	rotav1connect.RolloutServiceResumePolicyProcedure:   {noun: "policy", verb: rights.Submit, place: ofPolicy, renamed: true},
	rotav1connect.RolloutServicePublishVersionProcedure: {noun: "policy", verb: rights.Submit, place: ofPublished, renamed: true},
	rotav1connect.RolloutServiceGetPolicyProcedure:      {noun: "policy", verb: rights.Read, place: ofPolicy, renamed: true},
	rotav1connect.RolloutServiceDeletePolicyProcedure:   {noun: "policy", verb: rights.Operate, place: ofPolicy, renamed: true},
	rotav1connect.RolloutServiceListPoliciesProcedure:   {noun: "policy", verb: rights.Read, place: nowhere, listed: "namespace"},
}

var jobRights = map[string]right{
	rotav1connect.JobServiceSubmitJobProcedure:   {noun: "job", verb: rights.Submit, place: named},
	rotav1connect.JobServiceGetJobProcedure:      {noun: "job", verb: rights.Read, place: named},
	rotav1connect.JobServiceListJobsProcedure:    {noun: "job", verb: rights.Read, place: filtered, listed: "namespace"},
	rotav1connect.JobServiceSuspendJobProcedure:  {noun: "job", verb: rights.Submit, place: named},
	rotav1connect.JobServiceResumeJobProcedure:   {noun: "job", verb: rights.Submit, place: named},
	rotav1connect.JobServiceCompleteJobProcedure: {noun: "job", verb: rights.Cancel, place: named},
	rotav1connect.JobServiceDeleteJobProcedure:   {noun: "job", verb: rights.Cancel, place: named},

	rotav1connect.TurnServiceAcquireTurnProcedure: {noun: "turn", verb: rights.Submit, place: named},
	rotav1connect.TurnServiceRenewTurnProcedure:   {noun: "turn", verb: rights.Submit, place: ofTurn},
	rotav1connect.TurnServiceYieldTurnProcedure:   {noun: "turn", verb: rights.Submit, place: ofTurn},
	rotav1connect.TurnServiceGetTurnProcedure:     {noun: "turn", verb: rights.Read, place: ofTurn},
	rotav1connect.TurnServiceListTurnsProcedure:   {noun: "turn", verb: rights.Read, place: filtered, listed: "namespace"},
}

// clusterRights are those on what belongs to no namespace.
var clusterRights = map[string]right{
	rotav1connect.WorkerServiceRegisterWorkerProcedure:     {noun: "worker", verb: rights.Operate, place: nowhere},
	rotav1connect.WorkerServiceUpdateWorkerProcedure:       {noun: "worker", verb: rights.Submit, place: nowhere},
	rotav1connect.WorkerServiceRemoveWorkerProcedure:       {noun: "worker", verb: rights.Operate, place: nowhere},
	rotav1connect.WorkerServiceGetWorkerProcedure:          {noun: "worker", verb: rights.Read, place: nowhere},
	rotav1connect.WorkerServiceListWorkersProcedure:        {noun: "worker", verb: rights.Read, place: nowhere},
	rotav1connect.WorkerServiceWatchRoutesProcedure:        {noun: "worker", verb: rights.Read, place: nowhere},
	rotav1connect.WorkerServiceReportGenerationsProcedure:  {noun: "worker", verb: rights.Submit, place: nowhere},
	rotav1connect.WorkerServiceRegisterWorkerPoolProcedure: {noun: "worker", verb: rights.Operate, place: nowhere},
	rotav1connect.WorkerServiceGetWorkerPoolProcedure:      {noun: "worker", verb: rights.Read, place: nowhere},
	rotav1connect.WorkerServiceListWorkerPoolsProcedure:    {noun: "worker", verb: rights.Read, place: nowhere},
	rotav1connect.WorkerServiceRemoveWorkerPoolProcedure:   {noun: "worker", verb: rights.Operate, place: nowhere},
	rotav1connect.WorkerServicePlanWorkerPoolProcedure:     {noun: "worker", verb: rights.Operate, place: nowhere},
	rotav1connect.WorkerServiceSetAffinityProcedure:        {noun: "worker", verb: rights.Operate, place: nowhere},
	rotav1connect.WorkerServiceRemoveAffinityProcedure:     {noun: "worker", verb: rights.Operate, place: nowhere},
	rotav1connect.WorkerServiceAdviseRatioProcedure:        {noun: "worker", verb: rights.Read, place: nowhere},
	rotav1connect.WorkerServiceListAffinitiesProcedure:     {noun: "worker", verb: rights.Read, place: nowhere},

	rotav1connect.RewardServiceRegisterRewardProcedure: {noun: "reward", verb: rights.Operate, place: nowhere},
	rotav1connect.RewardServiceUpdateRewardProcedure:   {noun: "reward", verb: rights.Operate, place: nowhere},
	rotav1connect.RewardServiceRemoveRewardProcedure:   {noun: "reward", verb: rights.Operate, place: nowhere},
	rotav1connect.RewardServiceGetRewardProcedure:      {noun: "reward", verb: rights.Read, place: nowhere},
	rotav1connect.RewardServiceListRewardsProcedure:    {noun: "reward", verb: rights.Read, place: nowhere},
	rotav1connect.RewardServiceReportRewardsProcedure:  {noun: "reward", verb: rights.Submit, place: nowhere},

	rotav1connect.NodeServiceGetNodeProcedure:     {noun: "node", verb: rights.Read, place: nowhere},
	rotav1connect.NodeServiceListNodesProcedure:   {noun: "node", verb: rights.Read, place: nowhere},
	rotav1connect.NodeServiceDrainNodeProcedure:   {noun: "node", verb: rights.Operate, place: nowhere},
	rotav1connect.NodeServiceDisableGpusProcedure: {noun: "node", verb: rights.Operate, place: nowhere},
	rotav1connect.NodeServiceEnableGpusProcedure:  {noun: "node", verb: rights.Operate, place: nowhere},
	rotav1connect.NodeServiceRemoveNodeProcedure:  {noun: "node", verb: rights.Operate, place: nowhere},

	rotav1connect.ImageServicePrefetchImageProcedure: {noun: "node", verb: rights.Operate, place: nowhere},

	rotav1connect.QuotaServiceCreateQuotaProcedure: {noun: "quota", verb: rights.Operate, place: nowhere},
	rotav1connect.QuotaServiceUpdateQuotaProcedure: {noun: "quota", verb: rights.Operate, place: nowhere},
	rotav1connect.QuotaServiceGetQuotaProcedure:    {noun: "quota", verb: rights.Read, place: nowhere},
	rotav1connect.QuotaServiceListQuotasProcedure:  {noun: "quota", verb: rights.Read, place: nowhere},
	rotav1connect.QuotaServiceDeleteQuotaProcedure: {noun: "quota", verb: rights.Operate, place: nowhere},

	rotav1connect.LedgerServiceCreateNodeGroupProcedure:     {noun: "ledger", verb: rights.Operate, place: nowhere},
	rotav1connect.LedgerServiceListNodeGroupsProcedure:      {noun: "ledger", verb: rights.Read, place: nowhere},
	rotav1connect.LedgerServiceGetNodeGroupProcedure:        {noun: "ledger", verb: rights.Read, place: nowhere},
	rotav1connect.LedgerServiceSetNodeGroupMembersProcedure: {noun: "ledger", verb: rights.Operate, place: nowhere},
	rotav1connect.LedgerServiceDeleteNodeGroupProcedure:     {noun: "ledger", verb: rights.Operate, place: nowhere},
	rotav1connect.LedgerServiceGetLedgerProcedure:           {noun: "ledger", verb: rights.Read, place: nowhere},
	rotav1connect.LedgerServiceResumeLedgerProcedure:        {noun: "ledger", verb: rights.Operate, place: nowhere},

	rotav1connect.EngineServiceRegisterEngineProcedure: {noun: "engine", verb: rights.Operate, place: nowhere},
	rotav1connect.EngineServiceGetEngineProcedure:      {noun: "engine", verb: rights.Read, place: nowhere},
	rotav1connect.EngineServiceListEnginesProcedure:    {noun: "engine", verb: rights.Read, place: nowhere},
	rotav1connect.EngineServiceRemoveEngineProcedure:   {noun: "engine", verb: rights.Operate, place: nowhere},

	rotav1connect.ResidencyServiceListResidencyProcedure: {noun: "residency", verb: rights.Read, place: nowhere},
	rotav1connect.ResidencyServiceGetResidencyProcedure:  {noun: "residency", verb: rights.Read, place: nowhere},
	rotav1connect.ResidencyServiceExplainModelProcedure:  {noun: "residency", verb: rights.Read, place: nowhere},
	rotav1connect.ResidencyServiceListModelsProcedure:    {noun: "residency", verb: rights.Read, place: nowhere},
	rotav1connect.ResidencyServiceGetModelProcedure:      {noun: "residency", verb: rights.Read, place: nowhere},
	rotav1connect.ResidencyServiceListGpusProcedure:      {noun: "residency", verb: rights.Read, place: nowhere},

	rotav1connect.OperatorServiceGetStatusProcedure:          {noun: "cluster", verb: rights.Read, place: nowhere, self: true},
	rotav1connect.OperatorServiceListPeersProcedure:          {noun: "cluster", verb: rights.Read, place: nowhere},
	rotav1connect.OperatorServiceGetStateHashProcedure:       {noun: "cluster", verb: rights.Read, place: nowhere},
	rotav1connect.OperatorServiceAddPeerProcedure:            {noun: "cluster", verb: rights.Operate, place: nowhere},
	rotav1connect.OperatorServiceMovePeerProcedure:           {noun: "cluster", verb: rights.Operate, place: nowhere},
	rotav1connect.OperatorServiceRemovePeerProcedure:         {noun: "cluster", verb: rights.Operate, place: nowhere},
	rotav1connect.OperatorServiceTransferLeadershipProcedure: {noun: "cluster", verb: rights.Operate, place: nowhere},
	rotav1connect.OperatorServiceTakeSnapshotProcedure:       {noun: "cluster", verb: rights.Operate, place: nowhere},
	rotav1connect.OperatorServiceSaveSnapshotProcedure:       {noun: "cluster", verb: rights.Operate, place: nowhere},
	rotav1connect.OperatorServiceStageRestoreProcedure:       {noun: "cluster", verb: rights.Operate, place: nowhere},
	rotav1connect.OperatorServiceCommitRestoreProcedure:      {noun: "cluster", verb: rights.Operate, place: nowhere},
	rotav1connect.OperatorServiceRaiseLevelProcedure:         {noun: "cluster", verb: rights.Operate, place: nowhere},
	rotav1connect.OperatorServiceGetUpgradeProcedure:         {noun: "cluster", verb: rights.Read, place: nowhere},
	rotav1connect.OperatorServiceGetAutopilotProcedure:       {noun: "cluster", verb: rights.Read, place: nowhere},
	rotav1connect.OperatorServiceListGossipKeysProcedure:     {noun: "cluster", verb: rights.Operate, place: nowhere},
	rotav1connect.OperatorServiceChangeGossipKeysProcedure:   {noun: "cluster", verb: rights.Operate, place: nowhere},
	rotav1connect.OperatorServiceCreateNamespaceProcedure:    {noun: "namespace", verb: rights.Operate, place: nowhere}, // each has a share
	rotav1connect.OperatorServiceDeleteNamespaceProcedure:    {noun: "namespace", verb: rights.Operate, place: called},
	rotav1connect.OperatorServiceUpdateNamespaceProcedure:    {noun: "namespace", verb: rights.Operate, place: nowhere}, // nobody raises their own limits
	rotav1connect.OperatorServiceListNamespacesProcedure:     {noun: "namespace", verb: rights.Read, place: nowhere, listed: "name"},
	rotav1connect.OperatorServiceListPoolsProcedure:          {noun: "pool", verb: rights.Read, place: nowhere},
	rotav1connect.OperatorServiceDeletePoolProcedure:         {noun: "pool", verb: rights.Operate, place: nowhere},
	rotav1connect.OperatorServiceResumePoolProcedure:         {noun: "pool", verb: rights.Operate, place: nowhere},
}

var accessRights = map[string]right{
	rotav1connect.AccessServiceGetAccessProcedure:          {noun: rights.Access, verb: rights.Read, place: nowhere, self: true},
	rotav1connect.AccessServiceSetAccessProcedure:          {noun: rights.Access, verb: rights.Operate, place: nowhere},
	rotav1connect.AccessServiceBootstrapTokenProcedure:     {noun: rights.Access, verb: rights.Operate, place: nowhere},
	rotav1connect.AccessServiceCreateTokenProcedure:        {noun: rights.Access, verb: rights.Operate, place: nowhere},
	rotav1connect.AccessServiceGetTokenProcedure:           {noun: rights.Access, verb: rights.Read, place: nowhere},
	rotav1connect.AccessServiceListTokensProcedure:         {noun: rights.Access, verb: rights.Read, place: nowhere},
	rotav1connect.AccessServiceRevokeTokenProcedure:        {noun: rights.Access, verb: rights.Operate, place: nowhere},
	rotav1connect.AccessServicePutAccessPolicyProcedure:    {noun: rights.Access, verb: rights.Operate, place: nowhere},
	rotav1connect.AccessServiceGetAccessPolicyProcedure:    {noun: rights.Access, verb: rights.Read, place: nowhere},
	rotav1connect.AccessServiceListAccessPoliciesProcedure: {noun: rights.Access, verb: rights.Read, place: nowhere},
	rotav1connect.AccessServiceDeleteAccessPolicyProcedure: {noun: rights.Access, verb: rights.Operate, place: nowhere},
	rotav1connect.AccessServicePutAuthMethodProcedure:      {noun: rights.Access, verb: rights.Operate, place: nowhere},
	rotav1connect.AccessServiceGetAuthMethodProcedure:      {noun: rights.Access, verb: rights.Read, place: nowhere},
	rotav1connect.AccessServiceListAuthMethodsProcedure:    {noun: rights.Access, verb: rights.Read, place: nowhere},
	rotav1connect.AccessServiceDeleteAuthMethodProcedure:   {noun: rights.Access, verb: rights.Operate, place: nowhere},
}

func joinRights(parts ...map[string]right) map[string]right {
	all := map[string]right{}
	for _, part := range parts {
		for procedure, r := range part {
			all[procedure] = r
		}
	}
	return all
}

// nowhere is the place of what belongs to no namespace, or to all.
func nowhere(*state.State, protoreflect.Message) ([]string, bool) { return nil, true }

// named is the namespace that a request names; none is "default".
func named(_ *state.State, req protoreflect.Message) ([]string, bool) {
	return []string{orDefault(text(req, "namespace"))}, true
}

// called is the namespace that has the name in a request.
func called(_ *state.State, req protoreflect.Message) ([]string, bool) {
	return []string{text(req, "name")}, true
}

// filtered is the namespace to which a list is limited, or all.
func filtered(st *state.State, req protoreflect.Message) ([]string, bool) {
	if text(req, "namespace") == allNamespaces {
		return nil, true
	}
	return named(st, req)
}

// ofEachRequest are the namespaces of the parts of a batch.
func ofEachRequest(st *state.State, req protoreflect.Message) (all []string, known bool) {
	parts := req.Get(field(req, "requests")).List()
	for i := range parts.Len() {
		one, _ := named(st, parts.Get(i).Message())
		all = append(all, one...)
	}
	return all, len(all) > 0 // without parts there is nothing to allow
}

// ofActions are the namespaces of the actions in a field, one or several.
func ofActions(name protoreflect.Name) place {
	return func(st *state.State, req protoreflect.Message) (all []string, known bool) {
		for _, id := range numbers(req, name) {
			a := st.Action(state.ActionID(id))
			if a == nil {
				return nil, false
			}
			all = append(all, st.Namespace(a.Namespace).Name)
		}
		return all, len(all) > 0
	}
}

func ofTrajectory(name protoreflect.Name) place {
	return func(st *state.State, req protoreflect.Message) ([]string, bool) {
		t := st.Trajectory(state.TrajectoryID(number(req, name)))
		if t == nil {
			return nil, false
		}
		return []string{st.Namespace(t.Namespace).Name}, true
	}
}

func ofTurn(st *state.State, req protoreflect.Message) ([]string, bool) {
	t := st.Turn(state.TurnID(number(req, "turn_id")))
	if t == nil {
		return nil, false
	}
	id, _ := t.Deployment.Job()
	j := st.Job(id)
	if j == nil {
		return nil, false
	}
	return []string{st.Namespace(j.Namespace).Name}, true
}

func ofMigration(st *state.State, req protoreflect.Message) ([]string, bool) {
	m := st.Migration(state.MigrationID(number(req, "id")))
	if m == nil {
		return nil, false
	}
	return []string{st.Namespace(m.Namespace).Name}, true
}

func ofSnapshot(st *state.State, req protoreflect.Message) ([]string, bool) {
	r := st.FileSnapshot(state.FileSnapshotID(number(req, "id")))
	if r == nil {
		return nil, false
	}
	return []string{st.Namespace(r.Namespace).Name}, true
}

func ofRollout(st *state.State, req protoreflect.Message) ([]string, bool) {
	r := st.Rollout(state.RolloutID(number(req, "id")))
	if r == nil {
		return nil, false
	}
	return []string{st.Namespace(r.Namespace).Name}, true
}

// ofPolicy is the namespace to which a policy belongs. As long as it belongs to none, rights for all
// namespaces are needed.
func ofPolicy(st *state.State, req protoreflect.Message) ([]string, bool) {
	p := st.Policy(text(req, "policy"))
	if p == nil {
		return nil, false
	}
	if owner := ownerName(st, p); owner != "" {
		return []string{owner}, true
	}
	return nil, true
}

// ofPublished is ofPolicy, or for a policy that does not exist the namespace that it is to have.
func ofPublished(st *state.State, req protoreflect.Message) ([]string, bool) {
	namespaces, known := ofPolicy(st, req)
	if ns := text(req, "namespace"); !known && ns != "" {
		return []string{ns}, true
	}
	return namespaces, true
}

func field(m protoreflect.Message, name protoreflect.Name) protoreflect.FieldDescriptor {
	return m.Descriptor().Fields().ByName(name)
}

func text(m protoreflect.Message, name protoreflect.Name) string {
	return m.Get(field(m, name)).String()
}

func number(m protoreflect.Message, name protoreflect.Name) uint64 {
	return m.Get(field(m, name)).Uint()
}

// numbers are those of a field that has one, or a list.
func numbers(m protoreflect.Message, name protoreflect.Name) (all []uint64) {
	fd := field(m, name)
	if !fd.IsList() {
		return []uint64{m.Get(fd).Uint()}
	}
	list := m.Get(fd).List()
	for i := range list.Len() {
		all = append(all, list.Get(i).Uint())
	}
	return all
}

// leaveOut takes the rows out of an answer that the caller may not read, and reports whether it
// took out any. A row is a message in a list that has the field by which rows are told apart.
func (r right) leaveOut(resp proto.Message, may rights.Set) (some bool) {
	if r.listed == "" || may.Allows(r.noun, r.verb, "") {
		return false
	}
	m := resp.ProtoReflect()
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !fd.IsList() || fd.Message() == nil || fd.Message().Fields().ByName(r.listed) == nil || !m.Has(fd) {
			continue
		}
		list, kept := m.Mutable(fd).List(), 0
		for j := range list.Len() {
			if row := list.Get(j); may.Allows(r.noun, r.verb, text(row.Message(), r.listed)) {
				list.Set(kept, row)
				kept++
			}
		}
		some = some || kept < list.Len()
		list.Truncate(kept)
	}
	return some
}
