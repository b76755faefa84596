package witness

import (
	"encoding/json"
	"strconv"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
)

// Environment of a probe, beside what agents set.
const (
	envSocket  = "WITNESS"
	envRequest = "WITNESS_REQUEST"
	envAsked   = "WITNESS_ASKED"
	// of an engine
	envDeclaration = "WITNESS_DECLARATION"
	envMemory      = "WITNESS_MEMORY"
)

// Work is what a probe does between its start and its end.
type Work struct {
	// For is how long it works, and Parallel how much longer with one core, or GPU if
	// it has some: with two it is half of that.
	For, Parallel time.Duration
	// Spin keeps its cores busy for that time, instead of sleeping.
	Spin bool
	// Child is how long a child stays on that the probe leaves behind; 0: none.
	// An agent should end it with the attempt.
	Child time.Duration
	// Calls: first it calls the engine of its model, and works only if that answers. Then
	// nothing counts but For.
	Calls bool
}

// Command is a probe as the command of an action of the submission with this
// request ID, which must be without spaces, that asks for so much.
func (w *Witness) Command(request string, asked history.Asked, work Work) *rotav1.Command {
	argv := []string{w.Probe, "-for", work.For.String()}
	if work.Calls {
		argv = []string{w.Engine, "call", "-engine", "{{engine}}", "-for", work.For.String()}
	}
	if work.Parallel > 0 {
		argv = append(argv, "-parallel", work.Parallel.String())
	}
	if work.Spin {
		argv = append(argv, "-spin")
	}
	if work.Child > 0 {
		argv = append(argv, "-child", work.Child.String())
	}
	text, err := json.Marshal(asked)
	if err != nil {
		panic(err) // numbers and names always have a text
	}
	return &rotav1.Command{Argv: argv, Env: map[string]string{envSocket: w.path, envRequest: request, envAsked: string(text)}}
}

// Serve is the command of an engine that was declared under a name, which must be without
// spaces, and holds so many bytes of each of its GPUs while it is awake; 0: all. flags are of
// the simulated engine that it is.
func (w *Witness) Serve(model, declaration string, memoryBytes uint64, flags ...string) *rotav1.Command {
	argv := append([]string{w.Engine, "serve", "--listen", "127.0.0.1:{{port}}", "--step", "0s", "--tokens", "1", "--devices", "{{devices}}", "--model", model + "@" + declaration}, flags...)
	return &rotav1.Command{Argv: argv, Env: map[string]string{
		envSocket: w.path, envDeclaration: declaration, envMemory: strconv.FormatUint(memoryBytes, 10),
	}}
}

// DeclarationOf is the name under which a command of an engine was declared.
func DeclarationOf(c *rotav1.Command) string { return c.GetEnv()[envDeclaration] }

// EnginePackage is what to build for engines and those who call them. It is a program of its
// own, since what speaks HTTP takes longer to start than most probes work.
const EnginePackage = "rota/jepsen/workload/witness/engine"

// Package is what to build for a probe: a static binary, which agents may run as another
// user wherever it can be seen.
const Package = "rota/jepsen/workload/witness/probe"
