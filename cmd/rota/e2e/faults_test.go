package e2e

import (
	"syscall"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// fault is something that breaks while the cluster is at work.
type fault struct {
	name  string
	lease lease
	// inflict breaks something and returns when it is whole again. The victim is
	// an agent that runs some of the actions that hold.
	inflict func(w *world, victim *devcluster.Process)
	// want is what must have become of the actions, beside what is always so.
	want func(o *outcome, held []submission)
	// once: no action of the load may be repeated.
	once bool
}

var faults = []fault{
	{name: "leader killed", lease: patient, inflict: killLeader, want: nothingLost},
	{name: "follower killed", lease: patient, inflict: killFollower, want: nothingLost},
	{name: "leader paused", lease: sturdy, inflict: pauseLeader, want: nothingLost},
	{name: "follower paused", lease: sturdy, inflict: pauseFollower, want: nothingLost},
	{name: "agent killed", lease: patient, inflict: killAgent, want: adopted},
	{name: "agent killed and away for longer than its lease", lease: short, inflict: killAgentForLong, want: lostOnce},
	{name: "agent paused", lease: short, inflict: pauseAgent, want: lostOnce},
	{name: "supervisor killed", lease: patient, inflict: killSupervisor, want: lostOnce},
	{name: "supervisor paused", lease: short, inflict: pauseSupervisor, want: anything},
	{name: "agent and supervisor killed", lease: patient, inflict: killBoth, want: lostOnce},
	// Nobody is left to kill what runs, as if the whole machine were paused, so
	// what may be repeated is not promised to be alive once. What may not is.
	{name: "agent and supervisor paused", lease: short, inflict: pauseBoth, want: lostOnce, once: true},
}

func TestFaults(t *testing.T) {
	const enough = 50
	need.Tool(t, "sh", "flock")
	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, f.lease, devcluster.Config{Servers: 3, Agents: 2})
			l := newLoad(w)
			held := l.start(4, holders(f.once)...)
			victim := w.victim(held, f.once)
			l.progress(time.Now().UnixNano() % 50) // at any moment
			f.inflict(w, victim)
			l.progress(max(20, enough-l.ended.Load()))
			o := l.settle()
			o.check()
			f.want(o, held)
			if len(o.actions) < enough {
				t.Errorf("only %d actions have run", len(o.actions))
			}
			t.Logf("%d actions, %d attempts", len(o.actions), w.count("start"))
		})
	}
}

// holders are actions of both kinds, so that an agent has both however they are
// spread.
func holders(once bool) []submission {
	h := make([]submission, 6)
	for i, retry := range []bool{false, false, true, true, false, true} {
		h[i] = submission{holds: true, retry: retry && !once}
	}
	return h
}

// victim is an agent that runs actions of both kinds.
func (w *world) victim(held []submission, once bool) *devcluster.Process {
	w.Helper()
	kinds := map[string]map[bool]bool{}
	for _, s := range held {
		node := w.action(s.id).Node
		if kinds[node] == nil {
			kinds[node] = map[bool]bool{}
		}
		kinds[node][s.retry] = true
	}
	for _, agent := range w.cluster.Agents {
		if len(kinds[agent.Name]) == 2 || once && len(kinds[agent.Name]) > 0 {
			return agent
		}
	}
	w.Fatalf("no agent runs actions of both kinds: %v", kinds)
	return nil
}

func (w *world) action(id uint64) *rotav1.Action {
	w.Helper()
	resp, err := w.api.Actions.GetAction(w.Context(), &rotav1.GetActionRequest{Id: id})
	if err != nil {
		w.Fatal(err)
	}
	return resp.Action
}

func killLeader(w *world, _ *devcluster.Process) {
	leader := w.leader(nil)
	w.kill(leader)
	w.leader(leader)
	w.start(leader)
}

func killFollower(w *world, _ *devcluster.Process) {
	follower := w.follower()
	w.kill(follower)
	w.commits(20) // so that it has something to catch up with
	w.start(follower)
}

// pauseLeader: when it goes on, it believes for a moment that it leads and that
// no agent has renewed its lease.
func pauseLeader(w *world, _ *devcluster.Process) {
	leader := w.leader(nil)
	w.signal(leader.Pid(), syscall.SIGSTOP)
	w.lease.outlast()
	w.leader(leader)
	w.signal(leader.Pid(), syscall.SIGCONT)
}

