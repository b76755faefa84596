package state

import (
	"cmp"
	"slices"
)

// Identifiers of the ledger's rows. Zero means none.
type (
	// GroupID numbers a node group in the order of creation.
	GroupID uint64
	// JobID orders jobs by submission, over all namespaces.
	JobID uint64
	// TurnID orders turns by arrival, over all jobs.
	TurnID uint64
	// DeploymentID is one deployment of one job.
	DeploymentID uint64
)

// PlacementPolicy has the values of rota.v1.PlacementPolicy.
type PlacementPolicy uint8

// How groups are ranked for a job (PlexRL §6.3).
const (
	PolicySpread PlacementPolicy = 1 + iota
	PolicyPack
	PolicyIsolated
)

// JobState has the values of rota.v1.JobState.
type JobState uint8

// The life of a job. One that runs has a group; a suspended one does not look for one.
// JobDeleted is only in events.
const (
	JobQueued JobState = 1 + iota
	JobRunning
	JobSuspended
	JobCompleted
	JobDeleted
)

// TurnState has the values of rota.v1.TurnState.
type TurnState uint8

// The life of a turn.
const (
	TurnWaiting TurnState = 1 + iota
	TurnHeld
	TurnYielded
	TurnLost
	TurnCanceled
)

// Live reports whether the turn waits or holds its group.
func (s TurnState) Live() bool { return s == TurnWaiting || s == TurnHeld }

// DeploymentsMax is how many deployments a job may have.
const DeploymentsMax = 64

// deploymentBits is for the place of a deployment among those of its job.
const deploymentBits = 8

// NodeGroup is a set of nodes that one deployment at a time holds.
type NodeGroup struct {
	ID    GroupID
	Name  string
	Nodes int64
	// Period of all jobs with a reservation, in slots; 0 if there are none.
	Period int64
	// Resident is the deployment whose state is on the nodes; 0: unknown.
	Resident DeploymentID
	// Turn is the one that holds the group.
	Turn TurnID
	// WakeAt is a log time at which those who wait are looked at again; 0: none.
	WakeAt int64
	// Halted says why nothing is granted; empty while it is.
	Halted string
	// HookPool is the pool whose agents run hooks.
	HookPool string
	// Awake is the deployment that was brought here and not put to sleep since; 0: none
	// that has a sleep hook.
	Awake DeploymentID
	// ContextSwitch is the one under way, nil if there is none.
	ContextSwitch *ContextSwitch
	// Members is empty for a group with only a number of nodes.
	Members Members
}

// ContextSwitch brings one deployment onto a group instead of another, by hooks. Nothing is
// granted while it lasts, even if its turn ends meanwhile.
type ContextSwitch struct {
	// Token of the grant that it is for.
	Token uint64
	// To is the deployment that it is for.
	To    DeploymentID
	Hooks []Hook
	Began int64
	// Runs are the actions of the hooks that were queued so far, in the order of Hooks.
	Runs []HookRun
}

// HookRun is the action that runs a hook. How the action ended is noted here as well,
// because the row of an action that has ended may be dropped before anybody has read it.
type HookRun struct {
	Action ActionID
	// State is final once the action has ended, and 0 before.
	State    ActionState
	Reason   EndReason
	ExitCode int32
}

// Running returns the hook that was queued and has not ended, nil if there is none.
func (r *ContextSwitch) Running() *HookRun {
	if r == nil || len(r.Runs) == 0 || r.Runs[len(r.Runs)-1].State != 0 {
		return nil
	}
	return &r.Runs[len(r.Runs)-1]
}

// NextHook returns the number of the hook that may be queued now, counted from 0; -1 if
// the one before has not ended or has failed, or all were queued.
func (r *ContextSwitch) NextHook() int {
	n := len(r.Runs)
	if n == len(r.Hooks) || n > 0 && r.Runs[n-1].State != ActionSucceeded {
		return -1
	}
	return n
}

// Hook is one step of a context switch.
type Hook struct {
	Namespace  NamespaceID
	Deployment DeploymentID
	// Wakes: else it puts to sleep.
	Wakes bool
	// Action is an encoded log.v1.Action without a pool.
	Action []byte
}

// Segment is a part of a cycle in which a job holds its group, in slots.
type Segment struct{ Offset, Length, Nodes int64 }

// Cycle is what a job needs of its group, again and again, in slots. A period of 0
// says that it is not known.
type Cycle struct {
	Period   int64
	Segments []Segment
}

// Ran is one turn of a cycle as it really was, in log time. LeadNS is what setting it
// up would have taken before, had others had the group meanwhile.
type Ran struct{ Start, End, LeadNS int64 }

