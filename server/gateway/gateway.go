package gateway

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/api/backoff"
	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/handshake"
	"rota/api/httpx"
	"rota/api/pki"
)

const (
	// statusClientGone is what metrics call requests whose client went away.
	statusClientGone = 499
	// reportFor is how long one report is repeated, and watchFor how long the watch asks for
	// another server before it counts as lost.
	reportFor = 5 * time.Minute
	watchFor  = 2 * time.Second
	// abortLimit bounds the call that ends a request in its engine, and probeLimit the question
	// whether it is there.
	abortLimit = 5 * time.Second
	probeLimit = 5 * time.Second
)

// Gateway is one running gateway.
type Gateway struct {
	cfg       Config
	logger    hclog.Logger
	keys      keys
	workerKey string
	cluster   *client.Client // for reports
	watched   *client.Client // for routes
	table     *table
	rewards   *rewards
	reports   *reporter
	metrics   *metrics
	listener  net.Listener
	http      *http.Server

	prefix   string // of the names of requests
	named    atomic.Uint64
	requests atomic.Int64
	bytes    atomic.Int64
	draining atomic.Bool
	live     atomic.Bool
	failedAt sync.Map // worker name to when its failure was logged

	stopWatch, stopReports context.CancelFunc
	watching, reporting    sync.WaitGroup
	serving                chan error
}

// Run runs a gateway until ctx is done. Requests that run then are let end.
func Run(ctx context.Context, cfg Config) error {
	g, err := Start(cfg)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return g.Stop()
	case err := <-g.serving:
		return errors.Join(fmt.Errorf("serve the port: %w", err), g.Stop())
	}
}

// Start starts a gateway; Stop must be called.
func Start(cfg Config) (*Gateway, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	g := &Gateway{cfg: cfg, logger: cfg.Logger, prefix: randomPrefix(), serving: make(chan error, 1)}
	if err := g.prepare(); err != nil {
		return nil, err
	}
	conf, err := cfg.clientTLS()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", cfg.Listen, err)
	}
	if err := cfg.open(l.Addr()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	g.listener = l
	if conf != nil {
		l = handshake.Listen(l, conf, g.logger)
	}
	complaints := &handshake.Complaints{Logger: g.logger.Named("http")}
	g.http = httpx.Patience{Max: cfg.ClientTimeout, Over: func(r *http.Request) {
		g.metrics.unread.Inc()
		complaints.Unread(r)
	}}.NewServer(g.handler())
	// A client that does not read answers no pings either, and has as long for both.
	g.http.HTTP2.PingTimeout = cfg.ClientTimeout
	g.http.ErrorLog = g.logger.Named("http").StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug})
	watch, stopWatch := context.WithCancel(context.Background())
	reports, stopReports := context.WithCancel(context.Background())
	g.stopWatch, g.stopReports = stopWatch, stopReports
	g.watching.Go(func() { g.watch(watch) })
	g.reporting.Go(func() { g.reports.run(reports) })
	g.reporting.Go(func() { g.reportRewards(reports) })
	go func() { g.serving <- g.http.Serve(l) }()
	g.logger.Info("gateway is up", "listen", g.Addr(), "tls", conf != nil, "servers", cfg.Servers)
	return g, nil
}

// prepare reads keys and makes the parts.
func (g *Gateway) prepare() (err error) {
	cfg := &g.cfg
	if g.keys, err = loadKeys(cfg.APIKeys); err != nil {
		return err
	}
	if g.workerKey, err = loadKey(cfg.WorkerKey); err != nil {
		return err
	}
	roots, err := cfg.workerTLS()
	if err != nil {
		return err
	}
	cluster := client.Config{Addrs: cfg.Servers, RetryFor: reportFor}
	if cfg.TLS.Enabled() {
		if cluster.TLS, err = pki.ClientConfig(cfg.TLS, pki.RoleServer); err != nil {
			return err
		}
	}
	if g.cluster, err = client.New(cluster); err != nil {
		return err
	}
	cluster.RetryFor = watchFor
	if g.watched, err = client.New(cluster); err != nil {
		return err
	}
	g.table = newTable(g.logger, roots)
	var agents *tls.Config
	if cfg.TLS.Enabled() {
		if agents, err = pki.ClientConfig(cfg.TLS, pki.RoleAgent); err != nil {
			return err
		}
	}
	g.rewards = newRewards(g.logger, httpx.NewRelayClient(agents), cfg.TLS.Enabled())
	g.metrics = newMetrics(g)
	g.rewards.removed = g.metrics.forgetReward
	g.reports = newReporter(g.cluster.ReportGenerations, cfg, g.metrics.lost.Inc)
	return nil
}

