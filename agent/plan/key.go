package plan

import (
	"fmt"
	"time"
)

// Key is the fencing token of an attempt.
type Key struct {
	Action      uint64
	Attempt     uint32
	Incarnation uint64
}

// String returns the token as commands see it in ROTA_FENCING_TOKEN:
// action.attempt.incarnation.
func (k Key) String() string { return fmt.Sprintf("%d.%d.%d", k.Action, k.Attempt, k.Incarnation) }

// Engine reports whether the key is that of an engine, which runs as attempts do and is none.
func (k Key) Engine() bool { return k.Attempt == 0 }

// Running is an attempt that the supervisor runs.
type Running struct {
	Key Key
	// CPUs that it has to itself.
	CPUs CPUs
	// Frozen: its processes are stopped, or may be.
	Frozen bool
}

// Reason says how an attempt ended. The values are those of rota.v1.EndReason.
type Reason uint8

// Ends that a node can see.
const (
	ReasonExited         Reason = 1
	ReasonSignaled       Reason = 2
	ReasonOutOfMemory    Reason = 3
	ReasonTimeout        Reason = 4
	ReasonStartFailed    Reason = 5
	ReasonCanceled       Reason = 6
	ReasonNodeLost       Reason = 8 // killed because the node's lease ended
	ReasonSupervisorLost Reason = 9
)

// Exit is the end of one attempt.
type Exit struct {
	Key        Key
	Reason     Reason
	ExitCode   int
	Signal     int
	Message    string
	Exec       time.Duration // monotonic, from start to end
	CPU        time.Duration
	MemoryPeak uint64 // bytes; 0: unknown
	Stdout     []byte // last bytes, with Stderr at most 4 KiB
	Stderr     []byte
	// Throttled: a provider refused calls of it for their rate. RetryAfter is how long the
	// provider asked to wait; 0: it did not say.
	Throttled  bool          `json:",omitempty"`
	RetryAfter time.Duration `json:",omitempty"`
	// Usage is what it says that it used of quotas, at most UsagesMax of them.
	Usage []QuotaUse `json:",omitempty"`
}

// UsagesMax is how many quotas an attempt may speak of.
const UsagesMax = 8

// QuotaUse is what an attempt used of a quota, in units.
type QuotaUse struct {
	Quota string
	Units uint64
}
