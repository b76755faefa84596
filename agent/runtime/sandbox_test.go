package runtime_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/agent/runtime/container"
	"rota/agent/runtime/container/containertest"
	"rota/agent/runtime/container/initcall"
	"rota/internal/need"
)

// sandboxMark is a variable of all attempts of the tests in sandboxes. Its value is the folder of
// their supervisor.
const sandboxMark = "ROTA_SANDBOX_TEST"

// sandboxNode is a node that runs containers: containerd, a supervisor, and a manager as an agent
// has it.
type sandboxNode struct {
	t      *testing.T
	daemon *containertest.Daemon
	o      runtime.Options
	opts   container.Options
	m      *container.Manager
	c      *runtime.Client
}

func newSandboxNode(t *testing.T, mode string) *sandboxNode {
	t.Helper()
	need.Containerd(t)
	n := &sandboxNode{t: t, daemon: containertest.Start(t), o: options(t.TempDir(), mode)}
	conn, err := container.Connect(t.Context(), n.daemon.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	n.opts = container.Options{
		Containerd: conn, Dir: filepath.Join(n.o.Dir, runtime.SandboxesName), Init: containertest.Init(t),
		Cgroup: cgroupParent + "-sandboxes", Logger: hclog.NewNullLogger(),
	}
	t.Cleanup(n.clean)
	archive, err := os.Open(containertest.Archive(t))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	if _, err := conn.Import(t.Context(), archive, ""); err != nil {
		t.Fatal(err)
	}
	n.o.ProcessesMax = bombMax
	n.restart()
	return n
}

// restart is an agent that has just started.
func (n *sandboxNode) restart() {
	n.t.Helper()
	n.c = dial(n.t, n.o)
	var err error
	if n.m, err = container.NewManager(n.opts); err != nil {
		n.t.Fatal(err)
	}
}

// clean removes all sandboxes, and fails if anything is left of them.
func (n *sandboxNode) clean() {
	if n.m == nil {
		return
	}
	containertest.Wait(n.t, "sandboxes are removed", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return n.m.Keep(ctx, func() []uint64 { return nil }) == nil
	})
	containertest.RemoveCgroups(n.t, n.opts.Cgroup)
	if left := n.processes(); len(left) > 0 {
		n.t.Errorf("processes are left: %v", left)
	}
}

// processes are those of attempts that are alive.
func (n *sandboxNode) processes() (out []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if strings.Contains(string(env), sandboxMark+"="+n.o.Dir+"\x00") {
			out = append(out, dir)
		}
	}
	return out
}

