package server

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	logv1 "rota/api/gen/log/v1"
	peerv1 "rota/api/gen/peer/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/internal/telemetry"
	"rota/server/lease"
)

// alone is a cluster of one without Raft: what is proposed is applied at once,
// unless it is told to lose its leadership.
type alone struct {
	machine *fsm.Machine
	index   uint64
	verify  func() error
	propose func() error
}

func (l *alone) VerifyLeader(context.Context) error { return l.verify() }

func (l *alone) ProposeLocal(_ context.Context, c ...*logv1.Command) ([]*logv1.Result, error) {
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

// newLeader leads and has n nodes, n0 and so on, with incarnations from 1 on, a
// lease of 10 s and a margin of 2 s. The clock is by now.
func newLeader(t *testing.T, n int, now func() time.Time) (*alone, *leases) {
	t.Helper()
	ok := func() error { return nil }
	l := &alone{machine: fsm.New(fsm.Options{}), verify: ok, propose: ok}
	commands := []*logv1.Command{{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{
		ClusterId: "c", Settings: &logv1.Settings{LeaseNs: int64(10 * time.Second), LeaseMarginNs: int64(2 * time.Second)},
	}}}}
	for i := range n {
		commands = append(commands, &logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{
			Name: fmt.Sprint("n", i), JournalId: "j", NumaNodes: []*logv1.NumaNode{{Cpus: []uint32{0}}},
		}}})
	}
	results, err := l.ProposeLocal(t.Context(), commands...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Refusal != nil {
			t.Fatal(r.Refusal)
		}
	}
	ls := newLeases(lease.New(l.machine.View, now), l, telemetry.LeaseRenewals.Counters())
	ls.table.Lead()
	return l, ls
}

// TestRenewalsAskForAMajority, and what they are refused with sends the agent
// back to whoever leads.
func TestRenewalsAskForAMajority(t *testing.T) {
	l, ls := newLeader(t, 1, time.Now)
	var incarnation uint64
	l.machine.View(func(s *state.State) { incarnation = s.NodeByName("n0").Incarnation })
	renewal := []*peerv1.NodeLease{{Name: "n0", Incarnation: incarnation}}
	if fenced, err := ls.renew(t.Context(), renewal); err != nil || fenced[0] {
		t.Fatalf("%v, %v", fenced, err)
	}
	noMajority := errors.New("no majority")
	l.verify = func() error { return noMajority }
	if _, err := ls.renew(t.Context(), renewal); !errors.Is(err, noMajority) {
		t.Errorf("without a majority: %v", err)
	}
	l.verify = func() error { ls.table.Follow(); return nil }
	if _, err := ls.renew(t.Context(), renewal); !errors.Is(err, errNoLeader) {
		t.Errorf("after its leadership ended: %v, want errNoLeader", err)
	}
}
