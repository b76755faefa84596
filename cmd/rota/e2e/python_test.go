package e2e

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rota/agent/runtime/container/containertest"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/pki"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// TestPythonClient runs the tests of the Python client against a cluster whose leader is
// killed and comes back meanwhile.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	need.Tool(t, "python3")
	w := newWorld(t, patient, devcluster.Config{Servers: 3, Agents: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	tests := pythonTests(ctx, "test_cluster.py", w.cluster.Addrs()...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if out, err := tests.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		} else if strings.Contains(string(out), "skipped") {
			t.Errorf("tests are skipped though there is a cluster:\n%s", out)
		}
	}()
	w.until("it submits something", func() bool {
		resp, err := w.api.Actions.ListActions(ctx, &rotav1.ListActionsRequest{PageSize: 1})
		return err == nil && len(resp.Actions) > 0
	})
	leader := w.leader(nil)
	w.kill(leader)
	select {
	case <-done:
		t.Error("the tests had ended when the leader was killed")
	default:
	}
	w.leader(leader)
	w.start(leader)
	<-done
}

// TestPythonClientAlone runs the tests of the Python client that make servers of their
// own. Those of a cluster skip themselves.
func TestPythonClientAlone(t *testing.T) {
	t.Parallel()
	need.Tool(t, "python3")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if out, err := pythonTests(ctx, "test*.py").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestPythonSandboxes runs the tests of whole outputs, of many commands and of the adapters of
// frameworks, and every snippet of Python in the guide, the cookbook and the README.
func TestPythonSandboxes(t *testing.T) {
	t.Parallel()
	need.Tool(t, "python3", "bash", "git", "tar", "pytest")
	if out, err := exec.Command("pytest", "-p", "xdist", "--version").CombinedOutput(); err != nil {
		t.Logf("%s", out)
		need.Tool(t, "pytest-xdist")
	}
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1})
	for _, files := range []string{"test_many.py", "test_adapters.py", "test_documents.py"} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
		defer cancel()
		if out, err := pythonTests(ctx, files, w.cluster.Addrs()...).CombinedOutput(); err != nil || strings.Contains(string(out), "skipped") {
			t.Errorf("%s: %v\n%s", files, err, out)
		}
	}
}

// TestPythonSandboxesInContainers: adapters reach commands and files of containers, too.
func TestPythonSandboxesInContainers(t *testing.T) {
	t.Parallel()
	need.Containerd(t)
	need.Tool(t, "python3")
	daemon := containertest.Start(t)
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1, AgentArgs: []string{
		"--containerd", daemon.Address, "--rota-init", containertest.Init(t),
	}})
	addrs := w.cluster.Addrs()
	out, stderr, _, code := w.rota(addrs[0], "image", "import", containertest.Archive(t), "--name", "tools:1", "--containerd", daemon.Address)
	if code != 0 {
		t.Fatalf("the import: %s%s", out, stderr.text.String())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	tests := pythonTests(ctx, "test_containers.py", addrs...)
	tests.Env = append(tests.Env, "ROTA_TEST_IMAGE=tools:1")
	if out, err := tests.CombinedOutput(); err != nil || strings.Contains(string(out), "skipped") {
		t.Errorf("%v\n%s", err, out)
	}
	w.noSandboxes(daemon)
	dir := filepath.Join(w.cluster.Agents[0].Dir, "data", "runtime", "sandboxes")
	w.until("their folders are removed", func() bool { left, err := os.ReadDir(dir); return err == nil && len(left) == 0 })
}

// TestCookbookUsesE2B runs what the cookbook shows of the SDK of E2B, which prints what stands below it.
func TestCookbookUsesE2B(t *testing.T) {
	t.Parallel()
	dir := need.NodePackages(t, "testdata/e2b")
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "cookbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```js\n")
	code, rest, found := strings.Cut(rest, "```\n\n```text\n")
	if !found {
		t.Fatal("the cookbook shows no program of E2B with what it prints")
	}
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1, ServerArgs: []string{"--e2b"}})
	if err := os.WriteFile(filepath.Join(dir, "cookbook.mjs"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	program := exec.CommandContext(ctx, "node", "cookbook.mjs")
	program.Dir = dir
	url := "http://" + w.cluster.Servers[0].Addr
	program.Env = append(os.Environ(), "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url, "E2B_API_KEY=any")
	want, _, _ := strings.Cut(rest, "```")
	if out, err := program.CombinedOutput(); err != nil || string(out) != want {
		t.Errorf("%v: it printed %q instead of %q", err, out, want)
	}
}

// pythonTests runs the tests of the Python client in some files, against servers.
func pythonTests(ctx context.Context, files string, servers ...string) *exec.Cmd {
	tests := exec.CommandContext(ctx, "python3", "-B", "-W", "error", "-m", "unittest", "discover", "-v", "-s", "tests", "-t", ".", "-p", files)
	tests.Dir = filepath.Join("..", "..", "..", "api", "python")
	tests.Env = append(os.Environ(), "ROTA_SERVERS="+strings.Join(servers, " "))
	return tests
}

// TestPythonClientKnowsServersByTheirRole: as everybody else does.
func TestPythonClientKnowsServersByTheirRole(t *testing.T) {
	t.Parallel()
	need.Tool(t, "python3")
	dir := t.TempDir()
	if err := pki.NewCA(dir); err != nil {
		t.Fatal(err)
	}
	for name, role := range map[string]pki.Role{"server": pki.RoleServer, "agent": pki.RoleAgent, "client": pki.RoleClient} {
		if err := pki.Issue(dir, role, name); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"server": "{'x': 1}", "agent": "its certificate is not that of a server"} {
		config, err := pki.ServerConfig(pki.FilesIn(dir, name), pki.RoleClient)
		if err != nil {
			t.Fatal(err)
		}
		listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
		if err != nil {
			t.Fatal(err)
		}
		peer := &http.Server{ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"x": 1}`)
		})}
		go peer.Serve(listener)
		defer peer.Close()
		files := pki.FilesIn(dir, "client")
		ask := exec.CommandContext(t.Context(), "python3", "-B", "-c", `
import sys, rota
server, ca, cert, key = sys.argv[1:]
try:
    print(rota.Client(server, ca=ca, cert=cert, key=key).call("X/GetX"))
except rota.Error as err:
    print(err)
`, listener.Addr().String(), files.CA, files.Cert, files.Key)
		ask.Dir = filepath.Join("..", "..", "..", "api", "python")
		if out, err := ask.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("with the certificate of the %s: %v\n%s", name, err, out)
		}
	}
}
