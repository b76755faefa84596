package model

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/hashicorp/raft"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/fsm/state"
)

const second = int64(1_000_000_000)

// world is a real state machine with its model, and chance.
type world struct {
	machine *fsm.Machine
	model   *Model
	rand    *rand.Rand
	index   uint64
	now     int64
	s       *state.State
}

func newWorld(tb testing.TB, seed uint64, settings *logv1.Settings) *world {
	tb.Helper()
	w := &world{machine: fsm.New(fsm.Options{}), model: New(), rand: rand.New(rand.NewPCG(seed, 0)), now: second}
	w.must(tb, &logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{ClusterId: "test", Settings: settings}}})
	return w
}

// real applies an entry to the state machine alone.
func (w *world) real(commands ...*logv1.Command) (*logv1.Entry, []*logv1.Result, error) {
	w.index++
	e := &logv1.Entry{TimeNs: w.now, Commands: commands}
	data, err := e.MarshalVT()
	if err != nil {
		return nil, nil, err
	}
	results, ok := w.machine.Apply(&raft.Log{Index: w.index, Data: data}).([]*logv1.Result)
	if !ok {
		return nil, nil, fmt.Errorf("entry %d stopped the machine", w.index)
	}
	w.machine.View(func(s *state.State) { w.s = s })
	return e, results, nil
}

// apply applies an entry for real and compares.
func (w *world) apply(commands ...*logv1.Command) ([]*logv1.Result, error) {
	e, results, err := w.real(commands...)
	if err != nil {
		return nil, err
	}
	return results, w.model.Step(w.index, 0, e, results, w.s)
}

func (w *world) must(tb testing.TB, commands ...*logv1.Command) []*logv1.Result {
	tb.Helper()
	results, err := w.apply(commands...)
	if err != nil {
		tb.Fatal(err)
	}
	return results
}

// TestRandomWorlds drives machine and model with commands of every verb,
// sensible and not, and they never disagree.
func TestRandomWorlds(t *testing.T) {
	worlds := 40
	if testing.Short() {
		worlds = 10
	}
	for seed := range worlds {
		w := newWorld(t, uint64(seed), &logv1.Settings{
			BypassMax: 4, RetentionNs: 600 * second, RetentionBytesMax: 40_000, QueueActionsMax: 300, QueueBytesMax: 90_000,
			TrajectoriesMax: 25, RequestsMax: 60, EventsMax: 20_000,
		})
		for range 1500 {
			w.now += w.rand.Int64N(4*second) - second/2
			var commands []*logv1.Command
			for range w.rand.IntN(4) {
				commands = append(commands, w.command())
			}
			if _, err := w.apply(commands...); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if w.index%97 == 0 {
				if err := w.model.Compare(w.s); err != nil {
					t.Fatalf("seed %d, entry %d: %v", seed, w.index, err)
				}
			}
		}
	}
}

// command draws one command; what it names mostly exists.
func (w *world) command() *logv1.Command {
	switch n := w.rand.IntN(45); {
	case n >= 42:
		return w.engineCommand()
	case n >= 40:
		return w.quotaCommand()
	case n < 12:
		return w.submission()
	case n < 24:
		return w.reports()
	case n < 26:
		return &logv1.Command{Verb: &logv1.Command_CancelActions{CancelActions: &logv1.CancelActions{Ids: w.someIDs()}}}
	case n < 28:
		return w.opening()
	case n < 30:
		return &logv1.Command{Verb: &logv1.Command_CloseTrajectory{CloseTrajectory: &logv1.CloseTrajectory{Id: w.trajectoryID()}}}
	case n < 34:
		return w.registration()
	case n < 35:
		return &logv1.Command{Verb: &logv1.Command_ExpireNode{ExpireNode: &logv1.ExpireNode{Name: w.nodeName(), Incarnation: w.incarnation()}}}
	case n < 37:
		return &logv1.Command{Verb: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Name: w.nodeName(), Draining: w.rand.IntN(3) == 0}}}
	}
	return w.rareCommand()
}

