package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"

	"rota/agent/inventory"
	"rota/agent/plan"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"

	"rota/agent/httpcall"
	"rota/agent/runtime"
	"rota/agent/tier/kvfs"
	"rota/internal/engine/simulated"
)

// TestMain makes the test binary its own agent, its own supervisor, what makes HTTP calls, a
// simulated engine, and what looks at one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == simulated.Command {
		os.Exit(simulated.Main(context.Background(), os.Args[2:], os.Stderr))
	}
	if len(os.Args) > 2 && os.Args[1] == kvfs.GuardCommand {
		os.Exit(exitCode(kvfs.Guard(os.Args[2], os.Stdin, os.Stdout)))
	}
	if len(os.Args) > 1 && os.Args[1] == httpcall.Command {
		os.Exit(httpcall.Main(context.Background(), os.Getenv, os.Stdout, os.Stderr))
	}
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case "supervise":
			os.Exit(exitCode(supervise(os.Args[2:])))
		case "agent":
			os.Exit(exitCode(agentMain(os.Args[2], os.Args[3:])))
		case "engine-state":
			fmt.Print(engineState(os.Args[2]))
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

func exitCode(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func supervise(args []string) error {
	opts, err := runtime.ParseSuperviseArgs(args)
	if err != nil {
		return err
	}
	return runtime.Supervise(context.Background(), opts)
}

func agentMain(dir string, servers []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return Run(ctx, realConfig(dir, servers))
}

func realConfig(dir string, servers []string) Config {
	cfg := Config{
		Name: "node-1", Dir: dir, Servers: servers, Listen: "127.0.0.1:0", Cores: 4, Oversubscribe: true,
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: os.Stderr}),
	}
	cfg.SimulatedGPUs = &inventory.GPUs{Class: "simulated-H100", Count: 2, MemoryBytes: 80}
	cfg.watchEnginesEvery = 50 * time.Millisecond
	cfg.Process.Enabled = true
	cfg.Process.Mode = runtime.ModeAffinity
	cfg.Process.Linger = 2 * time.Second
	return cfg
}

// process is an agent in a process of its own, with a real supervisor.
type process struct {
	t   *testing.T
	dir string
	c   *cluster
	cmd *exec.Cmd
}

func newProcess(t *testing.T, c *cluster) *process {
	p := &process{t: t, dir: filepath.Join(t.TempDir(), "agent"), c: c}
	p.start()
	t.Cleanup(func() {
		p.kill()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		opts := realConfig(p.dir, nil).Process.SuperviseOptions
		opts.Dir = filepath.Join(p.dir, "runtime")
		s, err := runtime.Dial(ctx, runtime.Options{SuperviseOptions: opts})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *process) start() {
	p.t.Helper()
	p.cmd = exec.Command("/proc/self/exe", append([]string{"agent", p.dir}, p.c.addresses...)...)
	log, err := os.OpenFile(p.dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// kill is kill -9; the process is gone afterwards.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// witness is a file that a command appends a line to each time it is started.
type witness struct {
	t    *testing.T
	path string
}

func newWitness(t *testing.T) *witness { return &witness{t, filepath.Join(t.TempDir(), "witness")} }

// lines waits until the file has at least n lines and returns how many.
func (w *witness) lines(n int) int {
	w.t.Helper()
	for limit := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		b, err := os.ReadFile(w.path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			w.t.Fatal(err)
		}
		if got := strings.Count(string(b), "\n"); got >= n {
			return got
		}
		if time.Now().After(limit) {
			w.t.Fatalf("the command was not started; the file holds %q", b)
		}
	}
}

// pid is that of the command that wrote the last line.
func (w *witness) pid() int {
	w.t.Helper()
	w.lines(1)
	b, err := os.ReadFile(w.path)
	if err != nil {
		w.t.Fatal(err)
	}
	fields := strings.Fields(string(b))
	pid, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		w.t.Fatal(err)
	}
	return pid
}

// gone waits until a process is dead.
func gone(t *testing.T, pid int) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("process %d is still there", pid)
		}
	}
}

