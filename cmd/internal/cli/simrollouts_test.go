package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// smallRollouts takes milliseconds to simulate.
var smallRollouts = []string{"rollouts", "compare", "--task", "math", "--workers", "1", "--batch", "8", "--group", "4", "--steps", "1", "--seeds", "2"}

func TestRolloutsEndWithOneObject(t *testing.T) {
	text, errOut := simulated(t, exitOK, append(smallRollouts, "--sweep", "skew=0,100", "--policies", "rota,least-load", "-o", "json")...)
	var r struct {
		Simulated bool
		Points    []struct {
			At       []string
			Policies map[string]struct {
				Throughput struct{ Median float64 } `json:"tokens_per_second"`
				Last       []map[string]any         `json:"last_step"`
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err, text)
	}
	if !r.Simulated || len(r.Points) != 2 || r.Points[1].At[0] != "100" || errOut != "" {
		t.Error(text, errOut)
	}
	for _, name := range []string{"rota", "least-load"} {
		p := r.Points[0].Policies[name]
		if p.Throughput.Median <= 0 || len(p.Last) != 2 {
			t.Errorf("%s: %+v", name, p)
		}
		for _, field := range []string{"makespan_ns", "output_tokens", "recomputed_tokens", "completion_p99_ns", "queue_mean_ns", "busy_ppm", "moves"} {
			if _, ok := p.Last[0][field].(float64); !ok {
				t.Errorf("%s of %s is %v, not a number", field, name, p.Last[0][field])
			}
		}
	}
}

func TestRolloutsOfTables(t *testing.T) {
	table, _ := simulated(t, exitOK, append(smallRollouts, "--markdown")...)
	if !strings.HasPrefix(table, "Simulated: rollouts, task math, model 14b, batch 8, workers 1, group 4, steps 1, seeds 1 to 2:") {
		t.Error(table)
	}
	for _, want := range []string{"| rota | ", "| autellix | ", "1.00 (1.00-1.00)", "| 1x1 |"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in\n%s", want, table)
		}
	}
	table, _ = simulated(t, exitOK, append(smallRollouts, "--markdown", "--sweep", "model=8b,14b", "--sweep", "skew=0,50")...)
	if !strings.Contains(table, "| 14b | 50 |") || strings.Contains(table, "model 14b") || !strings.Contains(table, "lowest of all: ") {
		t.Error(table)
	}
	table, _ = simulated(t, exitOK, "rollouts", "policies")
	if strings.Count(table, "\n") < 10 || !strings.Contains(table, "rota-no-migration") {
		t.Error(table)
	}
	simulated(t, exitOK, "rollouts", "policies", "-o", "json")
}

func TestRolloutsOfATrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rollouts.csv")
	text := "trajectory,turn,start_s,input_tokens,output_tokens,generate_s,gap_s,stop\na,0,0,100,50,1,0,tool_use\na,1,3,170,20,1,2,end_turn\nb,0,0,80,30,1,0,end_turn\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	of := []string{"rollouts", "compare", "--workers", "1", "--batch", "8", "--group", "4", "--steps", "1", "--seeds", "1", "--policies", "rota,least-load"}
	table, _ := simulated(t, exitOK, append(of, "--trace", path)...)
	if !strings.HasPrefix(table, "simulated: rollouts, task trace, ") {
		t.Error(table)
	}
	for _, args := range [][]string{
		{"--trace", path, "--task", "math"}, {"--trace", path, "--sweep", "task=math,search"}, {"--policies", "x"}, {"--sweep", "skew"}, {"--sweep", "x=1"},
		{"--gap-cap", "-1s"}, {"--seeds", "0"}, {"--skew", "301"}, {"--task", "x"}, {"--model", "x"}, {"x"},
	} {
		simulated(t, exitUsage, append([]string{"rollouts", "compare"}, args...)...)
	}
	simulated(t, exitError, append(of, "--trace", path+"x")...)
}

func TestTrainingOfTables(t *testing.T) {
	of := []string{"rollouts", "training", "--task", "math", "--workers", "4", "--trainers", "2", "--batch", "4", "--group", "4", "--steps", "2", "--seeds", "2"}
	table, _ := simulated(t, exitOK, append(of, "--sweep", "skew=0,50", "--markdown")...)
	if !strings.HasPrefix(table, "Simulated: training, model 14b, batch 4, workers 4, trainers 2, least-load, bound 1, seeds 1 to 2:") || strings.Count(table, "\n") != 6 {
		t.Error(table)
	}
	text, _ := simulated(t, exitOK, append(of, "-o", "json")...)
	var r struct {
		Simulated bool
		Points    []struct {
			Seeds []struct {
				Sync int64 `json:"sync_step_ns"`
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil || !r.Simulated || len(r.Points) != 1 || len(r.Points[0].Seeds) != 2 || r.Points[0].Seeds[0].Sync <= 0 {
		t.Error(text, err)
	}
	for _, args := range [][]string{{"--policy", "rota"}, {"--policy", "x"}, {"--bound", "0"}, {"--trainers", "4"}, {"--sweep", "x"}, {"--skew", "-1"}} {
		simulated(t, exitUsage, append(of, args...)...)
	}
}
