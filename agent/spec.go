package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	rotav1 "rota/api/gen/rota/v1"

	"rota/agent/httpcall"
	"rota/agent/inventory"
	"rota/agent/plan"
	"rota/agent/runtime"
)

// defaultPath is where commands are looked up unless their own PATH says
// otherwise.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// defaultTerm is the kind of terminal that programs find unless their environment names another.
const defaultTerm = "xterm-256color"

// coresMark is replaced in arguments by the number of cores granted, or by 1 if the
// attempt has none of its own. If it may get more while it runs, it is the most of them:
// a program that starts as many workers can use what it is given later.
const coresMark = "{{cores}}"

// gpusMark is replaced by the number of GPUs granted.
const gpusMark = "{{gpus}}"

// specifier turns assignments into what the runtime is to start.
type specifier struct {
	node string
	inv  *inventory.Inventory
	// runtimeDir is the supervisor's, where attempts have working directories.
	runtimeDir string
	// self is the program whose "http-call" command makes HTTP calls.
	self string
	// ports are given to commands that ask for one; nil: none is.
	ports *ports
	// noContainers says why no sandbox is opened on this node; empty: sandboxes are.
	noContainers string
	// refuse says why nothing is started on this node; empty: it is.
	refuse string
}

// spec returns an error in words for the action's owner if the assignment
// cannot be carried out.
func (s specifier) spec(key plan.Key, as *rotav1.Assignment) (runtime.Spec, error) {
	switch {
	case s.refuse != "":
		return runtime.Spec{}, errors.New(s.refuse)
	case as.GetRunTimeout().AsDuration() < 0:
		return runtime.Spec{}, fmt.Errorf("run_timeout %v is negative", as.GetRunTimeout().AsDuration())
	}
	if as.GetContainer() != nil {
		switch {
		case s.noContainers != "":
			return runtime.Spec{}, fmt.Errorf("node %s runs no containers: %s", s.node, s.noContainers)
		case len(as.GetGpus()) > 0:
			return runtime.Spec{}, errors.New("commands in containers have no GPUs; run the action outside of the trajectory")
		}
	}
	cpus, err := s.cpus(as.GetCpus())
	if err != nil {
		return runtime.Spec{}, err
	}
	spec := runtime.Spec{
		Key: key, MemoryBytes: as.GetMemoryBytes(), Timeout: as.GetRunTimeout().AsDuration(),
		Dir: as.GetCommand().GetDir(), Trajectory: as.GetTrajectoryId(), Throttles: len(as.GetQuotaKeys()) > 0,
		Stdin: as.GetStdin(), Call: as.GetHttp() != nil,
	}
	if as.Tty != nil {
		size := terminal(as.GetTty())
		spec.TTY = &size
	}
	if s.inv.Pinned {
		spec.CPUs, spec.Follows = cpus, as.GetMaxCores() > 0
	}
	if spec.Argv, err = s.argv(as); err != nil {
		return runtime.Spec{}, err
	}
	if spec.Env, err = s.env(spec, as, cpus); err != nil {
		return runtime.Spec{}, err
	}
	if err := s.listens(&spec); err != nil {
		return runtime.Spec{}, err
	}
	spec.HiddenDevices = s.hidden(as.GetGpus())
	return spec, nil
}

// argv is the command of the action, or the one that makes its HTTP call.
func (s specifier) argv(as *rotav1.Assignment) ([]string, error) {
	cmd := as.GetCommand()
	switch {
	case as.GetHttp() != nil && s.self == "":
		return nil, fmt.Errorf("node %s does not know where its own program is, which makes HTTP calls", s.node)
	case as.GetHttp() != nil:
		return []string{s.self, httpcall.Command}, nil
	case cmd == nil:
		return nil, errors.New("the server sent no command for the attempt; report this as a bug")
	case len(cmd.GetArgv()) == 0 || cmd.GetArgv()[0] == "":
		return nil, errors.New("the command is empty; give a program to run")
	}
	marks := strings.NewReplacer(coresMark, strconv.Itoa(s.cores(as)), gpusMark, strconv.Itoa(len(as.GetGpus())))
	argv := make([]string, len(cmd.GetArgv()))
	for i, arg := range cmd.GetArgv() {
		argv[i] = marks.Replace(arg)
	}
	return argv, nil
}

// cores is how many cores an attempt has, or the most that it may get.
func (s specifier) cores(as *rotav1.Assignment) int {
	return max(1, len(as.GetCpus()), min(int(as.GetMaxCores()), s.inv.Cores()))
}

// callEnv hands an HTTP call over, with where its answer says what it used of its quotas, and
// how this machine gets out.
func callEnv(env map[string]string, call *rotav1.HttpCall, keys []*rotav1.QuotaKey) error {
	if call == nil {
		return nil
	}
	for _, name := range httpcall.ProxyVariables {
		if value, ok := os.LookupEnv(name); ok {
			env[name] = value
		}
	}
	var rules []string
	for _, q := range keys {
		if q.GetSettle() != "" {
			rules = append(rules, q.GetQuota()+"="+q.GetSettle())
		}
	}
	if len(rules) > 0 {
		env[httpcall.SettleVariable] = strings.Join(rules, "\n")
	}
	var err error
	env[httpcall.Variable], err = httpcall.Encode(call)
	return err
}

