package leader

import (
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/go-hclog"

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

// prefetches has the prefetch hooks run of deployments that the ledger foresees, while
// others still have their groups (PlexRL §4.4). It is a hint: a failure is logged and
// changes nothing.
type prefetches struct {
	machine Machine
	logger  hclog.Logger
	// done are the request IDs of those that were due at the last look and need not be submitted again.
	done map[string]bool
	sent []prefetch // what is under way
	next int64
}

// prefetch is a prefetch hook. It is an action like any other.
type prefetch struct {
	what, id, pool string
	expires        int64 // log time
	namespace      state.NamespaceID
	action         []byte
}

func (p *prefetches) propose(now Time) (commands []*logv1.Command, again int64) {
	if now.Mono < p.next {
		return nil, p.next
	}
	p.next = now.Mono + int64(prefetchEvery)
	p.sent = nil
	due := map[string]bool{}
	s := p.machine.Fork()
	for _, f := range foreseen(s) {
		if due[f.id] = true; p.done[f.id] {
			continue
		}
		c, err := f.command(s)
		if err != nil {
			p.logger.Info("a prefetch hook was not submitted", "hook", f.what, "error", err)
			continue
		}
		commands, p.sent = append(commands, c), append(p.sent, f)
	}
	p.done = due
	return commands, p.next
}

func (p *prefetches) answered(_ Time, results []*logv1.Result) {
	for i, f := range p.sent {
		switch refusal := refusalOf(results, i); {
		case results == nil:
			p.logger.Info("a prefetch hook was not submitted; trying again", "hook", f.what)
			delete(p.done, f.id)
		case refusal != nil:
			p.logger.Info("a prefetch hook was refused; trying again", "hook", f.what, "reason", refusal.Message)
			delete(p.done, f.id)
		default:
			p.logger.Debug("a prefetch hook was submitted", "hook", f.what, "action", results[i].FirstId)
		}
	}
}

func (f *prefetch) command(s *state.State) (*logv1.Command, error) {
	a := &logv1.Action{}
	if err := a.UnmarshalVT(f.action); err != nil {
		return nil, fmt.Errorf("its action cannot be decoded: %w", err)
	}
	ns := s.Namespace(f.namespace)
	if ns == nil {
		return nil, errors.New("its namespace is gone")
	}
	a.Pool = f.pool
	return &logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{
		Request:   &logv1.Request{Id: f.id, ExpireNs: f.expires, Digest: xxhash.Sum64(f.action)},
		Namespace: ns.Name, Actions: []*logv1.Action{a},
	}}}, nil
}

// foreseen returns the prefetch hooks of those who come next and whose time is near.
func foreseen(s *state.State) (due []prefetch) {
	s.NodeGroups(func(g *state.NodeGroup) bool {
		if g.Halted == "" && hasPrefetch(s, g) {
			if f, ok := foreseenOn(s, g); ok {
				due = append(due, f)
			}
		}
		return true
	})
	return due
}

func hasPrefetch(s *state.State, g *state.NodeGroup) (has bool) {
	s.GroupJobs(g.ID, func(j *state.Job) bool {
		has = prefetched(s, j) >= 0
		return !has
	})
	return has
}

// prefetched returns which deployment of a job is to be prefetched when its time comes:
// that of the turn that waits for the longest, else the first that has a hook. -1: none.
func prefetched(s *state.State, j *state.Job) int {
	first, waits := -1, false
	for i := range j.Deployments {
		if first < 0 && len(j.Deployments[i].Prefetch) > 0 {
			first = i
		}
	}
	s.JobTurns(j.ID, func(t *state.Turn) bool {
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

// foreseenOn returns the hook of the job that has a group next, unless there is none or it
// is too early. Each time that a job comes to its group it is prefetched once.
func foreseenOn(s *state.State, g *state.NodeGroup) (f prefetch, ok bool) {
	j, at := sched.Foreseen(s, g)
	if j == nil {
		return f, false
	}
	i := prefetched(s, j)
	if i < 0 || j.Deployment(i) == g.Resident {
		return f, false
	}
	hook := j.Deployments[i].Prefetch
	if at-s.Meta().Now > hookTimeout(hook)+int64(prefetchEvery) {
		return f, false
	}
	return prefetch{
		what:    "prefetch hook of " + DeploymentName(s, j.Deployment(i)),
		id:      fmt.Sprintf("\x00prefetch-%d-%d", j.Deployment(i), j.YieldedAt),
		expires: s.Meta().Now + int64(prefetchRemembered), namespace: j.Namespace, pool: g.HookPool, action: hook,
	}, true
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
