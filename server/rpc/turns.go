package rpc

import (
	"context"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// renewWaitParts: a renewal is held back for at most this part of a lease, so that the
// next one comes in time.
const renewWaitParts = 3

// AcquireTurn asks for a turn.
func (s *Server) AcquireTurn(ctx context.Context, req *rotav1.AcquireTurnRequest) (*rotav1.AcquireTurnResponse, error) {
	if err := checkAcquire(req).err(); err != nil {
		return nil, err
	}
	job, deployment, _ := splitDeployment(req.Deployment)
	turn := &logv1.AcquireTurn{
		Namespace: orDefault(req.Namespace), Job: job, Deployment: deployment,
		Operation: uint32(req.Operation), Step: req.Step, Preemptible: req.Preemptible,
		ExpectNs: int64(req.Expect.AsDuration()), SetUpNs: int64(req.SetUp.AsDuration()), LimitNs: int64(req.Limit.AsDuration()),
	}
	turn.Request = request(req.RequestId, req.ExpireTime, func(d *xxhash.Digest) { digestTurn(d, turn) })
	result, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_AcquireTurn{AcquireTurn: turn}})
	if err != nil {
		return nil, err
	}
	resp := &rotav1.AcquireTurnResponse{Replayed: result.Replayed}
	s.Machine.View(func(st *state.State) {
		resp.LeaseDuration, resp.LeaseMargin = leaseSettings(st)
	})
	resp.Turn, err = s.turn(result.FirstId)
	return resp, err
}

func digestTurn(d *xxhash.Digest, turn *logv1.AcquireTurn) {
	for _, text := range []string{turn.Namespace, turn.Job, turn.Deployment} {
		digestText(d, text)
	}
	for _, n := range []uint64{
		uint64(turn.Operation), turn.Step, uint64(turn.ExpectNs), uint64(turn.SetUpNs), uint64(turn.LimitNs), digit(turn.Preemptible),
	} {
		digestNumber(d, n)
	}
}

// RenewTurn renews the lease of a turn, and waits for news of it.
func (s *Server) RenewTurn(ctx context.Context, req *rotav1.RenewTurnRequest) (*rotav1.RenewTurnResponse, error) {
	if err := firstOf(requireID("turn_id", req.TurnId), checkDuration("wait", req.Wait)).err(); err != nil {
		return nil, err
	}
	subscriber := s.Events.follow(subject{state.EventTurn, req.TurnId})
	defer s.Events.leave(subscriber)
	renewed, err := s.Deps.RenewTurn(ctx, req.TurnId, req.Token)
	if err != nil {
		return nil, err
	}
	resp := &rotav1.RenewTurnResponse{Renewed: renewed}
	s.Machine.View(func(st *state.State) {
		resp.LeaseDuration, resp.LeaseMargin = leaseSettings(st)
	})
	resp.Turn, err = s.turn(req.TurnId)
	if !renewed || err != nil || resp.Turn.Token < req.Token { // the news may not have arrived here yet
		if err := s.catchUp(ctx, false); err != nil {
			return nil, err
		}
		resp.Turn, err = s.turn(req.TurnId)
	}
	if renewed && err == nil {
		resp.Turn, err = s.awaitNews(ctx, subscriber, req, resp)
	}
	return resp, err
}

// awaitNews returns a turn as soon as it is another than the caller knows, or when
// the caller has waited long enough.
func (s *Server) awaitNews(ctx context.Context, w *subscriber, req *rotav1.RenewTurnRequest, resp *rotav1.RenewTurnResponse) (*rotav1.Turn, error) {
	wait := time.NewTimer(min(req.Wait.AsDuration(), resp.LeaseDuration.AsDuration()/renewWaitParts))
	defer wait.Stop()
	for t := resp.Turn; ; {
		if isNews(t, req) {
			return t, nil
		}
		select {
		case <-w.wake:
		case <-wait.C:
			return t, nil
		case <-s.draining.Done():
			return t, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		var err error
		if t, err = s.turn(req.TurnId); err != nil {
			return nil, err
		}
	}
}

// isNews: a turn that is set up is no news until it is ready, but for its token.
func isNews(t *rotav1.Turn, known *rotav1.RenewTurnRequest) bool {
	live := state.TurnState(t.State).Live() || t.State == rotav1.TurnState_TURN_STATE_SETTING_UP
	return !live || t.Token != known.Token || t.Stop && !known.StopKnown || t.ReadyTime != nil && known.SettingUp ||
		known.KnownDegraded != nil && t.Degraded != known.GetKnownDegraded()
}

// YieldTurn ends a turn.
func (s *Server) YieldTurn(ctx context.Context, req *rotav1.YieldTurnRequest) (*rotav1.YieldTurnResponse, error) {
	if err := firstOf(requireID("turn_id", req.TurnId), checkDuration("set_up", req.SetUp)).err(); err != nil {
		return nil, err
	}
	end := &logv1.EndTurn{TurnId: req.TurnId, Token: req.Token, Reason: logv1.TurnEnd_TURN_END_YIELDED, SetUpNs: int64(req.SetUp.AsDuration())}
	if req.Token == 0 || req.Failed {
		end.Reason = logv1.TurnEnd_TURN_END_CANCELED
	}
	if _, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_EndTurn{EndTurn: end}}); err != nil {
		return nil, err
	}
	turn, err := s.turn(req.TurnId)
	if err != nil { // dropped since
		turn = &rotav1.Turn{Id: req.TurnId, Token: req.Token, State: rotav1.TurnState_TURN_STATE_YIELDED}
		if end.Reason == logv1.TurnEnd_TURN_END_CANCELED {
			turn.State = rotav1.TurnState_TURN_STATE_CANCELED
		}
	}
	return &rotav1.YieldTurnResponse{Turn: turn}, nil
}

