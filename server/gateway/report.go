package gateway

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

const (
	// reportMax is how many trajectories one report is about at most, failedMax how many workers:
	// servers refuse more.
	reportMax, failedMax = 1024, 64
	// lateFactor is how many intervals a report waits that only says who generates.
	lateFactor = 5
	// lastReports is how long a gateway that stops tries to send what is left.
	lastReports = 5 * time.Second
	// messageMax bounds what is said about a failed worker, in bytes.
	messageMax = 500
	// tokensMax and finishMax bound what a worker says of one trajectory, in tokens and bytes.
	// Servers refuse all of a report that has more.
	tokensMax, finishMax = 1 << 40, 64
)

// sender sends a report. The same request may be sent again.
type sender func(context.Context, *rotav1.ReportGenerationsRequest) error

type reportKey struct {
	id     uint64
	worker string
}

// reporter collects what trajectories generate, so that a turn costs a fraction of a report.
type reporter struct {
	send     sender
	interval time.Duration
	turnsMax uint32
	logger   hclog.Logger
	lost     func()

	mu      sync.Mutex
	at      map[reportKey]*rotav1.GenerationReport
	list    []*rotav1.GenerationReport // in the order in which they began
	running map[uint64]int             // requests by trajectory
	workers map[string]*rotav1.WorkerReport
	turns   uint32
	// content: there is more than who generates.
	content bool
	sent    time.Time
	kick    chan struct{}
}

func newReporter(send sender, cfg *Config, lost func()) *reporter {
	return &reporter{
		send: send, interval: cfg.ReportInterval, turnsMax: uint32(cfg.ReportTurns), logger: cfg.Logger, lost: lost,
		at: map[reportKey]*rotav1.GenerationReport{}, running: map[uint64]int{}, workers: map[string]*rotav1.WorkerReport{},
		kick: make(chan struct{}, 1),
	}
}

func (r *reporter) get(id uint64, worker string) *rotav1.GenerationReport {
	key := reportKey{id, worker}
	g := r.at[key]
	if g == nil {
		g = &rotav1.GenerationReport{TrajectoryId: id, Worker: worker}
		r.at[key], r.list = g, append(r.list, g)
	}
	return g
}

// begins notes that a worker generates for a trajectory.
func (r *reporter) begins(id uint64, worker string) {
	if id == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[id]++
	r.get(id, worker)
}

// portion is what a worker has generated for one request.
type portion struct {
	tokens, context      uint64
	generating, toolTime time.Duration
	// ended: the turn has, with this reason.
	ended  bool
	finish string
}

// ends notes what a worker has generated when it no longer does.
func (r *reporter) ends(id uint64, worker string, p portion) {
	if id == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[id]--; r.running[id] <= 0 {
		delete(r.running, id)
	}
	g := r.get(id, worker)
	g.OutputTokens = min(g.OutputTokens+p.tokens, tokensMax)
	if p.context > 0 {
		g.ContextTokens = min(p.context, tokensMax)
	}
	g.GenerateTime = plus(g.GenerateTime, p.generating)
	g.ToolTime = plus(g.ToolTime, p.toolTime)
	r.content = r.content || p.tokens > 0 || p.ended
	if !p.ended {
		return
	}
	g.Turns++
	g.FinishReason = plain(p.finish)
	if r.turns++; r.turns >= r.turnsMax {
		r.now()
	}
}

// plain is what a worker has said as servers take it: printable, and not long.
func plain(text string) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return -1
		}
		return c
	}, text)
	return text[:min(len(text), finishMax)]
}

func plus(d *durationpb.Duration, more time.Duration) *durationpb.Duration {
	if more <= 0 {
		return d
	}
	return durationpb.New(d.AsDuration() + more)
}

// failed reports a worker at once.
func (r *reporter) failed(worker, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workers[worker] = &rotav1.WorkerReport{Worker: worker, Failed: true, Message: strings.ToValidUTF8(message[:min(len(message), messageMax)], "")}
	r.now()
}

