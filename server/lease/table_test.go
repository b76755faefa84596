package lease_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	logv1 "rota/api/gen/log/v1"
	peerv1 "rota/api/gen/peer/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/server/lease"
)

// leader is a cluster of one without Raft: what is proposed is applied at once.
type leader struct {
	*lease.Table
	t       *testing.T
	machine *fsm.Machine
	index   uint64
	now     time.Time
}

func (l *leader) apply(commands ...*logv1.Command) {
	l.t.Helper()
	l.index++
	data, err := (&logv1.Entry{TimeNs: int64(l.index), Commands: commands}).MarshalVT()
	if err != nil {
		l.t.Fatal(err)
	}
	for _, r := range l.machine.Apply(&raft.Log{Index: l.index, Data: data}).([]*logv1.Result) {
		if r.Refusal != nil {
			l.t.Fatal(r.Refusal)
		}
	}
}

func (l *leader) register() {
	l.t.Helper()
	l.apply(&logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{
		Name: "n1", JournalId: "j", NumaNodes: []*logv1.NumaNode{{Cpus: []uint32{0}}},
	}}})
}

// newLeader leads, has one node, n1, with incarnation 1, a lease of 10 s and a
// margin of 2 s.
func newLeader(t *testing.T) *leader {
	t.Helper()
	l := &leader{t: t, machine: fsm.New(fsm.Options{}), now: time.Unix(0, 0)}
	l.Table = lease.New(l.machine.View, func() time.Time { return l.now })
	l.apply(&logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{
		ClusterId: "c", Settings: &logv1.Settings{LeaseNs: int64(10 * time.Second), LeaseMarginNs: int64(2 * time.Second)},
	}}})
	l.register()
	l.Lead()
	return l
}

const patience = 12 * time.Second

func verified() error { return nil }

func renewal(incarnation uint64) []*peerv1.NodeLease {
	return []*peerv1.NodeLease{{Name: "n1", Incarnation: incarnation}}
}

func TestNodeIsGivenUpOnlyAfterLeaseAndMargin(t *testing.T) {
	l := newLeader(t)
	if got := l.Patience(); got != patience {
		t.Fatalf("patience %v, want %v", got, patience)
	}
	if due := l.Overdue(); len(due) != 0 {
		t.Fatal("a new leader gave a node up that it has never seen")
	}
	l.now = l.now.Add(5 * time.Second)
	if fenced, err := l.Renew(verified, renewal(1)); err != nil || fenced[0] {
		t.Fatalf("renewal: %v, %v", fenced, err)
	}
	l.now = l.now.Add(patience)
	if due := l.Overdue(); len(due) != 0 {
		t.Fatal("given up before its time")
	}
	l.now = l.now.Add(time.Nanosecond)
	due := l.Overdue()
	want := lease.Due{Node: "n1", Incarnation: 1, Silent: patience + 1}
	if len(due) != 1 || due[0] != want {
		t.Fatalf("due %v, want %v", due, want)
	}
	l.apply(due[0].Command())
	l.machine.View(func(s *state.State) {
		if s.NodeByName("n1").State != state.NodeDown {
			t.Error("the node is still up")
		}
	})
	if fenced, err := l.Renew(verified, renewal(1)); err != nil || !fenced[0] {
		t.Fatalf("a node that was given up renewed: %v, %v", fenced, err)
	}
	if due := l.Overdue(); len(due) != 0 {
		t.Fatalf("a node that is down is given up again: %v", due)
	}
}

// TestANewIncarnationGetsAWholeLease: it comes after the end of the one before,
// which must not be held against it.
func TestANewIncarnationGetsAWholeLease(t *testing.T) {
	l := newLeader(t)
	l.Overdue()
	l.now = l.now.Add(patience + 1)
	l.apply(l.Overdue()[0].Command())
	l.register()
	l.machine.View(func(s *state.State) {
		if got := s.NodeByName("n1").Incarnation; got != 2 {
			t.Fatalf("incarnation %d, want 2", got)
		}
	})
	if due := l.Overdue(); len(due) != 0 {
		t.Fatalf("given up at once: %v", due)
	}
	l.now = l.now.Add(patience)
	if fenced, err := l.Renew(verified, renewal(2)); err != nil || fenced[0] {
		t.Fatalf("renewal: %v, %v", fenced, err)
	}
}

// TestNoRenewalOnceExpiryBegan: between the decision to give a node up and its
// commit, whose outcome may be unknown, no renewal may be answered.
func TestNoRenewalOnceExpiryBegan(t *testing.T) {
	l := newLeader(t)
	l.Overdue()
	l.now = l.now.Add(patience + 1)
	l.Overdue()
	if fenced, err := l.Renew(verified, renewal(1)); !errors.Is(err, lease.ErrExpiring) {
		t.Fatalf("renewed while being given up: %v, %v", fenced, err)
	}
	due := l.Overdue()
	if len(due) != 1 {
		t.Fatal("not tried again")
	}
	l.apply(due[0].Command())
	if fenced, err := l.Renew(verified, renewal(1)); err != nil || !fenced[0] {
		t.Fatalf("%v, %v", fenced, err)
	}
}

func TestDeposedLeaderCannotRenew(t *testing.T) {
	l := newLeader(t)
	deposed := errors.New("not the leader")
	if _, err := l.Renew(func() error { return deposed }, renewal(1)); !errors.Is(err, deposed) {
		t.Fatalf("without a majority: %v", err)
	}
	if _, err := l.Renew(func() error { l.Follow(); return nil }, renewal(1)); !errors.Is(err, lease.ErrNotLeading) {
		t.Fatalf("after its leadership ended: %v", err)
	}
	if due := l.Overdue(); due != nil {
		t.Fatalf("gives up %v without leading", due)
	}
}

// TestANewLeaderForgets: what an earlier leadership knew must count for nothing,
// or a node that renewed elsewhere meanwhile would be given up too early.
func TestANewLeaderForgets(t *testing.T) {
	l := newLeader(t)
	l.Overdue()
	l.Follow()
	l.now = l.now.Add(2 * patience)
	l.Lead()
	if due := l.Overdue(); len(due) != 0 {
		t.Fatalf("gave up %v by what it knew before", due)
	}
}

func TestRenewalOfAnotherIncarnationIsFenced(t *testing.T) {
	l := newLeader(t)
	for _, inc := range []uint64{0, 2} {
		if fenced, err := l.Renew(verified, renewal(inc)); err != nil || !fenced[0] {
			t.Errorf("incarnation %d: %v, %v", inc, fenced, err)
		}
	}
}