func (w *world) rareCommand() *logv1.Command {
	switch w.rand.IntN(13) {
	case 11:
		c := &logv1.ReportGpus{Node: w.nodeName(), Incarnation: w.incarnation(), Sick: w.rand.Uint64N(16) & w.rand.Uint64N(16)}
		for range bits.OnesCount64(c.Sick) {
			c.Reasons = append(c.Reasons, w.pick("XID 79", "ECC"))
		}
		return &logv1.Command{Verb: &logv1.Command_ReportGpus{ReportGpus: c}}
	case 12:
		return &logv1.Command{Verb: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{
			Name: w.nodeName(), Draining: w.rand.IntN(3) == 0, Gpus: w.rand.Uint64N(8), Reason: w.pick("", "fan"),
		}}}
	case 10:
		return &logv1.Command{Verb: &logv1.Command_ReportDisk{ReportDisk: &logv1.ReportDisk{Name: w.nodeName(), Incarnation: w.incarnation(), Low: w.rand.IntN(3) > 0}}}
	case 7:
		return &logv1.Command{Verb: &logv1.Command_DeletePool{DeletePool: &logv1.DeletePool{Name: w.pick("default", "big", "small", "none")}}}
	case 8:
		return &logv1.Command{Verb: &logv1.Command_DeleteNamespace{DeleteNamespace: &logv1.DeleteNamespace{Name: w.pick("", "team", "other", "none")}}}
	case 0:
		return &logv1.Command{Verb: &logv1.Command_RemoveNode{RemoveNode: &logv1.RemoveNode{Name: w.nodeName()}}}
	case 1:
		if w.rand.IntN(2) > 0 {
			return w.updateNamespace()
		}
		return &logv1.Command{Verb: &logv1.Command_CreateNamespace{CreateNamespace: &logv1.CreateNamespace{Name: w.pick("", "team", "other")}}}
	case 2:
		return &logv1.Command{Verb: &logv1.Command_ResumePool{ResumePool: &logv1.ResumePool{Name: w.pick("default", "big", "none")}}}
	case 3:
		return &logv1.Command{Verb: &logv1.Command_RaiseLevel{RaiseLevel: &logv1.RaiseLevel{Level: uint32(1 + 2*w.rand.IntN(2))}}}
	case 4:
		return &logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{ClusterId: w.pick("test", "other")}}}
	case 5:
		return &logv1.Command{Verb: &logv1.Command_QuoteHash{QuoteHash: &logv1.QuoteHash{ServerId: "s1", Index: w.index}}}
	case 6:
		return &logv1.Command{}
	case 9:
		if w.rand.IntN(8) == 0 {
			return &logv1.Command{Verb: &logv1.Command_CommitRestore{CommitRestore: &logv1.CommitRestore{Id: w.pick("", "u", "v"), Parts: w.rand.Uint32N(3), Force: w.rand.IntN(2) > 0}}}
		}
		return &logv1.Command{Verb: &logv1.Command_StageRestore{StageRestore: &logv1.StageRestore{
			Id: w.pick("", "u", "v"), Number: w.rand.Uint32N(4), Data: []byte(w.pick("", "a", "b")), Force: w.rand.IntN(8) > 0,
		}}}
	}
	return &logv1.Command{Verb: &logv1.Command_Tick{Tick: &logv1.Tick{}}}
}

func (w *world) updateNamespace() *logv1.Command {
	c := &logv1.UpdateNamespace{Name: w.pick("", "team", "other", "none")}
	for _, f := range []**uint32{&c.Weight, &c.QueuedMax, &c.RunningMax, &c.CoresMax, &c.GpusMax, &c.TrajectoriesMax} {
		if w.rand.IntN(4) == 0 {
			n := w.rand.Uint32N(4)
			*f = &n
		}
	}
	if w.rand.IntN(4) == 0 {
		bytes := w.rand.Uint64N(4) * 300
		c.MemoryMax = &bytes
	}
	if c.QueuedMax != nil {
		*c.QueuedMax *= 20
	}
	return &logv1.Command{Verb: &logv1.Command_UpdateNamespace{UpdateNamespace: c}}
}

func (w *world) pick(names ...string) string { return names[w.rand.IntN(len(names))] }

func (w *world) nodeName() string { return fmt.Sprintf("n%d", w.rand.IntN(6)) }

