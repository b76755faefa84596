package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a state with one node, changed by the test as Apply would.
type cluster struct {
	mu    sync.Mutex
	moved *sync.Cond
	st    *state.State
	hub   *Hub
}

const nodeName = "n1"

func newCluster(testing.TB) *cluster {
	c := &cluster{st: state.New()}
	c.moved = sync.NewCond(&c.mu)
	c.hub = New(c, hclog.NewNullLogger())
	c.hub.keepAlive = time.Hour // unless the test says otherwise
	c.change(func(st *state.State) {
		st.PutNamespace(&state.Namespace{ID: 1, Name: "default"})
		st.PutPool(&state.Pool{ID: 1, Name: "default"})
		st.PutNode(&state.Node{ID: 1, Name: nodeName, Pool: 1, Incarnation: 5, State: state.NodeUp, Memory: 1 << 30, FreeMemory: 1 << 30})
	})
	return c
}

func (c *cluster) View(fn func(*state.State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn(c.st)
}

func (c *cluster) WaitApplied(ctx context.Context, index uint64) error {
	stop := context.AfterFunc(ctx, c.moved.Broadcast)
	defer stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.st.Meta().Applied < index && ctx.Err() == nil {
		c.moved.Wait()
	}
	return ctx.Err()
}

// change is one entry.
func (c *cluster) change(fn func(*state.State)) {
	c.mu.Lock()
	next := c.st.Copy()
	fn(next)
	m := *next.Meta()
	m.Applied++
	next.SetMeta(m)
	c.st = next
	c.moved.Broadcast()
	c.mu.Unlock()
	c.hub.Dirty(1)
}

func (c *cluster) start(id state.ActionID, attempt uint32) {
	spec, _ := (&rotav1.ActionSpec{
		Command: &rotav1.Command{Argv: []string{"run", fmt.Sprint(id)}}, RunTimeout: durationpb.New(time.Minute),
	}).MarshalVT()
	c.change(func(st *state.State) {
		st.PutAction(&state.Action{ID: id, Namespace: 1, Pool: 1, State: state.ActionRunning, Attempt: attempt, Node: 1, Spec: spec, CoresMin: 1, CoresMax: 1})
		st.PutAttempt(&state.Attempt{Node: 1, Action: id, Number: attempt, Incarnation: 5, Cores: state.CoreRange(int(id)%500, 1), Limit: 1 << 20})
	})
}

// agent is one stream whose messages the test takes out one by one; until it
// does, the stream is stuck in send.
type agent struct {
	t        *testing.T
	messages chan *rotav1.WatchNodeResponse
	ended    chan error
}

func (c *cluster) connect(t *testing.T, incarnation, minIndex uint64) *agent {
	return c.watch(t, &rotav1.WatchNodeRequest{Name: nodeName, Incarnation: incarnation, MinIndex: minIndex})
}

func (c *cluster) watch(t *testing.T, req *rotav1.WatchNodeRequest) *agent {
	a := &agent{t: t, messages: make(chan *rotav1.WatchNodeResponse), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.ended <- c.hub.Watch(ctx, req,
			func(m *rotav1.WatchNodeResponse) error {
				select {
				case a.messages <- m:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return a
}

func (a *agent) next() *rotav1.WatchNodeResponse {
	a.t.Helper()
	select {
	case m := <-a.messages:
		return m
	case err := <-a.ended:
		a.t.Fatalf("stream ended: %v", err)
	case <-time.After(20 * time.Second):
		a.t.Fatal("no message")
	}
	return nil
}

// until takes messages out up to the one at an index.
func (a *agent) until(index uint64) (m *rotav1.WatchNodeResponse, messages int) {
	a.t.Helper()
	for m == nil || m.Index < index {
		m = a.next()
		messages++
	}
	return m, messages
}

func TestCommandsAreSentOncePerStreamAndAttempt(t *testing.T) {
	c := newCluster(t)
	c.start(1, 1)
	a := c.connect(t, 5, 0)
	first := a.next().Assignments[0]
	if first.Command == nil || first.Cpus[0] != 1 || first.MemoryBytes != 1<<20 || first.Namespace != "default" {
		t.Errorf("first: %v", first)
	}
	c.start(2, 1)
	both, _ := a.until(3)
	if len(both.Assignments) != 2 || both.Assignments[0].Command != nil || both.Assignments[1].Command == nil {
		t.Errorf("then: %v", both)
	}
	if d := both.Assignments[0].RunTimeout.AsDuration(); d != time.Minute {
		t.Errorf("the repetition has run timeout %v", d)
	}
	c.start(1, 2) // another attempt of the same action
	again, _ := a.until(4)
	if again.Assignments[0].Attempt != 2 || again.Assignments[0].Command == nil {
		t.Errorf("second attempt: %v", again.Assignments[0])
	}
	b := c.connect(t, 5, 0) // another stream
	if m := b.next(); m.Assignments[0].Command == nil || m.Assignments[1].Command == nil {
		t.Errorf("another stream: %v", m)
	}
}

func TestASlowAgentGetsTheNewestStateAndNoneOfTheSteps(t *testing.T) {
	c := newCluster(t)
	a := c.connect(t, 5, 0)
	a.next()
	const n = 400
	for i := range n { // Apply does not wait for the agent
		c.start(state.ActionID(i+1), 1)
	}
	m, messages := a.until(n + 1)
	if len(m.Assignments) != n || messages > 3 {
		t.Errorf("%d assignments came in %d messages", len(m.Assignments), messages)
	}
}

func TestSilenceIsFilledWithStateNotWithNothing(t *testing.T) {
	c := newCluster(t)
	c.start(1, 1)
	c.hub.keepAlive = time.Millisecond
	a := c.connect(t, 5, 0)
	for range 3 {
		if m := a.next(); len(m.Assignments) != 1 {
			t.Fatalf("a message without the assignment kills it: %v", m)
		}
	}
}

func TestFencing(t *testing.T) {
	down := func(st *state.State) {
		n := *st.Node(1)
		n.State = state.NodeDown
		st.PutNode(&n)
	}
	for name, c := range map[string]struct {
		incarnation uint64
		change      func(*state.State)
	}{
		"old incarnation": {4, func(*state.State) {}},
		"down":            {5, down},
		"removed":         {5, func(st *state.State) { down(st); st.DeleteNode(1) }},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster(t)
			cl.change(c.change)
			a := cl.connect(t, c.incarnation, 0)
			if m := a.next(); !m.Fenced || len(m.Assignments) != 0 {
				t.Errorf("got %v", m)
			}
			if err := <-a.ended; err != nil {
				t.Errorf("ended with %v", err)
			}
		})
	}
	t.Run("while connected", func(t *testing.T) {
		c := newCluster(t)
		a := c.connect(t, 5, 0)
		a.next()
		c.change(down)
		if m, _ := a.until(2); !m.Fenced {
			t.Errorf("got %v", m)
		}
	})
}

// A server that has not seen the registration yet would fence the new
// incarnation: it must wait instead.
func TestAServerThatIsBehindSaysNothing(t *testing.T) {
	c := newCluster(t)
	a := c.connect(t, 6, 2)
	select {
	case m := <-a.messages:
		t.Fatalf("from before the registration comes %v", m)
	case <-time.After(20 * time.Millisecond):
	}
	c.change(func(st *state.State) {
		n := *st.Node(1)
		n.Incarnation = 6
		st.PutNode(&n)
	})
	if m := a.next(); m.Fenced || m.Index != 2 {
		t.Errorf("got %v", m)
	}
	c.hub.keepAlive = time.Millisecond
	if err := <-c.connect(t, 6, 99).ended; !errors.Is(err, ErrBehind) {
		t.Errorf("never catching up ends with %v", err)
	}
}

func BenchmarkDirty(b *testing.B) {
	h := New(nil, hclog.NewNullLogger())
	for id := range state.NodeID(10_000) {
		h.join(id, &stream{dirty: make(chan struct{}, 1)})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.Dirty(state.NodeID(i % 10_000))
	}
}
