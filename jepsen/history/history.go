package history

import "fmt"

// Outcome is what became of a call.
type Outcome string

// Outcomes. Unknown means that the call may or may not have taken effect, then
// or later: time-outs, lost connections, calls that were under way at the end.
const (
	OK      Outcome = "ok"
	Fail    Outcome = "fail"
	Unknown Outcome = "unknown"
)

// Verb is what a call asked for.
type Verb string

// Verbs of workloads.
const (
	Submit          Verb = "submit" // Inputs RequestID, Retry; outputs IDs, Replayed
	Get             Verb = "get"    // Input Target; outputs State, Attempt, Revision
	GetStale        Verb = "get-stale"
	Cancel          Verb = "cancel" // Input Target
	OpenTrajectory  Verb = "open"   // Input RequestID; outputs IDs (one), Replayed, State, Node
	CloseTrajectory Verb = "close"  // Input Target; output State
	GetTrajectory   Verb = "get-trajectory"
	Drain           Verb = "drain"           // Inputs Node, Draining
	GetNode         Verb = "get-node"        // Input Node; outputs Draining, Incarnation, State
	List            Verb = "list"            // Outputs IDs, Revision, More
	Status          Verb = "status"          // Outputs Revision
	CreateQuota     Verb = "create-quota"    // Inputs Quota, Limit, Keys, WindowNS
	UpdateQuota     Verb = "update-quota"    // Inputs Quota, Limit, Keys; 0: as it is
	DeleteQuota     Verb = "delete-quota"    // Input Quota
	GetQuota        Verb = "get-quota"       // Input Quota; outputs Limit, Keys
	CreateGroup     Verb = "create-group"    // Input Group
	SubmitJob       Verb = "submit-job"      // Inputs RequestID, Job; output Replayed
	ChangeJob       Verb = "change-job"      // Inputs Job, Change
	GetJob          Verb = "get-job"         // Input Job; outputs State, Deleting
	Acquire         Verb = "acquire"         // Inputs RequestID, Deployment; outputs IDs (one, of a turn), Replayed, State
	RegisterEngine  Verb = "register-engine" // Inputs Model, Declaration
	RemoveEngine    Verb = "remove-engine"   // Input Model
	CreateRollout   Verb = "create-rollout"  // Inputs RequestID, Policy, Need, Staleness; outputs IDs (one), Replayed
	CloseRollout    Verb = "close-rollout"   // Input Target
	OpenMember      Verb = "open-member"     // Inputs RequestID, Target (a rollout), Prompt; outputs IDs (one), Replayed, State, Node
	PutSample       Verb = "put-sample"      // Inputs Target (a trajectory), Reward; outputs Accepted, State
	GetBatch        Verb = "get-batch"       // Inputs Policy, Step, Need; outputs Batch, Replayed
	PublishVersion  Verb = "publish-version" // Inputs Policy, Version
	RegisterReward  Verb = "register-reward" // Inputs Function, Limit (replicas), Need (calls that one takes)
	ReportReward    Verb = "report-reward"   // Inputs RequestID, Function, Calls
	GetReward       Verb = "get-reward"      // Input Function; outputs Limit, Wanted, IDs (of replicas that do not drain)
	RemoveReward    Verb = "remove-reward"   // Input Function
	Generate        Verb = "generate"        // Inputs Target (a trajectory), Policy, Want; outputs Text, Versions
)

// Changes of a job.
const (
	Suspend  = "suspend"
	Resume   = "resume"
	Complete = "complete"
	Delete   = "delete"
)