func randomPrefix() string {
	var b [9]byte
	rand.Read(b[:])
	return "rota-" + base64.RawURLEncoding.EncodeToString(b[:]) + "-"
}

// Addr is where the gateway listens.
func (g *Gateway) Addr() string { return g.listener.Addr().String() }

// Stop takes no further requests, lets those that run end, and sends what is left to report.
func (g *Gateway) Stop() error {
	g.draining.Store(true)
	g.logger.Info("gateway is stopping", "requests", g.requests.Load())
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Drain)
	defer cancel()
	err := g.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		g.logger.Warn("requests are cut off", "requests", g.requests.Load(), "after", g.cfg.Drain)
		err = g.http.Close()
		g.ended(g.cfg.ClientTimeout)
	}
	g.stopReports()
	g.reporting.Wait()
	g.stopWatch()
	g.watching.Wait()
	g.table.close()
	g.rewards.close()
	g.cluster.Close()
	g.watched.Close()
	return err
}

// ended waits, for a while, until no request runs.
func (g *Gateway) ended(limit time.Duration) {
	for until := time.Now().Add(limit); g.requests.Load() > 0 && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
}

// watch follows routes, from any server. Those of a server that has lost sight of the leader are
// better than none, and worse than what was heard before.
func (g *Gateway) watch(ctx context.Context) {
	pause := backoff.Backoff{Least: 100 * time.Millisecond, Most: 5 * time.Second}
	worse := func(m *rotav1.WatchRoutesResponse) bool { return m.Stale && g.table.isReady() }
	for said := false; ctx.Err() == nil; {
		for m, err := range g.watched.WatchRoutesUnless(ctx, &rotav1.WatchRoutesRequest{}, worse) {
			if err != nil {
				if ctx.Err() == nil && !said {
					g.logger.Warn("no server sends routes; the last ones are used", "error", err)
				}
				said = true
				break
			}
			if !g.live.Swap(true) {
				g.logger.Info("routes come from a server", "stale", m.Stale)
			}
			said = false
			pause.Reset()
			g.table.apply(m)
			g.rewards.apply(m)
		}
		g.live.Store(false)
		_ = backoff.Sleep(ctx, pause.Next()) // the loop looks at ctx
	}
}

// failure reports a worker, and logs it at most once a second.
func (g *Gateway) failure(to target, e *workerError) {
	g.metrics.failures.WithLabelValues(to.name).Inc()
	g.reports.failed(to.name, e.Error())
	now := time.Now()
	if last, ok := g.failedAt.Swap(to.name, now); !ok || now.Sub(last.(time.Time)) > time.Second {
		g.logger.Warn("a worker failed", "worker", to.name, "error", e.err)
	}
}

// abort ends a request in its engine, if the engine offers that. Its connection is closed
// already, which ends it in most.
func (g *Gateway) abort(to target, c *call) {
	name := c.name
	if to.dialect == sgLang {
		name += c.rid
	}
	path, body := to.dialect.abort(c.b.end, name)
	if path == "" || to.noAbort.Load() {
		return
	}
	g.metrics.aborts.Inc()
	w, p := to.worker, to.pool
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), abortLimit)
		defer cancel()
		status, err := g.ask(ctx, p, http.MethodPost, path, body)
		switch {
		case err != nil:
			g.logger.Debug("a request was not ended in its engine", "worker", w.name, "error", err)
		case status == http.StatusNotFound:
			w.noAbort.Store(true)
			g.logger.Info("a worker does not offer to end requests; closed connections must do", "worker", w.name, "path", path)
		}
	}()
}

// probe asks whether a worker is there.
func (g *Gateway) probe(w *worker) error {
	g.table.mu.Lock()
	p := w.pool
	g.table.mu.Unlock()
	if p == nil {
		return errStalled
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	_, err := g.ask(ctx, p, http.MethodGet, "/health", "")
	return err
}

// ask sends a worker a short request, on a connection of its own, and returns the status.
func (g *Gateway) ask(ctx context.Context, p *pool, method, path, body string) (int, error) {
	con, err := p.get(ctx, true)
	if err != nil {
		return 0, err
	}
	defer con.Close()
	defer context.AfterFunc(ctx, func() { con.Close() })()
	message := fmt.Sprintf("%s %s%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", method, p.base, path, p.host)
	if g.workerKey != "" {
		message += "Authorization: Bearer " + g.workerKey + "\r\n"
	}
	if body != "" {
		message += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	resp, err := con.exchange([]byte(message + "\r\n" + body))
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	return resp.StatusCode, nil
}
