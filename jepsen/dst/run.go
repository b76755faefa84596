package dst

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
	"rota/sched/place"
)

// Density below which a run is void, per simulated hour.
const (
	ActionsPerHourMin = 1000
	FaultsPerHourMin  = 20
	TurnsPerHourMin   = 200
)

// Once all faults are healed everything has to come to its end within settleMax, and
// actionMax more for each action that was left: none runs for more than a minute, and
// the slowest quota lets one through in each of its windows.
const (
	settleMax = 10 * minute
	actionMax = minute + quotaWindowMax
)

// Options of a run. The zero value is a run of one hour.
type Options struct {
	// Length is the simulated time with faults, per seed.
	Length time.Duration
	// Scenario draws the plan; nil means Random.
	Scenario Scenario
	// Model returns a second opinion; nil means that of jepsen/model, which knows the
	// decisions that panic on purpose.
	Model func() Model
	// CheckEvery: of each so many entries indexes and hashes are computed anew from
	// the rows, which costs more than all else; 0: of each 16th. The rows
	// themselves are checked after every entry.
	CheckEvery uint64
	// Flaws are planted bugs.
	Flaws Flaws

	story bool
}

// Outcome is what became of one run.
type Outcome struct {
	Seed      uint64
	Simulated time.Duration
	// Actions that were accepted, executions that began, how often one was given other
	// cores, entries that were committed, faults that really happened.
	Actions, Executions, Resizes, Frozen, Sharing, Entries, Faults int
	Expiries, Elections                                            int
	// Gangs that started, and those of which a member did not succeed.
	Gangs, GangsEnded int
	// Replicas of reward functions that were started, those that became ready, and failures of
	// some that a pause followed.
	Replicas, ReplicasReady, ReplicasFailed int
	// Reads that were answered.
	Reads int
	// Overtaken are expiries of nodes that had come back when they were committed.
	Overtaken int
	// Jobs that were accepted, turns that held a group, as the holders saw it, and
	// turns whose holders were silent for too long.
	Jobs, Turns, TurnsLost int
	// Hooks that began to run when groups changed hands.
	Hooks int
	// Transfers that nodes were told to pull.
	Transfers int
	// Batches that trainers were given, and the samples in them.
	Batches, Samples int
	// Reports of what a trajectory generated that were accepted.
	Generated int
	// SharedTurns held a group whose members' GPUs actions use between turns.
	SharedTurns int
	// GapActions started on members of a group between its turns; Overruns of them still ran when a
	// reservation began.
	GapActions, Overruns int
	// Upgrades of a server to a newer build; Stops at a feature level
	// that the server's build did not know.
	Upgrades, Stops int
	// Late entries were stamped in another term than they were appended in.
	Late int
	// Partitions outlasted the lease of a node, which lost it; in PartitionsLed of
	// them the leader changed.
	Partitions, PartitionsLed int
	Happened                  map[Kind]int
	// Digest is equal for equal runs.
	Digest uint64
	// Violation is nil if all was well.
	Violation *Violation
	// Story has what happened, line by line, if it was asked for.
	Story []string
	Plan  Plan
}

// tooThin says by how much a run is below the density that makes it worth
// something, empty if it is not.
func tooThin(hours float64, actions, faults, turns int) string {
	switch {
	case float64(actions) < hours*ActionsPerHourMin:
		return fmt.Sprintf("%d actions in %.2f simulated hours are fewer than %d an hour", actions, hours, ActionsPerHourMin)
	case float64(faults) < hours*FaultsPerHourMin:
		return fmt.Sprintf("%d faults in %.2f simulated hours are fewer than %d an hour", faults, hours, FaultsPerHourMin)
	case float64(turns) < hours*TurnsPerHourMin:
		return fmt.Sprintf("%d turns held a node group in %.2f simulated hours, fewer than %d an hour", turns, hours, TurnsPerHourMin)
	}
	return ""
}

// Scenario draws the plan of a seed for a length in nanoseconds.
type Scenario func(seed uint64, length int64) Plan

// Random is the scenario of everything at once.
func Random(seed uint64, length int64) Plan { return newPlan(newConfig(seed), length) }

// Run simulates a seed.
func Run(seed uint64, o Options) Outcome {
	if o.Length == 0 {
		o.Length = time.Hour
	}
	if o.Scenario == nil {
		o.Scenario = Random
	}
	return RunPlan(o.Scenario(seed, int64(o.Length)), o)
}

