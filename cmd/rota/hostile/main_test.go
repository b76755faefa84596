package hostile

import (
	"context"
	"os"
	"testing"
	"time"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/pki"
	"rota/cmd/internal/devcluster"
	"rota/cmd/internal/rotatest"
)

func TestMain(m *testing.M) { os.Exit(rotatest.Main(m)) }

// patience is for what must happen but takes its time on a slow machine.
const patience = 45 * time.Second

// startCluster starts a server and an agent and returns when both are up. The
// client reaches them with the given certificate, if any.
func startCluster(t *testing.T, config devcluster.Config, files pki.Files) (*devcluster.Cluster, *client.Client) {
	t.Helper()
	config.Binary, config.Dir, config.Servers, config.Agents = rotatest.Binary(t), t.TempDir(), 1, 1
	config.AgentArgs = append(config.AgentArgs, "--cores", "2", "--oversubscribe")
	c, err := devcluster.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Stop()
		for _, p := range []*devcluster.Process{c.Servers[0], c.Agents[0]} {
			if raw, err := os.ReadFile(p.LogPath()); t.Failed() && err == nil {
				t.Logf("log of %s:\n%s", p.Name, raw[max(0, len(raw)-4000):])
			}
		}
	})
	cfg := client.Config{Addrs: c.Addrs()}
	if files.Enabled() {
		if cfg.TLS, err = pki.ClientConfig(files, pki.RoleServer); err != nil {
			t.Fatal(err)
		}
	}
	api, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	until(t, "the node is up", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		status, err := api.Operator.GetStatus(ctx, &rotav1.GetStatusRequest{})
		return err == nil && status.NodesUp == 1
	})
	return c, api
}

// until repeats a check until it holds.
func until(t *testing.T, what string, check func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !check(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}
