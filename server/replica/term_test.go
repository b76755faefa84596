package replica

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/fsm/state"
)

// regained is a cluster whose first server loses its leadership and gets it back
// while an entry waits that it has stamped and that raft has not been given.
type regained struct {
	*cluster
	s1, s2   *node
	machines map[string]*fsm.Machine
	before   uint64 // term in which the entry was stamped
	waits    chan struct{}
	release  func()
}

// newRegained holds the entry back that creates the namespace "stamped".
func newRegained(t *testing.T) *regained {
	t.Helper()
	g := &regained{machines: map[string]*fsm.Machine{}, waits: make(chan struct{})}
	hold := make(chan struct{})
	g.release = sync.OnceFunc(func() { close(hold) })
	g.cluster = newCluster(t, 3, func(cfg *Config) {
		g.machines[cfg.ServerID] = fsm.New(fsm.Options{})
		cfg.Machine = g.machines[cfg.ServerID]
		cfg.stamped = func(e *logv1.Entry) {
			if e.Commands[0].GetCreateNamespace().GetName() == "stamped" {
				close(g.waits)
				<-hold
			}
		}
	})
	t.Cleanup(g.release)
	g.s1, g.s2 = g.nodes[0], g.nodes[1]
	g.handOver(g.leader(), g.s1)
	if _, err := g.s1.replica.Propose(g.ctx(), &logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{ClusterId: "c"}}}); err != nil {
		t.Fatal(err)
	}
	g.before = g.s1.replica.lead.Load().term
	return g
}

func (g *regained) handOver(from, to *node) {
	g.t.Helper()
	if from == to {
		return
	}
	if err := from.replica.raft.LeadershipTransferToServer(raft.ServerID(to.id), raft.ServerAddress(to.address)).Error(); err != nil {
		g.t.Fatal(err)
	}
	eventually(g.t, to.id+" leads", to.replica.IsLeader)
}

// thereAndBack makes s2 the leader, which commits something, and s1 again.
func (g *regained) thereAndBack() {
	g.t.Helper()
	g.handOver(g.s1, g.s2)
	g.propose(g.s2, "between")
	g.handOver(g.s2, g.s1)
	if now := g.s1.replica.lead.Load().term; now <= g.before {
		g.t.Fatalf("s1 leads in term %d, was %d: nothing is tested", now, g.before)
	}
}

// names are the namespaces that every server has.
func (g *regained) names() (names []string) {
	g.t.Helper()
	g.propose(g.s1, "last")
	for _, nd := range g.nodes {
		m := g.machines[nd.id]
		if err := m.WaitApplied(g.ctx(), g.machines["s1"].Applied()); err != nil {
			g.t.Fatal(err)
		}
		var got []string
		m.View(func(s *state.State) {
			s.Namespaces(func(n *state.Namespace) bool { got = append(got, n.Name); return true })
		})
		slices.Sort(got)
		if names != nil && !slices.Equal(got, names) {
			g.t.Fatalf("%s has the namespaces %q, another %q", nd.id, got, names)
		}
		names = got
	}
	return names
}

// TestAnEntryIsOfOneTerm: what was stamped in one term, and has not reached raft
// before the next, is not applied. The same goes for what waited behind it, and for
// what a leader of that term decided and proposed later.
func TestAnEntryIsOfOneTerm(t *testing.T) {
	g := newRegained(t)
	answers := make(chan error, 2)
	propose := func(ctx context.Context, name string) {
		_, err := g.s1.replica.ProposeLocal(ctx, create(name))
		answers <- err
	}
	go propose(g.ctx(), "stamped")
	<-g.waits
	go propose(g.ctx(), "queued")
	eventually(t, "the second proposal is queued", func() bool {
		q := g.s1.replica.local
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.rules.Bytes() > 0
	})
	g.thereAndBack()
	g.release()
	for range cap(answers) {
		if err := <-answers; !errors.Is(err, ErrNotLeader) {
			t.Errorf("a proposal of an earlier term: %v, want ErrNotLeader", err)
		}
	}
	if _, err := g.s1.replica.ProposeLocal(InTerm(g.ctx(), g.before), create("decided")); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a proposal that was decided in an earlier term: %v, want ErrNotLeader", err)
	}
	if _, err := g.s1.replica.ProposeLocal(InTerm(g.ctx(), g.s1.replica.lead.Load().term), create("now")); err != nil {
		t.Error(err)
	}
	if got, want := g.names(), []string{"between", "default", "last", "now"}; !slices.Equal(got, want) {
		t.Errorf("namespaces %q, want %q", got, want)
	}
}

// TestAProposalOutlivesItsTerm: a caller that any leader may serve notices nothing.
func TestAProposalOutlivesItsTerm(t *testing.T) {
	g := newRegained(t)
	answer := make(chan error, 1)
	go func() {
		_, err := g.s1.replica.Propose(g.ctx(), create("stamped"))
		answer <- err
	}()
	<-g.waits
	g.waits = make(chan struct{}) // it comes by again
	g.thereAndBack()
	g.release()
	if err := <-answer; err != nil {
		t.Error(err)
	}
	if got, want := g.names(), []string{"between", "default", "last", "stamped"}; !slices.Equal(got, want) {
		t.Errorf("namespaces %q, want %q", got, want)
	}
}
