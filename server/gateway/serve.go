package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// offered is what a refusal says that there is.
const offered = "POST /v1/chat/completions, POST /v1/completions, POST /v1/responses, POST /v1/rewards/NAME, GET /v1/models, GET /health and GET /metrics"

// handler is all that clients see.
func (g *Gateway) handler() http.Handler {
	mux := http.NewServeMux()
	for _, e := range []endpoint{chat, completions, responses} {
		mux.HandleFunc("POST "+e.path(), func(w http.ResponseWriter, r *http.Request) { g.generate(w, r, e) })
		mux.HandleFunc(e.path(), func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", http.MethodPost)
			(&refusal{status: http.StatusMethodNotAllowed, code: "method_not_allowed", message: e.path() + " takes POST"}).answer(w)
		})
	}
	mux.HandleFunc("POST /v1/rewards/{name}", g.reward)
	for _, method := range []string{"GET", "POST"} {
		mux.HandleFunc(method+" /v1/rewards/{name}/{path...}", g.reward)
	}
	mux.HandleFunc("GET /v1/models", g.models)
	mux.HandleFunc("GET /v1/models/{name...}", g.models)
	mux.HandleFunc("GET /health", g.health)
	figures := g.metrics.handler()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if _, no := g.keys.authorize(r); no != nil {
			no.answer(w)
			return
		}
		figures.ServeHTTP(w, r)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		(&refusal{status: http.StatusNotFound, code: "not_offered",
			message: fmt.Sprintf("the gateway does not offer %s %s; it offers %s", r.Method, r.URL.Path, offered)}).answer(w)
	})
	return mux
}

// generate serves one request.
func (g *Gateway) generate(w http.ResponseWriter, r *http.Request, e endpoint) {
	status := http.StatusInternalServerError // what net/http makes of a panic
	defer func() { g.metrics.requests.WithLabelValues(e.path(), strconv.Itoa(status)).Inc() }()
	if no := g.admit(); no != nil {
		g.refuse(w, no, &status)
		return
	}
	s := g.newShare()
	defer func() {
		s.end()
		g.requests.Add(-1)
	}()
	g.admitted(w, r, e, &status, s)
}

func (g *Gateway) refuse(w http.ResponseWriter, no *refusal, status *int) {
	g.metrics.refused.WithLabelValues(no.code).Inc()
	*status = no.status
	no.answer(w)
}

func (g *Gateway) newShare() *share { return &share{all: &g.bytes, max: g.cfg.BytesMax} }

// admit counts a request, if there is room for it.
func (g *Gateway) admit() *refusal {
	if g.draining.Load() {
		return &refusal{status: http.StatusServiceUnavailable, code: "stopping", retryAfter: 1,
			message: "this gateway is stopping; send the request to another one"}
	}
	if g.requests.Add(1) > g.cfg.RequestsMax {
		g.requests.Add(-1)
		return &refusal{status: http.StatusTooManyRequests, code: "too_many_requests", retryAfter: 1,
			message: fmt.Sprintf("%d requests run or wait at this gateway already; send the request again later, or to another gateway", g.cfg.RequestsMax)}
	}
	return nil
}

// admitted serves a request that was counted.
func (g *Gateway) admitted(w http.ResponseWriter, r *http.Request, e endpoint, status *int, s *share) {
	byKey, no := g.keys.authorize(r)
	if no == nil {
		no = checkHeader(r.Header)
	}
	if no == nil {
		no = checkQuery(r.URL.RawQuery)
	}
	if no != nil {
		g.refuse(w, no, status)
		return
	}
	raw, no := g.read(w, r, s)
	if no != nil {
		g.refuse(w, no, status)
		return
	}
	c, no := g.newCall(w, r, raw, e, byKey)
	if no != nil {
		g.refuse(w, no, status)
		return
	}
	c.share = s
	c.run()
	*status = c.status
}

// checkHeader refuses bodies that the gateway could not read.
func checkHeader(h http.Header) *refusal {
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return &refusal{status: http.StatusUnsupportedMediaType, code: "compressed", message: fmt.Sprintf("the body is compressed with %q; send it as it is", enc)}
	}
	if kind, _, err := mime.ParseMediaType(h.Get("Content-Type")); err != nil || kind != "application/json" {
		return &refusal{status: http.StatusUnsupportedMediaType, code: "not_json", message: fmt.Sprintf("the Content-Type is %q; send application/json", h.Get("Content-Type"))}
	}
	return nil
}

