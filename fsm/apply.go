package fsm

import (
	"fmt"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// workBudget bounds what one entry does beside its own commands: actions
// examined by the scheduler, timers fired, rows dropped.
const workBudget = 4096

// execution is the application of one entry to a copy of the state.
type execution struct {
	s        *state.State
	index    uint64
	faults   *faults
	stage    stage
	fail     func(stage) // tests only
	deciders deciders
	budget   int
	results  []*logv1.Result
	effects  []Effect
	// dirty are the queues that this entry has to look at, dirtyNodes
	// the nodes whose desired state it changed; both in order of appearance.
	dirty      orderedSet[state.Queue]
	dirtyNodes orderedSet[state.NodeID]
	// roomFreed are the namespaces with limits that may hold more than before.
	roomFreed orderedSet[state.NamespaceID]
	// roomAfter is how far an earlier entry came with some of them; for look-up only.
	roomAfter map[state.NamespaceID]state.ActionID
	room      room
	// divisions are the nodes whose cores are to be divided again, when all that can start
	// has started.
	divisions orderedSet[state.NodeID]
	// thaws are the nodes where resumed attempts may get cores back.
	thaws orderedSet[state.NodeID]
	// mayGoOn are the namespaces with limits of which resumed attempts may go on.
	mayGoOn orderedSet[state.NamespaceID]
	// requested are the pending trajectories that the actions of a submission are to join,
	// with what they would request then; for look-up only.
	requested  map[state.TrajectoryID]*state.Trajectory
	migrations pendingMigrations
	routes     pendingRoutes
	// policiesChanged: a policy changed, or a group became complete.
	policiesChanged bool
}

// stage is what an execution is doing, so that a panic can be put down to it.
type stage struct {
	command int // index of the command, -1 outside commands
	pool    state.PoolID
	quota   state.QuotaID
	group   state.GroupID
	// migration is started or ended by the rules of transfers.
	migration state.MigrationID
	// policy is one whose trajectories are given workers.
	policy string
	// reward is a function whose replicas are decided about.
	reward string
	// rollout: its groups are looked at.
	rollout state.RolloutID
	// placement: queued jobs are placed.
	placement bool
	timers    bool
}

// faults is what panicked in earlier tries of the same entry.
type faults struct {
	commands []string // by command: the panic, empty if none
	halted   []halted
	timers   string
	// migrations are those whose turn panicked.
	migrations []migrationFault
	// policies are those for which placing trajectories panicked.
	policies []string
	// rewards are those reward functions whose replicas were decided about with a panic.
	rewards []string
}

type migrationFault struct {
	migration state.MigrationID
	reason    string
}

// halted is a pool, a quota, a node group, a rollout, or else the placement of jobs.
type halted struct {
	pool   state.PoolID
	quota  state.QuotaID
	group  state.GroupID
	reason string

	rollout state.RolloutID
}

// apply applies an entry to a copy of a state and returns that with the results of
// the commands, one each. Each try needs a copy of its own: fork makes one.
func apply(fork func() *state.State, index uint64, e *logv1.Entry, known deciders, fail func(stage)) (*state.State, []*logv1.Result, []Effect) {
	f := &faults{commands: make([]string, len(e.Commands))}
	for tries := 0; ; tries++ {
		s := fork()
		// Each try excludes one thing more than the one before.
		state.Assert(tries <= len(e.Commands)+int(s.Meta().LastPool)+int(s.Meta().LastQuota)+int(s.Meta().LastGroup)+state.MigrationsMax+state.PoliciesMax+state.RewardsMax+state.RolloutsMax+4, "entry %d panics whatever is left out", index)
		x := &execution{s: s, index: index, faults: f, deciders: known, budget: workBudget}
		if x.run(e, fail) {
			return x.s, x.results, x.effects
		}
	}
}

// run does the whole entry and reports whether it came to an end. If a decision
// panicked, the fault is recorded for the next try. A broken invariant is not
// recovered: that replica must stop.
func (x *execution) run(e *logv1.Entry, fail func(stage)) (done bool) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *state.Corruption, *state.Beyond:
			panic(r)
		default:
			x.faults.add(x.stage, fmt.Sprint(r))
		}
	}()
	x.clock(e.TimeNs, e.WallNs)
	x.fail = fail
	x.fireTimers()
	for i, c := range e.Commands {
		x.results = append(x.results, x.command(i, c))
	}
	x.halt() // last: a command of this entry may have resumed one
	x.scaleRewards()
	x.schedule()
	x.placeGenerations()
	x.transmit()
	x.finish()
	return true
}

