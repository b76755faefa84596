package workload

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const sessionHeader = "trajectory,turn,start_s,input_tokens,output_tokens,generate_s,gap_s,stop\n"

func TestTracesAreRead(t *testing.T) {
	// Columns go by name, and others are passed over.
	text := "mine,trajectory,start_s,turn,input_tokens,output_tokens,generate_s,gap_s,stop\n" +
		"x,a,0.0,0,10,20,1.5,0,tool_use\nx,a,3,2,11,21,0,1.5,\nx,b,0,0,1,1,2,0,end_turn\n"
	sessions, err := ReadSessions(strings.NewReader(text))
	want := []Session{
		{"a", []SessionTurn{{0, 0, 10, 20, 1_500_000_000, 0, "tool_use"}, {2, 3e9, 11, 21, 0, 1_500_000_000, ""}}},
		{"b", []SessionTurn{{0, 0, 1, 1, 2e9, 0, "end_turn"}}},
	}
	if err != nil || !reflect.DeepEqual(sessions, want) {
		t.Errorf("%+v, error %v", sessions, err)
	}
}

func TestMalformedTracesAreRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "without even a header"},
		{"trajectory,turn\n", `no column "start_s"`},
		{"turn,turn\n", `two columns "turn"`},
		{sessionHeader + "a,0,0,1,1,1,0\n", "line 2: wrong number of fields"},
		{sessionHeader + "a,0,0,1,1,1,0,x\na,1,0,1,1,-1,0,x\n", `line 3: generate_s "-1": not a decimal`},
		{sessionHeader + "a,0,0,1,1,NaN,0,x\n", `line 2: generate_s "NaN"`},
		{sessionHeader + "a,0,0,1,1,1e9,0,x\n", `generate_s "1e9"`},
		{sessionHeader + "a,0,0,1,1,,0,x\n", `generate_s ""`},
		{sessionHeader + "a,0.5,0,1,1,1,0,x\n", "not a whole number"},
		{sessionHeader + "a,0,0,99999999999999999999,1,1,0,x\n", `input_tokens "99999999999999999999": too large`},
		{sessionHeader + "a,0,0,1,1,9000000000,0,x\n", "generate_s \"9000000000\": above"},
		{sessionHeader + "a,1,0,1,1,1,0,x\na,1,0,1,1,1,0,x\n", `line 3: turn "1": not after turn 1`},
		{sessionHeader + "a,1,5,1,1,1,0,x\na,2,4,1,1,1,0,x\n", `line 3: start_s "4": before`},
		{sessionHeader + "a,1,0,1,1,1,0,x\nb,1,0,1,1,1,0,x\na,2,0,1,1,1,0,x\n", `line 4: trajectory "a": its lines do not stand together`},
		{sessionHeader + "a,0,0,1,1,1,0,\"x\n", "quote"},
		{sessionHeader + strings.Repeat("a", 300) + ",0,0,1,1,1,0,x\n", "longer than 256"},
	} {
		_, err := ReadSessions(strings.NewReader(c.text))
		if !errors.Is(err, ErrTrace) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.120q: error %v, want %q", c.text, err, c.want)
		}
	}
	broken := io.MultiReader(strings.NewReader(sessionHeader), brokenReader{})
	if _, err := ReadSessions(broken); !errors.Is(err, ErrTrace) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v", err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func FuzzTraces(f *testing.F) {
	f.Add([]byte(sessionHeader + "a,0,0.0,10,20,1.5,0,tool_use\na,2,3,11,21,0,1.5,\n"))
	p := load(f, "coding")
	p.SetBatch(4)
	g := generator(f, p, 1)
	f.Fuzz(func(t *testing.T, text []byte) {
		sessions, err := ReadSessions(bytes.NewReader(text))
		if err != nil {
			if !errors.Is(err, ErrTrace) {
				t.Fatal(err)
			}
			return
		}
		if len(sessions) == 0 {
			return
		}
		all, err := g.Replay(sessions, Replay{SharePPM: 500_000, CapNS: 60_000_000_000})
		if err != nil {
			t.Fatal(err)
		}
		for _, tr := range all {
			for _, turn := range tr.Turns {
				if turn.Think < 0 || turn.Action.Single < 1 {
					t.Fatalf("%+v", turn)
				}
			}
		}
	})
}

