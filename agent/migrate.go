package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/api/backoff"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/pki"

	"rota/agent/tier"
	"rota/agent/tier/transfer"
)

const (
	// migrationMessageMax is how many bytes of its message a report has.
	migrationMessageMax = 512
	// pullRetryFor is how long a pull is tried again that gets no further: the source may hear
	// of the migration later than the target, or its agent may be restarting.
	pullRetryFor = 15 * time.Second
)

// openMover makes what carries out migrations, and returns the client that it pulls with.
func (a *agent) openMover() (*http.Client, error) {
	var conf *tls.Config
	if a.cfg.TLS.Enabled() {
		var err error
		if conf, err = pki.ClientConfig(a.cfg.TLS, pki.RoleAgent); err != nil {
			return nil, fmt.Errorf("%w: TLS: %w", ErrConfig, err)
		}
	}
	client := transfer.NewClient(conf)
	var store *tier.Store
	if a.kv != nil {
		store = a.kv.store
	}
	a.mover = newMover(a.log.Named("migrations"), func(ctx context.Context, d *rotav1.DesiredMigration) (transfer.Progress, error) {
		pull := transfer.Pull{
			Client: client, Address: d.GetPeerAddress(), Migration: d.GetMigrationId(), Store: store,
			Selector: selectorOf(d), BytesPerSecond: a.cfg.KV.MigrationBytesPerSecond,
		}
		if conf != nil {
			pull.Peer = d.GetPeer()
		}
		return pull.Run(ctx)
	})
	if a.cfg.pull != nil {
		a.mover.pull, a.mover.retryFor = a.cfg.pull, a.cfg.pullRetryFor
	}
	return client, nil
}

// source serves this node's cache to the nodes that pull from it.
func (a *agent) source() http.Handler {
	if a.kv == nil {
		return transfer.NewSource(nil, a.mover.allowed)
	}
	return transfer.NewSource(a.kv.store, a.mover.allowed)
}

func selectorOf(d *rotav1.DesiredMigration) transfer.Selector {
	s := d.GetSelector()
	return transfer.Selector{Tag: s.GetTag(), Prefixes: s.GetPrefixes(), Keys: s.GetKeys()}
}

// mover carries out the migrations of the node: it pulls what comes in, one migration at a
// time, and says which peer may pull what goes out.
type mover struct {
	log  hclog.Logger
	pull pull
	// retryFor replaces pullRetryFor in tests.
	retryFor time.Duration

	mu          sync.Mutex
	incarnation uint64
	wanted      []*rotav1.DesiredMigration
	changed     chan struct{} // closed and replaced whenever other migrations are wanted
}

// pull copies what a migration selects to the node, until that is done or cannot go on.
type pull func(context.Context, *rotav1.DesiredMigration) (transfer.Progress, error)

func newMover(log hclog.Logger, pull pull) *mover {
	return &mover{log: log, pull: pull, retryFor: pullRetryFor, changed: make(chan struct{})}
}

// desire takes down which migrations should run. It does not block.
func (m *mover) desire(incarnation uint64, wanted []*rotav1.DesiredMigration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.incarnation == incarnation && sameMigrations(m.wanted, wanted) {
		return
	}
	m.incarnation, m.wanted = incarnation, wanted
	close(m.changed)
	m.changed = make(chan struct{})
}

// sameMigrations: what a migration is never changes, but the address of its peer.
func sameMigrations(a, b []*rotav1.DesiredMigration) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].GetMigrationId() != b[i].GetMigrationId() || a[i].GetIncoming() != b[i].GetIncoming() || a[i].GetPeerAddress() != b[i].GetPeerAddress() {
			return false
		}
	}
	return true
}

// leave forgets what an incarnation was to do, when its session has ended.
func (m *mover) leave(incarnation uint64) {
	m.mu.Lock()
	current := m.incarnation == incarnation
	m.mu.Unlock()
	if current {
		m.desire(incarnation, nil)
	}
}

// incoming returns the migration that should be pulled, of those that have not ended here, and
// what is closed when that may have changed. It forgets the ends of migrations that are not
// wanted any more.
func (m *mover) incoming(incarnation uint64, ended map[uint64]bool) (next *rotav1.DesiredMigration, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.incarnation != incarnation {
		return nil, m.changed
	}
	still := map[uint64]bool{}
	for _, d := range m.wanted {
		still[d.GetMigrationId()] = true
		if d.GetIncoming() && !ended[d.GetMigrationId()] && next == nil {
			next = d
		}
	}
	for id := range ended {
		if !still[id] {
			delete(ended, id)
		}
	}
	return next, m.changed
}

// allowed says what a peer may pull. Without TLS peers have no names, and only this machine
// gets in.
func (m *mover) allowed(peer string, migration uint64) (transfer.Selector, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.wanted {
		if !d.GetIncoming() && d.GetMigrationId() == migration && (peer == "" || d.GetPeer() == peer) {
			return selectorOf(d), true
		}
	}
	return transfer.Selector{}, false
}

