package past

import (
	"bytes"
	"errors"
	"io"
	"math"
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/internal/sim/evaluate"
	"rota/internal/sim/workload"
	"rota/sched/scale"
)

const second = 1_000_000_000

// entry is one of a log.
type entry struct {
	index uint64
	data  []byte
}

// recorded is a cluster whose log is kept.
type recorded struct {
	*testing.T
	machine *fsm.Machine
	log     []entry
}

func newRecorded(t *testing.T) *recorded {
	c := &recorded{T: t, machine: fsm.New(fsm.Options{})}
	c.at(second, &logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{ClusterId: "c", Level: uint32(c.machine.LevelMax())}}})
	numa := &logv1.NumaNode{Cpus: []uint32{0, 1, 2, 3}}
	c.at(second, &logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{
		Name: "n1", JournalId: "j", MemoryBytes: 1 << 30, NumaNodes: []*logv1.NumaNode{numa}, Resizes: true,
	}}})
	return c
}

// at applies one command at a time and returns the ID that it gave.
func (c *recorded) at(ns int64, command *logv1.Command) uint64 {
	c.Helper()
	data, err := (&logv1.Entry{TimeNs: ns, Commands: []*logv1.Command{command}}).MarshalVT()
	if err != nil {
		c.Fatal(err)
	}
	e := entry{uint64(len(c.log) + 1), data}
	results, err := c.machine.ApplyData(e.index, 0, data)
	if err != nil || results[0].Refusal != nil {
		c.Fatal(err, results)
	}
	c.log = append(c.log, e)
	return results[0].FirstId
}

func (c *recorded) submit(ns int64, a *logv1.Action) uint64 {
	a.AttemptsMax = 1
	return c.at(ns, &logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{Actions: []*logv1.Action{a}}}})
}

func (c *recorded) report(ns int64, id uint64, exec int64) {
	var incarnation uint64
	c.machine.View(func(s *state.State) { incarnation = s.NodeByName("n1").Incarnation })
	c.at(ns, &logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: &logv1.ReportAttempts{Node: "n1", Incarnation: incarnation,
		Reports: []*logv1.AttemptReport{{ActionId: id, Attempt: 1, Reason: uint32(state.EndExited), ExecNs: exec, CpuNs: 2 * exec}}}}})
}

// snapshot is what the cluster would restore.
func (c *recorded) snapshot() io.ReadCloser {
	var b bytes.Buffer
	if err := c.machine.Fork().Save(&b); err != nil {
		c.Fatal(err)
	}
	return io.NopCloser(&b)
}

func read(t *testing.T, snapshot io.ReadCloser, log []entry) *Past {
	t.Helper()
	r, err := NewReader(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range log {
		if err := r.Apply(e.index, 0, e.data); err != nil {
			t.Fatal(err)
		}
	}
	return r.Past()
}

// rollout has a trajectory with a fixed action and an elastic one, on all four cores.
func (c *recorded) rollout() (snapshot io.ReadCloser, after int) {
	id := c.at(10*second, &logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{MemoryBytes: 1 << 20}}})
	first := c.submit(12*second, &logv1.Action{TrajectoryId: id, CoresMin: 2, CoresMax: 2})
	c.report(15*second+10_000_000, first, 3*second)
	half := &logv1.Needs{Profile: &logv1.Profile{Serial: true, SerialPpm: 500_000}}
	next := c.submit(20*second+10_000_000, &logv1.Action{TrajectoryId: id, CoresMin: 1, CoresMax: 4, Needs: half})
	snapshot, after = c.snapshot(), len(c.log)
	c.report(25*second+20_000_000, next, 5*second)
	c.at(30*second+20_000_000, &logv1.Command{Verb: &logv1.Command_CloseTrajectory{CloseTrajectory: &logv1.CloseTrajectory{Id: id}}})
	return snapshot, after
}