// Op is one call of a client. One that was under way when the record was taken is
// unknown.
type Op struct {
	Client  int     `json:"client"`
	Verb    Verb    `json:"verb"`
	Server  string  `json:"server,omitempty"` // the only one asked; empty: any
	Start   int64   `json:"start"`
	End     int64   `json:"end"`
	Outcome Outcome `json:"outcome"`
	// Error is the reason of an ErrorDetail, such as NOT_FOUND, or else the text.
	Error string `json:"error,omitempty"`
	// Refused: the call failed because of what the replicated state is.
	Refused bool `json:"refused,omitempty"`

	RequestID string `json:"request_id,omitempty"`
	// Retry: the action may be repeated when its attempt is lost.
	Retry    bool   `json:"retry,omitempty"`
	Target   uint64 `json:"target,omitempty"`
	Node     string `json:"node,omitempty"`
	Draining bool   `json:"draining,omitempty"`
	Quota    string `json:"quota,omitempty"`
	Limit    uint32 `json:"limit,omitempty"` // of each key
	Keys     uint32 `json:"keys,omitempty"`
	WindowNS int64  `json:"window_ns,omitempty"` // 0: a limit of concurrency
	Group    string `json:"group,omitempty"`     // of nodes
	Job      string `json:"job,omitempty"`
	Change   string `json:"change,omitempty"`
	// Deployment is that of a job: "job/deployment".
	Deployment string `json:"deployment,omitempty"`
	// Model that an engine serves, and the name that its declaration was given.
	Model       string `json:"model,omitempty"`
	Declaration string `json:"declaration,omitempty"`

	// Policy that is trained, a version of it, and a step of its training.
	Policy  string `json:"policy,omitempty"`
	Version uint64 `json:"version,omitempty"`
	Step    uint64 `json:"step,omitempty"`
	// Need is how many samples complete a group, or how many groups a batch has. Staleness is
	// how many versions too old a sample may be.
	Need      uint32 `json:"need,omitempty"`
	Staleness uint32 `json:"staleness,omitempty"`
	// Prompt is the number of a group of a rollout.
	Prompt uint32  `json:"prompt,omitempty"`
	Reward float64 `json:"reward,omitempty"`
	// Accepted: the sample is in the buffer.
	Accepted bool          `json:"accepted,omitempty"`
	Batch    []TrainSample `json:"batch,omitempty"`
	// Function that scores samples, how many calls of it there are, and how many replicas it wants.
	Function string `json:"function,omitempty"`
	Calls    uint32 `json:"calls,omitempty"`
	Wanted   uint32 `json:"wanted,omitempty"`
	// Want is the whole text that an engine generates for a prompt. Text is what a client was
	// streamed of it, and Versions are those of the weights that its parts were generated with.
	Want     string   `json:"want,omitempty"`
	Text     string   `json:"text,omitempty"`
	Versions []uint64 `json:"versions,omitempty"`

	IDs []uint64 `json:"ids,omitempty"`
	// More: another page follows.
	More        bool   `json:"more,omitempty"`
	Replayed    bool   `json:"replayed,omitempty"`
	State       string `json:"state,omitempty"` // QUEUED, RUNNING, SUCCEEDED, ..., without prefix
	Attempt     uint32 `json:"attempt,omitempty"`
	Incarnation uint64 `json:"incarnation,omitempty"`
	Revision    uint64 `json:"revision,omitempty"`
	// Deleting: the job goes with the last of its turns.
	Deleting bool `json:"deleting,omitempty"`
}

// TrainSample is a sample as a trainer was given it.
type TrainSample struct {
	Trajectory uint64  `json:"trajectory"`
	Rollout    uint64  `json:"rollout"`
	Prompt     uint32  `json:"prompt"`
	Version    uint64  `json:"version"` // with which its trajectory began
	Reward     float64 `json:"reward"`
}