// enter notes what the execution is doing, and lets tests make it panic.
func (x *execution) enter(s stage) {
	x.stage = s
	if x.fail != nil {
		x.fail(s)
	}
}

func (f *faults) add(s stage, reason string) {
	switch {
	case s.timers:
		f.timers = reason
	case s.migration != 0:
		f.migrations = append(f.migrations, migrationFault{s.migration, reason[:min(len(reason), state.MigrationMessageBytesMax)]})
	case s.policy != "":
		f.policies = append(f.policies, s.policy)
	case s.reward != "":
		f.rewards = append(f.rewards, s.reward)
	case s.command >= 0:
		f.commands[s.command] = reason
	default:
		f.halted = append(f.halted, halted{s.pool, s.quota, s.group, reason, s.rollout})
	}
}

// clock moves log time to that of the entry, never back.
func (x *execution) clock(ns, wall int64) {
	m := *x.s.Meta()
	m.Advance(ns, wall)
	m.Applied = x.index
	x.s.SetMeta(m)
}

func (x *execution) now() int64 { return x.s.Meta().Now }

func (x *execution) settings() *state.Settings { return &x.s.Meta().Settings }

// halt halts what panicked in an earlier try.
func (x *execution) halt() {
	for _, h := range x.faults.halted {
		switch {
		case h.quota != 0:
			q := *x.s.Quota(h.quota)
			q.Halted = h.reason
			x.s.PutQuota(&q)
		case h.group != 0:
			g := *x.s.NodeGroup(h.group)
			g.Halted, g.WakeAt, g.Members.GapUntil = h.reason, 0, 0
			x.s.PutNodeGroup(&g)
		case h.rollout != 0:
			r := *x.s.Rollout(h.rollout)
			r.Halted = h.reason[:min(len(h.reason), state.HaltedBytesMax)]
			x.s.PutRollout(&r)
		case h.pool != 0:
			p := *x.s.Pool(h.pool)
			p.Halted = h.reason
			x.s.PutPool(&p)
			x.wakeQuotas() // its actions are to be set aside
		default:
			m := *x.s.Meta()
			m.PlacementHalted = h.reason
			x.s.SetMeta(m)
		}
	}
}

// command carries out one command, unless it panicked in an earlier try.
func (x *execution) command(i int, c *logv1.Command) *logv1.Result {
	if reason := x.faults.commands[i]; reason != "" {
		return x.stamp(refuse(codeInternal, "COMMAND_FAILED", "the command could not be applied and changed nothing: %s; please report this", reason))
	}
	x.enter(stage{command: i})
	if x.s.Meta().ClusterID == "" {
		if _, ok := c.Verb.(*logv1.Command_Bootstrap); !ok {
			return x.stamp(retryAfter(refuse(codeUnavailable, "NOT_BOOTSTRAPPED", "the cluster has just been started and is not ready; try again"), 100_000_000))
		}
	}
	if r := Premature(c, func() state.Level { return x.s.Meta().Level }); r != nil {
		return x.stamp(r)
	}
	if r := x.checkToken(c.Token); r != nil {
		return x.stamp(r)
	}
	return x.stamp(x.verb(c))
}

func (x *execution) stamp(r *logv1.Result) *logv1.Result {
	r.Index = x.index
	return r
}

