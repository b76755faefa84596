package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rota/agent/runtime/container/containertest"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// unmount ends the mounts of an agent that does not run any more.
func unmount(agent *devcluster.Process) {
	homes, _ := filepath.Glob(filepath.Join(agent.Dir, "data", "runtime", "trajectories", "*"))
	for _, home := range homes {
		_ = unix.Unmount(home, unix.MNT_DETACH)
	}
}

// snapshotWorld is a cluster of one agent, and what calls the CLI.
func snapshotWorld(t *testing.T, args ...string) (*world, func(args ...string) string) {
	t.Helper()
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1, AgentArgs: args})
	return w, func(args ...string) string {
		t.Helper()
		out, stderr, _, code := w.rota(strings.Join(w.cluster.Addrs(), ","), args...)
		if out += stderr.text.String(); code != 0 {
			t.Fatalf("rota %s: exit code %d\n%s", strings.Join(args, " "), code, out)
		}
		return out
	}
}

// created is the ID in what a command that has made something says.
func created(out string) string { return strings.Fields(out)[1] }

// mounted are the mounts below a folder.
func mounted(t *testing.T, below string) (points []string) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], below) {
			points = append(points, fields[4])
		}
	}
	return points
}

// TestForksOfATrajectory takes a snapshot, lets two trajectories begin with it while agent and
// supervisor are killed, and sees that nothing is left of them in the end.
func TestForksOfATrajectory(t *testing.T) {
	t.Parallel()
	w, rota := snapshotWorld(t)
	agent := w.cluster.Agents[0]
	first := created(rota("trajectory", "open", "--memory", "16MiB", "--env", "WHO=me"))
	rota("run", "--trajectory", first, "--", "sh", "-c", "mkdir -p src/deep; echo 1 > src/deep/file; echo 1 > gone")
	w.kill(agent)
	w.start(agent)
	snapshot := created(rota("snapshot", "create", first, "--name", "base"))
	rota("run", "--trajectory", first, "--", "sh", "-c", "echo 2 > src/deep/file; rm gone")
	second := created(rota("trajectory", "open", "--memory", "16MiB", "--snapshot", snapshot))
	if out := rota("run", "--trajectory", second, "--", "sh", "-c", `cat src/deep/file gone; echo $WHO; mv src/deep here; echo 3 > here/file`); out != "1\n1\nme\n" {
		t.Errorf("the fork found %q", out)
	}
	third := created(rota("trajectory", "open", "--memory", "16MiB", "--snapshot", snapshot))
	if out := rota("file", "list", third+":"); !strings.Contains(out, "gone") || !strings.Contains(out, "src/") {
		t.Errorf("before its first action, the other fork has %q", out)
	}
	w.kill(agent)
	w.signal(w.supervisor(agent), syscall.SIGKILL)
	w.start(agent)
	for id, want := range map[string]string{first: "2\n", second: "3\n", third: "1\n"} {
		if out := rota("run", "--trajectory", id, "--", "sh", "-c", "cat src/deep/file 2>/dev/null || cat here/file"); out != want {
			t.Errorf("trajectory %s has %q, not %q", id, out, want)
		}
	}
	w.until("the size is known", func() bool { return !strings.Contains(rota("snapshot", "get", snapshot), " 0B") })
	if out := rota("snapshot", "list"); !strings.Contains(out, "base") || !strings.Contains(out, "ready") {
		t.Errorf("the list has %q", out)
	}
	rota("snapshot", "delete", snapshot)
	if _, _, _, code := w.rota(w.cluster.Addrs()[0], "trajectory", "open", "--snapshot", snapshot); code == 0 {
		t.Error("a trajectory begins with what was deleted")
	}
	if out := rota("run", "--trajectory", third, "--", "cat", "gone"); out != "1\n" {
		t.Errorf("after the end of the snapshot the fork has %q", out)
	}
	w.allClosed(agent, rota, first, second, third)
	w.nothingLeft(agent)
}

// nothingLeft waits until an agent has no mount, no layer and no record of a snapshot.
func (w *world) nothingLeft(agent *devcluster.Process) {
	w.Helper()
	w.until("the mounts are gone", func() bool { return len(mounted(w.T, agent.Dir)) == 0 })
	w.until("the layers and the records are gone", func() bool {
		left, err := filepath.Glob(filepath.Join(agent.Dir, "data", "runtime", "layers", "*", "*"))
		return err == nil && len(left) == 0
	})
}

// TestKillsDuringForks kills the agent while it takes snapshots and while trajectories begin with
// them: its next start completes them, and nothing is left over in the end.
func TestKillsDuringForks(t *testing.T) {
	t.Parallel()
	w, rota := snapshotWorld(t)
	w.killedDuringForks(rota)
}

