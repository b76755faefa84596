package rpc_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/server/rpc"
)

// outage is a cluster without a leader, as one server sees it.
type outage struct {
	*world
	peers []*rotav1.Peer
	// views are the members that others answer with, by their address. A server that is
	// not in it does not answer.
	views map[string][]*rotav1.Peer
}

func (o *outage) Leader() (id, addr string) { return "", "" }

// ReadIndex and Propose wait for a leader, which never comes.
func (o *outage) ReadIndex(ctx context.Context) (uint64, error) {
	select {
	case <-ctx.Done():
	case <-time.After(3 * time.Second):
	}
	return 0, errNoLeader
}

func (o *outage) Peers(context.Context) (list []*rotav1.Peer, _ error) {
	for _, p := range o.peers {
		list = append(list, &rotav1.Peer{Id: p.Id, Address: p.Address, Voter: p.Voter})
	}
	return list, nil
}

// other is another server, to the one that asks it.
type other struct {
	rotav1connect.OperatorServiceClient
	o    *outage
	addr string
}

func (s other) ListPeers(context.Context, *rotav1.ListPeersRequest) (*rotav1.ListPeersResponse, error) {
	if view, ok := s.o.views[s.addr]; ok {
		return &rotav1.ListPeersResponse{Peers: view}, nil
	}
	return nil, connect.NewError(connect.CodeUnavailable, errNoLeader)
}

func member(id string, voter, leader bool) *rotav1.Peer {
	return &rotav1.Peer{Id: id, Address: id, Voter: voter, Leader: leader}
}

// TestAnOutageIsExplained: a server without a leader says who is missing, at once and not
// when it has waited for a leader.
func TestAnOutageIsExplained(t *testing.T) {
	three := []*rotav1.Peer{member("s1", true, false), member("s2", true, false), member("s3", true, false)}
	led := []*rotav1.Peer{member("s2", true, true), member("s3", true, false)}
	var many []*rotav1.Peer
	for _, id := range strings.Split("s1 s2 s3 s4 s5 s6 s7 s8 s9", " ") {
		many = append(many, member(id, true, false))
	}
	for _, tt := range []struct {
		name   string
		peers  []*rotav1.Peer
		views  map[string][]*rotav1.Peer
		reason string
		want   string
		retry  bool
	}{
		{"two of three are away", three, nil, "NO_QUORUM", "1 of 3 voters answers; s2 and s3 do not", true},
		{"one of two is away", three[:2], nil, "NO_QUORUM", "1 of 2 voters answers; s2 does not", true},
		{"non-voters do not count", []*rotav1.Peer{three[0], three[1], member("s4", false, false)}, map[string][]*rotav1.Peer{"s4": three},
			"NO_QUORUM", "1 of 2 voters answers; s2 does not", true},
		{"many are away", many, map[string][]*rotav1.Peer{"s9": many}, "NO_QUORUM",
			"2 of 9 voters answer; s2, s3, s4, s5, s6, s7 and 1 more do not", true},
		{"removed, and knows it", three[1:], map[string][]*rotav1.Peer{"s2": led}, "NOT_A_MEMBER",
			"server s1 is not a member of the cluster, since it was removed: call a member instead, such as s2 at s2 or s3 at s3", false},
		{"removed, and does not know it", three, map[string][]*rotav1.Peer{"s2": led, "s3": led}, "NOT_A_MEMBER", "since it was removed", false},
		{"not joined yet", nil, nil, "NO_LEADER", "belongs to no cluster yet", true},
		{"an election", three, map[string][]*rotav1.Peer{"s2": three}, "NO_LEADER", "no leader at the moment", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := &outage{peers: tt.peers, views: tt.views}
			o.world = newWorld(t, func(d *rpc.Deps) {
				d.Replica, d.Cluster = o, o
				d.Operator = func(addr string) rotav1connect.OperatorServiceClient { return other{o: o, addr: addr} }
			})
			begin := time.Now()
			_, err := o.actions().GetAction(t.Context(), &rotav1.GetActionRequest{Id: 1})
			d := detailOf(err)
			if d.GetReason() != tt.reason || !strings.Contains(d.GetMessage(), tt.want) || (d.GetRetryDelay() != nil) != tt.retry {
				t.Errorf("got %v, want %s with %q", d, tt.reason, tt.want)
			}
			if took := time.Since(begin); tt.want != "no leader at the moment" && took > 2*time.Second {
				t.Errorf("it took %v", took)
			}
			_, err = o.operators().RemovePeer(t.Context(), &rotav1.RemovePeerRequest{Id: "s9"})
			if d := detailOf(err); d.GetReason() != tt.reason {
				t.Errorf("a change of members: %v", err)
			}
		})
	}
}

// TestPeersAreListedWithoutALeader, and with who answers.
func TestPeersAreListedWithoutALeader(t *testing.T) {
	three := []*rotav1.Peer{member("s1", true, false), member("s2", true, false), member("s3", true, false)}
	o := &outage{peers: three, views: map[string][]*rotav1.Peer{"s3": three}}
	o.world = newWorld(t, func(d *rpc.Deps) {
		d.Replica, d.Cluster = o, o
		d.Operator = func(addr string) rotav1connect.OperatorServiceClient { return other{o: o, addr: addr} }
	})
	resp, err := o.operators().ListPeers(t.Context(), &rotav1.ListPeersRequest{AllowStale: true, Contact: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, answers := range []bool{true, false, true} {
		if p := resp.Peers[i]; p.Answers == nil || p.GetAnswers() != answers {
			t.Errorf("got %v", p)
		}
	}
	if _, err := o.operators().ListPools(t.Context(), &rotav1.ListPoolsRequest{AllowStale: true}); err != nil {
		t.Errorf("pools: %v", err)
	}
}

// detailOf is what rota says about an error.
func detailOf(err error) *rotav1.ErrorDetail {
	var ce *connect.Error
	if errors.As(err, &ce) && len(ce.Details()) > 0 {
		if v, err := ce.Details()[0].Value(); err == nil {
			d, _ := v.(*rotav1.ErrorDetail)
			return d
		}
	}
	return nil
}
