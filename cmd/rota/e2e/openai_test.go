package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
	"rota/internal/need"
)

// TestOpenAIClient: the official client of OpenAI for JavaScript streams chats, completions and
// responses through a gateway, with calls of tools, and does not notice that a worker is killed.
func TestOpenAIClient(t *testing.T) {
	t.Parallel()
	dir := need.NodePackages(t, "testdata/openai")
	const policy = "policy"
	s := newStudio(t, policy, 2)
	opened, err := s.api.Trajectories.OpenTrajectory(t.Context(), &rotav1.OpenTrajectoryRequest{Generation: &rotav1.GenerationSpec{Policy: policy, TaskClass: "client"}})
	if err != nil {
		t.Fatal(err)
	}
	id := opened.Trajectory.Id
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	client := exec.CommandContext(ctx, "node", "client.mjs", "http://"+s.gateway.Addr+"/v1", fmt.Sprintf("trajectory-%d", id))
	client.Dir = dir
	var complaint bytes.Buffer
	client.Stderr = &complaint
	out, err := client.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said = append(said, lines.Text())
		if lines.Text() == "half" {
			s.killWorkerOf(id)
		}
	}
	if err := client.Wait(); err != nil {
		t.Fatalf("after %v: %v\n%s", said, err, &complaint)
	}
	if want := []string{"chat", "chatWithTools", "completion", "response", "responseWithTools", "refusal", "half", "killedWorker"}; !slices.Equal(said, want) {
		t.Errorf("it did %v, want %v", said, want)
	}
}

// killWorkerOf kills the engine that generates for a trajectory.
func (s *studio) killWorkerOf(trajectory uint64) {
	s.Helper()
	resp, err := s.api.Trajectories.GetTrajectory(s.Context(), &rotav1.GetTrajectoryRequest{Id: trajectory})
	if err != nil {
		s.Fatal(err)
	}
	worker := resp.Trajectory.GetGeneration().GetWorker()
	for _, engine := range s.engines {
		if engine.Name == worker {
			s.kill(engine)
			return
		}
	}
	s.Fatalf("trajectory %d is at %q", trajectory, worker)
}
