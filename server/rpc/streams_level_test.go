package rpc_test

import (
	"context"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/server/rpc"
)

// ofLevel is a machine of a cluster in which a feature level is active.
type ofLevel struct {
	rpc.Machine
	level state.Level
}

func (m ofLevel) Level() state.Level { return m.level }

// An older server would hand an action to its agent without standard input or terminal, and
// nobody would notice.
func TestStreamsWaitUntilEveryServerKnowsThem(t *testing.T) {
	for _, level := range []state.Level{fsm.LevelStreams - 1, fsm.LevelStreams} {
		w := newWorld(t, func(d *rpc.Deps) { d.Machine = ofLevel{d.Machine, level} })
		for name, change := range map[string]func(*rotav1.ActionSpec){
			"nothing":        func(*rotav1.ActionSpec) {},
			"standard input": func(a *rotav1.ActionSpec) { a.Stdin = true },
			"a terminal":     func(a *rotav1.ActionSpec) { a.Tty = &rotav1.TerminalSize{Rows: 24, Columns: 80} },
		} {
			action := spec("true")
			change(action)
			req := &rotav1.SubmitActionsRequest{RequestId: name, Actions: []*rotav1.ActionSpec{action}}
			want := "<nil>"
			if level < fsm.LevelStreams && name != "nothing" {
				want = "LEVEL_NOT_ACTIVE"
			}
			_, err := w.actions().SubmitActions(t.Context(), req)
			if got := reasonOf(err); got != want {
				t.Errorf("level %d, %s: %q (%v)", level, name, got, err)
			}
			req.RequestId = "batch " + name
			batch, err := w.actions().BatchSubmitActions(t.Context(), &rotav1.BatchSubmitActionsRequest{Requests: []*rotav1.SubmitActionsRequest{req}})
			if err != nil {
				t.Fatal(err)
			}
			if got := batch.Results[0].GetError(); (got != nil) != (want == "LEVEL_NOT_ACTIVE") || got != nil && got.Reason != want {
				t.Errorf("level %d, %s in a batch: %v", level, name, got)
			}
		}
	}
}

// behind is a machine that learns in WaitApplied which feature level is active.
type behind struct {
	rpc.Machine
	level state.Level
}

func (m *behind) Level() state.Level { return m.level }

func (m *behind) WaitApplied(ctx context.Context, index uint64) error {
	m.level = fsm.LevelStreams
	return m.Machine.WaitApplied(ctx, index)
}

// A server that has just started knows no level yet, and must not say that none is active.
func TestAServerThatIsBehindLearnsTheLevelFirst(t *testing.T) {
	w := newWorld(t, func(d *rpc.Deps) { d.Machine = &behind{Machine: d.Machine} })
	action := spec("true")
	action.Stdin = true
	_, err := w.actions().SubmitActions(t.Context(), &rotav1.SubmitActionsRequest{RequestId: "1", Actions: []*rotav1.ActionSpec{action}})
	if err != nil {
		t.Error(err)
	}
}
