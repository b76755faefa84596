package runtime

import (
	"context"
	"time"

	"rota/agent/plan"
)

// Spec is everything that is needed to start an attempt.
type Spec struct {
	Key  plan.Key
	Argv []string // {{cores}} already replaced
	Env  []string // complete environment, KEY=value
	// Dir is the working directory: absolute and there, or below that of the trajectory or,
	// without one, of the attempt.
	Dir  string
	CPUs []int // held exclusively
	// Follows: the CPUs may change while it runs. ROTA_CORES_FILE then names a file that
	// says which they are.
	Follows bool
	// Throttles: it uses quotas. ROTA_THROTTLE_FILE then names a file in which it may say that
	// their provider refused calls, and ROTA_USAGE_FILE one for what it really used.
	Throttles bool
	// Trajectory whose user, /tmp and directory the attempt has, unless it is a Call; 0: its own.
	Trajectory uint64
	// MemoryBytes limits all processes of the attempt together; 0: no limit.
	MemoryBytes uint64
	// HiddenDevices are what the attempt may not open, where Description.HidesDevices.
	HiddenDevices []Device
	// Timeout after which the attempt is killed with ReasonTimeout; 0: none.
	Timeout time.Duration
	// Stdin: its standard input is a pipe that WriteInput writes to.
	Stdin bool
	// TTY is the size of its terminal; nil: it has none.
	TTY *Terminal
	// Sandbox is the open container that it runs in; nil: it is a process of the node. Dir is
	// then a directory of the container.
	Sandbox *Sandbox
	// Call: it makes an HTTP call. It runs outside of the sandbox of its trajectory, and has a user
	// and directories of its own: those of the trajectory belong to users of the container.
	Call bool
}

// Sandbox is an open container, whose rota-init starts attempts.
type Sandbox struct {
	// SocketDir is where rota-init listens, Cgroup where it is, below the mount of each hierarchy.
	SocketDir, Cgroup string
	// User is USER or USER:GROUP, by name or number.
	User string
	// Dir is the working directory of commands that name none; empty: the workspace.
	Dir string
}

// Device is a character device, by its numbers.
type Device struct{ Major, Minor uint32 }

// Runtime runs attempts. It is implemented by Client, which talks to the
// supervisor process, and by fakes in tests of the agent.
type Runtime interface {
	// Start starts an attempt. Starting a key that runs or has ended already is
	// an error and starts nothing. A command that cannot be started is not an
	// error of Start: it ends with ReasonStartFailed.
	Start(ctx context.Context, spec Spec) error
	// Resize gives an attempt these CPUs and no others. Without an error, none of its
	// processes runs on a CPU that was taken away; what has ended is left alone. With one,
	// its CPUs are those before or these. Only where Description.Resizes.
	Resize(ctx context.Context, key plan.Key, cpus []int) error
	// Freeze stops all processes of an attempt where they are, or lets them go on. Without an
	// error they have stopped; what has ended is left alone. With one, an attempt that was to be
	// frozen goes on, and one that was to go on may. Only where Description.Resizes.
	Freeze(ctx context.Context, key plan.Key, frozen bool) error
	Streams
	// Kill ends all processes of an attempt; its Exit then carries the reason.
	// Killing what does not run does nothing.
	Kill(ctx context.Context, key plan.Key, reason plan.Reason) error
	// List returns what runs, and what has ended and was not yet forgotten.
	List(ctx context.Context) (running []plan.Running, ended []plan.Exit, err error)
	// Exits delivers every end once per connection, those before it included. It
	// is closed when the supervisor is lost.
	Exits() <-chan plan.Exit
	// Forget drops the memory of ended attempts, after their reports were
	// committed. Their output is kept for as long as the limits allow.
	Forget(ctx context.Context, keys []plan.Key) error
	// KeepTrajectories says which trajectories are open on the node. The directories of
	// others are removed, once they are missing from two calls and nothing of theirs runs.
	// A supervisor of an earlier release answers with an error, and has no such directories.
	KeepTrajectories(ctx context.Context, open []uint64) error
	// MakeTrajectory makes the directory of a trajectory, as its first attempt would, and says how
	// many attempts of it run. A supervisor of an earlier release answers with an error.
	MakeTrajectory(ctx context.Context, trajectory uint64) (running int, err error)
	// Measure returns what the attempts of a trajectory use that run, by their actions. A
	// supervisor of an earlier release answers with ErrVersion.
	Measure(ctx context.Context, trajectory uint64) ([]Use, error)
	// SetDeadline tells the supervisor when to kill everything by itself unless
	// it hears a later deadline first. In nanoseconds of CLOCK_BOOTTIME, which
	// agent and supervisor share; 0 means never (dev and tests only).
	SetDeadline(ctx context.Context, boottimeNS int64) error
	// Describe says who runs attempts, and how they are confined.
	Describe() Description
	// Stop kills everything that runs, with ReasonSupervisorLost, and ends the
	// supervisor. What ended is reported by the next one.
	Stop(ctx context.Context) error
	// Close drops the connection. Attempts and supervisor go on.
	Close() error
}

// Description is what a supervisor says of itself.
type Description struct {
	PID int // 0: no process of its own
	// Mode is one of the Mode constants.
	Mode string
	// NotEnforced lists, in words, what this mode cannot do on this machine.
	NotEnforced []string
	// Resizes says that it can change the CPUs of attempts that run.
	Resizes bool
	// HidesDevices says that it can keep attempts from opening devices.
	HidesDevices bool
}
