package fsm

import (
	"fmt"
	"strings"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// parsePoolCommand reads
//
//	worker-pool name=x policy=p gpus=8 degrees=1,2,4 ns=team setup=60s payback=2 attempts=1 port=8000
//	remove-pool name=x
//	plan-pool name=x degrees=4,2,2 revision=1 step=1 rollout=1
//	start-member name=x serial=1
//	drop-member name=x serial=1
//	delete-policy policy=p
//
// and returns nil for another verb. The revision, the step and the rollout of a plan are those of the
// state unless they are said.
func parsePoolCommand(verb string, a args) *logv1.Command {
	c := &logv1.ChangeWorkerPool{Name: a.text("name")}
	switch verb {
	case "worker-pool":
		c.Change = &logv1.ChangeWorkerPool_Declare{Declare: a.poolSpec()}
	case "remove-pool":
		c.Change = &logv1.ChangeWorkerPool_Remove{Remove: true}
	case "plan-pool":
		plan := &logv1.WorkerPoolPlan{Revision: a.num("revision", 0), Step: a.num("step", 0), RolloutId: a.num("rollout", 0), Trajectories: 5, NowNs: 9, PlannedNs: 8}
		for _, d := range a.ids("degrees") {
			plan.Degrees = append(plan.Degrees, uint32(d))
		}
		c.Change = &logv1.ChangeWorkerPool_Plan{Plan: plan}
	case "start-member":
		c.Change = &logv1.ChangeWorkerPool_Start{Start: a.num("serial", 0)}
	case "drop-member":
		c.Change = &logv1.ChangeWorkerPool_Drop{Drop: a.num("serial", 0)}
	case "delete-policy":
		return &logv1.Command{Verb: &logv1.Command_DeletePolicy{DeletePolicy: &logv1.DeletePolicy{Policy: a.text("policy")}}}
	default:
		return nil
	}
	return &logv1.Command{Verb: &logv1.Command_ChangeWorkerPool{ChangeWorkerPool: c}}
}

func (a args) poolSpec() *logv1.WorkerPoolSpec {
	spec := &logv1.WorkerPoolSpec{
		Policy: a.text("policy"), Namespace: a.text("ns"), Gpus: uint32(a.num("gpus", 0)), Port: uint32(a.num("port", 8000)), Dialect: uint32(a.num("dialect", 0)),
		SetUpNs: a.dur("setup"), PayBackSteps: uint32(a.num("payback", 0)), Hardware: a.text("hardware"),
		Start: &logv1.Action{AttemptsMax: uint32(a.num("attempts", 1)), Spec: []byte("serve"), Needs: &logv1.Needs{Gpus: &logv1.Gpus{Degrees: []uint32{1}}}},
	}
	for _, d := range a.ids("degrees") {
		spec.Options = append(spec.Options, &logv1.WorkerPoolOption{Degree: uint32(d), Slots: 4, Profile: a.points()})
	}
	return spec
}

// showPools says what has become of the pools of workers.
func (s *story) showPools(were *state.State) string {
	var out strings.Builder
	s.state.WorkerPools(func(p *state.WorkerPool) bool {
		if old := were.WorkerPool(p.Name); old != nil && old.Revision == p.Revision && old.SetUps == p.SetUps {
			return true
		}
		fmt.Fprintf(&out, "   worker pool %s: revision %d, set-up %v of %d, removed %v", p.Name, p.Revision, time.Duration(p.SetUpNS), p.SetUps, p.Removed)
		for _, m := range p.Members {
			fmt.Fprintf(&out, "; %d of degree %d: action %d, %d starts, leaves %v", m.Serial, m.Degree, m.Action, m.Starts, m.Leaving)
		}
		out.WriteString("\n")
		return true
	})
	were.WorkerPools(func(p *state.WorkerPool) bool {
		if s.state.WorkerPool(p.Name) == nil {
			fmt.Fprintf(&out, "   worker pool %s is gone\n", p.Name)
		}
		return true
	})
	return out.String()
}

// poolLine draws what operators and leaders say of pools; plans are seldom outdated.
func poolLine(n func(string, int) int, s *story) string {
	name := []string{"x", "y"}[n("pool", 1)]
	p := s.state.WorkerPool(name)
	if p == nil || n("declare", 7) == 0 {
		return fmt.Sprintf("worker-pool name=%s policy=%s gpus=%d degrees=%s setup=%ds attempts=%d ns=%s", name, []string{"p", "p", "q", ""}[n("policy", 3)],
			n("gpus", 9), []string{"1,2,4", "1", "2,8", "3"}[n("degrees", 3)], n("setup", 40), 1+n("attempts", 6)/6, []string{"", "", "team"}[n("ns", 2)])
	}
	serial := 1 + n("serial", int(p.LastSerial))
	switch n("change", 9) {
	case 0:
		return "remove-pool name=" + name
	case 1, 2, 3:
		step := uint64(0)
		if policy := s.state.Policy(p.Policy); policy != nil {
			step = policy.Step
		}
		return fmt.Sprintf("plan-pool name=%s degrees=%s revision=%d step=%d rollout=%d", name, []string{"", "1", "2,1", "1,1,2", "4", "2,2,1"}[n("planned", 5)],
			int(p.Revision)+n("outdated", 9)/9, int(step)+n("later", 9)/9, uint64(s.state.LastRollout(p.Policy))+uint64(n("other", 9)/9))
	case 4, 5:
		return fmt.Sprintf("start-member name=%s serial=%d", name, serial)
	case 6:
		return fmt.Sprintf("drop-member name=%s serial=%d", name, serial)
	case 7:
		return "delete-policy policy=" + []string{"p", "q", "r"}[n("deleted", 2)]
	}
	action := state.ActionID(0)
	if len(p.Members) > 0 {
		action = p.Members[n("member", len(p.Members)-1)].Action
	}
	return []string{
		fmt.Sprintf("worker name=%s policy=%s pool=%s start=%ds", p.WorkerName(action), p.Policy, name, n("start", 30)),
		fmt.Sprintf("update-worker name=%s up=yes", p.WorkerName(action)),
		fmt.Sprintf("remove-worker name=%s", p.WorkerName(action)),
		fmt.Sprintf("cancel ids=%d", action),
	}[n("what", 3)]
}
