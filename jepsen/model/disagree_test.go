package model

import (
	"slices"
	"strings"
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// disagreement is a lie that the model must see through. The setup is applied
// for real, one entry each. Then the state machine is sabotaged behind its back,
// or what it made of the last entry is forged.
type disagreement struct {
	name     string
	setup    []*logv1.Command
	sabotage func(*state.State)
	last     []*logv1.Command
	forge    func(*state.State, []*logv1.Result)
	wants    string
}

func submitOf(actions ...*logv1.Action) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{Actions: actions}}}
}

func once(id string) *logv1.Command {
	c := submitOf(cores(1))
	c.GetSubmitActions().Request = &logv1.Request{Id: id}
	return c
}

func cores(n uint32) *logv1.Action {
	return &logv1.Action{CoresMin: n, CoresMax: n, AttemptsMax: 2, MemoryBytes: 10, Spec: []byte("spec")}
}

func wide(least, most uint32) *logv1.Action {
	a := cores(least)
	a.CoresMax = most
	return a
}

// sized can use these numbers of cores only.
func sized(set ...uint32) *logv1.Action {
	a := wide(set[0], set[len(set)-1])
	a.Needs = &logv1.Needs{Cores: set}
	return a
}

func named(a *logv1.Action) *logv1.Action {
	a.Class = "c"
	return a
}

// told says how long it takes.
func told(a *logv1.Action) *logv1.Action {
	a.Needs = &logv1.Needs{Profile: &logv1.Profile{SingleNs: second, Serial: true}}
	return a
}

func within(a *logv1.Action, timeout int64) *logv1.Action {
	a.QueueTimeoutNs = timeout
	return a
}

// node registers a node with NUMA nodes of two cores.
func nodeOf(name string, numa int, memory uint64) *logv1.Command {
	c := &logv1.RegisterNode{Name: name, JournalId: "j" + name, MemoryBytes: memory}
	for i := range uint32(numa) {
		c.NumaNodes = append(c.NumaNodes, &logv1.NumaNode{Cpus: []uint32{2 * i, 2*i + 1}})
	}
	return &logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: c}}
}

func withGPUs(name string) *logv1.Command {
	c := nodeOf(name, 2, 1000)
	c.GetRegisterNode().Gpus = &logv1.GpuInventory{Class: "H100", Count: 8, MemoryBytes: 80}
	return c
}

func onGPUs(n uint32) *logv1.Action {
	a := cores(1)
	a.Needs = &logv1.Needs{Gpus: &logv1.Gpus{Degrees: []uint32{n}, Model: "m", SetupNs: second}}
	return a
}

// untimed says nothing of how long its model takes to set up.
func untimed(gpus uint32) *logv1.Action {
	a := onGPUs(gpus)
	a.Needs.Gpus.SetupNs = 0
	return a
}

var levelThree = &logv1.Command{Verb: &logv1.Command_RaiseLevel{RaiseLevel: &logv1.RaiseLevel{Level: levelResizing}}}

func engineOf(spec string) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_RegisterEngine{RegisterEngine: &logv1.RegisterEngine{Model: "m", Spec: []byte(spec)}}}
}

// engineReportOf is what node n1 says of the engine on its first two GPUs.
func engineReportOf(incarnation uint64, said uint32, setUp int64) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_ReportEngines{ReportEngines: &logv1.ReportEngines{
		Node: "n1", Incarnation: incarnation, Reports: []*logv1.EngineReport{{Model: "m", Gpus: 2, State: said, SetUpNs: setUp, Generation: 1}},
	}}}
}

// usedOf reports that an action has ended and what it used of a quota.
func usedOf(action uint64, units uint32) *logv1.Command {
	c := reportOf("n1", 1, action, state.EndExited)
	c.GetReportAttempts().Reports[0].Usage = []*logv1.QuotaUse{{Quota: "q", Units: units}}
	return c
}

func reportOf(node string, incarnation, action uint64, reason state.EndReason) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: &logv1.ReportAttempts{
		Node: node, Incarnation: incarnation, Reports: []*logv1.AttemptReport{{ActionId: action, Attempt: 1, Reason: uint32(reason)}},
	}}}
}

func expireOf(name string, incarnation uint64) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_ExpireNode{ExpireNode: &logv1.ExpireNode{Name: name, Incarnation: incarnation}}}
}

func drainOf(name string) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Name: name, Draining: true}}}
}

