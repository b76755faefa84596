package agent

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"

	"rota/agent/engine"
	"rota/agent/engine/chunks"
	"rota/agent/httpcall"
	"rota/agent/inventory"
	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/internal/engine/simulated"
)

// served is the engine of a model on GPU 1, which adds its process to a witness.
func served(w *witness, model, misbehave string) *rotav1.DesiredEngine {
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	script := `echo $$ >> "$1"; exec "$2" ` + simulated.Command + ` --listen=127.0.0.1:{{port}} --step=0s --misbehave="$3"`
	return &rotav1.DesiredEngine{
		Spec: &rotav1.EngineSpec{
			Model: model, Driver: rotav1.EngineDriver_ENGINE_DRIVER_VLLM,
			Command: &rotav1.Command{Argv: sh(script, w.path, self, misbehave)},
		},
		Generation: 1, Chunk: &rotav1.GpuChunk{First: 1, Gpus: 1}, MemoryBytes: 80,
	}
}

// judgedBy grants an action that calls the engine of a model on GPU 1.
func (c *cluster) judgedBy(action uint64, model string) plan.Key {
	c.t.Helper()
	c.until("registration", func(c *cluster) bool { return len(c.registered) > 0 })
	key := plan.Key{Action: action, Attempt: 1}
	c.change(func() {
		key.Incarnation = c.incarnation
		c.desired[key] = &rotav1.Assignment{
			ActionId: action, Attempt: 1, Namespace: "default", Gpus: []uint32{1}, Engine: model,
			Http: &rotav1.HttpCall{Url: "{{engine}}/v1/completions", Body: []byte("{}")},
		}
	})
	return key
}

func (c *cluster) desireEngines(engines ...*rotav1.DesiredEngine) {
	c.change(func() { c.engines = engines })
}

// said waits until an engine was reported in a state, and returns that report.
func (c *cluster) said(model string, state rotav1.EngineState, more func(*rotav1.EngineReport) bool) (r *rotav1.EngineReport) {
	c.t.Helper()
	c.until(fmt.Sprintf("model %s in %v", model, state), func(c *cluster) bool {
		i := slices.IndexFunc(c.engineSaid, func(r *rotav1.EngineReport) bool { return r.Model == model && r.State == state && more(r) })
		if i >= 0 {
			r = c.engineSaid[i]
		}
		return i >= 0
	})
	return r
}

func any1(*rotav1.EngineReport) bool { return true }

// TestAnActionCallsItsEngine once that is ready. The engine outlives the agent, and is told as
// ready and set up once for each time that it was set up.
func TestAnActionCallsItsEngine(t *testing.T) {
	c, w := newCluster(t, 1), newWitness(t)
	p := newProcess(t, c)
	first := c.judgedBy(1, "judge")
	c.desireEngines(served(w, "judge", ""))
	if r := c.result(first); r.Reason != rotav1.EndReason_END_REASON_EXITED || r.ExitCode != 0 || !strings.Contains(string(r.StdoutTail), "simulated") {
		t.Fatalf("reported %v", r)
	}
	if r := c.said("judge", rotav1.EngineState_ENGINE_STATE_READY, any1); r.SetUp.AsDuration() <= 0 || r.Starts != 1 || r.Chunk.First != 1 {
		t.Errorf("reported %v", r)
	}
	pid := w.pid()

	p.kill()
	second := c.judgedBy(2, "judge")
	p.start()
	if r := c.result(second); r.ExitCode != 0 || w.pid() != pid {
		t.Errorf("reported %v; engine %d, was %d", r, w.pid(), pid)
	}
	c.said("judge", rotav1.EngineState_ENGINE_STATE_READY, func(r *rotav1.EngineReport) bool { return r.Starts == 0 && r.SetUp == nil })

	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.lines(2)
	if r := c.result(c.judgedBy(3, "judge")); r.ExitCode != 0 {
		t.Errorf("reported %v", r)
	}
	c.desireEngines()
	c.said("judge", rotav1.EngineState_ENGINE_STATE_ASLEEP, func(r *rotav1.EngineReport) bool { return r.Sleeps == 1 })
}

