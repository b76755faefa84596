package fsm

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

var (
	jobStates  = []string{"", "queued", "running", "suspended", "completed", "deleted"}
	turnStates = []string{"", "waiting", "held", "yielded", "lost", "canceled"}
)

// parseLedgerCommand reads what is about groups, jobs and turns; nil if it is not.
func parseLedgerCommand(t rapid.TB, verb string, a args) *logv1.Command {
	t.Helper()
	switch verb {
	case "group":
		return &logv1.Command{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: &logv1.CreateNodeGroup{
			Name: a.text("name"), Nodes: int64(a.num("nodes", 0)), HookPool: a.text("pool"), Members: a.members(), Selector: a.selector(),
		}}}
	case "set-members":
		return &logv1.Command{Verb: &logv1.Command_SetGroupMembers{SetGroupMembers: &logv1.SetGroupMembers{
			Name: a.text("name"), Nodes: int64(a.num("nodes", 0)), Members: a.members(), Selector: a.selector(),
		}}}
	case "delete-group":
		return &logv1.Command{Verb: &logv1.Command_DeleteNodeGroup{DeleteNodeGroup: &logv1.DeleteNodeGroup{Name: a.text("name")}}}
	case "resume-ledger":
		return &logv1.Command{Verb: &logv1.Command_ResumeLedger{ResumeLedger: &logv1.ResumeLedger{}}}
	case "job":
		return &logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{
			Request: a.request(), Namespace: a.text("ns"), Name: a.text("name"), Nodes: int64(a.num("nodes", 1)),
			Cycle: a.cycle(), SetUpNs: a.dur("setup"), Backfill: a.text("backfill") != "", Hooks: a.hooks(), Labels: a.labels(),
		}}}
	case "move":
		return &logv1.Command{Verb: &logv1.Command_MoveJob{MoveJob: &logv1.MoveJob{
			JobId: a.num("job", 0), From: a.num("from", 0), To: a.num("to", 0), Was: int64(a.num("was", 0)),
			Period: int64(a.num("period", 0)), CostMax: int64(a.num("cost", 0)), Transfer: int64(a.num("transfer", 0)),
		}}}
	case "turn":
		job, deployment, _ := strings.Cut(a.text("of"), "/")
		return &logv1.Command{Verb: &logv1.Command_AcquireTurn{AcquireTurn: &logv1.AcquireTurn{
			Request: a.request(), Namespace: a.text("ns"), Job: job, Deployment: deployment, Operation: uint32(a.num("op", 1)),
			Step: a.num("step", 0), ExpectNs: a.dur("expect"), SetUpNs: a.dur("setup"), LimitNs: a.dur("limit"), Preemptible: a.text("preemptible") != "",
		}}}
	case "yield", "lost", "give-up":
		reason := map[string]logv1.TurnEnd{"yield": endYielded, "lost": endLost, "give-up": endCanceled}[verb]
		return &logv1.Command{Verb: &logv1.Command_EndTurn{EndTurn: &logv1.EndTurn{
			TurnId: a.num("turn", 0), Token: a.num("token", 0), Reason: reason, SetUpNs: a.dur("setup"),
		}}}
	}
	if verb == "submit-hook" {
		return &logv1.Command{Verb: &logv1.Command_SubmitHook{SubmitHook: &logv1.SubmitHook{
			GroupId: a.num("group", 0), Token: a.num("token", 0), Number: uint32(a.num("number", 0)),
		}}}
	}
	if verb == "end-context-switch" {
		return &logv1.Command{Verb: &logv1.Command_EndContextSwitch{EndContextSwitch: &logv1.EndContextSwitch{
			GroupId: a.num("group", 0), Token: a.num("token", 0), Failed: uint32(a.num("failed", 0)), Message: a.text("message"),
		}}}
	}
	if change := map[string]logv1.JobChange{"suspend": changeSuspend, "resume-job": changeResume, "complete": changeComplete, "delete": changeDelete}[verb]; change != 0 {
		return &logv1.Command{Verb: &logv1.Command_ChangeJob{ChangeJob: &logv1.ChangeJob{Namespace: a.text("ns"), Name: a.text("job"), Change: change}}}
	}
	return nil
}