func openOf(memory uint64, idle int64) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{MemoryBytes: memory, IdleTimeoutNs: idle}}}
}

// inGroup is spread over the zones of nodes.
func inGroup() *logv1.Command {
	c := openOf(10, 0)
	c.GetOpenTrajectory().SpreadGroup, c.GetOpenTrajectory().SpreadLabel = "g", "zone"
	return c
}

func inZone(c *logv1.Command, zone string) *logv1.Command {
	c.GetRegisterNode().Labels = []*logv1.Label{{Key: "zone", Value: zone}}
	return c
}

func cancelOf(ids ...uint64) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_CancelActions{CancelActions: &logv1.CancelActions{Ids: ids}}}
}

// Rows are replaced, never changed: other copies of the state share them.
func editNode(s *state.State, name string, edit func(*state.Node)) {
	n := *s.NodeByName(name)
	edit(&n)
	s.PutNode(&n)
}

func editAction(s *state.State, id state.ActionID, edit func(*state.Action)) {
	a := *s.Action(id)
	edit(&a)
	s.PutAction(&a)
}

func editTrajectory(s *state.State, id state.TrajectoryID, edit func(*state.Trajectory)) {
	t := *s.Trajectory(id)
	edit(&t)
	s.PutTrajectory(&t)
}

func editAttempt(s *state.State, id state.ActionID, edit func(*state.Attempt)) {
	t := *s.Attempt(s.Action(id).Node, id)
	edit(&t)
	s.PutAttempt(&t)
}

func editMeta(s *state.State, edit func(*state.Meta)) {
	m := *s.Meta()
	edit(&m)
	s.SetMeta(m)
}

// quotaOf has a window that is longer than any test.
func quotaOf(limit uint32) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_CreateQuota{CreateQuota: &logv1.CreateQuota{Name: "q", Kind: sliding, Limit: limit, WindowNs: 100 * second, Keys: 1}}}
}

// calling has no cores, and so many units.
func calling(units uint32) *logv1.Command {
	return submitOf(&logv1.Action{AttemptsMax: 1, Spec: []byte("spec"), Needs: &logv1.Needs{Quotas: []*logv1.QuotaUse{{Quota: "q", Units: units}}}})
}

func editQuota(s *state.State, edit func(*state.KeyUse)) {
	q := *s.Quota(1)
	q.Uses = slices.Clone(q.Uses)
	edit(&q.Uses[0])
	s.PutQuota(&q)
}

func groupOf(nodes int64) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: &logv1.CreateNodeGroup{Name: "g", Nodes: nodes}}}
}

func jobOf(name string) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{Name: name, Nodes: 1}}}
}

func acquireOf(job, deployment string) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_AcquireTurn{AcquireTurn: &logv1.AcquireTurn{Job: job, Deployment: deployment, Operation: 1, ExpectNs: second}}}
}

func suspendOf(job string) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_ChangeJob{ChangeJob: &logv1.ChangeJob{Name: job, Change: suspendJob}}}
}

type commands = []*logv1.Command

var one = commands{nodeOf("n1", 2, 1000)}