// TestAnActionWaitsForTheEngineThatLeaves its GPU, which takes its time or must be stopped: no
// program finds memory of an engine that was evicted for it.
func TestAnActionWaitsForTheEngineThatLeaves(t *testing.T) {
	for _, how := range []struct{ misbehave, sees string }{
		{simulated.Early200, "sleeping"}, {simulated.HangSleep, "gone"},
	} {
		t.Run(how.misbehave, func(t *testing.T) {
			c, w := newCluster(t, 1), newWitness(t)
			newProcess(t, c)
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			e := served(w, "judge", how.misbehave)
			e.Spec.CallTimeout = durationpb.New(3 * time.Second)
			c.desireEngines(e)
			c.said("judge", rotav1.EngineState_ENGINE_STATE_READY, any1)
			key := plan.Key{Action: 1, Attempt: 1}
			c.change(func() { // at once, as the servers do it
				key.Incarnation, c.engines = c.incarnation, nil
				c.desired[key] = &rotav1.Assignment{
					ActionId: 1, Attempt: 1, Namespace: "default", Gpus: []uint32{1},
					Command: &rotav1.Command{Argv: []string{self, "engine-state", strconv.Itoa(w.pid())}},
				}
			})
			if r := c.result(key); string(r.StdoutTail) != how.sees {
				t.Errorf("the action finds the engine %q, and should find it %q: %v", r.StdoutTail, how.sees, r)
			}
		})
	}
}

// engineState is the command of an action that looks at the process of a simulated engine.
func engineState(pid string) string {
	argv, err := os.ReadFile("/proc/" + pid + "/cmdline")
	if err != nil || len(argv) == 0 {
		return "gone"
	}
	for _, arg := range strings.Split(string(argv), "\x00") {
		listen, ok := strings.CutPrefix(arg, "--listen=")
		if !ok {
			continue
		}
		resp, err := http.Get("http://" + listen + "/is_sleeping")
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		if said, _ := io.ReadAll(resp.Body); strings.Contains(strings.ReplaceAll(string(said), " ", ""), `"is_sleeping":true`) {
			return "sleeping"
		}
	}
	return "awake"
}

// TestAnActionWhoseEngineFails ends, and says why.
func TestAnActionWhoseEngineFails(t *testing.T) {
	c, s := newCluster(t, 1), newSupervisor(t)
	cfg := config(t, c, s)
	cfg.SimulatedGPUs = &inventory.GPUs{Class: "simulated-H100", Count: 2, MemoryBytes: 80}
	start(t, cfg)
	key := c.judgedBy(1, "judge")
	e := served(newWitness(t), "judge", "")
	e.MemoryBytes = 81 // more than a GPU has
	c.desireEngines(e)
	if r := c.result(key); r.Reason != rotav1.EndReason_END_REASON_START_FAILED || !strings.Contains(r.Message, "needs 81 bytes of each GPU, and a GPU has 80") {
		t.Errorf("reported %v", r)
	}
	c.said("judge", rotav1.EngineState_ENGINE_STATE_FAILED, any1)
	c.desireEngines()
	c.until("the engine is gone", func(c *cluster) bool { return c.engineSaid[len(c.engineSaid)-1].Gone })
}

// TestEnginesDieWithTheLease, as attempts do, and start again under the next one.
func TestEnginesDieWithTheLease(t *testing.T) {
	c, w := newCluster(t, 1), newWitness(t)
	c.lease = 4 * time.Second
	newProcess(t, c)
	c.desireEngines(served(w, "judge", ""))
	c.said("judge", rotav1.EngineState_ENGINE_STATE_READY, any1)
	pid := w.pid()
	c.change(func() { c.noLeases = true })
	gone(t, pid)
	c.change(func() { c.noLeases, c.engineSaid = false, nil })
	w.lines(2)
	c.said("judge", rotav1.EngineState_ENGINE_STATE_READY, any1)
}