// RunPlan carries out a plan on the cluster of its seed.
func RunPlan(p Plan, o Options) (out Outcome) {
	w := newWorld(newConfig(p.Seed), o)
	defer func() {
		if r := recover(); r != nil {
			w.fail("no panic", "panic: %v\n%s", r, debug.Stack())
			out = w.outcome(p)
		}
	}()
	w.start()
	for _, e := range p.Events {
		w.loop.At(e.At, func() {
			if w.keep && (e.Fault() || e.Kind == Drain || e.Kind == Remove) {
				w.tell("%s %d", e.Kind, e.On)
			}
			w.carryOut(e)
		})
	}
	w.patrol()
	w.loop.Run(p.Length)
	w.finish()
	return w.outcome(p)
}

func (w *World) outcome(p Plan) Outcome {
	out := Outcome{
		Seed: p.Seed, Simulated: w.simulated(), Executions: w.witness.began, Resizes: w.witness.resized, Frozen: w.witness.frozen, Sharing: w.witness.sharing, Entries: int(w.log.Last()),
		Partitions: w.partitions, PartitionsLed: w.partitionsLed,
		Faults: w.faults, Expiries: w.expiries, Overtaken: w.overtaken, Reads: w.reads, Elections: w.elections, Upgrades: w.upgrades, Stops: w.stops, Late: w.lates, Happened: w.happened,
		Replicas: w.witness.replicasStarted, ReplicasReady: w.witness.replicasReady, ReplicasFailed: w.witness.replicasFailed,
		Gangs: len(w.witness.gangs), GangsEnded: w.witness.gangsEnded,
		Turns: w.witness.turns, TurnsLost: w.turnsLost, Hooks: w.witness.hooks, Transfers: w.witness.transfers,
		Batches: len(w.witness.batches), Samples: len(w.witness.sampled), Generated: w.witness.generated, SharedTurns: w.witness.shared, GapActions: w.audit.late.Gaps, Overruns: w.audit.late.Overruns,
		Digest: w.digest, Violation: w.violation, Story: w.story, Plan: p,
	}
	w.servers[0].rep.View(func(s *state.State) {
		out.Actions, out.Jobs = int(s.Meta().LastAction), int(s.Meta().LastJob)
	})
	return out
}

// finish heals everything and waits until nothing is left to do.
func (w *World) finish() {
	if w.violation != nil {
		return
	}
	w.trace("everything is healed")
	w.healAll()
	healed, most := w.loop.Now(), settleMax
	w.view(func(s *state.State) { most += int64(s.Counts().Queued+s.Counts().Running) * actionMax })
	for w.violation == nil {
		w.tidyUp()
		w.loop.Run(w.loop.Now() + 10*second)
		left := w.left()
		if left == "" {
			break
		}
		if w.loop.Now() > healed+most {
			w.fail("liveness", "%.0f s after everything was healed %s", float64(w.loop.Now()-healed)/1e9, left)
		}
	}
	if w.violation == nil {
		w.compareAll()
	}
}

func (w *World) healAll() {
	for _, u := range w.undos {
		u.do()
	}
	w.upgradeAll()
	w.planned = nil
	for _, s := range w.servers {
		if s.stalled {
			s.stalled = false
			s.catchUp()
		}
		if s.leads && s.id != w.leader {
			s.stepDown()
		}
	}
	if w.leader < 0 {
		w.electAnother(-1, 0)
	}
	for _, s := range w.servers {
		if s.id != w.leader {
			w.announce(s, w.leader, 0)
		}
	}
}

// tidyUp is what operators and clients do when the faults are over: nodes take
// work again, pools are resumed, trajectories closed, and what waits for a node
// that no longer exists is given up.
func (w *World) tidyUp() {
	c := w.clients[0]
	c.activate(levelMax, 1)
	w.endJobs()
	w.view(c.endRewards)
	w.view(func(s *state.State) {
		s.Nodes(0, func(n *state.Node) bool {
			if n.Draining {
				w.undrain(n.Name)
			}
			if len(n.Sick)+len(n.Disabled) > 0 {
				c.do(&logv1.Command{Verb: &logv1.Command_ReportGpus{ReportGpus: &logv1.ReportGpus{Node: n.Name, Incarnation: n.Incarnation}}}, 1, ignore)
				c.do(&logv1.Command{Verb: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Name: n.Name, Gpus: uint64(state.AllGPUs(n.GPUs.Count))}}}, 1, ignore)
			}
			return true
		})
		c.resumeHalted(s)
		s.Trajectories(0, func(t *state.Trajectory) bool {
			if !t.State.Ended() {
				c.close(uint64(t.ID), 1)
			}
			return true
		})
		if s.Counts().NodesUp == len(w.nodes) {
			w.cancelHopeless(s)
		}
	})
}