func pauseFollower(w *world, _ *devcluster.Process) {
	follower := w.follower()
	w.signal(follower.Pid(), syscall.SIGSTOP)
	w.lease.outlast()
	w.signal(follower.Pid(), syscall.SIGCONT)
}

func killAgent(w *world, victim *devcluster.Process) {
	w.kill(victim)
	time.Sleep(300 * time.Millisecond) // actions end meanwhile and nobody hears of it
	w.start(victim)
}

func killAgentForLong(w *world, victim *devcluster.Process) {
	incarnation := w.node(victim).Incarnation
	w.kill(victim)
	w.givenUp(victim)
	w.start(victim)
	w.up(victim, incarnation)
}

func pauseAgent(w *world, victim *devcluster.Process) {
	incarnation := w.node(victim).Incarnation
	w.signal(victim.Pid(), syscall.SIGSTOP)
	w.givenUp(victim)
	w.signal(victim.Pid(), syscall.SIGCONT)
	w.up(victim, incarnation)
}

// givenUp waits until the cluster has given a node up. By then its supervisor
// must have killed everything there.
func (w *world) givenUp(victim *devcluster.Process) {
	w.Helper()
	w.until(victim.Name+" is given up", func() bool {
		return w.node(victim).State == rotav1.NodeState_NODE_STATE_DOWN
	})
	if pids := processes(w.marker(), "ROTA_NODE="+victim.Name); len(pids) > 0 {
		w.Errorf("%s was given up, and processes %v of its attempts are alive", victim.Name, pids)
	}
}

func killSupervisor(w *world, victim *devcluster.Process) {
	old := w.supervisor(victim)
	w.signal(old, syscall.SIGKILL)
	w.until("there is another supervisor", func() bool { return w.supervisor(victim) != old })
}

func pauseSupervisor(w *world, victim *devcluster.Process) {
	supervisor := w.supervisor(victim)
	w.signal(supervisor, syscall.SIGSTOP)
	w.lease.outlast()
	w.signal(supervisor, syscall.SIGCONT)
}

func killBoth(w *world, victim *devcluster.Process) {
	supervisor := w.supervisor(victim)
	w.signal(supervisor, syscall.SIGSTOP) // or the agent would start another
	w.kill(victim)
	w.signal(supervisor, syscall.SIGKILL)
	w.start(victim)
}

func pauseBoth(w *world, victim *devcluster.Process) {
	incarnation := w.node(victim).Incarnation
	supervisor := w.supervisor(victim)
	w.signal(victim.Pid(), syscall.SIGSTOP)
	w.signal(supervisor, syscall.SIGSTOP)
	w.until(victim.Name+" is given up", func() bool {
		return w.node(victim).State == rotav1.NodeState_NODE_STATE_DOWN
	})
	w.signal(supervisor, syscall.SIGCONT)
	w.signal(victim.Pid(), syscall.SIGCONT)
	w.up(victim, incarnation)
}

// nothingLost: a server costs nothing, not even an attempt.
func nothingLost(o *outcome, _ []submission) {
	for _, s := range o.submissions {
		if a := o.actions[s.id]; a.GetState() != rotav1.ActionState_ACTION_STATE_SUCCEEDED || a.Attempt != 1 {
			o.w.Errorf("action %d: %v at attempt %d: %v", s.id, a.GetState(), a.GetAttempt(), a.GetResult())
		}
	}
}

// adopted: what ran when the agent died was found again by the next.
func adopted(o *outcome, held []submission) {
	for _, s := range held {
		if a := o.actions[s.id]; a.GetState() != rotav1.ActionState_ACTION_STATE_SUCCEEDED || a.Attempt != 1 {
			o.w.Errorf("action %d was not adopted: %v at attempt %d: %v", s.id, a.GetState(), a.GetAttempt(), a.GetResult())
		}
	}
}

// lostOnce: the fault has cost attempts, and what may be repeated was.
func lostOnce(o *outcome, held []submission) {
	lost, repeated, repeatable := 0, 0, 0
	for _, s := range held {
		a := o.actions[s.id]
		if a.GetState() == rotav1.ActionState_ACTION_STATE_LOST {
			lost++
		}
		if a.GetAttempt() > 1 {
			repeated++
		}
		if s.retry {
			repeatable++
		}
	}
	if lost == 0 || repeatable > 0 && repeated == 0 {
		o.w.Errorf("%d held actions were lost and %d repeated: did the fault happen?", lost, repeated)
	}
}

// anything beside what is always promised.
func anything(*outcome, []submission) {}
