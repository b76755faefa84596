package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func simulated(t *testing.T, code int, args ...string) (out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	if got := run(context.Background(), append([]string{"sim"}, args...), &o, &e); got != code {
		t.Fatalf("rota sim %q exits with %d, want %d: %s%s", args, got, code, o.String(), e.String())
	}
	return o.String(), e.String()
}

// small is a cluster that takes milliseconds to simulate.
var small = []string{"--batch", "8", "--nodes", "1", "--cores", "16"}

func TestCompareEndsWithOneObjectOfNumbers(t *testing.T) {
	text, _ := simulated(t, exitOK, append([]string{"compare", "coding", "-o", "json"}, small...)...)
	var r struct {
		Simulated bool
		Policies  map[string]map[string]any
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	for _, policy := range []string{"rota", "pod", "fixed-4", "fixed-16"} {
		for _, field := range []string{"act_mean_ms", "act_p99_ms", "queue_mean_ms", "exec_mean_ms", "overhead_mean_ms", "utilisation_ppm"} {
			if _, ok := r.Policies[policy][field].(float64); !ok {
				t.Errorf("%s of %s is %v, not a number", field, policy, r.Policies[policy][field])
			}
		}
	}
	if !r.Simulated || len(r.Policies) != 4 {
		t.Errorf("%s", text)
	}
	again, _ := simulated(t, exitOK, append([]string{"compare", "coding", "-o", "json", "--workers", "1"}, small...)...)
	if again != text {
		t.Error("the same seed gives other bytes")
	}
}

func TestSimulationsSayThatTheyAre(t *testing.T) {
	for _, args := range [][]string{{"run", "coding"}, {"compare", "coding", "--policies", "pod,fixed-2"}, {"compare", "coding", "--sweep", "batch=1,2"}} {
		out, errOut := simulated(t, exitOK, append(args, small...)...)
		if !strings.HasPrefix(out, "simulated: coding, ") || errOut != "" {
			t.Errorf("%q: %s%s", args, out, errOut)
		}
	}
}

// TestKindsAreToldApart: the mean over all actions is between those of the kinds, and a
// breakdown is in seconds of a trajectory.
func TestKindsAreToldApart(t *testing.T) {
	mean := func(more ...string) (ms float64) {
		out, _ := simulated(t, exitOK, append(append([]string{"run", "coding", "--policy", "fixed-2"}, small...), more...)...)
		lines := strings.Split(out, "\n")
		if _, err := fmt.Sscan(strings.Fields(lines[2])[1], &ms); err != nil {
			t.Fatal(out, err)
		}
		return ms
	}
	all := mean()
	tool := mean("--kind", "tool")
	reward := mean("--kind", "reward")
	if !(tool < all && all < reward) {
		t.Errorf("tools take %g ms, rewards %g, both %g", tool, reward, all)
	}
	out, _ := simulated(t, exitOK, append([]string{"compare", "coding", "--policies", "fixed-2,pod", "--breakdown"}, small...)...)
	row := strings.Fields(strings.Split(out, "\n")[2])
	var tools, rewards, both float64
	if _, err := fmt.Sscan(row[2]+" "+row[4]+" "+row[6], &tools, &rewards, &both); err != nil {
		t.Fatal(out, err)
	}
	if math.Abs(rewards*1000-reward) > 10 || math.Abs(tools+rewards-both) > 0.011 {
		t.Errorf("a trajectory has one reward of %g ms, and the breakdown says:\n%s", reward, out)
	}
}

func TestChartsAreDrawn(t *testing.T) {
	dir := t.TempDir()
	simulated(t, exitOK, append([]string{"compare", "coding", "--plot", dir}, small...)...)
	simulated(t, exitOK, append([]string{"compare", "coding", "--plot", dir, "--sweep", "serial=0,100000"}, small...)...)
	for _, name := range []string{"act.png", "utilisation.png", "breakdown.png", "sweep.png"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.HasPrefix(b, []byte("\x89PNG")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestATraceIsRead(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "rollouts.csv")
	text := "trajectory,turn,start_s,input_tokens,output_tokens,generate_s,gap_s,stop\na,0,0,1,1,1.0,0,tool_use\na,1,5,1,1,1.0,4.0,end_turn\n"
	if err := os.WriteFile(trace, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := simulated(t, exitOK, append([]string{"run", "coding", "--trace", trace, "--tool-share", "0.25"}, small...)...)
	if !strings.Contains(out, "tools from a trace of 1 sessions at 25 % of gaps") {
		t.Error(out)
	}
	if _, errOut := simulated(t, exitError, "run", "coding", "--trace", trace+"x"); !strings.Contains(errOut, "no such file") {
		t.Error(errOut)
	}
}

func TestWrongSimulationsAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"run"}, {"run", "gone"}, {"run", "coding", "--batch", "0"}, {"run", "coding", "--set", "x"}, {"run", "coding", "--set", "a.b=1"},
		{"compare", "coding", "--sweep", "batch"}, {"compare", "coding", "--sweep", "batch=x"}, {"figures", "gone"}, {"run", "coding", "--commit", "-1s"},
		{"run", "coding", "--trace", "x", "--tool-share", "2"}, {"run", "coding", "--kind", "think"}, {"compare", "coding", "--sweep", "batch=1", "--breakdown"},
	} {
		simulated(t, exitUsage, args...)
	}
	simulated(t, exitError, "run", "coding", "--policy", "gone", "--batch", "1")
}

// TestAKindThatIsNotThereIsRefused: zeros would look like a result.
func TestAKindThatIsNotThereIsRefused(t *testing.T) {
	for _, args := range [][]string{{"run", "mopd"}, {"compare", "mopd", "--policies", "rota", "--sweep", "seed=1,2"}} {
		out, errOut := simulated(t, exitUsage, append(args, "--batch", "2", "--kind", "tool")...)
		if out != "" || !strings.Contains(errOut, "there are no tools in the simulated workload mopd") {
			t.Errorf("%q: %s%s", args, out, errOut)
		}
	}
}

func TestFiguresHaveSources(t *testing.T) {
	out, _ := simulated(t, exitOK, "figures", "coding")
	if !strings.Contains(out, "paper §6.1: batch size 1280 for AI coding") {
		t.Error(out)
	}
}

func TestTheTablesOfADocumentAreFilled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.md")
	command := "<!-- rota sim compare coding --policies pod --batch 2 -->\n"
	text := "# Title\n\n" + command + "old\n<!-- end -->\n\nand <!-- rota sim run coding --policy gone -->\n<!-- end -->\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	simulated(t, exitError, "document", file)
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Title\n\n" + command + "\nSimulated: coding, batch 2,", "\n| pod | ", "\nNot measured: policy gone: ", "\n<!-- end -->\n"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(string(got), "old") {
		t.Errorf("what was there is left:\n%s", got)
	}
	again, err := fillDocument(string(got), func(string) string { return "" })
	if err != nil || again != string(got) {
		t.Errorf("nothing new changes the document to\n%s", again)
	}
	if _, err := fillDocument("<!-- rota sim x -->\n", nil); err == nil {
		t.Error("a command without an end passes")
	}
}

func TestWrongReplaysOfLogsAreRefused(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{}, {"--nodes", "0"}, {"--cores", "-1"}, {"--known", "all"}, {"--quota", "x"}, {"--quota", "x=0"}, {"--policies", "static"}} {
		if len(args) > 0 {
			args = append(args, dir)
		}
		simulated(t, exitUsage, append([]string{"replay-log"}, args...)...)
	}
	if _, errOut := simulated(t, exitError, "replay-log", dir); !strings.Contains(errOut, "give the one of --data-dir") {
		t.Error(errOut)
	}
}
