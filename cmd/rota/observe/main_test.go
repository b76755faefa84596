package observe

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/cmd/internal/rotatest"
)

// patience is for what must happen but takes its time on a slow machine.
const patience = 60 * time.Second

func TestMain(m *testing.M) { os.Exit(rotatest.Main(m)) }

// world is a cluster of real processes, whose agent serves metrics.
type world struct {
	*testing.T
	dir     string
	cluster *devcluster.Cluster
	api     *client.Client
	agent   string // address of its metrics
}

func newWorld(t *testing.T, servers int, serverArgs ...string) *world {
	t.Helper()
	w := &world{T: t, dir: t.ArtifactDir(), agent: freeAddr(t)}
	var err error
	w.cluster, err = devcluster.Start(devcluster.Config{
		Binary: rotatest.Binary(t), Dir: w.dir, Servers: servers, Agents: 1,
		ServerArgs: append([]string{"--log-format", "json"}, serverArgs...),
		AgentArgs:  []string{"--cores", "4", "--oversubscribe", "--log-format", "json", "--metrics", w.agent},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.cluster.Stop)
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

// freeAddr is an address that no process listens at now.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// until repeats a check until it holds.
func (w *world) until(what string, check func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !check(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// work runs actions to their ends: some that succeed and one that fails.
func (w *world) work() {
	w.Helper()
	for _, command := range []string{"true", "exit 3", "echo out", "true"} {
		ids, err := w.api.Submit(w.Context(), &rotav1.ActionSpec{
			Command: &rotav1.Command{Argv: []string{"sh", "-c", command}, Env: map[string]string{"SECRET_OF_AN_ACTION": "hunter2"}},
		})
		if err != nil {
			w.Fatal(err)
		}
		w.until(fmt.Sprint("action ", ids[0], " has ended"), func() bool {
			resp, err := w.api.Actions.GetAction(w.Context(), &rotav1.GetActionRequest{Id: ids[0]})
			return err == nil && resp.Action.GetResult() != nil
		})
	}
}

// get reads from a process by HTTP.
func (w *world) get(addr, path string) (status int, text string) {
	w.Helper()
	resp, err := http.Get("http://" + addr + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// rota runs a command of the command line.
func (w *world) rota(args ...string) (out string, err error) {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), rotatest.Binary(w), args...)
	cmd.Env = append(os.Environ(), "ROTA_ADDR="+strings.Join(w.cluster.Addrs(), ","))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr.String())
	}
	return string(text), err
}