// Execution is one execution of a command as the witness saw it: alive from
// Start until the last of its processes was gone.
type Execution struct {
	RequestID   string `json:"request_id"` // of the submission
	Action      uint64 `json:"action"`
	Attempt     uint32 `json:"attempt"`
	Incarnation uint64 `json:"incarnation"`
	Node        string `json:"node"`
	Cores       []int  `json:"cores,omitempty"` // of the affinity mask it began with
	// Seen are the masks that it saw itself run with, in order, if they may change. Between
	// them it is not known.
	Seen []Seen `json:"seen,omitempty"`
	// Width is how many cores it was told that it has, 1 if none of its own.
	Width int   `json:"width,omitempty"`
	GPUs  []int `json:"gpus,omitempty"` // that it was told to use
	Uses  []Use `json:"uses,omitempty"` // of quotas
	// Asked is what its action had asked for. Its client has sent it along, so that
	// nothing of it is rota's.
	Asked Asked `json:"asked"`
	Start int64 `json:"start"`
	// End is 0 for what was alive when the witness closed. A witness that was late
	// has recorded it late.
	End int64 `json:"end"`
	// Alive is a time at which it was certainly alive, the last one that is known
	// of what has an end. 0: it was gone before it was let to work.
	Alive int64 `json:"alive,omitempty"`
	// Complete: the command said that its work was done before it ended.
	Complete bool `json:"complete,omitempty"`
	// Answer is what the engine of its model told it; nil: it called none, or in vain.
	Answer *Answer `json:"answer,omitempty"`
	// Unserved: it should have been told the address of an engine, and was told none.
	Unserved bool `json:"unserved,omitempty"`
	// Trajectory whose directory it has looked into; 0: it is in none, or ended before. Found
	// are the tokens of the executions that had left a mark there, and Marked is when it had
	// left its own.
	Trajectory uint64   `json:"trajectory,omitempty"`
	Found      []string `json:"found,omitempty"`
	Marked     int64    `json:"marked,omitempty"`
}

// Token is the fencing token of the execution, as commands find it in ROTA_FENCING_TOKEN.
func (x Execution) Token() string { return fmt.Sprintf("%d.%d.%d", x.Action, x.Attempt, x.Incarnation) }

// Answer is what an engine says of itself to who calls it.
type Answer struct {
	Model       string `json:"model"`
	Declaration string `json:"declaration"`
	GPUs        []int  `json:"gpus"`
}

// Serving is an engine as the witness saw it: its process from the first moment to the
// last, and besides each time that it held memory of its GPUs.
type Serving struct {
	Node        string `json:"node"`
	Model       string `json:"model"`
	Declaration string `json:"declaration"` // that it was started with
	GPUs        []int  `json:"gpus"`
	// MemoryBytes that it holds of each GPU while it is awake; 0: all.
	MemoryBytes uint64 `json:"memory_bytes,omitempty"`
	// Process tells engines apart that are alike.
	Process string `json:"process"`
	// Awake: it held that memory; else it was merely alive.
	Awake bool `json:"awake,omitempty"`
	// Start, End and Alive are those of an Execution.
	Start int64 `json:"start"`
	End   int64 `json:"end"`
	Alive int64 `json:"alive,omitempty"`
}

// Seen is that an execution saw itself run with these cores, from one time to another.
type Seen struct {
	Cores []int `json:"cores"`
	From  int64 `json:"from"`
	Until int64 `json:"until"`
}

// Use is what an execution used of a quota.
type Use struct {
	Quota string `json:"quota"`
	Units uint32 `json:"units"`
	// Key of the quota that it was told to use, from 1 on; 0: none.
	Key uint32 `json:"key"`
}

// Asked is what an action may be given.
type Asked struct {
	Cores  []int `json:"cores,omitempty"`  // the numbers of cores that it can use, just 0 if it needs none
	GPUs   []int `json:"gpus,omitempty"`   // of GPUs
	Quotas []Use `json:"quotas,omitempty"` // without keys
	// Model whose engine it calls; empty: it calls none.
	Model string `json:"model,omitempty"`
}

// Holding is a turn as its holder saw it, by its own clock: it used the node group
// from Start to End.
type Holding struct {
	Client     int    `json:"client"`
	Turn       uint64 `json:"turn"`
	Token      uint64 `json:"token"`
	Group      string `json:"group"`
	Deployment string `json:"deployment"` // "job/deployment"
	Start      int64  `json:"start"`
	// End is when it last looked and took the group for its own.
	End int64 `json:"end"`
	// Yielded: it gave the group back after its work was done, and was told so.
	Yielded bool `json:"yielded,omitempty"`
	// Lacks is what it was told of members that the group lacks, in order.
	Lacks []Lack `json:"lacks,omitempty"`
}

