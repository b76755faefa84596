package telemetry

// Actions, as the entries that a server applies tell. Counters and histograms count what was
// applied since the server started, without the entries that were in its log before. All
// servers apply the same entries: take the maximum over servers, not the sum.
var (
	ActionsQueued  = define(Server, Gauge, "rota_actions_queued", "Actions that wait.")
	ActionsRunning = define(Server, Gauge, "rota_actions_running", "Actions that run.")
	QueueBytes     = define(Server, Gauge, "rota_queue_bytes", "Bytes of queued actions.")

	ActionsSubmitted = define(Server, Counter, "rota_actions_submitted_total", "Submitted actions.", "pool")
	ActionsRequeued  = define(Server, Counter, "rota_actions_requeued_total", "Actions that wait again because an attempt was lost.", "pool")
	ActionsEnded     = define(Server, Counter, "rota_actions_ended_total", "Ended actions, by final state and reason.", "state", "reason")
	AttemptsStarted  = define(Server, Counter, "rota_attempts_started_total", "Attempts that were granted a node: the decisions to start something.", "pool")
	AttemptsResized  = define(Server, Counter, "rota_attempts_resized_total", "Decisions to give a running attempt other cores.")
	ActionPhase      = define(Server, Histogram, "rota_action_phase_duration_seconds",
		"Where the time of actions goes. queue: submission to grant, of first attempts. execution: the command itself. overhead: the rest between the grant and the end, of actions whose command ran.", "phase")
	TurnWait     = define(Server, Histogram, "rota_turn_wait_duration_seconds", "Time that turns waited for their node group.")
	EventsMissed = define(Server, Counter, "rota_events_missed_total",
		"Events that these counters missed: they were dropped from the state before they were counted, or came with a snapshot.")
)

// Trajectories, nodes and what nodes have.
var (
	TrajectoriesOpen = define(Server, Gauge, "rota_trajectories_open", "Trajectories that have not ended.")
	Nodes            = define(Server, Gauge, "rota_nodes", "Nodes, by state: up, draining (up, but takes no new work) or down.", "pool", "state")
	NodesExpired     = define(Server, Counter, "rota_nodes_expired_total", "Nodes that were given up: their lease ended, or their agent registered as another.")
	NodesReserved    = define(Server, Gauge, "rota_nodes_reserved", "Nodes that are reserved for an action which could not start for long.", "pool")
	Cores            = define(Server, Gauge, "rota_cores", "Cores of nodes that are up.", "pool")
	CoresAllocated   = define(Server, Gauge, "rota_cores_allocated", "Cores of these nodes that attempts have.", "pool")
	Memory           = define(Server, Gauge, "rota_memory_bytes", "Memory of nodes that are up.", "pool")
	MemoryReserved   = define(Server, Gauge, "rota_memory_reserved_bytes", "Memory of these nodes that trajectories and actions have reserved.", "pool")
	PoolHalted       = define(Server, Gauge, "rota_pool_halted", "1 while nothing starts in the pool because a decision failed.", "pool")

	GPUs         = define(Server, Gauge, "rota_gpus", "GPUs of nodes that are up.", "pool", "class")
	GPUsUsed     = define(Server, Gauge, "rota_gpus_allocated", "GPUs of these nodes that actions and turns have.", "pool", "class")
	GPUsOutOfUse = define(Server, Gauge, "rota_gpus_out_of_use", "GPUs of these nodes that are sick or disabled.", "pool", "class")
	GPUsWaiting  = define(Server, Gauge, "rota_gpu_waiting_actions", "Actions that wait for GPUs of the class.", "pool", "class")
	Residents    = define(Server, Gauge, "rota_resident_models", "Models in GPU memory, counted once for each chunk that has one.")
	ResidentSize = define(Server, Gauge, "rota_resident_bytes", "GPU memory that these models take.")
	Engines      = define(Server, Gauge, "rota_engines", "Engines of models, by what their agents said last.", "state")
	Migrations   = define(Server, Gauge, "rota_migrations", "Migrations of KV caches: queued, running, and ended ones that are retained.", "state")
)

