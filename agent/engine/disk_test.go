package engine

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"rota/agent/engine/chunks"
	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/internal/engine/simulated"
)

// TestAFullDisk refuses new engines. Those that run go on, fall asleep and wake, and the record is
// written once there is room.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a, b, c := n.spec("a", vllm, ""), n.spec("b", vllm, ""), n.spec("c", vllm, "")
	n.desire(a)
	n.until("a", chunks.StateReady)
	n.desire(b)
	n.until("b", chunks.StateReady)
	n.manager.Wait()
	inTheWay := n.manager.Record + ".new"
	if err := os.MkdirAll(filepath.Join(inTheWay, "file"), 0o700); err != nil {
		t.Fatal(err)
	}
	n.desire(a)
	s := n.until("a", chunks.StateReady)
	asleep := n.until("b", chunks.StateAsleep)
	if s.Counts.Failures+asleep.Counts.Failures != 0 || s.Counts.Starts != 1 || s.Counts.Wakes != 1 || !n.completes("a") {
		t.Errorf("engines that run: %+v, %+v", s, asleep)
	}
	n.desire(c)
	if s := n.until("c", chunks.StateFailed); !strings.Contains(s.Message, "make room for "+n.manager.Record) || s.Counts.Starts != 0 {
		t.Errorf("a new engine: %+v", s)
	}
	if _, err := os.Stat(n.manager.Record); err == nil {
		t.Error("an old record is left")
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	n.desire(a)
	n.until("a", chunks.StateReady)
	for end := time.Now().Add(patience); n.manager.unrecorded.Load(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the record is not written again")
		}
	}
	n.reboot()
	if s := n.until("a", chunks.StateReady); s.Counts.Starts != 0 {
		t.Errorf("another agent starts it again: %+v", s)
	}
}

// TestADiskThatHangs holds up steps, and not what the agent asks under its own lock. The engines end
// with their session none the less.
func TestADiskThatHangs(t *testing.T) {
	for _, step := range []string{"start", "sleep"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			a := n.spec("a", vllm, "")
			if step == "sleep" {
				n.desire(a)
				n.until("a", chunks.StateReady)
			}
			stuck := n.manager.Record + ".new"
			n.whileWriting(stuck, func() {
				if step == "sleep" {
					n.desire()
				} else {
					n.desire(a)
				}
			})
			answered := make(chan bool)
			go func() {
				n.manager.Desire(nil)
				n.manager.Recorded()
				n.manager.Orphans()
				n.manager.Begin(t.Context(), chunks.Step{}, nil)
				answered <- n.manager.Lives(on("a"))
			}()
			select {
			case lives := <-answered:
				if !lives {
					t.Error("the engine is gone")
				}
			case <-time.After(patience):
				t.Error("the agent waits for the disk")
			}
			n.tell(func(c *chunks.Chunks, _ int64) { c.KillAll() })
			n.until("a", 0)
			if n.manager.Lives(on("a")) || n.memory() != 0 || step == "start" && n.children.started != 0 {
				t.Error("it lives on")
			}
			r, err := os.Open(stuck)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if _, err := io.Copy(io.Discard, r); err != nil {
				t.Error(err)
			}
		})
	}
}

// A disk that hangs takes none of the time that an engine has to fall asleep.
func TestADiskThatHangsFailsNoCall(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.spec("a", vllm, "")
	a.CallTimeout = durationpb.New(2 * time.Second)
	n.desire(a)
	n.until("a", chunks.StateReady)
	n.manager.recording.Lock() // who writes the record hangs
	n.desire()
	n.untilLeft("a", leftBusy)
	time.Sleep(a.CallTimeout.AsDuration() + 100*time.Millisecond)
	n.manager.recording.Unlock()
	if s := n.until("a", chunks.StateAsleep); s.Counts.Failures != 0 || n.memory() != 0 {
		t.Errorf("%+v", s)
	}
}

// An engine that falls ill while the disk hangs at the end of its start is noticed after that.
func TestAnEngineThatFallsIllWhileTheDiskHangs(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	hang := sync.OnceFunc(n.manager.recording.Lock)
	n.children.mu.Lock()
	n.children.onStart = hang
	n.children.mu.Unlock()
	n.desire(n.spec("a", vllm, ""))
	n.untilLeft("a", leftAwake)
	c := &client{base: n.manager.URL(on("a")), http: n.manager.http}
	_, err := c.call(t.Context(), http.MethodPost, "/simulated/misbehave?what="+simulated.Sick, nil)
	time.Sleep(20 * n.manager.WatchEvery)
	n.manager.recording.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); n.until("a", chunks.StateReady).Counts.Starts < 2; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it was not restarted")
		}
	}
	if !n.completes("a") {
		t.Error("it does not serve")
	}
}

