package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rota/internal/need"
)

// The rollouts of TestThreeAgentLoops: three of them, each with so many groups of two samples. A
// step gets two groups.
const (
	loopRollouts, loopPrompts = 3, 4
	loopGroups, loopSteps     = 2, loopRollouts * loopPrompts / 2
)

// trainer is the process of a trainer, which is killed and started again.
type trainer struct {
	*testing.T
	start func() *exec.Cmd
	cmd   *exec.Cmd
	goOn  io.Writer
	lines *bufio.Scanner
	said  *bytes.Buffer // on standard error
}

// given is what a step was given.
type given struct {
	Step         int      `json:"step"`
	Trajectories []uint64 `json:"trajectories"`
}

func (p *trainer) begin() {
	p.Helper()
	p.cmd, p.said = p.start(), &bytes.Buffer{}
	p.cmd.Stderr = p.said
	in, err := p.cmd.StdinPipe()
	if err != nil {
		p.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.Fatal(err)
	}
	p.goOn, p.lines = in, bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		p.Fatal(err)
	}
}

// batch waits for the batch of the next step. The trainer waits then, too.
func (p *trainer) batch() (g given) {
	p.Helper()
	if !p.lines.Scan() {
		p.Fatalf("the trainer ended: %v\n%s", p.cmd.Wait(), p.said)
	}
	if err := json.Unmarshal(p.lines.Bytes(), &g); err != nil {
		p.Fatal(err)
	}
	return g
}

// train lets the trainer train with its batch.
func (p *trainer) train() {
	p.Helper()
	if _, err := fmt.Fprintln(p.goOn); err != nil {
		p.Fatal(err)
	}
}

// kill kills the trainer before it has trained with its batch.
func (p *trainer) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it was killed
}

// TestThreeAgentLoops: three rollouts with environments survive kills of a worker, of a gateway, of
// the leader and of the trainer. A trainer that was killed is given the same batch again, and each
// sample is given to one step.
func TestThreeAgentLoops(t *testing.T) {
	t.Parallel()
	need.Tool(t, "python3")
	const policy = "essayist"
	s := newStudio(t, policy, 3)
	other := s.process("gateway-2", "gateway", "--servers", strings.Join(s.cluster.Addrs(), ","))
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	python := filepath.Join("..", "..", "..", "api", "python")
	servers, checkpoint := strings.Join(s.cluster.Addrs(), ","), filepath.Join(t.TempDir(), "checkpoint")
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "python3", append([]string{"-B"}, args...)...)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+python+string(filepath.ListSeparator)+filepath.Join(python, "examples"))
		return cmd
	}
	loops := command(filepath.Join("testdata", "rollouts.py"), servers, "http://"+s.gateway.Addr+",http://"+other.Addr, policy, fmt.Sprint(loopPrompts))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if out, err := loops.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}()
	p := &trainer{T: t, start: func() *exec.Cmd {
		return command(filepath.Join("testdata", "trainer.py"), servers, policy, fmt.Sprint(loopGroups), fmt.Sprint(loopSteps), checkpoint)
	}}
	p.begin()
	defer func() { p.kill() }()
	steps := map[uint64]int{}
	for step := 1; step <= loopSteps; step++ {
		batch := p.batch()
		switch step {
		case 1:
			s.kill(s.engines[0])
		case 2:
			s.kill(s.gateway)
			s.start(s.gateway)
		case 3:
			leader := s.leader(nil)
			s.kill(leader)
			s.leader(leader)
			s.start(leader)
		}
		if step%2 == 0 {
			p.kill()
			p.begin()
			if again := p.batch(); again.Step != batch.Step || !slices.Equal(again.Trajectories, batch.Trajectories) {
				t.Fatalf("the trainer was killed in step %d with %v, and was given step %d with %v then", batch.Step, batch.Trajectories, again.Step, again.Trajectories)
			}
		}
		if batch.Step != step || len(batch.Trajectories) != 2*loopGroups {
			t.Errorf("step %d was given %v as step %d", step, batch.Trajectories, batch.Step)
		}
		for _, id := range batch.Trajectories {
			if before, twice := steps[id]; twice {
				t.Errorf("trajectory %d was given to the steps %d and %d", id, before, step)
			}
			steps[id] = step
		}
		p.train()
	}
	<-ended
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, p.said)
	}
}
