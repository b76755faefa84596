package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

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
	// hookOutputMax is how much of what a hook wrote is in the reason that it failed.
	hookOutputMax = 256
	// hookMessageMax is how long that reason may be altogether.
	hookMessageMax = 1024
)

// switches has the hooks run of groups that change hands, until ctx is done, which is
// when leadership ends. What is to be run is in the row of the group, and so is what was
// run and how it ended. So a new leader goes on where the one before was, whenever that
// is, and nothing runs twice.
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
}

func (s *Server) pendingSwitches() (all []pendingSwitch) {
	s.machine.View(func(st *state.State) {
		st.NodeGroups(func(g *state.NodeGroup) bool {
			if g.Switch != nil {
				all = append(all, pendingSwitch{g.Switch, g.ID})
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
		what := ""
		s.machine.View(func(st *state.State) { what = hookName(st, h) })
		run := hookRun{Server: s, what: what, group: w.group, token: w.Token, number: i}
		err := run.toTheEnd(ctx)
		if ctx.Err() != nil || errors.Is(err, errSwitchOver) {
			return // the next leader goes on with it, or there is nothing to go on with
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

func deploymentName(st *state.State, id state.DeploymentID) string {
	if j, d := st.Deployment(id); d != nil {
		return st.Namespace(j.Namespace).Name + "/" + j.Name + "/" + d.Name
	}
	return "a deployment that is gone"
}

// hookRun is one hook on its way. It is an action like any other, which its group knows.
type hookRun struct {
	*Server
	what   string
	group  state.GroupID
	token  uint64
	number int // counted from 0
}

// errSwitchOver: the group does not change hands any more, or for somebody else.
var errSwitchOver = errors.New("the change of hands is over")

// toTheEnd has the hook queued and waits until it has ended. An error says how it
// failed, or that leadership ended.
func (r *hookRun) toTheEnd(ctx context.Context) error {
	if err := r.submit(ctx); err != nil {
		return err
	}
	for ; ctx.Err() == nil; sleep(ctx, hookPoll) {
		if over, err := r.ended(); over {
			return err
		}
	}
	return ctx.Err()
}

// submit has the hook queued, once whoever asks and how often.
func (r *hookRun) submit(ctx context.Context) error {
	c := &logv1.Command{Verb: &logv1.Command_SubmitHook{SubmitHook: &logv1.SubmitHook{
		GroupId: uint64(r.group), Token: r.token, Number: uint32(r.number) + 1,
	}}}
	for began := time.Now(); ; {
		results, err := r.replica.ProposeLocal(ctx, c)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			sleep(ctx, hookPoll)
			continue
		case results[0].Refusal == nil:
			return nil
		case results[0].Refusal.Reason == "SWITCH_OVER":
			return errSwitchOver
		case time.Since(began) > hookPatience:
			return fmt.Errorf("it was refused for %v: %s", hookPatience, results[0].Refusal.Message)
		}
		r.logger.Debug("a hook was refused; trying again", "hook", r.what, "reason", results[0].Refusal.Message)
		sleep(ctx, hookRetry)
	}
}

// ended reports whether the hook is over, and how it failed.
func (r *hookRun) ended() (over bool, err error) {
	r.machine.View(func(st *state.State) {
		g := st.NodeGroup(r.group)
		if g == nil || g.Switch == nil || g.Switch.Token != r.token {
			over, err = true, errSwitchOver
		} else if r.number < len(g.Switch.Runs) {
			over, err = hookEnd(st, &g.Switch.Runs[r.number])
		}
	})
	return over, err
}

// hookEnd says whether the action of a hook is over, and how it failed. The action
// itself says more of that, for as long as it is kept.
func hookEnd(st *state.State, run *state.HookRun) (over bool, err error) {
	switch {
	case !run.State.Final():
		return false, nil
	case run.State == state.ActionSucceeded:
		return true, nil
	}
	a := st.Action(run.Action)
	if a == nil {
		a = &state.Action{State: run.State, Result: &state.Result{Reason: run.Reason, ExitCode: run.ExitCode}}
	}
	return true, fmt.Errorf("action %d %s", run.Action, failure(a))
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