// TestATrajectoryIsReadWithItsGaps, from the log alone and from a snapshot in its middle.
func TestATrajectoryIsReadWithItsGaps(t *testing.T) {
	c := newRecorded(t)
	snapshot, after := c.rollout()
	for name, p := range map[string]*Past{"log": read(t, nil, c.log), "snapshot": read(t, snapshot, c.log[after:])} {
		b, in, err := p.build(&Options{})
		if err != nil {
			t.Fatal(name, err)
		}
		if in.Latency != (evaluate.Latency{Dispatch: 10_000_000}) || len(b.rollouts) != 1 {
			t.Fatalf("%s: %+v, %d trajectories", name, in.Latency, len(b.rollouts))
		}
		r := b.rollouts[0]
		thinks := int64(2 * second)
		if name == "snapshot" {
			thinks = 0 // what came before its first action may be forgotten
		}
		// Half of the work of one core, and an eighth, took 5 s.
		want := []workload.Turn{{Think: thinks, Action: workload.Action{Single: 3 * second}}, {Think: 5 * second, Action: workload.Action{Single: 8 * second}}}
		for i, turn := range r.Turns {
			if turn.Think != want[i].Think || turn.Action.Single != want[i].Action.Single {
				t.Errorf("%s: turn %d thinks %d ns and is %d ns of work, want %d and %d", name, i, turn.Think, turn.Action.Single, want[i].Think, want[i].Action.Single)
			}
		}
		if r.Memory != 1<<20 || r.After != 5*second || r.Alone || r.Turns[1].Action.Duration(4) != 5*second {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestWhatRanBesideIsReplayedByItself: a trajectory of the simulation does one thing at a time.
func TestWhatRanBesideIsReplayedByItself(t *testing.T) {
	c := newRecorded(t)
	id := c.at(10*second, &logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{}}})
	one := c.submit(11*second, &logv1.Action{TrajectoryId: id, CoresMin: 1, CoresMax: 1})
	two := c.submit(12*second, &logv1.Action{TrajectoryId: id, CoresMin: 1, CoresMax: 1})
	c.report(14*second, two, second)
	c.report(15*second, one, 4*second)
	c.submit(16*second, &logv1.Action{CoresMin: 4, CoresMax: 4}) // goes on at the end
	b, in, err := read(t, nil, c.log).build(&Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(b.rollouts) != 2 || !b.rollouts[0].Alone || b.rollouts[0].Start != 2*second || b.rollouts[1].Alone {
		t.Errorf("%+v", b.rollouts)
	}
	d := b.data(in)
	if d.LeftOut["queued or running at the end"] != 1 || len(d.Notes) != 1 || d.Actions != 2 {
		t.Errorf("%+v", d)
	}
}

// TestAQuotaIsKept: two calls share a quota of one, and with a quota of two nothing waits.
// Neither has cores.
func TestAQuotaIsKept(t *testing.T) {
	c := newRecorded(t)
	c.at(2*second, &logv1.Command{Verb: &logv1.Command_CreateQuota{CreateQuota: &logv1.CreateQuota{Name: "api", Kind: uint32(state.QuotaConcurrency), Limit: 1, Keys: 1}}})
	needs := &logv1.Needs{Quotas: []*logv1.QuotaUse{{Quota: "api", Units: 1}}}
	one, two := c.submit(3*second, &logv1.Action{Needs: needs}), c.submit(3*second, &logv1.Action{Needs: needs})
	c.report(5*second, one, 2*second)
	c.report(7*second, two, 2*second)
	p := read(t, nil, c.log)
	r, err := p.Replay(t.Context(), Options{Quotas: map[string]int64{"api": 2}}, []string{"rota", "equal", "pod"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if r.Happened.QueueMean != 1000 || r.Present.QueueMean != 1000 || r.Error != (Error{}) || r.WhatIf[0].Result.QueueMean != 0 {
		t.Errorf("happened %+v, present %+v, with two %+v", r.Happened.Stats, r.Present.Stats, r.WhatIf[0].Result.Stats)
	}
	for _, w := range r.WhatIf[1:] {
		if w.Result.ACTMean != 2000 {
			t.Errorf("%s: %+v", w.Policy, w.Result.Stats)
		}
	}
	for _, o := range []Options{{Quotas: map[string]int64{"gone": 1}}, {Pool: "gone"}} {
		if _, err := p.Replay(t.Context(), o, nil, 1); !errors.Is(err, workload.ErrParams) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := p.Replay(t.Context(), Options{}, []string{"static"}, 1); !errors.Is(err, workload.ErrParams) {
		t.Error(err)
	}
}

// logOf has rota work through an input and returns its log.
func logOf(t *testing.T, in *evaluate.Input) (log []entry, r *evaluate.Result) {
	t.Helper()
	in.Log = func(index uint64, data []byte) { log = append(log, entry{index, data}) }
	r, err := evaluate.Run(t.Context(), in, "rota")
	if err != nil {
		t.Fatal(err)
	}
	return log, r
}

// TestTheLogOfASimulationIsReplayedAlike: rollouts with elastic rewards, which are resized
// while they run, are read from the log of their simulation. Their replay takes as long
// as they did, and on twice the nodes less. Under other policies it takes as long as these do
// by themselves. So does a replay of that where actions start sooner and later.
func TestTheLogOfASimulationIsReplayedAlike(t *testing.T) {
	s := evaluate.Setup{Workload: "coding", Seed: 1, Latency: evaluate.DefaultLatency}
	s.Latency.Resize = 0 // a log does not say what part of a duration was the cost of resizes
	s.Latency.Open = 0   // nor what part of a start was that of a sandbox
	for _, pair := range [][2]string{{"batch", "48"}, {"nodes", "1"}, {"cores", "32"}} {
		if err := s.Set(pair[0], pair[1]); err != nil {
			t.Fatal(err)
		}
	}
	in, err := s.Input()
	if err != nil {
		t.Fatal(err)
	}
	log, real := logOf(t, in)
	p := read(t, nil, log)
	r, err := p.Replay(t.Context(), Options{Nodes: 2}, []string{"rota"}, 2)
	if err != nil {
		t.Fatal(err)
	}
	alike(t, r, real)
	if more := r.WhatIf[0]; more.Result.ACTMean > 0.8*r.Present.ACTMean || more.Nodes != "2 x 32 cores" {
		t.Errorf("on %s it takes %.0f ms, after %.0f ms", more.Nodes, more.Result.ACTMean, r.Present.ACTMean)
	}

	others := []string{"pod", "equal", "fixed-4"}
	if r, err = p.Replay(t.Context(), Options{}, others, 2); err != nil {
		t.Fatal(err)
	}
	in.Log = nil
	for i, policy := range others {
		direct, err := evaluate.Run(t.Context(), in, policy)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := r.WhatIf[i].Result.ACTMean, direct.ACTMean; math.Abs(float64(got/want-1)) > 0.01 {
			t.Errorf("what if %s: %.0f ms, and its own simulation has %.0f", policy, got, want)
		}
	}

	b, in, err := p.build(&Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.rollouts {
		for k := range b.rollouts[i].Turns {
			b.rollouts[i].Turns[k].Action.Dispatch += int64((i+k)%9) * 20_000_000
		}
	}
	log, real = logOf(t, in)
	if r, err = read(t, nil, log).Replay(t.Context(), Options{}, nil, 1); err != nil {
		t.Fatal(err)
	}
	alike(t, r, real)
}

// alike: what was read is what happened, to a hundredth, and its replay is. Clients know of
// an end a commit after it is in the log.
func alike(t *testing.T, r *Report, real *evaluate.Result) {
	t.Helper()
	if r.Happened.Actions != real.Actions || math.Abs(float64(r.Happened.ACTMean/real.ACTMean-1)) > 0.01 {
		t.Errorf("%d actions of %.0f ms are read, and there were %d of %.0f ms", r.Happened.Actions, r.Happened.ACTMean, real.Actions, real.ACTMean)
	}
	if e := r.Error; max(e.ACTMean, -e.ACTMean) > 10_000 {
		t.Errorf("the replay is off by %+v", e)
	}
}

// TestWhatIsKnown: as it was, a client said how long it takes and how large it is. It has two
// cores, and half of its work is serial.
func TestWhatIsKnown(t *testing.T) {
	c := newRecorded(t)
	id := c.submit(3*second, &logv1.Action{CoresMin: 2, CoresMax: 2, Class: "tests", SizeHint: 7,
		Needs: &logv1.Needs{Profile: &logv1.Profile{SingleNs: 4 * second, Serial: true, SerialPpm: 500_000}}})
	c.report(8*second, id, 5*second)
	p := read(t, nil, c.log)
	for known, want := range map[string]workload.Action{
		"": {Profiled: 3 * second, Size: 7}, KnownProfiles: {Profiled: 5 * second}, KnownSizes: {Size: 7}, KnownClasses: {}, KnownNothing: {},
	} {
		b, _, err := p.build(&Options{Known: known})
		if err != nil {
			t.Fatal(err)
		}
		if a := b.rollouts[0].Turns[0].Action; a.Profiled != want.Profiled || a.Size != want.Size || a.Single != 5*second || a.Class != "tests" {
			t.Errorf("%q known: %+v", known, a)
		}
		if _, err := p.Replay(t.Context(), Options{Known: known}, []string{"rota"}, 1); err != nil {
			t.Errorf("%q known: %v", known, err)
		}
	}
}

// TestDamagedLogsAreRefused, with an error and without an end.
func TestDamagedLogsAreRefused(t *testing.T) {
	c := newRecorded(t)
	c.rollout()
	r, err := NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(1, 0, []byte("no entry")); err == nil {
		t.Error("an entry that is none passes")
	}
	if _, err := NewReader(io.NopCloser(bytes.NewReader([]byte("no snapshot")))); !errors.Is(err, state.ErrNotSnapshot) {
		t.Error(err)
	}
	if _, err := read(t, nil, c.log[:2]).Replay(t.Context(), Options{}, nil, 1); !errors.Is(err, ErrNothing) {
		t.Error(err)
	}
	last := c.submit(math.MaxInt64-second, &logv1.Action{CoresMin: 1, CoresMax: 1})
	c.report(math.MaxInt64, last, math.MaxInt64)
	if _, err := read(t, nil, c.log).Replay(t.Context(), Options{}, nil, 1); err == nil {
		t.Error("a log of centuries is replayed")
	}
	small := Options{Cores: 1}
	if _, err := read(t, nil, c.log[:7]).Replay(t.Context(), small, []string{"rota"}, 1); !errors.Is(err, workload.ErrParams) {
		t.Error(err)
	}
}

// TestASpeedUpIsFitted to what follows Amdahl's law, and to what does not.
func TestASpeedUpIsFitted(t *testing.T) {
	for _, c := range []struct {
		seen []scale.Seen
		want int64
	}{
		{[]scale.Seen{{Units: 1, NS: 1000, Attempts: 3}, {Units: 2, NS: 600, Attempts: 1}, {Units: 4, NS: 400, Attempts: 9}}, 200_000},
		{[]scale.Seen{{Units: 2, NS: 600, Attempts: 1}, {Units: 8, NS: 300, Attempts: 1}}, 200_000},
		{[]scale.Seen{{Units: 1, NS: 1000, Attempts: 1}, {Units: 4, NS: 100, Attempts: 1}}, 0},
		{[]scale.Seen{{Units: 1, NS: 1000, Attempts: 1}, {Units: 4, NS: 2000, Attempts: 1}}, 1_000_000},
	} {
		if got := fit(c.seen); got != c.want {
			t.Errorf("%+v: %d ppm, want %d", c.seen, got, c.want)
		}
	}
}
