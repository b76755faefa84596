package rpc_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

// TestWhatWasUsedReachesItsQuota: a server sends the rule of a call to the agent, which reports
// what was used, and quota and action show it. What no quota can be called is left out.
func TestWhatWasUsedReachesItsQuota(t *testing.T) {
	w := newWorld(t)
	ctx, c := t.Context(), w.quotas()
	if _, err := c.CreateQuota(ctx, &rotav1.CreateQuotaRequest{
		Name: "tokens", Kind: rotav1.QuotaKind_QUOTA_KIND_SLIDING_WINDOW, Limit: 100, Window: durationpb.New(time.Hour), Keys: 2,
	}); err != nil {
		t.Fatal(err)
	}
	a := w.agent("n1", nil)
	started := make(chan *rotav1.Assignment, 1)
	go a.serve(ctx, func(as *rotav1.Assignment) *rotav1.ActionResult { started <- as; return nil })
	id := w.submit(&rotav1.ActionSpec{
		Http:      &rotav1.HttpCall{Url: "http://127.0.0.1/"},
		Resources: &rotav1.Resources{Cores: proto.Uint32(0), Quotas: []*rotav1.QuotaDemand{{Quota: "tokens", Units: 40, Settle: "usage"}}},
	})
	if keys := (<-started).QuotaKeys; len(keys) != 1 || keys[0].Settle != "usage" || keys[0].Key != 1 {
		t.Errorf("the agent is told %v", keys)
	}
	report := &rotav1.AttemptReport{ActionId: id, Attempt: 1, Result: exited(0), Usage: []*rotav1.QuotaUse{
		{Quota: "NO QUOTA", Units: 1}, {Quota: "tokens", Units: 1 << 40}, nil,
	}}
	if _, err := w.agents().ReportAttempts(ctx, &rotav1.ReportAttemptsRequest{Name: a.name, Incarnation: a.incarnation, Reports: []*rotav1.AttemptReport{report}}); err != nil {
		t.Fatal(err)
	}
	got, err := c.GetQuota(ctx, &rotav1.GetQuotaRequest{Name: "tokens"})
	if err != nil {
		t.Fatal(err)
	}
	const all = 1_000_000_000
	if q := got.Quota; q.SettledAttempts != 1 || q.SettledUnits != all || q.OverdrawnUnits != all-100 || q.KeyUses[0].WindowUnits != all {
		t.Errorf("after a call that used more than there can be, the quota is %v", q)
	}
	resp, err := w.actions().GetAction(ctx, &rotav1.GetActionRequest{Id: id})
	if err != nil || len(resp.Action.QuotaUsage) != 1 || resp.Action.QuotaUsage[0].Units != all {
		t.Errorf("the call says that it used %v, %v", resp.GetAction().GetQuotaUsage(), err)
	}
}

// TestBadRulesAreRefused: when the action is submitted, not when its call has been made.
func TestBadRulesAreRefused(t *testing.T) {
	w := newWorld(t)
	for want, s := range map[string]*rotav1.ActionSpec{
		`resources.quotas[0].settle is no rule: "a..b" is not a path`: {Http: &rotav1.HttpCall{Url: "http://127.0.0.1/"}},
		"resources.quotas[0].settle is for HTTP calls":                {Command: &rotav1.Command{Argv: []string{"true"}}},
	} {
		rule := "usage"
		if s.Http != nil {
			rule = "a..b"
		}
		s.Resources = &rotav1.Resources{Quotas: []*rotav1.QuotaDemand{{Quota: "tokens", Settle: rule}}}
		_, err := w.actions().SubmitActions(t.Context(), &rotav1.SubmitActionsRequest{RequestId: "r", Actions: []*rotav1.ActionSpec{s}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("refused with %v, want %q", err, want)
		}
	}
}