// open opens the sandbox of trajectory 1, as an agent does before each action.
func (n *sandboxNode) open(user string) container.Sandbox {
	n.t.Helper()
	if _, err := n.c.MakeTrajectory(n.t.Context(), 1); err != nil {
		n.t.Fatal(err)
	}
	sb, err := n.m.Open(n.t.Context(), container.Spec{
		Trajectory: 1, Incarnation: 7, Image: containertest.ImageName, User: user, Home: runtime.TrajectoryDir(n.o.Dir, 1),
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return sb
}

// attempt is one that runs a script in a sandbox.
func (n *sandboxNode) attempt(sb container.Sandbox, number uint64, script string) runtime.Spec {
	s := shell(key(number), script)
	s.Trajectory = 1
	s.Env = append(s.Env, append(sb.Env, sandboxMark+"="+n.o.Dir)...)
	s.Sandbox = &runtime.Sandbox{SocketDir: sb.SocketDir, Cgroup: sb.Cgroup, User: sb.User, Dir: sb.Dir}
	return s
}

// TestTheFileOfCoresInASandbox: it follows what its attempt is given, attempts cannot write to it,
// and it is gone with its attempt.
func TestTheFileOfCoresInASandbox(t *testing.T) {
	forEachCgroupMode(t, func(t *testing.T, mode string) {
		n := newSandboxNode(t, mode)
		sb := n.open("")
		if !n.c.Describe().Resizes {
			t.Skip("nothing is resized here")
		}
		said := filepath.Join(runtime.TrajectoryDir(n.o.Dir, 1), "said")
		spec := n.attempt(sb, 1, `busybox touch $ROTA_CORES_FILE $(busybox dirname $ROTA_CORES_FILE)/new 2>/dev/null && echo writable >&2
			while :; do cores=$(busybox cat $ROTA_CORES_FILE) && echo $cores >$ROTA_TRAJECTORY_DIR/said; busybox sleep 0.02; done`)
		spec.CPUs, spec.Follows = []int{0}, true
		start(t, n.c, spec)
		for _, want := range []struct {
			cpus []int
			text string
		}{{nil, "0"}, {[]int{0, 1}, "0,1"}, {[]int{1}, "1"}} {
			if want.cpus != nil {
				if err := n.c.Resize(t.Context(), key(1), want.cpus); err != nil {
					t.Fatal(err)
				}
			}
			waitFor(t, "the command to read "+want.text, func() bool {
				text, _ := os.ReadFile(said)
				return strings.TrimSpace(string(text)) == want.text
			})
		}
		if err := n.c.Kill(t.Context(), key(1), plan.ReasonCanceled); err != nil {
			t.Fatal(err)
		}
		if e := nextExit(t, n.c); len(e.Stderr) > 0 {
			t.Errorf("it wrote into the folder: %s", e.Stderr)
		}
		if left, err := os.ReadDir(initcall.CoresDir(sb.SocketDir)); err != nil || len(left) > 0 {
			t.Errorf("left in the folder: %v, %v", left, err)
		}
	})
}

// forEachCgroupMode is forEachMode where there are cgroups, one mode at a time: each has a
// containerd.
func forEachCgroupMode(t *testing.T, test func(t *testing.T, mode string)) {
	for _, mode := range []string{runtime.ModeHybrid, runtime.ModeCgroupV1, runtime.ModeCgroupV2} {
		t.Run(mode, func(t *testing.T) {
			if !hierarchiesHere()[mode] {
				t.Skipf("this machine has no %s", mode)
			}
			test(t, mode)
		})
	}
}

// bombMax is how many processes an attempt in a sandbox may have.
const bombMax = 40

// Attempts in one sandbox have limits of their own, and what hits a limit is what ends.
func TestAttemptsInASandboxHaveLimits(t *testing.T) {
	forEachCgroupMode(t, func(t *testing.T, mode string) {
		n := newSandboxNode(t, mode)
		sb := n.open("")
		e := runOne(t, n.c, n.attempt(sb, 1, `echo $0 $FROM_IMAGE $ROTA_TRAJECTORY_DIR; pwd; echo wrong >&2; exit 3`))
		if string(e.Stdout) != "sh yes /workspace\n/work\n" || string(e.Stderr) != "wrong\n" || e.ExitCode != 3 || e.Reason != plan.ReasonExited {
			t.Errorf("ended with %+v", e)
		}
		cpus := n.attempt(sb, 2, "grep Cpus_allowed_list /proc/self/status; cat /proc/self/oom_score_adj")
		cpus.CPUs = []int{1}
		if e := runOne(t, n.c, cpus); string(e.Stdout) != "Cpus_allowed_list:\t1\n500\n" {
			t.Errorf("with CPU 1 it has %q (%+v)", e.Stdout, e)
		}
		big := n.attempt(sb, 3, "dd if=/dev/zero of=/dev/null bs=268435456 count=1")
		big.MemoryBytes = 64 << 20
		if e := runOne(t, n.c, big); !lacks(n.c, "memory limits: no") && e.Reason != plan.ReasonOutOfMemory {
			t.Errorf("out of memory: %+v", e)
		}
		slow := n.attempt(sb, 4, "sleep 1000 & sleep 1000")
		slow.Timeout = 50 * time.Millisecond
		if e := runOne(t, n.c, slow); e.Reason != plan.ReasonTimeout {
			t.Errorf("a timeout: %+v", e)
		}
		if e := runOne(t, n.c, n.attempt(sb, 5, "sleep 1000 & busybox setsid sleep 1000 & echo done")); string(e.Stdout) != "done\n" {
			t.Errorf("with something left behind: %+v", e)
		}
		if left := n.processes(); len(left) > 0 {
			t.Errorf("left by attempts that have ended: %v", left)
		}
		if !lacks(n.c, "limits of processes") {
			n.bomb(sb)
		}
		if e := runOne(t, n.c, n.attempt(sb, 9, "echo alive")); string(e.Stdout) != "alive\n" {
			t.Errorf("after all that: %+v", e)
		}
	})
}

// bomb has one attempt use up its limit of processes while another runs, and one try to have more.
func (n *sandboxNode) bomb(sb container.Sandbox) {
	t := n.t
	t.Helper()
	const fill = "i=2; while test $i -lt %d; do sleep 1000 & i=$((i+1)); done; echo full; sleep 1000"
	start(t, n.c, n.attempt(sb, 6, fmt.Sprintf(fill, bombMax)))
	written(t, n.o, key(6), "full")
	if e := runOne(t, n.c, n.attempt(sb, 7, "(echo beside) | cat")); string(e.Stdout) != "beside\n" {
		t.Errorf("beside an attempt with %d processes: %+v", bombMax, e)
	}
	if err := n.c.Kill(t.Context(), key(6), plan.ReasonCanceled); err != nil {
		t.Fatal(err)
	}
	if e := nextExit(t, n.c); e.Reason != plan.ReasonCanceled || len(e.Stderr) > 0 {
		t.Errorf("with %d processes: %+v", bombMax, e)
	}
	if e := runOne(t, n.c, n.attempt(sb, 8, fmt.Sprintf(fill, bombMax+2))); e.ExitCode == 0 || len(e.Stdout) > 0 {
		t.Errorf("with more than %d processes: %+v", bombMax, e)
	}
	bomb := n.attempt(sb, 10, "(bomb() { bomb | bomb & }; while :; do bomb; done) & exec sleep 1000")
	bomb.Timeout = time.Second
	if e := runOne(t, n.c, bomb); e.Reason != plan.ReasonTimeout {
		t.Errorf("a bomb: %+v", e)
	}
	if left := n.processes(); len(left) > 0 {
		t.Errorf("left by a bomb: %v", left)
	}
}

// Standard input, signals and terminals are those of any attempt, for whatever user.
func TestStreamsReachASandbox(t *testing.T) {
	n := newSandboxNode(t, "")
	sb := n.open("worker")
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	in := n.attempt(sb, 1, "cat /dev/stdin | busybox sha256sum >/dev/stdout; id -u >&2")
	in.Stdin = true
	start(t, n.c, in)
	feed(t, n.c, key(1), "", 0, data, true)
	if e := nextExit(t, n.c); string(e.Stdout) != fmt.Sprintf("%x  -\n", sha256.Sum256(data)) || string(e.Stderr) != "1000\n" {
		t.Errorf("it read something else: %+v", e)
	}

	tty := n.attempt(sb, 2, `test -t 0 && test -t 1 && test -t 2 && echo terminal; busybox stty size; echo line >/dev/tty; echo again >/dev/stdout
		trap 'echo caught' INT
		while read line; do echo "got $line"; busybox stty size; done; echo end`)
	tty.TTY = &runtime.Terminal{Rows: 24, Columns: 80}
	start(t, n.c, tty)
	written(t, n.o, key(2), "terminal\r\n24 80\r\nline\r\nagain\r\n")
	reached(t, n.c, key(2))
	if err := n.c.ResizeTerminal(t.Context(), key(2), runtime.Terminal{Rows: 50, Columns: 132}); err != nil {
		t.Fatal(err)
	}
	feed(t, n.c, key(2), "", 0, []byte("hello\n"), false)
	written(t, n.o, key(2), "got hello\r\n50 132\r\n")
	feed(t, n.c, key(2), "", 6, nil, true)
	if e := nextExit(t, n.c); e.ExitCode != 0 || !strings.HasSuffix(written(t, n.o, key(2), "end"), "end\r\n") {
		t.Errorf("a terminal: %+v", e)
	}

	start(t, n.c, n.attempt(sb, 3, `trap 'echo group' USR1
		busybox setsid sh -c 'trap "echo other" USR1; echo up; while :; do sleep 0.01; done' &
		while :; do sleep 0.01; done`))
	written(t, n.o, key(3), "up")
	signal := runtime.Signal{Number: int(syscall.SIGUSR1)}
	signaled(t, n.c, key(3), signal)
	if got := written(t, n.o, key(3), "group"); strings.Contains(got, "other") {
		t.Errorf("a signal to the group reached another: %q", got)
	}
	signal.All = true
	signaled(t, n.c, key(3), signal)
	written(t, n.o, key(3), "other")
	signaled(t, n.c, key(3), runtime.Signal{Number: int(syscall.SIGKILL)})
	if e := nextExit(t, n.c); e.Signal != int(syscall.SIGKILL) || e.Reason != plan.ReasonSignaled {
		t.Errorf("ended with %+v", e)
	}
	start(t, n.c, n.attempt(sb, 4, "echo up; exec sleep 1000"))
	written(t, n.o, key(4), "up")
	signaled(t, n.c, key(4), runtime.Signal{Number: int(syscall.SIGINT)})
	if e := nextExit(t, n.c); e.Signal != int(syscall.SIGINT) {
		t.Errorf("interrupted, it ended with %+v", e)
	}
	missing := n.attempt(sb, 5, "")
	missing.Argv = []string{"no-such-program"}
	if e := runOne(t, n.c, missing); e.Reason != plan.ReasonStartFailed || !strings.Contains(e.Message, "no-such-program") {
		t.Errorf("a program that the image lacks: %+v", e)
	}
}

// An HTTP call of a trajectory with a sandbox is made outside of it, by a user of its own: that of the
// container has the directory of the trajectory. A command must not run outside.
func TestHTTPCallsRunBesideASandbox(t *testing.T) {
	n := newSandboxNode(t, "")
	apart := isolated(t, "") // as an agent that is root
	n.o.AttemptUIDs, n.o.Namespaces = apart.AttemptUIDs, apart.Namespaces
	n.c = another(t, n.c, n.o)
	if e := runOne(t, n.c, n.attempt(n.open("worker"), 1, "touch /workspace/kept")); e.ExitCode != 0 || e.Reason != plan.ReasonExited {
		t.Fatalf("a command in the sandbox: %+v", e)
	}
	call := func(number uint64) {
		t.Helper()
		s := shell(key(number), "pwd; echo up >&2; read line")
		s.Trajectory, s.Call, s.Stdin = 1, true, true
		start(t, n.c, s)
		reached(t, n.c, s.Key)
		if uses, err := n.c.Measure(t.Context(), 1); err != nil || len(uses) != 1 || uses[0].Key != s.Key {
			t.Errorf("measured are %v, %v", uses, err)
		}
		feed(t, n.c, s.Key, "", 0, []byte("end\n"), true)
		e := nextExit(t, n.c)
		if e.Key != s.Key || e.ExitCode != 0 || e.Reason != plan.ReasonExited || string(e.Stdout) != runtime.WorkDir(n.o.Dir, s.Key)+"\n" {
			t.Errorf("an HTTP call ended with %+v", e)
		}
	}
	call(2)
	n.c = another(t, n.c, n.o)
	call(3)
	s := shell(key(4), "true")
	s.Trajectory = 1
	if e := runOne(t, n.c, s); e.Reason != plan.ReasonStartFailed {
		t.Errorf("a command outside of the sandbox ended with %+v", e)
	}
	if e := runOne(t, n.c, n.attempt(n.open("worker"), 5, "ls /workspace/kept")); e.ExitCode != 0 || e.Reason != plan.ReasonExited {
		t.Errorf("a command in the sandbox after the calls: %+v", e)
	}
}

// firstProcess is the ID of a sandbox's first process on the node.
func firstProcess(t *testing.T, sb container.Sandbox) int {
	t.Helper()
	conn, err := initcall.Dial(sb.SocketDir)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return peer(t, conn)
}

// parentOfProcess is that of a process.
func parentOfProcess(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var state string
	var parent int
	if _, err := fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &parent); err != nil {
		t.Fatal(err)
	}
	return parent
}

// What docs/sandboxes.md says of processes that are killed.
func TestSandboxesOutliveWhatIsKilled(t *testing.T) {
	n := newSandboxNode(t, "")
	sb := n.open("")
	const work = "echo up; touch /root/kept /workspace/kept; while ! test -e /workspace/go; do sleep 0.01; done; echo went"
	end := func(number uint64, want plan.Reason) {
		t.Helper()
		if e := nextExit(t, n.c); e.Key != key(number) || e.Reason != want {
			t.Errorf("%+v; want %v", e, want)
		}
		if err := n.c.Forget(t.Context(), []plan.Key{key(number)}); err != nil {
			t.Fatal(err)
		}
		if left := n.processes(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}

	// The agent: the next one finds the action and the sandbox.
	start(t, n.c, n.attempt(sb, 1, work))
	written(t, n.o, key(1), "up")
	n.c.Close()
	n.restart()
	if running, _, err := n.c.List(t.Context()); err != nil || len(running) != 1 {
		t.Fatalf("the next agent finds %v, %v", running, err)
	}
	first := firstProcess(t, sb)
	sb = n.open("")
	if _, err := os.Create(filepath.Join(runtime.TrajectoryDir(n.o.Dir, 1), "go")); err != nil {
		t.Fatal(err)
	}
	end(1, plan.ReasonExited)

	// The supervisor: actions end, the sandbox goes on.
	start(t, n.c, n.attempt(sb, 2, "echo up; sleep 1000 & sleep 1000"))
	written(t, n.o, key(2), "up")
	kill(t, n.c.Describe().PID, syscall.SIGKILL)
	waitLost(t, n.c)
	n.restart()
	end(2, plan.ReasonSupervisorLost)
	sb = n.open("")
	if e := runOne(t, n.c, n.attempt(sb, 3, "ls /root/kept /workspace/kept")); e.ExitCode != 0 || firstProcess(t, sb) != first {
		t.Errorf("after the supervisor's end: %+v", e)
	}

	// The first process and its shim: actions end, and the sandbox starts again with its files.
	for number, victim := range map[uint64]func() int{
		4: func() int { return firstProcess(t, sb) },
		6: func() int { return parentOfProcess(t, firstProcess(t, sb)) },
	} {
		start(t, n.c, n.attempt(sb, number, "echo up; sleep 1000 & sleep 1000"))
		written(t, n.o, key(number), "up")
		kill(t, victim(), syscall.SIGKILL)
		end(number, plan.ReasonSupervisorLost)
		sb = n.open("")
		if e := runOne(t, n.c, n.attempt(sb, number+1, "ls /root/kept /workspace/kept")); e.ExitCode != 0 {
			t.Errorf("started again: %+v", e)
		}
	}

	// containerd: what is open goes on.
	n.daemon.Kill()
	sb = n.open("")
	if e := runOne(t, n.c, n.attempt(sb, 8, "ls /root/kept")); e.ExitCode != 0 {
		t.Errorf("without containerd: %+v", e)
	}
	n.daemon.Run()
}

// A sandbox may end between the start of a command and the answer. The attempt is lost then, not one
// that could not be started, and nothing of it runs on.
func TestAStartWithoutAnAnswerIsLost(t *testing.T) {
	forEachCgroupMode(t, func(t *testing.T, mode string) {
		o := options(t.TempDir(), mode)
		c := dial(t, o)
		dir := t.TempDir()
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, initcall.SocketName), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		started := make(chan *exec.Cmd, 1)
		go func() { // a first process that forks, and is killed
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			defer conn.Close()
			call, err := initcall.Receive(conn)
			if err != nil {
				t.Error(err)
				return
			}
			defer call.CloseFiles()
			cmd := exec.Command("sleep", "1000")
			if err := cmd.Start(); err != nil {
				t.Error(err)
				return
			}
			enter := call.Files.Enter
			if v2 := call.Files.V2; v2 >= 0 {
				fd, err := unix.Openat(v2, "cgroup.procs", unix.O_WRONLY|unix.O_CLOEXEC, 0)
				if err != nil {
					t.Error(err)
				}
				enter = append(enter, fd)
				defer unix.Close(fd)
			}
			for _, fd := range enter {
				if _, err := unix.Write(fd, []byte(fmt.Sprint(cmd.Process.Pid))); err != nil {
					t.Error(err)
				}
			}
			started <- cmd
		}()
		s := shell(key(1), "true")
		s.Trajectory = 1
		s.Sandbox = &runtime.Sandbox{SocketDir: dir, Cgroup: "/"}
		if e := runOne(t, c, s); e.Reason != plan.ReasonSupervisorLost || !strings.Contains(e.Message, "sandbox") {
			t.Errorf("it ended with %+v", e)
		}
		cmd := <-started
		if _ = cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("what it had started ended with %v", cmd.ProcessState)
		}
		s.Key = key(2)
		s.Sandbox.SocketDir = t.TempDir() // nobody listens
		if e := runOne(t, c, s); e.Reason != plan.ReasonSupervisorLost {
			t.Errorf("without a sandbox it ended with %+v", e)
		}
	})
}

