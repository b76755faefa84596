package gateway

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

const (
	// rewardAlive is how often a demand that stays the same is reported: the cluster forgets it
	// after 30 s.
	rewardAlive = 10 * time.Second
	// rewardPause is the least time between two reports, rewardSend the longest of sending one.
	rewardPause = 50 * time.Millisecond
	rewardSend  = 10 * time.Second
	// rewardReportMax is how many functions and replicas one report is about.
	rewardReportMax = 1024
)

// tally is what is to be reported of a function.
type tally struct {
	calls, failures uint64
	callTime        time.Duration
	used            uint64 // calls that got a replica
	// sentRunning and sentWaiting are what the last report said, at sentAt.
	sentRunning, sentWaiting int
	sentAt                   time.Time
}

// count counts a call that was answered.
func (t *rewards) count(name string, failed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.all[name]
	if r == nil {
		return
	}
	r.calls++
	if failed {
		r.failures++
	}
}

// missing is why a function is not known.
func (t *rewards) missing() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ready {
		return errNoRoutes
	}
	return errNoReward
}

// demand returns what is new of a function, nil if nothing is.
func (r *reward) demand(now time.Time) *rotav1.RewardDemand {
	active := r.running+len(r.queue) > 0 || len(r.replicas) > 0
	if r.calls == 0 && r.running == r.sentRunning && len(r.queue) == r.sentWaiting && (!active || now.Sub(r.sentAt) < rewardAlive) {
		return nil
	}
	d := &rotav1.RewardDemand{
		Name: r.name, Running: uint32(r.running), Waiting: uint32(len(r.queue)),
		Calls: r.calls, FailedCalls: r.failures, CallTime: durationpb.New(r.callTime),
	}
	r.sentRunning, r.sentWaiting, r.sentAt = r.running, len(r.queue), now
	r.calls, r.failures, r.callTime = 0, 0, 0
	return d
}

// report returns what is new of a replica, nil if nothing is.
func (p *replica) report() *rotav1.RewardReplicaReport {
	drains := p.state == rotav1.RewardReplicaState_REWARD_REPLICA_STATE_DRAINING
	now := &rotav1.RewardReplicaReport{
		ActionId: p.id,
		Ready:    p.ready && p.state == rotav1.RewardReplicaState_REWARD_REPLICA_STATE_STARTING,
		Idle:     drains && p.running == 0,
		Failed:   p.failed != "" && !drains,
	}
	if now.Failed {
		now.Message = p.failed
	}
	if !now.Ready && !now.Idle && !now.Failed || now.Ready == p.said.Ready && now.Idle == p.said.Idle && now.Failed == p.said.Failed {
		return nil
	}
	p.said.Ready, p.said.Idle, p.said.Failed = now.Ready, now.Idle, now.Failed
	return now
}

// take returns the next report, nil if there is nothing to say.
func (t *rewards) take(gateway string, now time.Time) *rotav1.ReportRewardsRequest {
	t.mu.Lock()
	defer t.mu.Unlock()
	req := &rotav1.ReportRewardsRequest{Gateway: gateway}
	for _, name := range slices.Sorted(maps.Keys(t.all)) {
		r := t.all[name]
		for _, id := range slices.Sorted(maps.Keys(r.replicas)) {
			if len(req.Replicas) == rewardReportMax {
				break
			}
			if p := r.replicas[id].report(); p != nil {
				req.Replicas = append(req.Replicas, p)
			}
		}
		if len(req.Demands) == rewardReportMax {
			break
		}
		if d := r.demand(now); d != nil {
			req.Demands = append(req.Demands, d)
		}
	}
	if len(req.Demands)+len(req.Replicas) == 0 {
		return nil
	}
	return req
}

// sayAgain has the next report say what may be said twice of one that may be lost.
func (t *rewards) sayAgain(req *rotav1.ReportRewardsRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, said := range req.Replicas {
		for _, r := range t.all {
			if p := r.replicas[said.ActionId]; p != nil {
				p.said.Ready, p.said.Idle, p.said.Failed = false, false, false
			}
		}
	}
	for _, said := range req.Demands {
		if r := t.all[said.Name]; r != nil {
			r.sentAt = time.Time{}
		}
	}
}

// reportRewards sends reports until ctx is done, and then what is left. What may have been lost is
// sent again under its ID before anything newer.
func (g *Gateway) reportRewards(ctx context.Context) {
	sending, cancel := outlasting(ctx)
	defer cancel()
	tick := time.NewTicker(g.cfg.ReportInterval)
	defer tick.Stop()
	name := strings.TrimSuffix(g.prefix, "-")
	var pending *rotav1.ReportRewardsRequest
	// next reports whether there was something to send, and it was sent.
	next := func() bool {
		if pending == nil {
			pending = g.rewards.take(name, time.Now())
		}
		if pending == nil || !g.sendRewards(sending, pending) {
			return false
		}
		pending = nil
		return true
	}
	for ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-g.rewards.kick:
		case <-ctx.Done():
		}
		next()
		_ = sleepFor(ctx, rewardPause) // the loop looks at ctx
	}
	for next() {
	}
}

// sendRewards reports whether a report is done with.
func (g *Gateway) sendRewards(ctx context.Context, req *rotav1.ReportRewardsRequest) bool {
	ctx, cancel := context.WithTimeout(ctx, rewardSend)
	defer cancel()
	err := g.cluster.ReportRewards(ctx, req)
	if err == nil {
		return true
	}
	if d := client.Detail(err); d != nil && d.RetryDelay == nil && !errors.Is(err, client.ErrUnknownOutcome) {
		g.metrics.lost.Inc()
		if d.Reason == "REQUEST_EXPIRED" { // no server answered for longer than reports are remembered
			g.rewards.sayAgain(req)
		}
		g.logger.Error("a report about reward functions was refused", "error", err)
		return true
	}
	g.logger.Warn("no server takes reports about reward functions", "error", err)
	return false
}
