package demo

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/need"
)

func TestWorkloadDependsOnTheSeedOnly(t *testing.T) {
	a, b := makeTrajectories(1, 0, 6, 2), makeTrajectories(1, 0, 6, 2)
	if !reflect.DeepEqual(a, b) {
		t.Error("the same seed made two workloads")
	}
	if reflect.DeepEqual(a, makeTrajectories(2, 0, 6, 2)) {
		t.Error("another seed made the same workload")
	}
	// A longer list begins like a shorter one: trajectories are independent.
	if !reflect.DeepEqual(a, makeTrajectories(1, 0, 9, 2)[:6]) {
		t.Error("more trajectories changed the first ones")
	}
	elastic := 0
	for _, tr := range a {
		for _, turn := range tr.turns {
			if turn.maxCores > 1 {
				elastic++
			}
			if turn.think < thinkMin || turn.think > thinkMax {
				t.Errorf("thinks for %v", turn.think)
			}
		}
	}
	if elastic == 0 {
		t.Error("no elastic action among six trajectories")
	}
}

// A command bears witness each time it is executed, and is still the command.
func TestWitnessCountsExecutions(t *testing.T) {
	w := witness{filepath.Join(t.TempDir(), "a file with spaces")}
	argv := w.wrap([]string{"sh", "-c", "exit 3"})
	for _, id := range []string{"7", "8", "7"} {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "ROTA_ACTION_ID="+id, "ROTA_FENCING_TOKEN="+id+".1.1")
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != 3 {
			t.Fatalf("the command ended with %v, want its own exit code 3", err)
		}
	}
	got, err := w.executions()
	if err != nil || !reflect.DeepEqual(got, map[uint64]int{7: 2, 8: 1}) {
		t.Errorf("executions %v, %v", got, err)
	}
}

func TestWitnessWithoutAnExecution(t *testing.T) {
	got, err := witness{filepath.Join(t.TempDir(), "none")}.executions()
	if err != nil || len(got) != 0 {
		t.Errorf("executions %v, %v", got, err)
	}
}

// A trajectory that has to wait for a core pays for it with its first action. Time is that
// of the test: it stands still while commands run.
func TestReservedChargesTheWaitToTheFirstAction(t *testing.T) {
	cpus, err := usableCPUs()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := newReserved(cpus[:1], os.Environ(), t.TempDir())
		_, end, err := r.open(t.Context(), trajectory{})
		if err != nil {
			t.Fatal(err)
		}
		const held = 300 * time.Millisecond
		time.AfterFunc(held, end)
		act, end, err := r.open(t.Context(), trajectory{})
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		var got [2]sample
		for i := range got {
			if got[i], err = act(t.Context(), turn{argv: []string{"sh", "-c", "test {{cores}} = 1"}}); err != nil {
				t.Fatal(err)
			}
		}
		if got[0].queue != held || got[0].act != held+got[0].exec || got[1].queue != 0 {
			t.Errorf("queued %v of %v, and then %v; want the wait of %v in the first action alone", got[0].queue, got[0].act, got[1].queue, held)
		}
		if !got[0].succeeded || !got[1].succeeded {
			t.Error("{{cores}} was not replaced by 1")
		}
	})
}

func TestReservedPinsItsCommands(t *testing.T) {
	cpus, err := usableCPUs()
	if err != nil {
		t.Fatal(err)
	}
	need.Tool(t, "nproc")
	cmd := exec.Command("nproc")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := startPinned(cmd, cpus[len(cpus)-1]); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || strings.TrimSpace(out.String()) != "1" {
		t.Errorf("a pinned command sees %q CPUs, %v", out.String(), err)
	}
	if now, _ := usableCPUs(); len(now) != len(cpus) {
		t.Errorf("this process was pinned as well: %v", now)
	}
}

func TestSummary(t *testing.T) {
	rota := []sample{
		{act: 100 * time.Millisecond, queue: 20 * time.Millisecond, exec: 70 * time.Millisecond},
		{act: 300 * time.Millisecond, queue: 0, exec: 290 * time.Millisecond},
	}
	s := Summary{StateHashesEqual: true}
	s.addTimes([][]sample{rota[:1], rota[1:]}, [][]sample{{{act: 400 * time.Millisecond}}, {{act: 450 * time.Millisecond}}})
	want := Summary{StateHashesEqual: true, ActMeanMS: 200, ActP50MS: 100, ActP99MS: 300, QueueMeanMS: 10,
		ExecMeanMS: 180, OverheadMeanMS: 10, OverheadRatio: 0.05, ReservedActMeanMS: 425, ReservedRatios: []float64{4, 1.5}}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got  %+v\nwant %+v", s, want)
	}
	if !s.OK() {
		t.Error("a clean summary is not OK")
	}
	for name, bad := range map[string]Summary{
		"lost":      {AcknowledgedLost: 1, StateHashesEqual: true},
		"duplicate": {DuplicateExecutions: 1, StateHashesEqual: true},
		"hashes":    {},
	} {
		if bad.OK() {
			t.Errorf("%s: a bad summary is OK", name)
		}
	}
}

func TestElasticityIsATable(t *testing.T) {
	var out strings.Builder
	e := Elasticity{
		Class: "suite", Learned: []Width{{1, 1000.4, 1}, {2, 800, 3}}, CoresIdle: 2, CoresBusy: []int{1, 1},
	}
	e.write(&out)
	want := `class  learned: cores, mean  cores when idle  cores when 2 come together
suite  1: 1s of 1 attempts   2                1 1
       2: 800ms of 3 attempts
`
	if got := out.String(); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Each core has its place in the line, whoever has it.
func TestDrawCores(t *testing.T) {
	got := drawCores([]uint32{0, 1, 4, 5}, map[uint32]string{1: "A", 4: "B", 5: "A", 9: "C"})
	if got != ".ABA" {
		t.Errorf("got %q", got)
	}
}

func TestSummaryOfBatches(t *testing.T) {
	s := Summary{ActMeanMS: 100, ReservedActMeanMS: 200, ReservedRatios: []float64{2.5, 1.5}}
	var with, without strings.Builder
	s.Write(&with)
	s.ReservedRatios = nil
	s.Write(&without)
	if !strings.Contains(with.String(), "2.0 times as long (1.5 to 2.5 times in 2 batches)") {
		t.Error(with.String())
	}
	if strings.Contains(without.String(), "reserved") {
		t.Errorf("a comparison that was not made: %s", without.String())
	}
}

// The keys are a promise to scripts.
func TestSummaryKeys(t *testing.T) {
	raw, err := json.Marshal(Summary{Elasticity: &Elasticity{Learned: make([]Width, 1)}, Resizing: &Resizing{}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	dec := json.NewDecoder(bytes.NewReader(raw))
	for {
		tok, err := dec.Token()
		if err != nil {
			break
		}
		if key, ok := tok.(string); ok && key != "" {
			got = append(got, key)
		}
	}
	want := strings.Fields(`actions_submitted actions_succeeded acknowledged_lost duplicate_executions
		leader_kills failover_ms act_mean_ms act_p50_ms act_p99_ms queue_mean_ms exec_mean_ms
		overhead_mean_ms overhead_ratio reserved_act_mean_ms reserved_ratios
		noise samples mean_ms cv slowest_over_fastest state_hashes_equal
		elasticity class learned cores mean_ms attempts cores_idle cores_busy
		resizing cores_alone cores_shared cores_after changes changes_noticed`)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("keys %v\nwant %v", got, want)
	}
}
