package runtime

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// How attempts are confined, as reported in the runtime field of a node.
const (
	// ModeCgroupV2 has every controller in the one v2 hierarchy.
	ModeCgroupV2 = "cgroup-v2"
	// ModeCgroupV1 has every controller in a v1 hierarchy.
	ModeCgroupV1 = "cgroup-v1"
	// ModeHybrid limits with v1 controllers and kills and accounts with v2.
	ModeHybrid = "hybrid"
	// ModeAffinity has no cgroups: CPU affinity, process groups and a subreaper.
	ModeAffinity = "affinity"
)

// Values of SuperviseOptions.AttemptUIDs and Namespaces.
const (
	// Auto does what this machine allows; Description.NotEnforced says what is missing.
	Auto = "auto"
	// On insists.
	On = "on"
)

// DefaultAttemptUIDs are the users of Auto.
const DefaultAttemptUIDs = "200000-265535"

// Defaults of SuperviseOptions.
const (
	DefaultLinger          = time.Minute
	DefaultCgroupParent    = "rota"
	DefaultOutputBytesMax  = 16 << 20
	DefaultOutputKeepBytes = 1 << 30
	DefaultOutputKeepFor   = time.Hour
	DefaultOutputKeepCount = 16384
	DefaultProcessesMax    = 4096
)

// SuperviseOptions is everything a supervisor process is told when it starts.
// Its zero fields mean the defaults above.
type SuperviseOptions struct {
	// Dir belongs to the supervisor: socket, lock, journal, log, output and
	// working directories. There is one supervisor per Dir.
	Dir string
	// Linger is how long a supervisor with nothing to run and no agent waits
	// before it ends.
	Linger time.Duration
	// Mode insists on a way to confine attempts; empty takes the best there is.
	Mode string
	// CgroupParent is where cgroups are made, below the mount points.
	CgroupParent string
	// User runs attempts as another user: "uid:gid" in numbers. Empty: the same
	// as the supervisor.
	User string
	// AttemptUIDs are users, "first-last", of which each attempt that runs has one to
	// itself, or shares it with its trajectory. Auto takes DefaultAttemptUIDs if it
	// may, and otherwise User. Empty: all run as User.
	AttemptUIDs string
	// Namespaces gives each attempt PID, mount and IPC namespaces: Auto or On. Empty:
	// it has those of the supervisor.
	Namespaces string
	// HideDevices makes ready for Spec.HiddenDevices, if this machine can hide devices;
	// Description.HidesDevices says whether it can.
	HideDevices bool
	// OutputBytesMax is what the newest output of one stream may occupy on disk.
	OutputBytesMax int64
	// OutputKeepBytes, OutputKeepFor and OutputKeepCount bound the output of
	// ended attempts; the oldest goes first.
	OutputKeepBytes int64
	OutputKeepFor   time.Duration
	OutputKeepCount int
	// ProcessesMax is how many processes and threads one attempt may have at once,
	// where there is a pids controller.
	ProcessesMax int
}

// ErrInvalidOptions says that a supervisor cannot be started as asked.
var ErrInvalidOptions = errors.New("invalid runtime options")

