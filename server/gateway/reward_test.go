package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
)

// fakeAgent passes calls on to replicas, which are functions of the test.
type fakeAgent struct {
	addr string
	mu   sync.Mutex
	// ready and answer are those of replicas, by action.
	ready  map[string]bool
	answer map[string]http.HandlerFunc
	// close ends the agent.
	close func() error
}

func newAgent(t *testing.T) *fakeAgent {
	a := &fakeAgent{ready: map[string]bool{}, answer: map[string]http.HandlerFunc{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.addr = l.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+httpx.ReplicaPath+"{action}/{attempt}/ready", func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.ready[r.PathValue("action")] {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set(httpx.ReplicaHeader, httpx.ReplicaStarting)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	mux.HandleFunc(httpx.ReplicaPath+"{action}/{attempt}/call/{path...}", func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		answer := a.answer[r.PathValue("action")]
		a.mu.Unlock()
		answer(w, r)
	})
	srv := httpx.NewServer(mux)
	go srv.Serve(l)
	a.close = srv.Close
	t.Cleanup(func() { srv.Close() })
	return a
}

// set makes an action a replica with an answer.
func (a *fakeAgent) set(id uint64, ready bool, answer http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready[fmt.Sprint(id)], a.answer[fmt.Sprint(id)] = ready, answer
}

// function is one with replicas at the agent.
func (a *fakeAgent) function(change func(*rotav1.RewardSpec), ids ...uint64) *rotav1.Reward {
	r := &rotav1.Reward{Spec: &rotav1.RewardSpec{
		Name: "f", Max: 4, Concurrency: 1, Queue: 8, Retries: proto.Uint32(1), Timeout: durationpb.New(10 * time.Second), Path: "/score",
	}}
	if change != nil {
		change(r.Spec)
	}
	for _, id := range ids {
		r.Replicas = append(r.Replicas, &rotav1.RewardReplica{
			ActionId: id, Attempt: 1, Address: a.addr, State: rotav1.RewardReplicaState_REWARD_REPLICA_STATE_STARTING,
		})
	}
	return r
}

// rewardWorld is a gateway with a function.
func rewardWorld(t *testing.T, r *rotav1.Reward, change func(*Config)) (*fakeCluster, *Gateway) {
	c := newCluster(t)
	g := start(t, c, change)
	c.tell(&rotav1.WatchRoutesResponse{Rewards: []*rotav1.Reward{r}})
	until(t, "the function is known", func() bool { return g.rewards.spec(r.Spec.Name) != nil })
	return c, g
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, path, _ := strings.Cut(r.URL.RequestURI(), "call")
		fmt.Fprintf(w, "%s call%s %s", text, path, body)
	}
}

func TestRewardCalls(t *testing.T) {
	a := newAgent(t)
	a.set(1, true, says("one"))
	c, g := rewardWorld(t, a.function(nil, 1), nil)
	for path, want := range map[string]string{
		"/v1/rewards/f":                "one call/score {}",
		"/v1/rewards/f?x=1":            "one call/score?x=1 {}",
		"/v1/rewards/f/classify":       "one call/classify {}",
		"/v1/rewards/f/a/b%2Fc?x=%20y": "one call/a/b%2Fc?x=%20y {}",
	} {
		resp := post(t, g, path, "{}")
		if got := readAll(t, resp); resp.StatusCode != http.StatusOK || got != want || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: status %d: %s, want %s", path, resp.StatusCode, got, want)
		}
	}
	resp := post(t, g, "/v1/rewards/other", "{}")
	if got := readAll(t, resp); resp.StatusCode != http.StatusNotFound || !strings.Contains(got, "reward_not_found") {
		t.Errorf("another function: status %d: %s", resp.StatusCode, got)
	}
	until(t, "the cluster hears of the calls, and that the replica is ready", func() bool {
		calls, ready := c.rewardReports(1)
		return calls == 4 && ready
	})
	c.tell(&rotav1.WatchRoutesResponse{RemovedRewards: []string{"f"}})
	until(t, "the function is gone", func() bool {
		resp := post(t, g, "/v1/rewards/f", "{}")
		readAll(t, resp)
		return resp.StatusCode == http.StatusNotFound
	})
}

