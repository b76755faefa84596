package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// suites runs a real parallel test suite (folder suite) as actions of a class.
type suites struct {
	*world
	program string
	class   string
	env     map[string]string
}

func newSuites(w *world) *suites {
	w.Helper()
	need.Tool(w, "go")
	s := &suites{world: w, program: filepath.Join(w.dir, "suite.test")}
	build := exec.CommandContext(w.Context(), "go", "test", "-c", "-o", s.program, "./suite")
	if out, err := build.CombinedOutput(); err != nil {
		w.Fatalf("%v\n%s", err, out)
	}
	return s
}

// run runs suites that are submitted together, and returns them when all have
// ended.
func (s *suites) run(n int) []*rotav1.Action {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	spec := &rotav1.ActionSpec{
		Class: s.class, Command: &rotav1.Command{Argv: []string{s.program}, Env: s.env},
		Resources: &rotav1.Resources{MaxCores: 2, Resizable: proto.Bool(false)},
	}
	ids, err := s.api.Submit(ctx, slices.Repeat([]*rotav1.ActionSpec{spec}, n)...)
	if err != nil {
		s.Fatal(err)
	}
	var ended []*rotav1.Action
	for _, id := range ids {
		a, err := s.api.Wait(ctx, id)
		if err != nil || a.State != rotav1.ActionState_ACTION_STATE_SUCCEEDED {
			s.Fatalf("action %d: %v, %v", id, a, err)
		}
		ended = append(ended, a)
	}
	return ended
}

// want runs suites together, and wants the kernel to give each so many cores.
func (s *suites) want(why string, widths ...int) []*rotav1.Action {
	s.Helper()
	ended := s.run(len(widths))
	for i, a := range ended {
		got, _, _ := strings.Cut(string(a.Result.StdoutTail), "\n")
		if want := fmt.Sprintf("cores %d", widths[i]); got != want {
			s.Fatalf("suite %d of %d saw %q, want %q: %s; learned so far: %v", i+1, len(widths), got, want, why, s.learned())
		}
	}
	return ended
}

// learned is what rota knows of the class, by ascending numbers of cores.
func (s *suites) learned() []*rotav1.ClassWidth {
	s.Helper()
	resp, err := s.api.Classes.GetClass(s.Context(), &rotav1.GetClassRequest{Name: s.class})
	if err != nil {
		s.Fatal(err)
	}
	return resp.Class.Widths
}

// overlap reports whether two actions ran at the same time.
func overlap(a, b *rotav1.Action) bool {
	return a.StartTime.AsTime().Before(b.EndTime.AsTime()) && b.StartTime.AsTime().Before(a.EndTime.AsTime())
}

// learn has a class that nobody knows see one core and two. Nobody says how long a
// suite takes. Those that come together before that do not share.
func (s *suites) learn(class string) (one, two time.Duration) {
	s.Helper()
	s.class = class
	both := s.want("nothing is known, so the first takes all and the second waits", 2, 2)
	if overlap(both[0], both[1]) {
		s.Fatal("two suites of two cores each ran at the same time on two cores")
	}
	s.want("two attempts are no experience", 2)
	s.want("half of it is tried", 1)
	seen := s.learned()
	if len(seen) != 2 || seen[0].Units != 1 || seen[0].Attempts != 1 || seen[1].Units != 2 || seen[1].Attempts != 3 {
		s.Fatalf("learned %v, want one attempt with 1 core and three with 2", seen)
	}
	return seen[0].MeanDuration.AsDuration(), seen[1].MeanDuration.AsDuration()
}

// attempts at learning: a machine that stands still meanwhile teaches something
// else than the suite is.
const attempts = 4

// learnUntil learns with one class after the other until what was learned is what
// the suite is.
func (s *suites) learnUntil(name string, good func(one, two time.Duration) bool) {
	s.Helper()
	for i := range attempts {
		one, two := s.learn(fmt.Sprintf("%s-%d", name, i+1))
		if good(one, two) {
			return
		}
		s.Logf("the machine is busy: with one core the suite took %v, with two %v", one, two)
	}
	s.Fatalf("%d times something else was learned than the suite is", attempts)
}

// TestCoresByALearnedCurve: a suite that is alone on the machine gets both of its
// cores, and two that come together get one each, because that is known to be
// better. One that does not gain from a second core does not get it, though nobody
// else wants it. They keep their cores.
func TestCoresByALearnedCurve(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("the machine has one core, so there is nothing to give")
	}
	t.Parallel()
	s := newSuites(newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1, AgentArgs: []string{"--cores", "2"}}))

	s.learnUntil("parallel", func(one, two time.Duration) bool { return 3*two > 2*one && two < one })
	s.want("the machine is idle, and a second core helps", 2)
	both := s.want("two share the machine", 1, 1)
	if !overlap(both[0], both[1]) {
		t.Fatal("two suites of one core each did not run at the same time")
	}
	s.want("the machine is idle again", 2)

	s.env = map[string]string{"SUITE_CONTENDED": "1"}
	s.learnUntil("contended", func(one, two time.Duration) bool { return one < two })
	s.want("the machine is idle, and a second core does not help", 1)
}
