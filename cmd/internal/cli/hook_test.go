package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
)

// hookText says what the flags have made of the hooks of a deployment.
func hookText(s *rotav1.ActionSpec) string {
	switch {
	case s == nil:
		return "-"
	case s.Http != nil:
		return s.Http.Method + "|" + s.Http.Url
	}
	return strings.Join(s.Command.Argv, "|")
}

func TestHookFlags(t *testing.T) {
	for name, tt := range map[string]struct {
		flags hookFlags
		want  []string // deployment, sleep, wake and prefetch
	}{
		"none":    {hookFlags{}, nil},
		"command": {hookFlags{wake: []string{"actor=MODEL=a ./load.sh"}}, []string{"actor - sh|-c|MODEL=a ./load.sh -"}},
		"HTTP": {
			hookFlags{sleep: []string{"actor=POST http://h:80/sleep?level=1"}, wake: []string{"actor=PUT https://h/"}},
			[]string{"actor POST|http://h:80/sleep?level=1 PUT|https://h/ -"},
		},
		"almost HTTP": {
			hookFlags{sleep: []string{"a=post http://h/"}, wake: []string{"a=POST http://h/ now"}, prefetch: []string{"a=POST ftp://h/"}},
			[]string{"a sh|-c|post http://h/ sh|-c|POST http://h/ now sh|-c|POST ftp://h/"},
		},
		"several": {
			hookFlags{sleep: []string{"b=s"}, wake: []string{"a=w", "b=w"}, prefetch: []string{"c=p"}},
			[]string{"b sh|-c|s sh|-c|w -", "a - sh|-c|w -", "c - - sh|-c|p"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt.flags.timeout = 7 * time.Second
			all, err := tt.flags.hooks()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, h := range all {
				got = append(got, strings.Join([]string{h.Deployment, hookText(h.Sleep), hookText(h.Wake), hookText(h.Prefetch)}, " "))
				for _, s := range []*rotav1.ActionSpec{h.Sleep, h.Wake, h.Prefetch} {
					if s != nil && s.RunTimeout.AsDuration() != 7*time.Second {
						t.Errorf("it may run for %v", s.RunTimeout.AsDuration())
					}
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("hooks are %q, want %q", got, tt.want)
			}
		})
	}
}

func TestBadHookFlags(t *testing.T) {
	for want, f := range map[string]hookFlags{
		`--sleep "actor" is not DEPLOYMENT=CALL`: {sleep: []string{"actor"}},
		`--wake "=load" is not DEPLOYMENT=CALL`:  {wake: []string{"=load"}},
		`--prefetch "actor=" is not`:             {prefetch: []string{"actor="}},
		"--wake is given twice for actor":        {wake: []string{"actor=a", "critic=a", "actor=b"}},
	} {
		all, err := f.hooks()
		if exitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v is %v, %v; want %q", f, all, err, want)
		}
	}
}

// TestHooksAreShown where somebody looks who waits for them.
func TestHooksAreShown(t *testing.T) {
	switching := &rotav1.NodeGroup{Holder: "default/a/actor", TurnId: 7, ContextSwitch: true}
	if got := groupHolder(switching); got != "default/a/actor (turn 7) (hooks run)" {
		t.Errorf("holder is %q", got)
	}
	if got := groupHolder(&rotav1.NodeGroup{ContextSwitch: true}); got != "- (hooks run)" {
		t.Errorf("holder that is gone is %q", got)
	}
	var out bytes.Buffer
	a := &app{out: &out}
	if err := a.printTurn(&rotav1.Turn{Id: 7, ReadyTime: timestamppb.New(time.Unix(1e9, 0)), Message: "wake hook of default/a/actor: exit code 1"}); err != nil {
		t.Fatal(err)
	}
	if err := a.printJob(&rotav1.Job{Deployments: []*rotav1.Deployment{{Name: "actor", Hooks: []string{"sleep", "wake"}}, {Name: "eval"}, {Name: "critic", Hooks: []string{"wake"}}}}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.Join(strings.Fields(strings.ReplaceAll(out.String(), "\n", " ; ")), " "), " ; ")
	for _, want := range []string{"message wake hook of default/a/actor: exit code 1", "hooks actor: sleep, wake; critic: wake"} {
		if !slices.Contains(lines, want) {
			t.Errorf("%q is not shown in\n%s", want, out.String())
		}
	}
	if !strings.Contains(out.String(), "\nready ") {
		t.Errorf("when it was ready is not shown in\n%s", out.String())
	}
}