// A call is tried again at another replica, whatever the first one does, and answered once.
func TestRewardCallsAreRetried(t *testing.T) {
	for name, broken := range map[string]http.HandlerFunc{
		"status 500": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) },
		"cut off":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"half an answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			panic(http.ErrAbortHandler)
		},
		"did not answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(httpx.ReplicaHeader, httpx.ReplicaFailed)
			w.WriteHeader(http.StatusBadGateway)
		},
		"gone": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(httpx.ReplicaHeader, httpx.ReplicaGone)
			w.WriteHeader(http.StatusNotFound)
		},
		"too slow": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t)
			var tries atomic.Int64
			a.set(1, true, func(w http.ResponseWriter, r *http.Request) { tries.Add(1); broken(w, r) })
			a.set(2, true, func(w http.ResponseWriter, r *http.Request) { tries.Add(1); says("two")(w, r) })
			_, g := rewardWorld(t, a.function(func(s *rotav1.RewardSpec) { s.Timeout = durationpb.New(time.Second) }, 1, 2), nil)
			until(t, "both are ready", func() bool { return readyReplicas(g) == 2 })
			for range 2 { // one of them goes to the broken one first
				resp := post(t, g, "/v1/rewards/f", "{}")
				if got := readAll(t, resp); resp.StatusCode != http.StatusOK || got != "two call/score {}" {
					t.Errorf("status %d: %s", resp.StatusCode, got)
				}
			}
			if n := tries.Load(); n < 3 || n > 4 { // as the first call may have gone to either
				t.Errorf("%d tries", n)
			}
		})
	}
}

// TestTheLossOfAnAgentIsNoTry: a call that reached none of its replicas has its tries left.
func TestTheLossOfAnAgentIsNoTry(t *testing.T) {
	gone, stays := newAgent(t), newAgent(t)
	for id := range uint64(3) {
		gone.set(id+1, true, says("gone"))
	}
	stays.set(4, true, says("stays"))
	f := gone.function(nil, 1, 2, 3)
	f.Replicas = append(f.Replicas, stays.function(nil, 4).Replicas...)
	_, g := rewardWorld(t, f, nil)
	until(t, "all are ready", func() bool { return readyReplicas(g) == 4 })
	if err := gone.close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		resp := post(t, g, "/v1/rewards/f", "{}")
		if got := readAll(t, resp); resp.StatusCode != http.StatusOK || got != "stays call/score {}" {
			t.Errorf("status %d: %s", resp.StatusCode, got)
		}
	}
}

// A function that fails each time answers with what it said last.
func TestRewardCallsFailAtLast(t *testing.T) {
	a := newAgent(t)
	var tries atomic.Int64
	a.set(1, true, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, fmt.Sprint("try ", tries.Add(1)), http.StatusTeapot+100)
	})
	_, g := rewardWorld(t, a.function(nil, 1), nil)
	resp := post(t, g, "/v1/rewards/f", "{}")
	if got := readAll(t, resp); resp.StatusCode != http.StatusTeapot+100 || strings.TrimSpace(got) != "try 2" {
		t.Errorf("status %d: %s", resp.StatusCode, got)
	}
	a.set(1, true, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c, g := rewardWorld(t, a.function(func(s *rotav1.RewardSpec) { s.Timeout = durationpb.New(50 * time.Millisecond) }, 1), func(c *Config) { c.Wait = time.Second })
	// The third try in vain is the last: the replica gets no more, and there is no other. The second call
	// has had its try, the third has none.
	for _, want := range []struct {
		status int
		code   string
	}{{http.StatusGatewayTimeout, "replica_late"}, {http.StatusGatewayTimeout, "replica_late"}, {http.StatusServiceUnavailable, "no_replica"}} {
		resp = post(t, g, "/v1/rewards/f", "{}")
		if got := readAll(t, resp); resp.StatusCode != want.status || !strings.Contains(got, want.code) {
			t.Errorf("status %d: %s, want %s", resp.StatusCode, got, want.code)
		}
	}
	until(t, "the cluster hears that the replica is silent", func() bool { return c.rewardFailure(1) != "" })
}

// Calls wait in a queue with a bound until a replica is ready, and those that drain get none.
func TestRewardCallsWait(t *testing.T) {
	a := newAgent(t)
	a.set(1, false, says("one"))
	r := a.function(func(s *rotav1.RewardSpec) { s.Queue = 2 }, 1)
	c, g := rewardWorld(t, r, nil)
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() {
			resp := post(t, g, "/v1/rewards/f", "{}")
			if got := readAll(t, resp); resp.StatusCode != http.StatusOK {
				t.Errorf("status %d: %s", resp.StatusCode, got)
			}
		})
	}
	until(t, "two calls wait", func() bool { _, waiting := c.rewardDemand("f"); return waiting == 2 })
	resp := post(t, g, "/v1/rewards/f", "{}")
	if got := readAll(t, resp); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" || !strings.Contains(got, "queue_full") {
		t.Errorf("a full queue: status %d: %s", resp.StatusCode, got)
	}
	a.set(1, true, says("one"))
	calls.Wait()

	drains := proto.CloneOf(r)
	drains.Replicas[0].State = rotav1.RewardReplicaState_REWARD_REPLICA_STATE_DRAINING
	c.tell(&rotav1.WatchRoutesResponse{Rewards: []*rotav1.Reward{drains}})
	until(t, "the cluster hears that it has drained", func() bool { return c.rewardIdle(1) })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	w, err := g.rewards.enter("f")
	if err != nil {
		t.Fatal(err)
	}
	if p, err := g.rewards.await(ctx, w, time.Now().Add(time.Minute)); err == nil {
		t.Errorf("a call goes to replica %d, which drains", p.id)
	}
}

