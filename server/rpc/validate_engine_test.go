package rpc

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

func goodEngine(d rotav1.EngineDriver) *rotav1.EngineSpec {
	e := &rotav1.EngineSpec{Model: "judge", Driver: d, Command: &rotav1.Command{Argv: []string{"serve", "{{port}}"}}}
	if d == rotav1.EngineDriver_ENGINE_DRIVER_HTTP {
		e.Sleep, e.Wake = &rotav1.EngineCall{Path: "/sleep?level=1"}, &rotav1.EngineCall{Method: "PUT", Path: "/wake"}
	}
	return e
}

func TestEnginesAreRefusedWithThePathOfWhatIsWrong(t *testing.T) {
	const vllm, sglang, process, http = rotav1.EngineDriver_ENGINE_DRIVER_VLLM, rotav1.EngineDriver_ENGINE_DRIVER_SGLANG,
		rotav1.EngineDriver_ENGINE_DRIVER_PROCESS, rotav1.EngineDriver_ENGINE_DRIVER_HTTP
	call := &rotav1.EngineCall{Path: "/x"}
	for _, c := range []struct {
		name   string
		driver rotav1.EngineDriver
		spoil  func(*rotav1.EngineSpec)
		want   string // empty: nothing is wrong
	}{
		{"vllm", vllm, func(e *rotav1.EngineSpec) { e.SleepLevel, e.AsleepMemoryBytes = 2, 1<<40 }, ""},
		{"sglang", sglang, func(e *rotav1.EngineSpec) { e.ProbePath = "/health?x=1" }, ""},
		{"process", process, func(e *rotav1.EngineSpec) { e.NoProbe = true }, ""},
		{"http", http, func(e *rotav1.EngineSpec) { e.StartTimeout = durationpb.New(time.Hour) }, ""},
		{"no model", vllm, func(e *rotav1.EngineSpec) { e.Model = "" }, "engine.model is required"},
		{"long model", vllm, func(e *rotav1.EngineSpec) { e.Model = strings.Repeat("x", 129) }, "engine.model must have at most 128 bytes"},
		{"no driver", 0, func(*rotav1.EngineSpec) {}, "engine.driver is required, and one of vllm, sglang, process and http"},
		{"unknown driver", 99, func(*rotav1.EngineSpec) {}, "engine.driver is required"},
		{"no command", vllm, func(e *rotav1.EngineSpec) { e.Command = nil }, "engine.command is required"},
		{"no program", vllm, func(e *rotav1.EngineSpec) { e.Command.Argv = nil }, "engine.command.argv must name a program"},
		{"variable of rota", vllm, func(e *rotav1.EngineSpec) { e.Command.Env = map[string]string{"ROTA_ENGINE_PORT": "1"} }, "is set by rota"},
		{"devices", vllm, func(e *rotav1.EngineSpec) { e.Command.Env = map[string]string{"CUDA_VISIBLE_DEVICES": "1"} }, "{{devices}} has the numbers"},
		{"probe", vllm, func(e *rotav1.EngineSpec) { e.ProbePath = "health" }, `engine.probe_path must begin with '/', is "health"`},
		{"probe that is none", vllm, func(e *rotav1.EngineSpec) { e.ProbePath = "/\n" }, "engine.probe_path is not a path"},
		{"no probe", http, func(e *rotav1.EngineSpec) { e.NoProbe = true }, "engine.no_probe is for the driver process only"},
		{"a probe and none", process, func(e *rotav1.EngineSpec) { e.NoProbe, e.ProbePath = true, "/x" }, "engine.probe_path must be empty with no_probe"},
		{"sleep level", vllm, func(e *rotav1.EngineSpec) { e.SleepLevel = 3 }, "engine.sleep_level must be 0, 1 or 2, is 3"},
		{"sleep level of another", sglang, func(e *rotav1.EngineSpec) { e.SleepLevel = 1 }, "engine.sleep_level is for the driver vllm only"},
		{"no sleep", http, func(e *rotav1.EngineSpec) { e.Sleep = nil }, "engine.sleep is required for the driver http"},
		{"no wake", http, func(e *rotav1.EngineSpec) { e.Wake = nil }, "engine.wake is required for the driver http"},
		{"sleep of vllm", vllm, func(e *rotav1.EngineSpec) { e.Sleep = call }, "engine.sleep is for the driver http only: the driver vllm knows how"},
		{"wake of sglang", sglang, func(e *rotav1.EngineSpec) { e.Wake = call }, "engine.wake is for the driver http only: the driver sglang knows how"},
		{"path of a call", http, func(e *rotav1.EngineSpec) { e.Wake = &rotav1.EngineCall{Path: "wake"} }, "engine.wake.path must begin with '/'"},
		{"method of a call", http, func(e *rotav1.EngineSpec) { e.Sleep = &rotav1.EngineCall{Path: "/x", Method: "A B"} }, "engine.sleep.method is not a method"},
		{"start timeout", vllm, func(e *rotav1.EngineSpec) { e.StartTimeout = durationpb.New(2 * time.Hour) }, "engine.start_timeout must be at most 1h0m0s, is 2h0m0s"},
		{"call timeout", vllm, func(e *rotav1.EngineSpec) { e.CallTimeout = durationpb.New(-1) }, "engine.call_timeout must not be negative"},
		{"memory of a process", process, func(e *rotav1.EngineSpec) { e.AsleepMemoryBytes = 1 }, "engine.asleep_memory_bytes must be 0 for the driver process"},
		{"too long", vllm, func(e *rotav1.EngineSpec) { e.Command.Argv = append(e.Command.Argv, strings.Repeat("x", 33<<10)) }, "at most 32768 are allowed"},
		{"unknown field", vllm, func(e *rotav1.EngineSpec) { e.Command.ProtoReflect().SetUnknown([]byte{0xf8, 0x7f, 1}) }, "engine has fields that this server does not know"},
	} {
		e := goodEngine(c.driver)
		c.spoil(e)
		v := checkEngine(e).in("engine")
		switch {
		case c.want == "" && v != nil:
			t.Errorf("%s: %v", c.name, v.err())
		case c.want != "" && (v == nil || !strings.Contains(v.path+" "+v.problem, c.want)):
			t.Errorf("%s: %v, want %s", c.name, v, c.want)
		}
	}
	if v := checkEngine(nil).in("engine"); v == nil || v.path != "engine" {
		t.Errorf("no engine: %v", v)
	}
}

