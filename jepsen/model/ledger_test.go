package model

import (
	"fmt"
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// TestRandomLedgers drives machine and model with commands about node groups, jobs
// and turns, sensible and not, and they never disagree.
func TestRandomLedgers(t *testing.T) {
	worlds := 60
	if testing.Short() {
		worlds = 10
	}
	held, shared := 0, 0
	for seed := range worlds {
		w := newWorld(t, uint64(seed), &logv1.Settings{
			RetentionNs: 100 * second, RequestsMax: 60, EventsMax: 20_000, LedgerSlots: 300,
			LedgerSlotNs: second / int64(1+seed%3), LedgerPolicy: uint32(seed%4) % 4,
		})
		for range 1200 {
			w.now += w.rand.Int64N(4*second) - second/2
			var commands []*logv1.Command
			for range w.rand.IntN(3) {
				commands = append(commands, w.ledgerCommand())
			}
			commands = append(commands, w.sameJob(commands)...)
			if _, err := w.apply(commands...); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if w.index%97 == 0 {
				if err := w.model.Compare(w.s); err != nil {
					t.Fatalf("seed %d, entry %d: %v", seed, w.index, err)
				}
			}
			shared += w.shared()
		}
		held += int(w.s.Meta().LastToken)
	}
	t.Logf("%d turns held a group, %d times after an entry several jobs shared one", held, shared)
	if held < 40*worlds || shared < 40*worlds {
		t.Errorf("too few to say something")
	}
}

// shared counts the groups that several jobs have reservations on.
func (w *world) shared() (n int) {
	reservations := map[state.GroupID]int{}
	w.s.Reservations(func(r *state.Reservation) bool {
		if reservations[r.Group]++; reservations[r.Group] == 2 {
			n++
		}
		return true
	})
	return n
}

// ledgerCommand draws one command; what it names mostly exists.
func (w *world) ledgerCommand() *logv1.Command {
	switch n := w.rand.IntN(70); {
	case n >= 60:
		return w.endOfContextSwitch()
	case n < 25:
		return w.acquisition()
	case n < 45:
		return w.endOfTurn()
	case n < 50:
		return w.jobSubmission()
	case n < 54:
		return &logv1.Command{Verb: &logv1.Command_ChangeJob{ChangeJob: &logv1.ChangeJob{
			Namespace: w.pick("", "", "", "none"), Name: w.jobName(), Change: logv1.JobChange([]int{0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 4, 5}[w.rand.IntN(12)]),
		}}}
	case n < 56:
		return &logv1.Command{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: &logv1.CreateNodeGroup{
			Name: w.pick("g1", "g2", "g3", ""), Nodes: int64(w.rand.IntN(9)), HookPool: w.pick("", "", "", "default", "none"),
		}}}
	case n < 57:
		return &logv1.Command{Verb: &logv1.Command_DeleteNodeGroup{DeleteNodeGroup: &logv1.DeleteNodeGroup{Name: w.pick("g1", "g2", "g3", "g4")}}}
	case n < 58:
		return &logv1.Command{Verb: &logv1.Command_ResumeLedger{ResumeLedger: &logv1.ResumeLedger{}}}
	case n < 59:
		return w.move()
	}
	return &logv1.Command{Verb: &logv1.Command_Tick{Tick: &logv1.Tick{}}}
}

// sameJob now and then changes a job that asks for a turn in the same entry: then what its
// new step has ended, and what the job becomes, happen at once.
func (w *world) sameJob(commands []*logv1.Command) []*logv1.Command {
	for _, c := range commands {
		if acquire := c.GetAcquireTurn(); acquire != nil && w.rand.IntN(8) == 0 {
			return []*logv1.Command{{Verb: &logv1.Command_ChangeJob{ChangeJob: &logv1.ChangeJob{
				Name: acquire.Job, Change: logv1.JobChange(1 + w.rand.IntN(3)),
			}}}}
		}
	}
	return nil
}

func (w *world) jobName() string { return fmt.Sprintf("j%d", w.rand.IntN(8)) }

// somewhere is a duration that is mostly short.
func (w *world) somewhere(most int64) int64 {
	return w.rand.Int64N(1 + w.rand.Int64N(1+w.rand.Int64N(most)))
}

