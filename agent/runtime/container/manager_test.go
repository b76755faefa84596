package container_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/agent/runtime/container"
	"rota/agent/runtime/container/containertest"
	"rota/agent/runtime/container/initcall"
	"rota/agent/runtime/container/registry"
	"rota/internal/need"
)

// node is a machine with containerd and a manager.
type node struct {
	t      *testing.T
	opts   container.Options
	m      *container.Manager
	images string
}

func newNode(t *testing.T) *node {
	t.Helper()
	need.Containerd(t)
	c, err := container.Connect(t.Context(), containertest.Start(t).Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	n := &node{t: t, images: t.TempDir()}
	n.opts = container.Options{
		Containerd: c, Dir: filepath.Join(t.TempDir(), "sandboxes"), Init: containertest.Init(t), Images: n.images,
		Cgroup: "rota-sandboxes-test", Logger: hclog.NewNullLogger(),
	}
	n.restart()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := n.m.Keep(ctx, none); err != nil {
			t.Error(err)
		}
		containertest.RemoveCgroups(t, n.opts.Cgroup)
	})
	f, err := os.Open(containertest.Archive(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	names, err := c.Import(t.Context(), f, "")
	if err != nil || len(names) != 1 || names[0] != containertest.ImageName {
		t.Fatalf("imported %v: %v", names, err)
	}
	return n
}

func none() []uint64 { return nil }

// restart is a new agent.
func (n *node) restart() {
	n.t.Helper()
	var err error
	if n.m, err = container.NewManager(n.opts); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) spec(trajectory uint64) container.Spec {
	return container.Spec{Trajectory: trajectory, Incarnation: 1, Image: containertest.ImageName, Home: n.t.TempDir()}
}

func (n *node) open(s container.Spec) container.Sandbox {
	n.t.Helper()
	sb, err := n.m.Open(n.t.Context(), s)
	if err != nil {
		n.t.Fatal(err)
	}
	return sb
}

// run runs a script in a sandbox and returns what it said, and its exit code.
func run(t testing.TB, sb container.Sandbox, script string) (string, int) {
	t.Helper()
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p, err := initcall.Start(t.Context(), sb.SocketDir, initcall.Command{
		Argv: []string{"sh", "-c", script}, Env: sb.Env, Dir: sb.Dir, User: sb.User,
	}, initcall.Files{Std: [3]int{int(null.Fd()), int(out.Fd()), int(out.Fd())}, V2: -1})
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b)), e.Status.ExitStatus()
}

// mountsOf counts the mounts on the node that are for a sandbox. The path of each has its name.
func mountsOf(t testing.TB, sb container.Sandbox) int {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(mounts), "/"+filepath.Base(sb.Cgroup)+"/")
}

// A sandbox has the image's files and settings, keeps what actions write, and is removed whole.
func TestASandboxLastsUntilItsTrajectoryEnds(t *testing.T) {
	n := newNode(t)
	s := n.spec(7)
	sb := n.open(s)
	if out, code := run(t, sb, "echo hello > /root/note; touch /workspace/kept; pwd; id -u; echo $FROM_IMAGE $HOME; hostname; exit 3"); out != "/work\n0\nyes /root\ntrajectory-7" || code != 3 {
		t.Errorf("said %q and exited with %d", out, code)
	}
	if mountsOf(t, sb) == 0 {
		t.Error("the sandbox has no mount that could be left")
	}
	n.restart() // the next agent finds it as it is
	if again := n.open(s); again.SocketDir != sb.SocketDir {
		t.Errorf("after a restart the sandbox is %+v", again)
	}
	if out, _ := run(t, sb, "cat /root/note; ls /workspace"); out != "hello\nkept" {
		t.Errorf("after a restart it has %q", out)
	}
	if _, err := os.Stat(filepath.Join(s.Home, "kept")); err != nil {
		t.Error(err)
	}
	if err := n.m.Keep(t.Context(), func() []uint64 { return []uint64{7} }); err != nil || !initcall.Listening(sb.SocketDir) {
		t.Errorf("an open trajectory lost its sandbox: %v", err)
	}
	if out, code := run(t, sb, "busybox chmod 777 /workspace; busybox chown worker /workspace"); code != 0 {
		t.Error(out)
	}
	if err := n.m.Keep(t.Context(), none); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(s.Home); err != nil || st.Mode().Perm() != 0o700 || st.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the directory is open after the end: %v, %v", st, err)
	}
	left, _ := os.ReadDir(n.opts.Dir)
	if len(left) > 0 || initcall.Listening(sb.SocketDir) {
		t.Errorf("left after the end: %v", left)
	}
	if left := mountsOf(t, sb); left > 0 {
		t.Errorf("%d mounts are left", left)
	}
	for _, h := range []string{"memory", "pids", "unified", ""} {
		if _, err := os.Stat(filepath.Join("/sys/fs/cgroup", h, sb.Cgroup)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("cgroup %s is left in %q: %v", sb.Cgroup, h, err)
		}
	}
}

