package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rota/agent/runtime/container"
	"rota/agent/runtime/container/containertest"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// noSandboxes waits until rota has no container in a containerd. A container that is left when its
// containerd ends goes on.
func (w *world) noSandboxes(daemon *containertest.Daemon) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	c, err := container.Connect(ctx, daemon.Address)
	if err != nil {
		w.Fatal(err)
	}
	defer c.Close()
	w.until("the sandboxes are gone", func() bool { return w.sandboxes(c) == 0 })
}

// sandboxes counts the containers that rota has in a containerd.
func (w *world) sandboxes(c *container.Containerd) int {
	w.Helper()
	ids, err := c.Sandboxes(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return len(ids)
}

// TestATrajectoryInAContainer imports an image, opens a trajectory in it, runs commands that find
// the files of earlier ones while agent and supervisor are killed, and closes it.
func TestATrajectoryInAContainer(t *testing.T) {
	t.Parallel()
	need.Containerd(t)
	daemon := containertest.Start(t)
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1, AgentArgs: []string{
		"--containerd", daemon.Address, "--rota-init", containertest.Init(t),
	}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := container.Connect(ctx, daemon.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	rota := func(args ...string) string {
		t.Helper()
		out, stderr, _, code := w.rota(strings.Join(w.cluster.Addrs(), ","), args...)
		if out += stderr.text.String(); code != 0 {
			t.Fatalf("rota %s: exit code %d\n%s", strings.Join(args, " "), code, out)
		}
		return out
	}
	if out := rota("image", "import", containertest.Archive(t), "--name", "tools:1", "--containerd", daemon.Address); !strings.Contains(out, "tools:1") {
		t.Errorf("imported %q", out)
	}
	id := strings.Fields(rota("trajectory", "open", "--memory", "64MiB", "--image", "tools:1", "--user", "worker"))[1]
	given := filepath.Join(t.TempDir(), "given")
	if err := os.WriteFile(given, []byte("from outside\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	rota("cp", given, id+":")
	if out := rota("run", "--trajectory", id, "--", "sh", "-c", "id -u; pwd; cat /workspace/given; echo 1 >/tmp/note; echo 2 >/workspace/note"); out != "1000\n/work\nfrom outside\n" {
		t.Errorf("the first command wrote %q", out)
	}
	busy := strings.TrimSpace(rota("run", "--detach", "--trajectory", id, "--", "sh", "-c", "while :; do :; done"))
	w.until("it says what an action uses", func() bool {
		used := strings.Fields(strings.Join(strings.Split(rota("trajectory", "usage", id, "--interval", "200ms"), "\n")[1:], " "))
		return len(used) >= 7 && used[0] == busy && used[2] != "0.00" && used[4] != "0"
	})
	rota("action", "cancel", busy)
	agent := w.cluster.Agents[0]
	w.kill(agent)
	w.start(agent)
	w.signal(w.supervisor(agent), syscall.SIGKILL)
	if out := rota("exec", id, "--", "sh", "-c", "cat /tmp/note /workspace/note"); out != "1\n2\n" {
		t.Errorf("the second command found %q", out)
	}
	back := filepath.Join(t.TempDir(), "note")
	rota("cp", id+":note", back)
	if text, err := os.ReadFile(back); err != nil || string(text) != "2\n" {
		t.Errorf("copied back: %q, %v", text, err)
	}
	if out := rota("run", "--", "sh", "-c", "test -e /workspace/note || echo outside"); out != "outside\n" {
		t.Errorf("a command of no trajectory: %q", out)
	}
	if n := w.sandboxes(c); n != 1 {
		t.Errorf("%d sandboxes", n)
	}
	rota("trajectory", "close", id)
	w.until("the sandbox is removed", func() bool { return w.sandboxes(c) == 0 })
	dir := filepath.Join(agent.Dir, "data", "runtime", "sandboxes")
	w.until("its folder is removed", func() bool { left, err := os.ReadDir(dir); return err == nil && len(left) == 0 })
}

// TestASandboxIsOpenBeforeItsFirstAction opens trajectories and submits nothing. Their sandboxes open, in an
// image that the node has to pull, and are gone after the trajectories have been closed.
func TestASandboxIsOpenBeforeItsFirstAction(t *testing.T) {
	t.Parallel()
	need.Containerd(t)
	daemon, r := containertest.Start(t), containertest.NewRegistry(t)
	image := r.Push("team/tools", "1", containertest.Layer(t))
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1, AgentArgs: []string{
		"--containerd", daemon.Address, "--rota-init", containertest.Init(t), "--pull", r.Host, "--registry-ca", r.CA,
	}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := container.Connect(ctx, daemon.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	rota := func(args ...string) string {
		t.Helper()
		out, stderr, _, code := w.rota(strings.Join(w.cluster.Addrs(), ","), args...)
		if out += stderr.text.String(); code != 0 {
			t.Fatalf("rota %s: exit code %d\n%s", strings.Join(args, " "), code, out)
		}
		return out
	}
	open := func() string {
		return strings.Fields(rota("trajectory", "open", "--memory", "64MiB", "--image", image))[1]
	}
	dir := filepath.Join(w.cluster.Agents[0].Dir, "data", "runtime", "sandboxes")
	ids := []string{open(), open()}
	recorded := func(id string) os.FileInfo {
		st, err := os.Stat(filepath.Join(dir, id, "sandbox.json"))
		if err != nil {
			return nil
		}
		return st
	}
	w.until("the sandboxes are open", func() bool { return recorded(ids[0]) != nil && recorded(ids[1]) != nil })
	if n, actions := w.sandboxes(c), rota("action", "list", "-o", "json"); n != 2 || !strings.Contains(actions, `"actions": []`) {
		t.Errorf("%d sandboxes, and the actions %s", n, actions)
	}
	opened := recorded(ids[1]).ModTime()
	if out := rota("run", "--trajectory", ids[1], "--", "pwd"); out != "/work\n" || !recorded(ids[1]).ModTime().Equal(opened) {
		t.Errorf("the first action wrote %q; its sandbox was made at %v, and had been at %v", out, recorded(ids[1]).ModTime(), opened)
	}
	rota("trajectory", "close", ids[0])
	rota("trajectory", "close", ids[1])
	w.until("the sandboxes are removed", func() bool { return w.sandboxes(c) == 0 })
	w.until("their folders are removed", func() bool { left, err := os.ReadDir(dir); return err == nil && len(left) == 0 })
}

// TestATrajectoryInAPulledImage runs a command in an image that only a registry has, and pulls its next
// version with the command for operators.
func TestATrajectoryInAPulledImage(t *testing.T) {
	t.Parallel()
	need.Containerd(t)
	daemon, r := containertest.Start(t), containertest.NewRegistry(t)
	image := r.Push("team/tools", "1", containertest.Layer(t))
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1, AgentArgs: []string{
		"--containerd", daemon.Address, "--rota-init", containertest.Init(t), "--pull", r.Host, "--registry-ca", r.CA,
	}})
	rota := func(args ...string) (string, int) {
		t.Helper()
		out, stderr, _, code := w.rota(strings.Join(w.cluster.Addrs(), ","), args...)
		return out + stderr.text.String(), code
	}
	run := func(image string) (string, int) {
		t.Helper()
		out, code := rota("trajectory", "open", "--memory", "64MiB", "--image", image)
		if code != 0 {
			t.Fatal(out)
		}
		id := strings.Fields(out)[1]
		defer rota("trajectory", "close", id)
		return rota("run", "--trajectory", id, "--", "sh", "-c", "cat /next || echo first")
	}
	if out, code := run(image); code != 0 || !strings.Contains(out, "first\n") {
		t.Errorf("in the pulled image: %d, %q", code, out)
	}
	if out, code := run("quay.example.com/tools:1"); code == 0 || !strings.Contains(out, "--pull quay.example.com") {
		t.Errorf("in an image of another registry: %d, %q", code, out)
	}
	if out, code := rota("image", "pull", r.Host+"/team/nothing:1", "--registry-ca", r.CA, "--containerd", daemon.Address); code == 0 || !strings.Contains(out, "not in the registry") {
		t.Errorf("an image that is not there: %d, %q", code, out)
	}
	r.Push("team/tools", "2", containertest.FileLayer(t, "next", []byte("second\n")))
	if out, code := rota("image", "pull", r.Host+"/team/tools:2", "--registry-ca", r.CA, "--containerd", daemon.Address); code != 0 || out != r.Host+"/team/tools:2\n" {
		t.Errorf("pulled by an operator: %d, %q", code, out)
	}
	if out, code := rota("image", "list", "--containerd", daemon.Address); code != 0 || strings.Count(out, "team/tools:") != 2 {
		t.Errorf("the node has: %d, %q", code, out)
	}
	w.noSandboxes(daemon)
}
