package rpc

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/internal/telemetry/tracing"
)

// Limits of requests. Those that the replicated state depends on are checked
// there again.
const (
	nameBytesMax      = 128
	requestIDBytesMax = 64
	specBytesMax      = 64 << 10
	argsMax           = 4096
	envMax            = 1024
	dirBytesMax       = 4096
	coresMax          = 512
	memoryBytesMax    = 1 << 50
	durationMax       = 30 * 24 * time.Hour
	attemptsMax       = 100
	// secondsMax keeps times within an int64 of nanoseconds.
	secondsMax = math.MaxInt64/1_000_000_000 - 1
	actionsMax = 4096
)

// violation is the first thing that is wrong with a request: a path to a field
// and what is wrong with it.
//
// The checks are plain functions. For one action with a command of ten arguments
// they take 0.2 microseconds and allocate nothing (BenchmarkValidate), a
// twentieth of what a submission may cost outside Raft. The alternative is rules
// in the .proto files that a library evaluates by reflection: it would need a
// dependency in every server to say less, since half of what is checked here
// spans fields, and to say it less helpfully than in a sentence.
type violation struct{ path, problem string }

func wrong(path, format string, args ...any) *violation {
	return &violation{path, fmt.Sprintf(format, args...)}
}

// in puts the field that holds the violation's in front.
func (v *violation) in(format string, args ...any) *violation {
	if v != nil {
		v.path = strings.TrimSuffix(fmt.Sprintf(format, args...)+"."+v.path, ".")
	}
	return v
}

// failure says "actions[3].resources.cores must be at most 512, is 600".
func (v *violation) failure() *failure {
	return failed(connect.CodeInvalidArgument, "INVALID", "%s %s", v.path, v.problem)
}

// err is nil if nothing is wrong.
func (v *violation) err() error {
	if v == nil {
		return nil
	}
	return v.failure()
}

// firstOf returns the first violation there is.
func firstOf(all ...*violation) *violation {
	for _, v := range all {
		if v != nil {
			return v
		}
	}
	return nil
}

func checkText(path, s string, bytesMax int) *violation {
	switch {
	case len(s) > bytesMax:
		return wrong(path, "must have at most %d bytes, has %d", bytesMax, len(s))
	case !utf8.ValidString(s):
		return wrong(path, "must be valid UTF-8")
	case strings.IndexByte(s, 0) >= 0:
		return wrong(path, "must not contain a NUL byte")
	}
	return nil
}

// checkName checks the name of a namespace, a pool or a node. It may be empty
// where there is a default.
func checkName(path, s string) *violation {
	if len(s) > nameBytesMax {
		return wrong(path, "must have at most %d bytes, has %d", nameBytesMax, len(s))
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' {
			return wrong(path, "may contain only a-z, 0-9, '-' and '.', is %q", s)
		}
	}
	return nil
}

// requireName is checkName where there is no default.
func requireName(path, s string) *violation {
	if s == "" {
		return wrong(path, "is required")
	}
	return checkName(path, s)
}

func requireID(path string, id uint64) *violation {
	if id == 0 {
		return wrong(path, "is required")
	}
	return nil
}

func checkDuration(path string, d *durationpb.Duration) *violation {
	return checkTimeout(path, d, durationMax)
}

// checkTimeout is checkDuration with a bound of its own.
func checkTimeout(path string, d *durationpb.Duration, most time.Duration) *violation {
	if d == nil {
		return nil
	}
	if err := d.CheckValid(); err != nil {
		return wrong(path, "is not a valid duration")
	}
	switch d := d.AsDuration(); {
	case d < 0:
		return wrong(path, "must not be negative, is %v", d)
	case d > most:
		return wrong(path, "must be at most %v, is %v", most, d)
	}
	return nil
}

func checkMemory(path string, bytes uint64) *violation {
	if bytes > memoryBytesMax {
		return wrong(path, "must be at most 1 PiB, is %d bytes", bytes)
	}
	return nil
}

// processMemoryMin is what a process needs to start. A limit below it ends every attempt
// before it has begun.
const processMemoryMin = 1 << 20

// checkProcessMemory is checkMemory for what limits processes; 0 is no limit.
func checkProcessMemory(path string, bytes uint64) *violation {
	if bytes > 0 && bytes < processMemoryMin {
		return wrong(path, "must be at least 1 MiB, which a process needs to start, or 0 for no limit; is %d bytes", bytes)
	}
	return checkMemory(path, bytes)
}

func checkCount(path, what string, n, maximum int) *violation {
	switch {
	case n == 0:
		return wrong(path, "must have at least one %s", what)
	case n > maximum:
		return wrong(path, "must have at most %d %ss, has %d", maximum, what, n)
	}
	return nil
}

// checkRequest checks the identity of a request. Whether it expires too early or
// too late is for the state machine to say: only there is the time certain.
func checkRequest(id string, expires *timestamppb.Timestamp) *violation {
	if v := checkText("request_id", id, requestIDBytesMax); v != nil || expires == nil {
		return v
	}
	switch {
	case id == "":
		return wrong("expire_time", "needs a request_id to expire")
	case expires.CheckValid() != nil || expires.Seconds <= 0 || expires.Seconds > secondsMax:
		return wrong("expire_time", "is not a valid time")
	}
	return nil
}

func checkSubmit(r *rotav1.SubmitActionsRequest) *violation {
	if v := firstOf(
		checkName("namespace", r.Namespace),
		checkRequest(r.RequestId, r.ExpireTime),
		checkCount("actions", "action", len(r.Actions), actionsMax),
	); v != nil {
		return v
	}
	for i, spec := range r.Actions {
		if v := checkSpec(spec); v != nil {
			return v.in("actions[%d]", i)
		}
	}
	return checkGangs(r.Actions)
}