// fakeSandbox is the first process of a sandbox that takes one command, and does with it what a test
// says. It gives the call to the test.
func fakeSandbox(t *testing.T, answer func(*initcall.Call)) (dir string, calls <-chan *initcall.Call) {
	t.Helper()
	dir = t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, initcall.SocketName), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	taken := make(chan *initcall.Call, 1)
	go func() {
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		call, err := initcall.Receive(conn)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(call.CloseFiles)
		answer(call)
		taken <- call
	}()
	return dir, taken
}

// enter moves a process into the cgroups of a call.
func enter(call *initcall.Call, pid int) error {
	for _, fd := range call.Files.Enter {
		if _, err := unix.Write(fd, []byte(fmt.Sprint(pid))); err != nil {
			return err
		}
	}
	if call.Files.V2 < 0 {
		return nil
	}
	fd, err := unix.Openat(call.Files.V2, "cgroup.procs", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(fmt.Sprint(pid)))
	return err
}

// A sandbox whose first process hangs does not hold up the kill of an attempt, and cannot start it
// when it goes on.
func TestAKillDoesNotWaitForTheStartInASandbox(t *testing.T) {
	forEachCgroupMode(t, func(t *testing.T, mode string) {
		c := dial(t, options(t.TempDir(), mode))
		dir, calls := fakeSandbox(t, func(*initcall.Call) {})
		s := shell(key(1), "true")
		s.Trajectory = 1
		s.Sandbox = &runtime.Sandbox{SocketDir: dir, Cgroup: "/"}
		start(t, c, s)
		call := <-calls
		if err := c.Kill(t.Context(), s.Key, plan.ReasonCanceled); err != nil {
			t.Fatal(err)
		}
		if e := nextExit(t, c); e.Reason != plan.ReasonCanceled {
			t.Errorf("it ended with %+v", e)
		}
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}()
		if err := enter(call, cmd.Process.Pid); err == nil {
			t.Error("a process got into the cgroups of an attempt that has ended")
		}
	})
}