func (w *world) jobSubmission() *logv1.Command {
	c := &logv1.SubmitJob{
		Request: w.request(), Name: w.jobName(), Nodes: int64(w.rand.IntN(6)), SetUpNs: w.rand.Int64N(3) * second,
		Backfill: w.rand.IntN(5) == 0, Hooks: w.someHooks(),
	}
	if w.rand.IntN(2) == 0 && (!c.Backfill || w.rand.IntN(9) == 0) {
		c.Cycle = &logv1.Cycle{}
		at := int64(0)
		for range w.rand.IntN(4) {
			length := w.somewhere(20 * second)
			c.Cycle.Segments = append(c.Cycle.Segments, &logv1.Segment{OffsetNs: at, LengthNs: length, Nodes: 1 + w.rand.Int64N(max(1, c.Nodes))})
			at += length + 2*second + w.somewhere(20*second)
		}
		c.Cycle.PeriodNs = at + w.somewhere(20*second)
	}
	if w.rand.IntN(4) == 0 {
		c.Labels = []*logv1.Label{{Key: w.pick("a", "z"), Value: "1"}, {Key: "team", Value: w.pick("x", "y")}} // "z" is out of order
	}
	return &logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: c}}
}

func (w *world) acquisition() *logv1.Command {
	c := &logv1.AcquireTurn{
		Request: w.request(), Job: w.jobName(), Deployment: w.pick("a", "a", "b", "c"), Operation: uint32(1 + w.rand.IntN(7)),
		SetUpNs: w.rand.Int64N(2) * w.somewhere(5*second), LimitNs: w.rand.Int64N(2) * w.somewhere(30*second), Preemptible: w.rand.IntN(2) == 0,
		ExpectNs: w.rand.Int64N(3) * w.somewhere(10*second),
	}
	if j := w.s.JobByName(1, c.Job); j != nil {
		c.Step = max(j.Step, 1)
		switch w.rand.IntN(12) {
		case 0, 1, 2:
			c.Step++
		case 3:
			c.Step = 0
		case 4:
			c.Step = max(1, c.Step-1)
		}
	}
	switch w.rand.IntN(60) {
	case 0:
		c.Deployment = ""
	case 1:
		c.Operation = 9
	case 2:
		c.LimitNs = -1
	case 3:
		c.Namespace = "none"
	}
	return &logv1.Command{Verb: &logv1.Command_AcquireTurn{AcquireTurn: c}}
}

// someHooks are those of some deployments, seldom impossible ones.
func (w *world) someHooks() (all []*logv1.DeploymentHooks) {
	hook := func() *logv1.Action {
		if w.rand.IntN(2) == 0 {
			return nil
		}
		a := &logv1.Action{Spec: []byte{byte(w.rand.IntN(9))}}
		if w.rand.IntN(20) == 0 {
			a.Needs = &logv1.Needs{Quotas: []*logv1.QuotaUse{{Quota: w.pick("q1", "none"), Units: 1}}}
		}
		return a
	}
	for range w.rand.IntN(3) {
		all = append(all, &logv1.DeploymentHooks{Deployment: w.pick("a", "b", "c", "c", "d"), Sleep: hook(), Wake: hook(), Prefetch: hook()})
	}
	if len(all) > 0 && w.rand.IntN(20) == 0 {
		all[0].Wake = &logv1.Action{Spec: make([]byte, hookBytesMax)}
	}
	return all
}

// endOfContextSwitch ends the hooks of a group, mostly those that run.
func (w *world) endOfContextSwitch() *logv1.Command {
	c := &logv1.EndContextSwitch{GroupId: 1}
	w.s.NodeGroups(func(g *state.NodeGroup) bool {
		if g.ContextSwitch == nil || w.rand.IntN(4) == 0 {
			return true
		}
		c.GroupId, c.Token = uint64(g.ID), g.ContextSwitch.Token
		if w.rand.IntN(4) == 0 {
			c.Failed, c.Message = uint32(1+w.rand.IntN(len(g.ContextSwitch.Hooks))), "it failed"
		}
		return w.rand.IntN(2) == 0
	})
	switch w.rand.IntN(40) {
	case 0:
		c.Token++
	case 1:
		c.Failed = 3
	}
	return &logv1.Command{Verb: &logv1.Command_EndContextSwitch{EndContextSwitch: c}}
}

