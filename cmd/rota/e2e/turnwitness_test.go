package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// workerEnv makes this test binary a worker process of a training job.
const workerEnv = "E2E_WORKER"

// monotonic is the clock of all processes of this machine, in nanoseconds.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// worker is a process that holds a group of nodes for $HELD, and says so to the witness.
// The kernel knows if another does it at the same time.
func worker() error {
	held, err := time.ParseDuration(os.Getenv("HELD"))
	if err != nil {
		return err
	}
	witness := os.Getenv("WITNESS")
	lock, err := os.Create(witness + ".lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		if err := testify(witness, "overlap"); err != nil {
			return err
		}
	}
	if err := testify(witness, "start"); err != nil {
		return err
	}
	time.Sleep(held)
	return testify(witness, "end")
}

// testify appends a line to the witness, which the disk has when it returns.
func testify(witness, what string) error {
	f, err := os.OpenFile(witness, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, what, os.Getenv("JOB"), os.Getenv("ROTA_TURN_STEP"), os.Getenv("ROTA_TURN_TOKEN"), monotonic())
	return errors.Join(err, f.Sync(), f.Close())
}

// phase is what one worker has said of one turn.
type phase struct {
	job        string
	step       int
	token      uint64
	start, end int64 // of the monotonic clock; an end of 0: it has not ended
}

// phases reads the witness: who held the group, in the order of the beginning.
func (w *world) phases(witness string) (all []phase) {
	w.Helper()
	raw, err := os.ReadFile(witness)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		what, p, at := parsePhase(w, line)
		i := slices.IndexFunc(all, func(o phase) bool { return o.job == p.job && o.token == p.token })
		switch {
		case what == "start" && i < 0:
			p.start = at
			all = append(all, p)
		case what == "end" && i >= 0 && all[i].end == 0:
			all[i].end = at
		default:
			w.Fatalf("the witness says %q of %+v", line, p)
		}
	}
	slices.SortFunc(all, func(a, b phase) int { return int(a.start - b.start) })
	return all
}

func parsePhase(w *world, line string) (what string, p phase, at int64) {
	w.Helper()
	f := strings.Fields(line)
	if len(f) != 5 || !strings.HasSuffix(line, "\n") {
		w.Fatalf("malformed line of the witness: %q", line)
	}
	step, err1 := strconv.Atoi(f[2])
	token, err2 := strconv.ParseUint(f[3], 10, 64)
	at, err3 := strconv.ParseInt(f[4], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		w.Fatalf("malformed line of the witness: %q: %v", line, err)
	}
	return f[0], phase{job: f[1], step: step, token: token}, at
}

// oneAtATime checks that the group was never held by two, and that tokens grow. What
// has no end was killed at a time, or still runs if that is 0.
func (w *world) oneAtATime(phases []phase, killed int64) {
	w.Helper()
	for _, wrong := range together(phases, killed) {
		w.Error(wrong)
	}
}

// together finds those that began while another held the group, or with a token that
// is no larger.
func together(phases []phase, killed int64) (wrong []string) {
	for i := 1; i < len(phases); i++ {
		before, p := phases[i-1], phases[i]
		if before.end == 0 {
			before.end = killed
		}
		if before.end == 0 || p.start < before.end {
			wrong = append(wrong, fmt.Sprintf("%+v began while %+v held the group", p, before))
		}
		if p.token <= before.token {
			wrong = append(wrong, fmt.Sprintf("%+v has no larger token than %+v before it", p, before))
		}
	}
	return wrong
}

func TestTheWitnessSeesTwoHolders(t *testing.T) {
	for _, test := range []struct {
		name   string
		phases []phase
		killed int64
		want   int
	}{
		{"one after the other", []phase{{"a", 1, 1, 10, 20}, {"b", 1, 2, 20, 30}}, 0, 0},
		{"together", []phase{{"a", 1, 1, 10, 20}, {"b", 1, 2, 19, 30}}, 0, 1},
		{"the first has not ended", []phase{{"a", 1, 1, 10, 0}, {"b", 1, 2, 19, 30}}, 0, 1},
		{"the first was killed before", []phase{{"a", 1, 1, 10, 0}, {"b", 1, 2, 19, 30}}, 15, 0},
		{"the first was killed later", []phase{{"a", 1, 1, 10, 0}, {"b", 1, 2, 19, 30}}, 25, 1},
		{"the same token again", []phase{{"a", 1, 2, 10, 20}, {"b", 1, 2, 20, 30}}, 0, 1},
	} {
		if wrong := together(test.phases, test.killed); len(wrong) != test.want {
			t.Errorf("%s: %q", test.name, wrong)
		}
	}
}

// inOrder checks that a job has done its steps, each once and one after the other.
func (w *world) inOrder(phases []phase, job string, steps int) (of []phase) {
	w.Helper()
	for _, p := range phases {
		if p.job == job {
			of = append(of, p)
		}
	}
	for i, p := range of {
		if p.step != i+1 || p.end == 0 {
			w.Errorf("turn %d of %s: %+v", i+1, job, p)
		}
	}
	if len(of) != steps {
		w.Fatalf("%s has had %d turns, want %d: %+v", job, len(of), steps, of)
	}
	return of
}
