package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rota/internal/sim/lengths"
)

func TestLengthsEndWithOneObject(t *testing.T) {
	text, _ := simulated(t, exitOK, "lengths", "--groups", "10", "--samples", "2", "--bootstraps", "100", "--repeats", "1", "--folds", "5", "--after", "0,2", "-o", "json")
	var r struct {
		Simulated bool
		Results   []lengths.Result
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err, text)
	}
	// After 0 turns nothing is there to be continued.
	if !r.Simulated || len(r.Results) != 13 || r.Results[0].Predictor != "rota" || r.Results[0].Sessions != 20 || r.Results[0].WithinP90 <= 0.5 {
		t.Error(text)
	}
}

func TestLengthsOfATrace(t *testing.T) {
	var b strings.Builder
	b.WriteString("trajectory,turn,start_s,input_tokens,output_tokens,generate_s,gap_s,stop\n")
	for i := range 10 {
		for turn := range 3 {
			fmt.Fprintf(&b, "%d,%d,%d,%d,%d,1,1,tool_use\n", i, turn, turn*2, 1000+i*100+turn*50, 10+i)
		}
	}
	trace := filepath.Join(t.TempDir(), "rollouts.csv")
	if err := os.WriteFile(trace, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	table, _ := simulated(t, exitOK, "lengths", trace, "--folds", "5", "--bootstraps", "100", "--markdown")
	if !strings.HasPrefix(table, "Lengths: 10 sessions of a trace, 5 folds, 5 repetitions, seed 1:") || strings.Count(table, "| rota |") != 3 || strings.Contains(table, "siblings") {
		t.Error(table)
	}
	for _, args := range [][]string{{trace, "--folds", "11"}, {trace, trace}, {"--groups", "1"}, {"--shown", "2"}, {"--after", "-1"}, {"--bootstraps", "5"}, {"--repeats", "0"}} {
		simulated(t, exitUsage, append([]string{"lengths"}, args...)...)
	}
	simulated(t, exitError, "lengths", trace+"x")
}