// pulling is a pull that goes on.
type pulling struct {
	desired *rotav1.DesiredMigration
	cancel  context.CancelFunc
	done    chan *rotav1.MigrationReport // holds its report; nil if it was canceled
}

// begin starts a pull.
func (m *mover) begin(ctx context.Context, d *rotav1.DesiredMigration) *pulling {
	ctx, cancel := context.WithCancel(ctx)
	p := &pulling{desired: d, cancel: cancel, done: make(chan *rotav1.MigrationReport, 1)}
	go func() {
		defer cancel()
		p.done <- m.carryOut(ctx, d)
	}()
	return p
}

// carryOut pulls until everything is here, or it gets no further, and returns the report; nil if
// the migration is not wanted any more. What was pulled before an interruption is not pulled
// again.
func (m *mover) carryOut(ctx context.Context, d *rotav1.DesiredMigration) *rotav1.MigrationReport {
	m.log.Info("pulling a migration", "migration", d.GetMigrationId(), "peer", d.GetPeer(), "address", d.GetPeerAddress())
	pause := backoff.Backoff{Least: 20 * time.Millisecond, Most: time.Second}
	moved, last, newest := uint64(0), time.Now(), transfer.Progress{}
	for {
		p, err := m.pull(ctx, d)
		if ctx.Err() != nil {
			m.log.Info("the migration is not wanted any more", "migration", d.GetMigrationId())
			return nil
		}
		if moved += p.MovedBytes; p.MovedBytes > 0 {
			last = time.Now()
			pause.Reset()
		}
		if p.TotalBytes > 0 {
			newest = p
		}
		again := errors.Is(err, transfer.ErrUnknown) || errors.Is(err, transfer.ErrUnreachable)
		if !again || time.Since(last) > m.retryFor {
			return m.report(d, newest, moved, err)
		}
		if backoff.Sleep(ctx, pause.Next()) != nil {
			return nil
		}
	}
}

func (m *mover) report(d *rotav1.DesiredMigration, p transfer.Progress, moved uint64, err error) *rotav1.MigrationReport {
	r := &rotav1.MigrationReport{MigrationId: d.GetMigrationId(), Done: err == nil, Progress: &rotav1.MigrationProgress{
		Values: p.Values, TotalBytes: p.TotalBytes, MovedBytes: moved, PresentBytes: p.PresentBytes - min(p.PresentBytes, moved-min(moved, p.MovedBytes)),
	}}
	if err != nil {
		r.Message = short(err.Error(), migrationMessageMax)
		m.log.Warn("a migration failed", "migration", d.GetMigrationId(), "peer", d.GetPeer(), "error", err)
	}
	return r
}

// migrate carries out the migrations of an incarnation until its session ends, and tells the
// cluster how each ended. A migration that the cluster still wants after a restart of the agent
// begins again: what is here already is not pulled twice.
func (a *agent) migrate(ctx context.Context, incarnation uint64) {
	defer a.mover.leave(incarnation)
	var now *pulling
	defer func() {
		if now != nil {
			now.cancel()
			<-now.done
		}
	}()
	ended := map[uint64]bool{}
	for ctx.Err() == nil {
		next, changed := a.mover.incoming(incarnation, ended)
		var done chan *rotav1.MigrationReport
		switch {
		case now == nil && next != nil:
			now = a.mover.begin(ctx, next)
			done = now.done
		case now != nil:
			if next == nil || next.GetMigrationId() != now.desired.GetMigrationId() || next.GetPeerAddress() != now.desired.GetPeerAddress() {
				now.cancel()
			}
			done = now.done
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case report := <-done:
			id := now.desired.GetMigrationId()
			if now = nil; report == nil {
				continue
			}
			if ended[id] = true; !a.sendMigration(ctx, incarnation, report) {
				return
			}
		}
	}
}

// sendMigration tells how a migration ended until a server has answered.
func (a *agent) sendMigration(ctx context.Context, incarnation uint64, report *rotav1.MigrationReport) (heard bool) {
	req := &rotav1.ReportMigrationsRequest{Name: a.cfg.Name, Incarnation: incarnation, Reports: []*rotav1.MigrationReport{report}}
	return a.untilHeard(ctx, newRounds(20*time.Millisecond, time.Second), func() error {
		_, err := call(ctx, a.servers, reportTimeout,
			func(ctx context.Context, c rotav1connect.AgentServiceClient) (*rotav1.ReportMigrationsResponse, error) {
				return c.ReportMigrations(ctx, req)
			})
		return err
	}, func(err error) {
		a.log.Warn("the cluster does not know yet how a migration ended; trying on", "migration", report.GetMigrationId(), "error", err)
	})
}