var disagreements = []disagreement{
	{name: "an ID is skipped", last: commands{submitOf(cores(1))}, wants: "answered ID 2",
		forge: func(_ *state.State, r []*logv1.Result) { r[0].FirstId++ }},
	{name: "a count is wrong", last: commands{submitOf(cores(1))}, wants: "count 7",
		forge: func(_ *state.State, r []*logv1.Result) { r[0].Count = 7 }},
	{name: "a result of another entry", last: commands{submitOf(cores(1))}, wants: "says index 9",
		forge: func(_ *state.State, r []*logv1.Result) { r[0].Index = 9 }},
	{name: "a replay is called new", setup: commands{once("r")}, last: commands{once("r")}, wants: "replayed false",
		forge: func(_ *state.State, r []*logv1.Result) { r[0].Replayed = false }},
	{name: "a request is forgotten early", setup: commands{once("r")}, wants: "request IDs",
		sabotage: func(s *state.State) { s.DeleteRequest("r") }, last: commands{nil}},
	{name: "a forgotten request is executed again", setup: commands{once("r")}, wants: "answered ID 2",
		sabotage: func(s *state.State) { s.DeleteRequest("r") }, last: commands{once("r")}},
	{name: "a request is remembered too long", last: commands{once("r")}, wants: "is remembered as",
		forge: func(s *state.State, _ []*logv1.Result) { r := *s.Request("r"); r.Expires++; s.PutRequest(&r) }},
	{name: "refused for nothing", last: commands{submitOf(cores(1))}, wants: "nothing forbids it",
		forge: func(_ *state.State, r []*logv1.Result) {
			r[0] = &logv1.Result{Index: r[0].Index, Refusal: &logv1.Refusal{Code: 8, Reason: "QUEUE_FULL", Message: "x"}}
		}},
	{name: "accepted for nothing", last: commands{cancelOf(5)}, wants: "must be refused with [ACTION_NOT_FOUND]",
		forge: func(_ *state.State, r []*logv1.Result) { r[0].Refusal = nil }},
	{name: "refused with another code", last: commands{cancelOf(5)}, wants: "code 13",
		forge: func(_ *state.State, r []*logv1.Result) { r[0].Refusal.Code = 13 }},
	{name: "refused without a word", last: commands{cancelOf(5)}, wants: "no word what to do",
		forge: func(_ *state.State, r []*logv1.Result) { r[0].Refusal.Message = "" }},
	{name: "refused by a panic", last: commands{cancelOf(5)}, wants: "COMMAND_FAILED",
		forge: func(_ *state.State, r []*logv1.Result) {
			r[0].Refusal.Reason, r[0].Refusal.Code = "COMMAND_FAILED", 13
		}},
	{name: "log time goes back", last: commands{nil}, wants: "log time",
		forge: func(s *state.State, _ []*logv1.Result) { editMeta(s, func(m *state.Meta) { m.Now-- }) }},
	{name: "an entry applied twice", last: commands{nil}, wants: "at index 7",
		forge: func(s *state.State, _ []*logv1.Result) { editMeta(s, func(m *state.Meta) { m.Applied = 7 }) }},
	{name: "an event that nothing caused", last: commands{nil}, wants: "which nothing causes",
		forge: func(s *state.State, _ []*logv1.Result) { s.AddEvent(state.Event{Kind: state.EventNode, Subject: 3}) }},
	{name: "a revision is skipped", last: commands{nil}, wants: "revision",
		forge: func(s *state.State, _ []*logv1.Result) { editMeta(s, func(m *state.Meta) { m.Revision++ }) }},
	{name: "the fence is missing", setup: commands{one[0], submitOf(cores(1)), expireOf("n1", 1), one[0]}, wants: "answered ID 0, count 1",
		sabotage: func(s *state.State) { editAttempt(s, 1, func(t *state.Attempt) { t.Number, t.Incarnation = 1, 1 }) },
		last:     commands{reportOf("n1", 1, 1, state.EndExited)}},
	{name: "a stale report counts", setup: commands{one[0], submitOf(cores(1))}, last: commands{reportOf("n1", 7, 1, state.EndExited)}, wants: "count 1",
		forge: func(_ *state.State, r []*logv1.Result) { r[0].Count = 1 }},
	{name: "an incarnation again", setup: commands{one[0], expireOf("n1", 1)}, last: one, wants: "incarnation",
		sabotage: func(s *state.State) { editMeta(s, func(m *state.Meta) { m.LastIncarnation-- }) }},
	{name: "cores are given twice", setup: commands{one[0], submitOf(cores(2))}, last: commands{submitOf(cores(2))}, wants: "are free",
		forge: func(s *state.State, _ []*logv1.Result) {
			editAttempt(s, 2, func(t *state.Attempt) { t.Cores = state.CoreRange(0, 2) })
		}},
	{name: "cores are returned twice", setup: commands{one[0], submitOf(cores(2))}, last: commands{submitOf(cores(2))}, wants: "are free",
		sabotage: func(s *state.State) {
			editNode(s, "n1", func(n *state.Node) { n.Free = state.CoreRange(0, 2) })
		}},
	{name: "cores are lost", setup: commands{one[0], submitOf(cores(2))}, last: commands{reportOf("n1", 1, 1, state.EndExited)}, wants: "node n1 is",
		forge: func(s *state.State, _ []*logv1.Result) {
			editNode(s, "n1", func(n *state.Node) { n.Free = state.CoreRange(0, 3) })
		}},
	{name: "narrower than it could be", setup: one, last: commands{submitOf(wide(1, 4))}, wants: "was granted 3 of 4 free cores",
		forge: func(s *state.State, _ []*logv1.Result) {
			editAttempt(s, 1, func(t *state.Attempt) { t.Cores = state.CoreRange(0, 3) })
		}},
	{name: "a width that is not in the set", setup: one, last: commands{submitOf(sized(1, 4))}, wants: "granted 3 of 4 free cores on node n1, which it cannot use",
		forge: func(s *state.State, _ []*logv1.Result) {
			editAttempt(s, 1, func(t *state.Attempt) { t.Cores = state.CoreRange(0, 3) })
		}},
	{name: "a class learns from a failure", setup: commands{one[0], submitOf(named(cores(1)))}, last: commands{reportOf("n1", 1, 1, state.EndSignaled)}, wants: "class c",
		forge: func(s *state.State, _ []*logv1.Result) { s.PutClass(s.Class(1).Learn(1, second)) }},
	{name: "a class is not created", last: commands{submitOf(named(cores(1)))}, wants: "class c",
		forge: func(s *state.State, _ []*logv1.Result) { s.DeleteClass(1) }},
	{name: "nobody starts though nothing runs", setup: one, last: commands{submitOf(told(wide(1, 4)))}, wants: "action 1 waits for 1 cores",
		sabotage: func(s *state.State) { editNode(s, "n1", func(n *state.Node) { n.Free = state.CoreSet{} }) }},
	{name: "across NUMA nodes", setup: one, last: commands{submitOf(cores(2))}, wants: "from 2 NUMA nodes, one with 2 free suffices",
		forge: func(s *state.State, _ []*logv1.Result) {
			editAttempt(s, 1, func(t *state.Attempt) { t.Cores = state.CoreRange(1, 2) })
		}},
	{name: "memory is not reserved", setup: one, last: commands{submitOf(cores(1))}, wants: "0 bytes",
		forge: func(s *state.State, _ []*logv1.Result) {
			editAttempt(s, 1, func(t *state.Attempt) { t.Reserved = 0 })
		}},
	{name: "memory that is not there", setup: commands{nodeOf("n1", 2, 15), submitOf(cores(1)), submitOf(cores(1))}, wants: "of 5 free",
		sabotage: func(s *state.State) { editNode(s, "n1", func(n *state.Node) { n.FreeMemory = 50 }) }, last: commands{submitOf(cores(1))}},
	{name: "a chunk that is not aligned", setup: commands{withGPUs("n1")}, last: commands{submitOf(onGPUs(2))}, wants: "not aligned",
		forge: func(s *state.State, _ []*logv1.Result) {
			editAttempt(s, 1, func(t *state.Attempt) { t.Chunk.First = 1 })
		}},
	{name: "GPUs are given twice", setup: commands{withGPUs("n1"), submitOf(onGPUs(2))}, last: commands{submitOf(onGPUs(2))}, wants: "are free",
		forge: func(s *state.State, _ []*logv1.Result) {
			editAttempt(s, 2, func(t *state.Attempt) { t.Chunk.First = 0 })
		}},
	{name: "a set-up is not charged", setup: commands{withGPUs("n1")}, last: commands{submitOf(onGPUs(2))}, wants: "was charged 0 ns",
		forge: func(s *state.State, _ []*logv1.Result) {
			editAttempt(s, 1, func(t *state.Attempt) { t.SetUpNS = 0 })
		}},
	{name: "a model is gone", setup: commands{withGPUs("n1"), submitOf(onGPUs(2))}, last: commands{reportOf("n1", 1, 1, state.EndExited)}, wants: "are resident, must be",
		forge: func(s *state.State, _ []*logv1.Result) { s.DeleteResidency(1) }},
	{name: "a model is worth too much", setup: commands{levelThree, withGPUs("n1"), submitOf(onGPUs(2))}, last: commands{reportOf("n1", 1, 1, state.EndExited)}, wants: "are resident, must be",
		forge: func(s *state.State, _ []*logv1.Result) {
			r := state.Residency{Node: 1, Models: slices.Clone(s.ModelsOn(1))}
			r.Models[0].Worth++
			s.PutResidency(&r)
		}},
	{name: "a measured set-up is not charged", setup: commands{levelThree, withGPUs("n1"), submitOf(untimed(2)), engineOf("a"), engineReportOf(1, engineReady, second)}, last: commands{submitOf(untimed(2))},
		wants: "was charged 0 ns", forge: func(s *state.State, _ []*logv1.Result) {
			editAttempt(s, 2, func(t *state.Attempt) { t.SetUpNS = 0 })
		}},
	{name: "what failed is resident", setup: commands{levelThree, withGPUs("n1"), submitOf(onGPUs(2)), reportOf("n1", 1, 1, state.EndExited)}, last: commands{engineReportOf(1, engineFailed, 0)},
		wants: "are resident, must be", sabotage: func(s *state.State) {
			s.PutResidency(&state.Residency{Node: 1, Models: []state.Resident{{Model: "other", Chunk: state.Chunk{Units: 2}, Bytes: 80}}})
		}},
	{name: "where its engine failed", setup: commands{levelThree, withGPUs("n1"), engineOf("a"), engineReportOf(1, engineFailed, 0)}, last: commands{submitOf(onGPUs(2))},
		wants: "has failed on", forge: func(s *state.State, _ []*logv1.Result) {
			editAttempt(s, 1, func(t *state.Attempt) { t.Chunk.First = 0 })
		}},
	{name: "what a node said before it was lost", setup: commands{levelThree, withGPUs("n1"), expireOf("n1", 1), withGPUs("n1")}, last: commands{engineReportOf(1, engineReady, second)},
		wants: "has engines", forge: func(s *state.State, _ []*logv1.Result) {
			s.PutNodeEngines(&state.NodeEngines{Node: 1, Instances: []state.EngineInstance{{Model: "m", Chunk: state.Chunk{Units: 2}, State: state.EngineReady}}})
		}},
	{name: "another declaration", setup: commands{levelThree, engineOf("a")}, last: commands{engineOf("b")}, wants: "the engine of model \"m\" has generation",
		forge: func(s *state.State, _ []*logv1.Result) {
			s.PutEngine(&state.Engine{Model: "m", Generation: 2, Spec: []byte("a")})
		}},
	{name: "GPUs are idle", setup: commands{withGPUs("n1")}, last: commands{submitOf(onGPUs(2))}, wants: "waits for 2 GPUs",
		sabotage: func(s *state.State) { editNode(s, "n1", func(n *state.Node) { n.GPUs.Free = 0 }) }},
	{name: "an attempt number again", setup: one, last: commands{submitOf(cores(1))}, wants: "must be 1 and 1",
		forge: func(s *state.State, _ []*logv1.Result) {
			editAttempt(s, 1, func(t *state.Attempt) { t.Number = 2 })
		}},
	{name: "a grant on a draining node", setup: commands{one[0], drainOf("n1")}, wants: "which is draining",
		sabotage: func(s *state.State) { editNode(s, "n1", func(n *state.Node) { n.Draining = false }) }, last: commands{submitOf(cores(1))}},
	{name: "a grant on a lost node", setup: commands{one[0], expireOf("n1", 1)}, wants: "which is down",
		sabotage: func(s *state.State) { editNode(s, "n1", func(n *state.Node) { n.State = state.NodeUp }) }, last: commands{submitOf(cores(1))}},
	{name: "out of turn", setup: commands{one[0], nodeOf("n2", 3, 1000), submitOf(cores(6)), submitOf(cores(4)), submitOf(cores(1)), submitOf(cores(1))}, wants: "before action 3, which is older and asks for no more",
		sabotage: func(s *state.State) { editAction(s, 3, func(a *state.Action) { a.CoresMin = 5 }) },
		last:     commands{reportOf("n1", 1, 2, state.EndExited)}},
	{name: "aside without cause", setup: commands{one[0], submitOf(cores(4)), submitOf(cores(1))}, wants: "action 2 waits aside, and could be served",
		sabotage: func(s *state.State) { editAction(s, 2, func(a *state.Action) { a.CoresMin = 5 }) }, last: commands{submitOf(cores(1)), reportOf("n1", 1, 1, state.EndExited)}},
	{name: "a trajectory aside without cause", setup: commands{one[0], openOf(1000, 0), openOf(50, 0)}, wants: "trajectory 2 waits aside, and a node could hold it",
		sabotage: func(s *state.State) { editTrajectory(s, 2, func(t *state.Trajectory) { t.Memory = 5000 }) }, last: commands{openOf(10, 0)}},
	{name: "bypassed too often", wants: "bypasses action 2, bypassed 1 times",
		setup: commands{one[0], submitOf(cores(3)), submitOf(cores(4)), submitOf(cores(1)), submitOf(cores(1)), submitOf(cores(1))},
		sabotage: func(s *state.State) {
			editAction(s, 2, func(a *state.Action) { a.Bypassed = 0 })
		}, last: commands{reportOf("n1", 1, 3, state.EndExited)}},
	{name: "not the best node", setup: commands{one[0], nodeOf("n2", 1, 1000)}, wants: "node n1 has 4",
		sabotage: func(s *state.State) { editNode(s, "n1", func(n *state.Node) { n.Free = state.CoreRange(0, 1) }) }, last: commands{submitOf(cores(1))}},
	{name: "a trajectory where memory is short", setup: commands{one[0], nodeOf("n2", 1, 900)}, wants: "node n1 has 1000",
		sabotage: func(s *state.State) { editNode(s, "n1", func(n *state.Node) { n.FreeMemory = 100 }) }, last: commands{openOf(50, 0)}},
	{name: "a start is overlooked", setup: one, wants: "action 1 waits for 1 cores",
		sabotage: func(s *state.State) { editNode(s, "n1", func(n *state.Node) { n.Free = state.CoreSet{} }) }, last: commands{submitOf(cores(1))}},
	{name: "a pool is halted for nothing", setup: one, wants: "pool default is halted: \"x\"",
		sabotage: func(s *state.State) { s.PutPool(&state.Pool{ID: 1, Name: "default", Halted: "x"}) }, last: commands{submitOf(cores(1))}},
	{name: "a trajectory is overlooked", setup: one, wants: "trajectory 1 waits for 50 bytes",
		sabotage: func(s *state.State) { editNode(s, "n1", func(n *state.Node) { n.FreeMemory = 10 }) }, last: commands{openOf(50, 0)}},
	{name: "a queue timeout does not fire", setup: commands{submitOf(within(cores(1), 5*second))}, wants: "queue timeout of action 1 was due",
		sabotage: func(s *state.State) {
			editAction(s, 1, func(a *state.Action) { a.State = state.ActionRunning })
			editAction(s, 1, func(a *state.Action) { a.State, a.QueueDeadline = state.ActionQueued, 0 })
		}, last: commands{nil}},
	{name: "an idle timeout does not fire", setup: commands{one[0], openOf(5, 5*second)}, wants: "deadline of trajectory 1 was due",
		sabotage: func(s *state.State) { t := *s.Trajectory(1); t.IdleTimeoutNS = 0; s.PutTrajectory(&t) }, last: commands{nil}},
	{name: "a deadline does not fire", wants: "deadline of trajectory 1 was due",
		setup:    commands{levelThree, one[0], {Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{MemoryBytes: 5, TimeoutNs: 5 * second}}}},
		sabotage: func(s *state.State) { t := *s.Trajectory(1); t.Deadline = 0; s.PutTrajectory(&t) }, last: commands{nil}},
	{name: "an ended action is dropped early", setup: commands{submitOf(cores(1)), cancelOf(1)}, wants: "is dropped at",
		sabotage: func(s *state.State) { s.DeleteAction(1) }, last: commands{nil}},
	{name: "a cancel does not reach the node", setup: commands{one[0], submitOf(cores(1))}, last: commands{cancelOf(1)}, wants: "told to stop: false",
		forge: func(s *state.State, _ []*logv1.Result) {
			editAttempt(s, 1, func(t *state.Attempt) { t.Stop = false })
		}},
	{name: "a retry that the policy forbids", setup: commands{one[0], submitOf(cores(1))}, wants: "state 6",
		sabotage: func(s *state.State) { editAction(s, 1, func(a *state.Action) { a.AttemptsMax = 1 }) }, last: commands{expireOf("n1", 1)}},
	{name: "more than the limit", setup: commands{one[0], quotaOf(2), calling(2)}, wants: "of which the other side may count 2 of 2",
		sabotage: func(s *state.State) { editQuota(s, func(u *state.KeyUse) { u.Held = 1 }) }, last: commands{calling(1)}},
	{name: "a window ends with the call", setup: commands{one[0], quotaOf(2), calling(1)}, wants: "must be 1 to 1",
		last: commands{reportOf("n1", 1, 1, state.EndExited)}, forge: func(s *state.State, _ []*logv1.Result) {
			editQuota(s, func(u *state.KeyUse) { u.Windowed = 0 })
		}},
	{name: "what was expected counts", setup: commands{levelThree, one[0], quotaOf(2), calling(1)}, wants: "must be 2 to 2",
		last: commands{usedOf(1, 2)}, forge: func(s *state.State, _ []*logv1.Result) {
			editQuota(s, func(u *state.KeyUse) { u.Windowed = 1 })
		}},
	{name: "a use is not counted", setup: commands{levelThree, one[0], quotaOf(2), calling(1)}, wants: "must be 1 times to 5",
		last: commands{usedOf(1, 5)}, forge: func(s *state.State, _ []*logv1.Result) {
			q := *s.QuotaByName("q")
			q.Settled, q.SettledUnits = 0, 0
			s.PutQuota(&q)
		}},
	{name: "a use is forgotten", setup: commands{levelThree, one[0], quotaOf(2), calling(1)}, wants: "action 1 is",
		last: commands{usedOf(1, 5)}, forge: func(s *state.State, _ []*logv1.Result) {
			editAction(s, 1, func(a *state.Action) { a.Used = nil })
		}},
	{name: "a grant of what is overdrawn", setup: commands{levelThree, one[0], quotaOf(2), calling(1), usedOf(1, 5)}, wants: "of which the other side may count 5 of 2",
		sabotage: func(s *state.State) { editQuota(s, func(u *state.KeyUse) { u.Windowed = 0 }) }, last: commands{calling(1)}},
	{name: "a younger one gets the units", setup: commands{one[0], quotaOf(2), calling(1), calling(2)}, wants: "before action 2, which is older",
		sabotage: func(s *state.State) {
			editAction(s, 2, func(a *state.Action) { n := *a.Needs; n.Quotas = []state.QuotaUse{{Quota: 1, Units: 3}}; a.Needs = &n })
		}, last: commands{calling(1)}},
	{name: "units of another key", setup: commands{one[0], quotaOf(2)}, last: commands{calling(1)}, wants: "action 1 was given 1 units of quota q of key 2",
		forge: func(s *state.State, _ []*logv1.Result) {
			editAction(s, 1, func(a *state.Action) { a.QuotaKeys = []uint32{1} })
		}},
	{name: "without units", setup: commands{one[0], quotaOf(2)}, last: commands{calling(1)}, wants: "granted without units of quota q",
		forge: func(s *state.State, _ []*logv1.Result) {
			editAction(s, 1, func(a *state.Action) { a.QuotasHeld, a.QuotaKeys = 0, nil })
		}},
	{name: "a group is kept together", wants: "on node n1 with 980 bytes free, 2 trajectories and 2 of its group in its domain, node n2 has 500, 0 and 0",
		setup: []*logv1.Command{inZone(nodeOf("n1", 2, 1000), "a"), inGroup(), inGroup(), inZone(nodeOf("n2", 2, 500), "b")},
		sabotage: func(s *state.State) {
			for id := state.TrajectoryID(1); id <= 2; id++ {
				u := *s.Trajectory(id)
				u.Spread.Domain = "nowhere"
				s.PutTrajectory(&u)
			}
		}, last: []*logv1.Command{inGroup()}},
	{name: "a domain is not that of the node", setup: []*logv1.Command{inZone(nodeOf("n1", 2, 1000), "a")}, last: []*logv1.Command{inGroup()}, wants: "trajectory 1 is",
		forge: func(s *state.State, _ []*logv1.Result) {
			u := *s.Trajectory(1)
			u.Spread.Domain = "b"
			s.PutTrajectory(&u)
		}},
	{name: "a relabelled node keeps its domain", wants: "trajectory 1 is",
		setup: []*logv1.Command{inZone(nodeOf("n1", 2, 1000), "a"), inGroup()}, last: []*logv1.Command{inZone(nodeOf("n1", 2, 1000), "b")},
		forge: func(s *state.State, _ []*logv1.Result) {
			u := *s.Trajectory(1)
			u.Spread.Domain = "a"
			s.PutTrajectory(&u)
		}},
	{name: "an action disappears", last: commands{submitOf(cores(1))}, wants: "action 1 is missing",
		forge: func(s *state.State, _ []*logv1.Result) {
			s.DeleteAction(1)
			s.PutAction(&state.Action{ID: 2, Namespace: 1, Pool: 1, State: state.ActionQueued})
		}},
	{name: "a spec is changed", last: commands{submitOf(cores(1))}, wants: "another spec",
		forge: func(s *state.State, _ []*logv1.Result) {
			editAction(s, 1, func(a *state.Action) { a.Spec = []byte("spec!")[:4:4]; a.Spec[0] = 'x' })
		}},
	{name: "a token again", setup: commands{groupOf(4), jobOf("a")}, last: commands{acquireOf("a", "d")}, wants: "token",
		forge: func(s *state.State, _ []*logv1.Result) { editMeta(s, func(m *state.Meta) { m.LastToken-- }) }},
	{name: "a reservation of a job that is suspended", setup: commands{groupOf(4), jobOf("a")}, last: commands{suspendOf("a")}, wants: "reservation",
		forge: func(s *state.State, _ []*logv1.Result) { s.PutReservation(&state.Reservation{Job: 1, Group: 1}) }},
	{name: "a group for itself that is not empty", setup: commands{groupOf(4), jobOf("a")}, wants: "which has jobs",
		sabotage: func(s *state.State) {
			s.DeleteReservation(1)
			g := *s.NodeGroup(1)
			g.Period = 0
			s.PutNodeGroup(&g)
		}, last: commands{jobOf("b")}},
	{name: "who holds a group is forgotten", setup: commands{groupOf(4), jobOf("a"), acquireOf("a", "d")}, wants: "turn 1 holds",
		sabotage: func(s *state.State) {
			u, g := *s.Turn(1), *s.NodeGroup(1)
			u.State, g.Turn = state.TurnYielded, 0
			s.PutTurn(&u)
			s.PutNodeGroup(&g)
		}, last: commands{acquireOf("a", "e")}},
	{name: "a group is halted for nothing", setup: commands{groupOf(4), jobOf("a")}, wants: "group g is halted: \"x\"",
		sabotage: func(s *state.State) { g := *s.NodeGroup(1); g.Halted = "x"; s.PutNodeGroup(&g) }, last: commands{acquireOf("a", "d")}},
	{name: "a quota is halted for nothing", setup: commands{one[0], quotaOf(2)}, last: commands{calling(1)}, wants: "quota q is halted: \"x\"",
		sabotage: func(s *state.State) { q := *s.QuotaByName("q"); q.Halted = "x"; s.PutQuota(&q) }},
	{name: "placement is halted for nothing", setup: commands{groupOf(4)}, last: commands{jobOf("a")}, wants: "placement is halted: \"x\"",
		sabotage: func(s *state.State) { editMeta(s, func(m *state.Meta) { m.PlacementHalted = "x" }) }},
	{name: "a command fails for nothing", setup: one, last: commands{submitOf(cores(1))}, wants: "refused with COMMAND_FAILED",
		forge: func(_ *state.State, r []*logv1.Result) {
			r[0] = &logv1.Result{Index: r[0].Index, Refusal: &logv1.Refusal{Code: 13, Reason: "COMMAND_FAILED", Message: "x"}}
		}},
	{name: "a result is changed", setup: commands{one[0], submitOf(cores(1))}, last: commands{reportOf("n1", 1, 1, state.EndExited)}, wants: "has result",
		forge: func(s *state.State, _ []*logv1.Result) {
			editAction(s, 1, func(a *state.Action) { r := *a.Result; r.Signal = 9; a.Result = &r })
		}},
}

