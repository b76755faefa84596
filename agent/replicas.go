package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"rota/agent/plan"
	"rota/api/httpx"
)

const (
	// replicaCallsMax is how many calls the agent passes on at once.
	replicaCallsMax = 4096
	// replicaBytesMax is the largest call that is passed on.
	replicaBytesMax = 256 << 20
	replicaDial     = 3 * time.Second
	// readyWait is how long a question for readiness waits, readyEvery how often it looks.
	readyWait  = 5 * time.Second
	readyEvery = 20 * time.Millisecond
)

// errProbe: the path of a question for readiness is none.
var errProbe = errors.New("the path to ask for readiness must begin with / and name no host")

// replicas pass calls of gateways on to attempts that listen. So an attempt listens on loopback
// only, and whoever calls it has shown a certificate. An attempt that has ended gets no calls, also
// if something else has its port by then.
type replicas struct {
	runs  func(action uint64, attempt uint32) (plan.Key, bool)
	ports *ports
	http  *http.Transport
	calls chan struct{}
}

// newReplicaHandler serves the paths of replicas.
func newReplicaHandler(a *agent) http.Handler {
	return newReplicas(a.specs.ports, func(action uint64, attempt uint32) (key plan.Key, runs bool) {
		a.driver.read(func(p *plan.Plan) { key, runs = p.Runs(action, attempt) })
		return key, runs
	})
}

// newReplicas passes calls on to the attempts that run.
func newReplicas(p *ports, runs func(action uint64, attempt uint32) (plan.Key, bool)) http.Handler {
	r := &replicas{
		ports: p, runs: runs, calls: make(chan struct{}, replicaCallsMax),
		// A connection for each call: the other end may close an idle one just when a call begins,
		// which would look like a replica that fails.
		http: &http.Transport{DialContext: (&net.Dialer{Timeout: replicaDial}).DialContext, DisableKeepAlives: true, DisableCompression: true},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+httpx.ReplicaPath+"{action}/{attempt}/ready", r.ready)
	mux.HandleFunc(httpx.ReplicaPath+"{action}/{attempt}/call/{path...}", r.call)
	return mux
}

// find returns where an attempt listens, or answers why it does not.
func (r *replicas) find(w http.ResponseWriter, req *http.Request) (host string, ok bool) {
	action, err := strconv.ParseUint(req.PathValue("action"), 10, 64)
	attempt, wrong := strconv.ParseUint(req.PathValue("attempt"), 10, 32)
	if err != nil || wrong != nil {
		refuseCall(w, http.StatusNotFound, httpx.ReplicaGone, "no attempt has this number")
		return "", false
	}
	key, runs := r.runs(action, uint32(attempt))
	port := r.ports.get(key)
	if !runs || port == 0 {
		refuseCall(w, http.StatusNotFound, httpx.ReplicaGone, fmt.Sprintf("attempt %d of action %d does not run here, or does not listen", attempt, action))
		return "", false
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), true
}

// refuseCall answers in the agent's own name, which the header says.
func refuseCall(w http.ResponseWriter, status int, why, message string) {
	w.Header().Set(httpx.ReplicaHeader, why)
	http.Error(w, message, status)
}

// call passes one call on, and its answer back.
func (r *replicas) call(w http.ResponseWriter, req *http.Request) {
	host, ok := r.find(w, req)
	if !ok {
		return
	}
	select {
	case r.calls <- struct{}{}:
		defer func() { <-r.calls }()
	default:
		refuseCall(w, http.StatusServiceUnavailable, httpx.ReplicaBusy, fmt.Sprintf("the agent passes %d calls on already", replicaCallsMax))
		return
	}
	_, path, _ := strings.Cut(req.URL.EscapedPath(), "/call/")
	proxy := &httputil.ReverseProxy{
		Transport: r.http,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = &url.URL{Scheme: "http", Host: host, Path: "/" + p.In.PathValue("path"), RawPath: "/" + path, RawQuery: p.In.URL.RawQuery}
			p.Out.Host = host
		},
		ModifyResponse: func(resp *http.Response) error {
			resp.Header.Del(httpx.ReplicaHeader)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			refuseCall(w, http.StatusBadGateway, httpx.ReplicaFailed, err.Error())
		},
	}
	req.Body = http.MaxBytesReader(w, req.Body, replicaBytesMax)
	proxy.ServeHTTP(w, req)
}

// ready answers once an attempt can be called, or after a while that it cannot be yet.
func (r *replicas) ready(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), readyWait)
	defer cancel()
	for {
		host, ok := r.find(w, req)
		if !ok {
			return
		}
		err := r.probe(ctx, host, req.URL.Query().Get("probe"))
		if err == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		select {
		case <-ctx.Done():
			refuseCall(w, http.StatusServiceUnavailable, httpx.ReplicaStarting, err.Error())
			return
		case <-time.After(readyEvery):
		}
	}
}

// probe asks once: it listens, and answers a path with 200 if there is one.
func (r *replicas) probe(ctx context.Context, host, path string) error {
	if path == "" {
		c, err := (&net.Dialer{Timeout: replicaDial}).DialContext(ctx, "tcp", host)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	// The path is from the caller: it must not choose another host or port.
	target, err := url.Parse(path)
	if err != nil || !strings.HasPrefix(path, "/") || target.Host != "" || target.Scheme != "" {
		return errProbe
	}
	target.Scheme, target.Host = "http", host
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	resp, err := r.http.RoundTrip(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers with status %d", path, resp.StatusCode)
	}
	return nil
}
