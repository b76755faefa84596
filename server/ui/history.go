package ui

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// samplesMax bounds the history: ten minutes.
const samplesMax = 300

// Counts are the numbers of the charts.
type Counts struct {
	Queued, Running, Trajectories uint64
	// Submitted is how many actions the cluster was given since it was founded.
	Submitted uint64
}

// sample is what a chart has of one moment: Unix time in seconds, actions queued and running,
// and how many a second were submitted and ended since the sample before.
type sample [5]float64

// history keeps the newest samples of this server.
type history struct {
	counts func() Counts

	mu      sync.Mutex
	samples []sample
	last    Counts
	at      time.Time
}

func newHistory(counts func() Counts) *history { return &history{counts: counts} }

func (h *history) run(ctx context.Context) {
	ticker := time.NewTicker(livePeriod)
	defer ticker.Stop()
	for {
		h.take(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// take adds a sample. The first has no rates.
func (h *history) take(now time.Time) {
	c := h.counts()
	h.mu.Lock()
	defer h.mu.Unlock()
	s := sample{float64(now.UnixMilli()) / 1000, float64(c.Queued), float64(c.Running)}
	if past := now.Sub(h.at).Seconds(); !h.at.IsZero() && past > 0 {
		s[3] = rate(h.last.Submitted, c.Submitted, past)
		s[4] = rate(h.last.ended(), c.ended(), past)
	}
	h.last, h.at = c, now
	if len(h.samples) == samplesMax {
		h.samples = append(h.samples[:0], h.samples[1:]...)
	}
	h.samples = append(h.samples, s)
}

// ended is how many actions have ended.
func (c Counts) ended() uint64 {
	if live := c.Queued + c.Running; live < c.Submitted {
		return c.Submitted - live
	}
	return 0
}

// rate is by how much a count grew in a second. After a restore it may be smaller than before.
func rate(from, to uint64, seconds float64) float64 {
	if to < from {
		return 0
	}
	return float64(to-from) / seconds
}

// newest is the last sample, zero if there is none.
func (h *history) newest() (s sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.samples); n > 0 {
		s = h.samples[n-1]
	}
	return s
}

// serveHistory sends the samples to who may read what they count, of all namespaces. Without that
// right the charts stay empty.
func (u *UI) serveHistory(w http.ResponseWriter, r *http.Request) {
	v := newViewer(u, r, "")
	if err := v.look(); err != nil || !v.mayCount() {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("[]"))
		return
	}
	u.history.mu.Lock()
	raw, err := json.Marshal(u.history.samples)
	u.history.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(raw) // nothing can be done about a reader that is gone
}
