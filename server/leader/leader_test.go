package leader

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/server/lease"
)

// cluster is a cluster of one without Raft: what its leader proposes is applied at once,
// unless proposals are lost. It keeps ended actions for a second.
type cluster struct {
	*testing.T
	machine *fsm.Machine
	leases  *lease.Table
	leader  *Leader
	now     Time
	index   uint64
	lost    bool
	// refused is the verb of the leader's commands that are refused.
	refused string
	// proposed counts the commands of the leader, by verb.
	proposed map[string]int
}

const leaseNS, marginNS = int64(10 * time.Second), int64(2 * time.Second)

func newCluster(t *testing.T) *cluster {
	c := &cluster{T: t, machine: fsm.New(fsm.Options{}), now: Time{1, int64(time.Second)}, proposed: map[string]int{}}
	c.leases = lease.New(c.machine.View, func() time.Time { return time.Unix(0, c.now.Mono) })
	c.leases.Lead()
	c.leader = New(Config{
		Machine: c.machine, Leases: c.leases, Logger: hclog.NewNullLogger(),
		Bootstrap: &logv1.Bootstrap{ClusterId: "c", Settings: &logv1.Settings{
			LeaseNs: leaseNS, LeaseMarginNs: marginNS, RetentionNs: int64(time.Second), QueueActionsMax: 1,
		}},
	}, c.now)
	return c
}

func (c *cluster) apply(commands ...*logv1.Command) []*logv1.Result {
	c.Helper()
	c.index++
	data, err := (&logv1.Entry{TimeNs: c.now.Log, Commands: commands}).MarshalVT()
	if err != nil {
		c.Fatal(err)
	}
	results, err := c.machine.ApplyData(c.index, 0, data)
	if err != nil {
		c.Fatal(err)
	}
	c.leader.Applied()
	return results
}

// must applies commands that are not refused.
func (c *cluster) must(commands ...*logv1.Command) {
	c.Helper()
	for _, r := range c.apply(commands...) {
		if r.Refusal != nil {
			c.Fatal(r.Refusal)
		}
	}
}

// pass lets time pass, in which the leader does what is to be done.
func (c *cluster) pass(d time.Duration) {
	c.Helper()
	for end := c.now.Mono + int64(d); ; {
		proposals, again := c.leader.Next(c.now)
		for _, p := range proposals {
			var verb string // all have the same
			for _, command := range p.Commands {
				verb = strings.TrimPrefix(fmt.Sprintf("%T", command.Verb), "*logv1.Command_")
				c.proposed[verb]++
			}
			var results []*logv1.Result
			switch {
			case verb == c.refused:
				results = slices.Repeat([]*logv1.Result{{Refusal: &logv1.Refusal{Reason: "REFUSED"}}}, len(p.Commands))
			case !c.lost:
				results = c.apply(p.Commands...)
			}
			c.leader.Answered(c.now, p, results)
		}
		if len(proposals) > 0 {
			continue
		}
		step := min(again, end) - c.now.Mono
		if step <= 0 && again < end {
			c.Fatalf("asked to come back at %d, which is past at %d", again, c.now.Mono)
		}
		c.now.Mono, c.now.Log = c.now.Mono+step, c.now.Log+step
		if c.now.Mono >= end {
			return
		}
	}
}

func (c *cluster) view(what func(*state.State)) { c.machine.View(what) }

func registration(name string) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{
		Name: name, JournalId: "j", NumaNodes: []*logv1.NumaNode{{Cpus: []uint32{0}}},
	}}}
}

