package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
	"rota/cmd/internal/devcluster"
	"rota/cmd/internal/spin"
)

// GatewayOptions say how requests are sent through a gateway, and through proxies beside it.
type GatewayOptions struct {
	// Binary is the rota to run; this process's own if empty. Nginx is left out if it is empty.
	Binary, Nginx string
	// Streams are how many clients send requests at once, each one after the other.
	Streams []int
	// Tokens are the events of an answer; 0: the answer is no stream.
	Tokens   int
	Duration time.Duration
	Rounds   int
}

// GatewayFigure is one way through, with one number of clients: medians of all rounds.
type GatewayFigure struct {
	// Way is direct, proxy (Go's ReverseProxy), gateway or nginx.
	Way       string  `json:"way"`
	Streams   int     `json:"streams"`
	PerSecond float64 `json:"per_second"`
	// FirstMS is the median time to the first byte of a body, P50MS and P99MS are to its last one.
	FirstMS float64 `json:"first_ms"`
	P50MS   float64 `json:"p50_ms"`
	P99MS   float64 `json:"p99_ms"`
	// AddedMS is what FirstMS is above that of the direct way, in the same round.
	AddedMS Spread `json:"added_ms"`
	// OfNginx is PerSecond over that of nginx, in the same round; 0 without nginx.
	OfNginx Spread `json:"of_nginx"`
}

// GatewayResult compares a gateway with proxies.
type GatewayResult struct {
	Tokens  int             `json:"tokens"`
	Rounds  int             `json:"rounds"`
	Figures []GatewayFigure `json:"figures"`
	Noise   spin.Noise      `json:"noise"`
}

// Gateway sends requests to a stand-in engine, through a gateway, a bare reverse proxy and nginx,
// and straight. Each of them is a process of its own on loopback; the engine and the clients are
// in this one. They take turns, in an order that rotates. The first round is not measured.
func Gateway(ctx context.Context, o GatewayOptions, each func(round int, way string, streams int, perSecond float64)) (*GatewayResult, error) {
	g := &gatewayBench{o: o}
	defer g.close()
	if err := g.start(ctx); err != nil {
		return nil, err
	}
	runs := map[gatewayKey][]gatewayRun{}
	meter := spin.NewMeter()
	for round := -1; round < o.Rounds; round++ {
		meter.Sample()
		for _, streams := range o.Streams {
			for i := range g.ways {
				way := g.ways[(i+round+1)%len(g.ways)]
				run, err := g.load(ctx, way.addr, streams)
				if err != nil {
					said, _ := os.ReadFile(filepath.Join(g.dir, way.name+".log")) // more about the same error
					return nil, fmt.Errorf("%s, %d streams: %w\n%s", way.name, streams, err, said)
				}
				if round >= 0 {
					key := gatewayKey{way.name, streams}
					runs[key] = append(runs[key], run)
					each(round, way.name, streams, run.perSecond)
				}
			}
		}
	}
	meter.Sample()
	return g.result(runs, meter.Noise()), nil
}

type gatewayKey struct {
	way     string
	streams int
}

// gatewayRun is what one way did in one round.
type gatewayRun struct{ perSecond, first, p50, p99 float64 }

type gatewayWay struct{ name, addr string }

const (
	gatewayPolicy = "policy"
	// gatewayTrajectories have routes; clients use them in turn.
	gatewayTrajectories = 1024
	gatewayReady        = 30 * time.Second
)

// gatewayBench is the benchmark while it runs.
type gatewayBench struct {
	o         GatewayOptions
	dir       string
	engine    string
	servers   []*http.Server
	processes []*exec.Cmd
	ways      []gatewayWay
}

func (g *gatewayBench) start(ctx context.Context) (err error) {
	if g.dir, err = os.MkdirTemp("", "rota-bench-gateway-"); err != nil {
		return err
	}
	if g.engine, err = g.serve(standInEngine(g.o.Tokens)); err != nil {
		return err
	}
	mux := http.NewServeMux()
	w := &standInWorkers{url: "http://" + g.engine}
	mux.Handle(rotav1connect.NewWorkerServiceHandler(w, codec.ForHandler()))
	mux.Handle(rotav1connect.NewOperatorServiceHandler(w, codec.ForHandler()))
	cluster, err := g.serve(mux)
	if err != nil {
		return err
	}
	binary, err := devcluster.Binary(g.o.Binary)
	if err != nil {
		return err
	}
	g.ways = []gatewayWay{{"direct", g.engine}}
	err = g.process(ctx, "gateway", binary, func(addr string) []string {
		return []string{"gateway", "--listen", addr, "--servers", cluster, "--log-level", "error"}
	})
	if err != nil {
		return err
	}
	err = g.process(ctx, "proxy", binary, func(addr string) []string {
		return []string{"bench", "bare-proxy", "--listen", addr, "--to", g.engine}
	})
	if err != nil || g.o.Nginx == "" {
		return err
	}
	conf := filepath.Join(g.dir, "nginx.conf")
	return g.process(ctx, "nginx", g.o.Nginx, func(addr string) []string {
		if err := os.WriteFile(conf, nginxConf(g.dir, addr, g.engine), 0o600); err != nil {
			return nil
		}
		return []string{"-p", g.dir, "-c", conf, "-e", filepath.Join(g.dir, "error.log")}
	})
}

