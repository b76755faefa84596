package dst

import (
	"fmt"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/internal/sim"
)

// Density of jobs and of what operators do to them, per simulated hour.
const (
	jobsPerHour         = 40
	jobChangesPerHour   = 60
	groupChangesPerHour = 20
	nodeGroups          = 4
)

// trainings are jobs that train, and what operators do to them and to the node groups,
// which are created first of all.
func (p *Plan) trainings(c config) {
	d := sim.Draws(c.seed).Of(luckPlan, 5)
	for i := range nodeGroups - 1 {
		p.add(Event{At: 2*second + d.N(20*second), Kind: Group, On: i, Luck: d.Uint64()})
	}
	for _, k := range []struct {
		kind    Kind
		perHour int64
		on      int64
	}{{Train, jobsPerHour, hosts}, {ChangeJob, jobChangesPerHour, clients}, {Group, groupChangesPerHour, nodeGroups}} {
		for range max(1, p.Length*k.perHour/hour) {
			p.add(Event{At: d.N(p.Length), Kind: k.kind, On: int(d.N(k.on)), Luck: d.Uint64()})
		}
	}
}

// newLedgerSettings draws slots that are as long as operations, and a horizon of some
// hundred of them.
func newLedgerSettings(seed uint64, s *logv1.Settings) {
	d := sim.Draws(seed).Of(luckConfig, 3)
	s.LedgerSlotNs = d.Between(200, 2000) * millisecond
	s.LedgerSlots = d.Between(400, 1000)
	s.LedgerPolicy = uint32(d.Between(1, 3))
	if d.Chance(300_000) {
		s.LedgerStretchPpm = d.Between(10_000, 300_000)
	}
	if d.Chance(300_000) {
		s.LedgerDutyPpm = d.Between(300_000, 1_000_000)
	}
}

func groupName(i int) string { return fmt.Sprintf("g%d", i) }

// changeGroup creates a node group, or deletes it; and has the ledger go on if it was
// halted.
func (c *client) changeGroup(i int, luck uint64) {
	d := sim.Draws(luck).Of(3, 0)
	if d.Chance(300_000) {
		c.do(&logv1.Command{Verb: &logv1.Command_DeleteNodeGroup{DeleteNodeGroup: &logv1.DeleteNodeGroup{Name: groupName(i)}}}, 1, ignore)
	}
	create := &logv1.CreateNodeGroup{Name: groupName(i), Nodes: d.Between(2, 8)}
	c.do(&logv1.Command{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: create}}, triesMax, ignore)
	c.changeMembers(i, luck)
	if d.Chance(200_000) {
		c.resumeLedger(1)
	}
}

func (c *client) resumeLedger(tries int) {
	c.do(&logv1.Command{Verb: &logv1.Command_ResumeLedger{ResumeLedger: &logv1.ResumeLedger{}}}, tries, ignore)
}

// operateJob does what operators do to a job that exists: it is suspended for a while,
// moved, resumed, and now and then ended.
func (c *client) operateJob(luck uint64) {
	d := sim.Draws(luck).Of(4, 0)
	var names []string
	var ids []state.JobID
	c.w.view(func(s *state.State) {
		s.Jobs(0, func(j *state.Job) bool {
			names, ids = append(names, j.Name), append(ids, j.ID)
			return true
		})
	})
	if len(names) == 0 {
		return
	}
	i := d.N(int64(len(names)))
	switch n := d.N(100); {
	case n < 35:
		c.changeJob(names[i], suspendJob, triesMax)
		c.w.undoAfter(d.Skewed(second, 2*minute), func() { c.changeJob(names[i], resumeJob, triesMax) })
	case n < 45:
		c.changeJob(names[i], resumeJob, 1)
	case n < 50:
		c.changeJob(names[i], completeJob, 1)
	case n < 55:
		c.changeJob(names[i], deleteJob, triesMax)
	default:
		c.moveJob(ids[i], &d)
	}
}

// moveJob has a job moved to any other group, mostly by a plan that holds.
func (c *client) moveJob(id state.JobID, d *sim.Draw) {
	v := &logv1.MoveJob{JobId: uint64(id), CostMax: d.Skewed(0, 1_000_000_000), Transfer: d.Skewed(0, 20)}
	c.w.view(func(s *state.State) {
		reservation := s.Reservation(id)
		if reservation == nil {
			return
		}
		v.From, v.Period = uint64(reservation.Group), reservation.Cycle.Period
		s.NodeGroups(func(g *state.NodeGroup) bool {
			if g.ID != reservation.Group && (v.To == 0 || d.Chance(500_000)) {
				v.To, v.Was = uint64(g.ID), g.Period
				if g.Period > 0 && d.Chance(500_000) {
					v.Period = g.Period
				}
			}
			return true
		})
	})
	c.do(&logv1.Command{Verb: &logv1.Command_MoveJob{MoveJob: v}}, 1, ignore)
}

// killTrainers kills the processes of a host.
func (w *World) killTrainers(e Event) bool {
	hit := false
	for _, t := range w.trainersOf(e.On) {
		if t.proc.Runs() {
			w.trace("trainer %x of %s is killed, its turn is %d", t.luck, t.job.Name, t.turn)
			t.kill(e.For)
			hit = true
		}
	}
	return hit
}

// trainersOf returns those of a host that are not done.
func (w *World) trainersOf(host int) (all []*trainer) {
	for _, t := range w.trainers {
		if !t.over && t.host == host%hosts {
			all = append(all, t)
		}
	}
	return all
}

// cutTrainers takes the links of a host away.
func (w *World) cutTrainers(e Event, d *sim.Draw) bool {
	up := int(d.N(2))
	down := 1
	if up == 1 {
		down = int(d.N(2))
	}
	w.trace("trainers of host %d: cut off (to servers %v, from servers %v)", e.On%hosts, up == 1, down == 1)
	links := w.links[w.config.nodes+1+e.On%hosts]
	for i := range links {
		l := &links[i]
		l.up += up
		l.down += down
		w.undoAfter(e.For, func() { w.heal(l, up, down) })
	}
	return len(w.trainersOf(e.On)) > 0
}

// endJobs is what operators do when the faults are over: all jobs are completed, and groups
// leave their GPUs to actions.
func (w *World) endJobs() {
	c := w.clients[0]
	c.resumeLedger(1)
	c.freeMembers()
	for _, t := range w.trainers {
		t.steps = 0
	}
	w.view(func(s *state.State) {
		s.Jobs(0, func(j *state.Job) bool {
			if j.State != state.JobCompleted {
				c.changeJob(j.Name, completeJob, 1)
			}
			return true
		})
	})
}

// jobsLeft says what of jobs and turns has not come to its end.
func jobsLeft(s *state.State) (what string) {
	s.Jobs(0, func(j *state.Job) bool {
		if j.State != state.JobCompleted {
			what = fmt.Sprintf("job %d is in state %d", j.ID, j.State)
		}
		return what == ""
	})
	s.LiveTurns(func(t *state.Turn) bool {
		what = fmt.Sprintf("turn %d is in state %d", t.ID, t.State)
		return false
	})
	return what
}
