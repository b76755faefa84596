package engine

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"

	"rota/agent/engine/chunks"
	"rota/internal/engine/simulated"
)

const (
	vllm    = rotav1.EngineDriver_ENGINE_DRIVER_VLLM
	sglang  = rotav1.EngineDriver_ENGINE_DRIVER_SGLANG
	program = rotav1.EngineDriver_ENGINE_DRIVER_PROCESS
	custom  = rotav1.EngineDriver_ENGINE_DRIVER_HTTP
)

// completes asks an engine for a completion.
func (n *node) completes(model string) bool {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	c := &client{base: n.manager.URL(on(model)), http: n.manager.http}
	_, err := c.call(ctx, http.MethodPost, "/v1/completions", []byte("{}"))
	if err != nil {
		n.t.Log(err)
	}
	return err == nil
}

// TestTwoModelsTakeTurns on a GPU that has memory for one, with each driver. No engine is told
// that there is no memory.
func TestTwoModelsTakeTurns(t *testing.T) {
	for name, c := range map[string]struct {
		driver rotav1.EngineDriver
		level  uint32
		starts uint64
	}{
		"vLLM level 1": {vllm, 0, 1}, "vLLM level 2": {vllm, 2, 1}, "SGLang": {sglang, 0, 1}, "HTTP": {custom, 0, 1}, "process": {program, 0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			a, b := n.spec("a", c.driver, ""), n.spec("b", c.driver, "")
			a.SleepLevel, b.SleepLevel = c.level, c.level
			for range 2 {
				n.desire(a)
				n.until("a", chunks.StateReady)
				n.desire(b)
				n.until("b", chunks.StateReady)
				if n.memory() != gpuMemory || !n.completes("b") {
					t.Error("b is ready and does not serve")
				}
			}
			n.desire(a)
			s := n.until("a", chunks.StateReady)
			if !n.completes("a") || s.Counts.Failures > 0 || s.Counts.Starts != c.starts {
				t.Errorf("it does not serve, or failed, or was not started %d times: %+v", c.starts, s)
			}
			if c.driver != program && (s.Counts.Wakes != 2 || s.Counts.Sleeps != 2) {
				t.Errorf("woken and put to sleep otherwise than twice: %+v", s)
			}
			n.desire()
			n.until("a", map[bool]chunks.State{false: chunks.StateAsleep}[c.driver == program])
			if n.memory() != 0 {
				t.Errorf("%d bytes are in use", n.memory())
			}
		})
	}
}

// TestMisbehaviourWhileLeaving: whatever an engine does when it should give its memory to another
// one, that one gets it, and never before it is free.
func TestMisbehaviourWhileLeaving(t *testing.T) {
	for name, c := range map[string]struct {
		driver   rotav1.EngineDriver
		what     string
		failures uint64
		asleep   bool
		nvml     bool
	}{
		"a 200 too early, as vLLM says itself":   {vllm, simulated.Early200, 0, true, false},
		"a 200 too early, as NVML says":          {sglang, simulated.Early200, 0, true, true},
		"vLLM hangs":                             {vllm, simulated.HangSleep, 1, false, false},
		"SGLang hangs":                           {sglang, simulated.HangSleep, 1, false, false},
		"vLLM refuses":                           {vllm, simulated.FailSleep, 1, false, false},
		"another server refuses":                 {custom, simulated.FailSleep, 1, false, false},
		"an answer that is no JSON":              {vllm, simulated.Garbage, 1, false, false},
		"an answer that does not come to an end": {vllm, simulated.Huge, 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			if c.nvml {
				n.halt()
				n.boot(n.manager.Record, func(int) (uint64, uint64, error) { return n.memory(), gpuMemory, nil })
			}
			a, b := n.spec("a", c.driver, c.what), n.spec("b", c.driver, "")
			if c.failures > 0 {
				a.CallTimeout = durationpb.New(200 * time.Millisecond)
			}
			n.desire(a)
			n.until("a", chunks.StateReady)
			if c.asleep {
				n.desire()
				if n.until("a", chunks.StateAsleep); n.memory() != 0 {
					t.Error("it is said to be asleep, and holds memory")
				}
				n.desire(a)
				n.until("a", chunks.StateReady)
			}
			n.desire(b)
			s := n.until("b", chunks.StateReady)
			if s.Counts.Failures != 0 || !n.completes("b") {
				t.Errorf("the other engine had no memory: %+v", s)
			}
			n.mu.Lock()
			left, exists := n.chunks.Status(on("a"))
			n.mu.Unlock()
			if exists != c.asleep || exists && (left.State != chunks.StateAsleep || left.Counts.Failures != c.failures) {
				t.Errorf("it is left as %+v", left)
			}
		})
	}
}

