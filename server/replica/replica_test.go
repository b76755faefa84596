package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
)

func TestProposeOnAnyServer(t *testing.T) {
	c := newCluster(t, 3, nil)
	lead := c.leader()
	if r := c.propose(lead, "one"); r.FirstId != 1 {
		t.Errorf("first command got id %d, want 1", r.FirstId)
	}
	for i, f := range c.followers() {
		if r := c.propose(f, fmt.Sprint("via ", f.id)); r.FirstId != uint64(i+2) {
			t.Errorf("forwarded command got id %d, want %d", r.FirstId, i+2)
		}
	}
	if got := c.agree(); len(got.Names) != 3 {
		t.Errorf("names %q, want 3", got.Names)
	}
}

// TestFollowersLearnOfACommitAtOnce: a last entry that nothing follows is applied
// everywhere before raft's own time-out. A call that fails on a busy machine loses the
// word of a commit, and raft repeats it after that time-out: few entries may be so late.
func TestFollowersLearnOfACommitAtOnce(t *testing.T) {
	const repeated, lateMost = 8 * time.Second, 3
	c := newCluster(t, 3, func(cfg *Config) { cfg.commitTimeout = repeated })
	leader := c.leader()
	late := 0
	for i := range 20 {
		index, proposed := c.propose(leader, fmt.Sprintf("ns-%d", i)).Index, time.Now()
		for _, f := range c.followers() {
			if err := f.machine.WaitApplied(c.ctx(), index); err != nil {
				t.Fatalf("entry %d is committed, but a follower does not know: %v", index, err)
			}
		}
		if time.Since(proposed) < repeated/2 {
			continue
		}
		if late++; late > lateMost {
			t.Fatalf("%d of %d entries waited for raft's time-out of %v", late, i+1, repeated)
		}
	}
}

func TestManyProposersGetTheirOwnResults(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.leader()
	c.followers()
	const workers, each = 60, 20
	var wg sync.WaitGroup
	for w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range each {
				names := []*logv1.Command{create(fmt.Sprintf("%d/%d/a", w, i)), create(fmt.Sprintf("%d/%d/b", w, i))}
				nd := c.nodes[w%len(c.nodes)]
				results, err := nd.replica.Propose(c.ctx(), names...)
				if err != nil || len(results) != 2 {
					t.Errorf("propose: %d results, %v", len(results), err)
					return
				}
				if results[0].FirstId+1 != results[1].FirstId || results[0].Index != results[1].Index {
					t.Errorf("commands of one proposal were torn apart: %v", results)
				}
				if err := nd.machine.WaitApplied(c.ctx(), results[0].Index); err != nil {
					t.Error(err)
				}
				if got := nd.machine.view().Names[results[0].FirstId-1]; got != fmt.Sprintf("%d/%d/a", w, i) {
					t.Errorf("result belongs to %q", got)
				}
			}
		}()
	}
	wg.Wait()
	state := c.agree()
	if len(state.Names) != workers*each*2 {
		t.Errorf("%d commands applied, want %d", len(state.Names), workers*each*2)
	}
	slices.Sort(state.Names)
	if n := len(slices.Compact(state.Names)); n != workers*each*2 {
		t.Errorf("%d distinct commands, want %d", n, workers*each*2)
	}
}

// A read after a write sees it on every server, also right after the leader
// was lost.
func TestReadsAreLinearizable(t *testing.T) {
	c := newCluster(t, 3, nil)
	read := func(nd *node, want int) {
		t.Helper()
		index, err := nd.replica.ReadIndex(c.ctx())
		if err != nil {
			t.Fatalf("read through %s: %v", nd.id, err)
		}
		if err := nd.machine.WaitApplied(c.ctx(), index); err != nil {
			t.Fatalf("%s never applies its read index %d: %v", nd.id, index, err)
		}
		if got := len(nd.machine.view().Names); got < want {
			t.Errorf("%s read %d names, %d had been acknowledged", nd.id, got, want)
		}
	}
	for _, nd := range c.nodes {
		read(nd, 0) // nothing but a no-op is committed: there is nothing to wait for
	}
	for i := range 20 {
		c.propose(c.leader(), fmt.Sprint(i))
		for _, nd := range c.nodes {
			read(nd, i+1)
		}
	}
	c.kill(c.leader())
	for _, nd := range c.nodes {
		if nd.replica != nil {
			read(nd, 20)
		}
	}
}

