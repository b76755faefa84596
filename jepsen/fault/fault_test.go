package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	"rota/api/client"
	"rota/internal/failpoint"
	"rota/internal/process"
	"rota/jepsen/cluster"
	"rota/jepsen/history"
)

func newWorld() *World {
	return &World{Record: history.NewRecorder(history.Record{}), Rand: rand.New(rand.NewPCG(1, 0))}
}

func TestAFaultIsRecordedWithItsProofAfterItsEnd(t *testing.T) {
	w := newWorld()
	ended := false
	f := Fault{Name: "x", Begin: func(context.Context, *World) (*Injection, error) {
		return &Injection{Target: []string{"a"}, LeaderKilled: true, End: func(context.Context) (string, error) {
			ended = true
			return "seen", nil
		}}, nil
	}}
	if err := Inject(t.Context(), w, f, 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	got := w.Record.Record().Faults
	if len(got) != 1 || got[0].Happened != "seen" || !got[0].LeaderKilled || got[0].Target[0] != "a" {
		t.Fatalf("faults %+v", got)
	}
	if held := time.Duration(got[0].End - got[0].Start); !ended || held < 20*time.Millisecond {
		t.Errorf("held for %v, ended %v", held, ended)
	}
}

func TestAFaultEndsEvenIfTheRunIsBrokenOff(t *testing.T) {
	w := newWorld()
	ctx, cancel := context.WithCancel(t.Context())
	mended := errors.New("never called")
	f := Fault{Name: "x", Begin: func(context.Context, *World) (*Injection, error) {
		cancel()
		return &Injection{End: func(ctx context.Context) (string, error) {
			mended = ctx.Err()
			return "", nil
		}}, nil
	}}
	if err := Inject(ctx, w, f, time.Hour); err != nil {
		t.Fatal(err)
	}
	if mended != nil {
		t.Errorf("the end of the fault could not act: %v", mended)
	}
}

func TestAFaultWithoutEffectHasNoProof(t *testing.T) {
	w := newWorld()
	broken := errors.New("no firewall")
	err := Inject(t.Context(), w, Fault{Name: "begins not", Begin: func(context.Context, *World) (*Injection, error) {
		return nil, broken
	}}, 0)
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	err = Inject(t.Context(), w, Fault{Name: "ends not", Begin: func(context.Context, *World) (*Injection, error) {
		return &Injection{End: func(context.Context) (string, error) { return "", broken }}, nil
	}}, 0)
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	for _, f := range w.Record.Record().Faults {
		if f.Happened != "" || f.Detail == "" {
			t.Errorf("fault %+v", f)
		}
	}
}

func TestOnARingEachSeesAMajorityAndNobodySeesAll(t *testing.T) {
	for n, want := range map[int]int{3: 3, 5: 3, 7: 3, 9: 5} {
		var servers []*cluster.Member
		for i := range n {
			servers = append(servers, &cluster.Member{Process: &process.Process{Name: fmt.Sprint(i)}})
		}
		sees := map[string]int{}
		for _, s := range servers {
			sees[s.Name] = n
		}
		for _, c := range ringCuts(servers) {
			sees[c.to[0].Name]--
		}
		for name, got := range sees {
			if got != want {
				t.Errorf("of %d, %s sees %d, want %d", n, name, got, want)
			}
		}
	}
}

func TestFaultsHaveDifferentNames(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range All() {
		if seen[f.Name] || f.About == "" || f.Begin == nil {
			t.Errorf("fault %q is there twice, or incomplete", f.Name)
		}
		seen[f.Name] = true
		if got, err := Named(f.Name); err != nil || got.Name != f.Name {
			t.Errorf("Named(%q): %v", f.Name, err)
		}
	}
	if _, err := Named("x"); err == nil {
		t.Error("a fault that does not exist was found")
	}
}

// TestWhatBecameOfAChange: what is recorded as failed must not have been done.
func TestWhatBecameOfAChange(t *testing.T) {
	notFound := connect.NewError(connect.CodeNotFound, errors.New("no such server"))
	lost := fmt.Errorf("%w: %w", client.ErrUnknownOutcome, notFound)
	away := connect.NewError(connect.CodeUnavailable, errors.New("no leader"))
	for _, test := range []struct {
		name, change string
		before       history.Outcome
		err          error
		want         history.Outcome
		done         bool
	}{
		{"it worked", removal, history.Fail, nil, history.OK, true},
		{"refused at once", removal, history.Fail, notFound, history.Fail, false},
		{"an answer was lost, then there is nobody to remove", removal, history.Fail, lost, history.OK, true},
		{"the same in two calls", removal, history.Unknown, notFound, history.OK, true},
		{"no answer", removal, history.Fail, away, history.Unknown, false},
		{"refused after a lost answer", addVoter, history.Unknown, notFound, history.Unknown, false},
		{"worked after a lost answer", addVoter, history.Unknown, nil, history.OK, true},
	} {
		got, err := outcome(history.Member{Change: test.change, Outcome: test.before}, test.err)
		if got != test.want || (err == nil) != test.done {
			t.Errorf("%s: %s, %v; want %s", test.name, got, err, test.want)
		}
	}
}

// TestWindowsAreThoseOfTheMember: a server has other windows than an agent, and those come first at
// which no process has died yet.
func TestWindowsAreThoseOfTheMember(t *testing.T) {
	w := newWorld()
	server, agent := &cluster.Member{}, &cluster.Member{}
	w.Cluster = &cluster.Cluster{Servers: []*cluster.Member{server}, Agents: []*cluster.Member{agent}}
	for member, all := range map[*cluster.Member][]string{server: failpoint.ServerNames(), agent: failpoint.AgentNames()} {
		for _, name := range all[:len(all)-2] {
			w.Record.AddFault(history.Fault{Name: "crash-point", Window: name})
		}
		got := w.windows(member)
		first := slices.Sorted(slices.Values(got[:2]))
		if !slices.Equal(first, slices.Sorted(slices.Values(all[len(all)-2:]))) {
			t.Errorf("%q come first, which are not those without a hit", first)
		}
		slices.Sort(got)
		if slices.Sort(all); !slices.Equal(got, all) {
			t.Errorf("windows %q, want %q", got, all)
		}
	}
}

// TestMoreWindowsAreArmedUntilOneIsHit: what is armed later is come by too, and nothing stays armed.
func TestMoreWindowsAreArmedUntilOneIsHit(t *testing.T) {
	dir, names := t.TempDir(), failpoint.ServerNames()
	last := filepath.Join(dir, names[len(names)-1])
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go until(ctx, time.Minute, func() bool { return os.Rename(last, last+".hit") == nil })
	hit, err := comeBy(ctx, dir, names)
	if err != nil || hit != names[len(names)-1] {
		t.Errorf("hit %q, %v", hit, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}
