package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
)

// newMeter is a provider that answers each call with how many tokens it used: what its path says.
func newMeter(t *testing.T) (s *httptest.Server, used *atomic.Int64) {
	used = new(atomic.Int64)
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var tokens int64
		if _, err := fmt.Sscanf(r.URL.Path, "/%d", &tokens); err != nil {
			http.NotFound(w, r)
			return
		}
		used.Add(tokens)
		fmt.Fprintf(w, `{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":%d,"total_tokens":%d}}`, tokens, tokens)
	}))
	t.Cleanup(s.Close)
	return s, used
}

// tokens submits a call or, without a URL, a command.
func (w *world) tokens(expected uint32, url string, argv ...string) uint64 {
	w.Helper()
	need := &rotav1.QuotaDemand{Quota: "tokens", Units: expected}
	spec := &rotav1.ActionSpec{Resources: &rotav1.Resources{Cores: proto.Uint32(0), Quotas: []*rotav1.QuotaDemand{need}}}
	if url != "" {
		spec.Http, need.Settle = &rotav1.HttpCall{Url: url}, "usage"
	} else {
		spec.Command = &rotav1.Command{Argv: argv}
	}
	ids, err := w.api.Submit(w.Context(), spec)
	if err != nil {
		w.Fatal(err)
	}
	return ids[0]
}

// TestABudgetIsSettled: calls of which it is known only afterwards how many tokens they used. A
// call that used less gives the rest back at once. One that used more overdraws the budget, and
// no other starts until its window has let it out.
func TestABudgetIsSettled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1})
	meter, used := newMeter(t)
	const window = 3 * time.Second
	_, err := w.api.Quotas.CreateQuota(w.Context(), &rotav1.CreateQuotaRequest{
		Name: "tokens", Kind: rotav1.QuotaKind_QUOTA_KIND_SLIDING_WINDOW, Limit: 100, Window: durationpb.New(window),
	})
	if err != nil {
		t.Fatal(err)
	}
	// Each expects all of the budget, and uses a tenth: they need not wait for windows to pass.
	var ids []uint64
	for range 3 {
		ids = append(ids, w.tokens(70, meter.URL+"/10"))
	}
	w.ends(ids, rotav1.ActionState_ACTION_STATE_SUCCEEDED)
	a, err := w.api.Get(w.Context(), ids[2])
	if err != nil || len(a.QuotaUsage) != 1 || a.QuotaUsage[0].Quota != "tokens" || a.QuotaUsage[0].Units != 10 {
		t.Errorf("a call that used 10 tokens says %v, %v", a.GetQuotaUsage(), err)
	}
	// A command says that it used more than the budget has.
	script := `echo tokens 200 >>"$ROTA_USAGE_FILE"; echo tokens 50 >>"$ROTA_USAGE_FILE"; exit 3`
	much := w.tokens(1, "", "sh", "-c", script)
	w.ends([]uint64{much}, rotav1.ActionState_ACTION_STATE_FAILED)
	late := w.tokens(1, meter.URL+"/1")
	q := w.quota("tokens")
	if q.SettledAttempts != 4 || q.SettledUnits != 280 || q.OverdrawnUnits < 150 || q.OverdrawnUnits > 180 || q.HeldUnits != 0 {
		t.Errorf("after 280 tokens of 100, the quota is %v", q)
	}
	if a, err := w.api.Get(w.Context(), late); err != nil || !strings.Contains(a.GetWaitingFor(), "overdraws it") {
		t.Errorf("a call that waits for the budget says %q, %v", a.GetWaitingFor(), err)
	}
	w.ends([]uint64{late}, rotav1.ActionState_ACTION_STATE_SUCCEEDED)
	overdrew, err := w.api.Get(w.Context(), much)
	after, err2 := w.api.Get(w.Context(), late)
	if waited := after.GetStartTime().AsTime().Sub(overdrew.GetEndTime().AsTime()); err != nil || err2 != nil || waited < window {
		t.Errorf("an overdrawn budget grants again after %v, its window is %v: %v, %v", waited, window, err, err2)
	}
	if n := used.Load(); n != 31 {
		t.Errorf("the calls used %d tokens, want 31", n)
	}
	if q := w.quota("tokens"); q.SettledAttempts != 5 || q.SettledUnits != 281 || q.OverdrawnUnits != 0 {
		t.Errorf("when the window has passed, the quota is %v", q)
	}
}