// TestMisbehaviourOnWake: an engine that does not wake is stopped and started.
func TestMisbehaviourOnWake(t *testing.T) {
	for _, what := range []string{simulated.HangWake, simulated.CrashWake, simulated.OOMWake} {
		for name, driver := range map[string]rotav1.EngineDriver{"vLLM": vllm, "SGLang": sglang} {
			t.Run(what+" "+name, func(t *testing.T) {
				t.Parallel()
				n := newNode(t)
				a := n.spec("a", driver, what)
				n.desire(a)
				n.until("a", chunks.StateReady)
				n.desire()
				n.until("a", chunks.StateAsleep)
				if what == simulated.HangWake {
					a.CallTimeout = durationpb.New(200 * time.Millisecond) // of the running one too: it is the same
				}
				n.desire(a)
				s := n.until("a", chunks.StateReady)
				if s.Counts.Starts != 2 || s.Counts.Failures != 1 || s.Counts.Wakes != 0 || !n.completes("a") {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// TestAnEngineThatDoesNotStart fails in the end, and says why.
func TestAnEngineThatDoesNotStart(t *testing.T) {
	for what, says := range map[string]string{
		simulated.NeverReady: "simulated: loading", simulated.HangProbe: "not done within", simulated.Exit: "exited with code 3",
		"no such program": "no such file",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			a := n.spec("a", vllm, what)
			switch what {
			case simulated.NeverReady: // it has to answer before that
				a.StartTimeout = durationpb.New(3 * time.Second)
			case simulated.HangProbe:
				a.StartTimeout = durationpb.New(time.Second)
			}
			if what == "no such program" {
				a.Command.Argv[0] = "/no/such/program"
			}
			n.desire(a)
			s := n.until("a", chunks.StateFailed)
			if s.Counts.Failures < chunks.FailuresMax || !strings.Contains(s.Message, says) {
				t.Errorf("%+v, want a message with %q", s, says)
			}
			n.desire()
			n.until("a", chunks.StateFailed) // the cluster is to choose other chunks
			n.tell(func(c *chunks.Chunks, _ int64) { c.Removed(map[string]bool{"a": true}) })
			n.until("a", 0)
			if n.memory() != 0 {
				t.Error("memory is in use though nothing should run")
			}
		})
	}
}

// TestAnEngineThatFallsIll, or is killed, is restarted.
func TestAnEngineThatFallsIll(t *testing.T) {
	for name, harm := range map[string]func(n *node){
		"sick": func(n *node) {
			c := &client{base: n.manager.URL(on("a")), http: n.manager.http}
			if _, err := c.call(n.t.Context(), http.MethodPost, "/simulated/misbehave?what="+simulated.Sick, nil); err != nil {
				n.t.Error(err)
			}
		},
		"killed": func(n *node) { n.children.crash() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.desire(n.spec("a", sglang, ""))
			n.until("a", chunks.StateReady)
			harm(n)
			limit := time.Now().Add(patience)
			for n.until("a", chunks.StateReady).Counts.Starts < 2 {
				if time.Now().After(limit) {
					t.Fatal("it was not restarted")
				}
				time.Sleep(5 * time.Millisecond)
			}
			if !n.completes("a") {
				t.Error("it does not serve")
			}
		})
	}
}

// TestAnotherAgent takes over the engines that it can be sure of.
func TestAnotherAgent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a, b := n.spec("a", vllm, ""), n.spec("b", vllm, "")
	n.desire(a)
	n.until("a", chunks.StateReady)
	n.desire(b)
	n.until("b", chunks.StateReady)
	url := n.manager.URL(on("b"))

	n.reboot() // one is awake and one asleep, and both stay so
	if n.until("a", chunks.StateAsleep); n.until("b", chunks.StateReady).Counts.Starts != 0 || n.manager.URL(on("b")) != url {
		t.Error("b was started again")
	}
	n.desire(a)
	n.until("a", chunks.StateReady)
	n.until("b", chunks.StateAsleep)
	if n.children.started != 2 || !n.completes("a") {
		t.Errorf("%d engines were started, want 2", n.children.started)
	}

	n.halt()
	n.children.crash() // while no agent looks
	n.children.waits.Wait()
	n.boot(n.manager.Record, nil)
	n.desire(b)
	n.until("b", chunks.StateReady)
	n.until("a", 0)
	if n.children.started != 3 || !n.completes("b") {
		t.Errorf("%d engines were started, want 3", n.children.started)
	}
}

// TestAnotherAgentIsNotSure: engines of which nobody knows how they are left are stopped, before
// anything gets their memory.
func TestAnotherAgentIsNotSure(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, path string){
		"something was being done": func(t *testing.T, path string) {
			entries, err := record{path}.read()
			if err != nil || len(entries) != 1 {
				t.Fatal(entries, err)
			}
			entries[0].Left = leftBusy
			if err := (record{path}).write(entries); err != nil {
				t.Fatal(err)
			}
		},
		"the record is damaged": func(t *testing.T, path string) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)/2] ^= 1
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"the record is lost": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.desire(n.spec("a", vllm, ""))
			n.until("a", chunks.StateReady)
			n.halt()
			damage(t, n.manager.Record)
			n.boot(n.manager.Record, nil)
			n.desire(n.spec("b", vllm, ""))
			if s := n.until("b", chunks.StateReady); s.Counts.Failures != 0 || !n.completes("b") {
				t.Errorf("%+v", s)
			}
			n.until("a", 0)
			n.untilForgotten()
		})
	}
}

// TestARecordIsWholeOrNothing: no byte of it can change without being noticed.
func TestARecordIsWholeOrNothing(t *testing.T) {
	r := record{t.TempDir() + "/record"}
	if got, err := r.read(); got != nil || err != nil {
		t.Fatal(got, err)
	}
	if err := r.write([]entry{{Runs: chunks.Want{Engine: on("a")}, Port: 1, Left: leftAwake}}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(r.path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeRecord(data); err != nil || len(got) != 1 || got[0].Runs.Engine != on("a") {
		t.Fatal(got, err)
	}
	for i := range data {
		for _, damaged := range [][]byte{data[:i], append(append(append([]byte{}, data[:i]...), data[i]^4), data[i+1:]...)} {
			if _, err := decodeRecord(damaged); err == nil {
				t.Fatalf("damage at byte %d is not noticed", i)
			}
		}
	}
}
