package layers_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"rota/agent/layers"
)

// crashEnv is the folder of a place in which this binary works until it is killed.
const crashEnv = "LAYERS_CRASH_DIR"

// TestWorksUntilItIsKilled is the process that the next test kills.
func TestWorksUntilItIsKilled(t *testing.T) {
	dir := os.Getenv(crashEnv)
	if dir == "" {
		t.Skip("run by TestAKillLeavesNothingHalfDone")
	}
	p := &place{dir: dir}
	s, err := layers.Open(filepath.Join(dir, "store"), p.homeOf, hclog.NewNullLogger(), true, plenty)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stdout.WriteString("begin\n"); err != nil {
		t.Fatal(err)
	}
	home := p.home
	for id := uint64(1); ; id++ {
		if err := s.Take(t.Context(), id, "", 11, home("one")); err != nil {
			t.Fatal(err)
		}
		if err := s.Begin(t.Context(), id, 12, home("two")); err != nil {
			t.Fatal(err)
		}
		if err := s.Remove(id); err != nil {
			t.Fatal(err)
		}
		if err := s.Take(t.Context(), id+1000, "", 12, home("two")); err != nil {
			t.Fatal(err)
		}
		if err := s.Remove(id + 1000); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAKillLeavesNothingHalfDone kills a process that takes snapshots and begins with them, at many
// moments. Whoever opens the store next finds the files, and when the directories are gone there is no
// mount, no layer and no record.
func TestAKillLeavesNothingHalfDone(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	for round := range rounds {
		p := newPlace(t)
		p.make("one", 70001)
		p.as("one", "mkdir d; echo first > d/file")
		p.make("two", 70002)
		cmd := exec.Command("/proc/self/exe", "-test.run", "^TestWorksUntilItIsKilled$")
		cmd.Env = append(os.Environ(), crashEnv+"="+p.dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := make([]byte, 6)
		if _, err := out.Read(said); err != nil || !strings.HasPrefix(string(said), "begin") {
			t.Fatalf("the process said %q: %v", said, err)
		}
		time.Sleep(time.Duration(round*round) * 100 * time.Microsecond) // the moment of the kill
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		p.open()
		if got := p.as("one", "cat d/file; echo second > d/file; cat d/file"); got != "first\nsecond\n" {
			t.Fatalf("killed in round %d, the first has %q", round, got)
		}
		if round%2 == 1 {
			p.end("one", "two") // nothing else was done in between
			continue
		}
		// What was not begun yet begins now, with what the first has.
		if err := p.Take(t.Context(), 5000, "", 11, p.home("one")); err != nil {
			t.Fatal(err)
		}
		if err := p.Begin(t.Context(), 5000, 12, p.home("two")); err != nil {
			t.Fatalf("killed in round %d: %v", round, err)
		}
		if got := strings.TrimSpace(p.as("two", "cat d/file")); got != "first" && got != "second" {
			t.Fatalf("killed in round %d, the fork has %q", round, got)
		}
		p.end("one", "two")
	}
}

// end removes directories as a supervisor does, and everything of them goes.
func (p *place) end(names ...string) {
	p.t.Helper()
	for _, name := range names {
		_ = unix.Unmount(p.home(name), unix.MNT_DETACH)
		if err := os.RemoveAll(p.home(name)); err != nil {
			p.t.Fatal(err)
		}
	}
	taken, err := p.Snapshots()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, id := range taken {
		if err := p.Remove(id); err != nil {
			p.t.Fatal(err)
		}
	}
	p.open() // another agent makes nothing of it again
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), p.dir) {
		p.t.Errorf("something is mounted below %s: %v", p.dir, err)
	}
	for _, kind := range []string{"store/snapshots/*", "store/homes/*", "store/layers/*", "store/removed/*", "homes/*"} {
		left, err := filepath.Glob(filepath.Join(p.dir, kind))
		if err != nil || len(left) > 0 {
			p.t.Errorf("left: %v, %v", left, err)
		}
	}
}
