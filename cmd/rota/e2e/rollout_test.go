package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// studio is a cluster with simulated engines as its workers, and a gateway.
type studio struct {
	*world
	engines []*devcluster.Process
	gateway *devcluster.Process
}

// newStudio starts simulated engines that serve a policy as vLLM does, registers them, and starts
// a gateway.
func newStudio(t *testing.T, policy string, engines int) *studio {
	s := &studio{world: newWorld(t, sturdy, devcluster.Config{Servers: 3, Agents: 1})}
	for i := range engines {
		name := fmt.Sprintf("engine-%d", i+1)
		p := s.process(name, "engine", "simulate", "--dialect", "vllm", "--model", policy, "--speed", "0.3")
		s.engines = append(s.engines, p)
		_, err := s.api.Workers.RegisterWorker(t.Context(), &rotav1.RegisterWorkerRequest{Spec: &rotav1.WorkerSpec{
			Name: name, Policy: policy, Url: "http://" + p.Addr, Dialect: rotav1.WorkerDialect_WORKER_DIALECT_VLLM,
			Profile: &rotav1.WorkerProfile{
				Points:     []*rotav1.WorkerProfilePoint{{BatchSize: 1, TokenTime: durationpb.New(time.Millisecond)}},
				Prefill_1K: durationpb.New(10 * time.Millisecond),
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.gateway = s.process("gateway", "gateway", "--servers", strings.Join(s.cluster.Addrs(), ","))
	return s
}

// process starts rota as something that listens on an address of its own, and waits until it is
// healthy.
func (s *studio) process(name string, args ...string) *devcluster.Process {
	s.Helper()
	ports, err := devcluster.FreePorts(1)
	if err != nil {
		s.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", fmt.Sprint(ports[0]))
	p := devcluster.NewProcess(name, addr, filepath.Join(s.dir, name), s.cluster.Servers[0].Binary, append(args, "--listen", addr)...)
	if err := p.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(p.Kill)
	s.healthy(p)
	return p
}

func (s *studio) healthy(p *devcluster.Process) {
	s.Helper()
	s.until(p.Name+" is healthy", func() bool {
		resp, err := http.Get("http://" + p.Addr + "/health")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// TestAgentLoop runs the example of an agent loop to its end, though a worker, the gateway and the
// leader are killed meanwhile.
func TestAgentLoop(t *testing.T) {
	t.Parallel()
	need.Tool(t, "python3")
	const policy = "essayist"
	s := newStudio(t, policy, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	python := filepath.Join("..", "..", "..", "api", "python")
	loop := exec.CommandContext(ctx, "python3", "-B", filepath.Join(python, "examples", "agent_loop.py"), strings.Join(s.cluster.Addrs(), ","), "http://"+s.gateway.Addr, policy)
	loop.Env = append(os.Environ(), "PYTHONPATH="+python)
	done := make(chan string, 1)
	go func() {
		out, err := loop.CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		done <- string(out)
	}()
	s.generated(policy, 1)
	s.kill(s.engines[0])
	s.kill(s.gateway)
	s.start(s.gateway)
	leader := s.leader(nil)
	s.kill(leader)
	select {
	case out := <-done:
		t.Fatalf("the loop had ended when the leader was killed:\n%s", out)
	default:
	}
	s.start(leader)
	out := <-done
	if steps := regexp.MustCompile(`step (\d): 4 samples`).FindAllString(out, -1); len(steps) != 3 {
		t.Errorf("it went through the steps %v:\n%s", steps, out)
	}
	s.eachOnce(policy)
}

// generated waits until workers have generated something, and so many trajectories are open.
func (s *studio) generated(policy string, tokens uint64) {
	s.until("tokens are generated", func() bool {
		list, err := s.api.Workers.ListWorkers(s.Context(), &rotav1.ListWorkersRequest{Policy: policy})
		var sum uint64
		for _, w := range list.GetWorkers() {
			sum += w.OutputTokens
		}
		return err == nil && sum >= tokens
	})
}

// eachOnce: the groups of the rollout were given to steps, each with its samples.
func (s *studio) eachOnce(policy string) {
	s.Helper()
	var list *rotav1.ListRolloutsResponse
	s.until("rollouts are listed", func() (ok bool) {
		var err error
		list, err = s.api.Rollouts.ListRollouts(s.Context(), &rotav1.ListRolloutsRequest{Policy: policy, IncludeEnded: true})
		return err == nil
	})
	if len(list.Rollouts) != 1 {
		s.Fatalf("there are %d rollouts", len(list.Rollouts))
	}
	if c := list.Rollouts[0].Counts; c.DeliveredGroups != 6 || c.Sampled != 12 || c.Running != 0 {
		text, _ := json.Marshal(c)
		s.Errorf("the rollout ended with %s", text)
	}
}
