package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// must do an operation that succeeds.
func (m *mounted) must(t *testing.T, ops ...op) {
	t.Helper()
	for _, o := range ops {
		if err := m.do(o); err != nil {
			t.Fatalf("%v: %v", o, err)
		}
	}
}

// refuses expects an operation to fail so.
func (m *mounted) refuses(t *testing.T, o op, want string) {
	t.Helper()
	if err := m.do(o); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v: %v, want %q", o, err, want)
	}
}

// afterLoss returns the content of a file after a power loss.
func (m *mounted) afterLoss(t *testing.T, name string) string {
	t.Helper()
	if _, err := m.PowerLoss(1, false); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(m.Backing(), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// fileWith makes a durable file.
func (m *mounted) fileWith(t *testing.T, name, content string) {
	t.Helper()
	m.must(t, op{Kind: opCreate, Path: name}, op{Kind: opWrite, Path: name, Data: []byte(content)},
		op{Kind: opSync, Path: name}, op{Kind: opSync, Path: "."})
}

func write(name, content string) op { return op{Kind: opWrite, Path: name, Data: []byte(content)} }

const ioError = "input/output error"

func TestOperationsFailAsOftenAsTold(t *testing.T) {
	m := mount(t)
	m.fileWith(t, "a", "before")
	m.Fail(Write, 2)
	m.refuses(t, write("a", "x"), ioError)
	m.refuses(t, op{Kind: opCreate, Path: "b"}, ioError)
	m.must(t, write("a", "behind"))
	m.Fail(Fsync, 1)
	m.Fail(Write, 1)
	m.Heal()
	m.must(t, write("a", "beyond"), op{Kind: opSync, Path: "a"})
	if got := m.afterLoss(t, "a"); got != "beyond" {
		t.Errorf("left %q", got)
	}
	if n := m.Counters(); n.FailedWrites != 2 || n.FailedFsyncs != 0 || n.PowerLosses != 1 {
		t.Errorf("counters %+v", n)
	}
}

// The page cache forgets what a failed fsync was to write, and says so once.
func TestAFailedFsyncLosesWhatItWasToWrite(t *testing.T) {
	m := mount(t)
	m.fileWith(t, "a", "old.")
	m.must(t, write("a", "new."))
	m.Fail(Fsync, 1)
	m.refuses(t, op{Kind: opSync, Path: "a"}, ioError)
	m.must(t, op{Kind: opSync, Path: "a"})
	if got := contents(t, m.Backing())["a"].content; got != "new." {
		t.Errorf("readers see %q, want what was written", got)
	}
	if got := m.afterLoss(t, "a"); got != "old." {
		t.Errorf("left %q although its fsync had failed", got)
	}
}

func TestALyingFsyncMakesNothingDurable(t *testing.T) {
	m := mount(t)
	m.fileWith(t, "a", "old.")
	m.Lie(2)
	m.must(t, write("a", "new."), op{Kind: opSync, Path: "a"}, op{Kind: opSync, Path: "a"})
	if got := m.afterLoss(t, "a"); got != "old." {
		t.Errorf("left %q after a lie", got)
	}
	m.Lie(1)
	m.must(t, write("a", "new."), op{Kind: opSync, Path: "a"}, op{Kind: opSync, Path: "a"})
	if got := m.afterLoss(t, "a"); got != "new." {
		t.Errorf("left %q although the second fsync was honest", got)
	}
	if n := m.Counters().LiedFsyncs; n != 3 {
		t.Errorf("%d lies, want 3", n)
	}
}

func TestASynchronousWriteIsDurable(t *testing.T) {
	m := mount(t)
	m.fileWith(t, "a", "old.")
	m.must(t, op{Kind: opWriteSync, Path: "a", Data: []byte("new.")})
	if got := m.afterLoss(t, "a"); got != "new." {
		t.Errorf("left %q", got)
	}
}

func TestAHangingDiskGoesOnAfterItsRelease(t *testing.T) {
	m := mount(t)
	m.fileWith(t, "a", "old.")
	release := m.HangAfter(1, Write)
	m.must(t, write("a", "new.")) // the one that passes
	done := make(chan error, 1)
	go func() { done <- m.do(write("a", "hung")) }()
	for m.Counters().Hanging == 0 {
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	m.must(t, op{Kind: opSync, Path: "a"})
	if got := m.afterLoss(t, "a"); got != "hung" {
		t.Errorf("left %q", got)
	}
	if n := m.Counters(); n.HungWrites != 1 || n.Hanging != 0 {
		t.Errorf("counters %+v", n)
	}
}

// A power loss while a write hangs happens before that write.
func TestAPowerLossBeforeWhatHangs(t *testing.T) {
	m := mount(t)
	m.fileWith(t, "a", "old.")
	release := m.Hang(Fsync)
	m.must(t, write("a", "new."))
	done := make(chan error, 1)
	go func() { done <- m.do(op{Kind: opSync, Path: "a"}) }()
	for m.Counters().Hanging == 0 {
		time.Sleep(time.Millisecond)
	}
	if got := m.afterLoss(t, "a"); got != "old." {
		t.Errorf("left %q", got)
	}
	release()
	if err := <-done; err == nil || !strings.Contains(err.Error(), ioError) {
		t.Errorf("a file from before the power loss answers %v", err)
	}
}

func TestAFullDiskRefusesToGrow(t *testing.T) {
	const full = "no space left"
	m := mount(t)
	m.fileWith(t, "a", "1234")
	m.Full(4)
	m.refuses(t, write("a", "123456789"), full)
	m.must(t, write("a", "4321"), write("a", "12345678"))
	m.refuses(t, op{Kind: opTruncate, Path: "a", Off: 9}, full)
	m.must(t, op{Kind: opTruncate, Path: "a", Off: 5}, op{Kind: opTruncate, Path: "a", Off: 8})
	m.must(t, op{Kind: opRemove, Path: "a"}, op{Kind: opCreate, Path: "b"}, write("b", "12345678"))
	m.refuses(t, write("b", "123456789"), full)
	m.Heal()
	m.must(t, write("b", "123456789"))
	if n := m.Counters().RefusedWrites; n != 3 {
		t.Errorf("%d refused, want 3", n)
	}
}

// An fsync makes durable what was there when it began, and not what came while
// it was under way.
func TestAnFsyncIsAMomentInTime(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var c content
	put := func(b byte, off int64) {
		if err := c.write(f, []byte{b}, off); err != nil {
			t.Fatal(err)
		}
	}
	put('a', 0)
	put('a', 600)
	first := c.now()
	put('b', 0)
	second := c.now()
	put('c', 2000)
	c.settle(first)
	size, differ := c.remains(nil)
	if size != 601 || differ[0][0] != 'a' || differ[1] != nil {
		t.Errorf("left %d bytes, the first sector begins with %q, the second differs by %d bytes", size, differ[0][0], len(differ[1]))
	}
	c.settle(second)
	c.settle(first) // was overtaken
	if size, differ = c.remains(nil); size != 601 || differ[0] != nil || len(differ) != 1 {
		t.Errorf("left %d bytes, %d sectors differ", size, len(differ))
	}
}

// Every sector and every name has a chance of its own.
func TestTearsAreOfEveryKind(t *testing.T) {
	m := mount(t)
	seen := map[string]int{}
	for seed := range uint64(200) {
		m.fileWith(t, "a", strings.Repeat("o", 2*sector))
		m.must(t, write("a", strings.Repeat("n", 2*sector)), op{Kind: opCreate, Path: "b"})
		if _, err := m.PowerLoss(seed, true); err != nil {
			t.Fatal(err)
		}
		left := contents(t, m.Backing())
		kind := left["a"].content[:1] + left["a"].content[sector:sector+1]
		if _, there := left["b"]; there {
			kind += "b"
			m.must(t, op{Kind: opRemove, Path: "b"})
		}
		seen[kind]++
		m.must(t, op{Kind: opRemove, Path: "a"}, op{Kind: opSync, Path: "."})
	}
	for _, kind := range []string{"oo", "on", "no", "nn", "oob", "onb", "nob", "nnb"} {
		if seen[kind] == 0 {
			t.Errorf("no power loss left %s: %v", kind, seen)
		}
	}
}