// patrol looks every minute for what waits in vain, or it would fill the queues.
func (w *World) patrol() {
	w.loop.After(minute, func() {
		w.view(w.cancelHopeless)
		w.patrol()
	})
}

// cancelHopeless gives up what was accepted while its pool had no node, and asks
// for more than the nodes have that came.
func (w *World) cancelHopeless(s *state.State) {
	s.Actions(0, func(a *state.Action) bool {
		fits := a.State != state.ActionQueued || a.Trajectory != 0
		s.Shapes(a.Pool, func(shape *state.Shape) bool {
			fits = fits || place.Holds(shape, a)
			return !fits
		})
		if fits && a.State == state.ActionQueued && a.ID == a.Gang {
			members, _, _ := sched.GangHolds(s, a, false)
			fits = members == int(a.GangSize)
		}
		if !fits {
			w.clients[0].cancel(uint64(a.ID))
		}
		return true
	})
}

func (w *World) undrain(node string) {
	w.clients[0].do(&logv1.Command{Verb: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Name: node}}}, 1, ignore)
}

// view shows the state of the server that has applied most.
func (w *World) view(fn func(*state.State)) {
	best := w.servers[0]
	for _, s := range w.servers {
		if s.rep.Applied() > best.rep.Applied() {
			best = s
		}
	}
	best.rep.View(fn)
}

// left says what has not come to its end, empty if everything has.
func (w *World) left() (what string) {
	w.view(func(s *state.State) {
		counts := s.Counts()
		switch {
		case counts.Queued+counts.Running > 0:
			what = fmt.Sprintf("%d actions are queued and %d run", counts.Queued, counts.Running)
		case counts.OpenTrajectories > 0:
			what = fmt.Sprintf("%d trajectories are open", counts.OpenTrajectories)
		case counts.NodesUp < len(w.nodes):
			what = fmt.Sprintf("%d of %d nodes are up", counts.NodesUp, len(w.nodes))
		case s.HasWork():
			what = "work is left over"
		case s.Meta().Level < levelMax:
			what = fmt.Sprintf("feature level %d is still active", s.Meta().Level)
		default:
			what = cmp.Or(jobsLeft(s), migrationsLeft(s), rewardsLeft(s))
		}
	})
	for _, n := range w.nodes {
		if what == "" && !n.Idle() {
			what = "node " + n.Name() + " has something left"
		}
	}
	return what
}

// compareAll is the end of a run: servers are equal, a replay from nothing is
// equal, and what was accepted has ended.
func (w *World) compareAll() {
	last := w.log.Last()
	for _, s := range w.servers {
		s.agrees(last)
		if !s.applyTo(last) {
			return
		}
		w.audit.compare(s.id, last, s.rep.Hash())
		s.rep.View(func(st *state.State) {
			if err := st.Check(); err != nil {
				w.fail("state", "server %d at the end: %v", s.id, err)
			}
		})
	}
	if err := w.audit.replay(); err != nil {
		w.fail("replay", "%v", err)
		return
	}
	for _, t := range w.watch {
		t.poll(t.id, 0)
	}
	for _, id := range w.acked {
		if !w.audit.endedTurns[id] {
			w.fail("nothing lost", "turn %d was accepted and never ended", id)
			return
		}
	}
	for _, c := range w.clients {
		for i := 0; i < len(c.acked); i += 2 {
			for id := c.acked[i]; id < c.acked[i]+c.acked[i+1]; id++ {
				if _, ok := w.audit.ended[id]; !ok {
					w.fail("nothing lost", "action %d was accepted from client %d and never ended", id, c.id)
					return
				}
			}
		}
	}
}

// Tell runs a plan again and returns what happened, line by line.
func Tell(p Plan, o Options) Outcome {
	o.story = true
	return RunPlan(p, o)
}