func sh(script string, args ...string) []string {
	return append([]string{"sh", "-c", script, "sh"}, args...)
}

// until writes its PID and waits for a file.
const untilScript = `echo $$ >> "$1"; echo begun; while [ ! -e "$1.go" ]; do sleep 0.01; done; echo over`

func TestAnAgentIsKilledAndItsSuccessorTakesOver(t *testing.T) {
	c, w1, w2 := newCluster(t, 2), newWitness(t), newWitness(t)
	p := newProcess(t, c)
	runs, ends := c.assign(1, sh(untilScript, w1.path)...), c.assign(2, sh(untilScript, w2.path)...)
	w1.lines(1)
	pid := w2.pid()
	p.kill()
	touch(t, w2.path+".go")
	gone(t, pid)
	p.start()
	if r := c.result(ends); r.Reason != rotav1.EndReason_END_REASON_EXITED || string(r.StdoutTail) != "begun\nover\n" {
		t.Errorf("what ended without an agent was reported as %v", r)
	}
	touch(t, w1.path+".go")
	if r := c.result(runs); r.Reason != rotav1.EndReason_END_REASON_EXITED {
		t.Errorf("what ran on was reported as %v", r)
	}
	for _, w := range []*witness{w1, w2} {
		if n := w.lines(1); n != 1 {
			t.Errorf("the command was started %d times", n)
		}
	}
}

func TestAFrozenAgentIsFencedByItsSupervisor(t *testing.T) {
	c, w := newCluster(t, 1), newWitness(t)
	c.lease = 4 * time.Second
	p := newProcess(t, c)
	key := c.assign(1, sh(untilScript, w.path)...)
	pid := w.pid()
	p.signal(syscall.SIGSTOP)
	gone(t, pid)
	p.signal(syscall.SIGCONT)
	if r := c.result(key); r.Reason != rotav1.EndReason_END_REASON_NODE_LOST {
		t.Errorf("reported %v", r)
	}
	again := c.assign(2, "true")
	if r := c.result(again); r.Reason != rotav1.EndReason_END_REASON_EXITED {
		t.Errorf("the next was reported as %v", r)
	}
	if n := w.lines(1); n != 1 {
		t.Errorf("the command was started %d times", n)
	}
}

func TestAnAgentIsCutOff(t *testing.T) {
	c, w := newCluster(t, 1), newWitness(t)
	c.lease = 4 * time.Second
	newProcess(t, c)
	key := c.assign(1, sh(untilScript, w.path)...)
	pid := w.pid()
	c.change(func() { c.noLeases = true })
	gone(t, pid)
	if r := c.result(key); r.Reason != rotav1.EndReason_END_REASON_NODE_LOST {
		t.Errorf("reported %v", r)
	}
}

