package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"

	"rota/agent/tier/transfer"
)

// puller is a transfer that does what a test says, and remembers what it was asked for.
type puller struct {
	mu      sync.Mutex
	changed chan struct{}
	begun   []uint64 // migrations, each time that a pull began
	stopped []uint64 // those whose context ended
	live    int
	most    int // pulls that went on at once
	answers map[uint64][]answer
}

// answer is how a pull ends; with hold it goes on until its context ends.
type answer struct {
	progress transfer.Progress
	err      error
	hold     bool
}

func newPuller() *puller {
	return &puller{changed: make(chan struct{}), answers: map[uint64][]answer{}}
}

func (p *puller) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *puller) pull(ctx context.Context, d *rotav1.DesiredMigration) (transfer.Progress, error) {
	id := d.GetMigrationId()
	var a answer
	p.change(func() {
		p.begun = append(p.begun, id)
		p.live++
		p.most = max(p.most, p.live)
		if list := p.answers[id]; len(list) > 0 {
			a, p.answers[id] = list[0], list[1:]
		}
	})
	if a.hold {
		<-ctx.Done()
		a.err = ctx.Err()
	}
	p.change(func() {
		p.live--
		if a.hold {
			p.stopped = append(p.stopped, id)
		}
	})
	return a.progress, a.err
}

func (p *puller) until(t *testing.T, what string, cond func(*puller) bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		p.mu.Lock()
		ok, changed := cond(p), p.changed
		p.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

func incoming(id uint64) *rotav1.DesiredMigration {
	return &rotav1.DesiredMigration{
		MigrationId: id, Incoming: true, Peer: "n9", PeerAddress: "127.0.0.1:1", Selector: &rotav1.MigrationSelector{Tag: "trajectory%5"},
	}
}

func (c *cluster) desireMigrations(list ...*rotav1.DesiredMigration) {
	c.change(func() { c.migrations = list })
}

func (c *cluster) untilMigrated(n int) []*rotav1.MigrationReport {
	c.t.Helper()
	c.until(fmt.Sprintf("%d reports of migrations", n), func(c *cluster) bool { return len(c.migrated) >= n })
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.migrated)
}

func migratingAgent(t *testing.T) (*cluster, *puller, Config) {
	checkLeaks(t)
	c, p := newCluster(t, 1), newPuller()
	cfg := config(t, c, newSupervisor(t))
	cfg.pull, cfg.pullRetryFor = p.pull, time.Minute
	return c, p, cfg
}

// TestMigrationsArePulledAndReported: until a server has heard, each once, and again only after the
// cluster wants them again.
func TestMigrationsArePulledAndReported(t *testing.T) {
	c, p, cfg := migratingAgent(t)
	p.answers[1] = []answer{{progress: transfer.Progress{Values: 3, TotalBytes: 30, MovedBytes: 20, PresentBytes: 10}}}
	p.answers[2] = []answer{{err: transfer.ErrFull}}
	c.unheard = 2
	start(t, cfg)
	c.desireMigrations(incoming(1))
	r := c.untilMigrated(1)[0]
	if want := (&rotav1.MigrationProgress{Values: 3, TotalBytes: 30, MovedBytes: 20, PresentBytes: 10}); !r.Done || r.MigrationId != 1 || r.Progress.String() != want.String() {
		t.Errorf("reported %v", r)
	}
	c.desireMigrations(incoming(1), incoming(2)) // the cluster has not made anything of the report yet
	if r := c.untilMigrated(2)[1]; r.Done || r.MigrationId != 2 || r.Message != transfer.ErrFull.Error() {
		t.Errorf("reported %v", r)
	}
	if p.until(t, "pulls", func(p *puller) bool { return p.live == 0 }); !slices.Equal(p.begun, []uint64{1, 2}) {
		t.Errorf("pulls %v", p.begun)
	}
}

