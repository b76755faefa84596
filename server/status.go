package server

import (
	"context"
	"fmt"
	"net/http"

	"rota/api/pki"
	"rota/fsm/state"
	"rota/internal/telemetry"
	"rota/server/replica"
)

// behindMax is how many entries a server that is ready may be behind what is committed.
const behindMax = 10_000

// statusRoutes adds metrics, health, and what operators may ask.
func (s *Server) statusRoutes(root *http.ServeMux) {
	for path, h := range map[string]http.Handler{
		"/metrics": telemetry.MetricsHandler(s.metrics.registry),
		"/livez":   telemetry.HealthHandler(telemetry.Alive),
		"/readyz":  telemetry.HealthHandler(s.readiness),
	} {
		root.Handle(path, s.only(h, pki.RoleServer, pki.RoleOperator, pki.RoleClient))
	}
	root.Handle("/debug/", s.only(telemetry.Debug{
		Logger: s.logger, Recent: s.cfg.Recent, Settings: s.cfg.Flags, State: s.debugState,
	}.Handler(), pki.RoleOperator))
}

// readiness says whether this server can answer reads and writes, and why not.
func (s *Server) readiness() []telemetry.Check {
	status := s.replica.Status()
	behind := status.Commit - min(status.Commit, status.Applied)
	return []telemetry.Check{
		telemetry.Require("running", !s.stopping.Load(), "the server is stopping"),
		telemetry.Require("healthy", status.Failed == "", status.Failed),
		telemetry.Require("cluster", s.machine.Bootstrapped(), "the server belongs to no cluster yet; start the other servers of --bootstrap, or join it: rota operator raft join"),
		telemetry.Require("leader", status.LeaderID != "", "the server knows no leader; check that a majority of the servers is up: rota operator raft list-peers --stale"),
		telemetry.Require("vote", !status.Quarantined, "the server is in quarantine until it has caught up with a leader: "+status.Reason),
		telemetry.Require("caught_up", behind <= behindMax, fmt.Sprintf("the server is %d entries behind what is committed; wait, or look at its disk", behind)),
	}
}

// debugState describes this server and its cluster without what actions contain.
func (s *Server) debugState() any {
	var meta state.Meta
	var counts state.Counts
	s.machine.View(func(st *state.State) { meta, counts = *st.Meta(), st.Counts() })
	peers, err := s.replica.Peers(context.Background())
	index, hash := s.machine.Hash()
	d := struct {
		Version   string
		Raft      replica.Status
		Peers     any
		PeersErr  string `json:",omitempty"`
		Meta      state.Meta
		Counts    state.Counts
		HashIndex uint64
		Hash      string
		Readiness []telemetry.Check
	}{s.cfg.Version, s.replica.Status(), peers, "", meta, counts, index, fmt.Sprintf("%016x", hash), s.readiness()}
	if err != nil {
		d.PeersErr = err.Error()
	}
	return d
}
