package rpc

import (
	"context"
	"math"

	"google.golang.org/protobuf/types/known/durationpb"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// CreateQuota makes a limit that actions may name.
func (s *Server) CreateQuota(ctx context.Context, req *rotav1.CreateQuotaRequest) (*rotav1.CreateQuotaResponse, error) {
	if err := checkNewQuota(req).err(); err != nil {
		return nil, err
	}
	q, err := s.changeQuota(ctx, req.Name, &logv1.Command{Verb: &logv1.Command_CreateQuota{CreateQuota: &logv1.CreateQuota{
		Name: req.Name, Kind: uint32(req.Kind), Limit: req.Limit, WindowNs: int64(req.Window.AsDuration()), Keys: max(1, req.Keys),
		Adaptive: req.Adaptive,
	}}})
	return &rotav1.CreateQuotaResponse{Quota: q}, err
}

// UpdateQuota changes what is granted from now on.
func (s *Server) UpdateQuota(ctx context.Context, req *rotav1.UpdateQuotaRequest) (*rotav1.UpdateQuotaResponse, error) {
	if err := firstOf(requireName("name", req.Name), checkQuotaSize(req.Limit, req.Keys)).err(); err != nil {
		return nil, err
	}
	q, err := s.changeQuota(ctx, req.Name, &logv1.Command{Verb: &logv1.Command_UpdateQuota{UpdateQuota: &logv1.UpdateQuota{
		Name: req.Name, Limit: req.Limit, Keys: req.Keys, Resume: req.Resume, Adaptive: req.Adaptive,
	}}})
	return &rotav1.UpdateQuotaResponse{Quota: q}, err
}

// changeQuota commits a change and returns the quota as it is then.
func (s *Server) changeQuota(ctx context.Context, name string, command *logv1.Command) (*rotav1.Quota, error) {
	if _, err := s.change(ctx, command); err != nil {
		return nil, err
	}
	if q, err := s.quota(name); err == nil {
		return q, nil
	}
	return &rotav1.Quota{Name: name}, nil // deleted since; the change was made all the same
}

// GetQuota returns one quota.
func (s *Server) GetQuota(ctx context.Context, req *rotav1.GetQuotaRequest) (*rotav1.GetQuotaResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	q, err := s.quota(req.Name)
	return &rotav1.GetQuotaResponse{Quota: q}, err
}

func (s *Server) quota(name string) (m *rotav1.Quota, err error) {
	now := s.LogTime()
	s.Machine.View(func(st *state.State) {
		if q := st.QuotaByName(name); q != nil {
			m = quotaMessage(st, q, now)
			return
		}
		err = notFound("QUOTA_NOT_FOUND", "there is no quota %q: ListQuotas has their names", name)
	})
	return m, err
}

// ListQuotas returns all quotas.
func (s *Server) ListQuotas(ctx context.Context, req *rotav1.ListQuotasRequest) (*rotav1.ListQuotasResponse, error) {
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	resp := &rotav1.ListQuotasResponse{}
	st, now := s.Machine.Fork(), s.LogTime()
	st.Quotas(func(q *state.Quota) bool {
		resp.Quotas = append(resp.Quotas, quotaMessage(st, q, now))
		return true
	})
	return resp, nil
}

// DeleteQuota forgets a quota that nothing needs.
func (s *Server) DeleteQuota(ctx context.Context, req *rotav1.DeleteQuotaRequest) (*rotav1.DeleteQuotaResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_DeleteQuota{DeleteQuota: &logv1.DeleteQuota{Name: req.Name}}})
	return &rotav1.DeleteQuotaResponse{}, err
}

func quotaMessage(st *state.State, q *state.Quota, now int64) *rotav1.Quota {
	held, windowed, _ := q.Total()
	m := &rotav1.Quota{
		Name: q.Name, Kind: rotav1.QuotaKind(q.Kind), Limit: q.Limit, Window: duration(q.WindowNS), Keys: q.Keys,
		HeldUnits: held, WindowUnits: windowed, WaitingActions: uint64(st.Waiting(state.QueueOf(state.QuotaQueue, q.ID))), Halted: q.Halted,
		Adaptive: q.Adaptive, ThrottledAttempts: q.Throttled, EffectiveUnits: q.AllEffective(), PausedFor: pause(q.PausedForAll(), now),
		SettledAttempts: q.Settled, SettledUnits: q.SettledUnits, OverdrawnUnits: q.Overdrawn(),
	}
	if due, ok := st.NextReturn(q.ID); ok {
		m.NextReturn = duration(max(1, due-max(now, st.Meta().Now)))
	}
	for i, use := range q.Uses {
		if i < int(q.Keys) || use.InUse() > 0 {
			key := uint32(i)
			m.KeyUses = append(m.KeyUses, &rotav1.QuotaKeyUse{
				Key: key + 1, HeldUnits: use.Held, WindowUnits: uint32(min(use.Windowed, math.MaxUint32)),
				EffectiveUnits: q.Effective(key), PausedFor: pause(q.PausedUntil(key), now),
			})
		}
	}
	return m
}

// pause is how long one goes on, nil if it is over.
func pause(until, now int64) *durationpb.Duration {
	return duration(max(0, until-now))
}
