package e2e

import (
	"fmt"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/cmd/internal/rotatest"
	"rota/internal/engine/simulated"
)

// oneGPU is what each agent declares; a model takes all of it.
const oneGPU = 1 << 30

// serve declares the engine of a model that takes a whole GPU: a simulated one.
func (w *world) serve(model string) {
	w.Helper()
	_, err := w.api.Engines.RegisterEngine(w.Context(), &rotav1.RegisterEngineRequest{Engine: &rotav1.EngineSpec{
		Model: model, Driver: rotav1.EngineDriver_ENGINE_DRIVER_VLLM,
		Command: &rotav1.Command{
			Argv: []string{rotatest.Binary(w), "engine", "simulate", "--listen=127.0.0.1:{{port}}", "--step=0s", "--model=" + model, "--devices={{devices}}",
				"--account=" + w.dir, "--memory=" + strconv.Itoa(oneGPU), "--capacity=" + strconv.Itoa(oneGPU)},
			Env: map[string]string{"ENGINE": model, "E2E_WORLD": w.dir},
		},
	}})
	if err != nil {
		w.Fatal(err)
	}
}

// asks submits a call to the engine of a model.
func (w *world) asks(model string) []uint64 {
	w.Helper()
	ids, err := w.api.Submit(w.Context(), &rotav1.ActionSpec{
		Http: &rotav1.HttpCall{Url: "{{engine}}/v1/completions", Body: []byte("{}")},
		Resources: &rotav1.Resources{Cores: proto.Uint32(0), Gpus: &rotav1.GpuDemand{
			Gpus: []uint32{1}, MemoryBytes: oneGPU, Model: model,
		}},
		LossPolicy: rotav1.LossPolicy_LOSS_POLICY_RETRY, MaxAttempts: 10,
	})
	if err != nil {
		w.Fatal(err)
	}
	return ids
}

// answers waits until the engine of a model has answered a call.
func (w *world) answers(model string) {
	w.Helper()
	w.ends(w.asks(model), rotav1.ActionState_ACTION_STATE_SUCCEEDED)
}

// enginePid is the process that serves a model in this world.
func (w *world) enginePid(model string) (pid int) {
	w.Helper()
	w.until("one engine of "+model+" runs", func() bool {
		pids := processes("ENGINE="+model, w.marker())
		if len(pids) == 1 {
			pid = pids[0]
		}
		return len(pids) == 1
	})
	return pid
}

// engine is what the cluster knows of the engine of a model on its only node.
func (w *world) engine(model string) *rotav1.EngineInstance {
	w.Helper()
	resp, err := w.api.Engines.GetEngine(w.Context(), &rotav1.GetEngineRequest{Model: model})
	if err != nil || len(resp.Engine.Instances) != 1 {
		return &rotav1.EngineInstance{}
	}
	return resp.Engine.Instances[0]
}

// untilEngine waits until the cluster knows that an engine is in a state and was started, woken
// and put to sleep so often.
func (w *world) untilEngine(model string, state rotav1.EngineState, starts, wakes, sleeps uint64) {
	w.Helper()
	want := fmt.Sprint(state, starts, wakes, sleeps)
	w.until(fmt.Sprintf("the engine of %s is %s", model, want), func() bool {
		e := w.engine(model)
		return fmt.Sprint(e.State, e.Starts, e.Wakes, e.Sleeps) == want
	})
}

const (
	engineReady  = rotav1.EngineState_ENGINE_STATE_READY
	engineAsleep = rotav1.EngineState_ENGINE_STATE_ASLEEP
)

// TestEnginesTakeTurns: two models share one GPU, which has memory for one. Each engine is started
// once and then put to sleep and woken, whoever dies meanwhile: the leader, or the agent. If the
// engine itself is killed it is restarted; if the supervisor is, all are gone and start again.
func TestEnginesTakeTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 3, Agents: 1, AgentArgs: []string{"--simulated-gpus", "1xH100:1GiB"}})
	agent := w.cluster.Agents[0]
	w.serve("judge")
	w.serve("teacher")
	w.answers("judge")
	w.answers("teacher")
	w.answers("judge")
	w.untilEngine("judge", engineReady, 1, 1, 1)
	w.untilEngine("teacher", engineAsleep, 1, 0, 1)
	judge, teacher := w.enginePid("judge"), w.enginePid("teacher")

	killLeader(w, nil)
	w.answers("teacher")
	w.untilEngine("teacher", engineReady, 1, 1, 1)

	w.kill(agent)
	calls := w.asks("teacher")
	w.start(agent)
	w.ends(calls, rotav1.ActionState_ACTION_STATE_SUCCEEDED)
	w.answers("judge")
	if w.enginePid("judge") != judge || w.enginePid("teacher") != teacher {
		t.Error("engines were started again with the agent")
	}

	w.signal(w.enginePid("judge"), syscall.SIGKILL)
	w.until("the engine is another process", func() bool {
		pids := processes("ENGINE=judge", w.marker())
		return len(pids) == 1 && pids[0] != judge
	})
	w.answers("judge")

	w.signal(w.supervisor(agent), syscall.SIGKILL)
	w.until("another teacher runs or none", func() bool {
		pids := processes("ENGINE=teacher", w.marker())
		return len(pids) == 0 || pids[0] != teacher
	})
	w.answers("judge")
	w.answers("teacher")
	if used, err := simulated.Used(w.dir, 0); err != nil || used != oneGPU {
		t.Errorf("%d bytes of the simulated GPU are in use, want %d: %v", used, oneGPU, err)
	}
	w.sameHash()
	if leftovers, _ := filepath.Glob(filepath.Join(agent.Dir, "data", "engines.record.damaged*")); len(leftovers) > 0 {
		t.Errorf("the record of engines was damaged: %v", leftovers)
	}
}
