package engine

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"

	"rota/agent/engine/chunks"
	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/internal/engine/simulated"
)

// TestMain makes the test binary a simulated engine.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == simulated.Command {
		os.Exit(simulated.Main(context.Background(), os.Args[2:], os.Stderr))
	}
	os.Exit(m.Run())
}

const (
	gpuMemory = 80
	patience  = 60 * time.Second
	// hurry is how much faster the clock of pauses runs in tests.
	hurry = 100
)

// children run engines without a supervisor, and outlive managers.
type children struct {
	runtime.Streams // engines have none
	t               testing.TB

	mu      sync.Mutex
	running map[plan.Key]*exec.Cmd
	ended   map[plan.Key]plan.Exit
	started int
	onStart func() // nil: nothing
	onExit  func(plan.Exit)
	waits   sync.WaitGroup
}

func newChildren(t testing.TB) *children {
	c := &children{t: t, running: map[plan.Key]*exec.Cmd{}, ended: map[plan.Key]plan.Exit{}}
	t.Cleanup(func() {
		c.mu.Lock()
		c.onExit = func(plan.Exit) {}
		for _, cmd := range c.running {
			_ = cmd.Process.Kill()
		}
		c.mu.Unlock()
		c.waits.Wait()
	})
	return c
}

func (c *children) Start(_ context.Context, spec runtime.Spec) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.onStart != nil {
		c.onStart()
	}
	cmd := exec.Command(spec.Argv[0], spec.Argv[1:]...)
	cmd.Env = spec.Env
	stderr := &strings.Builder{}
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrInvalidSpec, err)
	}
	c.running[spec.Key] = cmd
	c.started++
	c.waits.Go(func() {
		_ = cmd.Wait()
		e := plan.Exit{Key: spec.Key, Reason: plan.ReasonExited, ExitCode: cmd.ProcessState.ExitCode(), Stderr: []byte(stderr.String())}
		if s := cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
			e.Signal = int(s.Signal())
		}
		c.mu.Lock()
		delete(c.running, spec.Key)
		c.ended[spec.Key] = e
		f := c.onExit
		c.mu.Unlock()
		f(e)
	})
	return nil
}

func (c *children) Kill(_ context.Context, key plan.Key, _ plan.Reason) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cmd := c.running[key]; cmd != nil {
		_ = cmd.Process.Kill()
	}
	return nil
}

func (c *children) List(context.Context) (running []plan.Running, ended []plan.Exit, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.running {
		running = append(running, plan.Running{Key: k})
	}
	return running, slices.Collect(maps.Values(c.ended)), nil
}

func (c *children) Forget(_ context.Context, keys []plan.Key) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range keys {
		delete(c.ended, k)
	}
	return nil
}

func (c *children) Resize(context.Context, plan.Key, []int) error          { return nil }
func (c *children) Freeze(context.Context, plan.Key, bool) error           { return nil }
func (c *children) KeepTrajectories(context.Context, []uint64) error       { return nil }
func (c *children) Measure(context.Context, uint64) ([]runtime.Use, error) { return nil, nil }
func (c *children) MakeTrajectory(context.Context, uint64) (int, error)    { return 0, nil }
func (c *children) Exits() <-chan plan.Exit                                { return nil }
func (c *children) SetDeadline(context.Context, int64) error               { return nil }
func (c *children) Describe() runtime.Description                          { return runtime.Description{} }
func (c *children) Stop(context.Context) error                             { return nil }
func (c *children) Close() error                                           { return nil }

// crash kills every engine as kill -9 does.
func (c *children) crash() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range c.running {
		_ = cmd.Process.Kill()
	}
}

// node is the engines of a node with one GPU, and what an agent does with them.
type node struct {
	t        *testing.T
	children *children
	account  string
	manager  *Manager
	cancel   context.CancelFunc
	doing    sync.WaitGroup

	mu      sync.Mutex
	chunks  *chunks.Chunks
	changed chan struct{}
	used    map[plan.Engine]bool
	began   time.Time
}

func newNode(t *testing.T) *node {
	n := &node{t: t, children: newChildren(t), account: t.TempDir(), used: map[plan.Engine]bool{}, began: time.Now()}
	n.boot(filepath.Join(t.TempDir(), "engines.record"), nil)
	t.Cleanup(n.halt)
	return n
}