func readyReplicas(g *Gateway) (n int) {
	g.rewards.mu.Lock()
	defer g.rewards.mu.Unlock()
	for _, r := range g.rewards.all {
		for _, p := range r.replicas {
			if p.ready {
				n++
			}
		}
	}
	return n
}

// fakeRewards takes reports about reward functions, as a cluster does.
type fakeRewards struct {
	rotav1connect.UnimplementedRewardServiceHandler
	mu      sync.Mutex
	known   map[string]bool
	reports []*rotav1.ReportRewardsRequest
	// expired: the next report of a ready replica comes too late to be taken.
	expired bool
	// broken: no report is taken; refused are those that were not.
	broken  bool
	refused int
}

func (f *fakeRewards) ReportRewards(_ context.Context, r *rotav1.ReportRewardsRequest) (*rotav1.ReportRewardsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken {
		f.refused++
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("broken"))
	}
	if f.expired && slices.ContainsFunc(r.Replicas, func(p *rotav1.RewardReplicaReport) bool { return p.Ready }) {
		f.expired = false
		err := connect.NewError(connect.CodeDeadlineExceeded, errors.New("the request expired"))
		if d, e := connect.NewErrorDetail(&rotav1.ErrorDetail{Reason: "REQUEST_EXPIRED", Code: uint32(connect.CodeDeadlineExceeded)}); e == nil {
			err.AddDetail(d)
		}
		return nil, err
	}
	if f.known == nil {
		f.known = map[string]bool{}
	}
	if !f.known[r.RequestId] {
		f.known[r.RequestId] = true
		f.reports = append(f.reports, r)
	}
	return &rotav1.ReportRewardsResponse{}, nil
}

// each visits what was reported of a replica and of functions.
func (f *fakeRewards) each(replica func(*rotav1.RewardReplicaReport), demand func(*rotav1.RewardDemand)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.reports {
		for _, p := range r.Replicas {
			replica(p)
		}
		for _, d := range r.Demands {
			demand(d)
		}
	}
}

func (c *fakeCluster) rewardReports(id uint64) (calls uint64, ready bool) {
	c.rewards.each(func(p *rotav1.RewardReplicaReport) { ready = ready || p.ActionId == id && p.Ready },
		func(d *rotav1.RewardDemand) { calls += d.Calls })
	return calls, ready
}

func (c *fakeCluster) rewardDemand(name string) (running, waiting uint32) {
	c.rewards.each(func(*rotav1.RewardReplicaReport) {}, func(d *rotav1.RewardDemand) {
		if d.Name == name {
			running, waiting = d.Running, d.Waiting
		}
	})
	return running, waiting
}

func (c *fakeCluster) rewardFailure(id uint64) (message string) {
	c.rewards.each(func(p *rotav1.RewardReplicaReport) {
		if p.ActionId == id && p.Failed {
			message = p.Message
		}
	}, func(*rotav1.RewardDemand) {})
	return message
}

func (c *fakeCluster) rewardIdle(id uint64) (idle bool) {
	c.rewards.each(func(p *rotav1.RewardReplicaReport) { idle = idle || p.ActionId == id && p.Idle }, func(*rotav1.RewardDemand) {})
	return idle
}