func TestVerifyLeader(t *testing.T) {
	c := newCluster(t, 3, nil)
	lead := c.leader()
	if err := lead.replica.VerifyLeader(c.ctx()); err != nil {
		t.Errorf("leader: %v", err)
	}
	followers := c.followers()
	if err := followers[0].replica.VerifyLeader(c.ctx()); !errors.Is(err, ErrNotLeader) {
		t.Errorf("follower: %v, want ErrNotLeader", err)
	}
	var wg sync.WaitGroup
	for range 200 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := lead.replica.VerifyLeader(c.ctx()); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	for _, f := range followers {
		c.kill(f)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := lead.replica.VerifyLeader(ctx); err == nil {
		t.Error("verified without a majority")
	}
}

func TestProposeWithoutMajority(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.LeaderWait = 50 * time.Millisecond })
	lead := c.leader()
	for _, f := range c.followers() {
		c.kill(f)
	}
	// The leader does not know yet: what it accepts now is in doubt for ever.
	_, err := lead.replica.Propose(c.ctx(), create("lost?"))
	if !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNoLeader) {
		t.Errorf("first: %v, want ErrUnknownOutcome", err)
	}
	eventually(t, "the leader steps down", func() bool { return !lead.replica.IsLeader() })
	if _, err := lead.replica.Propose(c.ctx(), create("x")); !errors.Is(err, ErrNoLeader) {
		t.Errorf("without a leader: %v, want ErrNoLeader", err)
	}
	if _, err := lead.replica.ReadIndex(c.ctx()); !errors.Is(err, ErrNoLeader) {
		t.Errorf("read without a leader: %v, want ErrNoLeader", err)
	}
}

func TestOverload(t *testing.T) {
	c := newCluster(t, 1, func(cfg *Config) { cfg.QueueBytes = 2000 })
	lead := c.leader()
	c.propose(lead, "first")
	release := lead.machine.hold()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var accepted, refused int
	for i := range 100 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			_, err := lead.replica.Propose(c.ctx(), create(fmt.Sprint(i)))
			mu.Lock()
			defer mu.Unlock()
			var overloaded ErrOverloaded
			switch {
			case err == nil:
				accepted++
			case errors.As(err, &overloaded) && overloaded.RetryAfter > 0:
				refused++
			default:
				t.Error(err)
			}
		}()
	}
	eventually(t, "some are refused", func() bool { mu.Lock(); defer mu.Unlock(); return refused > 0 })
	release()
	wg.Wait()
	if got := len(lead.machine.view().Names); got != accepted+1 {
		t.Errorf("%d applied, %d accepted: a refused proposal was applied or an accepted one lost", got-1, accepted)
	}
}

func TestTooLarge(t *testing.T) {
	c := newCluster(t, 1, func(cfg *Config) { cfg.EntryWeight = 2 * fsm.Weight(create("a")) })
	_, err := c.leader().replica.Propose(c.ctx(), create("a"), create("b"), create("c"))
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
}

func TestShutdownHandsOver(t *testing.T) {
	c := newCluster(t, 3, nil)
	lead := c.leader()
	c.propose(lead, "before")
	c.followers()
	start := time.Now()
	c.shutdown(lead)
	t.Logf("shutdown with hand-over took %v", time.Since(start))
	next := c.leader()
	c.propose(next, "after")
	t.Logf("first commit of the next leader after %v", time.Since(start))
	c.start(lead, nil)
	if got := c.agree(); !slices.Equal(got.Names, []string{"before", "after"}) {
		t.Errorf("names %q", got.Names)
	}
}

func TestMembership(t *testing.T) {
	c := newCluster(t, 1, nil)
	lead := c.leader()
	c.propose(lead, "one")
	nd := &node{id: "s2", stream: listen(t, "127.0.0.1:0"), dir: t.TempDir()}
	nd.address = nd.stream.Addr().String()
	c.nodes = append(c.nodes, nd)
	c.start(nd, nil)
	if err := lead.replica.AddPeer(c.ctx(), nd.id, nd.address, false); err != nil {
		t.Fatal(err)
	}
	c.agree()
	if err := lead.replica.AddPeer(c.ctx(), nd.id, nd.address, true); err != nil {
		t.Fatal(err)
	}
	peers, err := lead.replica.Peers(c.ctx())
	if err != nil || len(peers) != 2 || !peers[1].Voter || !peers[0].Leader {
		t.Errorf("peers %+v, %v", peers, err)
	}
	eventually(t, "s2 votes", func() bool { return !nd.replica.Status().Quarantined })
	if err := lead.replica.TransferLeadership(c.ctx(), nd.id); err != nil {
		t.Fatal(err)
	}
	eventually(t, "s2 leads", nd.replica.IsLeader)
	c.propose(lead, "forwarded")
	if err := nd.replica.RemovePeer(c.ctx(), "nobody"); !errors.Is(err, ErrUnknownPeer) {
		t.Errorf("remove unknown: %v", err)
	}
	if err := nd.replica.RemovePeer(c.ctx(), lead.id); err != nil {
		t.Fatal(err)
	}
	c.propose(nd, "alone")
}

func TestRestartKeepsEverything(t *testing.T) {
	c := newCluster(t, 3, nil)
	for i := range 10 {
		c.propose(c.leader(), fmt.Sprint(i))
	}
	for range 2 {
		for _, nd := range c.nodes {
			c.kill(nd)
		}
		for _, nd := range c.nodes {
			c.start(nd, nil)
		}
		c.leader()
		eventually(t, "all entries are back", func() bool { return len(c.agree().Names) == 10 })
	}
	for _, nd := range c.nodes {
		if s := nd.replica.Status(); s.Quarantined {
			t.Errorf("%s is quarantined after a clean kill: %s", nd.id, s.Reason)
		}
	}
}

