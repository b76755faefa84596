package leader

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

const (
	// hookPace is the least time between two looks at context switches, and how
	// far hooks are.
	hookPace = 10 * time.Millisecond
	// hookRetry is how long it waits after a hook was refused, which may pass: its
	// agent registers, a queue gets shorter.
	hookRetry = time.Second
	// hookPatience is for how long it is tried. The time in which the queue is full does not count:
	// there will be room, and a hook that fails may halt its group.
	hookPatience = time.Minute
	// hookOutputMax is how much of what a hook wrote is in the reason that it failed.
	hookOutputMax = 256
	// hookMessageMax is how long that reason may be altogether.
	hookMessageMax = 1024
)

// contextSwitches has the hooks of context switches run, one hook after the other. What
// is to be run is in the row of the group, and so is what was run and how it ended. So a new leader
// goes on where the one before was, whenever that is, and nothing runs twice.
type contextSwitches struct {
	machine Machine
	logger  hclog.Logger
	// refused has the hooks that could not be queued so far.
	refused map[hookKey]refusal
	// asked are the hooks of the commands that are under way.
	asked []hookKey
}

// hookKey is one hook of one change of hands.
type hookKey struct {
	token  uint64
	number int // counted from 0
}

// refusal is since when a hook has been refused though the queue had room, when it is tried again, and
// why.
type refusal struct {
	since, next int64
	why         string
}

func (w *contextSwitches) propose(now Time) (commands []*logv1.Command, again int64) {
	w.asked = nil
	live := map[hookKey]refusal{}
	w.machine.View(func(s *state.State) {
		s.NodeGroups(func(g *state.NodeGroup) bool {
			if g.ContextSwitch == nil {
				return true
			}
			key := hookKey{g.ContextSwitch.Token, len(g.ContextSwitch.Runs)}
			if r, ok := w.refused[key]; ok {
				live[key] = r
			}
			if c := w.step(s, g, key, now); c != nil {
				commands, w.asked = append(commands, c), append(w.asked, key)
			}
			return true
		})
	})
	w.refused = live
	if len(live) > 0 {
		return commands, now.Mono + int64(hookRetry)
	}
	return commands, never // when the state changes
}

// step returns the next command of a change of hands, nil if it is to be waited for: for
// the hook that runs, or until one that was refused is tried again. key is the hook that
// is next.
func (w *contextSwitches) step(s *state.State, g *state.NodeGroup, key hookKey, now Time) *logv1.Command {
	if n := len(g.ContextSwitch.Runs); n > 0 {
		over, why := HookEnd(s, &g.ContextSwitch.Runs[n-1])
		switch {
		case !over:
			return nil
		case why != "":
			return w.failed(s, g, n-1, why)
		}
	}
	if key.number == len(g.ContextSwitch.Hooks) {
		return endContextSwitch(g, 0, "")
	}
	r, refused := w.refused[key]
	switch {
	case refused && now.Mono-r.since > int64(hookPatience):
		return w.failed(s, g, key.number, fmt.Sprintf("it was refused for %v: %s", hookPatience, r.why))
	case refused && now.Mono < r.next:
		return nil
	}
	return &logv1.Command{Verb: &logv1.Command_SubmitHook{SubmitHook: &logv1.SubmitHook{
		GroupId: uint64(g.ID), Token: key.token, Number: uint32(key.number) + 1,
	}}}
}

func (w *contextSwitches) answered(now Time, results []*logv1.Result) {
	for i, key := range w.asked {
		f := refusalOf(results, i)
		if f == nil || f.Reason == "CONTEXT_SWITCH_OVER" {
			continue // queued; or the group does not change hands any more
		}
		r, again := w.refused[key]
		if !again || f.Reason == "QUEUE_FULL" || f.Reason == "NAMESPACE_QUEUE_FULL" {
			r.since = now.Mono
		}
		r.next, r.why = now.Mono+int64(hookRetry), f.Message
		w.refused[key] = r
		w.logger.Debug("a hook was refused; trying again", "token", key.token, "hook", key.number+1, "reason", f.Message)
	}
}

// failed ends a change of hands by a hook that failed, counted from 0.
func (w *contextSwitches) failed(s *state.State, g *state.NodeGroup, hook int, why string) *logv1.Command {
	what := HookName(s, g.ContextSwitch.Hooks[hook])
	w.logger.Warn("a hook failed", "hook", what, "token", g.ContextSwitch.Token, "error", why)
	return endContextSwitch(g, hook+1, hookMessage(what, why))
}

func endContextSwitch(g *state.NodeGroup, failed int, message string) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_EndContextSwitch{EndContextSwitch: &logv1.EndContextSwitch{
		GroupId: uint64(g.ID), Token: g.ContextSwitch.Token, Failed: uint32(failed), Message: message,
	}}}
}

// hookMessage says why a hook failed, as the log takes it: a reason that is refused for
// its length leaves the group closed, and text that is not UTF-8 is never sent.
func hookMessage(what, why string) string {
	text := strings.TrimSpace(strings.ToValidUTF8(what+": "+why, "?"))
	return strings.ToValidUTF8(text[:min(len(text), hookMessageMax)], "") // without a character that was cut
}

// HookName says "wake hook of default/job-a/actor".
func HookName(s *state.State, h state.Hook) string {
	kind := "sleep"
	if h.Wakes {
		kind = "wake"
	}
	return kind + " hook of " + DeploymentName(s, h.Deployment)
}

// DeploymentName says "default/job-a/actor".
func DeploymentName(s *state.State, id state.DeploymentID) string {
	if j, d := s.Deployment(id); d != nil {
		return s.Namespace(j.Namespace).Name + "/" + j.Name + "/" + d.Name
	}
	return "a deployment that is gone"
}

// HookEnd says whether the action of a hook is over, and how it failed; empty: it has
// succeeded. The action itself says more of that, for as long as it is kept.
func HookEnd(s *state.State, run *state.HookRun) (over bool, failure string) {
	switch {
	case !run.State.Final():
		return false, ""
	case run.State == state.ActionSucceeded:
		return true, ""
	}
	a := s.Action(run.Action)
	if a == nil {
		a = &state.Action{State: run.State, Result: &state.Result{Reason: run.Reason, ExitCode: run.ExitCode}}
	}
	return true, fmt.Sprintf("action %d %s", run.Action, describe(a))
}

// describe says how an action failed, with the end of what it wrote.
func describe(a *state.Action) string {
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