// members reads members=NODE,NODE:FIRST+GPUS,...
func (a args) members() (list []*logv1.GroupMember) {
	for _, text := range strings.FieldsFunc(a.text("members"), func(r rune) bool { return r == ',' }) {
		node, chunk, _ := strings.Cut(text, ":")
		m := &logv1.GroupMember{Node: node}
		if first, gpus, ok := strings.Cut(chunk, "+"); ok {
			of := args{a.t, []string{"first=" + first, "gpus=" + gpus}}
			m.FirstGpu, m.Gpus = uint32(of.num("first", 0)), uint32(of.num("gpus", 0))
		}
		list = append(list, m)
	}
	return list
}

// selector reads select=KEY:VALUE:GPUS.
func (a args) selector() *logv1.MemberSelector {
	key, rest, ok := strings.Cut(a.text("select"), ":")
	if !ok {
		return nil
	}
	value, gpus, _ := strings.Cut(rest, ":")
	of := args{a.t, []string{"gpus=" + gpus}}
	return &logv1.MemberSelector{Labels: []*logv1.Label{{Key: key, Value: value}}, Gpus: uint32(of.num("gpus", 0))}
}

// hooks reads hooks=DEPLOYMENT:KIND:KIND,...
// hooks reads hooks=DEPLOYMENT:KIND:KIND@QUOTA,...
func (a args) hooks() (all []*logv1.DeploymentHooks) {
	for _, text := range strings.FieldsFunc(a.text("hooks"), func(r rune) bool { return r == ',' }) {
		name, kinds, _ := strings.Cut(text, ":")
		h := &logv1.DeploymentHooks{Deployment: name}
		for _, kind := range strings.Split(kinds, ":") {
			kind, quota, needs := strings.Cut(kind, "@")
			hook := &logv1.Action{Spec: []byte(kind), CoresMin: 1, CoresMax: 1, AttemptsMax: 1}
			if needs {
				hook.Needs = &logv1.Needs{Quotas: []*logv1.QuotaUse{{Quota: quota, Units: 1}}}
			}
			*map[string]**logv1.Action{"sleep": &h.Sleep, "wake": &h.Wake, "prefetch": &h.Prefetch}[kind] = hook
		}
		all = append(all, h)
	}
	return all
}

// cycle reads cycle=PERIOD:OFFSET+LENGTHxNODES,... in seconds, or finecycle= in
// milliseconds.
func (a args) cycle() *logv1.Cycle {
	unit, text := time.Second, a.text("cycle")
	if text == "" {
		unit, text = time.Millisecond, a.text("finecycle")
	}
	period, segments, _ := strings.Cut(text, ":")
	if period == "" {
		return nil
	}
	c := &logv1.Cycle{PeriodNs: a.times(period, unit)}
	for _, s := range strings.FieldsFunc(segments, func(r rune) bool { return r == ',' }) {
		offset, rest, _ := strings.Cut(s, "+")
		length, nodes, _ := strings.Cut(rest, "x")
		n, err := strconv.ParseInt(nodes, 10, 64)
		if err != nil {
			a.t.Fatalf("cycle: %v", err)
		}
		c.Segments = append(c.Segments, &logv1.Segment{OffsetNs: a.times(offset, unit), LengthNs: a.times(length, unit), Nodes: n})
	}
	return c
}

func (a args) times(v string, unit time.Duration) int64 {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		a.t.Fatalf("%q: %v", v, err)
	}
	return n * int64(unit)
}

// describeLedgerEvent says what happened to a job or a turn.
func (s *story) describeLedgerEvent(e state.Event) string {
	if e.Kind == state.EventJob {
		out := fmt.Sprintf("job %d %s", e.Subject, jobStates[e.State])
		if j := s.state.Job(state.JobID(e.Subject)); j != nil && j.Group != 0 && j.Revision == e.Revision {
			out += " on " + s.state.NodeGroup(j.Group).Name
		}
		return out
	}
	out := fmt.Sprintf("turn %d %s", e.Subject, turnStates[e.State])
	t := s.state.Turn(state.TurnID(e.Subject))
	if t == nil || t.State != state.TurnHeld || t.Revision != e.Revision {
		return out
	}
	out += fmt.Sprintf(" with token %d", t.Token)
	switch {
	case t.ReadyAt != 0:
		out += ", made ready"
	case s.state.SettingUp(t):
		out += ", hooks run"
	case t.SetUp:
		out += ", to be set up"
	}
	if t.Stop {
		out += ", asked to stop"
	}
	return out
}