// TestEnginesDieThoughTheSupervisorIsFrozen: the agent kills it, also if nothing but engines runs there.
func TestEnginesDieThoughTheSupervisorIsFrozen(t *testing.T) {
	c, w := newCluster(t, 1), newWitness(t)
	c.lease = 4 * time.Second
	p := newProcess(t, c)
	c.desireEngines(served(w, "judge", ""))
	c.said("judge", rotav1.EngineState_ENGINE_STATE_READY, any1)
	pid := w.pid()
	if err := syscall.Kill(supervisorOf(t, p.dir), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.change(func() { c.noLeases = true })
	gone(t, pid)
	c.change(func() { c.noLeases, c.engineSaid = false, nil })
	w.lines(2)
	c.said("judge", rotav1.EngineState_ENGINE_STATE_READY, any1)
}

// TestAnEngineThatNobodyKnowsMayHoldAnyGPU: attempts without an engine wait for its end too.
func TestAnEngineThatNobodyKnowsMayHoldAnyGPU(t *testing.T) {
	d := newDriver(nil)
	d.gpus = 4
	if got := d.leavers(); len(got) > 0 {
		t.Errorf("%+v leave where there are none", got)
	}
	d.orphans = func() bool { return true }
	if got := d.leavers(); len(got) != 1 || !got[0].Has(0) || !got[0].Has(3) || got[0].Has(4) {
		t.Errorf("%+v leave, want one on all 4 GPUs", got)
	}
}

// TestWhatAnEngineIsStartedWith names its port and its GPUs.
func TestWhatAnEngineIsStartedWith(t *testing.T) {
	s := specs()
	s.inv.GPUs = &inventory.GPUs{Class: "H100", Count: 4, MemoryBytes: 80, UUIDs: []string{"a", "b", "c", "d"}}
	l := engine.Launch{
		Key: plan.Key{Action: 3, Incarnation: 7}, Port: 8123, Engine: plan.Engine{Model: "judge", First: 2, GPUs: 2},
		Spec: &rotav1.EngineSpec{Command: &rotav1.Command{Argv: []string{"serve", "--port={{port}}", "-tp", "{{gpus}}", "{{devices}}"},
			Env: map[string]string{"LISTEN": "127.0.0.1:{{port}}", "ROTA_ENGINE_PORT": "1"}}},
	}
	spec, err := s.engine(l)
	if err != nil || strings.Join(spec.Argv, " ") != "serve --port=8123 -tp 2 2,3" || !spec.Key.Engine() {
		t.Errorf("%+v, %v", spec, err)
	}
	for _, want := range []string{"LISTEN=127.0.0.1:8123", "ROTA_ENGINE_PORT=8123", "CUDA_VISIBLE_DEVICES=c,d", "ROTA_GPUS=2,3", "ROTA_MODEL=judge"} {
		if !slices.Contains(spec.Env, want) {
			t.Errorf("environment %q lacks %s", spec.Env, want)
		}
	}
	s.refuse = "processes are off"
	if _, err := s.engine(l); err == nil || !strings.Contains(err.Error(), s.refuse) {
		t.Errorf("%v", err)
	}
}

// TestTheAddressOfAnEngine is put into everything that an attempt is started with.
func TestTheAddressOfAnEngine(t *testing.T) {
	s := specs()
	s.self = "/opt/rota"
	as := assignment(41, "score", "{{engine}}/v1")
	as.Command.Env = map[string]string{"URL": "{{engine}}"}
	spec, err := s.spec(plan.Key{Action: 41, Attempt: 1, Incarnation: 7}, as)
	if err != nil {
		t.Fatal(err)
	}
	w := work{spec: spec}
	got, err := w.on("http://127.0.0.1:8123")
	if err != nil || got.Argv[1] != "http://127.0.0.1:8123/v1" || !slices.Contains(got.Env, "URL=http://127.0.0.1:8123") ||
		!slices.Contains(got.Env, "ROTA_ENGINE_URL=http://127.0.0.1:8123") {
		t.Errorf("%+v, %v", got, err)
	}
	if spec.Argv[1] != "{{engine}}/v1" {
		t.Error("what is started again, perhaps on another engine, has lost its mark")
	}
	if _, err := w.on(""); !errors.Is(err, runtime.ErrInvalidSpec) {
		t.Errorf("it starts without the engine that it names: %v", err)
	}
	as.Command, as.Http = nil, &rotav1.HttpCall{Url: "{{engine}}/v1"}
	if spec, err = s.spec(plan.Key{Action: 41, Attempt: 1, Incarnation: 7}, as); err != nil {
		t.Fatal(err)
	}
	if _, err := (work{spec: spec, call: as.Http}).on(""); !errors.Is(err, runtime.ErrInvalidSpec) {
		t.Errorf("it calls without the engine that it names: %v", err)
	}
	got, err = work{spec: spec, call: as.Http}.on("http://127.0.0.1:8123")
	if err != nil || as.Http.Url != "{{engine}}/v1" {
		t.Fatal(as.Http, err)
	}
	call := ""
	for _, kv := range got.Env {
		if v, ok := strings.CutPrefix(kv, httpcall.Variable+"="); ok {
			call += v
		}
	}
	if raw, err := base64.StdEncoding.DecodeString(call); err != nil || !strings.Contains(string(raw), "http://127.0.0.1:8123/v1") {
		t.Errorf("calls %q, %v", raw, err)
	}
}

// TestASetUpIsToldOnce, and not again with what is told of the engine later.
func TestASetUpIsToldOnce(t *testing.T) {
	r := engineReporter{said: map[plan.Engine]chunks.Status{}, setUp: map[plan.Engine]chunks.Counts{}}
	ready := chunks.Status{Engine: plan.Engine{Model: "judge", GPUs: 1}, State: chunks.StateReady, SetUpNS: 5, Counts: chunks.Counts{Starts: 1}}
	for i, c := range []struct {
		status chunks.Status
		told   bool
	}{{ready, true}, {ready, true}} { // the first was not confirmed
		changes := r.changes([]chunks.Status{c.status})
		if len(changes) != 1 || (r.reports(changes)[0].SetUp != nil) != c.told {
			t.Fatalf("%d: %+v", i, changes)
		}
	}
	r.confirm([]chunks.Status{ready})
	if again := r.changes([]chunks.Status{ready}); len(again) != 0 {
		t.Fatalf("%+v", again)
	}
	ready.Counts.Failures++
	if later := r.changes([]chunks.Status{ready}); len(later) != 1 || r.reports(later)[0].SetUp != nil {
		t.Fatalf("%+v", later)
	}
	ready.Counts.Wakes++
	if woken := r.changes([]chunks.Status{ready}); len(woken) != 1 || r.reports(woken)[0].SetUp == nil {
		t.Fatalf("%+v", woken)
	}
	if gone := r.changes(nil); len(gone) != 1 || !r.reports(gone)[0].Gone {
		t.Fatalf("%+v", gone)
	}
}

// TestEnginesDoNotWaitForStates: what the state manager of the agent has of a GPU is not in use by
// an engine that has to give it back.
func TestEnginesDoNotWaitForStates(t *testing.T) {
	read := func(gpu int) (used, total uint64, err error) {
		if gpu == 2 {
			return 0, 0, errors.New("fallen off the bus")
		}
		return 50, 80, nil
	}
	less := lessOwn(read, func(gpu int) uint64 { return []uint64{0, 40, 60}[gpu] })
	for gpu, want := range []uint64{50, 10, 0} {
		used, total, err := less(gpu)
		if used != want || (err == nil) != (total == 80) || (err != nil) != (gpu == 2) {
			t.Errorf("GPU %d: %d of %d, %v", gpu, used, total, err)
		}
	}
	if lessOwn(nil, nil) != nil {
		t.Error("somebody can say what is in use of simulated GPUs")
	}
}
