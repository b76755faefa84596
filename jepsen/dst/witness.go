package dst

import (
	"fmt"

	"rota/agent/plan"
	"rota/fsm/state"
)

// witness stands outside the cluster and sees every execution begin and end.
type witness struct {
	fail func(format string, args ...any)
	live map[uint64]execution // by action
	// seen has every execution that began, done those that came to their end.
	seen, done map[token]bool
	// share has those that share cores of their node with others that do.
	share     map[token]bool
	busyGPUs  map[string]state.GPUSet
	began     int
	transfers int // that nodes were told to pull
	generated int // reports of what a trajectory generated that were accepted
	resized   int // times that one was given other cores
	frozen    int // times that one was frozen
	sharing   int // times that one began to share cores
	// groups has who holds what now, as the holders see it. The newest token of a
	// group and the newest turn of a deployment only ever grow.
	groups  map[state.GroupID]*hold
	tokens  map[state.GroupID]uint64
	inOrder map[state.DeploymentID]state.TurnID
	turns   int // that held a group
	// turnGPUs are the GPUs that holders of groups use, by node; shared counts the turns that
	// use some.
	turnGPUs map[string]state.GPUSet
	shared   int
	// hookOf has the groups of hooks, by action; hooks counts those that began.
	hookOf map[uint64]state.GroupID
	hooks  int
	// handovers are the changes of hands by token.
	handovers map[uint64]*handover
	// batches has the samples that each step was given, sampled the step by the trajectory.
	batches map[policyStep][]state.TrajectoryID
	sampled map[state.TrajectoryID]policyStep
	// gangs that have started, by their first actions; gangsEnded counts those of which a member
	// did not succeed.
	gangs      map[state.ActionID]*gangSeen
	gangsEnded int
	// rewards and replicas are what was last seen of them; the counts are of replicas that were
	// started, became ready, and of failures that a pause followed.
	rewards                                        map[string]rewardSeen
	replicas                                       map[state.ActionID]replicaSeen
	replicasStarted, replicasReady, replicasFailed int
}

type token struct {
	action  uint64
	attempt uint32
}

type execution struct {
	node   string
	key    plan.Key
	cores  state.CoreSet
	gpus   state.GPUSet
	shares bool
	// frozen: it uses none of its cores.
	frozen bool
}

func newWitness(fail func(string, ...any)) *witness {
	return &witness{
		fail: fail, live: map[uint64]execution{}, seen: map[token]bool{}, share: map[token]bool{}, done: map[token]bool{},
		busyGPUs: map[string]state.GPUSet{},
		groups:   map[state.GroupID]*hold{}, tokens: map[state.GroupID]uint64{}, inOrder: map[state.DeploymentID]state.TurnID{},
		turnGPUs: map[string]state.GPUSet{},
		hookOf:   map[uint64]state.GroupID{}, handovers: map[uint64]*handover{},
		batches: map[policyStep][]state.TrajectoryID{}, sampled: map[state.TrajectoryID]policyStep{},
		gangs:   map[state.ActionID]*gangSeen{},
		rewards: map[string]rewardSeen{}, replicas: map[state.ActionID]replicaSeen{},
	}
}

// Began implements sim.Witness.
func (w *witness) Began(node string, k plan.Key, cores state.CoreSet, gpus state.GPUSet) {
	w.began++
	t := token{k.Action, k.Attempt}
	if other, ok := w.live[k.Action]; ok {
		w.fail("action %d runs twice at the same time: attempt %d on %s (incarnation %d) began while attempt %d ran on %s (incarnation %d)",
			k.Action, k.Attempt, node, k.Incarnation, other.key.Attempt, other.node, other.key.Incarnation)
	}
	if w.seen[t] {
		w.fail("attempt %d of action %d was executed a second time, on %s", k.Attempt, k.Action, node)
	}
	x := execution{node: node, key: k, cores: cores, gpus: gpus, shares: w.share[t]}
	w.alone(x, "begins on them")
	if both := w.busyGPUs[node] & gpus; both != 0 {
		w.fail("GPUs %v of %s are in use when attempt %d of action %d begins on them", both.Slice(), node, k.Attempt, k.Action)
	}
	if both := w.turnGPUs[node] & gpus; both != 0 {
		w.fail("a turn uses GPUs %v of %s when attempt %d of action %d begins on them", both.Slice(), node, k.Attempt, k.Action)
	}
	w.hookBegins(k.Action)
	w.seen[t] = true
	w.live[k.Action] = x
	w.busyGPUs[node] |= gpus
}

