package netns

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/httpx"
	"rota/api/pki"
	"rota/cmd/internal/devcluster"
)

// patience is for what must happen but takes its time on a slow machine.
const patience = 60 * time.Second

const (
	lease  = 6 * time.Second
	margin = time.Second
)

// world is a cluster whose members are hosts of a network.
type world struct {
	*network
	dir     string
	servers []*member
	agents  []*member
	api     *client.Client
}

// member is a host and the process on it.
type member struct {
	*host
	*devcluster.Process
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{network: newNetwork(t), dir: openDir(t)}
	w.keys()
	for _, name := range []string{"server-1", "server-2", "server-3"} {
		w.servers = append(w.servers, &member{host: w.plug(name)})
	}
	for _, name := range []string{"node-1", "node-2"} {
		w.agents = append(w.agents, &member{host: w.plug(name)})
	}
	var bootstrap, gossip []string
	for i, s := range w.servers {
		bootstrap = append(bootstrap, "server-"+strconv.Itoa(i+1)+"="+s.ip+":7400")
		gossip = append(gossip, s.ip+":7401")
	}
	for i, s := range w.servers {
		name := "server-" + strconv.Itoa(i+1)
		w.define(s, name, "7400", "server", "--id", name, "--bootstrap", strings.Join(bootstrap, ","),
			"--gossip", s.ip+":7401", "--join", strings.Join(gossip, ","),
			"--lease", lease.String(), "--lease-margin", margin.String())
	}
	for i, a := range w.agents {
		name := "node-" + strconv.Itoa(i+1)
		w.define(a, name, "7410", "agent", "--name", name, "--gossip", a.ip+":7411", "--join", strings.Join(gossip, ","),
			"--cores", "2", "--oversubscribe", "--memory", "256MiB", "--allow-process", "--kill-on-exit",
			"--cgroup-parent", prefix()+"agent")
	}
	t.Cleanup(w.stop)
	for _, m := range append(w.servers[:3:3], w.agents...) {
		w.start(m)
	}
	w.connect()
	return w
}

// openDir is a folder that the user of the actions can reach.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", prefix())
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// keys makes what TLS and gossip need beyond loopback, as an operator would.
func (w *world) keys() {
	w.Helper()
	w.rota("tls", "init", "--dir", w.pki())
	for name, role := range map[string]string{
		"server-1": "server", "server-2": "server", "server-3": "server",
		"node-1": "agent", "node-2": "agent", "test": "client",
	} {
		w.rota("tls", "issue", role, name, "--dir", w.pki())
	}
	key := make([]byte, 32)
	rand.Read(key)
	if err := os.WriteFile(w.gossipKey(), []byte(base64.StdEncoding.EncodeToString(key)), 0o600); err != nil {
		w.Fatal(err)
	}
}

func (w *world) pki() string { return filepath.Join(w.dir, "pki") }

func (w *world) gossipKey() string { return filepath.Join(w.dir, "gossip.key") }

// rota runs a command of the CLI.
func (w *world) rota(args ...string) {
	w.Helper()
	if out, err := exec.Command(binary, args...).CombinedOutput(); err != nil {
		w.Fatalf("rota %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// define says what process runs on a host.
func (w *world) define(m *member, name, port string, args ...string) {
	w.Helper()
	self, err := os.Executable()
	if err != nil {
		w.Fatal(err)
	}
	addr, dir, files := m.ip+":"+port, filepath.Join(w.dir, name), pki.FilesIn(w.pki(), name)
	args = append(args, "--data-dir", filepath.Join(dir, "data"), "--listen", addr, "--gossip-key", w.gossipKey(),
		"--ca", files.CA, "--cert", files.Cert, "--key", files.Key)
	m.Process = devcluster.NewProcess(name, addr, dir, self, m.command(binary, args...)...)
}

func (w *world) start(m *member) {
	w.Helper()
	if err := m.Start(); err != nil {
		w.Fatal(err)
	}
}

// stop ends all processes, agents first, so that what they run ends with them.
func (w *world) stop() {
	for _, m := range append(w.agents[:len(w.agents):len(w.agents)], w.servers...) {
		if m.Process == nil {
			continue
		}
		if w.Failed() {
			raw, _ := os.ReadFile(m.LogPath())
			lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
			w.Logf("end of the log of %s:\n%s", m.Name, strings.Join(lines[max(0, len(lines)-25):], "\n"))
		}
		m.Stop(10 * time.Second)
	}
}

// connect makes a client and waits until everybody is there.
func (w *world) connect() {
	w.Helper()
	w.api = w.client(w.servers...)
	w.allUp()
}

// client talks to some servers.
func (w *world) client(servers ...*member) *client.Client {
	w.Helper()
	conf, err := pki.ClientConfig(pki.FilesIn(w.pki(), "test"), pki.RoleServer)
	if err != nil {
		w.Fatal(err)
	}
	over := httpx.NewClient(conf)
	over.Transport.(*http.Transport).DialContext = w.dial
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr)
	}
	api, err := client.New(client.Config{Addrs: addrs, TLS: conf, HTTP: over})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(api.Close)
	return api
}

// allUp waits until there is a leader and every node is up.
func (w *world) allUp() {
	w.Helper()
	w.until("all nodes are up", func() bool {
		ctx, cancel := context.WithTimeout(w.Context(), 2*time.Second)
		defer cancel()
		status, err := w.api.Operator.GetStatus(ctx, &rotav1.GetStatusRequest{})
		return err == nil && status.LeaderId != "" && int(status.NodesUp) == len(w.agents)
	})
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
func (w *world) leader() *member {
	w.Helper()
	status, err := w.api.Operator.GetStatus(w.Context(), &rotav1.GetStatusRequest{})
	if err != nil {
		w.Fatal(err)
	}
	for _, s := range w.servers {
		if s.Name == status.LeaderId {
			return s
		}
	}
	w.Fatalf("no server is called %q", status.LeaderId)
	return nil
}

// otherLeads checks that leadership has moved.
func (w *world) otherLeads(old *member) {
	w.Helper()
	for _, s := range w.servers {
		if s == old {
			continue
		}
		ctx, cancel := context.WithTimeout(w.Context(), 5*time.Second)
		status, err := w.client(s).Operator.GetStatus(ctx, &rotav1.GetStatusRequest{})
		cancel()
		if err == nil && status.LeaderId == s.Name {
			return
		}
	}
	w.Errorf("no server but %s, which is gone, says that it leads", old.Name)
}

// node is what the cluster knows of an agent.
func (w *world) node(name string) *rotav1.Node {
	w.Helper()
	resp, err := w.api.Nodes.GetNode(w.Context(), &rotav1.GetNodeRequest{Name: name})
	if err != nil {
		w.Fatal(err)
	}
	return resp.Node
}
