package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
)

// engines are two jobs whose deployments are brought onto a group by hooks: those of job
// "http" are calls of an engine, those of job "shell" are commands. Each writes a line.
type engines struct {
	*training
	url string

	mu     sync.Mutex
	answer func(path string) int // status
}

func newEngines(t *testing.T) *engines {
	e := &engines{training: newTraining(t, sturdy, devcluster.Config{Agents: 1})}
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		answer := e.answer
		e.mu.Unlock()
		e.note("http " + strings.TrimPrefix(r.URL.Path, "/"))
		if answer != nil {
			w.WriteHeader(answer(r.URL.Path))
		}
	}))
	t.Cleanup(engine.Close)
	e.url = engine.URL
	return e
}

// answers has the engine answer its calls in a way.
func (e *engines) answers(fn func(path string) int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = fn
}

func (e *engines) path() string { return filepath.Join(e.dir, "hooks") }

func (e *engines) note(line string) {
	f, err := os.OpenFile(e.path(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		e.Error(err)
		return
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, line); err != nil {
		e.Error(err)
	}
}

func (e *engines) notes() []string {
	raw, err := os.ReadFile(e.path())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		e.Fatal(err)
	}
	return strings.Fields(strings.ReplaceAll(string(raw), " ", ":"))
}

func (e *engines) hook(job, kind string) *rotav1.ActionSpec {
	s := &rotav1.ActionSpec{RunTimeout: durationpb.New(patience)}
	if job == "http" {
		s.Http = &rotav1.HttpCall{Method: http.MethodPost, Url: e.url + "/" + kind}
	} else {
		s.Command = &rotav1.Command{Argv: []string{"sh", "-c", fmt.Sprintf("echo %s %s >> '%s'", job, kind, e.path())}}
	}
	return s
}

func (e *engines) submit(job string, cycle *rotav1.Cycle) {
	e.Helper()
	_, err := e.api.SubmitJob(e.Context(), &rotav1.SubmitJobRequest{
		Name: job, Nodes: 4, Cycle: cycle, Backfill: cycle == nil,
		Hooks: []*rotav1.DeploymentHooks{{
			Deployment: "actor", Sleep: e.hook(job, "sleep"), Wake: e.hook(job, "wake"), Prefetch: e.hook(job, "prefetch"),
		}},
	})
	if err != nil {
		e.Fatal(err)
	}
}

// hold takes a turn of a job.
func (e *engines) hold(job string, work func()) error {
	return e.api.HoldTurn(e.Context(), &rotav1.AcquireTurnRequest{Deployment: job + "/actor", Operation: rotav1.Operation_OPERATION_GENERATE},
		func(_ context.Context, t *rotav1.Turn) error {
			if t.SetUpNeeded || t.State != rotav1.TurnState_TURN_STATE_HELD {
				e.Errorf("the turn is to be set up by its holder: %v", t)
			}
			e.note(job + " holds")
			if work != nil {
				work()
			}
			return nil
		})
}

func (e *engines) want(lines ...string) {
	e.Helper()
	if got := e.notes(); !slices.Equal(got, lines) {
		e.Fatalf("hooks and holders came in the order %v, want %v", got, lines)
	}
}

// TestHooksMakeTheGroupReady: who had the group sleeps and who gets it wakes before it
// holds its turn, each once, though the leader is killed meanwhile.
func TestHooksMakeTheGroupReady(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	e.submit("http", nil)
	e.submit("shell", nil)
	for _, job := range []string{"http", "http", "shell"} {
		if err := e.hold(job, nil); err != nil {
			t.Fatal(err)
		}
	}
	story := []string{"http:wake", "http:holds", "http:holds", "http:sleep", "shell:wake", "shell:holds"}
	e.want(story...)

	called, killed := make(chan struct{}), make(chan struct{})
	e.answers(func(string) int {
		close(called) // once
		<-killed
		return http.StatusNoContent
	})
	held := make(chan error, 1)
	go func() { held <- e.hold("http", nil) }()
	<-called
	leader := e.leader(nil)
	leader.Kill()
	e.leader(leader)
	close(killed)
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	e.want(append(story, "shell:sleep", "http:wake", "http:holds")...)
}

// TestHooksThatFail: one that does not wake loses its turn, one that does not sleep halts
// the group.
func TestHooksThatFail(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	e.submit("http", nil)
	e.submit("shell", nil)
	e.answers(func(string) int { return http.StatusInternalServerError })
	if err := e.hold("http", nil); !errors.Is(err, client.ErrTurnSetUp) || !strings.Contains(err.Error(), "wake hook of default/http/actor") {
		t.Fatalf("the wake hook failed: %v", err)
	}
	e.want("http:wake")
	// It may be half awake: that it cannot be put to sleep concerns everybody.
	if err := e.hold("shell", nil); !errors.Is(err, client.ErrTurnSetUp) || !strings.Contains(err.Error(), "sleep hook of default/http/actor") {
		t.Fatalf("the sleep hook failed: %v", err)
	}
	groups, err := e.api.Ledger.ListNodeGroups(t.Context(), &rotav1.ListNodeGroupsRequest{})
	if err != nil || !strings.Contains(groups.Groups[0].Halted, "sleep hook") {
		t.Fatalf("the group is not halted: %v, %v", groups, err)
	}
	e.answers(nil)
	if _, err := e.api.Ledger.ResumeLedger(t.Context(), &rotav1.ResumeLedgerRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := e.hold("shell", nil); err != nil {
		t.Fatal(err)
	}
	e.want("http:wake", "http:sleep", "http:sleep", "shell:wake", "shell:holds")
}

// TestPrefetchComesFirst: while one has the group, the next that the ledger foresees is
// brought near, once.
func TestPrefetchComesFirst(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	const period = 2 * time.Second
	cycle := &rotav1.Cycle{Period: durationpb.New(period), Segments: []*rotav1.Segment{{Length: durationpb.New(700 * time.Millisecond), Nodes: 4}}}
	e.submit("http", cycle)
	e.submit("shell", cycle)
	err := e.hold("http", func() {
		e.until("the next one is prefetched", func() bool { return slices.Contains(e.notes(), "shell:prefetch") })
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(period) // it comes no nearer by being foreseen again
	if err := e.hold("shell", nil); err != nil {
		t.Fatal(err)
	}
	times := 0
	for _, line := range e.notes() {
		if line == "shell:prefetch" {
			times++
		}
	}
	if times != 1 {
		t.Fatalf("prefetched %d times: %v", times, e.notes())
	}
}
