package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
)

// The limit of bytes counts what workers answer, what they are sent, and what replicas answer. None of
// that is a failure of theirs.
func TestAnswersHaveBytes(t *testing.T) {
	const bytesMax = 1 << 20
	big := strings.Repeat("x", 2*bytesMax)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, `data: {"id":"x","choices":[{"index":0,"text":"a"}]}`+"\n\n")
			w.(http.Flusher).Flush()
			fmt.Fprintf(w, `data: {"id":"x","choices":[{"index":0,"text":"%s"}]}`+"\n\n", big)
			return
		}
		fmt.Fprintf(w, `{"choices":[{"index":0,"text":"%s"}]}`, big)
	}))
	defer engine.Close()
	a := newAgent(t)
	a.set(1, true, says(big))
	c, g := rewardWorld(t, a.function(nil, 1), func(c *Config) { c.BodyBytesMax, c.BytesMax = bytesMax/2, bytesMax })
	c.tell(&rotav1.WatchRoutesResponse{Workers: []*rotav1.Worker{{
		Spec:  &rotav1.WorkerSpec{Name: "w1", Policy: "policy", Url: engine.URL, Dialect: dialectVLLM},
		State: rotav1.WorkerState_WORKER_STATE_UP,
	}}})
	c.route(7, "w1", 0)
	until(t, "the route", func() bool { return g.table.entryOf(7).worker == "w1" })
	for name, req := range map[string]struct {
		path, body string
		status     int
	}{
		"an answer":             {"/v1/completions", `{"prompt":"x"}`, http.StatusTooManyRequests},
		"an event":              {"/v1/completions", `{"prompt":"x","stream":true}`, http.StatusOK},
		"a request and itself":  {"/v1/completions", `{"prompt":"` + big[:bytesMax/2-100] + `"}`, http.StatusTooManyRequests},
		"an answer of a reward": {"/v1/rewards/f", `{}`, http.StatusTooManyRequests},
	} {
		resp := post(t, g, req.path, req.body)
		if got := readAll(t, resp); resp.StatusCode != req.status || !strings.Contains(got, "too_many_bytes") {
			t.Errorf("%s: %d %.300s", name, resp.StatusCode, got)
		}
		until(t, "nothing is held any more", func() bool { return g.bytes.Load() == 0 })
	}
	if _, _, _, failed := c.reported(7); len(failed) > 0 || readyReplicas(g) != 1 {
		t.Errorf("failed: %v; %d replicas are ready", failed, readyReplicas(g))
	}
}
