package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// counter submits an action that counts in a file until it is canceled.
func (w *world) counter(trajectory uint64, name string) (id uint64, read func() int) {
	w.Helper()
	file := filepath.Join(w.dir, name)
	loop := fmt.Sprintf(`i=0; while :; do i=$((i+1)); echo $i >%[1]s.next && mv %[1]s.next %[1]s; done`, file)
	id = w.submit(&rotav1.ActionSpec{TrajectoryId: trajectory, Command: &rotav1.Command{Argv: []string{"sh", "-c", loop}}})
	return id, func() int {
		text, _ := os.ReadFile(file)
		n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		return n
	}
}

func (w *world) submit(spec *rotav1.ActionSpec) uint64 {
	w.Helper()
	ids, err := w.api.Submit(w.Context(), spec)
	if err != nil {
		w.Fatal(err)
	}
	return ids[0]
}

// pauseIs waits until the cluster says how far a pause has come.
func (w *world) pauseIs(trajectory uint64, want rotav1.PauseState) {
	w.Helper()
	w.until(want.String(), func() bool {
		resp, err := w.api.Trajectories.GetTrajectory(w.Context(), &rotav1.GetTrajectoryRequest{Id: trajectory, AllowStale: true})
		return err == nil && resp.Trajectory.Pause == want
	})
}

func (w *world) actionIs(id uint64, want rotav1.ActionState) {
	w.Helper()
	w.until(fmt.Sprintf("action %d is %s", id, want), func() bool {
		resp, err := w.api.Actions.GetAction(w.Context(), &rotav1.GetActionRequest{Id: id, AllowStale: true})
		return err == nil && resp.Action.State == want
	})
}

// TestPauseAndResume: a paused trajectory stands still and others get its cores, also while the
// leader and the agent are killed. What is submitted to it waits. It goes on when its cores are
// free again, before others that wait for them.
func TestPauseAndResume(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("the machine has one core")
	}
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 3, Agents: 1, AgentArgs: []string{"--cores", "2"}})
	agent := w.cluster.Agents[0]
	if !w.node(agent).Resizes {
		t.Skip("the agent cannot freeze what runs here: " + w.node(agent).Runtime)
	}
	opened, err := w.api.OpenTrajectory(t.Context(), &rotav1.OpenTrajectoryRequest{MemoryBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	background, count := w.counter(opened.Id, "background")
	w.until("it counts", func() bool { return count() > 0 })

	if changed, err := w.api.PauseTrajectory(t.Context(), opened.Id); err != nil || !changed {
		t.Fatalf("paused: %v, %v", changed, err)
	}
	w.pauseIs(opened.Id, rotav1.PauseState_PAUSE_STATE_PAUSED)
	at := count()
	if cpus := w.cpus(background); len(cpus) > 0 {
		t.Errorf("a paused action holds CPUs %v", cpus)
	}
	next := w.submit(&rotav1.ActionSpec{TrajectoryId: opened.Id, Command: &rotav1.Command{Argv: []string{"true"}}})
	up := filepath.Join(w.dir, "up")
	all := w.submit(&rotav1.ActionSpec{Command: &rotav1.Command{Argv: []string{"sh", "-c", "echo >" + up + "; exec sleep 1000"}}, Resources: &rotav1.Resources{Cores: proto.Uint32(2)}})
	w.until("the other runs", func() bool { _, err := os.Stat(up); return err == nil }) // an agent that is killed before loses it

	leader := w.leader(nil)
	w.kill(agent)
	w.kill(leader)
	w.start(agent)
	w.start(leader)
	w.actionIs(w.submit(&rotav1.ActionSpec{Command: &rotav1.Command{Argv: []string{"true"}}, Resources: &rotav1.Resources{Cores: proto.Uint32(1)}}), rotav1.ActionState_ACTION_STATE_QUEUED)
	time.Sleep(100 * time.Millisecond)
	if now := count(); now != at {
		t.Errorf("it counted from %d to %d while it was paused", at, now)
	}
	w.actionIs(next, rotav1.ActionState_ACTION_STATE_QUEUED)

	if changed, err := w.api.ResumeTrajectory(t.Context(), opened.Id); err != nil || !changed {
		t.Fatalf("resumed: %v, %v", changed, err)
	}
	w.pauseIs(opened.Id, rotav1.PauseState_PAUSE_STATE_RESUMING)
	if now := count(); now != at {
		t.Errorf("it counted from %d to %d without a core", at, now)
	}
	if _, err := w.api.Cancel(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	w.until("it goes on", func() bool { return count() > at })
	w.actionIs(next, rotav1.ActionState_ACTION_STATE_SUCCEEDED)
	w.pauseIs(opened.Id, rotav1.PauseState_PAUSE_STATE_UNSPECIFIED)

	// The supervisor takes what is frozen with it, and says so.
	if _, err := w.api.PauseTrajectory(t.Context(), opened.Id); err != nil {
		t.Fatal(err)
	}
	w.pauseIs(opened.Id, rotav1.PauseState_PAUSE_STATE_PAUSED)
	w.signal(w.supervisor(agent), syscall.SIGKILL)
	w.actionIs(background, rotav1.ActionState_ACTION_STATE_LOST)
	w.pauseIs(opened.Id, rotav1.PauseState_PAUSE_STATE_PAUSED)
}

// TestPauseAndResumeInPython runs the tests of pauses of the Python client.
func TestPauseAndResumeInPython(t *testing.T) {
	t.Parallel()
	need.Tool(t, "python3")
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	out, err := pythonTests(ctx, "test_pause.py", w.cluster.Addrs()...).CombinedOutput()
	if err != nil || w.node(w.cluster.Agents[0]).Resizes && strings.Contains(string(out), "skipped") {
		t.Errorf("%v\n%s", err, out)
	}
}
