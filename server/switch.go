package server

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

const (
	// hookPoll is how often a leader looks whether a group changes hands, and how far
	// hooks are.
	hookPoll = 50 * time.Millisecond
	// hookRetry is how long it waits after a hook was refused, which may pass: its
	// agent registers, a queue gets shorter.
	hookRetry = time.Second
	// hookPatience is for how long it is tried.
	hookPatience = time.Minute
	// hookRemembered is for how long the IDs of hooks are. It covers two hooks, each
	// with the most that it may wait and run.
	hookRemembered = time.Hour
	// hookOutputMax is how much of what a hook wrote is in the reason that it failed.
	hookOutputMax = 256
	// hookMessageMax is how long that reason may be altogether.
	hookMessageMax = 1024
)

// switches has the hooks run of groups that change hands, until ctx is done, which is
// when leadership ends. What is to be run is in the row of the group, and is submitted
// with an ID that only depends on the grant. So a new leader goes on where the one
// before was, and nothing runs twice.
func (s *Server) switches(ctx context.Context) {
	running := map[uint64]bool{} // by token
	ended := make(chan uint64)
	for {
		for _, w := range s.pendingSwitches() {
			if !running[w.Token] {
				running[w.Token] = true
				go func() {
					s.runSwitch(ctx, w)
					ended <- w.Token
				}()
			}
		}
		select {
		case <-time.After(hookPoll):
		case token := <-ended:
			delete(running, token)
		case <-ctx.Done():
			for range running {
				<-ended
			}
			return
		}
	}
}

// pendingSwitch is a switch with its group.
type pendingSwitch struct {
	*state.Switch
	group state.GroupID
	pool  string
}

func (s *Server) pendingSwitches() (all []pendingSwitch) {
	s.machine.View(func(st *state.State) {
		st.NodeGroups(func(g *state.NodeGroup) bool {
			if g.Switch != nil {
				all = append(all, pendingSwitch{g.Switch, g.ID, g.HookPool})
			}
			return true
		})
	})
	return all
}

// runSwitch runs the hooks of a switch one after the other, until one fails.
func (s *Server) runSwitch(ctx context.Context, w pendingSwitch) {
	end := &logv1.EndSwitch{GroupId: uint64(w.group), Token: w.Token}
	for i, h := range w.Hooks {
		run := hookRun{
			Server: s, what: s.hookName(h), id: fmt.Sprintf("\x00switch-%d-%d", w.Token, i), expires: w.Began + int64(hookRemembered),
			namespace: h.Namespace, pool: w.pool, action: h.Action,
		}
		err := run.toTheEnd(ctx)
		if ctx.Err() != nil {
			return // the next leader goes on with it
		}
		if err != nil {
			end.Failed, end.Message = uint32(i+1), hookMessage(run.what, err)
			s.logger.Warn("a hook failed", "hook", run.what, "token", w.Token, "error", err)
			break
		}
	}
	for ctx.Err() == nil {
		_, err := s.replica.ProposeLocal(ctx, &logv1.Command{Verb: &logv1.Command_EndSwitch{EndSwitch: end}})
		if err == nil {
			return // a refusal says that it was over
		}
		sleep(ctx, hookPoll)
	}
}

// hookMessage says why a hook failed, as the log takes it: a reason that is refused for
// its length leaves the group closed, and text that is not UTF-8 is sent to nobody.
func hookMessage(what string, err error) string {
	text := strings.TrimSpace(strings.ToValidUTF8(fmt.Sprintf("%s: %v", what, err), "?"))
	return strings.ToValidUTF8(text[:min(len(text), hookMessageMax)], "") // without a character that was cut
}

// hookName says "wake hook of default/job-a/actor".
func (s *Server) hookName(h state.Hook) (name string) {
	kind := "sleep"
	if h.Wakes {
		kind = "wake"
	}
	s.machine.View(func(st *state.State) { name = deploymentName(st, h.Deployment) })
	return kind + " hook of " + name
}

func deploymentName(st *state.State, id state.DeploymentID) string {
	if j, d := st.Deployment(id); d != nil {
		return st.Namespace(j.Namespace).Name + "/" + j.Name + "/" + d.Name
	}
	return "a deployment that is gone"
}

// hookRun is one hook on its way. It is an action like any other.
type hookRun struct {
	*Server
	what, id, pool string
	expires        int64 // log time
	namespace      state.NamespaceID
	action         []byte
}

// toTheEnd submits the action and waits until it has ended. An error says how it failed,
// or that leadership ended.
func (r *hookRun) toTheEnd(ctx context.Context) error {
	id, err := r.submit(ctx)
	if err != nil {
		return err
	}
	for ; ctx.Err() == nil; sleep(ctx, hookPoll) {
		if over, err := r.ended(state.ActionID(id)); over {
			return err
		}
	}
	return ctx.Err()
}

// submit has the action queued, once whoever asks and how often, and returns its ID.
func (r *hookRun) submit(ctx context.Context) (uint64, error) {
	c, err := r.command()
	if err != nil {
		return 0, err
	}
	for began := time.Now(); ; {
		results, err := r.replica.ProposeLocal(ctx, c)
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case err != nil:
			sleep(ctx, hookPoll)
			continue
		case results[0].Refusal == nil:
			return results[0].FirstId, nil
		case time.Since(began) > hookPatience:
			return 0, fmt.Errorf("it was refused for %v: %s", hookPatience, results[0].Refusal.Message)
		}
		r.logger.Debug("a hook was refused; trying again", "hook", r.what, "reason", results[0].Refusal.Message)
		sleep(ctx, hookRetry)
	}
}

func (r *hookRun) command() (*logv1.Command, error) {
	a := &logv1.Action{}
	if err := a.UnmarshalVT(r.action); err != nil {
		return nil, fmt.Errorf("its action cannot be decoded: %w", err)
	}
	a.Pool = r.pool
	c := &logv1.SubmitActions{
		Request: &logv1.Request{Id: r.id, ExpireNs: r.expires, Digest: xxhash.Sum64(r.action)}, Actions: []*logv1.Action{a},
	}
	r.machine.View(func(st *state.State) { c.Namespace = st.Namespace(r.namespace).Name })
	return &logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: c}}, nil
}

// ended reports whether the action is over, and how it failed.
func (r *hookRun) ended(id state.ActionID) (over bool, err error) {
	r.machine.View(func(st *state.State) {
		a := st.Action(id)
		switch {
		case a == nil:
			over, err = true, fmt.Errorf("action %d ended and is not kept any more", id)
		case !a.State.Final():
		case a.State == state.ActionSucceeded:
			over = true
		default:
			over, err = true, fmt.Errorf("action %d %s", id, failure(a))
		}
	})
	return over, err
}

// failure says how an action failed, with the end of what it wrote.
func failure(a *state.Action) string {
	text := "is " + rotav1.ActionState(a.State).String()[len("ACTION_STATE_"):]
	r := a.Result
	if r == nil {
		return text
	}
	text += " (" + rotav1.EndReason(r.Reason).String()[len("END_REASON_"):]
	if r.ExitCode != 0 {
		text += ", exit code " + strconv.Itoa(int(r.ExitCode))
	}
	text += ")"
	for _, more := range []string{r.Message, string(r.Stderr[max(0, len(r.Stderr)-hookOutputMax):])} {
		if more = strings.TrimSpace(more); more != "" {
			text += " " + more
		}
	}
	return text
}
