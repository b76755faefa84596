package e2e

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// TestAShortActionDoesNotWaitForLongOnes: two actions that have run for a second share a core when a third one
// waits for cores; also if the leader or the agent is killed meanwhile. When the third has ended, they share
// both cores.
func TestAShortActionDoesNotWaitForLongOnes(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("the machine has one core, so no two actions have cores to themselves")
	}
	need.Cgroup(t)
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 3, Agents: 1, AgentArgs: []string{"--cores", "2", "--share-cores-after", "1s"}})
	agent := w.cluster.Agents[0]
	if !w.node(agent).Resizes {
		t.Skip("the agent cannot change the cores of what runs here: " + w.node(agent).Runtime)
	}
	first, second := w.twoCores("first"), w.twoCores("second")
	w.has("first", first, 1)
	w.has("second", second, 1)
	w.until("the actions are old", func() bool {
		return slices.Min([]int64{w.age(first), w.age(second)}) > 1000
	})
	third := w.twoCores("third")
	own := w.has("third", third, 1)
	w.share([]uint64{first, second}, own)

	leader := w.leader(nil)
	w.kill(leader)
	w.kill(agent)
	w.start(agent)
	w.start(leader)
	w.share([]uint64{first, second}, own)

	if _, err := w.api.Cancel(w.Context(), third); err != nil {
		t.Fatal(err)
	}
	if one, two := w.has("first", first, 2), w.has("second", second, 2); !slices.Equal(one, two) {
		t.Errorf("they run on CPUs %v and %v", one, two)
	}
}

// share waits until the first two actions run on one CPU that is not another's, and the cluster says so.
func (w *world) share(ids []uint64, other []uint32) {
	w.Helper()
	one, two := w.has("first", ids[0], 1), w.has("second", ids[1], 1)
	if !slices.Equal(one, two) || slices.Equal(one, other) {
		w.Errorf("two that share run on CPUs %v and %v, and another has %v", one, two, other)
	}
	resp, err := w.api.Actions.GetAction(w.Context(), &rotav1.GetActionRequest{Id: ids[0]})
	if err != nil {
		w.Fatal(err)
	}
	if a := resp.Action; !a.SharesCpus || !strings.Contains(a.CoresReason, "it shares 1 core of node") {
		w.Errorf("it shares its CPUs: %v, because: %q", a.SharesCpus, a.CoresReason)
	}
}

// age is how many milliseconds an action has run.
func (w *world) age(id uint64) int64 {
	w.Helper()
	resp, err := w.api.Actions.GetAction(w.Context(), &rotav1.GetActionRequest{Id: id})
	if err != nil {
		w.Fatal(err)
	}
	return time.Since(resp.Action.StartTime.AsTime()).Milliseconds()
}
