package e2e

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
)

// TestFilesOfATrajectory copies a tree to a trajectory, has a command work on it, and copies what
// it made back, while agent and supervisor are killed. Then the trajectory is closed, and its
// directory goes.
func TestFilesOfATrajectory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 3, Agents: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	opened, err := w.api.Trajectories.OpenTrajectory(ctx, &rotav1.OpenTrajectoryRequest{MemoryBytes: 32 << 20})
	if err != nil {
		t.Fatal(err)
	}
	id := opened.Trajectory.Id
	tree := t.TempDir()
	big := make([]byte, 5<<20+17)
	rand.Read(big)
	for name, content := range map[string][]byte{"project/main": []byte("echo made > made\n"), "project/data/big": big, "project/empty": nil} {
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	rota := func(args ...string) string {
		t.Helper()
		out, stderr, _, code := w.rota(strings.Join(w.cluster.Addrs(), ","), args...)
		if out += stderr.text.String(); code != 0 {
			t.Fatalf("rota %s: exit code %d\n%s", strings.Join(args, " "), code, out)
		}
		return out
	}
	home := strconv.FormatUint(id, 10)
	if err := os.Symlink("project", filepath.Join(tree, "link")); err != nil {
		t.Fatal(err)
	}
	if out := rota("cp", "-r", filepath.Join(tree, "link"), home+":linked"); strings.Contains(out, "copied 0 files") {
		t.Errorf("of a link to a folder it says %q", out)
	}
	rota("cp", "-r", filepath.Join(tree, "project"), home+":")
	agent := w.cluster.Agents[0]
	w.kill(agent)
	w.start(agent)
	rota("run", "--trajectory", home, "--dir", "project", "--", "sh", "-c", "./main && cp data/big copy && ln -s ../.. data/up")
	w.signal(w.supervisor(agent), syscall.SIGKILL)
	rota("run", "--trajectory", home, "--dir", "project", "--", "test", "-e", "made")
	if out := rota("cp", "-r", home+":project", filepath.Join(tree, "back")); !strings.Contains(out, "copied 5 files") || !strings.Contains(out, "data/up is left out") {
		t.Errorf("it says %q", out)
	}
	for name, want := range map[string]string{"made": "made\n", "copy": string(big), "data/big": string(big), "empty": ""} {
		if got, err := os.ReadFile(filepath.Join(tree, "back", name)); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if out := rota("file", "list", home+":project"); !strings.Contains(out, "data/") || strings.Contains(out, ".part") {
		t.Errorf("the directory has %s", out)
	}
	w.closed(ctx, agent, id)
}

// closed closes a trajectory, and waits until its directory is gone. A whole desired state comes
// with each stream, so the streams are ended to have them sooner.
func (w *world) closed(ctx context.Context, agent *devcluster.Process, id uint64) {
	w.Helper()
	if _, err := w.api.Trajectories.CloseTrajectory(ctx, &rotav1.CloseTrajectoryRequest{Id: id}); err != nil {
		w.Fatal(err)
	}
	dirs := func() []string {
		found, err := filepath.Glob(filepath.Join(w.dir, agent.Name, "data", "runtime", "trajectories", "trajectory-*"))
		if err != nil {
			w.Fatal(err)
		}
		return found
	}
	if len(dirs()) != 1 {
		w.Fatalf("there are %q", dirs())
	}
	w.restartedUntil(agent, "the directory of the trajectory is gone", func() bool { return len(dirs()) == 0 })
}

// restartedUntil restarts an agent until a check holds, and gives it more time after each start: on a
// busy machine it takes a while to be there.
func (w *world) restartedUntil(agent *devcluster.Process, what string, check func() bool) {
	w.Helper()
	pause := time.Second
	w.until(what, func() bool {
		w.kill(agent)
		w.start(agent)
		for deadline := time.Now().Add(pause); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if check() {
				return true
			}
		}
		pause *= 2
		return false
	})
}
