package check

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/jepsen/history"
)

const second = int64(time.Second)

// play makes a record as a run without any bug leaves it behind: the real state
// machine behind three servers, with clients, two nodes that execute and lose
// what is granted, watchers at every server, and a change of the leader. Its
// clock moves by a second each round.
type play struct {
	t       testing.TB
	rec     *history.Record
	machine *fsm.Machine
	draw    *rand.Rand
	now     int64 // of the record
	index   uint64
	term    uint64
	leader  string
	entries []history.Entry
	seen    uint64 // revision
	live    map[token]int
	awake   map[token]int // the first of the two servings of the engine that an execution calls
	names   []string      // of actions, by ID - 1
	asked   []history.Asked
	marks   []string // tokens in the directory of a trajectory
}

// healthy returns the record of a run of so many rounds.
func healthy(t testing.TB, rounds int) *history.Record {
	p := &play{
		t: t, machine: fsm.New(fsm.Options{}), draw: rand.New(rand.NewPCG(1, 2)), now: second, term: 1, leader: "s1", live: map[token]int{}, awake: map[token]int{},
		rec: &history.Record{Scenario: "play", Seed: 7, Servers: []string{"s1", "s2", "s3"}, Agents: []string{"n1", "n2"}, GPUMemoryBytes: 1000},
	}
	p.own([]string{"s1", "s2", "s3"})
	p.own(nil)
	p.note(history.WatchBegan)
	p.commit(&logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{ClusterId: "c", Level: uint32(state.LevelResizing)}}})
	p.register("n1")
	p.register("n2")
	p.createQuota("browser", state.QuotaConcurrency, 0)
	p.createQuota("search", state.QuotaSlidingWindow, 4*second)
	p.declareEngine()
	p.beginJobs()
	for round := range rounds {
		p.now += second
		p.round(round, rounds)
	}
	p.finish()
	beside(p.rec)
	scoredBeside(p.rec)
	return p.rec
}

// beside adds what is known of a time in which somebody meant harm, and of ends that
// were known beforehand.
func beside(r *history.Record) {
	const each = turnaroundsMin
	r.Abuse = &history.Abuse{
		Start: each * second, End: 2 * each * second, Tried: map[string]int{"forks": 3},
		Before: history.Sample{LeaderID: "s1", Term: 1}, After: history.Sample{LeaderID: "s1", Term: 1},
		MemoryPeaks: map[string]uint64{"s1": 200 << 20},
	}
	for i := range int64(2 * each) {
		took := second / 20 * (1 + i/each) // twice as long beside the abuse
		r.Turnarounds = append(r.Turnarounds, history.Turnaround{
			Start: i * second, End: i*second + took, Action: uint64(1000 + i), State: "SUCCEEDED", Attempt: 1,
		})
	}
	r.Ends = []history.End{{Action: 1, Want: "FAILED with exit code 2", Got: "FAILED with exit code 2"}}
}

func (p *play) round(round, rounds int) {
	switch round {
	case rounds / 2:
		p.term, p.leader = p.term+1, "s2"
		p.own(nil)
	case rounds / 3:
		p.lose("n2")
		p.register("n2")
	}
	p.submit(round)
	if round%4 == 1 {
		p.cancel(uint64(len(p.names)))
	}
	p.changeQuota(round)
	p.train(round)
	if round%5 == 2 {
		p.list()
	}
	p.read(1 + p.draw.Uint64N(uint64(len(p.names))))
	p.drain(round)
	for _, k := range p.running() {
		if p.draw.IntN(3) > 0 {
			p.complete(k)
		}
	}
	p.sample()
}

// own adds an entry of Raft's own.
func (p *play) own(voters []string) {
	p.index++
	p.entries = append(p.entries, history.Entry{Index: p.index, Term: p.term, Voters: voters})
}

// commit applies one command, starts what was granted and tells all watchers.
func (p *play) commit(c *logv1.Command) *logv1.Result {
	p.t.Helper()
	data, err := (&logv1.Entry{TimeNs: p.now, Commands: []*logv1.Command{c}}).MarshalVT()
	if err != nil {
		p.t.Fatal(err)
	}
	p.index++
	p.entries = append(p.entries, history.Entry{Index: p.index, Term: p.term, Data: data})
	results, err := p.machine.ApplyData(p.index, 0, data)
	if err != nil {
		p.t.Fatal(err)
	}
	p.now += second / 100
	p.machine.View(p.follow)
	return results[0]
}

func (p *play) follow(s *state.State) {
	for p.seen++; p.seen <= s.Meta().Revision; p.seen++ {
		e, _ := s.Event(p.seen)
		if e.Kind != state.EventAction {
			continue
		}
		w := history.WatchEvent{At: p.now, Revision: e.Revision, Action: e.Subject, State: stateName(e.State), Attempt: e.Attempt}
		for i, server := range p.rec.Servers {
			w.Watcher, w.Server = i, server
			w.Resumed = e.Revision%17 == uint64(i)
			p.rec.Watch = append(p.rec.Watch, w)
		}
		if state.ActionState(e.State) == state.ActionRunning {
			p.execute(s, s.Attempt(e.Node, state.ActionID(e.Subject)))
		}
	}
	p.seen = s.Meta().Revision
}