// TestBootstrapIsTriedUntilItIsKnown: a leader takes commands as soon as it is ready, so
// that of an agent may be applied, and refused, before the bootstrap.
func TestBootstrapIsTriedUntilItIsKnown(t *testing.T) {
	c := newCluster(t)
	if r := c.apply(registration("n"))[0]; r.GetRefusal().GetReason() != "NOT_BOOTSTRAPPED" {
		t.Fatal(r)
	}
	c.lost = true
	c.pass(time.Second)
	if n := c.proposed["Bootstrap"]; n < 9 || n > 11 {
		t.Errorf("proposed %d times in a second", n)
	}
	c.lost = false
	c.pass(time.Second)
	before := c.proposed["Bootstrap"]
	c.pass(time.Minute)
	if !c.machine.Bootstrapped() || c.proposed["Bootstrap"] != before {
		t.Errorf("bootstrapped: %v; proposed %d times, then %d", c.machine.Bootstrapped(), before, c.proposed["Bootstrap"])
	}
}

// TestATickComesWhenSomethingIsDue, not before, and not all the time after.
func TestATickComesWhenSomethingIsDue(t *testing.T) {
	c := newCluster(t)
	c.pass(time.Second)
	c.must(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{
		Actions: []*logv1.Action{{CoresMin: 1, CoresMax: 1, AttemptsMax: 1, QueueTimeoutNs: int64(20 * time.Second)}},
	}}})
	before := c.proposed["Tick"]
	c.pass(19 * time.Second)
	if n := c.proposed["Tick"] - before; n > 1 { // the submission's work
		t.Errorf("%d ticks before anything is due", n)
	}
	c.pass(2 * time.Second)
	c.view(func(s *state.State) {
		if s.Counts().Queued != 0 {
			t.Error("the action still waits after its time is over")
		}
	})
	if n := c.proposed["Tick"] - before; n > 6 {
		t.Errorf("%d ticks for one action", n)
	}
}

// TestEveryOverdueNodeIsGivenUp though they do not fit into one entry, and again after a
// proposal that was lost.
func TestEveryOverdueNodeIsGivenUp(t *testing.T) {
	c := newCluster(t)
	c.pass(time.Second)
	const nodes = 2*expireBatch + 1
	for i := range nodes {
		c.must(registration(fmt.Sprint("n", i)))
	}
	c.pass(time.Duration(leaseNS))
	if n := c.proposed["ExpireNode"]; n > 0 {
		t.Fatalf("%d nodes were given up before their time", n)
	}
	c.lost = true
	c.pass(time.Duration(2*marginNS) + 2*expiryPause)
	if n := c.proposed["ExpireNode"]; n == 0 {
		t.Fatal("no node is given up")
	}
	c.lost = false
	before := c.index
	c.pass(2 * expiryPause)
	c.view(func(s *state.State) {
		if s.Counts().NodesUp > 0 {
			t.Errorf("%d nodes are up", s.Counts().NodesUp)
		}
	})
	if n := c.index - before; n != 3 {
		t.Errorf("%d entries, want 3", n)
	}
}

// handover makes a group that changes hands by a wake hook, whose pool has a node.
func handover(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	c.pass(time.Second)
	c.must(registration("n"))
	c.handOver()
	return c
}

func (c *cluster) handOver() {
	c.Helper()
	hook := &logv1.Action{CoresMin: 1, CoresMax: 1, AttemptsMax: 1}
	c.must(
		&logv1.Command{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: &logv1.CreateNodeGroup{Name: "g", Nodes: 1}}},
		&logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{
			Name: "j", Nodes: 1, Backfill: true, Hooks: []*logv1.DeploymentHooks{{Deployment: "d", Wake: hook, Sleep: hook}},
		}}},
		&logv1.Command{Verb: &logv1.Command_AcquireTurn{AcquireTurn: &logv1.AcquireTurn{Job: "j", Deployment: "d", ExpectNs: 1}}})
}

// ends reports the end of the hook's action.
func (c *cluster) ends(exit int32) {
	c.Helper()
	c.must(&logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: &logv1.ReportAttempts{
		Node: "n", Incarnation: 1, Reports: []*logv1.AttemptReport{{
			ActionId: 1, Attempt: 1, Reason: uint32(state.EndExited), ExitCode: exit, StderrTail: []byte("no such model"),
		}},
	}}})
}