func (w *world) incarnation() uint64 {
	if n := w.s.NodeByName(w.nodeName()); n != nil && w.rand.IntN(10) > 0 {
		return n.Incarnation
	}
	return w.rand.Uint64N(w.s.Meta().LastIncarnation + 2)
}

func (w *world) trajectoryID() uint64 {
	last := uint64(w.s.Meta().LastTrajectory)
	return last + 1 - min(last+1, w.rand.Uint64N(12))
}

func (w *world) someIDs() (ids []uint64) {
	last := uint64(w.s.Meta().LastAction)
	for range 1 + w.rand.IntN(3) {
		ids = append(ids, last+1-min(last+1, w.rand.Uint64N(50)))
	}
	return ids
}

func (w *world) request() *logv1.Request {
	if w.rand.IntN(3) > 0 {
		return nil
	}
	q := &logv1.Request{Id: fmt.Sprintf("r%d", w.rand.IntN(80)), Digest: uint64(w.rand.IntN(20) / 19)}
	switch w.rand.IntN(4) {
	case 0:
		q.ExpireNs = w.now + w.rand.Int64N(200*second) - 5*second
	case 1:
		q.ExpireNs = w.now + 3500*second + w.rand.Int64N(300*second)
	}
	return q
}

func (w *world) submission() *logv1.Command {
	c := &logv1.SubmitActions{Request: w.request(), Namespace: w.pick("", "", "", "team")}
	if w.rand.IntN(2) == 0 {
		w.now++ // sequences of equal times and of different ones
	}
	for range min(1+w.rand.IntN(5)*w.rand.IntN(2), 40) {
		cores := uint32(1 + w.rand.IntN(4)*w.rand.IntN(2)*w.rand.IntN(2))
		a := &logv1.Action{
			Pool: w.pick("", "", "", "big"), CoresMin: cores, CoresMax: cores + uint32(w.rand.IntN(3)),
			MemoryBytes: uint64(w.rand.IntN(5) * 100 * w.rand.IntN(2)), AttemptsMax: uint32(1 + w.rand.IntN(3)),
			QueueTimeoutNs: w.rand.Int64N(2) * w.rand.Int64N(60*second), Spec: make([]byte, w.rand.IntN(30)),
		}
		switch kind := w.rand.IntN(60); {
		case kind < 20:
			a.TrajectoryId = w.trajectoryID()
			a.Pool = ""
		case kind < 33:
			w.onGPUs(a)
		case kind == 33:
			a.AttemptsMax, a.CoresMin = 0, 600
		}
		w.useQuotas(a)
		if w.rand.IntN(6) == 0 {
			if a.Needs == nil {
				a.Needs = &logv1.Needs{}
			}
			a.Needs.BandwidthBps = uint64(w.rand.IntN(7) * 100)
		}
		c.Actions = append(c.Actions, a)
	}
	return &logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: c}}
}

// onGPUs has an action ask for GPUs, now and then for what there cannot be.
func (w *world) onGPUs(a *logv1.Action) {
	a.CoresMin = min(a.CoresMin, 2) * uint32(w.rand.IntN(2))
	a.CoresMax = a.CoresMin
	degrees := []uint32{1, 2, 4, 8}
	first := w.rand.IntN(4) * w.rand.IntN(2)
	g := &logv1.Gpus{
		Class: w.pick("", "H100", "H100", "L4", "none"), Degrees: degrees[first : first+1+w.rand.IntN(4-first)],
		MemoryBytes: uint64(w.rand.IntN(5) * 10), Model: w.pick("", "a", "b", "c", "d"),
	}
	if g.Model != "" {
		g.SetupNs = w.rand.Int64N(3*second) * w.rand.Int64N(2)
	}
	a.Needs = &logv1.Needs{Gpus: g}
	if w.rand.IntN(2) == 0 {
		a.Needs.Profile = &logv1.Profile{SingleNs: w.rand.Int64N(20 * second), Serial: w.rand.IntN(3) > 0, SerialPpm: w.rand.Int64N(400_000)}
	}
	switch w.rand.IntN(40) {
	case 0:
		g.Degrees = []uint32{2, 1}
	case 1:
		a.CoresMax++
	case 2:
		g.Degrees = []uint32{3}
	case 3:
		a.Needs.Profile = &logv1.Profile{SingleNs: 5, Points: []*logv1.Point{{Units: 2, RatioPpm: 100}}}
	}
}

