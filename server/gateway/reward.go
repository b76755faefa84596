package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/httpx"
)

// Why a call has no replica.
var (
	errNoReward      = errors.New("there is no such reward function; see: rota reward list")
	errRewardsFull   = errors.New("too many calls of this reward function wait at this gateway")
	errNoReplica     = errors.New("no replica of this reward function could be called in time")
	errRewardRemoved = errors.New("the reward function was removed while the call waited")
)

const (
	// strikesMax is how many calls in a row a replica may leave without an answer in time. Then
	// the cluster is told that it has failed.
	strikesMax = 3
	// probePause is how long a replica rests that could not be asked whether it is ready, and one that
	// was ready and could not be called twice in a row. The rest grows up to restMax.
	probePause = 200 * time.Millisecond
	restMax    = time.Second
)

// rewards are the reward functions that the gateway knows, with their replicas and the calls that
// wait for one.
type rewards struct {
	logger hclog.Logger
	http   *http.Client // to agents
	tls    bool
	kick   chan struct{}
	// removed is told of functions that are no longer there.
	removed func(name string)

	mu    sync.Mutex
	ready bool // all of them were heard once
	all   map[string]*reward
	came  uint64 // calls
}

// reward is one function. What it holds is guarded by the lock of rewards.
type reward struct {
	name     string
	spec     *rotav1.RewardSpec
	replicas map[uint64]*replica
	queue    []*rewardWaiter // by place
	running  int
	tally
}

// replica is one replica as the gateway sees it.
type replica struct {
	of      *reward
	id      uint64
	attempt uint32
	base    string // URL at the agent
	state   rotav1.RewardReplicaState
	ready   bool // it could be called when it was asked last
	running int
	strikes int
	// unreached counts calls in a row that could not be passed on to it.
	unreached int
	failed    string // why it is to be ended
	said      rotav1.RewardReplicaReport
	stop      context.CancelFunc // of the probe; nil: none is under way
	lastUsed  uint64
}

// rewardWaiter is a call that waits for a replica, or has one. It keeps its place when it is tried
// again.
type rewardWaiter struct {
	of    *reward
	place uint64 // calls that came earlier have lower ones
	avoid uint64 // the replica that failed it; 0: none
	got   chan *replica
}

func newRewards(logger hclog.Logger, agents *http.Client, tls bool) *rewards {
	return &rewards{logger: logger, http: agents, tls: tls, kick: make(chan struct{}, 1), all: map[string]*reward{}}
}

// apply takes over a message of the watch. The first one of a stream has all functions.
func (t *rewards) apply(m *rotav1.WatchRoutesResponse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.Reset_ {
		t.ready = true
		named := make(map[string]bool, len(m.Rewards))
		for _, r := range m.Rewards {
			named[r.GetSpec().GetName()] = true
		}
		for name := range t.all {
			if !named[name] {
				t.remove(name)
			}
		}
	}
	for _, r := range m.Rewards {
		t.update(r)
	}
	for _, name := range m.RemovedRewards {
		t.remove(name)
	}
}

func (t *rewards) update(m *rotav1.Reward) {
	name := m.GetSpec().GetName()
	r := t.all[name]
	if r == nil {
		r = &reward{name: name, replicas: map[uint64]*replica{}}
		t.all[name] = r
	}
	r.spec = m.Spec
	there := make(map[uint64]bool, len(m.Replicas))
	for _, p := range m.Replicas {
		there[p.ActionId] = true
		t.updateReplica(r, p)
	}
	for id, p := range r.replicas {
		if !there[id] {
			p.end()
			delete(r.replicas, id)
		}
	}
	t.dispatch(r)
}

func (t *rewards) updateReplica(r *reward, m *rotav1.RewardReplica) {
	p := r.replicas[m.ActionId]
	if p == nil {
		p = &replica{of: r, id: m.ActionId}
		r.replicas[m.ActionId] = p
	}
	p.state = m.State
	if p.attempt != m.Attempt {
		p.end()
		p.attempt, p.unreached = m.Attempt, 0
		p.base = fmt.Sprintf("%s%s%d/%d/", httpx.BaseURL(m.Address, t.tls), httpx.ReplicaPath, m.ActionId, m.Attempt)
	}
	if p.state == rotav1.RewardReplicaState_REWARD_REPLICA_STATE_DRAINING {
		t.kicked() // it may be idle already
		return
	}
	t.probe(p)
}

// end stops what the gateway does about a replica.
func (p *replica) end() {
	if p.stop != nil {
		p.stop()
	}
	p.stop, p.ready = nil, false
}

// rest is how long a replica is not asked whether it is ready. One that says so and cannot be called is
// behind an agent with too many calls.
func (p *replica) rest() time.Duration {
	if p.unreached < 2 {
		return 0
	}
	return min(probePause<<min(p.unreached-2, 8), restMax)
}

// probe asks until a replica can be called, unless it is being asked.
func (t *rewards) probe(p *replica) {
	if p.ready || p.stop != nil || p.attempt == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	target, rest := p.base+"ready?probe="+url.QueryEscape(p.of.spec.GetProbePath()), p.rest()
	go func() {
		defer cancel()
		_ = sleepFor(ctx, rest) // the loop looks at ctx
		for ctx.Err() == nil {
			if t.isReady(ctx, target) {
				t.mu.Lock()
				if ctx.Err() == nil {
					p.stop, p.ready = nil, true
					t.kicked()
					t.dispatch(p.of)
				}
				t.mu.Unlock()
				return
			}
			_ = sleepFor(ctx, probePause) // the loop looks at ctx
		}
	}()
}

