package rpc_test

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

func (w *world) quotas() rotav1connect.QuotaServiceClient {
	return rotav1connect.NewQuotaServiceClient(w.http, w.url, codec.ForClient())
}

// TestTheLifeOfAQuota: it is created, changed, seen, and deleted when nothing needs
// it any more.
func TestTheLifeOfAQuota(t *testing.T) {
	w := newWorld(t)
	ctx, c := t.Context(), w.quotas()
	created, err := c.CreateQuota(ctx, &rotav1.CreateQuotaRequest{
		Name: "judge", Kind: rotav1.QuotaKind_QUOTA_KIND_SLIDING_WINDOW, Limit: 2, Window: durationpb.New(time.Minute), Keys: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	if q := created.Quota; q.Limit != 2 || q.Keys != 3 || q.Window.AsDuration() != time.Minute || len(q.KeyUses) != 3 {
		t.Errorf("created %v", q)
	}
	w.agent("n1", nil)
	busy := spec("true")
	busy.Resources = &rotav1.Resources{Cores: proto.Uint32(4)} // all of the node
	w.submit(busy)
	s := spec("true")
	s.Resources = &rotav1.Resources{Cores: proto.Uint32(1), Quotas: []*rotav1.QuotaDemand{{Quota: "judge"}}}
	id := w.submit(s)
	if _, err := c.DeleteQuota(ctx, &rotav1.DeleteQuotaRequest{Name: "judge"}); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("deleted while an action needs it: %v", err)
	}
	updated, err := c.UpdateQuota(ctx, &rotav1.UpdateQuotaRequest{Name: "judge", Limit: 1})
	if err != nil || updated.Quota.Limit != 1 || updated.Quota.Keys != 3 || updated.Quota.HeldUnits != 1 {
		t.Errorf("updated to %v, %v", updated, err)
	}
	if _, err := w.actions().CancelActions(ctx, &rotav1.CancelActionsRequest{Ids: []uint64{id}}); err != nil {
		t.Fatal(err)
	}
	got, err := c.GetQuota(ctx, &rotav1.GetQuotaRequest{Name: "judge"})
	if err != nil || got.Quota.HeldUnits != 0 || got.Quota.WindowUnits != 0 {
		t.Errorf("after the cancel %v, %v", got, err)
	}
	if _, err := c.DeleteQuota(ctx, &rotav1.DeleteQuotaRequest{Name: "judge"}); err != nil {
		t.Error(err)
	}
	if list, err := c.ListQuotas(ctx, &rotav1.ListQuotasRequest{}); err != nil || len(list.Quotas) != 0 {
		t.Errorf("left are %v, %v", list, err)
	}
	if _, err := c.GetQuota(ctx, &rotav1.GetQuotaRequest{Name: "judge"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a quota that is gone: %v", err)
	}
}

// TestARefusalReachesItsQuota: an agent reports what a provider said, and the quota shows it.
func TestARefusalReachesItsQuota(t *testing.T) {
	w := newWorld(t)
	ctx, c := t.Context(), w.quotas()
	if _, err := c.CreateQuota(ctx, &rotav1.CreateQuotaRequest{
		Name: "api", Kind: rotav1.QuotaKind_QUOTA_KIND_CONCURRENCY, Limit: 4, Keys: 2, Adaptive: true,
	}); err != nil {
		t.Fatal(err)
	}
	a := w.agent("n1", nil)
	started := make(chan *rotav1.Assignment, 1)
	go a.serve(ctx, func(as *rotav1.Assignment) *rotav1.ActionResult { started <- as; return nil })
	s := spec("true")
	s.Resources = &rotav1.Resources{Cores: proto.Uint32(0), Quotas: []*rotav1.QuotaDemand{{Quota: "api"}}}
	id := w.submit(s)
	<-started
	if _, err := w.agents().ReportAttempts(ctx, &rotav1.ReportAttemptsRequest{
		Name: a.name, Incarnation: a.incarnation, Reports: []*rotav1.AttemptReport{{
			ActionId: id, Attempt: 1, Result: exited(22), Throttle: &rotav1.Throttle{RetryAfter: durationpb.New(time.Minute)},
		}},
	}); err != nil {
		t.Fatal(err)
	}
	got, err := c.GetQuota(ctx, &rotav1.GetQuotaRequest{Name: "api"})
	if err != nil {
		t.Fatal(err)
	}
	q := got.Quota
	if !q.Adaptive || q.ThrottledAttempts != 1 || q.EffectiveUnits != 6 || q.PausedFor != nil {
		t.Errorf("one of two keys is paused: %v", q)
	}
	first, second := q.KeyUses[0], q.KeyUses[1]
	if d := first.PausedFor.AsDuration(); d <= 50*time.Second || d > time.Minute || first.EffectiveUnits != 2 || second.PausedFor != nil || second.EffectiveUnits != 4 {
		t.Errorf("the keys are %v and %v", first, second)
	}
	off, err := c.UpdateQuota(ctx, &rotav1.UpdateQuotaRequest{Name: "api", Adaptive: proto.Bool(false)})
	if err != nil || off.Quota.Adaptive || off.Quota.EffectiveUnits != 8 || off.Quota.KeyUses[0].PausedFor != nil || off.Quota.ThrottledAttempts != 1 {
		t.Errorf("without adapting it is %v, %v", off, err)
	}
}

// TestBadQuotasAreRefused says which field is wrong.
func TestBadQuotasAreRefused(t *testing.T) {
	w := newWorld(t)
	minute := durationpb.New(time.Minute)
	for want, q := range map[string]*rotav1.CreateQuotaRequest{
		"name is required":                 {Kind: 1, Limit: 1},
		"name may contain only":            {Name: "No", Kind: 1, Limit: 1},
		"limit must be at least 1":         {Name: "q", Kind: 1},
		"limit must be at most 1000000000": {Name: "q", Kind: 1, Limit: 1 << 31},
		"keys must be at most 64":          {Name: "q", Kind: 1, Limit: 1, Keys: 65},
		"kind must be one of":              {Name: "q", Kind: 4, Limit: 1, Window: minute},
		"window must be absent":            {Name: "q", Kind: 1, Limit: 1, Window: minute},
		"window must be at least 100ms":    {Name: "q", Kind: 2, Limit: 1},
		"window must not be negative":      {Name: "q", Kind: 3, Limit: 1, Window: durationpb.New(-time.Second)},
		"window is not a valid duration":   {Name: "q", Kind: 3, Limit: 1, Window: &durationpb.Duration{Seconds: 1, Nanos: -1}},
		"window must be at most 720h0m0s":  {Name: "q", Kind: 2, Limit: 1, Window: durationpb.New(1000 * time.Hour)},
	} {
		_, err := w.quotas().CreateQuota(t.Context(), q)
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%v is refused with %v, want %q", q, err, want)
		}
	}
	quota := func(names ...string) (list []*rotav1.QuotaDemand) {
		for _, name := range names {
			list = append(list, &rotav1.QuotaDemand{Quota: name})
		}
		return list
	}
	for want, r := range map[string]*rotav1.Resources{
		"resources.quotas[0].quota is required":          {Quotas: quota("")},
		"resources.quotas[1].quota is named twice":       {Quotas: quota("q", "q")},
		"resources.quotas must be at most 8, are 9":      {Quotas: quota("1", "2", "3", "4", "5", "6", "7", "8", "9")},
		"resources.cores must be at least 1":             {Cores: proto.Uint32(0)},
		"resources.max_cores must be 0":                  {Cores: proto.Uint32(0), MaxCores: 2, Quotas: quota("q")},
		`quota "q" does not exist; create it with: rota`: {Quotas: quota("q")},
	} {
		s := spec("true")
		s.Resources = r
		_, err := w.actions().SubmitActions(t.Context(), &rotav1.SubmitActionsRequest{Actions: []*rotav1.ActionSpec{s}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v is refused with %v, want %q", r, err, want)
		}
	}
}

// TestPoolsCountWhateverIsWaitedFor: cores, quotas, GPUs, memory, the node of a
// trajectory.
func TestPoolsCountWhateverIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	node := registration("n1", "127.0.0.1:1")
	node.MemoryBytes, node.Gpus = 1000<<20, &rotav1.GpuInventory{Class: "simulated-H100", Count: 1, MemoryBytes: 80 << 30}
	if _, err := w.agents().RegisterNode(ctx, node); err != nil {
		t.Fatal(err)
	}
	if _, err := w.quotas().CreateQuota(ctx, &rotav1.CreateQuotaRequest{Name: "judge", Kind: rotav1.QuotaKind_QUOTA_KIND_CONCURRENCY, Limit: 1}); err != nil {
		t.Fatal(err)
	}
	trajectories := rotav1connect.NewTrajectoryServiceClient(w.http, w.url, codec.ForClient())
	open := func(memory uint64) uint64 {
		opened, err := trajectories.OpenTrajectory(ctx, &rotav1.OpenTrajectoryRequest{MemoryBytes: memory})
		if err != nil {
			t.Fatal(err)
		}
		return opened.Trajectory.Id
	}
	lives, pending := open(600<<20), open(999<<20)
	const cores = 4
	judge := []*rotav1.QuotaDemand{{Quota: "judge"}}
	submit := func(trajectory uint64, r *rotav1.Resources) {
		s := spec("true")
		s.TrajectoryId, s.Resources = trajectory, r
		w.submit(s)
	}
	submit(0, &rotav1.Resources{Cores: proto.Uint32(cores), Quotas: judge}) // runs
	submit(0, &rotav1.Resources{})                                          // waits for cores
	submit(lives, &rotav1.Resources{})                                      // for cores of that node
	submit(lives, &rotav1.Resources{Quotas: judge})                         // for a quota, and will live on that node
	submit(0, &rotav1.Resources{Cores: proto.Uint32(0), Quotas: judge})     // for a quota
	submit(0, &rotav1.Resources{Cores: proto.Uint32(0), Gpus: &rotav1.GpuDemand{Gpus: []uint32{1}}})
	submit(0, &rotav1.Resources{Cores: proto.Uint32(0), Gpus: &rotav1.GpuDemand{Gpus: []uint32{1}}}) // for a GPU
	submit(pending, &rotav1.Resources{})                                                             // for a node with the memory
	pools, err := w.operators().ListPools(ctx, &rotav1.ListPoolsRequest{})
	if err != nil || len(pools.Pools) != 1 {
		t.Fatal(pools, err)
	}
	if p := pools.Pools[0]; p.QueuedActions != 6 || p.QueuedForQuotas != 2 || p.QueuedForGpus != 1 {
		t.Errorf("pool is %v, want 6 queued, 2 of them for quotas and 1 for GPUs", p)
	}
	got, err := rotav1connect.NewNodeServiceClient(w.http, w.url, codec.ForClient()).GetNode(ctx, &rotav1.GetNodeRequest{Name: "n1"})
	if err != nil || got.Node.QueuedActions != 2 || got.Node.RunningActions != 2 {
		t.Errorf("node is %v, %v, want 2 queued and 2 running", got, err)
	}
}
