package runtime

import (
	"math"

	"google.golang.org/protobuf/types/known/durationpb"

	supervisorv1 "rota/api/gen/supervisor/v1"

	"rota/agent/plan"
)

// This file turns what agent and supervisor tell each other into messages and back.

// protocolVersion changes when messages change their meaning. A supervisor may be
// older than its agent, by as long as its longest attempt. Version 1 was frames of
// JSON.
const protocolVersion = 2

// The service and its methods, as api/supervisor/v1 has them.
const (
	serviceName       = "supervisor.v1.SupervisorService"
	methodAttach      = "Attach"
	methodStart       = "Start"
	methodResize      = "Resize"
	methodKill        = "Kill"
	methodList        = "List"
	methodForget      = "Forget"
	methodKeep        = "KeepTrajectories"
	methodMake        = "MakeTrajectory"
	methodWriteInput  = "WriteInput"
	methodSignal      = "Signal"
	methodFreeze      = "Freeze"
	methodTerminal    = "ResizeTerminal"
	methodMeasure     = "Measure"
	methodSetDeadline = "SetDeadline"
	methodStop        = "Stop"
)

// requestBytesMax bounds a request: an attempt's arguments and environment.
const requestBytesMax = 1 << 20

// exitPage is how many ends one message carries, with at most 4 KiB of output each.
const exitPage = 64

func wireKey(k plan.Key) *supervisorv1.Key {
	return &supervisorv1.Key{Action: k.Action, Attempt: k.Attempt, Incarnation: k.Incarnation}
}

func keyOf(k *supervisorv1.Key) plan.Key {
	return plan.Key{Action: k.GetAction(), Attempt: k.GetAttempt(), Incarnation: k.GetIncarnation()}
}

// mapped returns what f makes of each item.
func mapped[A, B any](items []A, f func(A) B) []B {
	out := make([]B, len(items))
	for i, item := range items {
		out[i] = f(item)
	}
	return out
}

func wireCPUs(cpus []int) []uint32 {
	return mapped(cpus, func(cpu int) uint32 { return uint32(cpu) })
}

func cpusOf(cpus []uint32) []int {
	return mapped(cpus, func(cpu uint32) int { return int(cpu) })
}

// runningOf is what a page of a list says of what runs. An older supervisor does not say
// on which CPUs.
func runningOf(page *supervisorv1.ListResponse) []plan.Running {
	out := make([]plan.Running, len(page.GetRunning()))
	for i, k := range page.GetRunning() {
		out[i].Key = keyOf(k)
		if i < len(page.GetCpus()) {
			out[i].CPUs, out[i].Frozen = cpusOf(page.GetCpus()[i].GetCpus()), page.GetCpus()[i].GetFrozen()
		}
	}
	return out
}

func wireRunning(running []plan.Running) *supervisorv1.ListResponse {
	return &supervisorv1.ListResponse{
		Running: mapped(running, func(r plan.Running) *supervisorv1.Key { return wireKey(r.Key) }),
		Cpus: mapped(running, func(r plan.Running) *supervisorv1.Cpus {
			return &supervisorv1.Cpus{Cpus: wireCPUs(r.CPUs), Frozen: r.Frozen}
		}),
	}
}

func wireSandbox(s *Sandbox) *supervisorv1.Sandbox {
	if s == nil {
		return nil
	}
	return &supervisorv1.Sandbox{SocketDir: s.SocketDir, Cgroup: s.Cgroup, User: s.User, Dir: s.Dir}
}

func sandboxOf(s *supervisorv1.Sandbox) *Sandbox {
	if s == nil {
		return nil
	}
	return &Sandbox{SocketDir: s.GetSocketDir(), Cgroup: s.GetCgroup(), User: s.GetUser(), Dir: s.GetDir()}
}

func wireSpec(s *Spec) *supervisorv1.Spec {
	return &supervisorv1.Spec{
		Sandbox: wireSandbox(s.Sandbox),
		Key:     wireKey(s.Key), Argv: s.Argv, Env: s.Env, Dir: s.Dir,
		Cpus: wireCPUs(s.CPUs), Follows: s.Follows, Throttles: s.Throttles,
		Trajectory: s.Trajectory, MemoryBytes: s.MemoryBytes, Timeout: durationpb.New(s.Timeout),
		HiddenDevices: mapped(s.HiddenDevices, func(d Device) *supervisorv1.Device {
			return &supervisorv1.Device{Major: d.Major, Minor: d.Minor}
		}),
		Stdin: s.Stdin, Tty: wireTerminal(s.TTY), Call: s.Call,
	}
}

