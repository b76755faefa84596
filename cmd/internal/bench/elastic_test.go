package bench

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"rota/cmd/internal/rotatest"
	"rota/internal/need"
)

func TestMain(m *testing.M) { os.Exit(rotatest.Main(m)) }

// All policies of a round see the same arrivals, another round others, and together they
// are the load that was asked for.
func TestArrivals(t *testing.T) {
	e := &elastic{o: ElasticOptions{Suites: 4000, Load: 0.5, Work: time.Second, Serial: 0.25, Seed: 1},
		cpus: []int{0, 1}, unit: 5 * time.Millisecond}
	if err := e.findGap(t.Context()); err != nil || e.gap != time.Second {
		t.Fatalf("a gap of %v, %v; two cores at half their load do a second of work in a second", e.gap, err)
	}
	a := e.arrivals(0)
	if !reflect.DeepEqual(a, e.arrivals(0)) {
		t.Error("the same round drew twice what is not the same")
	}
	if reflect.DeepEqual(a, e.arrivals(1)) {
		t.Error("two rounds are the same")
	}
	serial, units := 0, 0
	for i, s := range a {
		if s.parallel < 1 || i > 0 && s.after < a[i-1].after {
			t.Fatalf("suite %d is %+v after %+v", i, s, a[i-1])
		}
		serial, units = serial+s.serial, units+s.serial+s.parallel
	}
	near := func(what string, got, want float64) {
		if got < 0.93*want || got > 1.07*want {
			t.Errorf("%s: %.3f, want about %.3f", what, got, want)
		}
	}
	near("seconds between suites", a[len(a)-1].after.Seconds()/4000, 1)
	near("units of a suite", float64(units)/4000, 200)
	near("serial part", float64(serial)/float64(units), 0.25)
}

func TestPolicyResult(t *testing.T) {
	p := &policy{name: "fixed 2"}
	for _, took := range []time.Duration{100, 300, 600} {
		if err := p.note(took*time.Millisecond, []byte(`{"resizes": 2, "switches": 9}`), true); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.note(200*time.Millisecond, []byte("ok"), false); err != nil {
		t.Error(err)
	}
	if err := p.note(time.Second, []byte("ok"), true); err == nil {
		t.Error("a suite without a report is no error")
	}
	p.rounds = []float64{200, 400, 900}
	got := p.result([]float64{100, 400, 300})
	want := ElasticPolicy{PolicyTimes: PolicyTimes{Policy: "fixed 2", MeanMS: 300, P50MS: 200, P99MS: 600, RoundsMS: p.rounds,
		Ratio: Spread{Median: 2, Min: 1, Max: 3}}, Resizes: 1.5, Switches: 6.75}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := spreadOf([]float64{4, 1, 2, 3}); got != (Spread{2.5, 1, 4}) {
		t.Errorf("spread %v", got)
	}
}

func TestCPUsSeen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cores")
	c := &cpusSeen{file: file}
	c.look() // there is no file
	for _, cpus := range []string{"0", "0", "0,1", "0,1", "1"} {
		if err := os.WriteFile(file, []byte(cpus+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c.look()
	}
	if c.changes != 2 {
		t.Errorf("saw %d changes, want 2", c.changes)
	}
}

func TestOwnCommand(t *testing.T) {
	t.Setenv("ROTA_ADDR", "elsewhere")
	t.Setenv("KEPT", "yes")
	c := ownCommand([]string{"go", "test", "-p={{cores}}"}, "3")
	if strings.Join(c.argv, " ") != "go test -p=3" || c.env["KEPT"] != "yes" || c.env["ROTA_ADDR"] != "" || c.dir == "" {
		t.Errorf("%v in %q with KEPT=%q ROTA_ADDR=%q", c.argv, c.dir, c.env["KEPT"], c.env["ROTA_ADDR"])
	}
}

// The unit of work is that of the process which runs suites, not of this one with its race
// detector.
func TestUnitTime(t *testing.T) {
	unit, err := UnitTime(t.Context(), rotatest.Binary(t))
	if err != nil || unit <= 0 {
		t.Fatal(unit, err)
	}
	for binary, want := range map[string]string{"/bin/false": "exit status 1", "/bin/echo": "says"} {
		if _, err := UnitTime(t.Context(), binary); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", binary, err, want)
		}
	}
}

// Real suites on a real cluster, and beside it: all end, only the resized ones change
// their cores, and the cost of a resize is something.
func TestElastic(t *testing.T) {
	need.Cgroup(t)
	if runtime.NumCPU() < 2 {
		t.Skip("the machine has one core, so there is nothing to give")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	// Far more arrives than the cores can do, and every suite is long: so suites meet, and one that
	// is left alone goes on for long enough to be given more.
	o := ElasticOptions{Cluster: ClusterOptions{Binary: rotatest.Binary(t), Dir: t.TempDir()},
		Rounds: 2, Suites: 3, Load: 4, Work: 1500 * time.Millisecond, Serial: 0.1, Seed: 1, Widths: []int{2}}
	var turns []string
	r, err := Elastic(ctx, o, func(_ int, policy string, meanMS float64) {
		turns = append(turns, policy)
		if meanMS <= 0 {
			t.Errorf("%s: a mean of %f ms", policy, meanMS)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"resized", "fixed 2", "shares", "fixed 2", "shares", "resized"}
	if !reflect.DeepEqual(turns, want) {
		t.Errorf("turns %q, want %q", turns, want)
	}
	for i, p := range r.Policies {
		if (i == 0) != (p.Resizes > 0) {
			t.Errorf("%s: %.2f resizes of a suite", p.Policy, p.Resizes)
		}
		if p.Switches <= 0 || len(p.RoundsMS) != o.Rounds || p.Ratio.Min <= 0 {
			t.Errorf("%+v", p)
		}
	}
	if r.Noise.Samples != len(want)+1 || r.Resize.P50US <= 0 || r.Resize.Resizes < 50 {
		t.Errorf("noise %+v, resize %+v", r.Noise, r.Resize)
	}
	said, _ := json.Marshal(r)
	t.Logf("%s", said)
}

// A command of the user's that fails is the end of the benchmark, and says why.
func TestElasticCommandFails(t *testing.T) {
	need.Cgroup(t)
	if runtime.NumCPU() < 2 {
		t.Skip("the machine has one core, so there is nothing to give")
	}
	o := ElasticOptions{Cluster: ClusterOptions{Binary: rotatest.Binary(t), Dir: t.TempDir()},
		Rounds: 1, Suites: 1, Load: 1, Work: time.Second, Command: []string{"sh", "-c", "exit {{cores}}"}}
	_, err := Elastic(t.Context(), o, func(int, string, float64) { t.Error("a turn has ended well") })
	if err == nil || !strings.Contains(err.Error(), "FAILED") {
		t.Errorf("got %v", err)
	}
}
