package gateway

import (
	"net/http"
	"strings"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
)

// older is what a server knows that has missed trajectory 7 and that a policy was suspended.
func older(engines [2]*fakeEngine) *rotav1.WatchRoutesResponse {
	up := rotav1.WorkerState_WORKER_STATE_UP
	return &rotav1.WatchRoutesResponse{
		Workers: []*rotav1.Worker{engines[0].worker(up), engines[1].worker(up)},
		Routes:  []*rotav1.Route{{TrajectoryId: 5, Policy: "policy", Worker: "w2"}},
	}
}

// TestAServerThatIsBehind does not take away what a gateway has heard from another one.
func TestAServerThatIsBehind(t *testing.T) {
	c, engines, g := world(t, dialectVLLM, nil)
	c.tell(&rotav1.WatchRoutesResponse{SuspendedPolicies: []string{"other"}})
	until(t, "the suspension", func() bool { return g.table.isHeld(&flight{policy: "other"}) })
	c.restart(older(engines), true)
	until(t, "a second watch of the server that is behind", func() bool { return c.begun() > 1 })
	until(t, "the gateway says that no server sends routes", func() bool { return !g.live.Load() })
	if got := post(t, g, "/v1/completions", `{"prompt":"x","max_tokens":3}`); got.StatusCode != http.StatusOK || got.Header.Get("Rota-Worker") != "w1" {
		t.Errorf("%s from %q: %s", got.Status, got.Header.Get("Rota-Worker"), readAll(t, got))
	}
	if g.table.entryOf(5).worker != "" || !g.table.isHeld(&flight{policy: "other"}) {
		t.Error("older routes were taken over")
	}
	newer := older(engines)
	newer.Routes = append(newer.Routes, &rotav1.Route{TrajectoryId: 7, Policy: "policy", Worker: "w2"})
	c.restart(newer, false)
	until(t, "newer routes", func() bool { return g.live.Load() && g.table.entryOf(7).worker == "w2" })
}

// TestATrajectoryThatEndsUnseen is gone with the next whole set of routes, and its requests end.
func TestATrajectoryThatEndsUnseen(t *testing.T) {
	c, engines, g := world(t, dialectVLLM, nil)
	c.route(8, "w1", 0)
	until(t, "the route", func() bool { return g.table.entryOf(8).worker == "w1" })
	reached := make(chan struct{})
	engines[0].set(func(r *http.Request, i int) action {
		if i == 2 {
			close(reached)
			<-r.Context().Done()
		}
		return goOn
	})
	resp := post(t, g, "/v1/completions", `{"prompt":"x","stream":true}`)
	<-reached
	c.restart(older(engines), false)
	if got := readAll(t, resp); !strings.Contains(got, "trajectory_ended") {
		t.Errorf("its stream: %s", got)
	}
	for _, id := range []string{"7", "8"} {
		resp := post(t, g, "/v1/completions", `{"prompt":"x"}`, trajectoryHeader, id)
		if got := readAll(t, resp); resp.StatusCode != http.StatusGone {
			t.Errorf("its next request: %d %s", resp.StatusCode, got)
		}
	}
	if n, _, _ := g.table.counts(); n != 1 {
		t.Errorf("%d trajectories are left", n)
	}
}

// TestStaleRoutesAreBetterThanNone, and what the server hears later is taken over.
func TestStaleRoutesAreBetterThanNone(t *testing.T) {
	c := newCluster(t)
	engines := [2]*fakeEngine{newEngine(t, "w1", dialectVLLM), newEngine(t, "w2", dialectVLLM)}
	c.restart(older(engines), true)
	g := start(t, c, nil)
	until(t, "routes", func() bool { return g.table.isReady() })
	if got := post(t, g, "/v1/completions", `{"prompt":"x","max_tokens":3}`, trajectoryHeader, "5"); got.StatusCode != http.StatusOK || got.Header.Get("Rota-Worker") != "w2" {
		t.Errorf("%s from %q: %s", got.Status, got.Header.Get("Rota-Worker"), readAll(t, got))
	}
	c.route(7, "w1", 0)
	until(t, "the new route", func() bool { return g.table.entryOf(7).worker == "w1" })
}

// TestAWorkerThatIsRegisteredAgain may be tried, also under a name that failed.
func TestAWorkerThatIsRegisteredAgain(t *testing.T) {
	_, engines, g := world(t, dialectVLLM, nil)
	g.table.mu.Lock()
	defer g.table.mu.Unlock()
	before := g.table.workers["w1"].revivals
	g.table.merge(&rotav1.WatchRoutesResponse{RemovedWorkers: []string{"w1"}})
	g.table.merge(&rotav1.WatchRoutesResponse{Workers: []*rotav1.Worker{engines[0].worker(rotav1.WorkerState_WORKER_STATE_UP)}})
	if to, err := g.table.find(&flight{id: 7}, failedAt{"w1", before}); err != nil || to.name != "w1" {
		t.Errorf("it is as the one that failed: %v", err)
	}
}