// boot starts an agent on a record.
func (n *node) boot(record string, memory func(int) (uint64, uint64, error)) {
	n.t.Helper()
	n.chunks = chunks.New(chunks.Limits{GPUs: 1, MemoryBytes: gpuMemory, AsleepMax: 4})
	n.changed = make(chan struct{})
	var err error
	n.manager, err = New(Options{
		Record: record, Logger: hclog.New(&hclog.LoggerOptions{Output: n.t.Output(), Level: hclog.Debug}),
		Runtime: func() runtime.Runtime { return n.children }, Describe: n.describe, Tell: n.tell,
		GPUMemory: memory, WatchEvery: 20 * time.Millisecond,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.manager.Open(7)
	n.children.mu.Lock()
	n.children.onExit = n.manager.Exited
	n.children.mu.Unlock()
	running, ended, _ := n.children.List(n.t.Context())
	n.tell(n.manager.Connected(running, ended))
	var ctx context.Context
	ctx, n.cancel = context.WithCancel(context.Background())
	n.doing.Go(func() { _ = n.manager.Watch(ctx) })
	n.doing.Go(func() { n.drive(ctx) })
}

// halt ends the agent, and leaves the engines.
func (n *node) halt() {
	n.cancel()
	n.doing.Wait()
	n.children.mu.Lock()
	n.children.onExit = func(plan.Exit) {}
	n.children.mu.Unlock()
	n.manager.Wait()
}

// reboot starts another agent on the same record.
func (n *node) reboot() {
	n.t.Helper()
	n.halt()
	n.boot(n.manager.Record, n.manager.GPUMemory)
}

func (n *node) now() int64 { return 1 + int64(time.Since(n.began))*hurry }

func (n *node) tell(f func(c *chunks.Chunks, now int64)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n.chunks, n.now())
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *node) drive(ctx context.Context) {
	for {
		n.mu.Lock()
		steps, again := n.chunks.Next(n.now(), true, func(e plan.Engine) bool { return n.used[e] })
		wait := time.Duration(min(again-n.now(), int64(time.Minute)) / hurry)
		changed := n.changed
		n.mu.Unlock()
		for _, s := range steps {
			n.doing.Go(n.manager.Begin(ctx, s, n.children))
		}
		timer := time.NewTimer(max(wait, time.Millisecond))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

func (n *node) describe(l Launch) (runtime.Spec, error) {
	argv := slices.Clone(l.Spec.GetCommand().GetArgv())
	for i := range argv {
		argv[i] = strings.ReplaceAll(argv[i], "{{port}}", strconv.Itoa(l.Port))
	}
	return runtime.Spec{Key: l.Key, Argv: argv, Env: os.Environ()}, nil
}

// spec is a model that takes the whole GPU.
func (n *node) spec(model string, driver rotav1.EngineDriver, misbehave string) *rotav1.EngineSpec {
	dialect := simulated.SGLang
	if driver == rotav1.EngineDriver_ENGINE_DRIVER_VLLM {
		dialect = simulated.VLLM
	}
	s := &rotav1.EngineSpec{
		Model: model, Driver: driver, StartTimeout: durationpb.New(patience), CallTimeout: durationpb.New(patience),
		Command: &rotav1.Command{Argv: []string{"/proc/self/exe", simulated.Command, "--listen=127.0.0.1:{{port}}", "--model=" + model, "--dialect=" + dialect, "--step=0s", weightsBackup,
			"--account=" + n.account, "--memory=" + strconv.Itoa(gpuMemory), "--capacity=" + strconv.Itoa(gpuMemory),
			"--devices=0", "--misbehave=" + misbehave}},
	}
	if driver == rotav1.EngineDriver_ENGINE_DRIVER_HTTP {
		s.Sleep = &rotav1.EngineCall{Path: "/release_memory_occupation", Body: []byte(`{"tags":["all"]}`)}
		s.Wake = &rotav1.EngineCall{Method: "POST", Path: "/resume_memory_occupation", Body: []byte(`{"tags":["all"]}`)}
	}
	return s
}

func on(model string) plan.Engine { return plan.Engine{Model: model, GPUs: 1} }

// desire has these models ready, one of them at most being there at a time.
func (n *node) desire(specs ...*rotav1.EngineSpec) {
	all := map[plan.Engine]*rotav1.EngineSpec{}
	var wants []chunks.Want
	for _, s := range specs {
		all[on(s.GetModel())] = s
		wants = append(wants, chunks.Want{
			Engine: on(s.GetModel()), Version: chunks.Version{Generation: 1, MemoryBytes: gpuMemory},
			Sleeps: Sleeps(s),
		})
	}
	n.tell(func(c *chunks.Chunks, _ int64) {
		n.manager.Desire(all)
		c.Desire(wants)
	})
}

// until waits until a model's engine is as it should be.
func (n *node) until(model string, state chunks.State) (s chunks.Status) {
	n.t.Helper()
	limit := time.After(patience)
	for {
		n.mu.Lock()
		var ok bool
		s, ok = n.chunks.Status(on(model))
		changed := n.changed
		n.mu.Unlock()
		if s.State == state || state == 0 && !ok {
			return s
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond): // a step was begun
		case <-limit:
			n.t.Fatalf("model %s is not %d in the end: %+v", model, state, s)
		}
	}
}

// untilForgotten waits until the supervisor was told to forget the end of every engine.
func (n *node) untilForgotten() {
	n.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		_, ended, _ := n.children.List(n.t.Context())
		if len(ended) == 0 {
			return
		}
		if time.Now().After(end) {
			n.t.Fatalf("the supervisor still remembers %+v", ended)
		}
	}
}

// memory is what engines have of the GPU.
func (n *node) memory() uint64 {
	n.t.Helper()
	used, err := simulated.Used(n.account, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	return used
}
