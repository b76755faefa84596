package rpc_test

import (
	"context"
	"errors"
	"testing"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/fsm/state"
	"rota/sched"
	"rota/server/rpc"
)

// otherServer is a second member that may know another version of the scheduler.
type otherServer struct {
	rotav1connect.OperatorServiceClient
	known uint32
	err   error
}

// ofTwo is a cluster with that member.
type ofTwo struct{ rpc.Cluster }

func (c ofTwo) Peers(ctx context.Context) ([]*rotav1.Peer, error) {
	peers, err := c.Cluster.Peers(ctx)
	return append(peers, &rotav1.Peer{Id: "s2", Address: "127.0.0.1:2"}), err
}

func (o *otherServer) GetStatus(context.Context, *rotav1.GetStatusRequest) (*rotav1.GetStatusResponse, error) {
	return &rotav1.GetStatusResponse{ServerId: "s2", SchedulerVersionMax: o.known}, o.err
}

// A barrier that one server does not know would stop that server for ever, so
// none is committed before every server has said that it knows it.
func TestNoSchedulerIsActivatedThatAServerDoesNotKnow(t *testing.T) {
	for _, c := range []struct {
		name    string
		version uint32
		here    uint32
		there   otherServer
		reason  string
	}{
		{"no version", 0, 9, otherServer{known: 9}, "INVALID"},
		{"not known here", 9, 1, otherServer{known: 9}, "SCHEDULER_UNSUPPORTED"},
		{"not known there", 9, 9, otherServer{known: 1}, "SCHEDULER_UNSUPPORTED"},
		{"nobody there", 9, 9, otherServer{known: 9, err: errors.New("refused")}, "SERVER_UNREACHABLE"},
		{"known to all, and active", sched.Version, 9, otherServer{known: 9}, "SCHEDULER_VERSION"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, func(d *rpc.Deps) {
				d.SchedulerVersion, d.Cluster = c.here, ofTwo{d.Cluster}
				d.Operator = func(string) rotav1connect.OperatorServiceClient { return &c.there }
			})
			_, err := w.operators().ActivateScheduler(t.Context(), &rotav1.ActivateSchedulerRequest{Version: c.version})
			if got := client.Detail(err).GetReason(); got != c.reason {
				t.Errorf("refused with %q, want %q: %v", got, c.reason, err)
			}
			w.machine.View(func(s *state.State) {
				if got := s.Meta().SchedulerVersion; got != sched.Version {
					t.Errorf("version %d is active", got)
				}
			})
		})
	}
}
