package client

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
)

func TestAWatchSurvivesItsServers(t *testing.T) {
	cl := newCluster()
	a, b := cl.server(t), cl.server(t)
	a.streamMax, b.streamMax = 2, 3 // each stream is cut after a few messages
	c := connectTo(t, a, b)
	const n = 100
	go func() {
		for i := range n {
			cl.submit(&rotav1.SubmitActionsRequest{RequestId: spec(i).Name, Actions: []*rotav1.ActionSpec{spec(i)}, ExpireTime: farFuture})
		}
	}()
	next := uint64(1)
	for e, err := range c.Watch(t.Context(), &rotav1.WatchActionsRequest{AfterRevision: proto.Uint64(0)}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Revision != next {
			t.Fatalf("after revision %d comes %d", next-1, e.Revision)
		}
		if next++; next > n {
			break
		}
	}
	if cl.streams.Load() < 5 {
		t.Errorf("only %d streams: nothing was cut", cl.streams.Load())
	}
}

// farFuture is as far as servers accept an expiry at the log time of a new cluster.
var farFuture = timestamppb.New(time.Unix(1_800_000_000, 0).Add(time.Hour))

func TestAWatchEnds(t *testing.T) {
	cl := newCluster()
	c := connectTo(t, cl.server(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var got error
	for _, got = range c.Watch(ctx, &rotav1.WatchActionsRequest{}) {
	}
	if !errors.Is(got, context.Canceled) {
		t.Errorf("with its context: %v", got)
	}
	dead := connectTo(t, &server{addr: unused(t)})
	dead.config.RetryFor = 50 * time.Millisecond
	for _, got = range dead.Watch(t.Context(), &rotav1.WatchActionsRequest{}) {
	}
	if connect.CodeOf(got) != connect.CodeUnavailable {
		t.Errorf("after RetryFor without a server: %v", got)
	}
}

func TestManyWaitOnOneStream(t *testing.T) {
	cl := newCluster()
	a, b := cl.server(t), cl.server(t)
	a.streamMax, b.streamMax = 20, 20
	c := connectTo(t, a, b)
	const n = 200
	specs := make([]*rotav1.ActionSpec, n)
	for i := range specs {
		specs[i] = spec(i)
	}
	ids, err := c.Submit(t.Context(), specs...)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() {
			if a, err := c.Wait(t.Context(), id); err != nil || a.Id != id || !Final(a.State) {
				t.Errorf("wait for %d: %v, %v", id, a, err)
			}
		})
	}
	for _, id := range ids { // some end before anybody waits for them, some after
		cl.finish(id)
	}
	wg.Wait()
	if s := cl.streams.Load(); s > 50 {
		t.Errorf("%d waits opened %d streams", n, s)
	}
	c.waits.mu.Lock()
	defer c.waits.mu.Unlock()
	if len(c.waits.groups) != 0 {
		t.Error("the watch goes on although nobody waits")
	}
}

// An end that was watched is read from any server, without a round to confirm the leader.
func TestAnEndThatWasWatchedIsReadFromAnyServer(t *testing.T) {
	cl := newCluster()
	s := cl.server(t)
	c := connectTo(t, s)
	ids, err := c.Submit(t.Context(), spec(1))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		a, err := c.Wait(t.Context(), ids[0])
		if err == nil && !Final(a.State) {
			err = errors.New("the action has not ended")
		}
		done <- err
	}()
	waitUntil(t, func() bool { return cl.streams.Load() > 0 })
	before := s.certain.Load()
	cl.finish(ids[0])
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if certain, stale := s.certain.Load()-before, s.stale.Load(); certain != 0 || stale != 1 {
		t.Errorf("%d reads confirmed the leader and %d did not", certain, stale)
	}
}

func TestAWaitCanBeGivenUp(t *testing.T) {
	cl := newCluster()
	c := connectTo(t, cl.server(t))
	ids, err := c.Submit(t.Context(), spec(1))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := c.Wait(ctx, ids[0])
		done <- err
	}()
	waitUntil(t, func() bool { return cl.streams.Load() > 0 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Wait(t.Context(), 99); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("for an unknown action: %v", err)
	}
}

func BenchmarkSubmit(b *testing.B) {
	cl := newCluster()
	s := cl.server(b)
	s.one = func(r *rotav1.SubmitActionsRequest) *rotav1.SubmitActionsResult {
		return &rotav1.SubmitActionsResult{Outcome: &rotav1.SubmitActionsResult_Response{
			Response: &rotav1.SubmitActionsResponse{Ids: []uint64{1}},
		}}
	}
	c := connectTo(b, s)
	b.ReportAllocs()
	b.SetParallelism(512) // on two cores: 1,024 submitters
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Submit(b.Context(), spec(1)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/float64(s.calls.Load()), "submissions/call")
}
