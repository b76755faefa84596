package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"time"

	"google.golang.org/protobuf/proto"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
)

// ClusterOptions say what cluster to measure.
type ClusterOptions struct {
	// Binary is the rota to run; this process's own if empty.
	Binary string
	// Dir for the data; a temporary folder of its own if empty. It decides which
	// disk is measured.
	Dir string
	// SimulatedNodes, if not 0, stand in for the agent: nodes that exist only in
	// this process and end whatever they are given at once, without running it.
	SimulatedNodes int
	// AgentArgs are further flags of the agent.
	AgentArgs []string
	// ServerArgs are further flags of the servers.
	ServerArgs []string
	// TLS of clients, if the flags say that servers and agents have it.
	TLS *tls.Config
}

const readyTimeout = 30 * time.Second

// held is a cluster of three servers in which submitted actions queue up: all
// cores of its agent are held by actions that sleep. With simulated nodes they
// do not queue up but end.
type held struct {
	cluster *devcluster.Cluster
	api     *client.Client
	leader  string // address
	cleanup []func()
}

func (h *held) stop() {
	for i := len(h.cleanup) - 1; i >= 0; i-- {
		h.cleanup[i]()
	}
	h.cleanup = nil
}

func startHeld(ctx context.Context, o ClusterOptions) (*held, error) {
	agents := 1
	if o.SimulatedNodes > 0 {
		agents = 0
	}
	h, err := startCluster(ctx, o, agents)
	if err != nil {
		return nil, err
	}
	if o.SimulatedNodes > 0 {
		err = h.simulate(ctx, o.SimulatedNodes)
	} else {
		err = h.occupy(ctx)
	}
	if err != nil {
		h.stop()
		return nil, err
	}
	return h, nil
}

// startCluster starts three servers and agents and waits for them.
func startCluster(ctx context.Context, o ClusterOptions, agents int) (*held, error) {
	dir, err := os.MkdirTemp(o.Dir, "rota-bench-")
	if err != nil {
		return nil, err
	}
	h := &held{cleanup: []func(){func() { os.RemoveAll(dir) }}}
	h.cluster, err = devcluster.Start(devcluster.Config{
		Binary: o.Binary, Dir: dir, Servers: 3, Agents: agents,
		// A sustained measurement queues more than the limits of a normal cluster.
		ServerArgs: append([]string{"--queue-actions-max", "20000000", "--queue-bytes-max", "16GiB"}, o.ServerArgs...),
		AgentArgs:  o.AgentArgs, TLS: o.TLS,
	})
	if err != nil {
		h.stop()
		return nil, err
	}
	h.cleanup = append(h.cleanup, h.cluster.Stop)
	ready, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := h.cluster.WaitReady(ready); err != nil {
		h.stop()
		return nil, err
	}
	if h.api, err = h.cluster.Dial(); err != nil {
		h.stop()
		return nil, err
	}
	h.cleanup = append(h.cleanup, h.api.Close)
	leader, err := h.cluster.Leader(ctx, h.api)
	if err != nil {
		h.stop()
		return nil, err
	}
	h.leader = leader.Addr
	return h, nil
}

// occupy takes all cores of the agent, so that everything else stays queued.
func (h *held) occupy(ctx context.Context) error {
	nodes, err := h.api.Nodes.ListNodes(ctx, &rotav1.ListNodesRequest{})
	if err != nil {
		return err
	}
	for _, node := range nodes.Nodes {
		id, err := h.api.Submit(ctx, &rotav1.ActionSpec{
			Name:      "occupy",
			Command:   &rotav1.Command{Argv: []string{"sleep", "86400"}},
			Resources: &rotav1.Resources{Cores: proto.Uint32(uint32(len(node.FreeCpus)))},
		})
		if err != nil {
			return err
		}
		if err := h.waitRunning(ctx, id[0]); err != nil {
			return err
		}
	}
	return nil
}

func (h *held) waitRunning(ctx context.Context, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		action, err := h.api.Get(ctx, id)
		if err != nil {
			return err
		}
		if action.State == rotav1.ActionState_ACTION_STATE_RUNNING {
			return nil
		}
		if client.Final(action.State) {
			return fmt.Errorf("the action that holds the agent's cores ended: %v", action.Result)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
