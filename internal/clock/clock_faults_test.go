//go:build faults

package clock_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rota/internal/clock"
	"rota/internal/clock/clockctl"
)

// TestMain is also the process whose clock is changed: it answers each line of
// its input with both of its clocks.
func TestMain(m *testing.M) {
	if os.Getenv(clock.Env) == "" {
		os.Exit(m.Run())
	}
	begin := clock.Now()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(int64(clock.Now().Sub(begin)), clock.Now().UnixNano(), clock.Boottime())
	}
}

// follower is a process that follows a clock.
type follower struct {
	t   *testing.T
	in  io.Writer
	out io.Reader
}

func start(t *testing.T, path string) *follower {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), clock.Env+"="+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &follower{t, in, bufio.NewReader(out)}
}

// reading is what the process says of the time.
type reading struct {
	passed, boottime time.Duration
	wall             time.Time
}

func (f *follower) read() reading {
	f.t.Helper()
	var passed, wall, boottime int64
	fmt.Fprintln(f.in)
	if _, err := fmt.Fscan(f.out, &passed, &wall, &boottime); err != nil {
		f.t.Fatal(err)
	}
	return reading{time.Duration(passed), time.Duration(boottime), time.Unix(0, wall)}
}

func TestBothClocksOfAProcessFollowTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clock")
	c, err := clockctl.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f := start(t, path)
	set := func(ratePPM int64, jump time.Duration) {
		t.Helper()
		if err := c.Set(ratePPM, jump); err != nil {
			t.Fatal(err)
		}
	}
	// within checks how much both clocks have moved on.
	within := func(what string, a, b reading, least, most time.Duration) {
		t.Helper()
		for _, d := range []time.Duration{b.passed - a.passed, b.boottime - a.boottime, b.wall.Sub(a.wall)} {
			if d < least || d > most {
				t.Errorf("%s: a clock moved by %v, want %v to %v", what, d, least, most)
			}
		}
	}
	begin := time.Now()
	first := f.read()
	set(0, time.Hour)
	jumped := f.read()
	within("jump", first, jumped, time.Hour, time.Hour+time.Since(begin))

	set(clockctl.RateMax, 0)
	before := f.read()
	begin = time.Now()
	time.Sleep(100 * time.Millisecond)
	least := 10 * time.Since(begin)
	after := f.read()
	within("ten times the speed", before, after, least, least+10*time.Second)

	set(clockctl.RateMin, 0)
	before = f.read()
	begin = time.Now()
	time.Sleep(100 * time.Millisecond)
	after = f.read()
	within("a tenth of the speed", before, after, 10*time.Millisecond, time.Since(begin)/2)
	within("never back", jumped, after, 0, time.Hour)

	// A process that is started again finds the clock where it was.
	again := start(t, path).read()
	within("restart", reading{boottime: after.boottime, wall: after.wall, passed: again.passed}, again, 0, 10*time.Second)
}

func TestAProcessWithoutItsClockDoesNotStart(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), clock.Env+"="+filepath.Join(t.TempDir(), "missing"))
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), clock.Env) {
		t.Errorf("%v: %s", err, out)
	}
}