// showLedger says what is reserved and who holds what.
func (s *story) showLedger() string {
	var out strings.Builder
	s.state.NodeGroups(func(g *state.NodeGroup) bool {
		fmt.Fprintf(&out, "group %s: period %d, held by turn %d", g.Name, g.Period, g.Turn)
		if g.WakeAt != 0 {
			fmt.Fprintf(&out, ", looked at again at %v", time.Duration(g.WakeAt))
		}
		if g.Halted != "" {
			fmt.Fprintf(&out, ", halted: %s", g.Halted)
		}
		if w := g.ContextSwitch; w != nil {
			fmt.Fprintf(&out, ", hooks run for token %d:", w.Token)
			for i, h := range w.Hooks {
				fmt.Fprintf(&out, " %s of %s", hookKind(h), deploymentName(s.state, h.Deployment))
				if i < len(w.Runs) {
					fmt.Fprintf(&out, " (%s)", describeRun(w.Runs[i]))
				}
			}
		}
		out.WriteString(describeMembers(&g.Members))
		if g.Awake != 0 {
			fmt.Fprintf(&out, ", %s is awake", deploymentName(s.state, g.Awake))
		}
		out.WriteString("\n")
		return true
	})
	s.state.Jobs(0, func(j *state.Job) bool {
		fmt.Fprintf(&out, "job %s: %s, cycles %d, held for %v, turns %d", j.Name, jobStates[j.State], j.Cycles, time.Duration(j.HeldNS), j.Turns)
		if reservation := s.state.Reservation(j.ID); reservation != nil && reservation.Dedicated {
			fmt.Fprintf(&out, ", alone on %s", s.state.NodeGroup(reservation.Group).Name)
		} else if reservation != nil {
			fmt.Fprintf(&out, ", on %s from slot %d every %d: %v, waited %d", s.state.NodeGroup(reservation.Group).Name, reservation.Anchor, reservation.Cycle.Period, reservation.Cycle.Segments, reservation.Waited)
		}
		if j.Message != "" {
			fmt.Fprintf(&out, ": %s", j.Message)
		}
		out.WriteString("\n")
		return true
	})
	if m := s.state.Meta(); m.PlacementHalted != "" {
		fmt.Fprintf(&out, "placement is halted: %s\n", m.PlacementHalted)
	}
	return out.String()
}

// describeMembers says what a group has, what it lacks and what is counted of it.
func describeMembers(m *state.Members) string {
	var out strings.Builder
	losses := []string{"there", "down", "draining", "gone", "short", "busy", "sick"}
	for i := range m.List {
		fmt.Fprintf(&out, "; %s %s", describeMember(&m.List[i]), losses[m.List[i].Lost])
		if m.List[i].Withheld {
			out.WriteString(" and withheld")
		}
	}
	switch {
	case m.GapUntil == math.MaxInt64:
		out.WriteString("; open to actions")
	case m.GapUntil != 0:
		fmt.Fprintf(&out, "; open to actions until %v", time.Duration(m.GapUntil))
	}
	if m.Overruns > 0 || m.WaitedNS > 0 {
		fmt.Fprintf(&out, "; %d overran, turns waited %v, %v of it late", m.Overruns, time.Duration(m.WaitedNS), time.Duration(m.LateNS))
	}
	return out.String()
}

func describeRun(r state.HookRun) string {
	if r.State == 0 {
		return fmt.Sprintf("action %d", r.Action)
	}
	return fmt.Sprintf("action %d ended in state %d, reason %d, exit code %d", r.Action, r.State, r.Reason, r.ExitCode)
}

func hookKind(h state.Hook) string {
	if h.Wakes {
		return "wake"
	}
	return "sleep"
}

func deploymentName(st *state.State, id state.DeploymentID) string {
	job, i := id.Job()
	if j := st.Job(job); j != nil {
		return j.Name + "/" + j.Deployments[i].Name
	}
	return "one that is gone"
}