// wait keeps the node and the turn alive while time passes.
func (c *cluster) wait(d time.Duration) {
	c.Helper()
	for ; d > 0; d -= time.Second {
		c.leases.Lead() // every lease is new
		c.pass(min(d, time.Second))
	}
}

// TestAGroupIsReadyWhenItsHooksAre.
func TestAGroupIsReadyWhenItsHooksAre(t *testing.T) {
	c := handover(t)
	c.wait(10 * time.Second)
	if c.proposed["SubmitHook"] != 1 || c.proposed["EndContextSwitch"] != 0 {
		t.Fatalf("while the hook runs: %v", c.proposed)
	}
	c.ends(0)
	c.wait(time.Second)
	c.view(func(s *state.State) {
		if g := s.NodeGroup(1); g.ContextSwitch != nil || g.Halted != "" {
			t.Errorf("after the hook: %+v", g)
		}
	})
	if c.proposed["SubmitHook"] != 1 || c.proposed["EndContextSwitch"] != 1 {
		t.Errorf("proposed %v", c.proposed)
	}
}

// TestAHookWaitsForRoomInTheQueue: it is tried once a second as long as the queue is full, and runs then.
func TestAHookWaitsForRoomInTheQueue(t *testing.T) {
	c := newCluster(t)
	c.pass(time.Second)
	c.must(registration("n"))
	for range 2 { // one runs, one waits
		c.must(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{
			Actions: []*logv1.Action{{CoresMin: 1, CoresMax: 1, AttemptsMax: 1}},
		}}})
	}
	c.handOver()
	c.wait(3 * time.Minute)
	if n := c.proposed["SubmitHook"]; n < 170 || n > 190 || c.proposed["EndContextSwitch"] != 0 {
		t.Fatalf("while the queue is full: %v", c.proposed)
	}
	c.ends(0) // the first action, so that the second leaves the queue
	c.wait(2 * time.Second)
	c.view(func(s *state.State) {
		if g := s.NodeGroup(1); g.ContextSwitch == nil || len(g.ContextSwitch.Runs) != 1 {
			t.Errorf("once there is room: %+v", g.ContextSwitch)
		}
	})
}

// TestAHookThatIsRefusedIsTriedAgain for a minute, once a second.
func TestAHookThatIsRefusedIsTriedAgain(t *testing.T) {
	c := handover(t)
	c.refused = "SubmitHook"
	c.wait(30 * time.Second)
	if n := c.proposed["SubmitHook"]; n < 25 || n > 35 {
		t.Errorf("tried %d times in 30 s", n)
	}
	c.wait(40 * time.Second)
	c.view(func(s *state.State) {
		if g := s.NodeGroup(1); g.ContextSwitch != nil || c.proposed["EndContextSwitch"] != 1 {
			t.Errorf("a minute later: %+v, proposed %v", g, c.proposed)
		}
	})
	if n := c.proposed["SubmitHook"]; n < 55 || n > 65 {
		t.Errorf("tried %d times in a minute", n)
	}
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
		c := handover(t)
		c.pass(100 * time.Millisecond)
		c.mustEnd(false, "")
		c.ends(tc.exit)
		c.mustEnd(true, tc.kept)
		c.now.Log += int64(time.Minute)
		c.must(&logv1.Command{Verb: &logv1.Command_Tick{Tick: &logv1.Tick{}}})
		c.view(func(s *state.State) {
			if s.Action(1) != nil {
				t.Fatal("the action is still kept: nothing is tested")
			}
		})
		c.mustEnd(true, tc.later)
	}
}

func (c *cluster) mustEnd(ended bool, failed string) {
	c.Helper()
	c.view(func(s *state.State) {
		over, why := HookEnd(s, &s.NodeGroup(1).ContextSwitch.Runs[0])
		if over != ended || why != failed {
			c.Errorf("over: %v, failed: %q, want %v and %q", over, why, ended, failed)
		}
	})
}

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
		got := hookMessage(long, err.Error())
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
		if got := describe(a); got != want {
			t.Errorf("says %q, want %q", got, want)
		}
	}
}
