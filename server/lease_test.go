package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	logv1 "rota/api/gen/log/v1"
	peerv1 "rota/api/gen/peer/v1"
	"rota/fsm"
	"rota/fsm/state"
)

// leader is a cluster of one without Raft: what is proposed is applied at once,
// unless it is told to lose its leadership.
type leader struct {
	machine *fsm.Machine
	index   uint64
	verify  func() error
	propose func() error
}

func (l *leader) View(fn func(*state.State)) { l.machine.View(fn) }

func (l *leader) VerifyLeader(context.Context) error { return l.verify() }

func (l *leader) ProposeLocal(_ context.Context, c ...*logv1.Command) ([]*logv1.Result, error) {
	if err := l.propose(); err != nil {
		return nil, err
	}
	l.index++
	data, err := (&logv1.Entry{TimeNs: int64(l.index), Commands: c}).MarshalVT()
	if err != nil {
		return nil, err
	}
	return l.machine.Apply(&raft.Log{Index: l.index, Data: data}).([]*logv1.Result), nil
}

// newLeader has one node, n1, with incarnation 1, a lease of 10 s and a margin of
// 2 s.
func newLeader(t *testing.T) (*leader, *leases, *time.Time) {
	t.Helper()
	ok := func() error { return nil }
	l := &leader{machine: fsm.New(fsm.Options{}), verify: ok, propose: ok}
	for _, c := range []*logv1.Command{
		{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{ClusterId: "c"}}},
		{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{
			Name: "n1", JournalId: "j", NumaNodes: []*logv1.NumaNode{{Cpus: []uint32{0}}},
		}}},
	} {
		r, err := l.ProposeLocal(t.Context(), c)
		if err != nil || r[0].Refusal != nil {
			t.Fatal(err, r)
		}
	}
	ls := newLeases(l, l, hclog.NewNullLogger())
	now := time.Unix(0, 0)
	ls.now = func() time.Time { return now }
	ls.nodes = map[string]lease{}
	return l, ls, &now
}

const patience = 12 * time.Second

func renewal(incarnation uint64) []*peerv1.NodeLease {
	return []*peerv1.NodeLease{{Name: "n1", Incarnation: incarnation}}
}

func TestNodeIsGivenUpOnlyAfterLeaseAndMargin(t *testing.T) {
	l, ls, now := newLeader(t)
	if due := ls.overdue(patience); len(due) != 0 {
		t.Fatal("a new leader gave a node up that it has never seen")
	}
	*now = now.Add(5 * time.Second)
	if fenced, err := ls.renew(t.Context(), renewal(1)); err != nil || fenced[0] {
		t.Fatalf("renewal: %v, %v", fenced, err)
	}
	*now = now.Add(patience)
	if due := ls.overdue(patience); len(due) != 0 {
		t.Fatal("given up before its time")
	}
	*now = now.Add(time.Nanosecond)
	due := ls.overdue(patience)
	if len(due) != 1 {
		t.Fatal("not given up after its time")
	}
	ls.expire(t.Context(), due)
	l.View(func(s *state.State) {
		if s.NodeByName("n1").State != state.NodeDown {
			t.Error("the node is still up")
		}
	})
	if fenced, err := ls.renew(t.Context(), renewal(1)); err != nil || !fenced[0] {
		t.Fatalf("a node that was given up renewed: %v, %v", fenced, err)
	}
}

// TestNoRenewalOnceExpiryBegan: between the decision to give a node up and its
// commit, whose outcome may be unknown, no renewal may be answered.
func TestNoRenewalOnceExpiryBegan(t *testing.T) {
	l, ls, now := newLeader(t)
	ls.overdue(patience)
	*now = now.Add(patience + 1)
	due := ls.overdue(patience)
	l.propose = func() error { return errors.New("leadership lost") }
	ls.expire(t.Context(), due)
	if fenced, err := ls.renew(t.Context(), renewal(1)); err == nil {
		t.Fatalf("renewed while being given up: %v", fenced)
	}
	l.propose = func() error { return nil }
	ls.expire(t.Context(), ls.overdue(patience))
	if fenced, err := ls.renew(t.Context(), renewal(1)); err != nil || !fenced[0] {
		t.Fatalf("%v, %v", fenced, err)
	}
}

func TestDeposedLeaderCannotRenew(t *testing.T) {
	l, ls, _ := newLeader(t)
	l.verify = func() error { return errors.New("not the leader") }
	if _, err := ls.renew(t.Context(), renewal(1)); err == nil {
		t.Fatal("renewed without a majority")
	}
	l.verify = func() error { ls.nodes = nil; return nil } // deposed right after
	if _, err := ls.renew(t.Context(), renewal(1)); err == nil {
		t.Fatal("renewed after leadership ended")
	}
}

func TestRenewalOfAnotherIncarnationIsFenced(t *testing.T) {
	_, ls, _ := newLeader(t)
	for _, inc := range []uint64{0, 2} {
		if fenced, err := ls.renew(t.Context(), renewal(inc)); err != nil || !fenced[0] {
			t.Errorf("incarnation %d: %v, %v", inc, fenced, err)
		}
	}
}