// note has all watchers note where they are.
func (p *play) note(kind history.WatchKind) {
	for i, server := range p.rec.Servers {
		p.rec.WatchNotes = append(p.rec.WatchNotes, history.WatchNote{Watcher: i, Server: server, At: p.now, Kind: kind, Revision: p.seen})
	}
}

func (p *play) execute(s *state.State, a *state.Attempt) {
	k := token{uint64(a.Action), a.Number}
	p.live[k] = len(p.rec.Executions)
	x := history.Execution{
		RequestID: p.requestOf(k.action), Action: k.action, Attempt: k.attempt, Incarnation: a.Incarnation,
		Node: s.Node(a.Node).Name, Start: p.now,
	}
	for _, c := range a.Cores.Slice() {
		x.Cores = append(x.Cores, int(c))
	}
	x.Width = max(1, len(x.Cores))
	p.executeScarce(&x, s, a)
	if k.action%5 == 0 { // as if these were of one trajectory
		x.Trajectory, x.Found, x.Marked = 1, slices.Clone(p.marks), p.now
		p.marks = append(p.marks, x.Token())
	}
	p.rec.Executions = append(p.rec.Executions, x)
}

func (p *play) requestOf(action uint64) string {
	if int(action) > len(p.names) { // submitted in this very entry
		return fmt.Sprintf("r%d", len(p.rec.Ops))
	}
	return p.names[action-1][:len(p.names[action-1])-2]
}

func (p *play) running() (tokens []token) {
	for k := range p.live {
		tokens = append(tokens, k)
	}
	slices.SortFunc(tokens, func(a, b token) int { return int(a.action) - int(b.action) })
	return tokens
}

// submit makes a submission. Some get no answer and are repeated.
func (p *play) submit(round int) {
	n := 1 + p.draw.IntN(2)
	id := fmt.Sprintf("r%d", len(p.rec.Ops))
	retry := round%2 == 0
	c := &logv1.SubmitActions{Request: &logv1.Request{Id: id, Digest: 1}}
	for range n {
		a := &logv1.Action{CoresMin: 1 + uint32(p.draw.IntN(2)), CoresMax: 2, AttemptsMax: 1 + 2*uint32(1-round%2), Spec: []byte("spec")}
		p.askScarce(a)
		c.Actions = append(c.Actions, a)
	}
	command := &logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: c}}
	op := history.Op{Client: 1, Verb: history.Submit, RequestID: id, Retry: retry, Start: p.now, Outcome: history.OK}
	r := p.commit(command)
	for i := range n {
		p.names = append(p.names, fmt.Sprintf("%s/%d", id, i))
		op.IDs = append(op.IDs, r.FirstId+uint64(i))
	}
	op.End = p.now
	if round%5 == 0 {
		unknown := op
		unknown.Outcome, unknown.IDs, unknown.Error = history.Unknown, nil, "deadline exceeded"
		p.rec.Ops = append(p.rec.Ops, unknown)
		op.Start = p.now
		op.Replayed = p.commit(command).Replayed
		op.End = p.now
	}
	p.rec.Ops = append(p.rec.Ops, op)
}

func (p *play) cancel(action uint64) {
	op := history.Op{Client: 2, Verb: history.Cancel, Target: action, Start: p.now, Outcome: history.OK}
	p.commit(&logv1.Command{Verb: &logv1.Command_CancelActions{CancelActions: &logv1.CancelActions{Ids: []uint64{action}}}})
	op.End = p.now
	p.rec.Ops = append(p.rec.Ops, op)
}

func (p *play) read(action uint64) {
	p.now += second / 100
	op := history.Op{Client: 3, Verb: history.Get, Server: "s3", Target: action, Start: p.now, End: p.now + second/200, Outcome: history.OK}
	p.machine.View(func(s *state.State) {
		a := s.Action(state.ActionID(action))
		if a == nil { // retention has dropped it
			op.Outcome, op.Error = history.Fail, "ACTION_NOT_FOUND"
			return
		}
		op.State, op.Attempt, op.Revision = stateName(uint8(a.State)), a.Attempt, s.Meta().Revision
	})
	p.rec.Ops = append(p.rec.Ops, op)
}

// list reads the first live actions.
func (p *play) list() {
	op := history.Op{Client: 3, Verb: history.List, Server: "s2", Start: p.now, End: p.now + second/200, Outcome: history.OK}
	p.machine.View(func(s *state.State) {
		op.Revision = s.Meta().Revision
		s.Actions(0, func(a *state.Action) bool {
			if !a.State.Final() {
				op.IDs = append(op.IDs, uint64(a.ID))
			}
			return true
		})
	})
	p.rec.Ops = append(p.rec.Ops, op)
}

