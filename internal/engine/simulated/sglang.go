package simulated

import (
	"fmt"
	"net/http"
	"slices"

	"rota/internal/engine/model"
)

// addSGLang adds what SGLang has beside OpenAI's API: with its memory saver.
func (e *engine) addSGLang(mux *http.ServeMux) {
	mux.HandleFunc("GET /metrics", e.metrics(sglangMetrics))
	mux.HandleFunc("GET /health_generate", e.health)
	mux.HandleFunc("POST /flush_cache", e.flushCache)
	mux.HandleFunc("POST /release_memory_occupation", e.releaseSGLang)
	mux.HandleFunc("POST /resume_memory_occupation", e.resumeSGLang)
	mux.HandleFunc("POST /pause_generation", e.pauseSGLang)
	mux.HandleFunc("POST /continue_generation", func(w http.ResponseWriter, _ *http.Request) {
		e.unpause()
		answer(w, map[string]any{"message": "Generation continued successfully.", "status": "ok", "simulated": true})
	})
	mux.HandleFunc("POST /abort_request", e.abortSGLang)
	for _, from := range []string{"disk", "tensor", "distributed", "ipc"} {
		mux.HandleFunc("POST /update_weights_from_"+from, e.updateSGLang)
	}
	mux.HandleFunc("POST /update_weight_version", e.versionSGLang)
	mux.HandleFunc("GET /v1/loads", e.loads)
	mux.HandleFunc("GET /get_server_info", e.serverInfo)
	mux.HandleFunc("GET /server_info", e.serverInfo)
	mux.HandleFunc("GET /get_model_info", e.modelInfo)
	mux.HandleFunc("GET /model_info", e.modelInfo)
}

func (e *engine) flushCache(w http.ResponseWriter, _ *http.Request) {
	if l := e.driver.load(); l.Running+l.Waiting > 0 {
		http.Error(w, "simulated: requests are running", http.StatusBadRequest)
		return
	}
	e.resetCache()
}

// tags reads the tags of a call of SGLang.
func tags(w http.ResponseWriter, r *http.Request) (tags []string, ok bool) {
	var body struct{ Tags []string }
	if !read(w, r, &body) {
		return nil, false
	}
	if len(body.Tags) == 0 {
		http.Error(w, "simulated: no tags", http.StatusBadRequest)
		return nil, false
	}
	return body.Tags, true
}

// releaseSGLang gives memory back. The engine has to be idle. Without a backup the weights are lost
// with their memory, as they are in SGLang: it answers nonsense then, and this one 503.
func (e *engine) releaseSGLang(w http.ResponseWriter, r *http.Request) {
	tags, ok := tags(w, r)
	if !ok {
		return
	}
	if e.driver.load().Running > 0 {
		http.Error(w, "simulated: requests are running; pause_generation first, or abort_request", http.StatusBadRequest)
		return
	}
	if e.release(w, r) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.weightless = e.weightless || !e.o.WeightsBackup && slices.Contains(tags, "weights")
		fmt.Fprint(w, "null")
	}
}

func (e *engine) resumeSGLang(w http.ResponseWriter, r *http.Request) {
	if _, ok := tags(w, r); ok && e.resume(w, r) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.sleeping = false
		fmt.Fprint(w, "null")
	}
}

func (e *engine) pauseSGLang(w http.ResponseWriter, r *http.Request) {
	var body struct{ Mode string }
	if !read(w, r, &body) {
		return
	}
	modes := map[string]model.PauseMode{"": model.PauseAbort, "abort": model.PauseAbort, "retract": model.PauseRetract, "in_place": model.PauseKeep}
	mode, ok := modes[body.Mode]
	if !ok {
		http.Error(w, fmt.Sprintf("simulated: the mode is %q; use abort, retract or in_place", body.Mode), http.StatusUnprocessableEntity)
		return
	}
	if e.did(w, e.pause(r.Context(), mode)) {
		answer(w, map[string]any{"message": "Generation paused successfully.", "status": "ok", "simulated": true})
	}
}

func (e *engine) abortSGLang(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ID  string `json:"rid"`
		All bool   `json:"abort_all"`
	}
	if read(w, r, &body) {
		e.driver.abort(func(g *generation) bool { return body.All || g.named(body.ID) })
	}
}

func (e *engine) updateSGLang(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Version string `json:"weight_version"`
		Flush   *bool  `json:"flush_cache"`
		Abort   bool   `json:"abort_all_requests"`
	}
	if !read(w, r, &body) {
		return
	}
	if body.Abort {
		e.driver.abort(func(*generation) bool { return true })
	}
	if e.did(w, e.load(body.Version, body.Flush == nil || *body.Flush)) {
		answer(w, map[string]any{"success": true, "message": "simulated: the weights are updated", "num_paused_requests": 0, "simulated": true})
	}
}

// versionSGLang names the version of the weights. It aborts all requests unless it is told not to.
func (e *engine) versionSGLang(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Version string `json:"new_version"`
		Abort   *bool  `json:"abort_all_requests"`
	}
	if !read(w, r, &body) {
		return
	}
	if body.Abort == nil || *body.Abort {
		e.driver.abort(func(*generation) bool { return true })
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.version = body.Version
	if !e.did(w, e.keepVersion()) {
		return
	}
	answer(w, map[string]any{"success": true, "message": "simulated: the version is set", "new_version": e.version, "simulated": true})
}

func (e *engine) loads(w http.ResponseWriter, _ *http.Request) {
	l := e.driver.load()
	answer(w, map[string]any{"simulated": true, "dp_rank_count": 1, "loads": []any{map[string]any{
		"dp_rank": 0, "num_running_reqs": l.Running, "num_waiting_reqs": l.Waiting, "num_total_reqs": l.Running + l.Waiting,
		"num_used_tokens": l.KVTokens, "max_total_num_tokens": l.KVTokensMax, "token_usage": float64(l.KVTokens) / float64(l.KVTokensMax),
		"max_running_requests": e.o.Slots,
	}}})
}

func (e *engine) serverInfo(w http.ResponseWriter, _ *http.Request) {
	l := e.driver.load()
	answer(w, map[string]any{
		"simulated": e.about(), "model_path": e.o.Model, "served_model_name": e.o.Model, "tp_size": e.config.Profile.Degree,
		"max_total_num_tokens": l.KVTokensMax, "max_running_requests": e.o.Slots, "chunked_prefill_size": e.o.ChunkTokens,
		"enable_priority_scheduling": true, "version": "simulated",
	})
}

func (e *engine) modelInfo(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	answer(w, map[string]any{"model_path": e.o.Model, "is_generation": true, "weight_version": e.version, "simulated": true})
}
