package e2e

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
)

// provider is an HTTP server that may refuse calls for their rate, and counts them.
type provider struct {
	*httptest.Server
	mu              sync.Mutex
	refuses         bool
	refused, served int
	now, most       int       // calls that are served at the same time
	last, first     time.Time // the last that was refused, and the first that was served after
}

// askedToWait is what it answers as Retry-After, in seconds.
const askedToWait = "2"

func newProvider(t *testing.T) *provider {
	p := &provider{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !p.begin() {
			time.Sleep(100 * time.Millisecond) // so that all calls of a burst are there
			w.Header().Set("Retry-After", askedToWait)
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		time.Sleep(50 * time.Millisecond)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.now--
	}))
	t.Cleanup(p.Close)
	return p
}

// begin reports whether a call is served.
func (p *provider) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuses {
		p.refused++
		p.last = time.Now()
		return false
	}
	if p.served++; p.served == 1 {
		p.first = time.Now()
	}
	p.now++
	p.most = max(p.most, p.now)
	return true
}

func (p *provider) refuse(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = yes
}

// calls submits HTTP calls that use a quota.
func (w *world) calls(n int, url, quota string) []uint64 {
	w.Helper()
	var specs []*rotav1.ActionSpec
	for range n {
		specs = append(specs, &rotav1.ActionSpec{
			Http:      &rotav1.HttpCall{Url: url},
			Resources: &rotav1.Resources{Cores: proto.Uint32(0), Quotas: []*rotav1.QuotaDemand{{Quota: quota}}},
		})
	}
	ids, err := w.api.Submit(w.Context(), specs...)
	if err != nil {
		w.Fatal(err)
	}
	return ids
}

func (w *world) ends(ids []uint64, want rotav1.ActionState) {
	w.Helper()
	for _, id := range ids {
		if a, err := w.api.Wait(w.Context(), id); err != nil || a.State != want {
			w.Fatalf("call %d ends with %v, %v, want %v", id, a, err, want)
		}
	}
}

func (w *world) quota(name string) *rotav1.Quota {
	w.Helper()
	resp, err := w.api.Quotas.GetQuota(w.Context(), &rotav1.GetQuotaRequest{Name: name})
	if err != nil {
		w.Fatal(err)
	}
	return resp.Quota
}

// TestAQuotaAdapts: a provider refuses a burst of calls. The quota halves, and nothing calls the
// provider for as long as it has asked to wait. Then calls go on, and the limit comes back.
func TestAQuotaAdapts(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1}), newProvider(t)
	_, err := w.api.Quotas.CreateQuota(w.Context(), &rotav1.CreateQuotaRequest{
		Name: "api", Kind: rotav1.QuotaKind_QUOTA_KIND_CONCURRENCY, Limit: 8, Adaptive: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	p.refuse(true)
	w.ends(w.calls(8, p.URL, "api"), rotav1.ActionState_ACTION_STATE_FAILED)
	p.refuse(false)
	later := w.calls(1, p.URL, "api")
	q := w.quota("api")
	if q.EffectiveUnits != 4 || q.ThrottledAttempts != 8 || q.PausedFor.AsDuration() <= 0 || q.PausedFor.AsDuration() > 2*time.Second {
		t.Errorf("8 calls were refused at the same time, and the quota is %v", q)
	}
	if got, err := w.api.Get(w.Context(), later[0]); err != nil || !strings.Contains(got.WaitingFor, "quota api, which is paused for") {
		t.Errorf("a call that waits for the pause to end says %q, %v", got.GetWaitingFor(), err)
	}
	w.ends(append(later, w.calls(8, p.URL, "api")...), rotav1.ActionState_ACTION_STATE_SUCCEEDED)
	p.mu.Lock()
	paused, most := p.first.Sub(p.last), p.most
	p.mu.Unlock()
	if paused < 2*time.Second {
		t.Errorf("it asked to wait for 2 s, and was called again after %v", paused)
	}
	if most > 5 { // 9 successes bring back one unit of 4, at most
		t.Errorf("%d calls arrive at the same time, though half of 8 were allowed", most)
	}
	if q := w.quota("api"); q.EffectiveUnits >= 8 || q.PausedFor != nil {
		t.Errorf("after 9 calls that succeeded, the quota is %v", q)
	}
	w.ends(w.calls(120, p.URL, "api"), rotav1.ActionState_ACTION_STATE_SUCCEEDED)
	if q := w.quota("api"); q.EffectiveUnits != 8 || q.ThrottledAttempts != 8 {
		t.Errorf("after 129 calls that succeeded, the quota is %v", q)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused != 8 || p.served != 129 || p.most > 8 {
		t.Errorf("it refused %d calls and served %d, %d of them at the same time", p.refused, p.served, p.most)
	}
}