// A sandbox that does not tell how a killed command ended does not hold up its end.
func TestAKillDoesNotWaitForTheEndInASandbox(t *testing.T) {
	forEachCgroupMode(t, func(t *testing.T, mode string) {
		c := dial(t, options(t.TempDir(), mode))
		cmd := exec.Command("sleep", "1000")
		dir, calls := fakeSandbox(t, func(call *initcall.Call) {
			if err := cmd.Start(); err != nil {
				t.Error(err)
				return
			}
			if err := enter(call, cmd.Process.Pid); err != nil {
				t.Error(err)
			}
			if err := call.Started(""); err != nil {
				t.Error(err)
			}
		})
		s := shell(key(1), "true")
		s.Trajectory = 1
		s.Sandbox = &runtime.Sandbox{SocketDir: dir, Cgroup: "/"}
		start(t, c, s)
		<-calls
		if err := c.Kill(t.Context(), s.Key, plan.ReasonCanceled); err != nil {
			t.Fatal(err)
		}
		if _ = cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("the command ended with %v", cmd.ProcessState)
		}
		if e := nextExit(t, c); e.Reason != plan.ReasonCanceled {
			t.Errorf("it ended with %+v", e)
		}
	})
}

// peer is the process that listens at the other side.
func peer(t *testing.T, conn *net.UnixConn) (pid int) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		credentials, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			t.Error(err)
			return
		}
		pid = int(credentials.Pid)
	})
	if err != nil || pid == 0 {
		t.Fatalf("nobody listens: %v", err)
	}
	return pid
}