// TestKillsDuringForksOfAContainer does the same with a container.
func TestKillsDuringForksOfAContainer(t *testing.T) {
	t.Parallel()
	need.Containerd(t)
	daemon := containertest.Start(t)
	w, rota := snapshotWorld(t, "--containerd", daemon.Address, "--rota-init", containertest.Init(t))
	rota("image", "import", containertest.Archive(t), "--name", "tools:1", "--containerd", daemon.Address)
	w.killedDuringForks(rota, "--image", "tools:1", "--user", "worker")
	w.noSandboxes(daemon)
}

func (w *world) killedDuringForks(rota func(...string) string, container ...string) {
	w.Helper()
	agent, path := w.cluster.Agents[0], "note"
	if len(container) > 0 {
		path = "/tmp/note"
	}
	killed := func(after time.Duration) {
		time.Sleep(after) // the moment of the kill
		w.kill(agent)
		w.start(agent)
	}
	first := created(rota(append([]string{"trajectory", "open", "--memory", "16MiB"}, container...)...))
	opened := []string{first}
	for round := range 4 {
		note := strings.Repeat("x", round+1) + "\n"
		rota("run", "--trajectory", first, "--", "sh", "-c", "echo "+strings.TrimSpace(note)+" > "+path)
		moment := time.Duration(round*round) * 4 * time.Millisecond
		snapshot := created(rota("snapshot", "create", first, "--no-wait"))
		killed(moment)
		w.until("the snapshot is ready", func() bool { return strings.Contains(rota("snapshot", "get", snapshot), "ready") })
		rota("run", "--trajectory", first, "--", "sh", "-c", "echo other > "+path)
		fork := created(rota("trajectory", "open", "--memory", "16MiB", "--snapshot", snapshot))
		opened = append(opened, fork)
		killed(moment)
		if out := rota("run", "--trajectory", fork, "--", "cat", path); out != note {
			w.Errorf("killed after %v, the fork has %q, not %q", moment, out, note)
		}
		if out := rota("run", "--trajectory", first, "--", "cat", path); out != "other\n" {
			w.Errorf("killed after %v, the first has %q", moment, out)
		}
		rota("snapshot", "delete", snapshot)
	}
	w.until("no row is left", func() bool { return !strings.Contains(rota("snapshot", "list"), "removing") })
	w.allClosed(agent, rota, opened...)
	w.nothingLeft(agent)
}

// TestForksOfAContainer does the same with the root file system of a container.
func TestForksOfAContainer(t *testing.T) {
	t.Parallel()
	need.Containerd(t)
	daemon := containertest.Start(t)
	w, rota := snapshotWorld(t, "--containerd", daemon.Address, "--rota-init", containertest.Init(t))
	agent := w.cluster.Agents[0]
	rota("image", "import", containertest.Archive(t), "--name", "tools:1", "--containerd", daemon.Address)
	first := created(rota("trajectory", "open", "--memory", "64MiB", "--image", "tools:1", "--user", "worker"))
	rota("run", "--trajectory", first, "--", "sh", "-c", "echo 1 > /tmp/note; echo 1 > /workspace/note")
	snapshot := created(rota("snapshot", "create", first))
	if out := rota("run", "--trajectory", first, "--", "sh", "-c", "cat /tmp/note /workspace/note; echo 2 > /tmp/note; echo 2 > /workspace/note"); out != "1\n1\n" {
		t.Errorf("after its snapshot the first has %q", out)
	}
	second := created(rota("trajectory", "open", "--memory", "64MiB", "--snapshot", snapshot))
	if out := rota("run", "--trajectory", second, "--", "sh", "-c", "id -u; cat /tmp/note /workspace/note; echo 3 > /tmp/note"); out != "1000\n1\n1\n" {
		t.Errorf("the fork has %q", out)
	}
	again := created(rota("snapshot", "create", second))
	rota("snapshot", "delete", snapshot)
	w.kill(agent)
	w.start(agent)
	third := created(rota("trajectory", "open", "--memory", "64MiB", "--snapshot", again))
	for id, want := range map[string]string{first: "2\n2\n", second: "3\n1\n", third: "3\n1\n"} {
		if out := rota("run", "--trajectory", id, "--", "sh", "-c", "cat /tmp/note /workspace/note"); out != want {
			t.Errorf("trajectory %s has %q, not %q", id, out, want)
		}
	}
	rota("snapshot", "delete", again)
	w.allClosed(agent, rota, first, second, third)
	w.noSandboxes(daemon)
	w.nothingLeft(agent)
}

// allClosed closes trajectories, and waits until their directories are gone, as closed does.
func (w *world) allClosed(agent *devcluster.Process, rota func(...string) string, ids ...string) {
	w.Helper()
	for _, id := range ids {
		rota("trajectory", "close", id)
	}
	homes := filepath.Join(agent.Dir, "data", "runtime", "trajectories", "trajectory-*")
	w.restartedUntil(agent, "the directories of the trajectories are gone", func() bool {
		left, err := filepath.Glob(homes)
		return err == nil && len(left) == 0
	})
}