// endOfTurn ends a turn that holds a group or waits, mostly with the right token.
func (w *world) endOfTurn() *logv1.Command {
	c := &logv1.EndTurn{TurnId: w.rand.Uint64N(uint64(w.s.Meta().LastTurn) + 2), Reason: logv1.TurnEnd(1 + w.rand.IntN(3))}
	w.s.LiveTurns(func(t *state.Turn) bool {
		if w.rand.IntN(4) == 0 || t.State == state.TurnHeld {
			c.TurnId, c.Token = uint64(t.ID), t.Token
			if t.State == state.TurnHeld && w.rand.IntN(5) > 0 {
				c.Reason = turnYielded
				c.SetUpNs = w.rand.Int64N(2) * w.somewhere(2*second)
				return w.rand.IntN(2) == 0
			}
		}
		return true
	})
	if w.rand.IntN(20) == 0 {
		c.Token++
	}
	if w.rand.IntN(80) == 0 {
		c.Reason = 4
	}
	return &logv1.Command{Verb: &logv1.Command_EndTurn{EndTurn: c}}
}

func (w *world) move() *logv1.Command {
	c := &logv1.MoveJob{CostMax: 1 << 40, Transfer: int64(w.rand.IntN(5))}
	if j := w.s.JobByName(1, w.jobName()); j != nil {
		c.JobId, c.From, c.Period = uint64(j.ID), uint64(j.Group), j.Cycle.Period
		w.s.NodeGroups(func(g *state.NodeGroup) bool {
			if g.ID != j.Group && w.rand.IntN(2) == 0 {
				c.To, c.Was = uint64(g.ID), g.Period
				if g.Period > 0 && w.rand.IntN(2) == 0 {
					c.Period = g.Period
				}
			}
			return true
		})
	}
	return &logv1.Command{Verb: &logv1.Command_MoveJob{MoveJob: c}}
}

// TestALongTurnEndsBeforeWhoComesLater: what is reserved counts, also if it begins more
// than a period of the group later, as for a job whose state is on its way.
func TestALongTurnEndsBeforeWhoComesLater(t *testing.T) {
	w := newWorld(t, 0, nil)
	group := func(name string) *logv1.Command {
		return &logv1.Command{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: &logv1.CreateNodeGroup{Name: name, Nodes: 4}}}
	}
	job := func(c *logv1.SubmitJob) *logv1.Command {
		return &logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: c}}
	}
	cycle := &logv1.Cycle{PeriodNs: 10 * second, Segments: []*logv1.Segment{{LengthNs: 5 * second, Nodes: 1}}}
	for _, c := range (commands{
		group("g1"), job(&logv1.SubmitJob{Name: "a", Nodes: 1, Cycle: cycle}),
		group("g2"), job(&logv1.SubmitJob{Name: "b", Nodes: 1, Backfill: true}),
	}) {
		w.must(t, c)
	}
	moved := w.must(t, &logv1.Command{Verb: &logv1.Command_MoveJob{MoveJob: &logv1.MoveJob{JobId: 1, From: 1, To: 2, Period: 10, CostMax: 1 << 40, Transfer: 50}}})
	if moved[0].Refusal != nil || w.s.Job(2).Group != 2 {
		t.Fatalf("the move was answered with %v, backfill is on group %d", moved[0], w.s.Job(2).Group)
	}
	w.must(t, &logv1.Command{Verb: &logv1.Command_AcquireTurn{AcquireTurn: &logv1.AcquireTurn{Job: "b", Deployment: "d", Operation: 1, ExpectNs: 60 * second}}})
	if turn := w.s.Turn(1); turn.State != state.TurnWaiting {
		t.Errorf("a turn of 60 s is in state %d, and the group is reserved in 50 s", turn.State)
	}
	w.must(t, &logv1.Command{Verb: &logv1.Command_AcquireTurn{AcquireTurn: &logv1.AcquireTurn{Job: "b", Deployment: "e", Operation: 1, ExpectNs: 40 * second}}})
	if turn := w.s.Turn(2); turn.State != state.TurnHeld {
		t.Errorf("a turn of 40 s is in state %d, and the group is not reserved for 50 s", turn.State)
	}
}
