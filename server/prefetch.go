package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
	"rota/sched"
)

const (
	// prefetchEvery is how often a leader looks who comes next.
	prefetchEvery = time.Second
	// prefetchRemembered is for how long the request ID of a prefetch hook is.
	prefetchRemembered = time.Hour
)

// prefetchRun is a prefetch hook on its way. It is an action like any other.
type prefetchRun struct {
	*Server
	what, id, pool string
	expires        int64 // log time
	namespace      state.NamespaceID
	action         []byte
}

// prefetch has the prefetch hooks run of deployments that the ledger foresees, while
// others still have their groups (PlexRL §4.4), until ctx is done. It is a hint: that
// one fails is told and changes nothing.
func (s *Server) prefetch(ctx context.Context) {
	done := map[string]bool{} // those of now and of the round before
	for {
		sleep(ctx, prefetchEvery)
		if ctx.Err() != nil {
			return
		}
		due := s.foreseen()
		now := make(map[string]bool, len(due))
		for _, r := range due {
			if now[r.id] = true; done[r.id] {
				continue
			}
			if id, err := r.submitOnce(ctx); err != nil {
				s.logger.Info("a prefetch hook was not submitted", "hook", r.what, "error", err)
			} else {
				s.logger.Debug("a prefetch hook was submitted", "hook", r.what, "action", id)
			}
		}
		done = now
	}
}

func (r *prefetchRun) submitOnce(ctx context.Context) (uint64, error) {
	c, err := r.command()
	if err != nil {
		return 0, err
	}
	results, err := r.replica.ProposeLocal(ctx, c)
	if err != nil {
		return 0, err
	}
	if f := results[0].Refusal; f != nil {
		return 0, fmt.Errorf("it was refused: %s", f.Message)
	}
	return results[0].FirstId, nil
}

func (r *prefetchRun) command() (*logv1.Command, error) {
	a := &logv1.Action{}
	if err := a.UnmarshalVT(r.action); err != nil {
		return nil, fmt.Errorf("its action cannot be decoded: %w", err)
	}
	a.Pool = r.pool
	c := &logv1.SubmitActions{
		Request: &logv1.Request{Id: r.id, ExpireNs: r.expires, Digest: xxhash.Sum64(r.action)}, Actions: []*logv1.Action{a},
	}
	r.machine.View(func(st *state.State) {
		if ns := st.Namespace(r.namespace); ns != nil {
			c.Namespace = ns.Name
		}
	})
	if c.Namespace == "" {
		return nil, errors.New("its namespace is gone")
	}
	return &logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: c}}, nil
}

// foreseen returns the prefetch hooks of those who come next and whose time is near.
func (s *Server) foreseen() (due []*prefetchRun) {
	st := s.machine.Fork()
	st.NodeGroups(func(g *state.NodeGroup) bool {
		if g.Halted == "" && hasPrefetch(st, g) {
			if r := s.foreseenOn(st, g); r != nil {
				due = append(due, r)
			}
		}
		return true
	})
	return due
}

func hasPrefetch(st *state.State, g *state.NodeGroup) (has bool) {
	st.GroupJobs(g.ID, func(j *state.Job) bool {
		has = prefetched(st, j) >= 0
		return !has
	})
	return has
}

// prefetched returns which deployment of a job is to be prefetched when its time comes:
// that of the turn that waits for the longest, else the first that has a hook. -1: none.
func prefetched(st *state.State, j *state.Job) int {
	first, waits := -1, false
	for i := range j.Deployments {
		if first < 0 && len(j.Deployments[i].Prefetch) > 0 {
			first = i
		}
	}
	st.JobTurns(j.ID, func(t *state.Turn) bool {
		if t.State == state.TurnWaiting && !waits {
			_, first = t.Deployment.Job()
			waits = true
		}
		return !waits
	})
	if first >= 0 && len(j.Deployments[first].Prefetch) == 0 {
		return -1
	}
	return first
}

// foreseenOn returns the hook of who has a group next, nil if there is none or it is too
// early. Each time that a job comes to its group it is prefetched once.
func (s *Server) foreseenOn(st *state.State, g *state.NodeGroup) *prefetchRun {
	j, at := sched.Foreseen(st, g)
	if j == nil {
		return nil
	}
	i := prefetched(st, j)
	if i < 0 || j.Deployment(i) == g.Resident {
		return nil
	}
	hook := j.Deployments[i].Prefetch
	if at-st.Meta().Now > hookTimeout(hook)+int64(prefetchEvery) {
		return nil
	}
	return &prefetchRun{
		Server: s, what: "prefetch hook of " + deploymentName(st, j.Deployment(i)),
		id:      fmt.Sprintf("\x00prefetch-%d-%d", j.Deployment(i), j.YieldedAt),
		expires: st.Meta().Now + int64(prefetchRemembered), namespace: j.Namespace, pool: g.HookPool, action: hook,
	}
}

// hookTimeout is how long a hook may run.
func hookTimeout(hook []byte) int64 {
	var a logv1.Action
	var spec rotav1.ActionSpec
	if a.UnmarshalVT(hook) != nil || spec.UnmarshalVT(a.Spec) != nil {
		return 0
	}
	return int64(spec.RunTimeout.AsDuration())
}
