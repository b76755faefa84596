package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// examplePredictor is the predictor service that docs/rollouts.md shows.
func examplePredictor(t *testing.T) string {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "rollouts.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## A predictor service\n")
	_, code, _ := strings.Cut(section, "```python\n")
	code, _, found := strings.Cut(code, "```\n")
	if !found {
		t.Fatal("docs/rollouts.md shows no predictor service")
	}
	return code
}

// startPredictor starts that service on a port of loopback.
func startPredictor(t *testing.T, port int) (stop func()) {
	service := exec.Command("python3", "-c", examplePredictor(t), fmt.Sprint(port))
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		_ = service.Process.Kill()
		_ = service.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// TestPredictorService: the predictor of docs/rollouts.md speaks before the first turn and after each.
// While it is gone rota predicts by itself.
func TestPredictorService(t *testing.T) {
	t.Parallel()
	need.Tool(t, "python3")
	ports, err := devcluster.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	stop := startPredictor(t, ports[0])
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1, ServerArgs: []string{"--predictor-url", fmt.Sprintf("http://127.0.0.1:%d", ports[0])}})
	created, err := w.api.Rollouts.CreateRollout(t.Context(), &rotav1.CreateRolloutRequest{Spec: &rotav1.RolloutSpec{Policy: "policy", Groups: 1, SamplesPerGroup: 2}})
	if err != nil {
		t.Fatal(err)
	}
	opened, err := w.api.Trajectories.OpenTrajectory(t.Context(), &rotav1.OpenTrajectoryRequest{
		Generation: &rotav1.GenerationSpec{Policy: "policy"}, Rollout: &rotav1.RolloutMembership{RolloutId: created.Rollout.Id},
	})
	if err != nil {
		t.Fatal(err)
	}
	generation := func() *rotav1.Generation {
		resp, err := w.api.Trajectories.GetTrajectory(t.Context(), &rotav1.GetTrajectoryRequest{Id: opened.Trajectory.Id})
		if err != nil {
			return nil
		}
		return resp.Trajectory.GetGeneration()
	}
	by := func(p rotav1.Predictor) func() bool {
		return func() bool { return generation().GetPrediction().GetBy() == p }
	}
	explained := func(want string) {
		t.Helper()
		out, stderr, _, code := w.rota(w.cluster.Addrs()[0], "rollout", "explain", fmt.Sprint(created.Rollout.Id))
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("rota rollout explain does not say %q: %s%s", want, out, stderr.text.String())
		}
	}
	turn := func() {
		t.Helper()
		_, err := w.api.Workers.ReportGenerations(t.Context(), &rotav1.ReportGenerationsRequest{
			Generations: []*rotav1.GenerationReport{{TrajectoryId: opened.Trajectory.Id, Turns: 1, OutputTokens: 200, ContextTokens: 900}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	w.until("the service has spoken", by(rotav1.Predictor_PREDICTOR_SERVICE))
	g := generation()
	if p := g.Prediction; g.PredictedTokens != 12*150 || g.FirstPredictedTokens != 12*150 || p.TokensP50 != 12*150 || p.TokensP90 != 2*12*150 || p.Turns != 12 || p.OwnTokens == 0 {
		t.Errorf("before the first turn: %v", g)
	}
	explained("the predictor service (1 trajectory)")
	turn()
	w.until("the service has spoken after a turn", func() bool {
		g = generation()
		return g.GetTurns() == 1 && g.GetPrediction().GetBy() == rotav1.Predictor_PREDICTOR_SERVICE
	})
	if g.PredictedTokens != 11*200 || g.FirstPredictedTokens != 12*150 || g.Prediction.Turns != 11 {
		t.Errorf("after a turn: %v", g)
	}

	stop()
	turn()
	w.until("rota predicts by itself", by(rotav1.Predictor_PREDICTOR_OWN))
	explained("rota (1 trajectory)")
	startPredictor(t, ports[0])
	w.until("the service that came back has spoken", by(rotav1.Predictor_PREDICTOR_SERVICE))
	if g := generation(); g.Turns != 2 || g.PredictedTokens != 10*200 {
		t.Errorf("after two turns: %v", g)
	}
}