// Quotas: of the first QuotasMax.
var (
	QuotaLimit     = define(Server, Gauge, "rota_quota_limit_units", "Units of the quota, of all its keys.", "quota")
	QuotaHeld      = define(Server, Gauge, "rota_quota_held_units", "Units that actions hold.", "quota")
	QuotaWindow    = define(Server, Gauge, "rota_quota_window_units", "Units of ended calls whose window has not passed. The sum of held and window units is above the limit only after the limit was lowered, or after calls used more than they expected to.", "quota")
	QuotaWaiting   = define(Server, Gauge, "rota_quota_waiting_actions", "Actions whose next wait is for the quota.", "quota")
	QuotaEffective = define(Server, Gauge, "rota_quota_effective_limit_units", "Units of all keys that may be in use now: fewer than rota_quota_limit_units after refused calls.", "quota")
	QuotaPaused    = define(Server, Gauge, "rota_quota_paused", "1 while the provider has asked to wait with all keys.", "quota")
	QuotaHalted    = define(Server, Gauge, "rota_quota_halted", "1 while the quota gives nothing because a decision failed.", "quota")
	QuotaThrottled = define(Server, Counter, "rota_quota_throttled_attempts_total", "Attempts that the provider refused calls of.", "quota")
	QuotaOverdrawn = define(Server, Gauge, "rota_quota_overdrawn_units", "Units in use beyond the limit: calls used more than they expected to, or the limit was lowered.", "quota")
	QuotaSettled   = define(Server, Counter, "rota_quota_settled_attempts_total", "Attempts that said what they really used.", "quota")
	QuotaUsed      = define(Server, Counter, "rota_quota_settled_units_total", "Units that these attempts really used.", "quota")
)

// The ledger: of the first GroupsMax and JobsMax.
var (
	Jobs          = define(Server, Gauge, "rota_jobs", "Training jobs, by state.", "state")
	Turns         = define(Server, Gauge, "rota_turns", "Turns that are not over, by state.", "state")
	GroupHeld     = define(Server, Gauge, "rota_node_group_held", "1 while a turn holds the group. Its average over time is the utilization of the group.", "group")
	GroupHalted   = define(Server, Gauge, "rota_node_group_halted", "1 while the group gets no grants because a decision failed.", "group")
	JobHeld       = define(Server, Counter, "rota_job_held_seconds_total", "Time for which a job has held node groups, in turns that are over.", "namespace", "job")
	LedgerHalted  = define(Server, Gauge, "rota_ledger_halted", "1 while no job is placed because a decision failed.")
	TurnsEnded    = define(Server, Counter, "rota_turns_ended_total", "Turns that ended: yielded, lost or canceled.", "state")
	GroupsInTotal = define(Server, Gauge, "rota_node_groups", "Node groups.")
)

// Rollouts: of the first PoliciesMax and WorkersMax.
var (
	Rollouts        = define(Server, Gauge, "rota_rollouts", "Rollouts: live, and ended ones that are retained.", "state")
	Samples         = define(Server, Gauge, "rota_samples", "Samples in the buffer and in batches.")
	SampleBytes     = define(Server, Gauge, "rota_sample_bytes", "Bytes of the samples in the buffer and in batches.")
	PolicyVersion   = define(Server, Gauge, "rota_policy_version", "Current version of a policy.", "policy")
	PolicyStep      = define(Server, Gauge, "rota_policy_step", "Last step of training that was given a batch.", "policy")
	PolicySuspended = define(Server, Gauge, "rota_policy_suspended", "1 if the requests of the policy are held.", "policy")
	PolicyComplete  = define(Server, Gauge, "rota_policy_complete_groups", "Groups that wait for a step of training.", "policy")
	PolicyBuffered  = define(Server, Gauge, "rota_policy_buffered_samples", "Samples that no step was given.", "policy")
	RewardReplicas  = define(Server, Gauge, "rota_reward_replicas", "Replicas of a reward function, by state.", "reward", "state")
	RewardWanted    = define(Server, Gauge, "rota_reward_replicas_wanted", "Replicas that the calls of a reward function need.", "reward")
	RewardDemand    = define(Server, Gauge, "rota_reward_demand", "Calls of a reward function that run or wait.", "reward")
	RewardCores     = define(Server, Counter, "rota_reward_core_seconds_total", "Seconds times cores that the replicas of a reward function have held.", "reward")
	RewardGPUs      = define(Server, Counter, "rota_reward_gpu_seconds_total", "Seconds times GPUs that the replicas of a reward function have held.", "reward")
	RewardCalls     = define(Server, Counter, "rota_reward_calls_total", "Calls of a reward function that were answered.", "reward")
	RewardFailed    = define(Server, Counter, "rota_reward_failed_calls_total", "Calls of a reward function that were answered with an error.", "reward")

	NamespaceCores  = define(Server, Counter, "rota_namespace_core_seconds_total", "Seconds times cores that actions of a namespace have held, of attempts that have ended.", "namespace")
	NamespaceGPUs   = define(Server, Counter, "rota_namespace_gpu_seconds_total", "Seconds times GPUs that actions of a namespace have held, of attempts that have ended.", "namespace")
	NamespaceCPU    = define(Server, Counter, "rota_namespace_cpu_seconds_total", "CPU time of actions of a namespace that have ended.", "namespace")
	NamespaceMemory = define(Server, Counter, "rota_namespace_memory_byte_seconds_total", "Seconds times bytes that a namespace has reserved: trajectories until now, attempts that have ended.", "namespace")

	Workers            = define(Server, Gauge, "rota_workers", "Workers that generate for rollouts: up, stale, down or draining.", "policy", "state")
	WorkerTrajectories = define(Server, Gauge, "rota_worker_trajectories", "Trajectories that a worker generates for.", "worker")
	WorkerPredicted    = define(Server, Gauge, "rota_worker_predicted_tokens", "Tokens that the trajectories of a worker are predicted to generate yet.", "worker")
	WorkerTokens       = define(Server, Counter, "rota_worker_output_tokens_total", "Tokens that a worker generated since it was registered.", "worker")
	GenerationsWaiting = define(Server, Gauge, "rota_generations_waiting", "Trajectories that wait for a worker.")
	RouteWatchers      = define(Server, Gauge, "rota_route_watchers", "Gateways that watch routes at this server.")
)