func (p *play) drain(round int) {
	if round%8 != 3 && round%8 != 5 {
		return
	}
	op := history.Op{Client: 4, Verb: history.Drain, Node: "n1", Draining: round%8 == 3, Start: p.now, Outcome: history.OK}
	p.commit(&logv1.Command{Verb: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Name: "n1", Draining: op.Draining}}})
	op.End = p.now
	get := history.Op{Client: 4, Verb: history.GetNode, Node: "n1", Draining: op.Draining, Start: p.now + 1, End: p.now + second/200, Outcome: history.OK, State: "UP", Incarnation: 1}
	p.rec.Ops = append(p.rec.Ops, op, get)
}

func (p *play) register(node string) {
	p.commit(&logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{
		Name: node, JournalId: "j", MemoryBytes: 1000, NumaNodes: []*logv1.NumaNode{{Cpus: []uint32{0, 1, 2, 3}}},
		Gpus: &logv1.GpuInventory{Class: "simulated", Count: 8, MemoryBytes: 1000},
	}}})
}

// complete ends an execution, and a moment later its node reports it.
func (p *play) complete(k token) {
	x := &p.rec.Executions[p.live[k]]
	canceled := false
	p.machine.View(func(s *state.State) { canceled = s.Action(state.ActionID(k.action)).CancelReason != 0 })
	x.Alive, x.End, x.Complete = p.now, p.now, !canceled
	delete(p.live, k)
	p.stopEngine(k)
	p.now += second / 100
	report := &logv1.AttemptReport{ActionId: k.action, Attempt: k.attempt, Reason: uint32(state.EndExited)}
	if canceled {
		report.Reason = uint32(state.EndCanceled)
	}
	p.commit(&logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: &logv1.ReportAttempts{
		Node: x.Node, Incarnation: x.Incarnation, Reports: []*logv1.AttemptReport{report},
	}}})
}

// lose gives a node up after everything on it was killed.
func (p *play) lose(node string) {
	for _, k := range p.running() {
		if x := &p.rec.Executions[p.live[k]]; x.Node == node {
			x.Alive, x.End = p.now, p.now
			delete(p.live, k)
			p.stopEngine(k)
		}
	}
	p.rec.Faults = append(p.rec.Faults, history.Fault{Name: "agent-kill", Target: []string{node}, Start: p.now, End: p.now + second/2, Whole: p.now + second/2, Happened: "exited by SIGKILL"})
	p.now += second
	var incarnation uint64
	p.machine.View(func(s *state.State) { incarnation = s.NodeByName(node).Incarnation })
	p.commit(&logv1.Command{Verb: &logv1.Command_ExpireNode{ExpireNode: &logv1.ExpireNode{Name: node, Incarnation: incarnation}}})
}

func (p *play) sample() {
	p.rec.Samples = append(p.rec.Samples, p.samples()...)
	p.note(history.WatchTold)
}

func (p *play) samples() (all []history.Sample) {
	index, hash := p.machine.Hash()
	for _, server := range p.rec.Servers {
		p.now += second / 1000
		all = append(all, history.Sample{
			At: p.now, Server: server, LeaderID: p.leader, Term: p.term, Applied: p.index, Commit: p.index,
			HashIndex: index, Hash: fmt.Sprintf("%016x", hash),
		})
	}
	return all
}

// finish heals, lets everything end and collects.
func (p *play) finish() {
	p.trainBeside()
	p.rec.Healing.Stopped = p.now
	op := history.Op{Client: 4, Verb: history.Drain, Node: "n1", Start: p.now, Outcome: history.OK}
	p.commit(&logv1.Command{Verb: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Name: "n1"}}})
	op.End = p.now
	p.rec.Ops = append(p.rec.Ops, op)
	for waiting := 1; len(p.live)+waiting > 0; p.machine.View(func(s *state.State) { waiting = s.Counts().Queued }) {
		p.now += second / 2
		p.commit(&logv1.Command{Verb: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Name: "n1"}}})
		for _, k := range p.running() {
			p.complete(k)
		}
	}
	p.endJobs()
	p.rec.Healing.Settled, p.rec.Healing.Revision = p.now, p.seen
	p.note(history.WatchTold)
	p.machine.View(func(s *state.State) {
		s.Actions(0, func(a *state.Action) bool {
			p.rec.Final = append(p.rec.Final, history.Action{ID: uint64(a.ID), State: stateName(uint8(a.State)), Attempt: a.Attempt, Name: p.names[a.ID-1]})
			return true
		})
	})
	p.rec.Hashes = p.samples()
	p.rec.Duration = p.now
	for _, server := range p.rec.Servers {
		p.rec.Logs = append(p.rec.Logs, history.Log{Server: server, First: 1, Entries: slices.Clone(p.entries)})
	}
}
