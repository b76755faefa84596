package dst

import (
	"fmt"
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/internal/sim"
)

// carryOut does one event of the plan.
func (w *World) carryOut(e Event) {
	d := sim.Draws(e.Luck).Of(1, 0)
	if e.Fault() {
		if w.inject(e, &d) {
			w.count(e.Kind)
		}
		return
	}
	c := w.clients[e.On%len(w.clients)]
	switch e.Kind {
	case Submit:
		c.submit(e)
	case Gang:
		c.submitGangs(e)
	case Quota:
		c.changeQuota(e.On, e.Luck)
	case Engine:
		c.changeEngine(e.Luck)
	case Engines:
		c.reportEngines(e.On, e.Luck)
	case Migrate:
		c.migrate(e)
	case RollOut:
		c.rollOut(e)
	case TrainPolicy:
		c.trainPolicy(e)
	case Worker:
		c.changeWorker(e.Luck)
	case Generate:
		c.reportGenerations(e)
	case Reward:
		c.changeReward(e.Luck)
	case CallReward:
		c.callReward(e)
	case SickGPUs, DisableGPUs:
		c.loseGPUs(e)
	case Train:
		newTrainer(w, e.On, e.Luck).start()
	case ChangeJob:
		c.operateJob(e.Luck)
	case Group:
		c.changeGroup(e.On, e.Luck)
	case Read:
		w.read(e, &d)
	case Cancel:
		c.cancel(pick(&d, c.actions))
	case Open:
		c.open(e)
	case Close:
		c.closeOrHold(e, &d)
	case Drain:
		c.drain(e.On, true, 1)
		w.undoAfter(e.For, func() { c.drain(e.On, false, triesMax) })
	case Remove:
		c.do(&logv1.Command{Verb: &logv1.Command_RemoveNode{RemoveNode: &logv1.RemoveNode{Name: w.downNode(e.On)}}}, 1, ignore)
	case Namespace:
		c.createTeam()
	case Forget:
		c.forget(fmt.Sprintf("class-%d", d.N(5)))
	case Activate:
		if e.Level > 0 {
			c.activate(e.Level, triesMax)
		} else {
			c.activate(state.Level(d.N(int64(levelMax)+1)), 1)
		}
	case Upgrade:
		w.upgrade(w.servers[e.On], e.Level, e.For)
	case Watch:
		back := uint64(0)
		if d.Chance(300_000) {
			back = uint64(d.Skewed(1, 700))
		}
		w.watch[e.On%len(w.watch)].poll(int(d.N(16)), back)
	}
}

// count counts a fault that really happened.
func (w *World) count(fault Kind) {
	w.faults++
	w.happened[fault]++
}

// createTeam creates a namespace with a share and a limit of its own.
func (c *client) createTeam() {
	c.do(&logv1.Command{Verb: &logv1.Command_CreateNamespace{CreateNamespace: &logv1.CreateNamespace{Name: "team"}}}, triesMax, ignore)
	weight, running := uint32(3), uint32(8)
	c.do(&logv1.Command{Verb: &logv1.Command_UpdateNamespace{UpdateNamespace: &logv1.UpdateNamespace{Name: "team", Weight: &weight, RunningMax: &running}}}, triesMax, ignore)
}

// downNode is the first node from a number on that the cluster has given up.
func (w *World) downNode(from int) string {
	name := nodeName(from)
	w.servers[0].rep.View(func(s *state.State) {
		for i := range w.nodes {
			if n := s.NodeByName(nodeName((from + i) % len(w.nodes))); n != nil && n.State == state.NodeDown {
				name = n.Name
				return
			}
		}
	})
	return name
}

// undo is what ends a fault: when its time is over or when all is healed.
type undo struct {
	fn   func()
	done bool
}

func (u *undo) do() {
	if !u.done {
		u.done = true
		u.fn()
	}
}

// undoAfter ends a fault after a time.
func (w *World) undoAfter(d int64, fn func()) {
	u := &undo{fn: fn}
	w.undos = append(w.undos, u)
	w.loop.After(d, u.do)
}