func (t *rewards) isReady(ctx context.Context, target string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return false
	}
	resp, err := t.http.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusNoContent
}

// sleepFor waits, or until ctx is done.
func sleepFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (t *rewards) remove(name string) {
	r := t.all[name]
	if r == nil {
		return
	}
	for _, p := range r.replicas {
		p.end()
	}
	for _, w := range r.queue {
		close(w.got)
	}
	r.queue = nil
	delete(t.all, name)
	t.removed(name)
}

// close stops all probes.
func (t *rewards) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name := range t.all {
		t.remove(name)
	}
	t.http.CloseIdleConnections()
}

// choose returns the ready replica with the fewest calls and room for one, the one that was used
// longest ago among equals; nil if there is none. One that just failed the call is the last choice.
func (r *reward) choose(avoid uint64) *replica {
	var best *replica
	for _, p := range r.replicas {
		if !p.ready || p.failed != "" || p.state == rotav1.RewardReplicaState_REWARD_REPLICA_STATE_DRAINING || p.running >= int(r.spec.GetConcurrency()) {
			continue
		}
		if best == nil || p.compare(best, avoid) < 0 {
			best = p
		}
	}
	return best
}

func (p *replica) compare(o *replica, avoid uint64) int {
	return cmp.Or(compareBool(p.id == avoid, o.id == avoid), cmp.Compare(p.running, o.running), cmp.Compare(p.lastUsed, o.lastUsed), cmp.Compare(p.id, o.id))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// dispatch gives replicas to the calls that wait, in the order in which they came.
func (t *rewards) dispatch(r *reward) {
	for len(r.queue) > 0 {
		w := r.queue[0]
		p := r.choose(w.avoid)
		if p == nil {
			return
		}
		r.queue = r.queue[1:]
		t.hold(p)
		w.got <- p
	}
}

func (t *rewards) hold(p *replica) {
	p.running++
	p.of.running++
	p.of.used++
	p.lastUsed = p.of.used
}

// enter gives a call a place, if there is one. It must await its replica.
func (t *rewards) enter(name string) (*rewardWaiter, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.all[name]
	switch {
	case r == nil && !t.ready:
		return nil, errNoRoutes
	case r == nil:
		return nil, errNoReward
	}
	if len(r.queue) > 0 || r.choose(0) == nil {
		t.kicked() // the cluster is to hear of it at once
		if len(r.queue) >= int(r.spec.GetQueue()) {
			return nil, errRewardsFull
		}
	}
	t.came++
	w := &rewardWaiter{place: t.came, got: make(chan *replica, 1)}
	t.enqueue(r, w)
	return w, nil
}

// enqueue puts a call where its place is.
func (t *rewards) enqueue(r *reward, w *rewardWaiter) {
	w.of = r
	i, _ := slices.BinarySearchFunc(r.queue, w, func(a, b *rewardWaiter) int { return cmp.Compare(a.place, b.place) })
	r.queue = slices.Insert(r.queue, i, w)
	t.dispatch(r)
}

// await waits for the replica of a call. Release or again must follow.
func (t *rewards) await(ctx context.Context, w *rewardWaiter, until time.Time) (*replica, error) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	err := errNoReplica
	select {
	case p, ok := <-w.got:
		if !ok {
			return nil, errRewardRemoved
		}
		return p, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(w.of.queue, w); i >= 0 {
		w.of.queue = slices.Delete(w.of.queue, i, i+1)
		return nil, err
	}
	if p, ok := <-w.got; ok { // it came just now
		t.leave(p)
	}
	return nil, err
}

// outcome is what became of one try of a call.
type outcome uint8

const (
	answered outcome = iota
	// unreached: the replica has not got the call. unanswered: it may have, and failed. late: it
	// did not answer in time. canceled: nobody needs its answer.
	unreached
	unanswered
	late
	canceled
)

// release notes that a call no longer runs at a replica, and what became of it there.
func (t *rewards) release(p *replica, o outcome, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.judge(p, o, took)
	t.leave(p)
}

// again is release for a call that is tried again: before those that came later, at another replica
// if one is ready.
func (t *rewards) again(w *rewardWaiter, p *replica, o outcome, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.judge(p, o, took)
	w.avoid = p.id
	if r := t.all[p.of.name]; r != nil {
		t.enqueue(r, w) // before its slot goes to another call
	} else {
		close(w.got)
	}
	t.leave(p)
}

// judge notes what became of a call at a replica.
func (t *rewards) judge(p *replica, o outcome, took time.Duration) {
	p.of.callTime += took
	switch o {
	case answered:
		p.strikes, p.unreached = 0, 0
	case unreached, unanswered:
		if o == unanswered {
			p.unreached = 0
		}
		if p.ready {
			if o == unreached {
				p.unreached++
			}
			p.ready = false
			if p.of.replicas[p.id] == p {
				t.probe(p)
			}
		}
	case late:
		if p.strikes++; p.strikes >= strikesMax && p.failed == "" {
			p.failed = "it left " + strconv.Itoa(p.strikes) + " calls in a row without an answer in time"
			t.kicked()
		}
	}
}

func (t *rewards) leave(p *replica) {
	p.running--
	p.of.running--
	if p.running == 0 && p.state == rotav1.RewardReplicaState_REWARD_REPLICA_STATE_DRAINING {
		t.kicked()
	}
	t.dispatch(p.of)
}

// spec returns how a function is called; nil if there is none.
func (t *rewards) spec(name string) *rotav1.RewardSpec {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.all[name]; r != nil {
		return r.spec
	}
	return nil
}

// kicked has the next report sent soon.
func (t *rewards) kicked() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}
