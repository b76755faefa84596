package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/cluster"
)

// pauseLeader stops the leader until another one leads, and for longer than
// every lease. It then goes on as if nothing had happened.
func pauseLeader(ctx context.Context, w *World) (*Injection, error) {
	leader, err := w.Cluster.Leader(ctx)
	if err != nil {
		return nil, err
	}
	return stop(leader.Name, leader.Pid(), func(ctx context.Context) (string, error) {
		next, err := w.Cluster.LeaderOtherThan(ctx, leader)
		if err != nil {
			return "", err
		}
		return ", and " + next.Name + " led", nil
	})
}

// pauseServer stops any server.
func pauseServer(_ context.Context, w *World) (*Injection, error) {
	server := pick(w.Rand, w.Cluster.Servers)
	return stop(server.Name, server.Pid(), nil)
}

// pauseAgent stops an agent, but neither its supervisor nor what it runs, until
// the cluster takes it for lost.
func pauseAgent(_ context.Context, w *World) (*Injection, error) {
	agent := pick(w.Rand, w.Cluster.Agents)
	return stop(agent.Name, agent.Pid(), func(ctx context.Context) (string, error) {
		return lost(ctx, w, agent)
	})
}

// pauseSupervisor stops the supervisor of an agent.
func pauseSupervisor(ctx context.Context, w *World) (*Injection, error) {
	agent := pick(w.Rand, w.Cluster.Agents)
	pid, err := supervisorOf(ctx, agent)
	if err != nil {
		return nil, err
	}
	return stop(agent.Name, pid, nil)
}

// pauseChildren stops only what an agent runs, by the freezer of its cgroups
// where there is one.
func pauseChildren(ctx context.Context, w *World) (*Injection, error) {
	var frozen *cluster.Freeze
	var agent *cluster.Member
	var err error
	until(ctx, comesBack, func() bool {
		agent = pick(w.Rand, w.Cluster.Agents)
		frozen, err = agent.FreezeAttempts()
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	return &Injection{Target: []string{agent.Name}, End: func(context.Context) (string, error) {
		return fmt.Sprintf("%d processes stood still, by %s", len(frozen.Processes), frozen.How), frozen.Thaw()
	}}, nil
}

// stop stops a process until the end of the fault. Before it goes on, more may
// be observed that proves the pause.
func stop(name string, pid int, observe func(context.Context) (string, error)) (*Injection, error) {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("stop process %d of %s: %w", pid, name, err)
	}
	return &Injection{Target: []string{name}, End: func(ctx context.Context) (string, error) {
		if !stopped(pid) {
			return "", fmt.Errorf("process %d of %s did not stand still", pid, name)
		}
		more, err := "", error(nil)
		if observe != nil {
			more, err = observe(ctx)
		}
		err = errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
		return fmt.Sprintf("process %d stood still", pid) + more, err
	}}, nil
}

// stopped reports whether a process is stopped by a signal.
func stopped(pid int) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, after, found := bytes.Cut(raw, []byte(") "))
	return err == nil && found && bytes.HasPrefix(after, []byte("T"))
}

// lostMax is how long the cluster may take to notice, beyond the lease.
const lostMax = 10 * time.Second

// lost waits until the cluster takes a node for lost.
func lost(ctx context.Context, w *World, agent *cluster.Member) (string, error) {
	api, err := w.Cluster.Client()
	if err != nil {
		return "", err
	}
	defer api.Close()
	down := func() bool {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		var resp *rotav1.GetNodeResponse
		resp, err = api.Nodes.GetNode(ctx, &rotav1.GetNodeRequest{Name: agent.Name})
		return err == nil && resp.Node.State == rotav1.NodeState_NODE_STATE_DOWN
	}
	if !until(ctx, lostMax, down) {
		return "", errors.Join(fmt.Errorf("the cluster did not take %s for lost", agent.Name), err)
	}
	return ", and " + agent.Name + " was taken for lost", nil
}