// inject makes something go wrong and reports whether it could: some faults
// exclude each other, see package sim and docs/concepts.md on what cannot be
// fenced.
func (w *World) inject(e Event, d *sim.Draw) bool {
	switch e.Kind {
	case CrashAgent, CrashSupervisor, CrashBoth, Reboot, Replace, PauseAgent, PauseSupervisor:
		return w.hitNode(e)
	case Cut, CutOneWay, CutSome:
		return w.cut(e, d)
	case Loss, Delay, Duplicates, SlowCommit:
		w.spoil(e, d)
		return true
	case Depose, Leaderless:
		return w.changeLeader(e, d)
	case Jump:
		return w.jump(d)
	case Panic:
		w.panicSoon(e, d)
		return false // it counts when a decision panics
	case ActivateEarly:
		return w.activateEarly()
	case ReturnLate:
		return w.returnLate(e)
	case KillTrainer:
		return w.killTrainers(e)
	case CutTrainer:
		return w.cutTrainers(e, d)
	}
	return w.hitServer(e, d)
}

// hitNode crashes or pauses processes of a machine. An agent and its supervisor
// are never both away for long: nobody could fence that machine from inside.
func (w *World) hitNode(e Event) bool {
	n := w.nodes[e.On]
	if !n.AgentUp() || !n.SupervisorUp() {
		return false
	}
	switch e.Kind {
	case CrashAgent:
		n.CrashAgent()
		w.undoAfter(e.For, n.Boot)
	case CrashSupervisor:
		n.CrashSupervisor()
	case CrashBoth:
		n.CrashAgent()
		n.CrashSupervisor()
		w.undoAfter(e.For, n.Boot)
	case Reboot:
		n.Reboot()
		w.undoAfter(e.For, n.Boot)
	case Replace:
		n.Replace()
		w.undoAfter(e.For, n.Boot)
	case PauseAgent:
		n.PauseAgent()
		w.undoAfter(e.For, n.ResumeAgent)
	case PauseSupervisor:
		n.PauseSupervisor()
		w.undoAfter(e.For, n.ResumeSupervisor)
	}
	return true
}

// When the machine is back, its node is about to be given up, and commits take longer than
// a leader waits between two looks at the leases.
const (
	returnEarly  = 400 * millisecond
	returnCommit = 2 * second
	returnLasts  = 3 * second
)

// returnLate resets a machine that registers again just before its node is given up: the
// registration is on its way into the log when the leader decides. The machine has a faster
// network by then, or it would keep its incarnation.
func (w *World) returnLate(e Event) bool {
	n, s := w.nodes[e.On], w.leading()
	heard := w.heard[n.Name()]
	if s == nil || heard == 0 || !n.AgentUp() || !n.SupervisorUp() {
		return false
	}
	patience := w.config.settings.LeaseNs + w.config.settings.LeaseMarginNs
	patience -= patience / 1_000_000 * w.config.ppm[s.id] // by the clock of the leader
	n.Reboot()
	w.faster[e.On]++
	w.undoAfter(heard+patience-returnEarly-w.loop.Now(), func() {
		w.commitMin += returnCommit
		w.commitMax += returnCommit
		w.undoAfter(returnLasts, func() {
			w.commitMin -= returnCommit
			w.commitMax -= returnCommit
		})
		n.Boot()
	})
	return true
}

// cut takes links of a node away, in both directions or in one, to all servers
// or to some. It reports whether there was one.
func (w *World) cut(e Event, d *sim.Draw) (cut bool) {
	up, down := 1, 1
	if e.Kind == CutOneWay {
		up = int(d.N(2))
		down = 1 - up
	}
	w.trace("%s: cut off (to servers %v, from servers %v)", nodeName(e.On), up == 1, down == 1)
	for i := range w.links[e.On] {
		if e.Kind == CutSome && d.Chance(500_000) {
			continue
		}
		cut = true
		l := &w.links[e.On][i]
		l.up += up
		l.down += down
		w.undoAfter(e.For, func() { w.heal(l, up, down) })
	}
	if e.Kind != CutSome && e.For > w.config.settings.LeaseNs {
		w.countPartition(e)
	}
	return cut
}

