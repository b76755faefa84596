package lease_test

import (
	"errors"
	"testing"
	"time"

	logv1 "rota/api/gen/log/v1"
	peerv1 "rota/api/gen/peer/v1"
	"rota/fsm/state"
	"rota/server/lease"
)

const (
	renewed = peerv1.TurnRenewal_TURN_RENEWAL_RENEWED
	fenced  = peerv1.TurnRenewal_TURN_RENEWAL_FENCED
	stopped = peerv1.TurnRenewal_TURN_RENEWAL_STOPPED
)

// newTurns is newLeader with one group and one job, "a", whose deployment has asked for
// two turns: 1 is held, 2 waits.
func newTurns(t *testing.T) *leader {
	t.Helper()
	l := newLeader(t)
	l.apply(&logv1.Command{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: &logv1.CreateNodeGroup{Name: "g", Nodes: 4}}})
	l.apply(&logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{Namespace: "default", Name: "a", Nodes: 4}}})
	for range 2 {
		l.apply(&logv1.Command{Verb: &logv1.Command_AcquireTurn{AcquireTurn: &logv1.AcquireTurn{
			Namespace: "default", Job: "a", Deployment: "d", Operation: 1,
		}}})
	}
	if held := l.turn(1); held.State != state.TurnHeld || l.turn(2).State != state.TurnWaiting {
		t.Fatalf("turns are %+v and %+v, want one held and one that waits", held, l.turn(2))
	}
	return l
}

func (l *leader) turn(id state.TurnID) (row state.Turn) {
	l.t.Helper()
	l.machine.View(func(s *state.State) {
		if r := s.Turn(id); r != nil {
			row = *r
		}
	})
	return row
}

// renewTurn renews a turn, and the node with it.
func (l *leader) renewTurn(id state.TurnID, token uint64) (peerv1.TurnRenewal, error) {
	l.t.Helper()
	if _, err := l.Renew(verified, renewal(1)); err != nil {
		l.t.Fatal(err)
	}
	answers, err := l.RenewTurns(verified, []*peerv1.TurnLease{{Id: uint64(id), Token: token}})
	if err != nil {
		return 0, err
	}
	return answers[0], nil
}

// TestTurnsAreGivenUpAsNodesAre: after lease and margin, whether they wait or are held,
// and not while they are renewed.
func TestTurnsAreGivenUpAsNodesAre(t *testing.T) {
	l := newTurns(t)
	token := l.turn(1).Token
	l.Overdue()
	for range 3 {
		l.now = l.now.Add(patience)
		if got, err := l.renewTurn(1, token); err != nil || got != renewed {
			t.Fatalf("renewal: %v, %v", got, err)
		}
		if got, err := l.renewTurn(2, 0); err != nil || got != renewed {
			t.Fatalf("renewal of one that waits: %v, %v", got, err)
		}
		if due := l.Overdue(); len(due) != 0 {
			t.Fatalf("given up though it is renewed: %v", due)
		}
	}
	l.now = l.now.Add(patience + 1)
	if _, err := l.Renew(verified, renewal(1)); err != nil {
		t.Fatal(err)
	}
	due := l.Overdue()
	want := []lease.Due{{Turn: 1, Token: token, Silent: patience + 1}, {Turn: 2, Silent: patience + 1}}
	if len(due) != 2 || due[0] != want[0] || due[1] != want[1] {
		t.Fatalf("due %v, want %v", due, want)
	}
	if got, err := l.renewTurn(1, token); !errors.Is(err, lease.ErrExpiring) {
		t.Errorf("renewed while being given up: %v, %v", got, err)
	}
	l.apply(due[1].Command())
	l.apply(due[0].Command())
	for id := state.TurnID(1); id <= 2; id++ {
		if got := l.turn(id).State; got != state.TurnLost {
			t.Errorf("turn %d is in state %d, want lost", id, got)
		}
		if got, err := l.renewTurn(id, token); err != nil || got != fenced {
			t.Errorf("turn %d that is lost: %v, %v", id, got, err)
		}
	}
	if due := l.Overdue(); len(due) != 0 {
		t.Errorf("given up again: %v", due)
	}
}

// TestAGrantIsALeaseOfItsOwn: the count begins anew with the token, and the holder
// need not know of it yet.
func TestAGrantIsALeaseOfItsOwn(t *testing.T) {
	l := newTurns(t)
	token := l.turn(1).Token
	l.Overdue()
	l.now = l.now.Add(patience)
	l.apply(&logv1.Command{Verb: &logv1.Command_EndTurn{EndTurn: &logv1.EndTurn{TurnId: 1, Token: token, Reason: logv1.TurnEnd_TURN_END_YIELDED}}})
	if got := l.turn(2); got.State != state.TurnHeld || got.Token <= token {
		t.Fatalf("turn 2 is %+v, want it held with a higher token than %d", got, token)
	}
	l.Overdue()
	l.now = l.now.Add(patience)
	if due := l.Overdue(); len(due) != 1 || due[0].Node == "" {
		t.Fatalf("due %v, want the silent node only", due)
	}
	answers, err := l.RenewTurns(verified, []*peerv1.TurnLease{{Id: 2}, {Id: 2, Token: token}, {Id: 9}})
	if err != nil || answers[0] != renewed || answers[1] != fenced || answers[2] != fenced {
		t.Errorf("%v, %v; want one that does not know its token renewed, a wrong token and an unknown turn fenced", answers, err)
	}
}

// TestWhoDoesNotStopIsNotRenewed: for a lease after the leader saw it, and from then on
// the turn is as good as lost.
func TestWhoDoesNotStopIsNotRenewed(t *testing.T) {
	const leaseTime = 10 * time.Second
	l := newTurns(t)
	token := l.turn(1).Token
	l.apply(&logv1.Command{Verb: &logv1.Command_ChangeJob{ChangeJob: &logv1.ChangeJob{Namespace: "default", Name: "a", Change: logv1.JobChange_JOB_CHANGE_SUSPEND}}})
	if !l.turn(1).Stop {
		t.Fatal("the holder of a suspended job is not asked to stop")
	}
	l.Overdue()
	l.now = l.now.Add(leaseTime)
	if got, err := l.renewTurn(1, token); err != nil || got != renewed {
		t.Fatalf("within the lease: %v, %v", got, err)
	}
	l.now = l.now.Add(1)
	if got, err := l.renewTurn(1, token); err != nil || got != stopped {
		t.Fatalf("after the lease: %v, %v", got, err)
	}
	l.now = l.now.Add(patience)
	if _, err := l.renewTurn(2, 0); err != nil {
		t.Fatal(err)
	}
	due := l.Overdue()
	if len(due) != 1 || due[0].Turn != 1 {
		t.Fatalf("due %v, want turn 1: the refused renewals must not count", due)
	}
}

func TestDeposedLeaderCannotRenewTurns(t *testing.T) {
	l := newTurns(t)
	turns := []*peerv1.TurnLease{{Id: 1, Token: l.turn(1).Token}}
	deposed := errors.New("not the leader")
	if _, err := l.RenewTurns(func() error { return deposed }, turns); !errors.Is(err, deposed) {
		t.Errorf("without a majority: %v", err)
	}
	if _, err := l.RenewTurns(func() error { l.Follow(); return nil }, turns); !errors.Is(err, lease.ErrNotLeading) {
		t.Errorf("after its leadership ended: %v", err)
	}
}