// cpus checks that the CPUs are there. An attempt without any shares those of the
// node, also with attempts that have theirs to themselves.
func (s specifier) cpus(list []uint32) ([]int, error) {
	var cpus []int
	for _, cpu := range list {
		if cpu > 1<<16 || !s.inv.Has(int(cpu)) {
			return nil, fmt.Errorf("the server assigned CPU %d, which node %s does not have", cpu, s.node)
		}
		cpus = append(cpus, int(cpu))
	}
	slices.Sort(cpus)
	if len(slices.Compact(slices.Clone(cpus))) != len(cpus) {
		return nil, errors.New("the server assigned a CPU twice")
	}
	return cpus, nil
}

// env is a minimal environment, the action's own on top of it, and what the
// node says about the attempt on top of both.
func (s specifier) env(spec runtime.Spec, as *rotav1.Assignment, cpus []int) ([]string, error) {
	env := map[string]string{}
	if as.GetContainer() == nil { // the image says it otherwise
		env = s.leastEnv(spec)
	}
	if spec.TTY != nil {
		env["TERM"] = defaultTerm
	}
	if err := ownEnv(env, as.GetCommand()); err != nil {
		return nil, err
	}
	env["ROTA_CORES"] = strconv.Itoa(s.cores(as))
	if s.inv.Pinned && len(cpus) > 0 {
		env["ROTA_CPUS"] = runtime.IDList(cpus)
	}
	if err := errors.Join(s.gpuEnv(env, as.GetGpus()), callEnv(env, as.GetHttp(), as.GetQuotaKeys())); err != nil {
		return nil, err
	}
	env["ROTA_FENCING_TOKEN"] = spec.Key.String()
	env["ROTA_TOKEN_ATTEMPT"] = strconv.FormatUint(uint64(spec.Key.Attempt), 10)
	env["ROTA_ACTION_ID"] = strconv.FormatUint(spec.Key.Action, 10)
	if id := as.GetTrajectoryId(); id != 0 {
		env["ROTA_TRAJECTORY_ID"] = strconv.FormatUint(id, 10)
	}
	gangEnv(env, spec.Key.Action, as.GetGang())
	env["ROTA_NAMESPACE"] = as.GetNamespace()
	env["ROTA_NODE"] = s.node
	if context := as.GetTraceparent(); context != "" {
		env["TRACEPARENT"] = context
	}
	for _, q := range as.GetQuotaKeys() {
		env[quotaVariable(q.GetQuota())] = strconv.FormatUint(uint64(q.GetKey()), 10)
	}
	return environ(env), nil
}

// leastEnv is what every command finds.
func (s specifier) leastEnv(spec runtime.Spec) map[string]string {
	env := map[string]string{
		"PATH": defaultPath, "LANG": "C.UTF-8", "TMPDIR": "/tmp",
	}
	switch {
	case filepath.IsAbs(spec.Dir):
		env["HOME"] = spec.Dir
	case spec.Trajectory == 0 || spec.Call:
		env["HOME"] = runtime.WorkDir(s.runtimeDir, spec.Key)
	} // else the supervisor says it: the directory of the trajectory
	return env
}

// ownEnv adds the command's own environment, without what only the node says.
func ownEnv(env map[string]string, cmd *rotav1.Command) error {
	for k, v := range cmd.GetEnv() {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return fmt.Errorf("environment variable %q is malformed", k)
		}
		if !strings.HasPrefix(k, "ROTA_") {
			env[k] = v
		}
	}
	return nil
}

// environ is an environment as processes have it.
func environ(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}

// quotaVariable is where a command finds the number of the key that it may use:
// ROTA_QUOTA_OPENAI for openai.
func quotaVariable(quota string) string {
	return "ROTA_QUOTA_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(quota))
}

// gpuEnv says which GPUs the attempt has, and hides all others from it. Simulated
// ones do not exist, so that it sees none.
func (s specifier) gpuEnv(env map[string]string, list []uint32) error {
	if s.inv.GPUs == nil && len(list) == 0 {
		return nil
	}
	var gpus []int
	var visible []string
	for _, gpu := range list {
		if s.inv.GPUs == nil || int(gpu) >= s.inv.GPUs.Count {
			return fmt.Errorf("the server assigned GPU %d, which node %s does not have", gpu, s.node)
		}
		gpus = append(gpus, int(gpu))
		if !s.inv.GPUs.Simulated() {
			uuid := s.inv.GPUs.UUIDs[gpu]
			if uuid == "" {
				return fmt.Errorf("GPU %d of node %s is lost: reset it and restart the agent, or start the machine again", gpu, s.node)
			}
			visible = append(visible, uuid)
		}
	}
	env["ROTA_GPUS"] = runtime.IDList(gpus)
	env["CUDA_VISIBLE_DEVICES"] = strings.Join(visible, ",")
	return nil
}

// hidden are the devices of all GPUs but some.
func (s specifier) hidden(but []uint32) (hidden []runtime.Device) {
	if s.inv.GPUs == nil {
		return nil
	}
	for i, d := range s.inv.GPUs.Devices {
		if d != (inventory.Device{}) && !slices.Contains(but, uint32(i)) {
			hidden = append(hidden, runtime.Device(d))
		}
	}
	return hidden
}
