package agent

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"

	"rota/agent/engine"
	"rota/agent/httpcall"
	"rota/agent/plan"
	"rota/agent/runtime"
)

const (
	// engineMark is replaced by the address of the attempt's engine.
	engineMark = "{{engine}}"
	// portMark and devicesMark are replaced in the command of an engine: by the port that it
	// has to listen on, and by the numbers of its GPUs.
	portMark, devicesMark = "{{port}}", "{{devices}}"
)

// work is what an attempt is to do, but for the address of its engine.
type work struct {
	spec runtime.Spec
	call *rotav1.HttpCall // that the specification makes; nil: none
	// container is the sandbox that the command runs in; nil: it is a process of the node.
	container *rotav1.Container
	// snapshot is what the files of its trajectory begin with; 0: nothing.
	snapshot uint64
}

// errNoEngine: the engine was removed after the action was submitted, or never declared.
var errNoEngine = fmt.Errorf("%w: it has %s, and its model has no engine; register one with rota engine register", runtime.ErrInvalidSpec, engineMark)

// on completes what is to be started, with the address of the engine; empty: there is none.
func (w work) on(engineURL string) (runtime.Spec, error) {
	spec := w.spec
	if engineURL == "" {
		if w.asksForEngine() {
			return spec, errNoEngine
		}
		return spec, nil
	}
	marks := strings.NewReplacer(engineMark, engineURL)
	spec.Argv = replaced(marks, spec.Argv)
	spec.Env = append(replaced(marks, spec.Env), "ROTA_ENGINE_URL="+engineURL)
	if w.call == nil {
		return spec, nil
	}
	call := proto.CloneOf(w.call)
	call.Url = marks.Replace(call.GetUrl())
	text, err := httpcall.Encode(call)
	if err != nil {
		return spec, fmt.Errorf("%w: %w", runtime.ErrInvalidSpec, err)
	}
	spec.Env = slices.DeleteFunc(spec.Env, func(kv string) bool { return strings.HasPrefix(kv, httpcall.Variable+"=") })
	spec.Env = append(spec.Env, httpcall.Variable+"="+text)
	return spec, nil
}

// asksForEngine: it has a place for the address of an engine.
func (w work) asksForEngine() bool {
	has := func(text string) bool { return strings.Contains(text, engineMark) }
	if w.call != nil {
		return has(w.call.GetUrl())
	}
	return slices.ContainsFunc(w.spec.Argv, has) || slices.ContainsFunc(w.spec.Env, has)
}

func replaced(marks *strings.Replacer, list []string) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = marks.Replace(v)
	}
	return out
}

// engineOf is the engine that an attempt needs: that of a model, on the chunk that it has.
func engineOf(as *rotav1.Assignment) plan.Engine {
	if as.GetEngine() == "" || len(as.GetGpus()) == 0 {
		return plan.Engine{}
	}
	return plan.Engine{Model: as.GetEngine(), First: int(slices.Min(as.GetGpus())), GPUs: len(as.GetGpus())}
}

// engine is what the supervisor is to start for an engine. It shares the cores of the node.
func (s specifier) engine(l engine.Launch) (runtime.Spec, error) {
	cmd := l.Spec.GetCommand()
	switch {
	case s.refuse != "":
		return runtime.Spec{}, errors.New(s.refuse)
	case len(cmd.GetArgv()) == 0 || cmd.GetArgv()[0] == "":
		return runtime.Spec{}, errors.New("the engine has no command; register it with a program to run")
	}
	var gpus []uint32
	for gpu := range l.Engine.GPUs {
		gpus = append(gpus, uint32(l.Engine.First+gpu))
	}
	spec := runtime.Spec{Key: l.Key, Dir: cmd.GetDir()}
	env := s.leastEnv(spec)
	if err := errors.Join(ownEnv(env, cmd), s.gpuEnv(env, gpus)); err != nil {
		return spec, err
	}
	port, devices := strconv.Itoa(l.Port), strings.Trim(strings.ReplaceAll(fmt.Sprint(gpus), " ", ","), "[]")
	env["ROTA_ENGINE_PORT"], env["ROTA_MODEL"], env["ROTA_NODE"] = port, l.Engine.Model, s.node
	marks := strings.NewReplacer(portMark, port, gpusMark, strconv.Itoa(len(gpus)), devicesMark, devices)
	spec.Argv, spec.Env = replaced(marks, cmd.GetArgv()), replaced(marks, environ(env))
	spec.HiddenDevices = s.hidden(gpus)
	return spec, nil
}