func (o SuperviseOptions) withDefaults() (SuperviseOptions, error) {
	if o.Dir == "" {
		return o, fmt.Errorf("%w: no directory", ErrInvalidOptions)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("%w: directory %q: %w", ErrInvalidOptions, o.Dir, err)
	}
	o.Dir = dir
	setDefault(&o.Linger, DefaultLinger)
	setDefault(&o.CgroupParent, DefaultCgroupParent)
	setDefault(&o.OutputBytesMax, DefaultOutputBytesMax)
	setDefault(&o.OutputKeepBytes, DefaultOutputKeepBytes)
	setDefault(&o.OutputKeepFor, DefaultOutputKeepFor)
	setDefault(&o.OutputKeepCount, DefaultOutputKeepCount)
	setDefault(&o.ProcessesMax, DefaultProcessesMax)
	if o.ProcessesMax < 1 {
		return o, fmt.Errorf("%w: %d processes for an attempt; it needs at least 1", ErrInvalidOptions, o.ProcessesMax)
	}
	switch o.Mode {
	case "", ModeAffinity, ModeCgroupV1, ModeCgroupV2, ModeHybrid:
	default:
		return o, fmt.Errorf("%w: mode %q is none of %s, %s, %s, %s", ErrInvalidOptions,
			o.Mode, ModeCgroupV1, ModeCgroupV2, ModeHybrid, ModeAffinity)
	}
	if !filepath.IsLocal(o.CgroupParent) {
		return o, fmt.Errorf("%w: cgroup parent %q leaves the cgroup mount", ErrInvalidOptions, o.CgroupParent)
	}
	if o.Namespaces != "" && o.Namespaces != Auto && o.Namespaces != On {
		return o, fmt.Errorf("%w: namespaces %q are neither %s nor %s", ErrInvalidOptions, o.Namespaces, Auto, On)
	}
	if o.AttemptUIDs != "" && o.AttemptUIDs != Auto {
		if _, err := parseUIDs(o.AttemptUIDs); err != nil {
			return o, err
		}
	}
	_, err = o.user()
	return o, err
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// userID is whom attempts run as.
type userID struct{ uid, gid uint32 }

// user returns nil if attempts run as the supervisor's own user.
func (o SuperviseOptions) user() (*userID, error) {
	if o.User == "" {
		return nil, nil
	}
	uid, gid, ok := strings.Cut(o.User, ":")
	if !ok {
		return nil, fmt.Errorf("%w: user %q is not uid:gid", ErrInvalidOptions, o.User)
	}
	u, errU := strconv.ParseUint(uid, 10, 32)
	g, errG := strconv.ParseUint(gid, 10, 32)
	if errU != nil || errG != nil {
		return nil, fmt.Errorf("%w: user %q is not uid:gid in numbers", ErrInvalidOptions, o.User)
	}
	return &userID{uint32(u), uint32(g)}, nil
}

func (o *SuperviseOptions) flags() *flag.FlagSet {
	f := flag.NewFlagSet("supervise", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.Dir, "dir", "", "directory of the supervisor")
	f.DurationVar(&o.Linger, "linger", DefaultLinger, "end after so long without work and agent")
	f.StringVar(&o.Mode, "mode", "", "how to confine attempts")
	f.StringVar(&o.CgroupParent, "cgroup-parent", DefaultCgroupParent, "where to make cgroups")
	f.StringVar(&o.User, "user", "", "uid:gid that attempts run as")
	f.StringVar(&o.AttemptUIDs, "attempt-uids", "", "users that attempts have to themselves, FIRST-LAST or auto")
	f.StringVar(&o.Namespaces, "namespaces", "", "give attempts namespaces of their own: auto or on")
	f.BoolVar(&o.HideDevices, "hide-devices", false, "be ready to hide devices from attempts")
	f.Int64Var(&o.OutputBytesMax, "output-bytes-max", DefaultOutputBytesMax, "newest bytes kept of a stream")
	f.Int64Var(&o.OutputKeepBytes, "output-keep-bytes", DefaultOutputKeepBytes, "bytes kept of ended attempts")
	f.DurationVar(&o.OutputKeepFor, "output-keep-for", DefaultOutputKeepFor, "age up to which output is kept")
	f.IntVar(&o.OutputKeepCount, "output-keep-count", DefaultOutputKeepCount, "ended attempts whose output is kept")
	f.IntVar(&o.ProcessesMax, "processes-max", DefaultProcessesMax, "processes and threads of one attempt")
	return f
}

// SuperviseArgs returns the arguments, after the name of the binary, that start
// a supervisor with these options: "supervise --dir DIR ...".
func SuperviseArgs(o SuperviseOptions) []string {
	var shown SuperviseOptions
	f := shown.flags()
	shown = o
	args := []string{"supervise"}
	f.VisitAll(func(fl *flag.Flag) { args = append(args, "--"+fl.Name+"="+fl.Value.String()) })
	return args
}

// ParseSuperviseArgs is the inverse of SuperviseArgs. It takes what follows
// "supervise".
func ParseSuperviseArgs(args []string) (SuperviseOptions, error) {
	var o SuperviseOptions
	f := o.flags()
	if err := f.Parse(args); err != nil {
		return o, fmt.Errorf("%w: %w", ErrInvalidOptions, err)
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%w: unexpected argument %q", ErrInvalidOptions, f.Arg(0))
	}
	return o.withDefaults()
}
