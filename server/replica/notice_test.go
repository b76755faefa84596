package replica

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// patient replicas do not end what is stuck by a time-out.
func patient(cfg *Config) { cfg.TransportTimeout = time.Hour }

// send sends requests through a new pipeline until one fails, or there were enough, and says how
// many there were.
func (nd *node) send(t *testing.T, to string, enough int64) (sent *atomic.Int64, end <-chan error) {
	t.Helper()
	p, err := nd.replica.trans.AppendEntriesPipeline("a follower", raft.ServerAddress(to))
	if err != nil {
		t.Fatal(err)
	}
	header := nd.replica.header()
	sent, done := new(atomic.Int64), make(chan error, 1)
	go func() {
		for sent.Load() < enough {
			// A request of no term changes nothing.
			req := &raft.AppendEntriesRequest{RPCHeader: header}
			if _, err := p.AppendEntries(req, new(raft.AppendEntriesResponse)); err != nil {
				done <- err
				return
			}
			sent.Add(1)
		}
		done <- p.Close()
	}()
	return sent, done
}

func ends(t *testing.T, end <-chan error) error {
	t.Helper()
	select {
	case err := <-end:
		return err
	case <-time.After(testPatience):
		t.Fatal("a request still waits")
		return nil
	}
}

// Raft reads no more answers after one that is a failure, and a notice may be under way then.
func TestRequestsDoNotWaitForAnswersToBeRead(t *testing.T) {
	c := newCluster(t, 2, patient)
	_, end := c.leader().send(t, c.followers()[0].address, 10)
	if err := ends(t, end); err != nil {
		t.Error(err)
	}
}

// silent is the address of a server that takes requests and never answers.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
		}
	}()
	return l.Addr().String()
}

// stuck sends to a silent server until no more can be sent.
func (nd *node) stuck(t *testing.T) (end <-chan error) {
	t.Helper()
	sent, end := nd.send(t, silent(t), 1000)
	eventually(t, "a request is under way", func() bool { return sent.Load() > 0 })
	time.Sleep(50 * time.Millisecond)
	if len(end) > 0 {
		t.Fatalf("not stuck: %v", <-end)
	}
	return end
}

func TestTheEndOfALeadershipFreesItsPipelines(t *testing.T) {
	c := newCluster(t, 3, patient)
	lead, next := c.leader(), c.followers()[0]
	end := lead.stuck(t)
	if err := lead.replica.TransferLeadership(c.ctx(), next.id); err != nil {
		t.Fatal(err)
	}
	if err := ends(t, end); err == nil {
		t.Error("all requests were sent: the test shows nothing")
	}
	c.propose(next, "after")
}

func TestAShutdownFreesAllPipelines(t *testing.T) {
	c := newCluster(t, 3, patient)
	lead := c.leader()
	end := lead.stuck(t)
	trans := lead.replica.trans
	if err := trans.Close(); err != nil { // the first step of a shutdown
		t.Fatal(err)
	}
	if err := ends(t, end); err == nil {
		t.Error("all requests were sent: the test shows nothing")
	}
	if _, err := trans.AppendEntriesPipeline("a follower", raft.ServerAddress(lead.address)); err == nil {
		t.Error("a pipeline was opened after the end")
	}
}
