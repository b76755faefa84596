package workload

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
	"rota/jepsen/workload/witness"
)

// providers are limits of an outside. All are scarce: most calls wait for them.
var providers = []*rotav1.CreateQuotaRequest{
	{Name: "browser", Kind: rotav1.QuotaKind_QUOTA_KIND_CONCURRENCY, Limit: 3, Keys: 1},
	{Name: "judge", Kind: rotav1.QuotaKind_QUOTA_KIND_CONCURRENCY, Limit: 2, Keys: 2},
	{Name: "search", Kind: rotav1.QuotaKind_QUOTA_KIND_FIXED_WINDOW, Limit: 4, Keys: 1, Window: durationpb.New(500 * time.Millisecond)},
	{Name: "chat", Kind: rotav1.QuotaKind_QUOTA_KIND_SLIDING_WINDOW, Limit: 3, Keys: 2, Window: durationpb.New(700 * time.Millisecond)},
	{Name: trial, Kind: rotav1.QuotaKind_QUOTA_KIND_CONCURRENCY, Limit: trialMost, Keys: trialKeys},
}

// trial is the quota that operators change and delete. The others stay what they
// are, so that it is known at any time how much of them may be in use.
const (
	trial     = "trial"
	trialMost = 5
	trialKeys = 2
)

// unitsMost is the most that an action uses of a quota. No limit is below it, so
// that everything can end.
const unitsMost = 2

// caller submits what calls providers, with cores or without, and operates the
// limits.
type caller struct {
	submitter
	created int // of providers
}

func quotas(ctx context.Context, env *Env, rate float64) error {
	if env.Witness == nil || env.Cores == 0 {
		return errNoWitness
	}
	return env.work(ctx, rate, func(w *worker) func(context.Context) {
		c := &caller{submitter: submitter{worker: w, several: 70}}
		c.next = c.newCalls
		return c.step
	})
}

func (c *caller) step(ctx context.Context) {
	for ; c.created < len(providers); c.created++ {
		if op := c.createQuota(ctx, providers[c.created]); op.Outcome != history.OK && op.Error != "QUOTA_EXISTS" {
			return
		}
	}
	if c.chance(20) {
		c.operate(ctx)
	} else {
		c.submitter.step(ctx)
	}
}

// operate reads a limit, or changes the one that may be changed.
func (c *caller) operate(ctx context.Context) {
	switch dice := c.rand.IntN(100); {
	case dice < 45:
		c.getQuota(ctx, providers[c.rand.IntN(len(providers))].Name)
	case dice < 80:
		c.updateQuota(ctx, c.newLimit())
	case dice < 90:
		c.deleteQuota(ctx, trial)
	default:
		c.createQuota(ctx, providers[len(providers)-1])
	}
}

// newLimit is another limit, another number of keys, or both.
func (c *caller) newLimit() *rotav1.UpdateQuotaRequest {
	q := &rotav1.UpdateQuotaRequest{Name: trial}
	if c.chance(70) {
		q.Limit = uint32(unitsMost + c.rand.IntN(trialMost-unitsMost+1))
	}
	if c.chance(50) {
		q.Keys = uint32(1 + c.rand.IntN(trialKeys))
	}
	return q
}

// newCalls calls one provider or two.
func (c *caller) newCalls() job {
	r := &rotav1.Resources{Cores: proto.Uint32(0)}
	if c.chance(40) {
		r.Cores = proto.Uint32(1)
	}
	for range 1 + c.rand.IntN(2) {
		q := &rotav1.QuotaDemand{Quota: providers[c.rand.IntN(len(providers))].Name, Units: uint32(1 + c.rand.IntN(unitsMost))}
		if !slices.ContainsFunc(r.Quotas, func(o *rotav1.QuotaDemand) bool { return o.Quota == q.Quota }) {
			r.Quotas = append(r.Quotas, q)
		}
	}
	work := witness.Work{For: c.between(2*time.Millisecond, 120*time.Millisecond)}
	if c.chance(10) {
		work.For = c.between(200*time.Millisecond, 1500*time.Millisecond)
	}
	if c.chance(8) {
		work.Child = c.between(100*time.Millisecond, 10*time.Second)
	}
	return job{resources: r, work: work}
}