// A step that begins to run when another was decided since does nothing: the engine may be a new one.
func TestAStepThatIsLate(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.desire(n.spec("a", vllm, ""))
	n.until("a", chunks.StateReady)
	for _, action := range []chunks.Action{chunks.Sleep, chunks.Wake, chunks.Stop} {
		late := chunks.Step{Action: action, Want: chunks.Want{Engine: on("a")}, Number: 1000}
		do := n.manager.Begin(t.Context(), late, n.children)
		n.manager.Begin(t.Context(), chunks.Step{Action: chunks.Start, Want: late.Want, Number: 1001}, n.children)
		do()
		if n.untilLeft("a", leftAwake); n.memory() != gpuMemory || !n.completes("a") {
			t.Errorf("step %d was done", action)
		}
	}
}

// untilLeft waits until a model's engine is noted to be left so.
func (n *node) untilLeft(model string, as left) {
	n.t.Helper()
	is := func() bool {
		n.manager.mu.Lock()
		defer n.manager.mu.Unlock()
		p := n.manager.processes[on(model)]
		return p != nil && p.left == as
	}
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			n.t.Fatalf("model %s is not left %s", model, as)
		}
	}
}

// whileWriting does something that has the record written, and returns while the file that is written
// first hangs.
func (n *node) whileWriting(path string, do func()) {
	n.t.Helper()
	n.manager.recording.Lock()
	err := syscall.Mkfifo(path, 0o600) // who writes to it waits for a reader
	n.manager.recording.Unlock()
	if err != nil {
		n.t.Fatal(err)
	}
	do()
	for end := time.Now().Add(patience); n.manager.recording.TryLock(); time.Sleep(time.Millisecond) {
		n.manager.recording.Unlock()
		if time.Now().After(end) {
			n.t.Fatal("nothing is written")
		}
	}
}

// TestAPortThatIsTaken meanwhile by another program is no failure of the engine.
func TestAPortThatIsTaken(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	tries := 0
	n.manager.Describe = func(launch Launch) (runtime.Spec, error) {
		if tries++; tries < portTries {
			launch.Port = taken
		}
		return n.describe(launch)
	}
	n.desire(n.spec("a", vllm, ""))
	s := n.until("a", chunks.StateReady)
	if s.Counts.Failures != 0 || tries != portTries || !n.completes("a") || strings.HasSuffix(n.manager.URL(on("a")), strconv.Itoa(taken)) {
		t.Errorf("after %d tries: %+v", tries, s)
	}
	n.untilForgotten()
}

// TestAPortIsChosenLate: after the wait for memory, so that it is still free when the engine starts.
func TestAPortIsChosenLate(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.halt()
	free := make(chan bool)
	n.boot(n.manager.Record, func(int) (used, total uint64, err error) {
		select {
		case <-free:
			return 0, gpuMemory, nil
		default:
			return gpuMemory, gpuMemory, nil
		}
	})
	n.desire(n.spec("a", vllm, ""))
	for end := time.Now().Add(patience); !n.manager.Lives(on("a")); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is not started")
		}
	}
	if url := n.manager.URL(on("a")); url != "" {
		t.Errorf("it has the address %s and waits for memory", url)
	}
	close(free)
	n.until("a", chunks.StateReady)
}

// TestOrphans are told of until they have ended.
func TestOrphans(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.desire(n.spec("a", vllm, ""))
	n.until("a", chunks.StateReady)
	n.halt()
	if err := os.Remove(n.manager.Record); err != nil {
		t.Fatal(err)
	}
	m, err := New(n.manager.Options)
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan bool, 10)
	m.Tell = func(func(*chunks.Chunks, int64)) { told <- m.Orphans() }
	running, ended, _ := n.children.List(t.Context())
	m.Connected(running, ended)
	if !m.Orphans() {
		t.Fatal("an engine runs that the record does not know")
	}
	m.Exited(plan.Exit{Key: running[0].Key})
	m.Wait()
	for len(told) > 0 {
		if <-told {
			t.Error("it is told before the orphan is gone")
		}
	}
	if m.Orphans() {
		t.Error("it has ended")
	}
}

// TestTheEndOfAnUnknownEngineHoldsUpNoOthers, though the supervisor does not answer.
func TestTheEndOfAnUnknownEngineHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.children.mu.Lock() // it answers nothing
	defer n.children.mu.Unlock()
	told := make(chan struct{})
	go func() {
		defer close(told)
		n.manager.Exited(plan.Exit{Key: plan.Key{Action: 99, Incarnation: 7}})
	}()
	select {
	case <-told:
	case <-time.After(patience):
		t.Error("it waits for the supervisor")
	}
}