// GetTurn returns one turn.
func (s *Server) GetTurn(ctx context.Context, req *rotav1.GetTurnRequest) (*rotav1.GetTurnResponse, error) {
	if err := requireID("turn_id", req.TurnId).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	turn, err := s.turn(req.TurnId)
	if err == nil {
		turn.WaitingFor = s.turnWaitsFor(req.TurnId)
	}
	return &rotav1.GetTurnResponse{Turn: turn}, err
}

func (s *Server) turnWaitsFor(id uint64) (text string) {
	now := s.LogTime()
	s.Machine.View(func(st *state.State) {
		if t := st.Turn(state.TurnID(id)); t != nil {
			text = s.ExplainTurn(st, t, now)
		}
	})
	return text
}

func (s *Server) turn(id uint64) (m *rotav1.Turn, err error) {
	s.Machine.View(func(st *state.State) {
		switch t := st.Turn(state.TurnID(id)); {
		case t != nil:
			m = turnMessage(st, t)
		case state.TurnID(id) <= st.Meta().LastTurn:
			err = notFound("TURN_NOT_FOUND", "turn %d has ended and is no longer kept", id)
		default:
			err = notFound("TURN_NOT_FOUND", "there is no turn %d: correct the ID", id)
		}
	})
	return m, err
}

// ListTurns returns a page of turns.
func (s *Server) ListTurns(ctx context.Context, req *rotav1.ListTurnsRequest) (*rotav1.ListTurnsResponse, error) {
	p, v := newPage(req.PageSize, req.PageToken, 4, hashText(orDefault(req.Namespace)), hashText(req.Job), digit(req.IncludeEnded))
	if err := firstOf(checkName("namespace", req.Namespace), checkName("job", req.Job), v).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st := s.Machine.Fork()
	namespace, err := namespaceID(st, req.Namespace)
	if err != nil {
		return nil, err
	}
	only := state.JobID(0)
	if req.Job != "" {
		j, err := findJob(st, req.Namespace, req.Job)
		if err != nil {
			return nil, err
		}
		only = j.ID
	}
	resp := &rotav1.ListTurnsResponse{}
	c := &collector{page: p}
	st.Turns(state.TurnID(p.after), func(t *state.Turn) bool {
		return c.visit(uint64(t.ID), func() proto.Message {
			id, _ := t.Deployment.Job()
			j := st.Job(id)
			if j == nil || j.Namespace != namespace || only != 0 && id != only || !t.State.Live() && !req.IncludeEnded {
				return nil
			}
			return appendRow(&resp.Turns, turnMessage(st, t))
		})
	})
	resp.NextPageToken = c.nextToken()
	return resp, nil
}

func turnMessage(st *state.State, t *state.Turn) *rotav1.Turn {
	wall := wallOf(st)
	m := &rotav1.Turn{
		Id: uint64(t.ID), Operation: rotav1.Operation(t.Operation), State: rotav1.TurnState(t.State), Step: t.Step,
		Expect: duration(t.ExecNS), SetUp: duration(t.SetUpNS), Limit: duration(t.LimitNS), Preemptible: t.Preemptible,
		Stop: t.Stop, Token: t.Token, ReadyTime: wall.timestamp(t.ReadyAt), Message: t.Message,
		ArriveTime: wall.timestamp(t.ArrivedAt), GrantTime: wall.timestamp(t.GrantedAt), EndTime: wall.timestamp(t.EndedAt), Revision: t.Revision,
	}
	if t.State == state.TurnHeld && st.SettingUp(t) {
		m.State = rotav1.TurnState_TURN_STATE_SETTING_UP
	}
	id, i := t.Deployment.Job()
	if j := st.Job(id); j != nil {
		m.Namespace, m.Job = namespaceName(st, j.Namespace), j.Name
		if i < len(j.Deployments) {
			m.Deployment = j.Deployments[i].Name
			m.SetUpNeeded = t.SetUp && len(j.Deployments[i].Wake) == 0
		}
	}
	if g := st.NodeGroup(t.Group); g != nil {
		m.Group, m.Nodes = g.Name, uint32(g.Nodes)
		if t.State == state.TurnHeld {
			m.Degraded = degradedText(st, g)
		}
	}
	return m
}
