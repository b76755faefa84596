package cli

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

// turnGiver grants one turn at once. From the renewal of a holder on it is as told.
type turnGiver struct {
	rotav1connect.UnimplementedTurnServiceHandler
	rotav1connect.UnimplementedOperatorServiceHandler

	mu   sync.Mutex
	turn *rotav1.Turn
	then rotav1.TurnState
}

func (s *turnGiver) GetStatus(context.Context, *rotav1.GetStatusRequest) (*rotav1.GetStatusResponse, error) {
	return &rotav1.GetStatusResponse{}, nil
}

func (s *turnGiver) AcquireTurn(context.Context, *rotav1.AcquireTurnRequest) (*rotav1.AcquireTurnResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &rotav1.AcquireTurnResponse{
		Turn:          proto.CloneOf(s.turn),
		LeaseDuration: durationpb.New(time.Minute), LeaseMargin: durationpb.New(time.Second),
	}, nil
}

func (s *turnGiver) RenewTurn(context.Context, *rotav1.RenewTurnRequest) (*rotav1.RenewTurnResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	time.Sleep(100 * time.Millisecond) // the command starts
	s.turn.State, s.turn.Revision = s.then, 2
	return &rotav1.RenewTurnResponse{Turn: proto.CloneOf(s.turn), Renewed: s.then == rotav1.TurnState_TURN_STATE_HELD}, nil
}

func (s *turnGiver) YieldTurn(context.Context, *rotav1.YieldTurnRequest) (*rotav1.YieldTurnResponse, error) {
	return &rotav1.YieldTurnResponse{}, nil
}

// TestALostTurnSaysSo: how it was lost, and what became of the command.
func TestALostTurnSaysSo(t *testing.T) {
	s := &turnGiver{then: rotav1.TurnState_TURN_STATE_LOST, turn: &rotav1.Turn{
		Id: 7, Token: 5, Revision: 1, State: rotav1.TurnState_TURN_STATE_HELD, SetUpNeeded: true,
	}}
	all := services{}
	all.add(rotav1connect.NewTurnServiceHandler(s, codec.ForHandler()))
	all.add(rotav1connect.NewOperatorServiceHandler(s, codec.ForHandler()))
	addr := serve(t, all)

	for want, args := range map[string][]string{
		"sleep was stopped": {"--", "sleep", "60"},
		"the set-up hook was stopped, and sleep not started": {"--set-up-hook", "sleep 60", "--", "sleep", "60"},
	} {
		s.mu.Lock()
		s.turn.State = rotav1.TurnState_TURN_STATE_HELD
		s.mu.Unlock()
		var out, errOut bytes.Buffer
		code := run(t.Context(), append([]string{"turn", "run", "--addr", addr, "--deployment", "a/b"}, args...), &out, &errOut)
		want = "rota: turn 7 was lost: the cluster gave it up, since its lease was not renewed in time; " + want
		if code != exitTurnLost || strings.TrimSpace(errOut.String()) != want {
			t.Errorf("%q exits with %d and says\n%swant\n%s", args, code, errOut.String(), want)
		}
	}
}