// Lack is that a holder was told which members its group lacks, and why; an empty text: none.
type Lack struct {
	At   int64  `json:"at"`
	Text string `json:"text"`
}

// Turn is a turn that was acknowledged, as a linearizable read showed it after
// everything had been healed and had ended.
type Turn struct {
	ID    uint64 `json:"id"`
	State string `json:"state"`
	Token uint64 `json:"token,omitempty"`
}

// WatchEvent is one event that a watcher received.
type WatchEvent struct {
	Watcher  int    `json:"watcher"`
	Server   string `json:"server"`
	At       int64  `json:"at"`
	Revision uint64 `json:"revision"`
	Action   uint64 `json:"action"`
	State    string `json:"state"`
	Attempt  uint32 `json:"attempt"`
	// Resumed: the first event after the watcher had asked to go on behind the
	// last revision that it had seen.
	Resumed bool `json:"resumed,omitempty"`
}

// WatchKind is what a watcher noted.
type WatchKind string

// Kinds of notes.
const (
	// WatchBegan: a watcher asked for all events after Revision. If it had to list anew, Lost is
	// the revision that it had come to, and Reason why the server did not go on from there.
	WatchBegan WatchKind = "began"
	// WatchResumed: the stream broke for Reason, and the watcher asks for what follows Revision,
	// which it had come to.
	WatchResumed WatchKind = "resumed"
	// WatchTold: the server said that all events up to Revision were sent.
	WatchTold WatchKind = "told"
)

// WatchNote is where a watcher stood at a time.
type WatchNote struct {
	Watcher  int       `json:"watcher"`
	Server   string    `json:"server"`
	At       int64     `json:"at"`
	Kind     WatchKind `json:"kind"`
	Revision uint64    `json:"revision"`
	Lost     uint64    `json:"lost,omitempty"`
	Reason   string    `json:"reason,omitempty"`
}

// Sample is what one server said about itself.
type Sample struct {
	At          int64  `json:"at"`
	Server      string `json:"server"`
	LeaderID    string `json:"leader_id"` // whom it takes for the leader
	Term        uint64 `json:"term"`
	Applied     uint64 `json:"applied"`
	Commit      uint64 `json:"commit"`
	HashIndex   uint64 `json:"hash_index,omitempty"`
	Hash        string `json:"hash,omitempty"`
	Quarantined bool   `json:"quarantined,omitempty"`
}

// Fault is one fault as it happened, or did not.
type Fault struct {
	Name   string   `json:"name"`
	Target []string `json:"target,omitempty"`
	Start  int64    `json:"start"`
	// End is when it was healed, 0 if that needs nothing.
	End int64 `json:"end,omitempty"`
	// Happened says how it is known that the fault took effect: what was
	// observed, such as "exited by SIGKILL", "214 packets dropped". Empty: it
	// did not, and the run is void.
	Happened string `json:"happened"`
	Detail   string `json:"detail,omitempty"`
	// Whole is when all members were back after it and followed one leader, 0: never.
	Whole int64 `json:"whole,omitempty"`
	// Window is the failpoint at which a process died; empty: at none.
	Window string `json:"window,omitempty"`
	// LeaderKilled: from Start to the next acknowledged write is a failover.
	LeaderKilled bool `json:"leader_killed,omitempty"`
}

// Member is one change of the voters, as it was asked for.
type Member struct {
	At      int64   `json:"at"`
	Change  string  `json:"change"` // add-voter, remove
	ID      string  `json:"id"`
	Outcome Outcome `json:"outcome"`
}

