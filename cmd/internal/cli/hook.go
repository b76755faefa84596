package cli

import (
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

// hookFlags are the hooks of a job's deployments, each DEPLOYMENT=CALL.
type hookFlags struct {
	sleep, wake, prefetch []string
	timeout               time.Duration
}

func (f *hookFlags) flags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.sleep, "sleep", nil, "hook that takes a deployment off the group, DEPLOYMENT=CALL; repeat the flag for more")
	fs.StringArrayVar(&f.wake, "wake", nil, "hook that brings a deployment onto the group, DEPLOYMENT=CALL; repeat the flag for more")
	fs.StringArrayVar(&f.prefetch, "prefetch", nil, "hook that prepares the wake of a deployment, DEPLOYMENT=CALL; repeat the flag for more")
	fs.DurationVar(&f.timeout, "hook-timeout", time.Minute, "time limit for a hook to run, and for its wait before; at most 10m")
}

// hooks returns the hooks of the flags, by deployment, in the order of the flags.
func (f *hookFlags) hooks() (all []*rotav1.DeploymentHooks, err error) {
	by := map[string]*rotav1.DeploymentHooks{}
	for _, k := range []struct {
		flag  string
		texts []string
		of    func(*rotav1.DeploymentHooks) **rotav1.ActionSpec
	}{
		{"sleep", f.sleep, func(h *rotav1.DeploymentHooks) **rotav1.ActionSpec { return &h.Sleep }},
		{"wake", f.wake, func(h *rotav1.DeploymentHooks) **rotav1.ActionSpec { return &h.Wake }},
		{"prefetch", f.prefetch, func(h *rotav1.DeploymentHooks) **rotav1.ActionSpec { return &h.Prefetch }},
	} {
		for _, text := range k.texts {
			name, call, ok := strings.Cut(text, "=")
			if !ok || name == "" || call == "" {
				return nil, usageErrorf("--%s %q is not DEPLOYMENT=CALL, such as 'actor=./%s.sh'", k.flag, text, k.flag)
			}
			h := by[name]
			if h == nil {
				h = &rotav1.DeploymentHooks{Deployment: name}
				by[name], all = h, append(all, h)
			}
			into := k.of(h)
			if *into != nil {
				return nil, usageErrorf("--%s is given twice for %s; give it once, with a script that does both", k.flag, name)
			}
			*into = f.spec(call)
		}
	}
	return all, nil
}

var httpCall = regexp.MustCompile(`^([A-Z]+) (https?://\S+)$`)

// spec is an HTTP call if it looks like one, else a command for sh.
func (f *hookFlags) spec(call string) *rotav1.ActionSpec {
	s := &rotav1.ActionSpec{RunTimeout: durationpb.New(f.timeout)}
	if m := httpCall.FindStringSubmatch(call); m != nil {
		s.Http = &rotav1.HttpCall{Method: m[1], Url: m[2]}
	} else {
		s.Command = &rotav1.Command{Argv: []string{"sh", "-c", call}}
	}
	return s
}