// Deployment is one logical model of a job.
type Deployment struct {
	Name string
	// SetUpNS is what setting it up took the last time; 0: never measured.
	SetUpNS int64
	// ExecNS has what the last operation of each kind took; 0: there was none.
	ExecNS []int64
	// Hooks are encoded log.v1.Actions; empty: there is none.
	Sleep, Wake, Prefetch []byte
}

// Job is a training job. It takes turns on one group.
type Job struct {
	ID        JobID
	Namespace NamespaceID
	Name      string
	State     JobState
	Backfill  bool
	// Deleting: the row goes with the last live turn.
	Deleting bool
	Nodes    int64
	Cycle    Cycle
	SetUpNS  int64
	Group    GroupID // 0 unless it runs
	// Deployments in the order in which they were first named.
	Deployments []Deployment
	// Step is the step of the training that is under way since StepBegan; 0: none.
	Step      uint64
	StepBegan int64
	// Clean: all turns of the step went as they should, and Ran has them.
	Clean bool
	Ran   []Ran
	// Cycles counts the steps that were finished.
	Cycles uint64
	// YieldedAt is when its last turn ended, HeldNS how long all were together.
	YieldedAt, HeldNS               int64
	SubmittedAt, StartedAt, EndedAt int64
	// Why it is where it is: the shift of its start in slots, and what the ledger
	// counted for it in ppm.
	Shift, StretchPPM, Cost, InterferencePPM int64
	// Message says what a queued job waits for.
	Message string
	// Turns counts the live ones.
	Turns uint32
	// Revision of the newest event about it.
	Revision uint64
	// Labels are for finding it.
	Labels Labels
}

// Deployment returns the ID of the i-th deployment of a job.
func (r *Job) Deployment(i int) DeploymentID {
	return DeploymentID(r.ID)<<deploymentBits | DeploymentID(i+1)
}

// Named returns the place of a deployment among those of its job, which comes into
// being when it is first named; -1 if there are too many.
func (r *Job) Named(name string) int {
	for i := range r.Deployments {
		if r.Deployments[i].Name == name {
			return i
		}
	}
	if len(r.Deployments) == DeploymentsMax {
		return -1
	}
	r.Deployments = append(slices.Clone(r.Deployments), Deployment{Name: name})
	return len(r.Deployments) - 1
}

// Took returns how long the last operation of a kind took; 0: there was none.
func (r *Deployment) Took(operation uint8) int64 {
	if int(operation) >= len(r.ExecNS) {
		return 0
	}
	return r.ExecNS[operation]
}

// Learn keeps how long an operation took.
func (r *Deployment) Learn(operation uint8, ns int64) {
	n := max(len(r.ExecNS), int(operation)+1)
	r.ExecNS = append(slices.Clone(r.ExecNS), make([]int64, n-len(r.ExecNS))...)
	r.ExecNS[operation] = ns
}

// Learn fills in what was not declared of a turn from what is known of its job.
func (r *Turn) Learn(j *Job) {
	_, i := r.Deployment.Job()
	d := &j.Deployments[i]
	r.ExecNS = cmp.Or(r.ExecNS, d.Took(r.Operation))
	r.SetUpNS = cmp.Or(r.SetUpNS, d.SetUpNS, j.SetUpNS)
}

// Job returns whose deployment it is, and which of them.
func (id DeploymentID) Job() (JobID, int) {
	return JobID(id >> deploymentBits), int(id&(1<<deploymentBits-1)) - 1
}

// Reservation is what a job has reserved of a group: its cycle, and since when it repeats. In
// slots.
type Reservation struct {
	Job       JobID
	Group     GroupID
	Cycle     Cycle
	Dedicated bool // the cycle is not known: the group is the job's alone
	Anchor    int64
	Index     int64
	Began     int64
	Waited    int64
}

// Turn is an operation whose worker process holds a group itself.
type Turn struct {
	ID         TurnID
	Deployment DeploymentID
	Operation  uint8 // of rota.v1.Operation
	State      TurnState
	Step       uint64
	// Declared or learned; a LimitNS of 0 is none.
	ExecNS, SetUpNS, LimitNS int64
	Preemptible              bool
	// Group that it holds or held; SetUp says that the deployment was not resident.
	Group GroupID
	SetUp bool
	// Stop: the holder is asked to yield.
	Stop bool
	// Token fences: it only ever grows. 0 while the turn waits.
	Token                         uint64
	ArrivedAt, GrantedAt, EndedAt int64
	// Revision of the newest event about it.
	Revision uint64
	// ReadyAt is when hooks had made the group ready; 0: there were none, or they have
	// not yet.
	ReadyAt int64
	// Message says which hook failed.
	Message string
}
