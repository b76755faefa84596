package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestModelsEndWithOneObject(t *testing.T) {
	text, _ := simulated(t, exitOK, "compare", "models", "--requests", "100", "--load", "20", "-o", "json")
	var r struct {
		Simulated bool
		Requests  int
		Cases     []struct {
			Case string
			LRU  modelsResultJSON
			Rota modelsResultJSON
		}
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err, text)
	}
	if !r.Simulated || r.Requests != 100 || len(r.Cases) != 5 || r.Cases[0].LRU.SetUpMS <= 0 || r.Cases[0].Rota.ACTMS <= 0 {
		t.Error(text)
	}
}

func TestModelsOfTraces(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pods := write("pods.csv", "memory_mib,num_gpu,gpu_milli\n"+strings.Repeat("1000,1,1000\n4000,2,500\n", 5))
	loads := write("loads.csv", "load_ms\n2000.0\n3000.5\n")
	table, _ := simulated(t, exitOK, "compare", "models", "--pods", pods, "--loads", loads, "--load", "20", "--markdown")
	if !strings.HasPrefix(table, "Simulated: 10 requests (trace) for 2 models, 4 x 8 GPUs, seed 1:") || strings.Count(table, "| 20 |") != 5 {
		t.Error(table)
	}
	for _, args := range [][]string{{"--pods", pods}, {"--loads", loads}, {"--nodes", "0"}, {"--gpus", "65"}, {"--gpus", "1"}, {"--load", "0"}, {"--requests", "-1"}, {"x"}} {
		simulated(t, exitUsage, append([]string{"compare", "models"}, args...)...)
	}
	simulated(t, exitError, "compare", "models", "--pods", loads, "--loads", loads)
	simulated(t, exitError, "compare", "models", "--pods", pods+"x", "--loads", loads)
}