func checkSpec(s *rotav1.ActionSpec) *violation {
	if s == nil {
		return wrong("command", "is required")
	}
	if v := firstOf(
		checkText("name", s.Name, nameBytesMax),
		checkText("class", s.Class, nameBytesMax),
		checkWorkLabels("labels", s.Labels),
		checkName("pool", s.Pool),
		checkWork(s),
		checkTerminal("tty", s.Tty),
		checkResources(s.Resources),
		checkNeeds(s),
		checkEngineMark(s),
		checkSettled(s),
		checkProfile(s.Profile),
		checkDuration("queue_timeout", s.QueueTimeout),
		checkDuration("run_timeout", s.RunTimeout),
		checkLoss(s.LossPolicy, s.MaxAttempts),
	); v != nil {
		return v
	}
	// What this server does not know it cannot do, and must not seem to.
	if hasUnknown(s) || hasUnknownWork(s) || s.Resources != nil && hasUnknown(s.Resources) || hasUnknownCurve(s.Profile) {
		return wrong("", "has fields that this server does not know: leave them out, or upgrade the servers")
	}
	if s.Traceparent != "" && !tracing.Valid(s.Traceparent) {
		return wrong("traceparent", "must be a W3C trace context such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	}
	if s.Http != nil && (s.Stdin || s.Tty != nil) {
		return wrong("stdin", "and tty are for commands: an HTTP call has neither")
	}
	if s.SizeHint != 0 && s.Class == "" {
		return wrong("class", "is required with size_hint, which says how large the action is among those of its class")
	}
	if v := checkGangSpec(s); v != nil {
		return v
	}
	if s.TrajectoryId != 0 && s.Pool != "" {
		return wrong("pool", "must be empty for an action of a trajectory: it runs in the trajectory's")
	}
	if n := s.SizeVT(); n > specBytesMax {
		what := "command"
		if s.Http != nil {
			what = "http"
		}
		return wrong(what, "makes the action %d bytes long; at most %d are allowed: put large inputs into files", n, specBytesMax)
	}
	return nil
}

func hasUnknown(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) > 0 }

func hasUnknownWork(s *rotav1.ActionSpec) bool {
	return s.Command != nil && hasUnknown(s.Command) || s.Http != nil && hasUnknown(s.Http)
}

func checkCommand(c *rotav1.Command) *violation {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return wrong("command.argv", "must name a program")
	}
	if len(c.Argv) > argsMax {
		return wrong("command.argv", "must have at most %d arguments, has %d", argsMax, len(c.Argv))
	}
	for i, arg := range c.Argv {
		if v := checkText("command.argv", arg, specBytesMax); v != nil {
			v.path = fmt.Sprintf("command.argv[%d]", i)
			return v
		}
	}
	return firstOf(checkEnvironment("command.env", c.Env), checkDir("command.dir", c.Dir))
}

func checkEnvironment(path string, env map[string]string) *violation {
	if len(env) > envMax {
		return wrong(path, "must have at most %d variables, has %d", envMax, len(env))
	}
	for key, value := range env {
		if v := checkEnv(path, key, value); v != nil {
			return v
		}
	}
	return nil
}

func checkDir(path, dir string) *violation {
	if dir != "" && dir[0] != '/' && !filepath.IsLocal(dir) {
		return wrong(path, "must be an absolute path, a path below the directory of the trajectory or the attempt, or empty; is %q", dir)
	}
	return checkText(path, dir, dirBytesMax)
}

func checkEnv(path, key, value string) *violation {
	legal := key != ""
	for i := range len(key) {
		c := key[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		legal = legal && (letter || i > 0 && c >= '0' && c <= '9')
	}
	switch {
	case !legal:
		return wrong(path, "has the key %q: keys are letters, digits and '_', and do not begin with a digit", key)
	case strings.HasPrefix(key, "ROTA_"):
		return wrong(path, "has the key %q: what begins with ROTA_ is set by rota", key)
	}
	if v := checkText(path, value, specBytesMax); v != nil {
		v.path = fmt.Sprintf("%s[%q]", path, key)
		return v
	}
	return nil
}

func checkResources(r *rotav1.Resources) *violation {
	if r == nil {
		return nil
	}
	if v := checkAllowed(r); v != nil {
		return v
	}
	switch least := leastCores(r); {
	case least > coresMax:
		return wrong("resources.cores", "must be at most %d, is %d", coresMax, least)
	case r.MaxCores > coresMax:
		return wrong("resources.max_cores", "must be at most %d, is %d", coresMax, r.MaxCores)
	case r.MaxCores != 0 && r.MaxCores < least:
		return wrong("resources.max_cores", "must be 0 or at least cores, which is %d; is %d", least, r.MaxCores)
	}
	return firstOf(checkProcessMemory("resources.memory_bytes", r.MemoryBytes), checkQuotas(r))
}

// leastCores is how many cores an action starts with.
func leastCores(r *rotav1.Resources) uint32 {
	if r == nil || r.Cores == nil {
		return 1
	}
	return *r.Cores
}

func checkLoss(p rotav1.LossPolicy, attempts uint32) *violation {
	if _, known := rotav1.LossPolicy_name[int32(p)]; !known {
		return wrong("loss_policy", "is not a policy: %d", p)
	}
	if attempts > attemptsMax {
		return wrong("max_attempts", "must be at most %d, is %d", attemptsMax, attempts)
	}
	if attempts > 1 && p != rotav1.LossPolicy_LOSS_POLICY_RETRY {
		return wrong("max_attempts", "is %d, but without LOSS_POLICY_RETRY an action runs at most once", attempts)
	}
	return nil
}