func specOf(s *supervisorv1.Spec) *Spec {
	return &Spec{
		Sandbox: sandboxOf(s.GetSandbox()),
		Key:     keyOf(s.GetKey()), Argv: s.GetArgv(), Env: s.GetEnv(), Dir: s.GetDir(),
		CPUs: cpusOf(s.GetCpus()), Follows: s.GetFollows(), Throttles: s.GetThrottles(),
		Trajectory: s.GetTrajectory(), MemoryBytes: s.GetMemoryBytes(), Timeout: s.GetTimeout().AsDuration(),
		HiddenDevices: mapped(s.GetHiddenDevices(), func(d *supervisorv1.Device) Device {
			return Device{Major: d.GetMajor(), Minor: d.GetMinor()}
		}),
		Stdin: s.GetStdin(), TTY: terminalOf(s.GetTty()), Call: s.GetCall(),
	}
}

func wireTerminal(t *Terminal) *supervisorv1.Terminal {
	if t == nil {
		return nil
	}
	return &supervisorv1.Terminal{Rows: uint32(t.Rows), Columns: uint32(t.Columns)}
}

// terminalOf turns sizes that are too large into one that is refused.
func terminalOf(t *supervisorv1.Terminal) *Terminal {
	if t == nil {
		return nil
	}
	return &Terminal{Rows: uint16(min(t.GetRows(), math.MaxUint16)), Columns: uint16(min(t.GetColumns(), math.MaxUint16))}
}

func wireExit(e plan.Exit) *supervisorv1.Exit {
	return &supervisorv1.Exit{
		Key: wireKey(e.Key), Reason: uint32(e.Reason), ExitCode: int32(e.ExitCode), Signal: int32(e.Signal),
		Message: e.Message, Exec: durationpb.New(e.Exec), Cpu: durationpb.New(e.CPU),
		MemoryPeakBytes: e.MemoryPeak, Stdout: e.Stdout, Stderr: e.Stderr,
		Throttled: e.Throttled, RetryAfter: durationpb.New(e.RetryAfter), Usage: wireUsage(e.Usage),
	}
}

func wireUsage(uses []plan.QuotaUse) (out []*supervisorv1.QuotaUse) {
	for _, u := range uses {
		out = append(out, &supervisorv1.QuotaUse{Quota: u.Quota, Units: u.Units})
	}
	return out
}

func usageSaid(uses []*supervisorv1.QuotaUse) (out []plan.QuotaUse) {
	for _, u := range uses {
		out = append(out, plan.QuotaUse{Quota: u.GetQuota(), Units: u.GetUnits()})
	}
	return out
}

func exitOf(e *supervisorv1.Exit) plan.Exit {
	return plan.Exit{
		Key: keyOf(e.GetKey()), Reason: plan.Reason(e.GetReason()), ExitCode: int(e.GetExitCode()), Signal: int(e.GetSignal()),
		Message: e.GetMessage(), Exec: e.GetExec().AsDuration(), CPU: e.GetCpu().AsDuration(),
		MemoryPeak: e.GetMemoryPeakBytes(), Stdout: e.GetStdout(), Stderr: e.GetStderr(),
		Throttled: e.GetThrottled(), RetryAfter: e.GetRetryAfter().AsDuration(), Usage: usageSaid(e.GetUsage()),
	}
}

func wireUse(u Use) *supervisorv1.Use {
	return &supervisorv1.Use{Key: wireKey(u.Key), Cpu: durationpb.New(u.CPU), MemoryBytes: u.Memory, MemoryPeakBytes: u.MemoryPeak, CacheBytes: u.Cache}
}

func useOf(u *supervisorv1.Use) Use {
	return Use{Key: keyOf(u.GetKey()), CPU: u.GetCpu().AsDuration(), Memory: u.GetMemoryBytes(), MemoryPeak: u.GetMemoryPeakBytes(), Cache: u.GetCacheBytes()}
}
