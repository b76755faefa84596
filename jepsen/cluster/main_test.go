package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/internal/need"
)

// patience is for what must happen but takes its time on a slow machine.
const patience = 60 * time.Second

// helperVariable makes the test binary one of the programs of helpers instead.
const helperVariable = "CLUSTER_TEST_HELPER"

func TestMain(m *testing.M) {
	if helper := helpers[os.Getenv(helperVariable)]; helper != nil {
		os.Exit(helper())
	}
	if err := Isolate(); err != nil && !errors.Is(err, ErrCannotIsolate) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// isolated skips a test where there are no namespaces.
func isolated(t *testing.T) {
	t.Helper()
	need.Netns(t)
	need.Tool(t, "ip", "nft")
	if run == "" {
		t.Fatal("this machine has all that is needed, and yet the tests are not isolated")
	}
}

// world is a cluster of a test.
type world struct {
	*testing.T
	*Cluster
	ctx context.Context
	api *client.Client
}

// The builds of rota that are tested, each built once.
var (
	production = sync.OnceValues(func() (string, error) { return build(BuildOptions{}) })
	withFaults = sync.OnceValues(func() (string, error) {
		return build(BuildOptions{Name: "rota-faults", Tags: []string{"faults"}})
	})
	otherVersion = sync.OnceValues(func() (string, error) {
		return build(BuildOptions{Name: "rota-other", LDFlags: "-X rota/cmd/internal/cli.Version=" + otherVersionName})
	})
)

const otherVersionName = "0.0.0-other"

// build builds into the folder of the run, which goes with it.
func build(o BuildOptions) (string, error) { return Build(context.Background(), os.TempDir(), o) }

// newWorld starts a cluster and waits until it is healthy.
func newWorld(t *testing.T, config Config) *world {
	t.Helper()
	isolated(t)
	dir, err := os.MkdirTemp("", "cluster-")
	if err != nil {
		t.Fatal(err)
	}
	config.Dir = dir
	build := production
	if config.Faults {
		build = withFaults
	}
	if config.Binary, err = build(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	t.Cleanup(cancel)
	c, err := Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, Cluster: c, ctx: ctx}
	t.Cleanup(w.clean)
	w.healthy()
	if w.api, err = c.Client(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.api.Close)
	return w
}

func (w *world) clean() {
	if w.Failed() {
		for _, m := range w.Members() {
			w.Logf("end of the log of %s:\n%s", m.Name, m.LogTail(20))
		}
	}
	w.must(w.Cluster.Stop())
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) healthy() {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	w.must(w.WaitHealthy(ctx))
}

// leads returns the leader.
func (w *world) leads() *Member {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	leader, err := w.Leader(ctx)
	w.must(err)
	return leader
}

// submit runs a shell script as an action.
func (w *world) submit(script string) uint64 {
	w.Helper()
	ids, err := w.api.Submit(w.ctx, &rotav1.ActionSpec{Command: &rotav1.Command{Argv: []string{"sh", "-c", script}}})
	w.must(err)
	return ids[0]
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