// The log, Raft and the calls of one server.
var (
	RequestIDs      = define(Server, Gauge, "rota_request_ids", "Remembered request IDs.")
	Revision        = define(Server, Gauge, "rota_revision", "Number of the newest event.")
	Leader          = define(Server, Gauge, "rota_raft_leader", "1 if this server leads and decides. The sum over all servers should be 1.")
	LeaderKnown     = define(Server, Gauge, "rota_raft_leader_known", "1 if this server knows a leader.")
	LeaderChanges   = define(Server, Counter, "rota_raft_leader_changes_total", "Elections whose winner this server learned of.")
	Term            = define(Server, Gauge, "rota_raft_term", "Term of Raft.")
	CommitIndex     = define(Server, Gauge, "rota_raft_commit_index", "Newest committed entry with commands that this server knows of.")
	AppliedIndex    = define(Server, Gauge, "rota_raft_applied_index", "Newest applied entry. If it stands still on one server only, that server is behind.")
	SnapshotIndex   = define(Server, Gauge, "rota_raft_snapshot_index", "Newest entry in a snapshot.")
	Quarantined     = define(Server, Gauge, "rota_raft_quarantined", "1 while this server must not vote, because it may have forgotten what it acknowledged.")
	ProposalBytes   = define(Server, Gauge, "rota_proposal_queue_bytes", "Bytes of proposals that wait on this server.")
	CommitDuration  = define(Server, Histogram, "rota_raft_commit_duration_seconds", "On the leader: time from the proposal of an entry until a majority has it and it is applied.")
	ApplyDuration   = define(Server, Histogram, "rota_raft_apply_duration_seconds", "Time to apply an entry, decisions included.")
	AppliedCommands = define(Server, Counter, "rota_raft_applied_commands_total", "Commands in applied entries.")
	FsyncDuration   = define(Server, Histogram, "rota_log_append_duration_seconds", "Time to append entries to the log on disk, fsync included.")
	FeatureLevel    = define(Server, Gauge, "rota_feature_level", "Active feature level of the cluster.")

	LeaseRenewals   = define(Server, Counter, "rota_lease_renewals_total", "Renewals of leases that this server answered as the leader, by kind (node, turn) and answer (renewed, refused).", "kind", "answer")
	PredictorCalls  = define(Server, Counter, "rota_predictor_calls_total", "Calls of the predictor service by this server as the leader: answered or failed.", "outcome")
	AgentStreams    = define(Server, Gauge, "rota_agent_streams", "Agents that are connected to this server.")
	RPCDuration     = define(Server, Histogram, "rota_rpc_duration_seconds", "Duration of calls, by procedure and Connect code (ok: success).", "procedure", "code")
	DecodingBytes   = define(Server, Gauge, "rota_decoding_bytes", "Memory that requests which are being decoded may take, by sender: clients, agents, servers.", "from")
	DecodingRefused = define(Server, Counter, "rota_decoding_refused_total", "Requests refused because that memory was used up.", "from")
	DecodingBlamed  = define(Server, Counter, "rota_decoding_blamed_total", "Large requests refused because too many earlier requests of the same sender were refused.", "from")
)

// Bounds of labels that users choose the values of. Rows beyond them, by name or by age, have
// no metrics of their own.
const (
	QuotasMax   = 1024
	GroupsMax   = 1024
	JobsMax     = 1024
	PoliciesMax = 256
	WorkersMax  = 1024
)
