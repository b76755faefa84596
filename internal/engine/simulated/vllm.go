package simulated

import (
	"fmt"
	"net/http"
	"slices"

	"rota/internal/engine/model"
)

// addVLLM adds what vLLM has beside OpenAI's API: with VLLM_SERVER_DEV_MODE and sleep mode.
func (e *engine) addVLLM(mux *http.ServeMux) {
	mux.HandleFunc("GET /metrics", e.metrics(vllmMetrics))
	mux.HandleFunc("POST /sleep", e.sleepVLLM)
	mux.HandleFunc("POST /wake_up", e.wakeVLLM)
	mux.HandleFunc("GET /is_sleeping", e.isSleeping)
	mux.HandleFunc("POST /collective_rpc", e.collectiveRPC)
	mux.HandleFunc("POST /pause", e.pauseVLLM)
	mux.HandleFunc("POST /resume", func(w http.ResponseWriter, _ *http.Request) {
		e.unpause()
		answer(w, map[string]any{"status": "resumed", "simulated": true})
	})
	mux.HandleFunc("GET /is_paused", func(w http.ResponseWriter, _ *http.Request) {
		l := e.driver.load()
		answer(w, map[string]any{"is_paused": l.Paused || l.Draining, "simulated": true})
	})
	mux.HandleFunc("POST /abort_requests", e.abortVLLM)
	mux.HandleFunc("POST /reset_prefix_cache", func(http.ResponseWriter, *http.Request) { e.resetCache() })
	// The weights come with the call that finishes; those before it prepare only.
	for _, path := range []string{"/init_weight_transfer_engine", "/start_weight_update", "/update_weights"} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			var body map[string]any
			if read(w, r, &body) {
				answer(w, map[string]any{"message": "simulated: nothing is transferred", "simulated": true})
			}
		})
	}
	mux.HandleFunc("POST /finish_weight_update", e.finishUpdate)
	mux.HandleFunc("GET /weight_info", func(w http.ResponseWriter, _ *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		answer(w, map[string]any{"weight_version": e.version, "simulated": true})
	})
}

// modeVLLM is what a call says about requests that run; abort if nothing.
func modeVLLM(w http.ResponseWriter, r *http.Request) (mode model.PauseMode, ok bool) {
	switch text := r.URL.Query().Get("mode"); text {
	case "", "abort":
		return model.PauseAbort, true
	case "wait":
		return model.PauseWait, true
	case "keep":
		return model.PauseKeep, true
	default:
		http.Error(w, fmt.Sprintf("simulated: the mode is %q; use abort, wait or keep", text), http.StatusUnprocessableEntity)
		return 0, false
	}
}

func (e *engine) sleepVLLM(w http.ResponseWriter, r *http.Request) {
	level := r.URL.Query().Get("level")
	mode, ok := modeVLLM(w, r)
	switch {
	case !ok:
		return
	case !slices.Contains([]string{"", "0", "1", "2"}, level):
		http.Error(w, "simulated: level is 0, 1 or 2", http.StatusUnprocessableEntity)
		return
	}
	if !e.does(HangSleep) && !e.does(FailSleep) && !e.did(w, e.pause(r.Context(), mode)) {
		return
	}
	if level == "0" { // it is only paused, until it is woken
		return
	}
	if e.release(w, r) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.weightless = level == "2"
	}
}

// wakeVLLM wakes all, or what the tags name. It sleeps until the KV cache is there.
func (e *engine) wakeVLLM(w http.ResponseWriter, r *http.Request) {
	tags := r.URL.Query()["tags"]
	if !e.resume(w, r) {
		return
	}
	if len(tags) > 0 && !slices.Contains(tags, "kv_cache") {
		return
	}
	e.unpause()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sleeping = false
}

func (e *engine) isSleeping(w http.ResponseWriter, _ *http.Request) {
	switch {
	case e.does(Garbage):
		fmt.Fprint(w, "<html>simulated: not JSON</html>")
		return
	case e.does(Huge):
		fmt.Fprint(w, `{"is_sleeping":`)
		for range 1 << 10 {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	answer(w, map[string]any{"is_sleeping": e.sleeping, "simulated": true})
}

func (e *engine) collectiveRPC(w http.ResponseWriter, r *http.Request) {
	var call struct{ Method string }
	if !read(w, r, &call) {
		return
	}
	if call.Method != "reload_weights" {
		http.Error(w, "simulated: the only method is reload_weights", http.StatusBadRequest)
		return
	}
	if e.did(w, e.load("", false)) {
		answer(w, map[string]any{"results": []any{nil}, "simulated": true})
	}
}

func (e *engine) pauseVLLM(w http.ResponseWriter, r *http.Request) {
	mode, ok := modeVLLM(w, r)
	if !ok || !e.did(w, e.pause(r.Context(), mode)) {
		return
	}
	if r.URL.Query().Get("clear_cache") != "false" {
		e.resetCache()
	}
	answer(w, map[string]any{"status": "paused", "simulated": true})
}

func (e *engine) abortVLLM(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Requests []string `json:"request_ids"`
	}
	if !read(w, r, &body) {
		return
	}
	n := e.driver.abort(func(g *generation) bool {
		return len(body.Requests) == 0 || slices.ContainsFunc(body.Requests, g.named)
	})
	answer(w, map[string]any{"status": "aborted", "aborted": n, "simulated": true})
}

func (e *engine) finishUpdate(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Version string `json:"weight_version"`
	}
	if read(w, r, &body) && e.did(w, e.load(body.Version, true)) {
		answer(w, map[string]any{"message": "simulated: the weights are updated", "simulated": true})
	}
}