func (r *reporter) now() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// take returns the next report, nil if there is none yet.
func (r *reporter) take(all bool) *rotav1.ReportGenerationsRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	due := all || r.content || len(r.workers) > 0 || time.Since(r.sent) >= lateFactor*r.interval
	if !due || len(r.list)+len(r.workers) == 0 {
		return nil
	}
	req := &rotav1.ReportGenerationsRequest{}
	for name, w := range r.workers {
		if len(req.Workers) == failedMax {
			break
		}
		req.Workers = append(req.Workers, w)
		delete(r.workers, name)
	}
	n := min(len(r.list), reportMax)
	req.Generations = r.list[:n:n]
	r.list = append([]*rotav1.GenerationReport(nil), r.list[n:]...)
	for _, g := range req.Generations {
		g.Generating = r.running[g.TrajectoryId] > 0
		delete(r.at, reportKey{g.TrajectoryId, g.Worker})
	}
	if len(r.list) == 0 {
		r.turns, r.content = 0, false
	}
	r.sent = time.Now()
	return req
}

// putBack takes a report back that no server has got.
func (r *reporter) putBack(req *rotav1.ReportGenerationsRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, old := range req.Generations {
		g := r.get(old.TrajectoryId, old.Worker)
		if g.Turns == 0 {
			g.FinishReason = old.FinishReason
		}
		if g.ContextTokens == 0 {
			g.ContextTokens = old.ContextTokens
		}
		g.Turns += old.Turns
		g.OutputTokens = min(g.OutputTokens+old.OutputTokens, tokensMax)
		g.GenerateTime = plus(g.GenerateTime, old.GenerateTime.AsDuration())
		g.ToolTime = plus(g.ToolTime, old.ToolTime.AsDuration())
	}
	for _, w := range req.Workers {
		if r.workers[w.Worker] == nil {
			r.workers[w.Worker] = w
		}
	}
	r.content = true
}

// sayAgain has the next report say what may be said twice of one that may be lost.
func (r *reporter) sayAgain(req *rotav1.ReportGenerationsRequest) {
	again := &rotav1.ReportGenerationsRequest{Workers: req.Workers}
	for _, g := range req.Generations {
		again.Generations = append(again.Generations, &rotav1.GenerationReport{TrajectoryId: g.TrajectoryId, Worker: g.Worker})
	}
	r.putBack(again)
}

// outlasting returns a context that is done lastReports after ctx, whatever is still to be sent.
func outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastReports, cancel) })
	return sending, func() {
		stop()
		cancel()
	}
}

// run sends reports until ctx is done, and then what is left.
func (r *reporter) run(ctx context.Context) {
	sending, cancel := outlasting(ctx)
	defer cancel()
	tick := time.NewTicker(r.interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-r.kick:
		case <-ctx.Done():
		}
		for req := r.take(ctx.Err() != nil); req != nil && r.deliver(sending, req); {
			req = r.take(ctx.Err() != nil)
		}
	}
	for req := r.take(true); req != nil && r.deliver(sending, req); {
		req = r.take(true)
	}
}

// deliver sends one report, and reports whether it was possible.
func (r *reporter) deliver(ctx context.Context, req *rotav1.ReportGenerationsRequest) bool {
	err := r.send(ctx, req)
	switch {
	case err == nil:
		return true
	case errors.Is(err, client.ErrUnknownOutcome):
		// It may have counted. Sent again under another ID it could count twice. Who generates, and
		// which workers have failed, may be said twice.
		r.lost()
		r.sayAgain(req)
		r.logger.Warn("it is not known whether a report has arrived", "trajectories", len(req.Generations), "error", err)
	case client.Detail(err) != nil && client.Detail(err).RetryDelay == nil:
		r.lost()
		r.logger.Error("a report was refused", "trajectories", len(req.Generations), "error", err)
		return true
	default:
		r.putBack(req)
		r.logger.Warn("no server takes reports", "trajectories", len(req.Generations), "error", err)
	}
	return false
}
