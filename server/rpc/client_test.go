package rpc_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"rota/api/client"
	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
)

func connectTo(t testing.TB, addrs ...string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Addrs: addrs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// The answer to each first try is lost after the commit. Nothing is done twice.
func TestLostAnswersAreLearnedByRepeating(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	seen := map[string]bool{}
	w.lost = func(c *logv1.Command) error {
		mu.Lock()
		defer mu.Unlock()
		id := c.GetSubmitActions().GetRequest().GetId() + c.GetOpenTrajectory().GetRequest().GetId()
		if id == "" || seen[id] {
			return nil
		}
		seen[id] = true
		return errUnknownOutcome
	}
	a := w.agent("n1", nil)
	go a.serve(t.Context(), func(*rotav1.Assignment) *rotav1.ActionResult { return exited(0) })
	c := connectTo(t, w.addr)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			ids, err := c.Submit(t.Context(), spec("true"), spec("true"))
			if err != nil || len(ids) != 2 {
				t.Errorf("submit: %v, %v", ids, err)
				return
			}
			if a, err := c.Wait(t.Context(), ids[1]); err != nil || a.State != rotav1.ActionState_ACTION_STATE_SUCCEEDED {
				t.Errorf("wait: %v, %v", a, err)
			}
		})
	}
	wg.Wait()
	if last, err := c.Run(t.Context(), spec("true"), func(*rotav1.RunActionResponse) {}); err != nil || !client.Final(last.State) {
		t.Errorf("run: %v, %v", last, err)
	}
	traj, err := c.OpenTrajectory(t.Context(), &rotav1.OpenTrajectoryRequest{MemoryBytes: 1 << 20, SpreadGroup: "step", SpreadLabel: "zone"})
	if err != nil || traj.Id != 1 || traj.Node != "n1" || traj.SpreadGroup != "step" || traj.SpreadLabel != "zone" || traj.SpreadDomain != "a" {
		t.Errorf("open: %v, %v", traj, err)
	}
	if traj, err = c.CloseTrajectory(t.Context(), 1); err != nil || traj.State < rotav1.TrajectoryState_TRAJECTORY_STATE_CLOSING {
		t.Errorf("close: %v, %v", traj, err)
	}
	n := 0
	for a, err := range c.List(t.Context(), &rotav1.ListActionsRequest{PageSize: 7}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; a.Id != uint64(n) {
			t.Errorf("action %d of the list has ID %d", n, a.Id)
		}
	}
	if n != 41 {
		t.Errorf("41 actions were submitted, there are %d", n)
	}
}

func TestARunSurvivesTheLossOfItsServer(t *testing.T) {
	w := newWorld(t)
	addr, kill := serve(t, w.server)
	o := &outputs{text: strings.Repeat("0123456789", 100), ended: make(chan struct{})}
	o.calls.Store(1)
	a := w.agent("n1", o)
	go a.serve(t.Context(), func(*rotav1.Assignment) *rotav1.ActionResult {
		<-o.ended
		return exited(0)
	})
	c := connectTo(t, addr, w.addr)
	output, killed := "", false
	last, err := c.Run(t.Context(), spec("print"), func(u *rotav1.RunActionResponse) {
		chunk := u.GetOutput()
		if chunk == nil {
			return
		}
		if chunk.Offset != uint64(len(output)) {
			t.Errorf("after %d bytes comes offset %d", len(output), chunk.Offset)
		}
		output += string(chunk.Data)
		if !killed {
			killed = true
			kill()
		}
		if len(output) == len(o.text) {
			close(o.ended)
		}
	})
	if err != nil || last.State != rotav1.ActionState_ACTION_STATE_SUCCEEDED || last.Attempt != 1 {
		t.Errorf("the run ended with %v, %v", last, err)
	}
	if !killed || output != o.text {
		t.Errorf("%d of %d bytes came", len(output), len(o.text))
	}
}

func TestTheClientGoesToTheLeader(t *testing.T) {
	w := newWorld(t)
	follower := newWorld(t)
	follower.leader = [2]string{"s2", w.addr}
	c := connectTo(t, follower.addr)
	before := w.machine.Applied()
	for range 3 {
		if _, err := c.Submit(t.Context(), spec("true")); err != nil {
			t.Fatal(err)
		}
	}
	if w.machine.Applied() != before+3 { // the first call, GetStatus, brought the hint
		t.Errorf("%d of 3 submissions went to the leader", w.machine.Applied()-before)
	}
}

func TestAWatchFromTheClientIsGapless(t *testing.T) {
	w := newWorld(t)
	addr, kill := serve(t, w.server)
	c := connectTo(t, addr, w.addr)
	const n = 100
	var submitter sync.WaitGroup
	defer submitter.Wait() // its last event is seen before its last answer
	submitter.Go(func() {
		for i := range n {
			if i == n/2 {
				kill()
			}
			w.submit(spec("true"))
		}
	})
	next := uint64(1)
	deadline := time.Now().Add(20 * time.Second)
	for e, err := range c.Watch(t.Context(), &rotav1.WatchActionsRequest{AfterRevision: proto.Uint64(0)}) {
		if err != nil || e.Revision != next {
			t.Fatal(fmt.Sprintf("after revision %d:", next-1), e, err)
		}
		if next++; next > n || time.Now().After(deadline) {
			break
		}
	}
}
