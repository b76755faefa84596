package rpc_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/fsm/state"
	"rota/server/rpc"
)

// otherServer is a second member that may support another feature level.
type otherServer struct {
	rotav1connect.OperatorServiceClient
	known state.Level
	err   error
}

// ofTwo is a cluster with that member.
type ofTwo struct{ rpc.Cluster }

func (c ofTwo) Peers(ctx context.Context) ([]*rotav1.Peer, error) {
	peers, err := c.Cluster.Peers(ctx)
	return append(peers, &rotav1.Peer{Id: "s2", Address: "127.0.0.1:2"}), err
}

func (o *otherServer) GetStatus(context.Context, *rotav1.GetStatusRequest) (*rotav1.GetStatusResponse, error) {
	return &rotav1.GetStatusResponse{ServerId: "s2", FeatureLevelMax: uint32(o.known)}, o.err
}

// A barrier that one server does not know would stop that server for ever, so
// none is committed before every server has said that it knows it.
func TestNoLevelIsRaisedThatAServerDoesNotKnow(t *testing.T) {
	const active = state.LevelMax
	for _, c := range []struct {
		name   string
		level  state.Level
		here   state.Level
		there  otherServer
		reason string
	}{
		{"not known here", 9, active, otherServer{known: 9}, "LEVEL_UNSUPPORTED"},
		{"not known there", 9, 9, otherServer{known: active}, "LEVEL_UNSUPPORTED"},
		{"nobody there", 9, 9, otherServer{known: 9, err: errors.New("refused")}, "SERVER_UNREACHABLE"},
		{"known to all, and active", active, 9, otherServer{known: 9}, "LEVEL_ACTIVE"},
		{"the newest that all know is active", 0, 9, otherServer{known: active}, "LEVEL_ACTIVE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, func(d *rpc.Deps) {
				d.LevelMax, d.Cluster = c.here, ofTwo{d.Cluster}
				d.Operator = func(string) rotav1connect.OperatorServiceClient { return &c.there }
			})
			_, err := w.operators().RaiseLevel(t.Context(), &rotav1.RaiseLevelRequest{Level: uint32(c.level)})
			if got := client.Detail(err).GetReason(); got != c.reason {
				t.Errorf("refused with %q, want %q: %v", got, c.reason, err)
			}
			w.machine.View(func(s *state.State) {
				if got := s.Meta().Level; got != active {
					t.Errorf("level %d is active", got)
				}
			})
		})
	}
}

// adding is a cluster in which something happens while a server is being added.
type adding struct {
	rpc.Cluster
	during func()
}

func (a adding) AddPeer(context.Context, string, string, bool) error {
	a.during()
	return nil
}

// TestNoLevelIsRaisedWhileAServerIsAdded: else the server would not have been asked for the levels
// that it knows.
func TestNoLevelIsRaisedWhileAServerIsAdded(t *testing.T) {
	var w *world
	var raised error
	w = newWorld(t, func(d *rpc.Deps) {
		d.Cluster = adding{d.Cluster, func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, raised = w.operators().RaiseLevel(ctx, &rotav1.RaiseLevelRequest{Level: uint32(state.LevelMax)})
		}}
		d.LevelMax = state.LevelMax
		d.Operator = func(string) rotav1connect.OperatorServiceClient { return &otherServer{known: state.LevelMax} }
	})
	if _, err := w.operators().AddPeer(t.Context(), &rotav1.AddPeerRequest{Id: "s2", Address: "127.0.0.1:2"}); err != nil {
		t.Fatal(err)
	}
	if connect.CodeOf(raised) != connect.CodeDeadlineExceeded {
		t.Errorf("a level that was raised meanwhile: %v", raised)
	}
	if _, err := w.operators().RaiseLevel(t.Context(), &rotav1.RaiseLevelRequest{Level: uint32(state.LevelMax)}); client.Detail(err).GetReason() != "LEVEL_ACTIVE" {
		t.Errorf("a level that is raised then: %v", err)
	}
}

// TestAServerThatDoesNotKnowTheLevelIsNotAdded: it would have to stop.
func TestAServerThatDoesNotKnowTheLevelIsNotAdded(t *testing.T) {
	added := false
	w := newWorld(t, func(d *rpc.Deps) {
		d.Cluster = adding{d.Cluster, func() { added = true }}
		d.Operator = func(string) rotav1connect.OperatorServiceClient { return &otherServer{known: state.LevelMax - 1} }
	})
	_, err := w.operators().AddPeer(t.Context(), &rotav1.AddPeerRequest{Id: "s2", Address: "127.0.0.1:2"})
	if client.Detail(err).GetReason() != "LEVEL_UNSUPPORTED" || added {
		t.Errorf("it is added: %v, %v", added, err)
	}
}