func TestAnAgentIsCutOffAndItsSupervisorIsFrozen(t *testing.T) {
	c, w := newCluster(t, 1), newWitness(t)
	c.lease = 4 * time.Second
	p := newProcess(t, c)
	key := c.assign(1, sh(untilScript, w.path)...)
	pid := w.pid()
	if err := syscall.Kill(supervisorOf(t, p.dir), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.change(func() { c.noLeases = true })
	gone(t, pid)
	c.result(key)
	c.change(func() { c.noLeases = false })
	if r := c.result(c.assign(2, "true")); r.Reason != rotav1.EndReason_END_REASON_EXITED {
		t.Errorf("the next was reported as %v", r)
	}
}

// A supervisor that stands still for less than the lease costs time only.
func TestASupervisorIsPaused(t *testing.T) {
	c, w := newCluster(t, 1), newWitness(t)
	p := newProcess(t, c)
	runs := c.assign(1, sh(untilScript, w.path)...)
	w.lines(1)
	supervisor := supervisorOf(t, p.dir)
	if err := syscall.Kill(supervisor, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waits := c.assign(2, "true")
	touch(t, w.path+".go")
	if err := syscall.Kill(supervisor, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for _, key := range []plan.Key{runs, waits} {
		if r := c.result(key); r.Reason != rotav1.EndReason_END_REASON_EXITED {
			t.Errorf("%s was reported as %v", key, r)
		}
	}
}

func TestASupervisorIsKilled(t *testing.T) {
	c, w := newCluster(t, 1), newWitness(t)
	p := newProcess(t, c)
	key := c.assign(1, sh(untilScript, w.path)...)
	pid := w.pid()
	if err := syscall.Kill(supervisorOf(t, p.dir), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, pid)
	if r := c.result(key); r.Reason != rotav1.EndReason_END_REASON_SUPERVISOR_LOST {
		t.Errorf("reported %v", r)
	}
	if r := c.result(c.assign(2, "true")); r.Reason != rotav1.EndReason_END_REASON_EXITED {
		t.Errorf("the next was reported as %v", r)
	}
	if n := w.lines(1); n != 1 {
		t.Errorf("the command was started %d times", n)
	}
}

// supervisorOf finds the supervisor of an agent's directory.
func supervisorOf(t *testing.T, dir string) int {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range procs {
		b, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(b), "\x00supervise\x00") && strings.Contains(string(b), dir) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatal("no supervisor runs")
	return 0
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestACommandWithoutCoresRuns on all CPUs of the node, beside one that has its own.
func TestACommandWithoutCoresRuns(t *testing.T) {
	c := newCluster(t, 1)
	newProcess(t, c)
	c.until("registration", func(c *cluster) bool { return len(c.registered) > 0 })
	key := plan.Key{Action: 1, Attempt: 1}
	c.change(func() {
		key.Incarnation = c.incarnation
		a := assignment(1, sh(`grep Cpus_allowed_list /proc/self/status; echo {{cores}} $ROTA_QUOTA_JUDGE`)...)
		a.Cpus, a.QuotaKeys = nil, []*rotav1.QuotaKey{{Quota: "judge", Key: 2}}
		c.desired[key] = a
	})
	out := string(c.result(key).StdoutTail)
	mine, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(mine), "Cpus_allowed_list:")
	allowed, _, _ := strings.Cut(rest, "\n")
	if want := "Cpus_allowed_list:" + allowed + "\n1 2\n"; out != want {
		t.Errorf("it says %q, want %q", out, want)
	}
}

func TestOutputIsReadWhileTheCommandRunsAndAfter(t *testing.T) {
	c, w := newCluster(t, 1), newWitness(t)
	newProcess(t, c)
	key := c.assign(1, sh(untilScript, w.path)...)
	w.lines(1)
	c.mu.Lock()
	address := c.registered[0].Address
	c.mu.Unlock()
	hc := httpx.NewClient(nil)
	defer hc.CloseIdleConnections()
	client := rotav1connect.NewOutputServiceClient(hc, httpx.BaseURL(address, false))
	stream, err := client.ReadOutput(t.Context(), &rotav1.ReadOutputRequest{ActionId: key.Action, Attempt: 1, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() || string(stream.Msg().Chunk.Data) != "begun\n" {
		t.Fatalf("first read %v, %v", stream.Msg(), stream.Err())
	}
	touch(t, w.path+".go")
	c.result(key)
	if !stream.Receive() || string(stream.Msg().Chunk.Data) != "over\n" || stream.Msg().Chunk.Offset != 6 {
		t.Errorf("then read %v, %v", stream.Msg(), stream.Err())
	}
	if stream.Receive() || stream.Err() != nil && !errors.Is(stream.Err(), io.EOF) {
		t.Errorf("the stream did not end with the command: %v", stream.Err())
	}
	for name, req := range map[string]*rotav1.ReadOutputRequest{
		"an unknown attempt": {ActionId: 99, Attempt: 1}, "no attempt": {ActionId: 1}, "a huge offset": {ActionId: 1, Attempt: 1, StdoutOffset: 1 << 63},
	} {
		s, err := client.ReadOutput(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if s.Receive() || connect.CodeOf(s.Err()) != connect.CodeNotFound && connect.CodeOf(s.Err()) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, s.Err())
		}
	}
}
