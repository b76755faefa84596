package dst

import (
	"slices"
	"strings"
	"testing"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/internal/sim"
)

// TestSeeds is a short campaign: what a change is tried on before a longer one.
func TestSeeds(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() || raced {
		seeds = 2
	}
	sum := Campaign{
		From: 1, Seeds: seeds, Parallel: 2,
		Each: func(o Outcome) {
			if o.Violation != nil {
				t.Errorf("seed %d: %v", o.Seed, o.Violation)
			}
		},
	}.Run(t.Context())
	t.Logf("%+v", sum)
	if why := sum.Void(); why != "" {
		t.Error(why)
	}
	if sum.Upgrades < 8*sum.Seeds || seeds == 12 && sum.Stops < 3 {
		t.Errorf("%d upgrades, %d stops at a feature level that a build did not know: too few", sum.Upgrades, sum.Stops)
	}
	if seeds == 12 && sum.Late < 4 {
		t.Errorf("%d entries were stamped in another term than they were appended in: too few", sum.Late)
	}
	if sum.Reads < 50*sum.Seeds {
		t.Errorf("%d reads were answered: too few", sum.Reads)
	}
	if seeds == 12 && sum.Overtaken < 12 {
		t.Errorf("%d nodes had come back when they were given up: too few", sum.Overtaken)
	}
	if sum.Gangs < 50*sum.Seeds || sum.GangsEnded < 10*sum.Seeds {
		t.Errorf("%d gangs started, of %d a member did not succeed: too few", sum.Gangs, sum.GangsEnded)
	}
	if sum.Replicas < 50*sum.Seeds || sum.ReplicasReady < 20*sum.Seeds || sum.ReplicasFailed < 10*sum.Seeds {
		t.Errorf("%d replicas of reward functions were started, %d became ready and %d failures were followed by a pause: too few", sum.Replicas, sum.ReplicasReady, sum.ReplicasFailed)
	}
	if sum.Frozen < 4 {
		t.Errorf("%d executions were frozen: too few", sum.Frozen)
	}
	if sum.Sharing < 4 {
		t.Errorf("%d executions have shared cores: too few", sum.Sharing)
	}
	if sum.Hooks < 20*sum.Seeds {
		t.Errorf("%d hooks ran when groups changed hands: too few", sum.Hooks)
	}
	if sum.Transfers < 10*sum.Seeds {
		t.Errorf("nodes were told to pull %d times: too few", sum.Transfers)
	}
	if sum.Batches < 5*sum.Seeds || sum.Samples < 10*sum.Seeds {
		t.Errorf("%d batches were taken, with %d samples: too few", sum.Batches, sum.Samples)
	}
	if sum.Generated < 100*sum.Seeds {
		t.Errorf("%d reports of what a trajectory generated: too few", sum.Generated)
	}
	if seeds == 12 && sum.SharedTurns < 12 {
		t.Errorf("%d turns held GPUs that actions use between turns: too few", sum.SharedTurns)
	}
	if seeds == 12 && (sum.GapActions < 12 || sum.Overruns < 3) {
		t.Errorf("%d actions started on such GPUs, and %d still ran when a reservation began: too few", sum.GapActions, sum.Overruns)
	}
	for _, f := range faults {
		if seeds == 12 && sum.Happened[f.kind] == 0 {
			t.Errorf("it never happened that %s: the faults exclude each other too often", f.kind)
		}
	}
}

// TestPartitions: nodes are cut off for longer than their lease, and lose it.
func TestPartitions(t *testing.T) {
	sum := Campaign{
		Options: Options{Scenario: Partitions}, From: 11, Seeds: 4, Parallel: 2,
		Each: func(o Outcome) {
			if o.Violation != nil {
				t.Errorf("seed %d: %v", o.Seed, o.Violation)
			}
		},
	}.Run(t.Context())
	if sum.Partitions < 100 || 4*sum.PartitionsLed < sum.Partitions {
		t.Errorf("%d partitions, %d with a change of leaders: too few", sum.Partitions, sum.PartitionsLed)
	}
	if why := sum.Void(); why != "" {
		t.Error(why)
	}
}

// TestASeedIsOneRun: the same seed does the same, down to every hash, and another
// one does not; telling the story changes nothing.
func TestASeedIsOneRun(t *testing.T) {
	o := Options{Length: 20 * time.Minute}
	a, b, other := Run(7, o), Run(7, o), Run(8, o)
	if a.Digest != b.Digest || a.Simulated != b.Simulated {
		t.Errorf("seed 7 ended with %x at %v and then with %x at %v", a.Digest, a.Simulated, b.Digest, b.Simulated)
	}
	if a.Digest == other.Digest {
		t.Error("seed 8 does what seed 7 does")
	}
	if told := Tell(a.Plan, o); told.Digest != a.Digest || len(told.Story) < 100 {
		t.Errorf("told, seed 7 ended with %x, not %x, after %d lines", told.Digest, a.Digest, len(told.Story))
	}
}

// TestLuckDoesNotMove: an event that is taken out of a plan does not change what
// chance does to the others.
func TestLuckDoesNotMove(t *testing.T) {
	p := newPlan(newConfig(3), hour)
	d := sim.Draws(p.Events[10].Luck).Of(0, 0)
	before := d.Uint64()
	p.Events = slices.Delete(p.Events, 0, 10)
	d = sim.Draws(p.Events[0].Luck).Of(0, 0)
	if after := d.Uint64(); before != after {
		t.Errorf("the draws of an event are %d, and %d without the ones before it", before, after)
	}
}