// play applies the setup, then the last entry with or without the lie.
func (d *disagreement) play(t *testing.T, lie bool) error {
	w := newWorld(t, 0, &logv1.Settings{BypassMax: 1, BypassNsMax: 1000 * second})
	for _, c := range d.setup {
		w.must(t, c)
	}
	if d.sabotage != nil && lie {
		d.sabotage(w.s)
	}
	w.now += 6 * second
	var last []*logv1.Command
	for _, c := range d.last {
		if c != nil { // else nothing but time
			last = append(last, c)
		}
	}
	entry, results, err := w.real(last...)
	if err != nil {
		t.Fatal(err)
	}
	s := w.s.Copy()
	if d.forge != nil && lie {
		d.forge(s, results)
	}
	return w.model.Step(w.index, 0, entry, results, s)
}

// TestDisagreements: the model sees through every lie, and agrees without it.
func TestDisagreements(t *testing.T) {
	for _, d := range disagreements {
		t.Run(d.name, func(t *testing.T) {
			if err := d.play(t, false); err != nil {
				t.Fatalf("without the lie: %v", err)
			}
			if err := d.play(t, true); err == nil || !strings.Contains(err.Error(), d.wants) {
				t.Fatalf("the model says %v, want something with %q", err, d.wants)
			}
		})
	}
}