func TestTheMarkOfAnEngine(t *testing.T) {
	gpus := &rotav1.Resources{Gpus: &rotav1.GpuDemand{Gpus: []uint32{1}, Model: "judge"}}
	command := func(argv ...string) *rotav1.ActionSpec {
		return &rotav1.ActionSpec{Command: &rotav1.Command{Argv: argv}}
	}
	call := func(url string) *rotav1.ActionSpec { return &rotav1.ActionSpec{Http: &rotav1.HttpCall{Url: url}} }
	variable := command("true")
	variable.Command.Env = map[string]string{"URL": "{{engine}}/v1"}
	for _, c := range []struct {
		name  string
		spec  *rotav1.ActionSpec
		model bool
		want  string
	}{
		{"argument", command("judge", "--url={{engine}}/v1"), true, ""},
		{"argument without a model", command("judge", "{{engine}}"), false, "resources.gpus.model is required: command.argv has {{engine}}"},
		{"variable", variable, true, ""},
		{"variable without a model", variable, false, "command.env has {{engine}}"},
		{"URL", call("{{engine}}/v1/completions?x=1"), true, ""},
		{"URL and no path", call("{{engine}}"), true, ""},
		{"URL without a model", call("{{engine}}/v1"), false, "http.url has {{engine}}"},
		{"URL with a scheme", call("http://{{engine}}/v1"), true, "http.url must have {{engine}} at its beginning only"},
		{"URL with a port", call("{{engine}}:80/v1"), true, "http.url must go on with a path after {{engine}}"},
		{"URL with another host", call("{{engine}}@example.com/"), true, "http.url must go on with a path after {{engine}}"},
		{"URL with two", call("{{engine}}/{{engine}}"), true, "http.url must go on with a path"},
	} {
		c.spec.Resources = nil
		if c.model {
			c.spec.Resources = gpus
		}
		v := checkSpec(c.spec)
		switch {
		case c.want == "" && v != nil:
			t.Errorf("%s: %v", c.name, v.err())
		case c.want != "" && (v == nil || !strings.Contains(v.path+" "+v.problem, c.want)):
			t.Errorf("%s: %v, want %s", c.name, v, c.want)
		}
	}
}

func TestReportsOfEnginesAreChecked(t *testing.T) {
	good := func() *rotav1.EngineReport {
		return &rotav1.EngineReport{Model: "m", Chunk: &rotav1.GpuChunk{First: 2, Gpus: 2}, State: rotav1.EngineState_ENGINE_STATE_READY}
	}
	for _, c := range []struct {
		name  string
		spoil func(*rotav1.EngineReport)
		want  string
	}{
		{"good", func(*rotav1.EngineReport) {}, ""},
		{"gone", func(r *rotav1.EngineReport) { r.State, r.Gone = 0, true }, ""},
		{"no model", func(r *rotav1.EngineReport) { r.Model = "" }, "reports[0].model is required"},
		{"no chunk", func(r *rotav1.EngineReport) { r.Chunk = nil }, "reports[0].chunk must be of"},
		{"no such chunk", func(r *rotav1.EngineReport) { r.Chunk.First = 1 }, "reports[0].chunk must be of"},
		{"no state", func(r *rotav1.EngineReport) { r.State = 0 }, "reports[0].state is not a state"},
		{"unknown state", func(r *rotav1.EngineReport) { r.State = 99 }, "reports[0].state is not a state"},
		{"set-up", func(r *rotav1.EngineReport) { r.SetUp = durationpb.New(-1) }, "reports[0].set_up must not be negative"},
	} {
		r := good()
		c.spoil(r)
		v := checkEngineReports(&rotav1.ReportEnginesRequest{Name: "n1", Incarnation: 1, Reports: []*rotav1.EngineReport{r}})
		switch {
		case c.want == "" && v != nil:
			t.Errorf("%s: %v", c.name, v.err())
		case c.want != "" && (v == nil || !strings.Contains(v.path+" "+v.problem, c.want)):
			t.Errorf("%s: %v, want %s", c.name, v, c.want)
		}
	}
	if v := checkEngineReports(&rotav1.ReportEnginesRequest{Name: "n1", Incarnation: 1, Reports: make([]*rotav1.EngineReport, 257)}); v == nil {
		t.Error("257 reports are accepted")
	}
}
