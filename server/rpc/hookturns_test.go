package rpc_test

import (
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
)

// hooked submits a job whose actor sleeps and wakes by hooks.
func (w *world) hooked(name string) *rotav1.Job {
	w.t.Helper()
	hook := spec("load")
	hook.RunTimeout = durationpb.New(time.Minute)
	return w.job(&rotav1.SubmitJobRequest{
		Name: name, Nodes: 2, Hooks: []*rotav1.DeploymentHooks{{Deployment: "actor", Sleep: hook, Wake: hook}},
	})
}

// group returns the only one.
func (w *world) group() *rotav1.NodeGroup {
	w.t.Helper()
	list, err := w.ledger().ListNodeGroups(w.t.Context(), &rotav1.ListNodeGroupsRequest{})
	if err != nil || len(list.Groups) != 1 {
		w.t.Fatal(list, err)
	}
	return list.Groups[0]
}

// endContextSwitch says that the hooks of a grant have ended.
func (w *world) endContextSwitch(token uint64) {
	w.t.Helper()
	results := w.apply(&logv1.Command{Verb: &logv1.Command_EndContextSwitch{EndContextSwitch: &logv1.EndContextSwitch{GroupId: 1, Token: token}}})
	if f := results[0].Refusal; f != nil {
		w.t.Fatal(f)
	}
}

// TestATurnIsSetUpByHooks: it is no news to who waits until they have ended, and then at
// once.
func TestATurnIsSetUpByHooks(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.nodeGroup("g", 2)
	if j := w.hooked("a"); len(j.Deployments) != 1 || len(j.Deployments[0].Hooks) != 2 {
		t.Errorf("deployments with hooks are %v", j.Deployments)
	}
	turn := w.acquire("a/actor")
	if turn.State != rotav1.TurnState_TURN_STATE_SETTING_UP || turn.Token == 0 || turn.SetUpNeeded || turn.ReadyTime != nil {
		t.Fatalf("while hooks run it is %v, want it to be set up, and not by its holder", turn)
	}
	if g := w.group(); !g.ContextSwitch || g.Awake != "" || g.HookPool != "default" || g.TurnId != turn.Id {
		t.Errorf("while hooks run the group is %v", g)
	}
	waits := &rotav1.RenewTurnRequest{TurnId: turn.Id, Token: turn.Token, Wait: durationpb.New(30 * time.Millisecond), SettingUp: true}
	begin := time.Now()
	if got, err := w.turns().RenewTurn(ctx, waits); err != nil || !got.Renewed || got.Turn.State != turn.State || time.Since(begin) < 30*time.Millisecond {
		t.Fatalf("without news: %v, %v after %v", got, err, time.Since(begin))
	}
	answer := make(chan *rotav1.RenewTurnResponse, 1)
	waits.Wait = durationpb.New(time.Minute)
	begin = time.Now()
	go func() {
		got, err := w.turns().RenewTurn(ctx, waits)
		if err != nil {
			t.Error(err)
		}
		answer <- got
	}()
	time.Sleep(20 * time.Millisecond) // most often it waits by then
	w.endContextSwitch(turn.Token)
	got := <-answer
	if most := got.GetLeaseDuration().AsDuration() / 4; time.Since(begin) > most {
		t.Errorf("answered after %v, want it at once", time.Since(begin))
	}
	if u := got.GetTurn(); u.GetState() != rotav1.TurnState_TURN_STATE_HELD || u.Token != turn.Token || u.SetUpNeeded || u.ReadyTime == nil {
		t.Errorf("made ready it is %v", u)
	}
	if g := w.group(); g.ContextSwitch || g.Awake != "default/a/actor" {
		t.Errorf("made ready the group is %v", g)
	}
}

// TestATurnThatIsSetUpIsOnlyCanceled: its holder has had nothing that it could yield.
func TestATurnThatIsSetUpIsOnlyCanceled(t *testing.T) {
	w := newWorld(t)
	w.nodeGroup("g", 2)
	w.hooked("a")
	turn := w.acquire("a/actor")
	end := func(failed bool) (*rotav1.YieldTurnResponse, error) {
		return w.turns().YieldTurn(t.Context(), &rotav1.YieldTurnRequest{TurnId: turn.Id, Token: turn.Token, Failed: failed})
	}
	if got, err := end(false); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("yielded: %v, %v", got, err)
	}
	for range 2 {
		if got, err := end(true); err != nil || got.Turn.State != rotav1.TurnState_TURN_STATE_CANCELED || got.Turn.ReadyTime != nil {
			t.Errorf("canceled: %v, %v", got, err)
		}
	}
	if g := w.group(); !g.ContextSwitch || g.TurnId != 0 {
		t.Errorf("canceled, hooks go on, and the group is %v", g)
	}
	next := w.acquire("a/actor")
	if next.State != rotav1.TurnState_TURN_STATE_WAITING {
		t.Errorf("while hooks of another turn run it is %v", next)
	}
	w.endContextSwitch(turn.Token)
	if got, err := w.turns().GetTurn(t.Context(), &rotav1.GetTurnRequest{TurnId: next.Id}); err != nil || got.Turn.Token <= turn.Token {
		t.Errorf("after them it is %v, %v", got, err)
	}
}

// TestAWaitingTurnSaysWhatFor, whatever is in its way.
func TestAWaitingTurnSaysWhatFor(t *testing.T) {
	w := newWorld(t)
	waitsFor := func(deployment, want string) *rotav1.Turn {
		t.Helper()
		turn := w.acquire(deployment)
		got, err := w.turns().GetTurn(t.Context(), &rotav1.GetTurnRequest{TurnId: turn.Id})
		if err != nil || got.Turn.WaitingFor != want {
			t.Errorf("%s waits for %q, want %q (%v)", deployment, got.GetTurn().GetWaitingFor(), want, err)
		}
		return turn
	}
	for _, name := range []string{"a", "b"} {
		w.job(&rotav1.SubmitJobRequest{Name: name, Nodes: 2, Backfill: true})
	}
	waitsFor("a/actor", "waits for a node group for job a: "+w.job(&rotav1.SubmitJobRequest{Name: "c", Nodes: 2, Backfill: true}).Message)
	w.nodeGroup("g", 2)
	waitsFor("b/actor", "waits for node group g, which turn 1 of job a has")
	waitsFor("b/actor", "waits for turn 2 of the same job, which comes before it; 1 other turn waits for it")
	waitsFor("a/critic", "waits for node group g, which turn 1 of job a has; 2 other turns wait for it")
	if _, err := w.jobs().SuspendJob(t.Context(), &rotav1.SuspendJobRequest{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	waitsFor("b/critic", "waits until job b, which is suspended, is resumed")
}