// checkQuery refuses what would break the first line of a request to a worker. HTTP/2 has no such
// line, so its queries may have spaces.
func checkQuery(query string) *refusal {
	if strings.ContainsFunc(query, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return &refusal{status: http.StatusBadRequest, code: "invalid_query", message: "the query of the URL has a character that must be escaped, as %20 for a space"}
	}
	return nil
}

// read reads the body of a request.
func (g *Gateway) read(w http.ResponseWriter, r *http.Request, s *share) (raw []byte, no *refusal) {
	tooLarge := &refusal{status: http.StatusRequestEntityTooLarge, code: "body_too_large",
		message: fmt.Sprintf("the body has more than %d bytes, the limit of this gateway", g.cfg.BodyBytesMax)}
	if r.ContentLength > g.cfg.BodyBytesMax {
		return nil, tooLarge
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(g.cfg.ClientTimeout)) // not all readers have one
	raw, err := s.read(http.MaxBytesReader(w, r.Body, g.cfg.BodyBytesMax), ofBody, r.ContentLength, g.cfg.BodyBytesMax)
	var large *http.MaxBytesError
	switch {
	case err == nil:
		_ = rc.SetReadDeadline(time.Time{}) // as above
		return raw, nil
	case errors.Is(err, errBytes):
		return nil, tooManyBytes
	case errors.As(err, &large):
		return nil, tooLarge
	}
	return nil, &refusal{status: http.StatusBadRequest, code: "body_cut", message: "the body of the request did not arrive: " + err.Error()}
}

// newCall reads what the request says.
func (g *Gateway) newCall(w http.ResponseWriter, r *http.Request, raw []byte, e endpoint, byKey uint64) (*call, *refusal) {
	b, err := parseBody(raw, e)
	if err != nil {
		return nil, &refusal{status: http.StatusBadRequest, code: "invalid_body", message: err.Error()}
	}
	id, no := trajectory(r, byKey, b.user)
	if no != nil {
		return nil, no
	}
	f := &flight{id: id, limit: max(g.cfg.TokenTimeout, 0)}
	if id == 0 {
		if !g.cfg.LeastLoaded {
			return nil, unnamed
		}
		if json.Unmarshal(b.value(fModel), &f.policy) != nil || f.policy == "" {
			return nil, &refusal{status: http.StatusBadRequest, code: "model_missing",
				message: "a request without a trajectory needs a model; GET /v1/models names all policies"}
		}
	}
	if !b.stream {
		f.probe = g.probe
	}
	c := &call{g: g, w: w, r: r, rc: http.NewResponseController(w), b: b, f: f, status: http.StatusOK,
		gen: generation{b: b}, prefix: g.prefix + strconv.FormatUint(g.named.Add(1), 36) + "-", header: passedOn(r.Header, g.workerKey)}
	if rid, ok := isString(b.value(fRID)); ok && len(rid) > 0 {
		c.rid = string(rid)
	}
	c.gen.held = func() bool { return g.table.isHeld(f) }
	return c, nil
}

// models lists the policies, as engines list their models.
func (g *Gateway) models(w http.ResponseWriter, r *http.Request) {
	if _, no := g.keys.authorize(r); no != nil {
		no.answer(w)
		return
	}
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	registered, ready := g.table.policies()
	list := make([]model, 0, len(registered))
	for name, at := range registered {
		list = append(list, model{name, "model", at, "rota"})
	}
	slices.SortFunc(list, func(a, b model) int { return strings.Compare(a.ID, b.ID) })
	name := r.PathValue("name")
	at := slices.IndexFunc(list, func(m model) bool { return m.ID == name })
	switch {
	case !ready:
		refusalOf(errNoRoutes, "").answer(w)
	case name == "":
		writeJSON(w, map[string]any{"object": "list", "data": list})
	case at < 0:
		refusalOf(fmt.Errorf("%w: %q", errNoPolicy, name), "").answer(w)
	default:
		writeJSON(w, list[at])
	}
}

// health says whether requests may be sent here.
func (g *Gateway) health(w http.ResponseWriter, _ *http.Request) {
	routes, workers, ready := g.table.counts()
	switch {
	case g.draining.Load():
		(&refusal{status: http.StatusServiceUnavailable, code: "stopping", message: "this gateway is stopping", retryAfter: 1}).answer(w)
	case !ready:
		refusalOf(errNoRoutes, "").answer(w)
	default:
		writeJSON(w, map[string]any{"status": "ok", "routes": routes, "workers": workers, "watch_live": g.live.Load()})
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client has it, or is gone
}