// planted are bugs, and what must be said of them.
var planted = []struct {
	name  string
	flaws Flaws
	want  string
}{
	{"an agent ignores its lease", Flaws{Flaws: sim.Flaws{IgnoreLease: true}}, "runs twice at the same time"},
	{"what runs of an older incarnation goes on", Flaws{Flaws: sim.Flaws{KeepOld: true, IgnoreLease: true}}, "runs twice at the same time"},
	{"a restarted agent starts again what is in its journal", Flaws{Flaws: sim.Flaws{StartAgain: true}}, "a second time"},
	{"an attempt is started before it is in the journal", Flaws{Flaws: sim.Flaws{ForgetJournal: true}}, "a second time"},
	{"a deposed leader renews leases", Flaws{NoVerify: true}, "runs twice at the same time"},
	{"a server that was deposed answers reads", Flaws{NoVerify: true}, "had been acknowledged"},
	{"a leader gives nodes up too early", Flaws{EagerLeader: true}, "runs twice at the same time"},
	{"a server decides by the newest level that it knows", Flaws{OwnLevel: true}, "the first to apply it had"},
}

func TestPlantedBugsAreSeen(t *testing.T) {
	for _, bug := range planted {
		t.Run(bug.name, func(t *testing.T) {
			o := Options{Flaws: bug.flaws, Scenario: Random}
			if strings.Contains(bug.name, "leader") || bug.flaws.IgnoreLease {
				o.Scenario = Partitions
			}
			for seed := uint64(1); seed <= 40; seed++ {
				out := Run(seed, o)
				if out.Violation == nil {
					continue
				}
				if !strings.Contains(out.Violation.Error(), bug.want) {
					t.Logf("seed %d: %v", seed, out.Violation)
					continue
				}
				t.Logf("seed %d after %v: %v", seed, out.Simulated.Round(time.Second), out.Violation)
				return
			}
			t.Errorf("nobody noticed in 40 hours")
		})
	}
}

// disagreeing is a model that is wrong about one entry.
type disagreeing struct{ at uint64 }

func (m disagreeing) Step(index, _ uint64, _ *logv1.Entry, _ []*logv1.Result, _ *state.State) error {
	if index == m.at {
		return errDisagrees
	}
	return nil
}

type modelError string

func (e modelError) Error() string { return string(e) }

const errDisagrees = modelError("not so")

// TestAViolationShrinks: what has nothing to do with a violation is left out of
// the plan.
func TestAViolationShrinks(t *testing.T) {
	o := Options{Length: 20 * time.Minute, Model: func() Model { return disagreeing{at: 20} }}
	out := Run(1, o)
	if out.Violation == nil || !strings.Contains(out.Violation.Error(), "not so") {
		t.Fatalf("the model's disagreement was not noticed: %v", out.Violation)
	}
	small := Shrink(out.Plan, o, 20*time.Second)
	if again := RunPlan(small, o); again.Violation == nil {
		t.Fatal("the smaller plan does not fail")
	}
	if len(small.Events) > 30 || len(small.Events) >= len(out.Plan.Events) {
		t.Errorf("%d of %d events are left", len(small.Events), len(out.Plan.Events))
	}
}

// TestAThinRunIsVoid: a run with too little in it is not a success.
func TestAThinRunIsVoid(t *testing.T) {
	for _, c := range []struct {
		s    Summary
		void bool
	}{
		{Summary{}, true},
		{Summary{Seeds: 1, SimulatedHours: 1, Actions: 999, Faults: 100, Turns: 500}, true},
		{Summary{Seeds: 1, SimulatedHours: 1, Actions: 5000, Faults: 19, Turns: 500}, true},
		{Summary{Seeds: 1, SimulatedHours: 1, Actions: 5000, Faults: 100, Turns: 100}, true},
		{Summary{Seeds: 1, SimulatedHours: 1, Actions: 1000, Faults: 20, Turns: 200}, false},
		{Summary{Seeds: 1, SimulatedHours: 1, Actions: 1000, Faults: 20, Turns: 200, Partitioned: true}, true},
		{Summary{Seeds: 1, SimulatedHours: 1, Actions: 1000, Faults: 20, Turns: 200, Partitioned: true, Partitions: 1}, false},
		{Summary{Seeds: 1, SimulatedHours: 1, Actions: 1000, Faults: 20, Turns: 200, Planned: map[Kind]int{Panic: 3}}, false},
		{Summary{Seeds: 50, SimulatedHours: 50, Actions: 50_000, Faults: 1000, Turns: 10_000, Planned: map[Kind]int{Panic: 30}}, true},
		{Summary{Seeds: 50, SimulatedHours: 50, Actions: 50_000, Faults: 1000, Turns: 10_000, Planned: map[Kind]int{Panic: 30}, Happened: map[Kind]int{Panic: 1}}, false},
	} {
		if why := c.s.Void(); (why != "") != c.void {
			t.Errorf("%+v: void %q, want %v", c.s, why, c.void)
		}
	}
}
