package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
)

// twoCores submits an action that can use two cores, and runs until it is canceled. It
// writes what its file of cores says, over and over.
func (w *world) twoCores(name string) (id uint64) {
	w.Helper()
	said := filepath.Join(w.dir, name)
	loop := fmt.Sprintf(`while :; do cat "$ROTA_CORES_FILE" >%[1]s.next && mv %[1]s.next %[1]s; sleep 0.02; done`, said)
	ids, err := w.api.Submit(w.Context(), &rotav1.ActionSpec{
		Command:   &rotav1.Command{Argv: []string{"sh", "-c", loop}, Env: map[string]string{"TWO_CORES": said}},
		Resources: &rotav1.Resources{Cores: proto.Uint32(1), MaxCores: 2},
	})
	if err != nil {
		w.Fatal(err)
	}
	return ids[0]
}

// cpus are those that the cluster says that an action has.
func (w *world) cpus(id uint64) []uint32 {
	w.Helper()
	resp, err := w.api.Actions.GetAction(w.Context(), &rotav1.GetActionRequest{Id: id, AllowStale: true})
	if err != nil {
		return nil // there may be no leader
	}
	return resp.Action.Cpus
}

// has waits until an action has so many CPUs, by what the cluster says, what the kernel
// lets its processes run on, and what its file says.
func (w *world) has(name string, id uint64, want int) []uint32 {
	w.Helper()
	var cpus []uint32
	w.until(fmt.Sprintf("%s has %d CPUs", name, want), func() bool {
		cpus = w.cpus(id)
		list := strings.Trim(strings.ReplaceAll(fmt.Sprint(cpus), " ", ","), "[]")
		said, _ := os.ReadFile(filepath.Join(w.dir, name))
		if len(cpus) != want || strings.TrimSpace(string(said)) != list {
			return false
		}
		pids := processes("TWO_CORES=" + filepath.Join(w.dir, name))
		return len(pids) > 0 && !slices.ContainsFunc(pids, func(pid int) bool { return allowed(pid) != "" && allowed(pid) != kernelList(cpus) })
	})
	return cpus
}

// allowed is on which CPUs the kernel lets a process run, empty if it is gone.
func allowed(pid int) string {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "Cpus_allowed_list:")
	list, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	return list
}

// kernelList writes up to two CPUs as the kernel does.
func kernelList(cpus []uint32) string {
	switch {
	case len(cpus) == 1:
		return fmt.Sprint(cpus[0])
	case cpus[1] == cpus[0]+1:
		return fmt.Sprintf("%d-%d", cpus[0], cpus[1])
	}
	return fmt.Sprintf("%d,%d", cpus[0], cpus[1])
}

// TestCoresFollowWhatRuns: an action that can use both cores has them while it is alone. It
// gives one up as soon as another arrives, and has it back afterwards; also if the leader or
// the agent is killed meanwhile. If the supervisor is, both are lost, and the next has all.
func TestCoresFollowWhatRuns(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("the machine has one core, so there is nothing to give")
	}
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 3, Agents: 1, AgentArgs: []string{"--cores", "2"}})
	agent := w.cluster.Agents[0]
	if !w.node(agent).Resizes {
		t.Skip("the agent cannot change the cores of what runs here: " + w.node(agent).Runtime)
	}
	first := w.twoCores("first")
	w.has("first", first, 2)

	second := w.twoCores("second")
	one, two := w.has("first", first, 1), w.has("second", second, 1)
	if one[0] == two[0] {
		t.Fatalf("both have CPU %d", one[0])
	}
	if n := w.node(agent); n.SpareCores != 0 || len(n.FreeCpus) != 0 {
		t.Errorf("%d cores are to spare and %v are free, while both have their least", n.SpareCores, n.FreeCpus)
	}

	leader := w.leader(nil)
	if _, err := w.api.Cancel(w.Context(), second); err != nil {
		t.Fatal(err)
	}
	w.kill(leader)
	w.has("first", first, 2)
	w.start(leader)

	w.kill(agent)
	third := w.twoCores("third") // the agent hears of both changes when it is back
	w.start(agent)
	if one, three := w.has("first", first, 1), w.has("third", third, 1); one[0] == three[0] {
		t.Fatalf("both have CPU %d", one[0])
	}

	w.signal(w.supervisor(agent), syscall.SIGKILL)
	for _, id := range []uint64{first, third} {
		a, err := w.api.Wait(w.Context(), id)
		if err != nil || a.State != rotav1.ActionState_ACTION_STATE_LOST {
			t.Fatalf("the supervisor of action %d was killed, and it ends with %v, %v", id, a, err)
		}
	}
	fourth := w.twoCores("fourth")
	w.has("fourth", fourth, 2)
}
