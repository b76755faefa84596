package rollouts

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"rota/internal/sim/workload"
)

// outputs are the logarithms of what trajectories generate.
func outputs(all []Trajectory) (out []float64) {
	for i := range all {
		out = append(out, math.Log(float64(all[i].Output())))
	}
	return out
}

func meanOf(v []float64) (sum float64) {
	for _, x := range v {
		sum += x / float64(len(v))
	}
	return sum
}

func deviation(v []float64) float64 {
	m, sum := meanOf(v), 0.0
	for _, x := range v {
		sum += (x - m) * (x - m) / float64(len(v))
	}
	return math.Sqrt(sum)
}

// TestWorkloadsAreWhatTheirParametersSay: median, spread, and how much of it groups share.
func TestWorkloadsAreWhatTheirParametersSay(t *testing.T) {
	for _, task := range tasks {
		s := Default()
		s.Task, s.Batch = task.Name, 500
		all := s.step(0)
		v := outputs(all)
		if m, want := math.Exp(meanOf(v)), float64(task.Output.Median); m < 0.9*want || m > 1.1*want {
			t.Errorf("%s: median %.0f, want %.0f", task.Name, m, want)
		}
		if d, want := deviation(v), float64(task.Output.SigmaPPM)/1e6; d < 0.9*want || d > 1.1*want {
			t.Errorf("%s: spread %.2f, want %.2f", task.Name, d, want)
		}
		var means []float64
		for i := 0; i < len(v); i += int(s.Group) {
			means = append(means, meanOf(v[i:i+int(s.Group)]))
		}
		// Of n samples with correlation c, the variance of the mean is c + (1-c)/n of that of one.
		share := math.Pow(deviation(means)/deviation(v), 2)
		if want := 0.5 + 0.5/16; share < want-0.1 || share > want+0.1 {
			t.Errorf("%s: groups share %.2f of the variance, want %.2f", task.Name, share, want)
		}
		for i := range all {
			last := all[i].Turns[len(all[i].Turns)-1]
			if all[i].Output() > outputMax || last.ToolNS != 0 || last.ToolTokens != 0 || all[i].Prompt != all[i/16*16].Prompt || all[i].Group != i/16 {
				t.Fatalf("%s: trajectory %d is %+v", task.Name, i, all[i])
			}
			for _, turn := range all[i].Turns {
				if turn.Output < 1 {
					t.Fatalf("%s: trajectory %d has a turn without output", task.Name, i)
				}
			}
		}
	}
	s := Default()
	s.Skew = 0
	for _, tr := range s.step(0) {
		if tr.Output() != 1600 || len(tr.Turns) != 4 {
			t.Fatalf("without skew, a trajectory generates %d tokens in %d turns", tr.Output(), len(tr.Turns))
		}
	}
}

func TestSessionsBecomeTrajectories(t *testing.T) {
	sessions := []workload.Session{
		{Name: "long", Turns: []workload.SessionTurn{
			{InputTokens: 1000, Output: 50}, {InputTokens: 1080, Output: 0},
			// 30 tokens came from the tool, and then something was cut out of the context.
			{InputTokens: 1080, Output: 20, Gap: 90 * second}, {InputTokens: 500, Output: 7, Gap: 3 * second},
		}},
		{Name: "short", Turns: []workload.SessionTurn{{InputTokens: 90_000, Output: 5}, {InputTokens: 300_000, Output: 9}}},
		{Name: "none", Turns: []workload.SessionTurn{{InputTokens: 10}}},
	}
	got, err := FromSessions(sessions, 60*second)
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	short, long := got[0], got[1]
	if short.Prompt != tracePromptMax || len(short.Turns) != 2 || short.Turns[0].ToolTokens != tracePromptMax || short.Turns[1].ToolTokens != 0 {
		t.Errorf("short: %+v", short)
	}
	want := []Turn{{Output: 50, ToolTokens: 30, ToolNS: 60 * second}, {Output: 20, ToolNS: 3 * second}, {Output: 7}}
	if long.Prompt != 1000 || len(long.Turns) != 3 || long.Turns[0] != want[0] || long.Turns[1] != want[1] || long.Turns[2] != want[2] {
		t.Errorf("long: %+v, want %+v", long, want)
	}
	if _, err := FromSessions(sessions[2:], 0); !errors.Is(err, ErrSetup) {
		t.Error(err)
	}
}

// TestTheTraceRuns takes the real sessions.
func TestTheTraceRuns(t *testing.T) {
	folder := os.Getenv("ROTA_TRACES")
	if folder == "" {
		t.Skip("ROTA_TRACES does not name a folder with the traces")
	}
	text, err := os.ReadFile(filepath.Join(folder, "rollouts.csv"))
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := workload.ReadSessions(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	s := small()
	if s.Pool, err = FromSessions(sessions, 60*second); err != nil || len(s.Pool) != 175 {
		t.Fatal(len(s.Pool), err)
	}
	r, err := Compare(context.Background(), s, Options{Policies: []string{"rota", "least-load"}, Seeds: 1, Parallel: 2})
	if err != nil || r.Base.Task != TraceTask || r.Points[0].Policies["rota"].Throughput.Median <= 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
