package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPackingEndsWithOneObject(t *testing.T) {
	dir := t.TempDir()
	text, _ := simulated(t, exitOK, "compare", "packing", "--steps", "10", "-o", "json", "--plot", dir)
	var r map[string]struct {
		Jobs map[string]map[string]int64
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err, text)
	}
	// The paper saves this much, with the longest set-up.
	for model, least := range map[string]int64{"7b": 390_000, "30b": 430_000, "235b": 370_000} {
		if two := r[model].Jobs["2"]; two["saving_ppm"] < least || two["slowdown_ppm"] > 20_000 {
			t.Errorf("two jobs of %s: %v", model, two)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "packing-"+model+".svg")); err != nil || !strings.Contains(string(b), "<svg ") {
			t.Errorf("%s: %v", model, err)
		}
	}
	table, _ := simulated(t, exitOK, "compare", "packing", "--steps", "10", "--turns", "operation", "--markdown")
	if !strings.HasPrefix(table, "Simulated: packing, a turn for each operation") {
		t.Error(table)
	}
	for _, args := range [][]string{{"--turns", "day"}, {"--steps", "0"}, {"x"}} {
		simulated(t, exitUsage, append([]string{"compare", "packing"}, args...)...)
	}
}

func TestReplayEndsWithOneObject(t *testing.T) {
	dir := t.TempDir()
	args := []string{"compare", "replay", "--gpus", "512", "--compress", "200", "--load", "0.1,0.2", "--plot", dir}
	text, _ := simulated(t, exitOK, append(args, "-o", "json")...)
	var r struct {
		Policies map[string]map[string]int64
		Sweep    []any
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err, text)
	}
	for _, policy := range []string{"isolated", "pack", "spread", "spread+backfill"} {
		if x := r.Policies[policy]; x["makespan_s"] <= 0 || x["delay_p99_ppm"] < x["delay_p50_ppm"] {
			t.Errorf("%s: %v", policy, x)
		}
	}
	if len(r.Sweep) != 2 || len(r.Policies) != 4 {
		t.Error(text)
	}
	for _, name := range []string{"replay-delay-0.1.svg", "replay-delay-0.2.svg", "replay-makespan.svg"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(b), "<svg ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, args := range [][]string{{"--load", "x"}, {"--load", "0"}, {"--gpus", "1"}, {"--compress", "0"}, {"x"}} {
		simulated(t, exitUsage, append([]string{"compare", "replay"}, args...)...)
	}
}
