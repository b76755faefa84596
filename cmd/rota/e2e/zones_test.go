package e2e

import (
	"strings"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
)

// TestASpareTakesTheVoteOfItsZone: a server joins in the zone of another and stays a spare. The
// voter, which leads, is killed; the next leader knows its zone and gives the vote to the spare.
// The dead server comes back as the spare.
func TestASpareTakesTheVoteOfItsZone(t *testing.T) {
	pilot := []string{"--autopilot", "--autopilot-promote-after", "1s"}
	w := newWorld(t, lease{time.Minute, time.Second}, devcluster.Config{
		Servers: 3, ServerArgs: append(pilot, "--zone", "of-{{name}}"),
	})
	old := w.cluster.Server("server-1")
	s4 := w.emptyServer("server-4")
	s4.Args = append(s4.Args, append(pilot, "--zone", "of-server-1")...)
	if err := s4.Start(); err != nil {
		t.Fatal(err)
	}
	w.until("server-4 has joined", func() bool {
		_, err := w.api.Operator.AddPeer(t.Context(), &rotav1.AddPeerRequest{Id: s4.Name, Address: s4.Addr})
		return err == nil
	})
	w.transfer(old)
	w.until("server-4 is a spare", func() bool {
		v := w.seen(s4.Name)
		return v.GetHealthy() && !v.Voter && v.Next == "is a spare: zone of-server-1 has the voter server-1"
	})
	w.until("all servers know the zones", func() bool {
		return w.seen(s4.Name).GetSince().AsDuration() > 3*time.Second
	})
	old.Kill()
	w.until("the spare has the vote", func() bool { return w.seen(s4.Name).GetVoter() && !w.seen(old.Name).GetVoter() })
	if v := w.seen(old.Name); v.GetHealthy() || v.GetZone() != "of-server-1" {
		t.Errorf("the dead server: %v", v)
	}
	if err := old.Start(); err != nil {
		t.Fatal(err)
	}
	w.until("the dead server is the spare", func() bool {
		v := w.seen(old.Name)
		return v.GetHealthy() && !v.Voter && strings.HasPrefix(v.Next, "is a spare")
	})
	if out, _, _, code := w.rota(s4.Addr, "operator", "autopilot", "state"); code != 0 || strings.Count(out, "of-server-1") < 2 {
		t.Errorf("rota operator autopilot state: %d %s", code, out)
	}
}

// seen is a server as the leader sees it; nil if there is no answer.
func (w *world) seen(name string) *rotav1.AutopilotServer {
	s, err := w.api.Operator.GetAutopilot(w.Context(), &rotav1.GetAutopilotRequest{})
	if err != nil {
		return nil
	}
	for _, v := range s.Servers {
		if v.Id == name {
			return v
		}
	}
	return nil
}
