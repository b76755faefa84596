package witness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"rota/jepsen/cluster"
	"rota/jepsen/history"
)

// probePath is the probe and enginePath the engine, built once.
var probePath, enginePath string

func TestMain(m *testing.M) { goleak.VerifyTestMain(builder{m}) }

type builder struct{ *testing.M }

func (b builder) Run() int {
	dir, err := os.MkdirTemp("", "rota-probe-")
	if err == nil {
		defer os.RemoveAll(dir)
		probePath, err = cluster.Build(context.Background(), dir, cluster.BuildOptions{Package: Package})
	}
	if err == nil {
		enginePath, err = cluster.Build(context.Background(), dir, cluster.BuildOptions{Package: EnginePackage})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return b.M.Run()
}

// patience is for what must happen but takes its time on a slow machine.
const patience = 20 * time.Second

func until(t *testing.T, what string, check func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !check(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

func listen(t *testing.T) *Witness {
	t.Helper()
	// The path of a Unix socket must be short.
	dir, err := os.MkdirTemp("", "w")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	begin := time.Now()
	w, err := Listen(filepath.Join(dir, "s"), func() int64 { return int64(time.Since(begin)) })
	if err != nil {
		t.Fatal(err)
	}
	w.Probe, w.Engine = probePath, enginePath
	t.Cleanup(func() { w.Close() })
	return w
}

// start runs a probe as an agent would, with a token.
func start(t *testing.T, w *Witness, token string, work Work, env ...string) *exec.Cmd {
	t.Helper()
	return ask(t, w, token, history.Asked{}, work, env...)
}

// ask is start for an action that asks for something.
func ask(t *testing.T, w *Witness, token string, asked history.Asked, work Work, env ...string) *exec.Cmd {
	t.Helper()
	command := w.Command("request-"+token, asked, work)
	cmd := exec.Command(command.Argv[0], command.Argv[1:]...)
	cmd.Env = slices.Concat(env, []string{"ROTA_FENCING_TOKEN=" + token, "ROTA_NODE=node-1"})
	for k, v := range command.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}

func TestAnExecutionIsSeenFromItsStartToItsEnd(t *testing.T) {
	w := listen(t)
	if err := start(t, w, "7.2.31", Work{For: 30 * time.Millisecond}).Wait(); err != nil {
		t.Fatal(err)
	}
	until(t, "its end is seen", func() bool { return len(w.Alive()) == 0 && len(w.Executions()) == 1 })
	e := w.Executions()[0]
	if took := time.Duration(e.End - e.Start); took < 30*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	if e.Alive < e.Start || e.Alive > e.End {
		t.Errorf("it was alive at %d: %+v", e.Alive, e)
	}
	e.Start, e.End, e.Alive = 0, 0, 0
	want := history.Execution{RequestID: "request-7.2.31", Action: 7, Attempt: 2, Incarnation: 31, Node: "node-1", Complete: true}
	if fmt.Sprint(e) != fmt.Sprint(want) {
		t.Errorf("seen: %+v, want %+v", e, want)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestAPinnedExecutionTellsItsCPUs(t *testing.T) {
	w := listen(t)
	if err := start(t, w, "1.1.1", Work{Spin: true, For: time.Millisecond}, "ROTA_CPUS=0").Wait(); err != nil {
		t.Fatal(err)
	}
	var own int // the probe has the affinity of its parent
	for line := range strings.Lines(read(t, "/proc/self/status")) {
		if rest, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			fmt.Sscan(rest, &own)
		}
	}
	if e := w.Executions()[0]; len(e.Cores) == 0 || e.Cores[0] != own || !slices.IsSorted(e.Cores) {
		t.Errorf("it ran on CPUs %v, the first of this process is %d", e.Cores, own)
	}
}

// TestAnExecutionTellsWhatItWasGiven: GPUs and keys of quotas, beside what its
// client said that it asks for.
func TestAnExecutionTellsWhatItWasGiven(t *testing.T) {
	w := listen(t)
	asked := history.Asked{Cores: []int{0}, GPUs: []int{1, 2}, Quotas: []history.Use{{Quota: "chat", Units: 2}, {Quota: "judge", Units: 1}}}
	if err := ask(t, w, "1.1.1", asked, Work{}, "ROTA_CORES=3", "ROTA_GPUS=5,4", "ROTA_QUOTA_CHAT=3", "ROTA_QUOTA_OTHER=1").Wait(); err != nil {
		t.Fatal(err)
	}
	e := w.Executions()[0]
	uses := []history.Use{{Quota: "chat", Units: 2, Key: 3}, {Quota: "judge", Units: 1}}
	if e.Width != 3 || !slices.Equal(e.GPUs, []int{4, 5}) || !slices.Equal(e.Uses, uses) || fmt.Sprint(e.Asked) != fmt.Sprint(asked) {
		t.Errorf("seen: %+v", e)
	}
}

// TestExecutionsOfATrajectoryLeaveMarks: each finds those of the earlier ones.
func TestExecutionsOfATrajectoryLeaveMarks(t *testing.T) {
	w := listen(t)
	dir := t.TempDir()
	for _, token := range []string{"1.1.5", "2.1.5", "3.2.5"} {
		if err := start(t, w, token, Work{}, "ROTA_TRAJECTORY_ID=7", "ROTA_TRAJECTORY_DIR="+dir).Wait(); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all are seen", func() bool { return len(w.Alive()) == 0 && len(w.Executions()) == 3 })
	for i, e := range w.Executions() {
		if want := []string{"1.1.5", "2.1.5", "3.2.5"}[:i]; e.Trajectory != 7 || !slices.Equal(e.Found, want) || e.Marked < e.Start {
			t.Errorf("the mark of %s was left at %d in %d, where %v was found", e.Token(), e.Marked, e.Trajectory, e.Found)
		}
	}
}

// TestMoreCoresOrGPUsAreFaster: they share what can be shared.
func TestMoreCoresOrGPUsAreFaster(t *testing.T) {
	w := listen(t)
	work := Work{For: 100 * time.Millisecond, Parallel: 4 * time.Second}
	for i, env := range []string{"ROTA_CORES=8", "ROTA_GPUS=0,1,2,3,4,5,6,7", "ROTA_CORES=4"} {
		if err := start(t, w, fmt.Sprintf("%d.1.1", i+1), work, env).Wait(); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "their ends are seen", func() bool { return len(w.Alive()) == 0 })
	for i, least := range []time.Duration{600, 600, 1100} {
		e := w.Executions()[i]
		if took := time.Duration(e.End - e.Start); took < least*time.Millisecond || took > least*time.Millisecond+3*time.Second {
			t.Errorf("execution %d took %v, at least %d ms are wanted", i+1, took, least)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAKilledExecutionEndsIncomplete(t *testing.T) {
	w := listen(t)
	cmd := start(t, w, "1.1.1", Work{For: time.Hour})
	until(t, "it is alive", func() bool { return len(w.Alive()) == 1 })
	cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(20 * time.Millisecond)
	if len(w.Alive()) != 1 {
		t.Error("a frozen execution counts as dead")
	}
	cmd.Process.Kill()
	cmd.Wait()
	until(t, "its end is seen", func() bool { return len(w.Alive()) == 0 })
	if w.Executions()[0].Complete {
		t.Error("it counts as complete")
	}
}

// A child that outlives the command is the execution, too.
func TestAnExecutionLastsUntilItsLastProcessIsGone(t *testing.T) {
	w := listen(t)
	if err := start(t, w, "1.1.1", Work{For: time.Millisecond, Child: 200 * time.Millisecond}).Wait(); err != nil {
		t.Fatal(err)
	}
	if len(w.Alive()) != 1 {
		t.Error("the child is alive and the execution is not")
	}
	until(t, "the child is gone", func() bool { return len(w.Alive()) == 0 })
	e := w.Executions()[0]
	if took := time.Duration(e.End - e.Start); took < 200*time.Millisecond || !e.Complete {
		t.Errorf("it took %v, complete: %v", took, e.Complete)
	}
}

func TestAProbeThatIsNotSeenDoesNotWork(t *testing.T) {
	w := listen(t)
	w.Close()
	begin := time.Now()
	err := start(t, w, "1.1.1", Work{For: time.Minute}).Wait()
	if err == nil || time.Since(begin) > 30*time.Second {
		t.Errorf("it ended with %v after %v", err, time.Since(begin))
	}
}

// say is a probe of this very process, so that it dies when the test wants.
func say(t *testing.T, w *Witness, hello string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", w.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fmt.Fprintln(c, hello)
	return c
}

// The order of an end and of the start that it made possible is never turned
// round, however busy the witness is: a checker would see two alive at once.
func TestAnEndIsRecordedBeforeTheStartThatFollows(t *testing.T) {
	w := listen(t)
	const chains, links = 20, 100
	done := make(chan error, chains)
	for chain := range chains {
		go func() {
			for link := range links {
				c, err := net.Dial("unix", w.path)
				if err != nil {
					done <- err
					return
				}
				fmt.Fprintf(c, "%d.%d.1 node request - 0 - - {}\n", chain+1, link+1)
				if _, err := bufio.NewReader(c).ReadByte(); err != nil {
					done <- err
					return
				}
				c.Close()
			}
			done <- nil
		}()
	}
	for range chains {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all have ended", func() bool { return len(w.Alive()) == 0 })
	newest := map[uint64]history.Execution{}
	for _, e := range w.Executions() {
		if before := newest[e.Action]; before.End > e.Start {
			t.Fatalf("action %d: attempt %d ended at %d, attempt %d began at %d", e.Action, before.Attempt, before.End, e.Attempt, e.Start)
		}
		newest[e.Action] = e
	}
	if n := len(w.Executions()); n != chains*links {
		t.Errorf("%d executions were seen", n)
	}
}

func TestTwoAtTheSameTimeAreSeenAsSuch(t *testing.T) {
	w := listen(t)
	first := say(t, w, "5.1.1 a r - 0 - - {}")
	until(t, "the first is alive", func() bool { return len(w.Alive()) == 1 })
	say(t, w, "5.2.2 b r - 0 - - {}")
	until(t, "both are alive", func() bool { return len(w.Alive()) == 2 })
	first.Close()
	until(t, "one has ended", func() bool { return len(w.Alive()) == 1 })
	e := w.Executions()
	if e[0].End <= e[1].Start {
		t.Errorf("they do not overlap: %+v", e)
	}
}

// connect is a probe that has been let to work.
func connect(t *testing.T, w *Witness, hello string) net.Conn {
	t.Helper()
	c := say(t, w, hello)
	if _, err := bufio.NewReader(c).ReadByte(); err != nil {
		t.Fatal(err)
	}
	return c
}

// endOf waits until an execution has ended.
func endOf(t *testing.T, w *Witness, at int) history.Execution {
	t.Helper()
	until(t, "its end is seen", func() bool { return len(w.Executions()) > at && w.Executions()[at].End > 0 })
	return w.Executions()[at]
}

// A witness that is late records ends late, but never claims that something was
// alive which was not.
func TestALateWitnessKnowsUntilWhenAnExecutionWasAlive(t *testing.T) {
	w := listen(t)
	first, second := connect(t, w, "1.1.1 a r - 0 - - {}"), connect(t, w, "2.1.1 a r - 0 - - {}")
	w.mu.Lock() // nothing can be recorded
	first.Close()
	firstGone := w.now()
	time.Sleep(50 * time.Millisecond) // it looks, and stops at the first
	second.Close()
	say(t, w, "3.1.1 a r - 0 - - {}").Close()
	secondGone := w.now()
	time.Sleep(50 * time.Millisecond)
	late := w.now()
	w.mu.Unlock()

	for at, gone := range []int64{firstGone, secondGone} {
		if e := endOf(t, w, at); e.Alive < e.Start || e.Alive > gone || e.End < late {
			t.Errorf("it was gone at %d, the witness late until %d: %+v", gone, late, e)
		}
	}
	if e := endOf(t, w, 2); e.Alive != 0 {
		t.Errorf("it was gone before it could work: %+v", e)
	}
}

func TestWhatOthersDoShowsThatAnExecutionIsAlive(t *testing.T) {
	w := listen(t)
	c := connect(t, w, "1.1.1 a r - 0 - - {}")
	since := w.now()
	connect(t, w, "2.1.1 a r - 0 - - {}") // is not heard in a look that began before
	c.Close()
	if e := endOf(t, w, 0); e.Alive < since {
		t.Errorf("it was alive at %d: %+v", since, e)
	}
}

func TestAnExecutionIsSeenThoughNothingHappens(t *testing.T) {
	w, at := listen(t), -1
	until(t, "one is seen alive after its start", func() bool {
		c := connect(t, w, "1.1.1 a r - 0 - - {}")
		time.Sleep(5 * lookEvery * time.Millisecond)
		c.Close()
		at++
		e := endOf(t, w, at)
		return e.Alive > e.Start
	})
}

// What did not fit into a look may have ended before it.
func TestALookWithoutRoomForMoreShowsNothing(t *testing.T) {
	w := listen(t)
	c := connect(t, w, "1.1.1 a r - 0 - - {}")
	var crowd []net.Conn
	for i := range eventsMax + 1 {
		crowd = append(crowd, connect(t, w, fmt.Sprintf("%d.1.1 a r - 0 - - {}", i+2)))
	}
	w.mu.Lock()
	crowd[0].Close()
	time.Sleep(50 * time.Millisecond) // it looks, and stops at the first
	for _, other := range crowd[1:] {
		other.Close()
	}
	c.Close()
	gone := w.now()
	w.mu.Unlock()
	for at := range w.Executions() {
		if e := endOf(t, w, at); e.Alive > gone {
			t.Fatalf("execution %d was gone at %d: %+v", at, gone, e)
		}
	}
}

func TestWhatTheWitnessDoesNotUnderstandMakesItBlind(t *testing.T) {
	for _, hello := range []string{
		"nonsense", "1.1 node r - 0 - - {}", "1.1.1 node r 0,x 0 - - {}", "1.x.1 node r - 0 - - {}", "1.1.1 node r - 0 - - {}\nwhat", "1.1.1 node r - 0 - - {}\nmarked x -",
		"1.1.1 node r - x - - {}", "1.1.1 node r - 0 x - {}", "1.1.1 node r - 0 - A=x {}", "1.1.1 node r - 0 - - what", "1.1.1 node r - 0 - -",
	} {
		w := listen(t)
		say(t, w, hello).(*net.UnixConn).CloseWrite()
		until(t, "the witness noticed", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.err != nil
		})
		if err := w.Close(); err == nil {
			t.Errorf("%q passed as a hello", hello)
		}
	}
}

// BenchmarkStarts is what the witness can take, probes excluded.
func BenchmarkStarts(b *testing.B) {
	path := filepath.Join(b.TempDir(), "s")
	w, err := Listen(path, func() int64 { return 1 })
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	for b.Loop() {
		c, err := net.Dial("unix", path)
		if err != nil {
			b.Fatal(err)
		}
		fmt.Fprintln(c, "1.1.1 node request - 0 - - {}")
		bufio.NewReader(c).ReadByte()
		c.Close()
	}
}

// TestAnExecutionSeesOtherCPUs: one that can use different numbers of them says which it
// runs on, and from when to when.
func TestAnExecutionSeesOtherCPUs(t *testing.T) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil || all.Count() < 2 {
		t.Skipf("this needs two CPUs, there are %d: %v", all.Count(), err)
	}
	w := listen(t)
	cmd := ask(t, w, "1.1.1", history.Asked{Cores: []int{1, 2}}, Work{For: time.Hour}, "ROTA_CORES=2", "ROTA_CPUS=0,1")
	seen := func() []history.Seen {
		if e := w.Executions(); len(e) == 1 {
			return e[0].Seen
		}
		return nil
	}
	until(t, "it says what it runs on", func() bool { return len(seen()) == 1 })
	var first unix.CPUSet
	for cpu := 0; first.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			first.Set(cpu)
		}
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err := errors.Join(err, unix.SchedSetaffinity(id, &first)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "it sees that it has one", func() bool { s := seen(); return len(s) > 1 && len(s[len(s)-1].Cores) == 1 })
	cmd.Process.Kill()
	cmd.Wait()
	until(t, "its end is seen", func() bool { return len(w.Alive()) == 0 })
	e := w.Executions()[0]
	last := e.Start
	for _, s := range e.Seen {
		if s.From < last || s.Until < s.From || s.Until > e.End {
			t.Fatalf("it lived from %d to %d and saw %+v", e.Start, e.End, e.Seen)
		}
		last = s.Until
	}
	if len(e.Seen[0].Cores) != all.Count() {
		t.Errorf("it began on %v and saw %v at first", e.Cores, e.Seen[0].Cores)
	}
}

// descriptors are the open ones of this process.
func descriptors(t *testing.T) map[int]bool {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	open := map[int]bool{}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			open[fd] = true
		}
	}
	return open
}

// TestAnEndIsNotTakenForThatOfTheNext: a copy of a descriptor, such as a process has that is just
// being started, keeps the kernel reporting an end under a number that others get.
func TestAnEndIsNotTakenForThatOfTheNext(t *testing.T) {
	w := listen(t)
	before := descriptors(t)
	first := say(t, w, "1.1.1 node r - 0 - - {}")
	until(t, "the first is seen", func() bool { return len(w.Alive()) == 1 })
	for fd := range descriptors(t) {
		if before[fd] {
			continue
		}
		kept, err := unix.Dup(fd) // also of the end of it that is the test's
		if err != nil {
			continue // it was that of the folder
		}
		defer unix.Close(kept)
		_ = unix.Shutdown(fd, unix.SHUT_WR) // what is no connection has none
	}
	first.Close()
	until(t, "the first has ended", func() bool { return len(w.Alive()) == 0 })
	const others = 8 // one of them has the number
	for i := range others {
		defer say(t, w, fmt.Sprintf("%d.1.1 node r - 0 - - {}", i+2)).Close()
	}
	until(t, "the others are seen", func() bool { return len(w.Executions()) == others+1 })
	time.Sleep(5 * lookEvery * time.Millisecond)
	if alive := w.Alive(); len(alive) != others {
		t.Errorf("%d of %d are alive", len(alive), others)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
