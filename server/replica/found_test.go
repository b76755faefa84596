package replica

import (
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"rota/api/gen/peer/v1/peerv1connect"
)

// bootstrapList is what each server of a test cluster was told at its first start.
func (c *cluster) bootstrapList() (servers []Server) {
	for _, nd := range c.nodes {
		servers = append(servers, Server{ID: nd.id, Address: nd.address})
	}
	return servers
}

func (c *cluster) wipe(nd *node) {
	c.t.Helper()
	if err := os.RemoveAll(nd.dir); err != nil {
		c.t.Fatal(err)
	}
}

// noLeaderFor fails if any node leads within a time.
func (c *cluster) noLeaderFor(d time.Duration) {
	c.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, nd := range c.nodes {
			if nd.replica != nil && nd.replica.IsLeader() {
				c.t.Fatalf("%s leads", nd.id)
			}
		}
	}
}

// A server that has lost its disk must not elect a leader that lacks what it had
// acknowledged: two servers have the entry, one loses its disk, the other is away, and
// the third was behind.
func TestAServerWithAnEmptyDiskDoesNotVote(t *testing.T) {
	for name, bootstraps := range map[string]bool{"told to bootstrap": true, "not told": false} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 3, nil)
			var servers []Server
			if bootstraps {
				servers = c.bootstrapList()
			}
			lead := c.leader()
			c.propose(lead, "before")
			c.agree()
			f := c.followers()
			wiped, behind := f[0], f[1]
			c.kill(behind)
			c.propose(lead, "acknowledged")
			c.kill(wiped)
			c.kill(lead)
			c.wipe(wiped)
			c.start(wiped, servers)
			c.start(behind, servers)
			c.noLeaderFor(4 * time.Second)

			c.start(lead, servers)
			now := c.leader()
			c.propose(now, "after")
			if names := now.machine.view().Names; !slices.Contains(names, "acknowledged") {
				t.Errorf("an acknowledged entry is gone: %v", names)
			}
			eventually(t, "the server votes again", func() bool { return !wiped.replica.Status().Quarantined })
			c.agree()
		})
	}
}

// A server with an empty disk is back in full as soon as a leader that was never
// deposed has brought it up to date.
func TestAnEmptyServerCatchesUpWithTheSameLeader(t *testing.T) {
	c := newCluster(t, 3, nil)
	lead := c.leader()
	for range 50 {
		c.propose(lead, "x")
	}
	wiped := c.followers()[0]
	term := lead.replica.Status().Term
	c.kill(wiped)
	c.wipe(wiped)
	c.start(wiped, c.bootstrapList())
	eventually(t, "the quarantine ends", func() bool { return !wiped.replica.Status().Quarantined })
	if s := wiped.replica.Status(); s.LastIndex < lead.replica.Status().Commit {
		t.Errorf("out of quarantine at %d, the leader had committed %d", s.LastIndex, lead.replica.Status().Commit)
	}
	if now := lead.replica.Status().Term; now != term {
		t.Errorf("the term is %d, was %d", now, term)
	}
	// It counts again: with it, and without the third, there is a majority.
	for _, nd := range c.nodes {
		if nd != lead && nd != wiped {
			c.kill(nd)
		}
	}
	c.propose(lead, "y")
	c.kill(lead)
	c.wipe(lead)
	if wiped.replica.Status().Quarantined {
		t.Error("it is in quarantine again")
	}
}

// A leader goes on counting what a server had acknowledged before it lost its disk. So
// the server votes only when its log reaches as far as the leader's did when it came
// back, and that it has to ask.
func TestAnEmptyServerAsksHowFarTheLogReaches(t *testing.T) {
	var mute atomic.Bool
	c := newClusterOf(t, 3, nil)
	c.edit = func(cfg *Config) {
		client := cfg.PeerClient
		cfg.PeerClient = func(address string) peerv1connect.PeerServiceClient {
			if mute.Load() {
				return client("nowhere")
			}
			return client(address)
		}
	}
	servers := c.bootstrapList()
	for _, nd := range c.nodes {
		c.start(nd, servers)
	}
	lead := c.leader()
	c.propose(lead, "x")
	wiped := c.followers()[0]
	c.kill(wiped)
	c.wipe(wiped)
	mute.Store(true)
	c.start(wiped, servers)
	eventually(t, "it has every entry", func() bool { return wiped.machine.Applied() == lead.machine.Applied() })
	time.Sleep(4 * quarantineCheck)
	if !wiped.replica.Status().Quarantined {
		t.Error("votes without having asked")
	}
	mute.Store(false)
	eventually(t, "the quarantine ends", func() bool { return !wiped.replica.Status().Quarantined })
}

// A cluster is founded when all servers of the list have answered, in whatever order
// they start.
func TestAClusterIsFoundedWhenAllHaveAnswered(t *testing.T) {
	c := newClusterOf(t, 3, nil)
	servers := c.bootstrapList()
	c.start(c.nodes[2], servers)
	c.start(c.nodes[0], servers)
	c.noLeaderFor(time.Second)
	c.kill(c.nodes[0])
	c.start(c.nodes[0], servers) // which makes no difference
	c.start(c.nodes[1], servers)
	c.propose(c.leader(), "first")
	c.agree()
	for _, nd := range c.nodes {
		eventually(t, nd.id+" votes", func() bool { return !nd.replica.Status().Quarantined })
	}
}

// A server that was killed just when it had founded the cluster asks again.
func TestACrashBetweenFoundingAndLeavingQuarantine(t *testing.T) {
	c := newClusterOf(t, 1, nil)
	nd := c.nodes[0]
	c.start(nd, c.bootstrapList())
	c.leader()
	c.kill(nd)
	c.wipe(nd)

	c.tearFounding(nd, func(cfg *Config, store *storage) {
		trans := newTransport(cfg, listen(t, "127.0.0.1:0"), nil)
		defer trans.Close()
		if err := raft.BootstrapCluster(cfg.raftConfig(), store.logs, store.stable, store.snaps, trans, raft.Configuration{
			Servers: []raft.Server{{ID: raft.ServerID(nd.id), Address: raft.ServerAddress(nd.address)}},
		}); err != nil {
			t.Fatal(err)
		}
	})
	c.start(nd, c.bootstrapList())
	c.propose(c.leader(), "first")
}

// Raft writes the term of a new cluster, and then its first entry.
func TestACrashBetweenTheTwoWritesOfFounding(t *testing.T) {
	c := newClusterOf(t, 1, nil)
	nd := c.nodes[0]
	c.tearFounding(nd, func(_ *Config, store *storage) {
		if err := store.stable.SetUint64([]byte(keyCurrentTerm), bootstrapTerm); err != nil {
			t.Fatal(err)
		}
	})
	c.start(nd, c.bootstrapList())
	c.propose(c.leader(), "first")
}

// tearFounding does by hand what a server with an empty disk does up to a crash.
func (c *cluster) tearFounding(nd *node, steps func(*Config, *storage)) {
	c.t.Helper()
	cfg := c.config(nd, nil)
	cfg.setDefaults()
	g := newGuard(cfg.DiskHangLimit, cfg.Exit, cfg.Logger)
	defer g.close()
	store, err := openStorage(&cfg, g)
	if err != nil {
		c.t.Fatal(err)
	}
	steps(&cfg, store)
	if err := store.close(); err != nil {
		c.t.Fatal(err)
	}
	if !store.mark.snapshot().held {
		c.t.Fatal("the mark does not say that the disk was empty")
	}
}
