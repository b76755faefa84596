package rpc

import (
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
)

const (
	deploymentsMax = 64
	// hookTimeMax is how long a hook may run, and wait: request IDs of hooks are
	// remembered for an hour, which has to do for two.
	hookTimeMax = 10 * time.Minute
)

// hooksOf are the actions of a deployment's hooks with their names.
func hooksOf(h *rotav1.DeploymentHooks) [3]hook {
	return [3]hook{{"sleep", h.GetSleep()}, {"wake", h.GetWake()}, {"prefetch", h.GetPrefetch()}}
}

type hook struct {
	name string
	spec *rotav1.ActionSpec
}

func checkHooks(all []*rotav1.DeploymentHooks) *violation {
	if len(all) > deploymentsMax {
		return wrong("hooks", "must be of at most %d deployments, are of %d", deploymentsMax, len(all))
	}
	seen := make(map[string]bool, len(all))
	for i, h := range all {
		if v := requireName("deployment", h.GetDeployment()); v != nil {
			return v.in("hooks[%d]", i)
		}
		if seen[h.Deployment] {
			return wrong("deployment", "is named before already: put its hooks together").in("hooks[%d]", i)
		}
		seen[h.Deployment] = true
		for _, k := range hooksOf(h) {
			if v := checkHook(k.spec); v != nil {
				return v.in("hooks[%d].%s", i, k.name)
			}
		}
	}
	return nil
}

func checkHook(s *rotav1.ActionSpec) *violation {
	if s == nil {
		return nil
	}
	if v := firstOf(checkSpec(s), noGang(s)); v != nil {
		return v
	}
	switch {
	case s.Pool != "":
		return wrong("pool", "must be empty: hooks run in the hook_pool of the node group")
	case s.TrajectoryId != 0:
		return wrong("trajectory_id", "must be absent for a hook")
	case s.RunTimeout.AsDuration() <= 0 || s.RunTimeout.AsDuration() > hookTimeMax:
		return wrong("run_timeout", "must be more than 0 and at most %v for a hook: no turn has the group while it runs", hookTimeMax)
	case s.QueueTimeout.AsDuration() > hookTimeMax:
		return wrong("queue_timeout", "must be at most %v for a hook: no turn has the group while it waits", hookTimeMax)
	}
	return nil
}

// logHooks makes the hooks of a job into actions of the log. One that does not say how
// long it waits at most, waits for as long as it may run.
func logHooks(req *rotav1.SubmitJobRequest) ([]*logv1.DeploymentHooks, error) {
	var all []*logv1.DeploymentHooks
	for _, h := range req.Hooks {
		l := &logv1.DeploymentHooks{Deployment: h.Deployment}
		into := [3]**logv1.Action{&l.Sleep, &l.Wake, &l.Prefetch}
		for i, k := range hooksOf(h) {
			if k.spec == nil {
				continue
			}
			spec := proto.CloneOf(k.spec)
			if spec.QueueTimeout == nil {
				spec.QueueTimeout = spec.RunTimeout
			}
			if spec.Name == "" {
				spec.Name = k.name + " " + req.Name + "/" + h.Deployment
				spec.Name = spec.Name[:min(len(spec.Name), nameBytesMax)]
			}
			a, err := action(spec)
			if err != nil {
				return nil, err
			}
			a.Pool = ""
			*into[i] = a
		}
		all = append(all, l)
	}
	return all, nil
}

func digestHooks(d *xxhash.Digest, hooks []*logv1.DeploymentHooks) {
	for _, h := range hooks {
		digestText(d, h.Deployment)
		for _, a := range []*logv1.Action{h.Sleep, h.Wake, h.Prefetch} {
			digestNumber(d, uint64(len(a.GetSpec())))
			_, _ = d.Write(a.GetSpec()) // never fails
		}
	}
}