// nginxConf passes everything on at once, over connections that stay.
func nginxConf(dir, listen, to string) []byte {
	return fmt.Appendf(nil, `daemon off;
worker_processes auto;
pid %[1]s/nginx.pid;
error_log %[1]s/error.log;
events { worker_connections 8192; }
http {
  access_log off;
  client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
  upstream engine { server %[3]s; keepalive 1024; }
  server {
    listen %[2]s;
    keepalive_requests 1000000;
    location / {
      proxy_pass http://engine;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }
  }
}
`, dir, listen, to)
}

// serve runs a server in this process and returns its address.
func (g *gatewayBench) serve(h http.Handler) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := httpx.NewServer(h)
	g.servers = append(g.servers, s)
	go func() { _ = s.Serve(l) }() // until close
	return l.Addr().String(), nil
}

// process starts a process that listens at a free port, and waits until it passes a request on.
func (g *gatewayBench) process(ctx context.Context, way, binary string, args func(addr string) []string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := l.Addr().String()
	l.Close()
	cmd := exec.Command(binary, args(addr)...)
	log, err := os.Create(filepath.Join(g.dir, way+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", way, err)
	}
	g.processes = append(g.processes, cmd)
	g.ways = append(g.ways, gatewayWay{way, addr})
	for until := time.Now().Add(gatewayReady); ; time.Sleep(20 * time.Millisecond) {
		c := &gatewayClient{addr: addr, message: g.message(addr, 1)}
		_, _, err := c.once()
		c.close()
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(until) {
			said, _ := os.ReadFile(log.Name()) // more about the same error
			return fmt.Errorf("%s does not pass requests on: %w\n%s", way, err, said)
		}
	}
}

func (g *gatewayBench) close() {
	for _, p := range g.processes {
		_ = p.Process.Signal(os.Interrupt) // it may be gone
		done := time.AfterFunc(10*time.Second, func() { _ = p.Process.Kill() })
		_ = p.Wait() // it was interrupted
		done.Stop()
	}
	for _, s := range g.servers {
		_ = s.Close()
	}
	if g.dir != "" {
		os.RemoveAll(g.dir)
	}
}

// message is the request of a client.
func (g *gatewayBench) message(host string, client int) []byte {
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"a question of usual length, as agents ask them"}],"max_tokens":%d,"stream":%v}`,
		gatewayPolicy, max(1, g.o.Tokens), g.o.Tokens > 0)
	return fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nRota-Trajectory: %d\r\nContent-Length: %d\r\n\r\n%s",
		host, client%gatewayTrajectories+1, len(body), body)
}

// load lets clients send requests for a while.
func (g *gatewayBench) load(ctx context.Context, addr string, streams int) (gatewayRun, error) {
	var (
		mu          sync.Mutex
		firsts, all []time.Duration
		errs        []error
		wg          sync.WaitGroup
	)
	began := time.Now()
	until := began.Add(g.o.Duration)
	for i := range streams {
		wg.Go(func() {
			c := &gatewayClient{addr: addr, message: g.message(addr, i)}
			defer c.close()
			err := c.until(ctx, until)
			mu.Lock()
			defer mu.Unlock()
			firsts, all = append(firsts, c.firsts...), append(all, c.all...)
			if err != nil {
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return gatewayRun{}, err
	}
	run := gatewayRun{perSecond: float64(len(all)) / time.Since(began).Seconds()}
	run.first, _, _ = quantiles(firsts)
	run.p50, run.p99, _ = quantiles(all)
	return run, ctx.Err()
}

// gatewayClient sends requests over one connection.
type gatewayClient struct {
	addr        string
	message     []byte
	conn        net.Conn
	br          *bufio.Reader
	firsts, all []time.Duration
}

func (c *gatewayClient) close() {
	if c.conn != nil {
		c.conn.Close()
	}
}

// until sends one request after the other. A connection that is closed is opened again, once.
func (c *gatewayClient) until(ctx context.Context, until time.Time) error {
	failed := false
	for time.Now().Before(until) && ctx.Err() == nil {
		first, all, err := c.once()
		if err != nil && !failed && c.conn != nil {
			failed = true
			c.close()
			c.conn = nil
			continue
		}
		if err != nil {
			return err
		}
		failed = false
		c.firsts, c.all = append(c.firsts, first), append(c.all, all)
	}
	return nil
}

// once sends a request and reads the answer.
func (c *gatewayClient) once() (first, all time.Duration, err error) {
	if c.conn == nil {
		if c.conn, err = net.Dial("tcp", c.addr); err != nil {
			return 0, 0, err
		}
		c.br = bufio.NewReaderSize(c.conn, 32<<10)
	}
	began := time.Now()
	if _, err = c.conn.Write(c.message); err != nil {
		return 0, 0, err
	}
	resp, err := http.ReadResponse(c.br, nil)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	var byteOne [1]byte
	if _, err = io.ReadFull(resp.Body, byteOne[:]); err != nil {
		return 0, 0, err
	}
	first = time.Since(began)
	if _, err = io.Copy(io.Discard, resp.Body); err != nil {
		return 0, 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, 0, fmt.Errorf("status %d", resp.StatusCode)
	}
	return first, time.Since(began), nil
}

func (g *gatewayBench) result(runs map[gatewayKey][]gatewayRun, noise spin.Noise) *GatewayResult {
	r := &GatewayResult{Tokens: g.o.Tokens, Rounds: g.o.Rounds, Noise: noise}
	for _, streams := range g.o.Streams {
		for _, way := range g.ways {
			f := GatewayFigure{Way: way.name, Streams: streams}
			var rates, firsts, p50s, p99s, added, share []float64
			for i, run := range runs[gatewayKey{way.name, streams}] {
				rates, firsts = append(rates, run.perSecond), append(firsts, run.first)
				p50s, p99s = append(p50s, run.p50), append(p99s, run.p99)
				added = append(added, run.first-runs[gatewayKey{"direct", streams}][i].first)
				if nginx := runs[gatewayKey{"nginx", streams}]; len(nginx) > i {
					share = append(share, run.perSecond/nginx[i].perSecond)
				}
			}
			f.PerSecond, f.FirstMS = spreadOf(rates).Median, spreadOf(firsts).Median
			f.P50MS, f.P99MS, f.AddedMS = spreadOf(p50s).Median, spreadOf(p99s).Median, spreadOf(added)
			if len(share) > 0 {
				f.OfNginx = spreadOf(share)
			}
			r.Figures = append(r.Figures, f)
		}
	}
	return r
}

// standInEngine answers at once: with so many events, or with one body.
func standInEngine(tokens int) http.Handler {
	const event = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"policy","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}` + "\n\n"
	last := []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"policy","choices":[{"index":0,"delta":{},"finish_reason":"length"}]}` + "\n\ndata: [DONE]\n\n")
	whole := []byte(`{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"policy","choices":[{"index":0,"message":{"role":"assistant","content":"word"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}`)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // what it says does not matter
		if tokens == 0 {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(whole)))
			_, _ = w.Write(whole)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w)
		for range tokens {
			_, _ = io.WriteString(w, event)
			_ = flush.Flush()
		}
		_, _ = w.Write(last)
	})
}

// standInWorkers tells the gateway of one worker, and of a route to it for each trajectory.
type standInWorkers struct {
	rotav1connect.UnimplementedWorkerServiceHandler
	rotav1connect.UnimplementedOperatorServiceHandler
	url string
}

// GetStatus says no log time, so that reports need none.
func (w *standInWorkers) GetStatus(context.Context, *rotav1.GetStatusRequest) (*rotav1.GetStatusResponse, error) {
	return &rotav1.GetStatusResponse{}, nil
}

// ReportGenerations takes every report.
func (w *standInWorkers) ReportGenerations(context.Context, *rotav1.ReportGenerationsRequest) (*rotav1.ReportGenerationsResponse, error) {
	return &rotav1.ReportGenerationsResponse{}, nil
}

// WatchRoutes sends all routes, and no change.
func (w *standInWorkers) WatchRoutes(ctx context.Context, _ *rotav1.WatchRoutesRequest, s *connect.ServerStream[rotav1.WatchRoutesResponse]) error {
	m := &rotav1.WatchRoutesResponse{Reset_: true, Complete: true, Workers: []*rotav1.Worker{{
		Spec:  &rotav1.WorkerSpec{Name: "stand-in", Policy: gatewayPolicy, Url: w.url, Dialect: rotav1.WorkerDialect_WORKER_DIALECT_VLLM},
		State: rotav1.WorkerState_WORKER_STATE_UP,
	}}}
	for id := range uint64(gatewayTrajectories) {
		m.Routes = append(m.Routes, &rotav1.Route{TrajectoryId: id + 1, Policy: gatewayPolicy, Worker: "stand-in", Priority: uint32(id)})
	}
	if err := s.Send(m); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// BareProxy is Go's reverse proxy to one address, with connections that stay, and nothing else.
//
// Its server must not close the body of a request when the answer begins. The transport looks for
// the end of the body after it has written all of it, and an engine that answers at once is faster:
// the transport would read a closed body, and break the connection in the middle of the answer.
func BareProxy(to string) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: to}) },
		Transport:     &http.Transport{MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096, DisableCompression: true},
		FlushInterval: -1,
		BufferPool:    proxyBuffers{},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 always is
		proxy.ServeHTTP(w, r)
	})
}

// proxyBuffers are what a ReverseProxy copies with.
type proxyBuffers struct{}

var proxyPool = sync.Pool{New: func() any { return make([]byte, 32<<10) }}

// Get returns a buffer.
func (proxyBuffers) Get() []byte { return proxyPool.Get().([]byte) }

// Put takes a buffer back.
func (proxyBuffers) Put(b []byte) { proxyPool.Put(b) } //nolint:staticcheck // SA6002: as the documentation of ReverseProxy has it

// FindNginx returns the path of nginx; empty without one.
func FindNginx() string {
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}