// verb is the one switch over all verbs.
func (x *execution) verb(c *logv1.Command) *logv1.Result {
	switch v := c.Verb.(type) {
	case *logv1.Command_Bootstrap:
		return x.bootstrap(v.Bootstrap)
	case *logv1.Command_SubmitActions:
		return x.submitActions(v.SubmitActions)
	case *logv1.Command_CancelActions:
		return x.cancelActions(v.CancelActions)
	case *logv1.Command_OpenTrajectory:
		return x.openTrajectory(v.OpenTrajectory)
	case *logv1.Command_CloseTrajectory:
		return x.closeTrajectory(v.CloseTrajectory)
	case *logv1.Command_RegisterNode:
		return x.registerNode(v.RegisterNode)
	case *logv1.Command_ReportAttempts:
		return x.reportAttempts(v.ReportAttempts)
	case *logv1.Command_ExpireNode:
		return x.expireNode(v.ExpireNode)
	case *logv1.Command_DrainNode:
		return x.drainNode(v.DrainNode)
	case *logv1.Command_ReportDisk:
		return x.reportDisk(v.ReportDisk)
	case *logv1.Command_RemoveNode:
		return x.removeNode(v.RemoveNode)
	case *logv1.Command_CreateNamespace:
		return x.createNamespace(v.CreateNamespace)
	case *logv1.Command_ResumePool:
		return x.resumePool(v.ResumePool)
	case *logv1.Command_RaiseLevel:
		return x.raiseLevel(v.RaiseLevel)
	case *logv1.Command_DeletePool:
		return x.deletePool(v.DeletePool)
	case *logv1.Command_DeleteNamespace:
		return x.deleteNamespace(v.DeleteNamespace)
	case *logv1.Command_DeleteClass:
		return x.deleteClass(v.DeleteClass)
	case *logv1.Command_CreateQuota:
		return x.createQuota(v.CreateQuota)
	case *logv1.Command_UpdateQuota:
		return x.updateQuota(v.UpdateQuota)
	case *logv1.Command_DeleteQuota:
		return x.deleteQuota(v.DeleteQuota)
	case *logv1.Command_CreateNodeGroup:
		return x.createNodeGroup(v.CreateNodeGroup)
	case *logv1.Command_SetGroupMembers:
		return x.setGroupMembers(v.SetGroupMembers)
	case *logv1.Command_DeleteNodeGroup:
		return x.deleteNodeGroup(v.DeleteNodeGroup)
	case *logv1.Command_ResumeLedger:
		return x.resumeLedger()
	case *logv1.Command_SubmitJob:
		return x.submitJob(v.SubmitJob)
	case *logv1.Command_ChangeJob:
		return x.changeJob(v.ChangeJob)
	case *logv1.Command_MoveJob:
		return x.moveJob(v.MoveJob)
	case *logv1.Command_AcquireTurn:
		return x.acquireTurn(v.AcquireTurn)
	case *logv1.Command_EndTurn:
		return x.endTurn(v.EndTurn)
	case *logv1.Command_SubmitHook:
		return x.submitHook(v.SubmitHook)
	case *logv1.Command_EndContextSwitch:
		return x.endContextSwitch(v.EndContextSwitch)
	case *logv1.Command_RegisterEngine:
		return x.registerEngine(v.RegisterEngine)
	case *logv1.Command_RemoveEngine:
		return x.removeEngine(v.RemoveEngine)
	case *logv1.Command_ReportGpus:
		return x.reportGPUs(v.ReportGpus)
	case *logv1.Command_ReportEngines:
		return x.reportEngines(v.ReportEngines)
	case *logv1.Command_QuoteHash, *logv1.Command_Tick:
		return &logv1.Result{} // nothing in state; see machine.go and fireTimers
	}
	if r := x.otherVerb(c); r != nil {
		return r
	}
	return refuse(codeInvalidArgument, "UNKNOWN_VERB", "the command says nothing to do")
}

// finish turns what became dirty into effects.
func (x *execution) finish() {
	for _, id := range x.dirtyNodes.items {
		x.effects = append(x.effects, Effect{Kind: EffectNode, Node: id})
	}
	x.routeEffects()
	if x.policiesChanged {
		x.effects = append(x.effects, Effect{Kind: EffectPolicies})
	}
}

// orderedSet remembers the order in which items were first added.
type orderedSet[T comparable] struct {
	items []T
	known map[T]struct{} // for look-up only, never ranged over
}

// pop takes out the item that was added first. It may be added again.
func (s *orderedSet[T]) pop() (item T, ok bool) {
	if len(s.items) == 0 {
		return item, false
	}
	item, s.items = s.items[0], s.items[1:]
	delete(s.known, item)
	return item, true
}

// addFirst puts an item before all others.
func (s *orderedSet[T]) addFirst(item T) {
	if _, ok := s.known[item]; !ok {
		s.add(item)
		copy(s.items[1:], s.items)
		s.items[0] = item
	}
}

func (s *orderedSet[T]) has(item T) bool {
	_, ok := s.known[item]
	return ok
}

func (s *orderedSet[T]) add(item T) {
	if _, ok := s.known[item]; ok {
		return
	}
	if s.known == nil {
		s.known = make(map[T]struct{})
	}
	s.known[item] = struct{}{}
	s.items = append(s.items, item)
}