// useQuotas makes some actions need quotas, and some of these no cores.
func (w *world) useQuotas(a *logv1.Action) {
	if w.rand.IntN(3) > 0 {
		return
	}
	if a.Needs == nil {
		a.Needs = &logv1.Needs{}
	}
	for range 1 + w.rand.IntN(2) {
		a.Needs.Quotas = append(a.Needs.Quotas, &logv1.QuotaUse{Quota: w.pick("a", "b", "c", "d"), Units: uint32(1 + w.rand.IntN(3))})
	}
	if w.rand.IntN(2) == 0 {
		a.CoresMin, a.CoresMax = 0, 0
	}
}

func (w *world) quotaCommand() *logv1.Command {
	name := w.pick("a", "b", "c", "d")
	switch w.rand.IntN(5) {
	case 0:
		return &logv1.Command{Verb: &logv1.Command_DeleteQuota{DeleteQuota: &logv1.DeleteQuota{Name: name}}}
	case 1:
		return &logv1.Command{Verb: &logv1.Command_UpdateQuota{UpdateQuota: &logv1.UpdateQuota{
			Name: name, Limit: uint32(w.rand.IntN(5)), Keys: uint32(w.rand.IntN(4)), Resume: w.rand.IntN(2) == 0,
		}}}
	}
	return &logv1.Command{Verb: &logv1.Command_CreateQuota{CreateQuota: &logv1.CreateQuota{
		Name: name, Kind: uint32(w.rand.IntN(4)), Limit: uint32(w.rand.IntN(6)), WindowNs: w.rand.Int64N(2) * w.rand.Int64N(30*second), Keys: uint32(w.rand.IntN(4)),
	}}}
}

// engineCommand changes how a model is served, or says what became of engines on a node.
func (w *world) engineCommand() *logv1.Command {
	model := w.pick("a", "b", "c", "d")
	switch w.rand.IntN(8) {
	case 0:
		return &logv1.Command{Verb: &logv1.Command_RemoveEngine{RemoveEngine: &logv1.RemoveEngine{Model: model}}}
	case 1, 2:
		return &logv1.Command{Verb: &logv1.Command_RegisterEngine{RegisterEngine: &logv1.RegisterEngine{Model: w.pick(model, model, model, ""), Spec: []byte(w.pick("x", "x", "y", ""))}}}
	}
	c := &logv1.ReportEngines{Node: w.nodeName(), Incarnation: w.incarnation()}
	n := w.s.NodeByName(c.Node)
	if n != nil && w.rand.IntN(5) > 0 {
		c.Incarnation = n.Incarnation
	}
	for range 1 + w.rand.IntN(3) {
		r := &logv1.EngineReport{
			Model: model, State: []uint32{1, 2, 4, 4, 6, 7, 7, 8}[w.rand.IntN(8)], First: uint32(w.rand.IntN(4)), Gpus: uint32(w.rand.IntN(3)),
			Starts: w.rand.Uint64N(3), Generation: w.rand.Uint64N(4), SetUpNs: w.rand.Int64N(20*second) * w.rand.Int64N(2),
			Gone: w.rand.IntN(5) == 0, Message: w.pick("", "exited"),
		}
		if n != nil && len(w.s.ModelsOn(n.ID)) > 0 && w.rand.IntN(10) > 0 {
			there := w.s.ModelsOn(n.ID)
			m := there[w.rand.IntN(len(there))]
			r.Model, r.First, r.Gpus, r.State = m.Model, m.Chunk.First, m.Chunk.Units, min(r.State, 7)
		}
		if e := w.s.Engine(r.Model); e != nil && w.rand.IntN(3) > 0 {
			r.Generation = e.Generation
		}
		c.Reports = append(c.Reports, r)
	}
	return &logv1.Command{Verb: &logv1.Command_ReportEngines{ReportEngines: c}}
}

