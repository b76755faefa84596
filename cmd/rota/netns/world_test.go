package netns

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/rotatest"
	"rota/jepsen/cluster"
)

// patience is for what must happen but takes its time on a slow machine.
const patience = 60 * time.Second

const (
	lease  = 9 * time.Second
	margin = time.Second
)

// world is a cluster whose members are hosts of a network.
type world struct {
	*testing.T
	*cluster.Cluster
	dir string
	api *client.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t}
	var err error
	w.dir, err = os.MkdirTemp("", "netns-")
	w.must(err)
	w.Cluster, err = cluster.Start(t.Context(), cluster.Config{
		Dir: w.dir, Binary: rotatest.Binary(t), Servers: 3, Agents: 2, Lease: lease, Margin: margin,
	})
	w.must(err)
	t.Cleanup(w.stop)
	w.api, err = w.Client()
	w.must(err)
	t.Cleanup(w.api.Close)
	w.allUp()
	return w
}

// stop ends all processes.
func (w *world) stop() {
	for _, m := range w.Members() {
		if w.Failed() {
			w.Logf("end of the log of %s:\n%s", m.Name, m.LogTail(25))
		}
	}
	w.must(w.Stop())
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// soon is a context for what must happen in time.
func (w *world) soon() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	w.Cleanup(cancel)
	return ctx
}

// allUp waits until everybody is there.
func (w *world) allUp() {
	w.Helper()
	w.must(w.WaitHealthy(w.soon()))
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

// leader is the server that leads.
func (w *world) leader() *cluster.Member {
	w.Helper()
	leader, err := w.Leader(w.soon())
	w.must(err)
	return leader
}

// otherLeads checks that leadership has moved.
func (w *world) otherLeads(old *cluster.Member) {
	w.Helper()
	_, err := w.LeaderOtherThan(w.soon(), old)
	w.must(err)
}

// others are all members but these.
func (w *world) others(these ...*cluster.Member) (all []*cluster.Member) {
	for _, m := range w.Members() {
		if !slices.Contains(these, m) {
			all = append(all, m)
		}
	}
	return all
}

// node is what the cluster knows of an agent.
func (w *world) node(name string) *rotav1.Node {
	w.Helper()
	resp, err := w.api.Nodes.GetNode(w.Context(), &rotav1.GetNodeRequest{Name: name})
	w.must(err)
	return resp.Node
}
