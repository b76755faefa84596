package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	look "rota/jepsen/cluster"
	"rota/jepsen/history"
	"rota/jepsen/workload/witness"
)

// built are the programs that tests run, built once.
var built struct{ rota, probe, engine string }

func TestMain(m *testing.M) { goleak.VerifyTestMain(builder{m}) }

type builder struct{ *testing.M }

func (b builder) Run() int {
	dir, err := os.MkdirTemp("", "rota-workload-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built.rota, err = look.Build(context.Background(), dir, look.BuildOptions{})
	if err == nil {
		built.probe, err = look.Build(context.Background(), dir, look.BuildOptions{Package: witness.Package})
	}
	if err == nil {
		built.engine, err = look.Build(context.Background(), dir, look.BuildOptions{Package: witness.EnginePackage})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return b.M.Run()
}

func newWitness(t *testing.T, env *Env) *witness.Witness {
	t.Helper()
	dir, err := os.MkdirTemp("", "w") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	w, err := witness.Listen(filepath.Join(dir, "s"), env.Record.Now)
	if err != nil {
		t.Fatal(err)
	}
	w.Probe, w.Engine = built.probe, built.engine
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	return w
}

// patience is for what must happen but takes its time on a slow machine.
const patience = time.Minute

// cluster is a running `rota dev`.
type cluster struct {
	env *Env
	pid int
}

// start starts a cluster of three servers and two agents on loopback, as `rota
// dev` does, with the agents in a pool of their own.
func start(t *testing.T) *cluster {
	t.Helper()
	if err := look.LookAtSources(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(built.rota, "dev", "--servers", "3", "--agents", "2", "--port", "0", "--dir", dir, "--simulated-gpus", "8xH100:80GiB")
	cmd.Env = append(os.Environ(), "ROTA_AGENT_POOL=work", "ROTA_AGENT_CORES=4", "ROTA_AGENT_OVERSUBSCRIBE=true", "ROTA_SERVER_LEDGER_SLOT=100ms")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	})
	var ready struct{ Servers []string }
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(filepath.Join(dir, "ready.json"))
		if err == nil && json.Unmarshal(text, &ready) == nil {
			break
		}
		if !errors.Is(err, os.ErrNotExist) && err != nil || time.Now().After(deadline) {
			t.Fatalf("the cluster is not ready: %v", err)
		}
	}
	env := &Env{
		Record: history.NewRecorder(history.Record{Scenario: t.Name()}),
		Nodes:  []string{"node-1", "node-2"}, Pool: "work", HeldPool: "default", Cores: 4, GPUs: 8, Seed: 1,
	}
	for i, addr := range ready.Servers {
		env.Servers = append(env.Servers, Server{ID: fmt.Sprintf("server-%d", i+1), Addr: addr})
	}
	env.Witness = newWitness(t, env)
	return &cluster{env, cmd.Process.Pid}
}

// freezeLeader stops the process of the server that leads for a while.
func (c *cluster) freezeLeader(t *testing.T, d time.Duration) {
	t.Helper()
	conns, http := c.env.connect()
	defer http.CloseIdleConnections()
	s, err := c.env.sample(t.Context(), conns[0], 0)
	if err != nil {
		s, err = c.env.sample(t.Context(), conns[1], 0)
	}
	if err != nil {
		t.Error(err)
		return
	}
	pid := c.process("--id\x00" + s.LeaderID + "\x00")
	if err := syscall.Kill(pid, syscall.SIGSTOP); pid == 0 || err != nil {
		t.Errorf("%s, process %d, cannot be frozen: %v", s.LeaderID, pid, err)
		return
	}
	time.Sleep(d)
	syscall.Kill(pid, syscall.SIGCONT)
}

// process finds a child of the cluster's process by a part of its command line.
func (c *cluster) process(part string) int {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", c.pid))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, field := range strings.Fields(string(text)) {
			command, _ := os.ReadFile("/proc/" + field + "/cmdline")
			if pid, err := strconv.Atoi(field); err == nil && strings.Contains(string(command), part) {
				return pid
			}
		}
	}
	return 0
}
