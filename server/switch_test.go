package server

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/raft"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm"
	"rota/fsm/state"
)

// TestReasonsOfHooksFitTheLog whatever a hook has written: one that is refused would be
// told again and again, and the group stay closed.
func TestReasonsOfHooksFitTheLog(t *testing.T) {
	long := "wake hook of " + strings.Repeat("n", 128) + "/" + strings.Repeat("j", 128) + "/" + strings.Repeat("d", 128)
	for name, err := range map[string]error{
		"short":   errors.New("exit code 1 "),
		"long":    errors.New(strings.Repeat("x", 2000)),
		"cut":     errors.New(strings.Repeat("\u00e9", 2000)),
		"cut off": errors.New("x" + strings.Repeat("\u00e9", 2000)),
		"binary":  errors.New(strings.Repeat("\xff", 2000)),
	} {
		got := hookMessage(long, err)
		if len(got) > hookMessageMax || !utf8.ValidString(got) || !strings.HasPrefix(got, long+": ") || strings.HasSuffix(got, " ") {
			t.Errorf("%s: %q, with %d bytes", name, got, len(got))
		}
	}
}

// TestFailureOfAHook: what it wrote last says most.
func TestFailureOfAHook(t *testing.T) {
	for want, a := range map[string]*state.Action{
		"is CANCELED": {State: state.ActionState(rotav1.ActionState_ACTION_STATE_CANCELED)},
		"is FAILED (EXITED, exit code 3) " + strings.Repeat("y", hookOutputMax-1): {
			State: state.ActionState(rotav1.ActionState_ACTION_STATE_FAILED),
			Result: &state.Result{
				Reason: state.EndReason(rotav1.EndReason_END_REASON_EXITED), ExitCode: 3, Stderr: []byte("begin" + strings.Repeat("y", hookOutputMax-1) + "\n"),
			},
		},
	} {
		if got := failure(a); got != want {
			t.Errorf("says %q, want %q", got, want)
		}
	}
}

// changing is a group that changes hands by one hook, in a state machine without Raft
// that keeps ended actions for a second.
type changing struct {
	t       *testing.T
	machine *fsm.Machine
	index   uint64
	hook    hookRun
}

func (c *changing) apply(at time.Duration, command *logv1.Command) *logv1.Result {
	c.t.Helper()
	c.index++
	data, err := (&logv1.Entry{TimeNs: int64(at), Commands: []*logv1.Command{command}}).MarshalVT()
	if err != nil {
		c.t.Fatal(err)
	}
	r := c.machine.Apply(&raft.Log{Index: c.index, Data: data}).([]*logv1.Result)[0]
	if r.Refusal != nil {
		c.t.Fatal(r.Refusal)
	}
	return r
}

func newChanging(t *testing.T) *changing {
	t.Helper()
	c := &changing{t: t, machine: fsm.New(fsm.Options{})}
	c.hook = hookRun{Server: &Server{machine: c.machine}, group: 1, token: 1}
	wake := &logv1.Action{CoresMin: 1, CoresMax: 1, AttemptsMax: 1}
	for _, command := range []*logv1.Command{
		{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{ClusterId: "c", Settings: &logv1.Settings{RetentionNs: int64(time.Second)}}}},
		{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Name: "n", JournalId: "j", NumaNodes: []*logv1.NumaNode{{Cpus: []uint32{0}}}}}},
		{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: &logv1.CreateNodeGroup{Name: "g", Nodes: 1}}},
		{Verb: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{
			Name: "j", Nodes: 1, Backfill: true, Hooks: []*logv1.DeploymentHooks{{Deployment: "d", Wake: wake, Sleep: wake}},
		}}},
		{Verb: &logv1.Command_AcquireTurn{AcquireTurn: &logv1.AcquireTurn{Job: "j", Deployment: "d", ExpectNs: 1}}},
		{Verb: &logv1.Command_SubmitHook{SubmitHook: &logv1.SubmitHook{GroupId: 1, Token: 1, Number: 1}}},
	} {
		c.apply(0, command)
	}
	return c
}

// TestTheEndOfAHookOutlivesItsAction: a hook that has succeeded counts as that, also if
// nobody looked before its action was dropped.
func TestTheEndOfAHookOutlivesItsAction(t *testing.T) {
	for _, tc := range []struct {
		exit        int32
		kept, later string // how it failed, as is said at once and later; empty: it did not
	}{
		{0, "", ""},
		{3, "action 1 is FAILED (EXITED, exit code 3) no such model", "action 1 is FAILED (EXITED, exit code 3)"},
	} {
		c := newChanging(t)
		if over, err := c.hook.ended(); over || err != nil {
			t.Fatalf("exit code %d: over %v while it runs, %v", tc.exit, over, err)
		}
		c.apply(time.Second, &logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: &logv1.ReportAttempts{
			Node: "n", Incarnation: 1, Reports: []*logv1.AttemptReport{{
				ActionId: 1, Attempt: 1, Reason: uint32(state.EndExited), ExitCode: tc.exit, StderrTail: []byte("no such model"),
			}},
		}}})
		c.mustEnd(tc.kept)
		c.apply(time.Minute, &logv1.Command{Verb: &logv1.Command_Tick{Tick: &logv1.Tick{}}})
		c.machine.View(func(st *state.State) {
			if st.Action(1) != nil {
				t.Fatal("the action is still kept: nothing is tested")
			}
		})
		c.mustEnd(tc.later)
	}
}

func (c *changing) mustEnd(failed string) {
	c.t.Helper()
	over, err := c.hook.ended()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if !over || got != failed {
		c.t.Errorf("over: %v, failed: %q, want that it is over and %q", over, got, failed)
	}
}

// TestAHookOfAChangeThatIsOver: nobody waits for it any more.
func TestAHookOfAChangeThatIsOver(t *testing.T) {
	c := newChanging(t)
	c.apply(0, &logv1.Command{Verb: &logv1.Command_EndSwitch{EndSwitch: &logv1.EndSwitch{GroupId: 1, Token: 1}}})
	if over, err := c.hook.ended(); !over || !errors.Is(err, errSwitchOver) {
		t.Errorf("over: %v, %v", over, err)
	}
}