func (w *world) opening() *logv1.Command {
	c := &logv1.OpenTrajectory{
		Request: w.request(), Namespace: w.pick("", "", "team"), Pool: w.pick("", "", "big"),
		MemoryBytes: uint64(w.rand.IntN(8) * 100), IdleTimeoutNs: w.rand.Int64N(2) * w.rand.Int64N(50*second),
	}
	c.Container = w.rand.IntN(4) == 0
	switch w.rand.IntN(12) {
	case 0:
		c.SpreadGroup = "half"
	case 1:
		c.SpreadGroup, c.SpreadLabel = "g", "nobody-has"
	case 2, 3, 4, 5, 6, 7:
		c.SpreadGroup, c.SpreadLabel = w.pick("g", "g", "h"), w.pick("zone", "zone", "rack")
	}
	return &logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: c}}
}

func (w *world) registration() *logv1.Command {
	name := w.nodeName()
	c := &logv1.RegisterNode{
		Name: name, JournalId: "j" + name, MemoryBytes: 500 + uint64(name[1]-'0')*200, Address: w.pick("a", "b"),
	}
	if w.rand.IntN(20) == 0 {
		c.JournalId = "new"
	}
	if w.rand.IntN(6) > 0 {
		c.Labels = []*logv1.Label{{Key: "rack", Value: name}, {Key: "zone", Value: w.pick("a", "b")}}
	}
	if name == "n5" {
		c.Pool = w.pick("big", "big", "big", "small", "other")
	}
	if w.rand.IntN(15) == 0 {
		c.MemoryBytes = 900
	}
	if n := w.s.NodeByName(name); n != nil && w.rand.IntN(8) > 0 {
		c.Incarnation = n.Incarnation
		c.JournalId = n.JournalID
	}
	if name != "n1" {
		c.BandwidthBps = 500
		c.Gpus = &logv1.GpuInventory{Class: "H100", Count: 4 * uint32(name[1]-'0') / 2, MemoryBytes: 40}
	}
	switch {
	case name == "n0":
		c.Gpus = &logv1.GpuInventory{Class: "L4", Count: 3, MemoryBytes: 30}
	case w.rand.IntN(20) == 0:
		c.Gpus = nil
	}
	c.Containers = name != "n2" && name != "n5" && w.rand.IntN(4) > 0
	cpu := uint32(0)
	for range 1 + (name[1]-'0')%3 {
		var cpus []uint32
		for range 2 {
			cpus = append(cpus, cpu)
			cpu++
		}
		c.NumaNodes = append(c.NumaNodes, &logv1.NumaNode{Cpus: cpus})
	}
	return &logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: c}}
}

// reports ends some of what runs on a node, mostly with the right token.
func (w *world) reports() *logv1.Command {
	n := w.s.NodeByName(w.nodeName())
	if n == nil {
		return &logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: &logv1.ReportAttempts{Node: "nobody"}}}
	}
	c := &logv1.ReportAttempts{Node: n.Name, Incarnation: n.Incarnation}
	if w.rand.IntN(20) == 0 {
		c.Incarnation--
	}
	w.s.Attempts(n.ID, func(a *state.Attempt) bool {
		if w.rand.IntN(2) == 0 {
			r := &logv1.AttemptReport{
				ActionId: uint64(a.Action), Attempt: a.Number, Reason: 1, ExitCode: int32(w.rand.IntN(6) / 5),
				StdoutTail: make([]byte, w.rand.IntN(200)), Message: w.pick("", "m"), ExecNs: w.rand.Int64N(100),
			}
			if w.rand.IntN(4) == 0 {
				r.Reason = uint32(w.rand.IntN(13))
			}
			if w.rand.IntN(3) == 0 {
				r.Usage = []*logv1.QuotaUse{{Quota: w.pick("a", "b", "c", "d"), Units: uint32(w.rand.IntN(12))}, {Quota: w.pick("a", "b", "gone"), Units: 1}}
			}
			if w.rand.IntN(60) == 0 {
				r.StdoutTail, r.StderrTail = make([]byte, w.rand.IntN(6000)), make([]byte, w.rand.IntN(6000))
			}
			if w.rand.IntN(20) == 0 {
				r.Attempt++
			}
			c.Reports = append(c.Reports, r)
		}
		return true
	})
	return &logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: c}}
}