func TestNothingLeaks(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	c := newCluster(t, 3, nil)
	c.propose(c.leader(), "one")
	f := c.followers()[0]
	c.propose(f, "two")
	if _, err := f.replica.ReadIndex(c.ctx()); err != nil {
		t.Fatal(err)
	}
	for _, nd := range slices.Clone(c.nodes) {
		c.shutdown(nd)
	}
	c.http.CloseIdleConnections()
	goleak.VerifyNone(t, ignore)
}

// A server that goes on refusing because of a transfer is stopped
// (hashicorp/raft issue 696); a transfer that ends is not.
func TestWedgedTransferIsFatal(t *testing.T) {
	c := newCluster(t, 1, func(cfg *Config) { cfg.HeartbeatTimeout, cfg.LeaderLease = 100*time.Millisecond, 100*time.Millisecond })
	nd := c.leader()
	refuse := func() {
		t.Helper()
		_, err := nd.replica.outcome(inflight{}, raft.ErrLeadershipTransferInProgress)
		if !errors.Is(err, ErrNoLeader) {
			t.Fatalf("got %v, want ErrNoLeader: raft refused before it appended", err)
		}
	}
	refuse()
	c.propose(nd, "the transfer is over")
	refuse()
	if len(nd.exit) > 0 {
		t.Fatal("stopped too early")
	}
	eventually(t, "Exit", func() bool { refuse(); return len(nd.exit) > 0 })
	if err := <-nd.exit; !errors.Is(err, ErrTransferWedged) {
		t.Errorf("exit: %v, want ErrTransferWedged", err)
	}
}

// Two transfers that refuse an entry each are two, however long the time between them is: a healthy
// server without other entries goes on.
func TestTransfersFarApartAreNotFatal(t *testing.T) {
	refuse := func(nd *node) {
		t.Helper()
		if _, err := nd.replica.outcome(inflight{}, raft.ErrLeadershipTransferInProgress); !errors.Is(err, ErrNoLeader) {
			t.Fatalf("got %v, want ErrNoLeader", err)
		}
	}
	// age makes the refusal that nd remembers an old one.
	age := func(nd *node) {
		w := &nd.replica.wedge
		w.mu.Lock()
		defer w.mu.Unlock()
		w.since = w.since.Add(-time.Hour)
	}
	transfer := func(c *cluster, from, to *node, want error) {
		t.Helper()
		if err := from.replica.TransferLeadership(c.ctx(), to.id); !errors.Is(err, want) {
			t.Fatalf("transfer: %v, want %v", err, want)
		}
	}
	t.Run("the leadership ended", func(t *testing.T) {
		c := newCluster(t, 2, nil)
		a, b := c.leader(), c.followers()[0]
		refuse(a)
		age(a)
		transfer(c, a, b, nil)
		eventually(t, "the other one leads", b.replica.IsLeader)
		transfer(c, b, a, nil)
		eventually(t, "the first one leads", a.replica.IsLeader)
		refuse(a)
		if len(a.exit) > 0 {
			t.Error(<-a.exit)
		}
	})
	t.Run("the transfer failed", func(t *testing.T) {
		c := newCluster(t, 2, func(cfg *Config) {
			cfg.intercept = func(cmd any) any {
				if _, ok := cmd.(*raft.TimeoutNowRequest); ok {
					return errors.New("not now")
				}
				return nil
			}
		})
		a, b := c.leader(), c.followers()[0]
		refuse(a)
		age(a)
		transfer(c, a, b, ErrTransferFailed)
		refuse(a)
		if len(a.exit) > 0 {
			t.Error(<-a.exit)
		}
	})
}

func TestLeaderCh(t *testing.T) {
	c := newCluster(t, 3, nil)
	lead := c.leader()
	if term := <-lead.replica.LeaderCh(); term != lead.replica.Status().Term {
		t.Errorf("the leader was told term %d", term)
	}
	to := c.followers()[0]
	if err := lead.replica.TransferLeadership(c.ctx(), to.id); err != nil {
		t.Fatal(err)
	}
	if term := <-lead.replica.LeaderCh(); term != 0 {
		t.Errorf("the old leader was told term %d", term)
	}
	if term := <-to.replica.LeaderCh(); term != to.replica.Status().Term {
		t.Errorf("the new leader was told term %d", term)
	}
}

func TestSecondProcessOnOneDirectory(t *testing.T) {
	c := newCluster(t, 1, nil)
	nd := c.leader()
	cfg := c.config(nd, nil)
	cfg.Stream = listen(t, "127.0.0.1:0")
	defer cfg.Stream.Close()
	if _, err := Open(cfg); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
}
