package workload

import (
	"errors"
	"strings"
	"testing"
)

func load(t testing.TB, name string, overrides ...Override) *Params {
	t.Helper()
	p, err := Load(name, overrides...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func generator(t testing.TB, p *Params, seed uint64) *Generator {
	t.Helper()
	g, err := New(p, seed)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestEveryWorkloadLoads(t *testing.T) {
	if got := strings.Join(Names(), " "); got != "coding deepsearch mopd+deepsearch mopd" {
		t.Fatalf("workloads %q", got)
	}
	for _, name := range Names() {
		p := load(t, name)
		rows, err := Figures(name)
		if err != nil || len(rows) < 20 {
			t.Errorf("%s: %d figures, error %v", name, len(rows), err)
		}
		if p.Name != name || p.About == "" {
			t.Errorf("%s: name %q, about %q", name, p.Name, p.About)
		}
		for _, r := range rows {
			_, reason, _ := strings.Cut(r.Source, " ")
			if len(reason) < 10 || strings.HasPrefix(r.Source, sourceSweep) {
				t.Errorf("%s: %s: source %q says too little", name, r.Path, r.Source)
			}
		}
	}
	if p := load(t, "mopd+deepsearch"); len(p.Tasks) != 2 || p.Service("judge") == nil || p.Service("teacher-9") == nil || p.Provider("pdf") == nil || p.Task("mopd") == nil {
		t.Errorf("both at once have %d tasks, %d families of models, %d providers", len(p.Tasks), len(p.Services), len(p.Providers))
	}
}

func TestOverrides(t *testing.T) {
	p := load(t, "coding",
		Override{"tasks.coding.batch", "64"},
		Override{"tasks.0.rewards.pytest.duration", `{"fixed": "10s"}`},
		Override{"cluster.node_memory", "1TiB"})
	task := p.Task("coding")
	if task.Batch.Value != 64 || task.Batch.Source != sourceSweep || task.Rewards[0].Duration.Value.Mean() != 10e9 || p.Cluster.NodeMemory.Value != 1<<40 {
		t.Errorf("%+v", p)
	}
	for _, c := range []struct{ path, value, want string }{
		{"tasks.coding.size", "1", `there is no "size"`},
		{"tasks.coding", "1", "is not a figure"},
		{"tasks.coding.batch", "many", "neither"},
		{"tasks.coding.batch", "0", "batch is not between"},
		{"tasks.coding.batch", "-5", "not between"},
		{"tasks.coding.turns", `{"fixed": 100000}`, "turns is above"},
		{"tasks.coding.rewards.pytest.units", `{"set": [1, 4, 2, 8]}`, "not ascending"},
		{"tasks.coding.rewards.pytest.units", `{"min": 2, "max": 1}`, "no range"},
		{"tasks.coding.rewards.pytest.serial_ppm", `{"fixed": 1000001}`, "serial_ppm is above"},
		{"tasks.coding.rewards.pytest.weight", "0", "all weights"},
		{"tasks.coding.think", `{"fixed": "2400h"}`, "above 30 days"},
		{"cluster.numa_per_node", "3", "not a multiple"},
	} {
		_, err := Load("coding", Override{c.path, c.value})
		if !errors.Is(err, ErrParams) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %s: error %v, want %q", c.path, c.value, err, c.want)
		}
	}
	for _, c := range []struct{ path, value, want string }{
		{"tasks.mopd.rewards.logprob.ratio_ppm", `[[1, 1000000], [2, 400000]]`, "are slower than"},
		{"tasks.mopd.rewards.logprob.ratio_ppm", `[[1, 900000]]`, "begins with"},
		{"tasks.mopd.rewards.logprob.ratio_ppm", `[[1, 1000000], [2, 1000001]]`, "above the one before"},
		{"tasks.mopd.rewards.logprob.variants", `[{"name": "nobody", "weight": 1, "duration_ppm": 1, "think_ppm": 1}]`, "no service"},
		{"services.0.restore_rate", "0", "restore_rate"},
		{"tasks.deepsearch.tools.browse.also", `[{"resource": "quota:maps", "units": 1}]`, "no provider"},
		{"tasks.deepsearch.tools.browse.also", `[{"resource": "disk", "units": 1}]`, "is not cpu, gpu"},
		{"providers.pdf.limit", "0", "at least 1"},
	} {
		_, err := Load("mopd+deepsearch", Override{c.path, c.value})
		if !errors.Is(err, ErrParams) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %s: error %v, want %q", c.path, c.value, err, c.want)
		}
	}
}

func TestFilesWithoutSourcesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"name": 5}`:                          "number without a source",
		`{"tasks": [{"batch": {"value": 5}}]}`: "no source",
		`{"cluster": {"cpu_nodes": {"value": 5, "source": "I know"}}}`: "no source that begins",
		`{"colour": "red"}`:      "unknown field",
		`{"include": ["chess"]}`: `no workload "chess"`,
		`{} {}`:                  "after the end",
		`[]`:                     "cannot unmarshal",
		`{"tasks": []}`:          "there is no task",
	} {
		if _, err := parseParams(text); !errors.Is(err, ErrParams) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
	if _, err := Load("chess"); !errors.Is(err, ErrParams) {
		t.Errorf("error %v", err)
	}
	if _, err := parseParams(`{"include": ["coding"], "name": "mine", "cluster": {"cores_per_node": {"value": 8, "source": "assumed because it is mine"}, "numa_per_node": {"value": 1, "source": "assumed because it is mine"}}}`); err != nil {
		t.Error(err)
	}
}

func TestSweeps(t *testing.T) {
	p := load(t, "coding")
	p.SetBatch(10)
	p.SetSteps(3)
	p.SetCPUs(2, 64)
	p.SetGPUs(1, 4)
	p.SetToolWidth(4)
	p.SetSerial(200_000)
	g := generator(t, p, 1)
	if g.Len() != 30 || p.Cluster.CoresPerNode.Value != 64 || p.Cluster.GPUNodes.Value != 1 {
		t.Errorf("%d trajectories, %+v", g.Len(), p.Cluster)
	}
	plain := load(t, "coding")
	plain.SetBatch(10)
	plain.SetSteps(3)
	base := generator(t, plain, 1)
	for i := range g.Len() {
		wide, narrow := g.Trajectory(i), base.Trajectory(i)
		for j := range wide.Turns {
			a, b := &wide.Turns[j].Action, &narrow.Turns[j].Action
			if a.Kind == Reward {
				if a.Single != b.Single || a.Curve.SerialPPM < 100_000 || a.Curve.SerialPPM > 300_000 {
					t.Fatalf("reward %+v, was %+v", a, b)
				}
				continue
			}
			if d := a.Duration(4) - b.Duration(1); a.Cost[0].Min != 4 || d < -2 || d > 2 {
				t.Fatalf("four wide it takes %d, one wide %d", a.Duration(4), b.Duration(1))
			}
		}
	}
	p.SetSerial(0)
	if p.Tasks[0].Rewards[0].SerialPPM.Value.Max() != 0 {
		t.Error("serial fraction is not 0")
	}
	p.SetSerial(50_000)
	if p.Tasks[0].Rewards[0].SerialPPM.Value.Mean() != 50_000 {
		t.Error("serial fraction does not come back from 0")
	}
}

func TestRestoreTime(t *testing.T) {
	s := load(t, "mopd").Service("teacher-1")
	for gpus, want := range map[int64]int64{1: 1_410_000_000, 4: 427_500_000, 8: 263_750_000} {
		if got := s.Restore(gpus); got != want {
			t.Errorf("on %d GPUs %d ns, want %d", gpus, got, want)
		}
	}
}

func parseParams(text string) (*Params, error) {
	tree, err := parseTree([]byte(text))
	if err != nil {
		return nil, err
	}
	return decode(tree, nil)
}
