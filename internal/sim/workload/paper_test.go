package workload

import (
	"testing"
)

// sample is enough trajectories for means of long tails to settle: 400
// groups of 8 leave the mean of rewards a standard error of 7 %.
const sample = 3_200

func summaries(t *testing.T, name string, widths ...int64) map[int64]*Summary {
	t.Helper()
	p := load(t, name)
	p.SetBatch(sample)
	g := generator(t, p, 1)
	out := make(map[int64]*Summary)
	for _, w := range widths {
		s := Summarize(g, w)
		out[w] = &s
	}
	return out
}

// near says whether got is within tolerance parts per million of want.
func near(t *testing.T, what string, got, want, tolerance int64) {
	t.Helper()
	if d := got - want; d < -mulDiv(want, tolerance, million) || d > mulDiv(want, tolerance, million) {
		t.Errorf("%s is %d, want %d within %d ppm", what, got, want, tolerance)
	}
}

func between(t *testing.T, what string, got, least, most int64) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s is %d, want %d to %d", what, got, least, most)
	}
}

func TestCodingIsAsThePaperSays(t *testing.T) {
	s := summaries(t, "coding", 1, 2, 3, 4, 32)
	// §2.3: actions take 47 % of a trajectory's life; 53 % are wasted.
	near(t, "the mean active share", s[1].Active.Mean, 470_000, 40_000)
	// Table 1, batch 1280: 0.975 s per action, at widths that the load allowed.
	between(t, "the paper's time per action", 975_000_000, s[4].ActionMean(), s[2].ActionMean())
	// Figure 7: 9.0x, 2.8x and 4.3x make 76 % of it reward.
	between(t, "the paper's share of rewards", 758_000, s[4].RewardPPM()-30_000, s[3].RewardPPM())
	// Figure 7: the reward became 2.8 times faster with that width.
	between(t, "the paper's speed-up of rewards", 2_800_000,
		mulDiv(s[1].Reward.Mean, million, s[3].Reward.Mean), mulDiv(s[1].Reward.Mean, million, s[4].Reward.Mean)*105/100)
	// Figure 9: DoP 4 is 2.0 times slower where nothing queues.
	near(t, "the factor over DoP 4", mulDiv(s[4].ActionMean(), million, s[32].ActionMean()), 2_000_000, 60_000)
	// Figure 8(a): 3.1x over one core at batch 128. The model allows more, see
	// doc.go; it must not allow less.
	between(t, "the factor over one core", mulDiv(s[1].ActionMean(), million, s[32].ActionMean()), 3_100_000, 6_500_000)
	// §2.4: down to 1 ms. §6.4: rewards are long-tailed.
	if s[1].Tool.Min != 1_000_000 || s[1].Reward.P99 < 5*s[1].Reward.P50 {
		t.Errorf("the shortest tool call takes %d, rewards %+v", s[1].Tool.Min, s[1].Reward)
	}
	between(t, "the mean of tool calls", s[1].Tool.Mean, 200_000_000, 220_000_000)
	between(t, "the turns with the reward", s[1].Turns.Mean, 40, 42)
}

func TestCodingAsksForWhatTheClusterCanHold(t *testing.T) {
	p := load(t, "coding")
	p.SetBatch(1536)
	g := generator(t, p, 1)
	var memory int64
	for i := range g.Len() {
		memory += g.Trajectory(i).Memory
	}
	// §5.2: memory is abundant, also at the batch that overloads pods.
	between(t, "the memory of 1,536 trajectories", memory*100/int64(p.Cluster.CPUNodes.Value*p.Cluster.NodeMemory.Value), 50, 80)
}

func TestMOPDIsAsThePaperSays(t *testing.T) {
	s := summaries(t, "mopd", 1, 4, 8)
	// Table 1, batch 2048: 0.621 s per action.
	near(t, "the time at TP 4", s[4].ActionMean(), 621_000_000, 80_000)
	if len(s[4].Classes) != 9 || s[8].ActionMean() >= s[4].ActionMean() {
		t.Errorf("%d classes, %d ns at TP 8", len(s[4].Classes), s[8].ActionMean())
	}
	// Table 1: 0.201 s of overhead per action, mostly restoring. A miss costs more
	// than the average, and not so much that few misses would explain it.
	restore := load(t, "mopd").Service("teacher-1").Restore(4)
	between(t, "a restore at TP 4", restore, 201_000_000, 1_000_000_000)
	// §6.1: the nine teachers' weights fit into the CPU memory of a node.
	p := load(t, "mopd")
	if 9*p.Services[0].Weights.Value > p.Cluster.HostMemory.Value || p.Services[0].Weights.Value > p.Cluster.GPUMemory.Value {
		t.Error("weights do not fit where the paper has them")
	}
}

func TestDeepSearchIsAsThePaperSays(t *testing.T) {
	s := summaries(t, "deepsearch", 1)[1]
	// Heddle Table 1: tool calls of search take 1.42 s.
	near(t, "the mean of API calls", s.Tool.Mean, 1_420_000_000, 50_000)
	// Figure 3(d): invocations vary up to three orders of magnitude.
	p := load(t, "deepsearch")
	burst := Summarize(generator(t, p, 1), 8)
	between(t, "the busiest window over the quietest", burst.Busiest/max(1, burst.Quietest), 300, 10_000)
	// §6.2: without traffic control a full batch runs into the quotas.
	for _, peak := range burst.Peak {
		switch peak.Resource {
		case "quota:page", "quota:pdf":
			limit := int64(p.Provider(peak.Resource[len("quota:"):]).Limit.Value)
			between(t, "the peak of "+peak.Resource, peak.Units*100/limit, 100, 200)
		}
	}
	limit := int64(p.Provider("search").Limit.Value*p.Provider("search").Keys.Value) * summaryWindow / 1_000_000_000
	between(t, "searches in the busiest window", burst.Busiest*55/100*100/limit, 80, 200)
}

func TestASummaryOfOneTrajectory(t *testing.T) {
	cpu := []Cost{{Resource: "cpu", Min: 1, Max: 8}}
	one := Trajectory{Start: 5, Turns: []Turn{
		{Think: 10, Action: Action{Class: "a", Cost: cpu, Single: 40}},
		{Think: 30, Action: Action{Class: "b", Kind: Reward, Cost: cpu, Single: 80}},
	}}
	s := SummarizeAll([]Trajectory{one, one}, 4)
	if s.Trajectories != 2 || s.Actions != 4 || s.Tool.Mean != 10 || s.Reward.Mean != 20 || s.Think.Max != 30 ||
		s.Life.Mean != 70 || s.Active.Mean != 428_571 || s.ActionMean() != 15 || s.RewardPPM() != 666_666 ||
		s.Busiest != 4 || len(s.Peak) != 1 || s.Peak[0] != (Peak{"cpu", 8}) || len(s.Classes) != 2 {
		t.Errorf("%+v", s)
	}
	if s := SummarizeAll(nil, 4); s.Actions != 0 || s.ActionMean() != 0 || s.RewardPPM() != 0 {
		t.Errorf("%+v", s)
	}
}