// alone: nobody else uses cores of an execution, unless both share them.
func (w *witness) alone(x execution, does string) {
	var others state.CoreSet
	for _, o := range w.live {
		if o.node == x.node && o.key.Action != x.key.Action && !o.frozen && !(o.shares && x.shares) {
			others = others.Union(o.cores)
		}
	}
	if both := others.Intersect(x.cores); both != (state.CoreSet{}) {
		w.fail("cores %v of %s are in use when attempt %d of action %d %s", both.Slice(), x.node, x.key.Attempt, x.key.Action, does)
	}
}

// Resized implements sim.Witness.
func (w *witness) Resized(node string, k plan.Key, cores state.CoreSet) {
	x, ok := w.live[k.Action]
	if !ok || x.key != k {
		return // a violation was told when it began
	}
	x.cores = cores
	w.live[k.Action] = x
	if x.frozen { // it is judged when it goes on
		return
	}
	w.alone(x, "goes on with them")
	if x.cores == (state.CoreSet{}) {
		w.fail("attempt %d of action %d is to go on without cores, on %s", k.Attempt, k.Action, node)
	}
	w.resized++
}

// Shares implements sim.Witness.
func (w *witness) Shares(k plan.Key, shares bool) {
	t := token{k.Action, k.Attempt}
	if w.share[t] == shares {
		return
	}
	w.share[t] = shares
	if shares {
		w.sharing++
	}
	if x, ok := w.live[k.Action]; ok && x.key == k {
		x.shares = shares
		w.live[k.Action] = x
	}
}

// Froze implements sim.Witness. What is frozen gives its cores away: it goes on with others, or with
// the same ones again.
func (w *witness) Froze(_ string, k plan.Key, frozen bool) {
	x, ok := w.live[k.Action]
	if !ok || x.key != k {
		return // a violation was told when it began
	}
	if x.frozen = frozen; frozen {
		w.frozen++
	} else {
		w.alone(x, "goes on with them after a pause")
	}
	w.live[k.Action] = x
}

// Ended implements sim.Witness.
func (w *witness) Ended(node string, k plan.Key, complete bool) {
	x, ok := w.live[k.Action]
	if !ok || x.key != k {
		return // a violation was told when it began
	}
	delete(w.live, k.Action)
	w.busyGPUs[node] &^= x.gpus
	if complete {
		w.done[token{k.Action, k.Attempt}] = true
	}
}

// hold is a turn that a trainer believes to have.
type hold struct {
	trainer    uint64
	group      state.GroupID
	deployment state.DeploymentID
	turn       state.TurnID
	token      uint64
	// gpus are those that the turn uses as members of its group.
	gpus []usedGPUs
}

// holds: a trainer begins to use a group.
func (w *witness) holds(h *hold) {
	w.turns++
	w.noHookOf(h)
	if o := w.groups[h.group]; o != nil {
		w.fail("group %d is held twice at the same time: turn %d (token %d) began while turn %d (token %d) held it", h.group, h.turn, h.token, o.turn, o.token)
	}
	if h.token <= w.tokens[h.group] {
		w.fail("turn %d holds group %d with token %d, which has seen %d", h.turn, h.group, h.token, w.tokens[h.group])
	}
	if h.turn <= w.inOrder[h.deployment] {
		w.fail("turn %d holds group %d after turn %d of the same deployment, which is younger", h.turn, h.group, w.inOrder[h.deployment])
	}
	w.usesGPUs(h)
	w.groups[h.group], w.tokens[h.group], w.inOrder[h.deployment] = h, h.token, h.turn
}

// leaves: it does so no more.
func (w *witness) leaves(h *hold) {
	if w.groups[h.group] == h {
		delete(w.groups, h.group)
	}
	for _, x := range h.gpus {
		w.turnGPUs[x.node] &^= x.set
	}
}

// judge compares what the cluster says of an action that has ended with what
// was seen of it.
func (w *witness) judge(e state.Event) error {
	if state.ActionState(e.State) == state.ActionSucceeded && !w.done[token{e.Subject, e.Attempt}] {
		return fmt.Errorf("action %d has succeeded with attempt %d, which nobody has seen come to its end", e.Subject, e.Attempt)
	}
	return nil
}
