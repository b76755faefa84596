package plan

// Step is something that the agent must do. Unless its comment says otherwise, a
// step needs no answer. Steps of one call of Next may be done at the same time.
type Step interface{ step() }

// Register asks the cluster for an incarnation, until it answers: Registered.
type Register struct {
	// Incarnation that the journal holds attempts of; 0: nothing runs here.
	Incarnation uint64
}

// Open begins to follow desired states of an incarnation, from SeenIndex on, until
// Close. Both durations are those of the lease.
type Open struct {
	Incarnation       uint64
	LeaseNS, MarginNS int64
}

// Close ends what Open began.
type Close struct{ Why string }

// Renew asks for a renewal of the lease. It is answered with Renewed or NotRenewed.
type Renew struct {
	// Number identifies the renewal. Only the first answer to it counts.
	Number      int
	Incarnation uint64
	// All asks every server at once, because the last renewal failed.
	All bool
	// WithinNS is how long to wait for an answer.
	WithinNS int64
}

// Journal is one write of the journal. Its parts are written in the order of the
// fields. It is answered with Journaled. An incarnation and what is accepted are
// durable then; the rest may be lost with the machine, and is repeated if it is.
type Journal struct {
	// Incarnation that begins, 0 for none. Attempts of all others are forgotten.
	Incarnation uint64
	// Reported are attempts whose ends servers have confirmed.
	Reported []Key
	// Forget are attempts that the cluster will not name again.
	Forget []Key
	// Accept are attempts that are about to be started or refused.
	Accept []Key
}

// Start hands an attempt to the supervisor. It is answered once, with Started.
type Start struct {
	// Connection is the number of the connection that it is for.
	Connection int
	Key        Key
	// Work is that of the assignment.
	Work any
	// CPUs are those that it has to itself. They may be others than when Work was made.
	CPUs CPUs
	// EngineURL is the address of the engine that it asked for; empty: for none.
	EngineURL string
}

// Resize gives a running attempt these CPUs and no others: to itself, or beside others that share
// them. It is answered once, with Resized.
type Resize struct {
	// Connection is the number of the connection that it is for.
	Connection int
	Key        Key
	CPUs       CPUs
}

// Kill ends an attempt. Its end is told with Exited.
type Kill struct {
	Key    Key
	Reason Reason
}

// Abandon says that a Start that is under way is not wanted any more. What comes before the
// supervisor is asked, such as the import of an image, may be broken off; then nothing was started, and
// Started says so.
type Abandon struct{ Key Key }

// Report sends ends to the cluster. Parts that a server confirmed are told with
// Reported. ReportsDone ends the step, confirmed or not.
type Report struct {
	Incarnation uint64
	Exits       []Exit
}

// Forget has the supervisor forget ends, and the agent what it has set aside for attempts.
type Forget struct{ Keys []Key }

// Arm tells the supervisor when to kill everything by itself. It is answered with
// Armed.
type Arm struct {
	// Connection is the number of the connection that it is for.
	Connection int
	Deadline   int64
}

// List asks the supervisor what it runs. It is answered with Listed, unless the
// connection is lost.
type List struct{ Connection int }

// CheckSupervisor kills the supervisor if it does not answer in time. It may be the one that the
// agent has lost its connection to.
type CheckSupervisor struct{ WithinNS int64 }

// Note is for the log: something that should not happen.
type Note struct {
	Key  Key
	Text string
}

func (Register) step()        {}
func (Open) step()            {}
func (Close) step()           {}
func (Renew) step()           {}
func (Journal) step()         {}
func (Start) step()           {}
func (Resize) step()          {}
func (Kill) step()            {}
func (Abandon) step()         {}
func (Report) step()          {}
func (Forget) step()          {}
func (Arm) step()             {}
func (List) step()            {}
func (CheckSupervisor) step() {}
func (Note) step()            {}