// Action is an action as a linearizable list showed it after everything had
// been healed and had ended.
type Action struct {
	ID      uint64 `json:"id"`
	State   string `json:"state"`
	Attempt uint32 `json:"attempt"`
	Reason  string `json:"reason"`
	Node    string `json:"node,omitempty"`
	Name    string `json:"name,omitempty"` // of the spec: the submission's request ID and number
}

// Healing is how the cluster came to rest after the last fault.
type Healing struct {
	Stopped int64 `json:"stopped"` // when the load was told to end, after the last fault
	Settled int64 `json:"settled"` // when all actions had ended and all nodes were up, 0: never
	// Revision is that of the state when all had ended. Watchers were waited for to reach it.
	Revision uint64 `json:"revision,omitempty"`
	// Left is what should be gone and is not: processes, cgroups, attempts, held
	// cores, open trajectories, jobs, turns and what is reserved; one line each.
	Left []string `json:"left,omitempty"`
}

// Log is the log of one server, read from its store after it had stopped.
type Log struct {
	Server string `json:"server"`
	// First is the index of the oldest entry, 1 unless the log was compacted.
	First   uint64  `json:"first"`
	Entries []Entry `json:"-"`
}

// Entry is one entry of a log. Only commands are kept: entries of Raft's own
// have a term, an index and no data.
type Entry struct {
	Index uint64
	Term  uint64
	Data  []byte // a log.v1.Entry, nil for Raft's own
	// Voters is set for a change of the configuration.
	Voters []string
}

// End is how an action ended, as its command knows it and as the cluster says.
type End struct {
	Action uint64 `json:"action"`
	Want   string `json:"want"`
	Got    string `json:"got"`
}

// Abuse is a time in which somebody meant harm, after a quiet time with the same load.
type Abuse struct {
	QuietStart int64 `json:"quiet_start"`
	Start      int64 `json:"start"`
	End        int64 `json:"end"`
	// Tried counts attempts by kind, Achieved says what must not have been possible,
	// and Skipped what this machine could not try.
	Tried    map[string]int `json:"tried"`
	Achieved []string       `json:"achieved,omitempty"`
	Skipped  []string       `json:"skipped,omitempty"`
	// Before and After are what the leader of the beginning said of itself.
	Before Sample `json:"before"`
	After  Sample `json:"after"`
	// MemoryPeaks are the most bytes of memory that each server has had resident.
	MemoryPeaks map[string]uint64 `json:"memory_peaks"`
}

// Record is everything that is known about one run.
type Record struct {
	Scenario string   `json:"scenario"`
	Seed     int64    `json:"seed"`
	Servers  []string `json:"servers"`
	Agents   []string `json:"agents"`
	Duration int64    `json:"duration"`
	LeaseNS  int64    `json:"lease_ns"`
	MarginNS int64    `json:"margin_ns"`
	// GPUMemoryBytes is what each GPU has.
	GPUMemoryBytes uint64       `json:"gpu_memory_bytes,omitempty"`
	Ops            []Op         `json:"-"`
	Executions     []Execution  `json:"-"`
	Servings       []Serving    `json:"-"`
	Holdings       []Holding    `json:"-"`
	Turns          []Turn       `json:"-"`
	Watch          []WatchEvent `json:"-"`
	WatchNotes     []WatchNote  `json:"-"`
	Samples        []Sample     `json:"-"`
	Faults         []Fault      `json:"faults"`
	Members        []Member     `json:"members,omitempty"`
	Final          []Action     `json:"-"`
	Healing        Healing      `json:"healing"`
	Logs           []Log        `json:"-"`
	// Hashes are those of all servers at the end, at one index.
	Hashes []Sample `json:"hashes"`
	// Turnarounds are of the ordinary load, of all scenarios that have one.
	Turnarounds []Turnaround `json:"-"`
	// Ends are of actions whose ends were told beforehand.
	Ends []End `json:"ends,omitempty"`
	// Abuse is nil if nobody meant harm.
	Abuse *Abuse `json:"abuse,omitempty"`
}