func TestReplay(t *testing.T) {
	p := load(t, "coding")
	p.SetBatch(3)
	g := generator(t, p, 1)
	sessions, err := ReadSessions(strings.NewReader(sessionHeader +
		"a,0,0,1,1,2,0,tool_use\n" + // a gap of 10 s
		"a,1,12,1,1,3,10,end_turn\n" + // a person's
		"a,2,100,1,1,0,85,tool_use\n" + // its end is not known: 40 s to the next
		"a,3,140,1,1,5,125,tool_use\n" + // longer than the cap
		"a,4,1000,1,1,7,855,tool_use\n" +
		"b,0,0,1,1,1,0,end_turn\n"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := g.Replay(sessions, Replay{SharePPM: 500_000, CapNS: 60_000_000_000, Width: 2, Class: "bash"})
	if err != nil || len(all) != 3 {
		t.Fatal(len(all), err)
	}
	const s = 1_000_000_000
	var got [][2]int64
	for _, turn := range all[0].Turns {
		a := &turn.Action
		got = append(got, [2]int64{turn.Think, a.Duration(2)})
		if a.Kind == Tool && (a.Class != "bash" || a.Cost[0].Min != 2 || a.Elastic()) {
			t.Errorf("%+v", a)
		}
	}
	reward := all[0].Turns[len(got)-1].Action
	want := [][2]int64{{2 * s, 5 * s}, {8 * s, 20 * s}, {25 * s, 30 * s}, {37 * s, reward.Duration(2)}}
	if !slices.Equal(got, want) || reward.Kind != Reward {
		t.Errorf("turns %v, want %v", got, want)
	}
	drawn := g.Trajectory(0)
	if last := drawn.Turns[len(drawn.Turns)-1].Action; last.Single != reward.Single || all[0].Memory != drawn.Memory || all[0].Start != drawn.Start {
		t.Errorf("the reward is %+v, the generator's %+v", reward, last)
	}
	if len(all[1].Turns) != 1 || len(all[2].Turns) != 4 {
		t.Errorf("%d and %d turns", len(all[1].Turns), len(all[2].Turns))
	}
	for _, bad := range []Replay{{SharePPM: -1}, {SharePPM: million + 1}, {CapNS: -1}, {Width: unitsMax + 1}} {
		if _, err := g.Replay(sessions, bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	if _, err := g.Replay(nil, Replay{}); !errors.Is(err, ErrTrace) {
		t.Errorf("error %v", err)
	}
}

// tracesEnv names a folder with the traces that doc.go tells of.
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

// quantilesAgree compares an embedded table with a trace.
func quantilesAgree(t *testing.T, of string, d Dist, values []int64) {
	t.Helper()
	slices.Sort(values)
	for _, q := range d.points {
		i := int((q.p*uint64(len(values)-1) + certain - 1) >> 32)
		low, high := values[max(0, i-2)], values[min(len(values)-1, i+2)]
		if q.v < low-1_000_000 || q.v > high+1_000_000 {
			t.Errorf("%s: quantile %d ppm is %d, the trace has %d to %d", of, q.p*million>>32, q.v, low, high)
		}
	}
}

func TestEmbeddedTablesAreThoseOfTheTraces(t *testing.T) {
	sessions, err := ReadSessions(openTrace(t, "rollouts.csv"))
	if err != nil || len(sessions) != 175 {
		t.Fatal(len(sessions), err)
	}
	var generate []int64
	for _, s := range sessions {
		for _, turn := range s.Turns {
			if turn.Generate > 0 {
				generate = append(generate, turn.Generate)
			}
		}
	}
	if len(generate) != 9608 {
		t.Errorf("%d turns with a known generation", len(generate))
	}
	quantilesAgree(t, "generate_s", load(t, "coding").Tasks[0].Think.Value, generate)
	quantilesAgree(t, "generate_s", load(t, "deepsearch").Tasks[0].Think.Value, generate)

	loads, err := open(openTrace(t, "model_load.csv"), "load_ms")
	if err != nil {
		t.Fatal(err)
	}
	var times []int64
	for loads.next() {
		times = append(times, loads.number("load_ms", 1_000_000, traceTimeMax))
	}
	if loads.err != nil || len(times) != 7531 {
		t.Fatal(len(times), loads.err)
	}
	quantilesAgree(t, "load_ms", load(t, "mopd").Services[0].ColdLoad.Value, times)

	// The share of gaps in a session's life, once waits of more than a minute or
	// two are cut off, is what §2.3 of the paper has for actions.
	g := generator(t, load(t, "coding", Override{"tasks.coding.batch", "175"}, Override{"tasks.coding.rewards.pytest.duration", `{"fixed": 1}`}), 1)
	for limit, want := range map[int64][2]int64{60: {400_000, 600_000}, 120: {450_000, 650_000}} {
		all, err := g.Replay(sessions, Replay{SharePPM: million, CapNS: limit * 1_000_000_000})
		if err != nil {
			t.Fatal(err)
		}
		between(t, "the share of gaps", SummarizeAll(all, 1).Active.Mean, want[0], want[1])
	}
}
