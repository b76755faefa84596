package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/cmd/internal/rotatest"
)

// patience is for what must happen but takes its time on a slow machine.
const patience = 90 * time.Second

// world is a cluster of real processes, with a client.
type world struct {
	*testing.T
	dir     string
	cluster *devcluster.Cluster
	api     *client.Client
	lease   lease
}

// lease is what a cluster is told about leases.
type lease struct{ duration, margin time.Duration }

// outlast pauses for longer than any lease lasts, by anybody's count.
func (l lease) outlast() { time.Sleep(l.duration + 2*l.margin) }

var (
	// patient leases are not meant to end.
	patient = lease{20 * time.Second, 2 * time.Second}
	// sturdy leases outlive a change of leader, and no longer pause.
	sturdy = lease{6 * time.Second, 500 * time.Millisecond}
	// short leases are meant to end.
	short = lease{3 * time.Second, time.Second}
)

func newWorld(t *testing.T, l lease, config devcluster.Config) *world {
	t.Helper()
	return newWorldIn(t, t.ArtifactDir(), l, config)
}

// newWorldIn is newWorld in a folder, for a test that has more than one.
func newWorldIn(t *testing.T, dir string, l lease, config devcluster.Config) *world {
	t.Helper()
	w := &world{T: t, dir: dir, lease: l}
	config.Binary, config.Dir = rotatest.Binary(t), w.dir
	config.ServerArgs = append(config.ServerArgs, "--lease", l.duration.String(), "--lease-margin", l.margin.String())
	config.AgentArgs = append([]string{"--cores", "4", "--oversubscribe"}, config.AgentArgs...)
	var err error
	if w.cluster, err = devcluster.Start(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.clean)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.cluster.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	if w.api, err = w.cluster.Dial(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.api.Close)
	return w
}

// clean leaves no process behind, whatever state the test was left in.
func (w *world) clean() {
	if w.Failed() {
		w.showLogs()
	}
	for _, agent := range w.cluster.Agents {
		agent.Signal(syscall.SIGCONT)
		for _, pid := range supervisors(agent) {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	w.cluster.StopAgents()
	for _, server := range w.cluster.Servers {
		server.Kill() // a second sooner: it says no goodbye to those that end too
	}
	for _, agent := range w.cluster.Agents {
		for _, pid := range supervisors(agent) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	for _, pid := range processes(w.marker()) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, agent := range w.cluster.Agents {
		unmount(agent)
	}
}

func (w *world) showLogs() {
	for _, p := range append(w.cluster.Servers[:len(w.cluster.Servers):len(w.cluster.Servers)], w.cluster.Agents...) {
		raw, err := os.ReadFile(p.LogPath())
		if err != nil {
			w.Log(err)
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
		w.Logf("end of the log of %s:\n%s", p.Name, strings.Join(lines[max(0, len(lines)-30):], "\n"))
	}
}

// until repeats a check until it holds.
func (w *world) until(what string, check func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !check(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// leader waits until a server leads that is not the one excepted.
func (w *world) leader(except *devcluster.Process) (leader *devcluster.Process) {
	w.Helper()
	w.until("somebody leads", func() bool {
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		p, err := w.cluster.Leader(ctx, w.api)
		if err != nil || p == except {
			return false
		}
		leader = p
		return true
	})
	return leader
}

// commits waits until so many more entries are committed.
func (w *world) commits(n uint64) {
	w.Helper()
	goal := uint64(0)
	w.until(fmt.Sprintf("%d more entries are committed", n), func() bool {
		status, err := w.api.Operator.GetStatus(w.Context(), &rotav1.GetStatusRequest{})
		if err == nil && goal == 0 {
			goal = status.CommitIndex + n
		}
		return err == nil && status.CommitIndex >= goal
	})
}

// follower is a server that does not lead.
func (w *world) follower() *devcluster.Process {
	leader := w.leader(nil)
	for _, p := range w.cluster.Servers {
		if p != leader {
			return p
		}
	}
	w.Fatal("no follower")
	return nil
}

// node asks for the node of an agent.
func (w *world) node(agent *devcluster.Process) *rotav1.Node {
	w.Helper()
	resp, err := w.api.Nodes.GetNode(w.Context(), &rotav1.GetNodeRequest{Name: agent.Name})
	if err != nil {
		w.Fatal(err)
	}
	return resp.Node
}

// up waits until the node of an agent is up with a newer incarnation.
func (w *world) up(agent *devcluster.Process, after uint64) {
	w.Helper()
	w.until(agent.Name+" is up again", func() bool {
		n := w.node(agent)
		return n.State == rotav1.NodeState_NODE_STATE_UP && n.Incarnation > after
	})
}

// start starts a process that has ended.
func (w *world) start(p *devcluster.Process) {
	w.Helper()
	if err := p.Start(); err != nil {
		w.Fatal(err)
	}
}

// kill is kill -9 of a process that must be running.
func (w *world) kill(p *devcluster.Process) {
	w.Helper()
	if p.Pid() == 0 {
		w.Fatalf("%s is dead before it is killed", p.Name)
	}
	p.Kill()
}

// supervisor is the supervisor of an agent.
func (w *world) supervisor(agent *devcluster.Process) (pid int) {
	w.Helper()
	w.until(agent.Name+" has a supervisor", func() bool {
		pids := supervisors(agent)
		if len(pids) == 1 {
			pid = pids[0]
		}
		return len(pids) == 1
	})
	return pid
}

// signal sends a signal to a process that is not a child of the test.
func (w *world) signal(pid int, sig syscall.Signal) {
	w.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		w.Fatalf("signal %v to %d: %v", sig, pid, err)
	}
	switch sig {
	case syscall.SIGKILL:
		w.until("the killed process is gone", func() bool { return !alive(pid) })
	case syscall.SIGSTOP:
		w.until("the process is stopped", func() bool { return processState(pid) == "T" })
	}
}