// An agent that has too many calls says that its replicas are ready. They are called again later and
// later, not as fast as it answers.
func TestABusyAgentIsLeftAlone(t *testing.T) {
	a := newAgent(t)
	var calls atomic.Int32
	a.set(1, true, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set(httpx.ReplicaHeader, httpx.ReplicaBusy)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	_, g := rewardWorld(t, a.function(nil, 1), func(c *Config) { c.Wait = 2 * time.Second })
	resp := post(t, g, "/v1/rewards/f", "{}")
	if got := readAll(t, resp); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(got, "no_replica") {
		t.Errorf("status %d: %s", resp.StatusCode, got)
	}
	// At once, and after rests of 0, 0.2, 0.4, 0.8 and 1 s.
	if n := calls.Load(); n > 6 {
		t.Errorf("the agent was called %d times in two seconds", n)
	}
	a.set(1, true, says("one"))
	resp = post(t, g, "/v1/rewards/f", "{}")
	if got := readAll(t, resp); resp.StatusCode != http.StatusOK {
		t.Errorf("status %d: %s", resp.StatusCode, got)
	}
}

// A report that reaches no server until it has expired is lost. That a replica is ready is said again.
func TestAReplicaIsReportedAgain(t *testing.T) {
	a := newAgent(t)
	a.set(1, false, says("one"))
	c, _ := rewardWorld(t, a.function(nil, 1), nil)
	c.rewards.mu.Lock()
	c.rewards.expired = true
	c.rewards.mu.Unlock()
	a.set(1, true, says("one"))
	until(t, "the cluster hears that the replica is ready", func() bool {
		_, ready := c.rewardReports(1)
		return ready
	})
	c.rewards.mu.Lock()
	defer c.rewards.mu.Unlock()
	if c.rewards.expired {
		t.Error("no report was lost")
	}
}

// TestARetryKeepsItsPlace before calls that came later, also if the queue is full.
func TestARetryKeepsItsPlace(t *testing.T) {
	for name, broken := range map[string]func(http.ResponseWriter){
		"status 500": func(w http.ResponseWriter) { http.Error(w, "no", http.StatusInternalServerError) },
		"cut off":    func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t)
			bodies, goes := make(chan string, 10), make(chan struct{})
			var tries atomic.Int32
			a.set(1, true, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				bodies <- string(body)
				if tries.Add(1) == 1 {
					<-goes
					broken(w)
				}
			})
			_, g := rewardWorld(t, a.function(func(s *rotav1.RewardSpec) { s.Queue = 1 }, 1), nil)
			var calls sync.WaitGroup
			call := func(body string) {
				calls.Go(func() {
					resp := post(t, g, "/v1/rewards/f", body)
					if got := readAll(t, resp); resp.StatusCode != http.StatusOK {
						t.Errorf("%s: status %d: %s", body, resp.StatusCode, got)
					}
				})
			}
			call("first")
			got := <-bodies
			call("second")
			until(t, "the second call waits", func() bool {
				g.rewards.mu.Lock()
				defer g.rewards.mu.Unlock()
				return len(g.rewards.all["f"].queue) == 1
			})
			close(goes)
			calls.Wait()
			if got += " " + <-bodies + " " + <-bodies; got != "first first second" {
				t.Errorf("the replica was called with %s", got)
			}
		})
	}
}

// TestADialThatTakesTooLongIsNoTry: the replica cannot have got the call.
func TestADialThatTakesTooLongIsNoTry(t *testing.T) {
	gone, stays := newAgent(t), newAgent(t)
	gone.set(1, true, says("gone"))
	gone.set(2, true, says("gone"))
	stays.set(3, true, says("stays"))
	f := gone.function(func(s *rotav1.RewardSpec) { s.Timeout = durationpb.New(time.Second) }, 1, 2)
	f.Replicas = append(f.Replicas, stays.function(nil, 3).Replicas...)
	c := newCluster(t)
	g := start(t, c, nil)
	var silent atomic.Bool
	g.rewards.http.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == gone.addr && silent.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	c.tell(&rotav1.WatchRoutesResponse{Rewards: []*rotav1.Reward{f}})
	until(t, "all are ready", func() bool { return readyReplicas(g) == 3 })
	silent.Store(true)
	if err := gone.close(); err != nil {
		t.Fatal(err)
	}
	g.rewards.http.CloseIdleConnections()
	for range 3 {
		resp := post(t, g, "/v1/rewards/f", "{}")
		if got := readAll(t, resp); resp.StatusCode != http.StatusOK || got != "stays call/score {}" {
			t.Errorf("status %d: %s", resp.StatusCode, got)
		}
	}
}

// TestTheLastCallsAreReported, also behind a report that no server took.
func TestTheLastCallsAreReported(t *testing.T) {
	a := newAgent(t)
	a.set(1, true, says("one"))
	c := newCluster(t)
	c.rewards.broken = true
	g := start(t, c, func(c *Config) { c.ReportInterval = time.Hour })
	c.tell(&rotav1.WatchRoutesResponse{Rewards: []*rotav1.Reward{a.function(nil, 1)}})
	until(t, "a report that is not taken", func() bool {
		c.rewards.mu.Lock()
		defer c.rewards.mu.Unlock()
		return c.rewards.refused > 0
	})
	for range 3 {
		readAll(t, post(t, g, "/v1/rewards/f", "{}"))
	}
	c.rewards.mu.Lock()
	c.rewards.broken = false
	c.rewards.mu.Unlock()
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	if calls, ready := c.rewardReports(1); calls != 3 || !ready {
		t.Errorf("%d calls were reported; that the replica is ready: %v", calls, ready)
	}
}

// A gateway that stops waits for servers no longer because it has reports about rewards.
func TestAStopWithoutAServer(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	a.set(1, true, says("one"))
	c, g := rewardWorld(t, a.function(nil, 1), nil)
	readAll(t, post(t, g, "/v1/rewards/f", "{}"))
	c.close()
	readAll(t, post(t, g, "/v1/rewards/f", "{}"))
	began := time.Now()
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > lastReports+3*time.Second {
		t.Errorf("it has stopped after %v", took)
	}
}
