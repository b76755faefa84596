package e2e

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
)

// submission is one action that the cluster was asked for.
type submission struct {
	number int
	retry  bool // LOSS_POLICY_RETRY, else at most once
	holds  bool // stays until the gate is opened
	id     uint64
}

// load submits actions and remembers which were acknowledged.
type load struct {
	w    *world
	open func()

	numbers atomic.Int64
	ended   atomic.Int64 // actions that a submitter has seen end
	quit    chan struct{}
	wg      sync.WaitGroup

	mu    sync.Mutex
	acked map[int]submission
}

// loadName is the name of every action of a load.
const loadName = "load"

func newLoad(w *world) *load {
	w.Helper()
	return &load{w: w, open: w.prepare(), quit: make(chan struct{}), acked: map[int]submission{}}
}

// submit submits one action and returns once it is acknowledged. Faults last far
// shorter than the client tries, so an error is a failure of the test.
func (l *load) submit(s submission) (submission, bool) {
	s.number = int(l.numbers.Add(1))
	env := map[string]string{"E2E_WORLD": l.w.dir, "SUBMISSION": strconv.Itoa(s.number)}
	if s.holds {
		env["HOLD"] = "1"
	}
	spec := &rotav1.ActionSpec{Name: loadName, Command: &rotav1.Command{Argv: []string{"sh", "-c", script}, Env: env}}
	if s.retry {
		spec.LossPolicy, spec.MaxAttempts = rotav1.LossPolicy_LOSS_POLICY_RETRY, 100
	}
	ids, err := l.w.api.Submit(l.w.Context(), spec)
	if err != nil {
		l.w.Errorf("submission %d: %v", s.number, err)
		return s, false
	}
	s.id = ids[0]
	l.mu.Lock()
	l.acked[s.number] = s
	l.mu.Unlock()
	return s, true
}

// submitter submits one action after the other, each once the one before has
// ended. Every third may be repeated when it is lost.
func (l *load) submitter() {
	for i := 0; ; i++ {
		select {
		case <-l.quit:
			return
		default:
		}
		s, ok := l.submit(submission{retry: i%3 == 2})
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(l.w.Context(), patience)
		_, err := l.w.api.Wait(ctx, s.id)
		cancel()
		if err != nil {
			l.w.Errorf("submission %d: %v", s.number, err)
			return
		}
		l.ended.Add(1)
		time.Sleep(20 * time.Millisecond) // the machine has other work too
	}
}

// start starts submitters, and holders: actions that stay over the fault. It
// returns once all of them are at work.
func (l *load) start(submitters int, holders ...submission) []submission {
	l.w.Helper()
	for i := range holders {
		var ok bool
		if holders[i], ok = l.submit(holders[i]); !ok {
			l.w.FailNow()
		}
	}
	for range submitters {
		l.wg.Go(l.submitter)
	}
	l.w.until("the actions that hold have started", func() bool {
		started := 0
		for _, d := range l.w.deeds() {
			for _, h := range holders {
				if d.what == "start" && d.submission == h.number {
					started++
				}
			}
		}
		return started >= len(holders)
	})
	l.progress(20)
	return holders
}

// progress waits until so many more actions have ended.
func (l *load) progress(n int64) {
	l.w.Helper()
	goal := l.ended.Load() + n
	l.w.until(strconv.FormatInt(n, 10)+" more actions have ended", func() bool { return l.ended.Load() >= goal || l.w.Failed() })
}

// stop lets everything end that holds, stops the submitters and returns all
// acknowledged submissions.
func (l *load) stop() map[int]submission {
	l.open()
	close(l.quit)
	l.wg.Wait()
	return l.acked
}

// TestTheWitnessSeesADuplicate tries the script itself: were two executions of
// one submission not noticed, no test here could fail.
func TestTheWitnessSeesADuplicate(t *testing.T) {
	w := &world{T: t, dir: t.TempDir()}
	open := w.prepare()
	first, second := w.execute("HOLD=1", "1.1.1"), w.execute("HOLD=", "1.2.1")
	w.until("the second has ended", func() bool { return w.count("end") == 1 })
	if got := processes(w.marker()); len(got) == 0 {
		t.Error("the process that holds was not found")
	}
	open()
	if err := first.Wait(); err != nil {
		t.Error(err)
	}
	if err := second.Wait(); err != nil {
		t.Error(err)
	}
	if w.count("duplicate") != 1 || w.count("start") != 2 || w.count("end") != 2 {
		t.Errorf("the witness has seen %v", w.deeds())
	}
	if got := processes(w.marker()); len(got) > 0 {
		t.Errorf("processes %v are left", got)
	}
}
