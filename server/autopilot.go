package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/internal/clock"
	"rota/server/autopilot"
	"rota/server/replica"
)

const (
	// autopilotInterval is the pause between two looks at all servers.
	autopilotInterval = time.Second
	// autopilotTimeout bounds one change of members.
	autopilotTimeout = 10 * time.Second
)

// runAutopilot watches the servers while this one leads, and changes members as far as its
// settings allow that.
func (s *Server) runAutopilot(ctx context.Context) {
	defer s.pilot.Store(nil)
	began := clock.Now()
	pilot := autopilot.New(s.cfg.Autopilot)
	tick := time.NewTicker(autopilotInterval)
	defer tick.Stop()
	for said := ""; ; {
		if seen, err := s.survey(ctx); err == nil {
			pilot.Observe(clock.Now().Sub(began), seen)
			s.pilot.Store(s.autopilotState(pilot))
			err := s.follow(ctx, pilot)
			if err != nil && err.Error() != said && ctx.Err() == nil { // once, not at every look
				s.logger.Warn("autopilot could not change the members, and tries again", "error", err)
			}
			if said = ""; err != nil {
				said = err.Error()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// survey is what autopilot sees.
func (s *Server) survey(ctx context.Context) ([]autopilot.Server, error) {
	sights, err := s.replica.Survey(ctx)
	if err != nil {
		return nil, err
	}
	newest := s.replica.Status().Applied
	servers := make([]autopilot.Server, len(sights))
	for i, seen := range sights {
		v := autopilot.Server{ID: seen.ID, Address: seen.Address, Voter: seen.Voter, Leader: seen.ID == s.cfg.ID, Zone: seen.Zone, Applied: seen.Applied}
		switch {
		case errors.Is(seen.Err, replica.ErrNotReady):
			v.Dead, v.Reason = true, "does not answer"
		case seen.Err != nil:
			v.CannotVote, v.Reason = true, seen.Err.Error()
		case seen.Quarantine != "":
			v.CannotVote, v.Reason = true, "in quarantine: "+seen.Quarantine
		case seen.Applied+behindMax < newest:
			v.Reason = fmt.Sprintf("%d entries behind", newest-seen.Applied)
		}
		servers[i] = v
	}
	return servers, nil
}

// follow makes the one change that is due, if any is.
func (s *Server) follow(ctx context.Context, pilot *autopilot.Pilot) error {
	verb, v := pilot.Next()
	if verb == autopilot.Wait {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, autopilotTimeout)
	defer cancel()
	var err error
	what := "removed a server"
	switch verb {
	case autopilot.Promote:
		what = "gave a server a vote"
		err = s.replica.AddPeer(ctx, v.ID, v.Address, true)
	case autopilot.Demote:
		what = "took the vote of a server whose zone has another voter"
		err = s.replica.DemotePeer(ctx, v.ID)
	default:
		err = s.replica.RemovePeer(ctx, v.ID)
	}
	if err == nil {
		s.logger.Info("autopilot "+what, "server", v.ID, "address", v.Address, "zone", v.Zone, "after", pilot.For(v))
	}
	return err
}

// autopilotState is what an operator is shown.
func (s *Server) autopilotState(pilot *autopilot.Pilot) *rotav1.GetAutopilotResponse {
	set := s.cfg.Autopilot
	resp := &rotav1.GetAutopilotResponse{
		Healthy: pilot.Healthy(), FailureTolerance: uint32(pilot.Tolerance()), Enabled: set.Enabled,
		PromoteAfter: durationpb.New(set.PromoteAfter), RemoveAfter: durationpb.New(set.RemoveAfter), VotersMin: uint32(set.VotersMin),
	}
	for _, v := range pilot.Servers() {
		resp.Servers = append(resp.Servers, &rotav1.AutopilotServer{
			Id: v.ID, Address: v.Address, Voter: v.Voter, Leader: v.Leader, Healthy: v.Healthy(), Reason: v.Reason,
			Since: durationpb.New(pilot.For(v)), AppliedIndex: v.Applied, Next: pilot.Plan(v), Zone: v.Zone,
		})
	}
	return resp
}
