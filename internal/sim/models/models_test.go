package models

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rota/fsm/state"
	"rota/internal/sim/workload"
	"rota/sched"
)

// tracesEnv names a folder with traces, which are no part of the project.
const tracesEnv = "ROTA_TRACES"

func openTrace(t *testing.T, name string) io.Reader {
	t.Helper()
	folder := os.Getenv(tracesEnv)
	if folder == "" {
		t.Skip(tracesEnv + " does not name a folder with the traces")
	}
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(text)
}

func find(t *testing.T, cases []Case, name string) *Case {
	t.Helper()
	i := slices.IndexFunc(cases, func(c Case) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no case %q", name)
	}
	return &cases[i]
}

// check compares a moderate load with what the rule is for: a fifth less set-up time, also where
// clients declare nothing, and nowhere much worse than LRU.
func check(t *testing.T, in *Input, load int64) {
	t.Helper()
	cases, err := Compare(t.Context(), in, Setup{Nodes: 4, GPUs: 8, Seed: 1}, []int64{load}, 2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range cases {
		c := &cases[i]
		t.Logf("%s: %d loads in %d ms, LRU %d in %d ms", c.Name, c.Rota.Loads, c.Rota.SetUpNS/1e6, c.LRU.Loads, c.LRU.SetUpNS/1e6)
		if c.LRU.Requests != int64(len(in.Requests)) || c.Rota.Requests != c.LRU.Requests || c.LRU.ACTNS == 0 {
			t.Errorf("%s: %+v", c.Name, c)
		}
		if c.SavedPPM() < -20_000 {
			t.Errorf("%s: set-ups take %d ppm longer than with LRU", c.Name, -c.SavedPPM())
		}
	}
	for _, name := range []string{"as it is", "set-ups not declared"} {
		if saved := find(t, cases, name).SavedPPM(); saved < 200_000 {
			t.Errorf("%s: %d ppm of the set-up time are saved, must be 200000", name, saved)
		}
	}
}

func TestGeneratedRequests(t *testing.T) { check(t, Generate(1).First(700), 10) }

func TestRequestsOfTheTraces(t *testing.T) {
	pods, err := workload.ReadPods(openTrace(t, "openb_pods.csv"))
	if err != nil {
		t.Fatal(err)
	}
	loads, err := workload.ReadLoads(openTrace(t, "model_load.csv"))
	if err != nil {
		t.Fatal(err)
	}
	in, err := FromTrace(pods, loads)
	if err != nil {
		t.Fatal(err)
	}
	check(t, in.First(2000), 40)
}

func TestRunIsDeterministic(t *testing.T) {
	s := Setup{Nodes: 2, GPUs: 8, Load: 20, Seed: 7, Level: 3}
	first, err := Run(t.Context(), Generate(7).First(300), s)
	again, err2 := Run(t.Context(), Generate(7).First(300), s)
	if err != nil || err2 != nil || first != again {
		t.Errorf("%+v, %v and then %+v, %v", first, err, again, err2)
	}
}

// TestLoadsAreCounted: two models that fit beside each other are loaded once each.
func TestLoadsAreCounted(t *testing.T) {
	in := &Input{Models: []Model{{1, 400, 3 * second}, {1, 400, 5 * second}}, Requests: []int{0, 1, 1, 0, 0, 1}}
	for _, level := range []state.Level{state.LevelMin, sched.LevelResizing} {
		s := Setup{Nodes: 1, GPUs: 1, Load: 50, Seed: 1, Level: level}
		for _, undeclared := range []bool{false, true} {
			s.Undeclared = undeclared
			r, err := Run(t.Context(), in, s)
			if err != nil || r.Loads != 2 || r.SetUpNS != 8*second || r.Requests != 6 {
				t.Errorf("level %d: %+v, %v", s.Level, r, err)
			}
		}
	}
}

func TestFromTrace(t *testing.T) {
	read := func(text string) []workload.Pod {
		pods, err := workload.ReadPods(strings.NewReader("memory_mib,num_gpu,gpu_milli\n" + text))
		if err != nil {
			t.Fatal(err)
		}
		return pods
	}
	in, err := FromTrace(read("1000,0,0\n1000,1,500\n1023,1,500\n1024,1,500\n1000,3,1000\n1000,1,500\n"), []int64{5, 6, 7})
	if err != nil || !slices.Equal(in.Requests, []int{0, 0, 1, 2, 0}) || !slices.Equal(in.Models, []Model{{1, 500, 5}, {1, 500, 6}, {4, 1000, 7}}) {
		t.Errorf("%+v, %v", in, err)
	}
	for _, bad := range []string{"1000,0,0\n", "1000,9,1000\n", "1000,1,1001\n", "1,1,1\n2,1,1\n4,1,1\n8,1,1\n"} {
		if _, err := FromTrace(read(bad), []int64{5, 6, 7}); !errors.Is(err, ErrInput) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := workload.ReadPods(strings.NewReader("memory_mib,num_gpu\n")); err == nil {
		t.Error("a column is missing, and that was not noticed")
	}
}