// A sandbox whose first process was killed starts again with its files.
func TestASandboxThatWasKilledStartsAgain(t *testing.T) {
	n := newNode(t)
	s := n.spec(1)
	sb := n.open(s)
	run(t, sb, "echo 1 > /root/note")
	conn, err := initcall.Dial(sb.SocketDir)
	if err != nil {
		t.Fatal(err)
	}
	killPeer(t, conn)
	_ = conn.Close()
	containertest.Wait(t, "the sandbox has ended", func() bool { return !initcall.Listening(sb.SocketDir) })
	if out, _ := run(t, n.open(s), "cat /root/note"); out != "1" {
		t.Errorf("started again it has %q", out)
	}
	s.Incarnation++ // the trajectory was lost: this is another one
	if out, _ := run(t, n.open(s), "cat /root/note"); strings.HasPrefix(out, "1") {
		t.Error("a sandbox of an earlier incarnation was used again")
	}
}

func TestAnImageThatIsNotThereIsNamed(t *testing.T) {
	n := newNode(t)
	s := n.spec(1)
	s.Image = "nothing:1"
	if _, err := n.m.Open(t.Context(), s); !errors.Is(err, container.ErrNoImage) || !strings.Contains(err.Error(), "rota image import") {
		t.Errorf("an image that is missing: %v", err)
	}
	archive, err := os.ReadFile(containertest.Archive(t))
	if err == nil {
		err = os.WriteFile(filepath.Join(n.images, "tools.tar"), archive, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Image = "tools.tar"
	if out, code := run(t, n.open(s), "true"); code != 0 {
		t.Errorf("in an image from the folder: %s", out)
	}
	s.Trajectory, s.Image = 2, "../tools.tar"
	if _, err := n.m.Open(t.Context(), s); !errors.Is(err, container.ErrNoImage) {
		t.Errorf("an image outside of the folder: %v", err)
	}
	for _, sandbox := range []string{"1", "2"} { // a supervisor that starts asks whether there are these
		left, err := os.ReadDir(filepath.Join(n.opts.Dir, sandbox))
		if err != nil || sandbox == "2" && len(left) > 0 {
			t.Errorf("left of %s: %v, %v", sandbox, left, err)
		}
	}
	s.Trajectory = 1
	if _, err := n.m.Open(t.Context(), s); !errors.Is(err, container.ErrNoImage) {
		t.Errorf("another image, which is outside of the folder: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(n.opts.Dir, "1")); err != nil || len(left) > 0 {
		t.Errorf("left of a sandbox whose next image is missing: %v, %v", left, err)
	}
	if err := n.m.Keep(t.Context(), func() []uint64 { return nil }); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(n.opts.Dir); err != nil || len(left) > 0 {
		t.Errorf("left after the end: %v, %v", left, err)
	}
}

func TestCommandsHaveTheUserOfTheTrajectory(t *testing.T) {
	n := newNode(t)
	s := n.spec(1)
	s.User, s.ReadOnlyRoot = "worker", true
	sb := n.open(s)
	out, _ := run(t, sb, "id -u; id -G; touch /workspace/a && touch /tmp/a && echo written; touch /bin/a")
	if !strings.HasPrefix(out, "1000\n1000 2000\nwritten\n") || !strings.Contains(out, "Read-only file system") {
		t.Errorf("said %q", out)
	}
	s.Trajectory, s.User = 2, "nobody-here"
	_, err := initcall.Start(t.Context(), n.open(s).SocketDir, initcall.Command{Argv: []string{"true"}, User: s.User}, initcall.Files{V2: -1, Std: [3]int{0, 1, 2}})
	var start initcall.StartError
	if !errors.As(err, &start) || !strings.Contains(err.Error(), "nobody-here") {
		t.Errorf("a user that the container does not have: %v", err)
	}
}

// Sandboxes share a process that watches them. It goes on after the sandbox that it was started for,
// and when it dies, those that are left start again with their files.
func TestSandboxesShareAWatcher(t *testing.T) {
	n := newNode(t)
	first, second := n.spec(3), n.spec(11)
	a, b := n.open(first), n.open(second)
	run(t, b, "echo 1 > /root/note")
	watcher := parentOf(t, firstProcess(t, b))
	if of := parentOf(t, firstProcess(t, a)); of != watcher {
		t.Errorf("two sandboxes are watched by %d and %d", of, watcher)
	}
	if err := n.m.Keep(t.Context(), func() []uint64 { return []uint64{11} }); err != nil {
		t.Fatal(err)
	}
	if out, code := run(t, n.open(second), "cat /root/note"); out != "1" || code != 0 || initcall.Listening(a.SocketDir) {
		t.Errorf("after the end of the first, the second has %q", out)
	}
	c := n.open(n.spec(19))
	if of := parentOf(t, firstProcess(t, c)); of != watcher {
		t.Errorf("a third sandbox is watched by %d, want %d", of, watcher)
	}
	if err := syscall.Kill(watcher, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	containertest.Wait(t, "the sandbox has ended", func() bool { return !initcall.Listening(b.SocketDir) })
	if out, _ := run(t, n.open(second), "cat /root/note"); out != "1" {
		t.Errorf("started again it has %q", out)
	}
	if out, code := run(t, n.open(n.spec(27)), "true"); code != 0 {
		t.Errorf("a sandbox after the end of the watcher: %s", out)
	}
}

// firstProcess is the process of a sandbox that listens.
func firstProcess(t testing.TB, sb container.Sandbox) int {
	t.Helper()
	conn, err := initcall.Dial(sb.SocketDir)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return peerOf(t, conn)
}

func parentOf(t testing.TB, pid int) (parent int) {
	t.Helper()
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err == nil {
		var state string
		_, err = fmt.Sscan(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), &state, &parent)
	}
	if err != nil {
		t.Fatal(err)
	}
	return parent
}

// Who has no containerd is told what to do about it.
func TestWithoutContainerdTheErrorSaysWhatToDo(t *testing.T) {
	dead := filepath.Join(t.TempDir(), "dead.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{filepath.Join(t.TempDir(), "none.sock"), dead} {
		_, err := container.Connect(t.Context(), address)
		if !errors.Is(err, container.ErrUnavailable) || !strings.Contains(err.Error(), address+": nothing listens there: start containerd") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// A sandbox opens with an image that only a registry has.
func TestASandboxOfAPulledImage(t *testing.T) {
	n := newNode(t)
	r := containertest.NewRegistry(t)
	r.User, r.Password = "ada", "secret"
	s := n.spec(1)
	s.Image = r.Push("team/tools", "1", containertest.Layer(t))
	auth := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(auth, fmt.Appendf(nil, `{"auths":{%q:{"username":"ada","password":"secret"}}}`, r.Host), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	n.opts.Puller, err = container.NewPuller(n.opts.Containerd, container.PullOptions{
		Registry: registry.Options{Hosts: []string{r.Host}, CA: r.CA, Auth: auth}, Logger: n.opts.Logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	n.restart()
	if out, code := run(t, n.open(s), "pwd; echo $FROM_IMAGE"); out != "/work\nyes" || code != 0 {
		t.Errorf("it says %q and exits with %d", out, code)
	}
}
