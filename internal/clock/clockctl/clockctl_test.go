package clockctl

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rota/internal/clock/boottime"
)

func create(t *testing.T) (*Control, *Follower) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clock")
	c, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	f, err := Follow(path)
	if err != nil {
		t.Fatal(err)
	}
	return c, f
}

func set(t *testing.T, c *Control, ratePPM int64, jump time.Duration) {
	t.Helper()
	if err := c.Set(ratePPM, jump); err != nil {
		t.Fatal(err)
	}
}

func TestANewClockShowsTheTrueTime(t *testing.T) {
	c, f := create(t)
	before := boottime.Now()
	shown := f.Now()
	if after := boottime.Now(); shown < before || shown > after {
		t.Errorf("shows %d between %d and %d", shown, before, after)
	}
	if c.Ahead() != 0 {
		t.Errorf("ahead by %v", c.Ahead())
	}
}

func TestASpeedAndAJump(t *testing.T) {
	for _, c := range []struct {
		ratePPM int64
		passed  time.Duration // while one second does
	}{
		{0, time.Second}, {250_000, 1250 * time.Millisecond}, {-250_000, 750 * time.Millisecond},
		{RateMax, 10 * time.Second}, {RateMin, 100 * time.Millisecond},
	} {
		l := line{trueNS: 1e15, shownNS: 2e15, ratePPM: c.ratePPM}
		if got := time.Duration(l.shown(1e15+1e9) - l.shown(1e15)); got != c.passed {
			t.Errorf("%d ppm: %v pass in a second, want %v", c.ratePPM, got, c.passed)
		}
	}

	c, f := create(t)
	before := f.Now()
	set(t, c, 0, time.Hour)
	if got := time.Duration(f.Now() - before); got < time.Hour || got > time.Hour+time.Minute {
		t.Errorf("a jump of an hour moved the clock by %v", got)
	}
	// At a true speed it stays where it is.
	ahead := c.Ahead()
	time.Sleep(2 * time.Millisecond)
	if ahead != time.Hour || c.Ahead() != ahead {
		t.Errorf("ahead by %v, then by %v, want an hour", ahead, c.Ahead())
	}
}

// TestANewSpeedMovesNothing: what was shown up to the change, a clock of ten
// times the speed and one of a tenth go on from.
func TestANewSpeedMovesNothing(t *testing.T) {
	c, f := create(t)
	for _, rate := range []int64{RateMax, RateMin, 0, 100, -100} {
		l, _ := c.page.read()
		set(t, c, rate, 0)
		next, _ := c.page.read()
		if got := l.shown(next.trueNS); got != next.shownNS {
			t.Errorf("%d ppm: begins at %d, the line before it was at %d", rate, next.shownNS, got)
		}
		if f.Now() < next.shownNS {
			t.Errorf("%d ppm: went back", rate)
		}
	}
}

// TestTheClockNeverGoesBack though its speed changes while it is read.
func TestTheClockNeverGoesBack(t *testing.T) {
	c, f := create(t)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for last := int64(0); ; {
				select {
				case <-stop:
					return
				default:
				}
				now := f.Now()
				if now < last {
					t.Errorf("%d after %d", now, last)
					return
				}
				last = now
			}
		})
	}
	for range 100 {
		set(t, c, RateMax, 0)
		set(t, c, RateMin, time.Microsecond)
		time.Sleep(100 * time.Microsecond)
	}
	close(stop)
	readers.Wait()
}

// TestTrueIsTheFirstMomentAtWhichATimeIsShown, by trying the one before.
func TestTrueIsTheFirstMomentAtWhichATimeIsShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := line{
			trueNS:  rapid.Int64Range(0, 1e17).Draw(t, "true"),
			shownNS: rapid.Int64Range(0, 1e17).Draw(t, "shown"),
			ratePPM: rapid.Int64Range(RateMin, RateMax).Draw(t, "rate"),
		}
		want := l.shownNS + rapid.Int64Range(1, 1e16).Draw(t, "later")
		at := l.true(want)
		if l.shown(at) < want {
			t.Fatalf("%+v: at %d shows %d, before %d", l, at, l.shown(at), want)
		}
		// A division down at each end costs a few nanoseconds of a slow clock.
		if l.shown(at-11) >= want {
			t.Fatalf("%+v: at %d, 11 ns before, it shows %d already, %d was asked for", l, at-11, l.shown(at-11), want)
		}
	})
	if got := (line{ratePPM: RateMin}).true(math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("the end of time is at %d", got)
	}
	if got := (line{trueNS: 5, shownNS: 10}).true(3); got != 5 {
		t.Errorf("a time that is over is at %d, want 5, where the line begins", got)
	}
}

func TestClocksThatNoMachineHasAreRefused(t *testing.T) {
	c, _ := create(t)
	for _, err := range []error{c.Set(RateMin-1, 0), c.Set(RateMax+1, 0), c.Set(0, -1)} {
		if !errors.Is(err, ErrRefused) {
			t.Errorf("%v", err)
		}
	}
	if c.Ahead() != 0 {
		t.Errorf("a refused clock is ahead by %v", c.Ahead())
	}
}

func TestFilesThatAreNoClocksAreRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, path := range []string{
		filepath.Join(dir, "missing"), write("short", "x"), write("zeros", strings.Repeat("\x00", pageBytes)),
	} {
		if f, err := Follow(path); err == nil {
			t.Errorf("%s is followed: %v", path, f)
		}
	}
	if _, err := Create(write("there", "")); err == nil {
		t.Error("a file that others may have mapped was made anew")
	}
}
