package rpc

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

func hookSpec() *rotav1.ActionSpec {
	return &rotav1.ActionSpec{Command: &rotav1.Command{Argv: []string{"load"}}, RunTimeout: durationpb.New(time.Minute)}
}

func someHooks() []*rotav1.DeploymentHooks {
	return []*rotav1.DeploymentHooks{
		{Deployment: "actor", Sleep: hookSpec(), Wake: hookSpec(), Prefetch: hookSpec()},
		{Deployment: "critic", Wake: hookSpec()},
	}
}

func TestHooksAreRefusedWithThePathOfWhatIsWrong(t *testing.T) {
	wake := func(spoil func(*rotav1.ActionSpec)) func([]*rotav1.DeploymentHooks) {
		return func(all []*rotav1.DeploymentHooks) { spoil(all[1].Wake) }
	}
	cases := []struct {
		name  string
		spoil func([]*rotav1.DeploymentHooks)
		want  string // empty: nothing is wrong
	}{
		{"good", func([]*rotav1.DeploymentHooks) {}, ""},
		{"no hook at all", func(all []*rotav1.DeploymentHooks) { all[1].Wake = nil }, ""},
		{"the longest", wake(func(s *rotav1.ActionSpec) {
			s.RunTimeout, s.QueueTimeout = durationpb.New(hookTimeMax), durationpb.New(hookTimeMax)
		}), ""},
		{"a call", wake(func(s *rotav1.ActionSpec) { s.Command, s.Http = nil, &rotav1.HttpCall{Url: "http://h:80/wake_up"} }), ""},
		{"of nobody", func(all []*rotav1.DeploymentHooks) { all[1].Deployment = "" }, "hooks[1].deployment is required"},
		{"absent", func(all []*rotav1.DeploymentHooks) { all[1] = nil }, "hooks[1].deployment is required"},
		{"no name", func(all []*rotav1.DeploymentHooks) { all[0].Deployment = "a/b" }, "hooks[0].deployment "},
		{"twice", func(all []*rotav1.DeploymentHooks) { all[1].Deployment = "actor" }, "hooks[1].deployment is named before already"},
		{"pool", wake(func(s *rotav1.ActionSpec) { s.Pool = "default" }), "hooks[1].wake.pool must be empty"},
		{"trajectory", wake(func(s *rotav1.ActionSpec) { s.TrajectoryId = 1 }), "hooks[1].wake.trajectory_id must be absent"},
		{"endless", wake(func(s *rotav1.ActionSpec) { s.RunTimeout = nil }), "hooks[1].wake.run_timeout must be more than 0"},
		{"in no time", wake(func(s *rotav1.ActionSpec) { s.RunTimeout = durationpb.New(0) }), "hooks[1].wake.run_timeout must be more than 0"},
		{"too long", wake(func(s *rotav1.ActionSpec) { s.RunTimeout = durationpb.New(hookTimeMax + 1) }), "hooks[1].wake.run_timeout must be more than 0 and at most 10m0s"},
		{"waits too long", wake(func(s *rotav1.ActionSpec) { s.QueueTimeout = durationpb.New(hookTimeMax + 1) }), "hooks[1].wake.queue_timeout must be at most 10m0s"},
		{"bad sleep", func(all []*rotav1.DeploymentHooks) { all[0].Sleep.Command = nil }, "hooks[0].sleep.command is required"},
		{"bad prefetch", func(all []*rotav1.DeploymentHooks) { all[0].Prefetch.Command.Argv = nil }, "hooks[0].prefetch.command.argv"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			hooks := someHooks()
			c.spoil(hooks)
			err := checkJob(&rotav1.SubmitJobRequest{Name: "a", Nodes: 1, Hooks: hooks}).err()
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("refused with %v, want %q", err, c.want)
			}
		})
	}
	if v := checkHooks(make([]*rotav1.DeploymentHooks, deploymentsMax+1)); v == nil || !strings.Contains(v.err().Error(), "hooks must be of at most 64 deployments, are of 65") {
		t.Errorf("many are refused with %v", v)
	}
}

// TestHooksOfTheLog: one that says nothing waits for as long as it may run, and has a
// name by which it is found.
func TestHooksOfTheLog(t *testing.T) {
	hooks := someHooks()
	hooks[0].Wake.QueueTimeout, hooks[0].Wake.Name = durationpb.New(time.Second), "mine"
	hooks[1].Deployment = strings.Repeat("x", nameBytesMax)
	logged, err := logHooks(&rotav1.SubmitJobRequest{Name: "a", Hooks: hooks})
	if err != nil || len(logged) != 2 {
		t.Fatal(logged, err)
	}
	if l := logged[1]; l.Sleep != nil || l.Prefetch != nil {
		t.Errorf("critic has only a wake hook, and now %v", l)
	}
	for i, want := range []struct {
		name string
		wait time.Duration
	}{{"sleep a/actor", time.Minute}, {"mine", time.Second}, {"wake a/" + strings.Repeat("x", nameBytesMax-len("wake a/")), time.Minute}} {
		a := [](interface{ GetSpec() []byte }){logged[0].Sleep, logged[0].Wake, logged[1].Wake}[i]
		var s rotav1.ActionSpec
		if err := s.UnmarshalVT(a.GetSpec()); err != nil || s.Name != want.name || s.QueueTimeout.AsDuration() != want.wait {
			t.Errorf("hook %q waits for %v, %v; want %q and %v", s.Name, s.QueueTimeout.AsDuration(), err, want.name, want.wait)
		}
	}
	if hooks[0].Sleep.QueueTimeout != nil {
		t.Error("the request was changed")
	}
}
