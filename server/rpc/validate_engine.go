package rpc

import (
	"net/url"
	"strings"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// Limits of engines.
const (
	engineTimeoutMax   = time.Hour
	engineReportsMax   = 256
	enginePathBytesMax = 2 << 10
	sleepLevelMax      = 2
)

// engineMark stands for the address of the engine of an action's model.
const engineMark = "{{engine}}"

func requireModel(path, model string) *violation {
	if model == "" {
		return wrong(path, "is required")
	}
	return checkText(path, model, modelBytesMax)
}

func checkEngine(e *rotav1.EngineSpec) *violation {
	switch {
	case e == nil:
		return wrong("", "is required")
	case e.Command == nil:
		return wrong("command", "is required: it starts the engine")
	case hasUnknown(e) || hasUnknown(e.Command) || e.Sleep != nil && hasUnknown(e.Sleep) || e.Wake != nil && hasUnknown(e.Wake):
		return wrong("", "has fields that this server does not know: leave them out, or upgrade the servers")
	}
	if v := firstOf(
		requireModel("model", e.Model), checkEngineCommand(e.Command), checkProbe(e), checkDriver(e),
		checkTimeout("start_timeout", e.StartTimeout, engineTimeoutMax), checkTimeout("call_timeout", e.CallTimeout, engineTimeoutMax),
		checkMemory("asleep_memory_bytes", e.AsleepMemoryBytes),
	); v != nil {
		return v
	}
	if n := e.SizeVT(); n > state.EngineSpecBytesMax {
		return wrong("", "is %d bytes long; at most %d are allowed: put long settings into a file on the nodes", n, state.EngineSpecBytesMax)
	}
	return nil
}

func checkEngineCommand(c *rotav1.Command) *violation {
	if _, given := c.Env["CUDA_VISIBLE_DEVICES"]; given {
		return wrong("command.env", "has the key CUDA_VISIBLE_DEVICES, which is set by rota: {{devices}} has the numbers of the GPUs")
	}
	return checkCommand(c)
}

func checkProbe(e *rotav1.EngineSpec) *violation {
	switch {
	case e.NoProbe && e.Driver != rotav1.EngineDriver_ENGINE_DRIVER_PROCESS:
		return wrong("no_probe", "is for the driver process only: other drivers need a probe that says when the engine can serve")
	case e.NoProbe && e.ProbePath != "":
		return wrong("probe_path", "must be empty with no_probe")
	case e.ProbePath == "":
		return nil
	}
	return checkEnginePath("probe_path", e.ProbePath)
}

// checkDriver checks what only some drivers have.
func checkDriver(e *rotav1.EngineSpec) *violation {
	isHTTP, isVLLM := e.Driver == rotav1.EngineDriver_ENGINE_DRIVER_HTTP, e.Driver == rotav1.EngineDriver_ENGINE_DRIVER_VLLM
	name := strings.ToLower(strings.TrimPrefix(e.Driver.String(), "ENGINE_DRIVER_"))
	_, known := rotav1.EngineDriver_name[int32(e.Driver)]
	switch {
	case !known || e.Driver == rotav1.EngineDriver_ENGINE_DRIVER_UNSPECIFIED:
		return wrong("driver", "is required, and one of vllm, sglang, process and http")
	case isHTTP && e.Sleep == nil:
		return wrong("sleep", "is required for the driver http: the call that frees the GPU memory")
	case isHTTP && e.Wake == nil:
		return wrong("wake", "is required for the driver http: the call that takes the GPU memory again")
	case !isHTTP && e.Sleep != nil:
		return wrong("sleep", "is for the driver http only: the driver %s knows how", name)
	case !isHTTP && e.Wake != nil:
		return wrong("wake", "is for the driver http only: the driver %s knows how", name)
	case !isVLLM && e.SleepLevel != 0:
		return wrong("sleep_level", "is for the driver vllm only")
	case e.SleepLevel > sleepLevelMax:
		return wrong("sleep_level", "must be 0, 1 or 2, is %d", e.SleepLevel)
	case e.Driver == rotav1.EngineDriver_ENGINE_DRIVER_PROCESS && e.AsleepMemoryBytes != 0:
		return wrong("asleep_memory_bytes", "must be 0 for the driver process: it is stopped and keeps nothing")
	case !isHTTP:
		return nil
	}
	return firstOf(checkEngineCall(e.Sleep).in("sleep"), checkEngineCall(e.Wake).in("wake"))
}

func checkEngineCall(c *rotav1.EngineCall) *violation {
	return firstOf(checkMethod(c.Method), checkEnginePath("path", c.Path))
}

// checkEnginePath checks what follows the address of an engine.
func checkEnginePath(path, text string) *violation {
	if v := checkText(path, text, enginePathBytesMax); v != nil {
		return v
	}
	if !strings.HasPrefix(text, "/") {
		return wrong(path, "must begin with '/', is %q", text)
	}
	if _, err := url.Parse("http://127.0.0.1" + text); err != nil {
		return wrong(path, "is not a path: %q", text)
	}
	return nil
}

func checkEngineReports(req *rotav1.ReportEnginesRequest) *violation {
	if v := firstOf(requireName("name", req.Name), requireID("incarnation", req.Incarnation),
		checkCount("reports", "report", len(req.Reports), engineReportsMax)); v != nil {
		return v
	}
	for i, r := range req.Reports {
		if v := checkEngineReport(r); v != nil {
			return v.in("reports[%d]", i)
		}
	}
	return nil
}

func checkEngineReport(r *rotav1.EngineReport) *violation {
	_, known := rotav1.EngineState_name[int32(r.GetState())]
	switch {
	case r == nil:
		return wrong("", "is empty")
	case r.Chunk == nil || !(state.Chunk{First: r.Chunk.First, Units: r.Chunk.Gpus}).Aligned(state.GPUsPerNodeMax):
		return wrong("chunk", "must be of 1, 2, 4 or 8 GPUs, and begin at a multiple of that")
	case !r.Gone && (!known || r.State == rotav1.EngineState_ENGINE_STATE_UNSPECIFIED):
		return wrong("state", "is not a state: %d", r.State)
	}
	return firstOf(requireModel("model", r.Model), checkDuration("set_up", r.SetUp))
}

// checkEngineMark refuses an action that calls the engine of a model, and names none.
func checkEngineMark(s *rotav1.ActionSpec) *violation {
	if where := engineMarkIn(s); where != "" && s.GetResources().GetGpus().GetModel() == "" {
		return wrong("resources.gpus.model", "is required: %s has %s, the address of that model's engine", where, engineMark)
	}
	return nil
}

// engineMarkIn returns the field of an action that calls an engine; empty if none does.
func engineMarkIn(s *rotav1.ActionSpec) string {
	for _, arg := range s.GetCommand().GetArgv() {
		if strings.Contains(arg, engineMark) {
			return "command.argv"
		}
	}
	for _, value := range s.GetCommand().GetEnv() {
		if strings.Contains(value, engineMark) {
			return "command.env"
		}
	}
	if strings.Contains(s.GetHttp().GetUrl(), engineMark) {
		return "http.url"
	}
	return ""
}

// withEngine puts an address where a URL begins with that of an engine, so that the rest of it
// can be checked.
func withEngine(text string) (string, *violation) {
	if !strings.Contains(text, engineMark) {
		return text, nil
	}
	rest, begins := strings.CutPrefix(text, engineMark)
	if !begins {
		return "", wrong("url", "must have %s at its beginning only: it becomes http://127.0.0.1:PORT; is %q", engineMark, text)
	}
	if strings.Contains(rest, engineMark) || rest != "" && !strings.ContainsRune("/?#", rune(rest[0])) {
		return "", wrong("url", "must go on with a path after %s, such as %s/v1/completions; is %q", engineMark, engineMark, text)
	}
	return "http://127.0.0.1:1" + rest, nil
}
