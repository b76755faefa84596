package replica

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A leader whose process is gone is replaced without waiting for a time-out: by
// time-out it would take at least the heartbeat time. Most rounds must beat that;
// on a busy machine one may not, if two followers stand at once.
func TestFastFailover(t *testing.T) {
	const rounds, heartbeat = 7, 3 * time.Second
	c, _ := newQuietCluster(t, 3, heartbeat, func(cfg *Config) {
		cfg.LeaderWait = testPatience
	})
	var times []time.Duration
	for i := range rounds {
		lead := c.leader()
		c.propose(lead, fmt.Sprint("before ", i))
		follower := c.followers()[0]
		start := time.Now()
		c.kill(lead)
		eventually(t, "a commit", func() bool { // its outcome may be unknown at first
			_, err := follower.replica.Propose(c.ctx(), create(fmt.Sprint("after ", i)))
			return err == nil
		})
		times = append(times, time.Since(start))
		c.start(lead, nil)
	}
	slices.Sort(times)
	t.Logf("cut to first commit through a follower: median %v, max %v", times[rounds/2], times[rounds-1])
	if times[rounds/2] >= heartbeat {
		t.Error("half of the elections waited for the time-out")
	}
	if got := len(c.agree().Names); got < 2*rounds {
		t.Errorf("%d names, want at least %d", got, 2*rounds)
	}
}

// A follower that still applies its log lets another one stand first: the cluster goes on without
// waiting for that.
func TestFailoverPassesOverWhoIsBehind(t *testing.T) {
	c, lead := newQuietCluster(t, 3, 3*time.Second, nil)
	var next, other *node
	for _, f := range c.followers() {
		if turnAfter(f.replica.voters(), lead.id, f.id) == 0 {
			next = f
		} else {
			other = f
		}
	}
	release := next.machine.hold()
	t.Cleanup(release) // before the nodes are stopped
	for i := range behindMax + 16 {
		c.propose(lead, fmt.Sprint("entry ", i))
	}
	eventually(t, "the follower is behind", next.replica.behind)
	c.kill(lead)
	eventually(t, "another one leads", other.replica.IsLeader)
	if _, err := other.replica.Propose(c.ctx(), create("after")); err != nil {
		t.Error(err)
	}
}

// Who comes after the leader stands first, so the one that led before it comes last.
func TestTurnAfter(t *testing.T) {
	voters := []string{"c", "a", "d", "b"}
	for leader, want := range map[string]string{"a": "bcd", "b": "cda", "c": "dab", "d": "abc", "x": "abcd"} {
		for i, id := range want {
			if got := turnAfter(voters, leader, string(id)); got != i {
				t.Errorf("after %s, the turn of %c is %d, want %d", leader, id, got, i)
			}
		}
		for _, id := range []string{leader, "stranger"} {
			if got := turnAfter(voters, leader, id); got != -1 {
				t.Errorf("after %s, the turn of %s is %d", leader, id, got)
			}
		}
	}
}

// elect has one node after another stand for election until one leads: their time-outs
// may be longer than a test.
func (c *cluster) elect() *node {
	c.t.Helper()
	for range 20 {
		for _, nd := range c.nodes {
			nd.replica.trans.inject(nd.replica.header())
			for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if nd.replica.IsLeader() {
					return nd
				}
			}
		}
	}
	c.t.Fatal("nobody is elected")
	return nil
}

// Only a refused connection proves that the process is gone.
func TestFailoverIgnoresOtherErrors(t *testing.T) {
	var probe atomic.Pointer[error] // nil: connections end during the election too
	var probes atomic.Int64
	c, lead := newQuietCluster(t, 3, 20*time.Second, func(cfg *Config) {
		cfg.Probe = func(context.Context, string) error {
			err := probe.Load()
			if err == nil {
				return nil
			}
			probes.Add(1)
			return *err
		}
	})
	c.propose(lead, "x")
	term := lead.replica.Status().Term
	f := c.followers()[0]
	round := func(err error) {
		probe.Store(&err)
		probes.Store(0)
		f.replica.peerGone()
		eventually(t, "the leader was probed", func() bool { return probes.Load() > 0 })
	}
	for name, err := range map[string]error{
		"reset":       syscall.ECONNRESET,
		"unreachable": syscall.EHOSTUNREACH,
		"time-out":    context.DeadlineExceeded,
		"alive":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			round(err)
			// All probes of a round pass without an election.
			eventually(t, "the round ends", func() bool { return probes.Load() >= int64(len(probePauses)) })
			if got := f.replica.Status().Term; got != term {
				t.Errorf("term %d became %d", term, got)
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		round(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
		eventually(t, "a new term", func() bool { return f.replica.Status().Term > term })
	})
}