// TestAPullStopsWhenItIsNotWanted: nothing is reported of it, and only then the next begins.
func TestAPullStopsWhenItIsNotWanted(t *testing.T) {
	c, p, cfg := migratingAgent(t)
	p.answers[1], p.answers[3] = []answer{{hold: true}}, []answer{{hold: true}}
	stop := start(t, cfg)
	c.desireMigrations(incoming(1))
	p.until(t, "the first", func(p *puller) bool { return p.live == 1 })
	c.desireMigrations(incoming(2))
	if r := c.untilMigrated(1)[0]; r.MigrationId != 2 || !r.Done {
		t.Errorf("reported %v", r)
	}
	c.desireMigrations(incoming(3))
	p.until(t, "the third", func(p *puller) bool { return p.live == 1 })
	stop()
	if !slices.Equal(p.begun, []uint64{1, 2, 3}) || !slices.Equal(p.stopped, []uint64{1, 3}) || p.most != 1 {
		t.Errorf("pulls %v, stopped %v, %d at once", p.begun, p.stopped, p.most)
	}
}

// TestAPullIsTriedAgain while the source does not know it or cannot be reached; what was moved
// before counts as moved.
func TestAPullIsTriedAgain(t *testing.T) {
	c, p, cfg := migratingAgent(t)
	p.answers[1] = []answer{
		{err: transfer.ErrUnknown},
		{progress: transfer.Progress{Values: 3, TotalBytes: 30, MovedBytes: 12}, err: transfer.ErrUnreachable},
		{progress: transfer.Progress{Values: 3, TotalBytes: 30, MovedBytes: 10, PresentBytes: 20}},
	}
	start(t, cfg)
	c.desireMigrations(incoming(1))
	r := c.untilMigrated(1)[0]
	if want := (&rotav1.MigrationProgress{Values: 3, TotalBytes: 30, MovedBytes: 22, PresentBytes: 8}); !r.Done || r.Progress.String() != want.String() {
		t.Errorf("reported %v", r)
	}
}

// TestAPullGivesUp if it gets no further, and after a restart of the agent it begins again.
func TestAPullGivesUp(t *testing.T) {
	c, p, cfg := migratingAgent(t)
	cfg.pullRetryFor = 0
	p.answers[1] = []answer{{err: transfer.ErrUnreachable}, {}}
	stop := start(t, cfg)
	c.desireMigrations(incoming(1))
	if r := c.untilMigrated(1)[0]; r.Done || r.Message != transfer.ErrUnreachable.Error() {
		t.Errorf("reported %v", r)
	}
	stop()
	start(t, cfg)
	if r := c.untilMigrated(2)[1]; !r.Done {
		t.Errorf("reported %v after the restart", r)
	}
}

// TestAPeerPullsOnlyWhatItMay: by the name on its certificate, while the migration runs.
func TestAPeerPullsOnlyWhatItMay(t *testing.T) {
	m := newMover(config(t, newCluster(t, 1), newSupervisor(t)).Logger, nil)
	out := &rotav1.DesiredMigration{MigrationId: 4, Peer: "n2", Selector: &rotav1.MigrationSelector{Keys: []string{"k"}}}
	m.desire(7, []*rotav1.DesiredMigration{out})
	for _, ask := range []struct {
		peer string
		id   uint64
		want bool
	}{{"n2", 4, true}, {"", 4, true}, {"n3", 4, false}, {"n2", 5, false}} {
		if s, ok := m.allowed(ask.peer, ask.id); ok != ask.want || ok && !slices.Equal(s.Keys, []string{"k"}) {
			t.Errorf("peer %q for migration %d: %v, %v", ask.peer, ask.id, s, ok)
		}
	}
	m.leave(6) // an older session
	if _, ok := m.allowed("n2", 4); !ok {
		t.Error("the end of an older session took it away")
	}
	m.leave(7)
	if _, ok := m.allowed("n2", 4); ok {
		t.Error("a peer may pull after the session")
	}
	m.desire(8, []*rotav1.DesiredMigration{incoming(4)})
	if _, ok := m.allowed("n9", 4); ok {
		t.Error("the source may pull from the target")
	}
}