// countPartition counts a partition that outlasts the lease, if the node really
// lost it, and whether the leader changed meanwhile.
func (w *World) countPartition(e Event) {
	n, elections := w.nodes[e.On], w.elections
	lost := n.SessionsLost()
	w.undoAfter(e.For, func() {
		if n.SessionsLost() == lost {
			return
		}
		w.partitions++
		if w.elections > elections {
			w.partitionsLed++
		}
	})
}

// spoil makes all links, or the servers' disks, worse for a while.
func (w *World) spoil(e Event, d *sim.Draw) {
	var n int64
	var what *int64
	switch e.Kind {
	case Loss:
		what, n = &w.weather.lossPPM, d.Between(10_000, 300_000)
	case Delay:
		what, n = &w.weather.delayMax, d.Skewed(50*millisecond, 20*second)
	case Duplicates:
		what, n = &w.weather.dupPPM, d.Between(50_000, 500_000)
	default:
		what, n = &w.commitMax, d.Between(100*millisecond, 4*second)
	}
	w.trace("%s: %d", e.Kind, n)
	*what += n
	w.undoAfter(e.For, func() { *what -= n })
}

// changeLeader ends a leadership. The old leader believes in it for a while.
func (w *World) changeLeader(e Event, d *sim.Draw) bool {
	s := w.leading()
	if s == nil {
		return false
	}
	believes, gap := e.For, d.Skewed(10*millisecond, 4*second)
	if e.Kind == Leaderless {
		believes, gap = min(e.For, second), e.For
	}
	w.trace("server %d is deposed and believes to lead for another %.3f s", s.id, float64(believes)/1e9)
	w.depose(believes)
	w.undoAfter(gap, func() { w.electAnother(s.id, e.Luck) })
	return true
}

// spare reports whether a majority is left without one server more.
func (w *World) spare() bool {
	away := 0
	for _, s := range w.servers {
		if !s.proc.Runs() {
			away++
		}
	}
	return 2*(away+1) < len(w.servers)
}

// hitServer crashes, pauses or slows one server, or has it take a snapshot.
func (w *World) hitServer(e Event, d *sim.Draw) bool {
	s := w.servers[e.On]
	leads := w.leader == s.id
	if !s.proc.Runs() {
		return false
	}
	switch e.Kind {
	case RollBack:
		return w.rollBack(s, e)
	case Save:
		if _, err := s.rep.Save(); err != nil {
			w.fail("restore", "server %d: %v", s.id, err)
		}
		return s.rep.Applied() > 0
	case Stall:
		if leads || s.stalled {
			return false
		}
		s.stalled = true
		w.undoAfter(e.For, func() {
			if s.stalled && s.proc.Alive() {
				s.stalled = false
				s.catchUp()
			}
		})
		return true
	}
	if !w.spare() || e.Kind == EraseServer && leads {
		return false
	}
	w.trace("server %d: %s", s.id, e.Kind)
	if leads {
		election := d.Between(300*millisecond, 3*second)
		w.undoAfter(election, func() { w.electAnother(s.id, e.Luck) })
	}
	if e.Kind == PauseServer {
		s.proc.Pause()
		if leads {
			w.depose(d.Skewed(millisecond, 5*second))
		}
		w.undoAfter(e.For, s.proc.Resume)
		return true
	}
	if leads {
		w.depose(0)
	}
	s.crash()
	if e.Kind == EraseServer {
		s.rep.Erase()
		s.promised = 0
	}
	w.undoAfter(e.For, func() { s.restart() })
	return true
}

// jump moves log time forward, as a leader with a strange clock would.
func (w *World) jump(d *sim.Draw) bool {
	s := w.leading()
	if s == nil {
		return false
	}
	by := d.Skewed(second, 15*minute)
	w.trace("log time jumps by %.0f s", float64(by)/1e9)
	s.jumped += by
	return true
}
