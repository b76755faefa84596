package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"

	rotav1 "rota/api/gen/rota/v1"
)

// aheads is an opener whose sandboxes open when the test says so.
type aheads struct {
	*aheadOpener
	cancel context.CancelFunc
	ended  chan error
	said   strings.Builder

	mu sync.Mutex
	// opening are those whose opening has begun, and ends with what is sent; stopped those whose context ended.
	opening map[uint64]chan error
	begun   []uint64
	stopped []uint64
}

// newAheads is called within a bubble of synctest.
func newAheads() *aheads {
	a := &aheads{opening: map[uint64]chan error{}, ended: make(chan error, 1)}
	log := hclog.New(&hclog.LoggerOptions{Output: &a.said, Level: hclog.Debug})
	a.aheadOpener = newAheadOpener(log, newHomes(hclog.NewNullLogger(), nil), func(ctx context.Context, _ uint64, d *rotav1.DesiredSandbox) error {
		id, opened := d.GetTrajectoryId(), make(chan error)
		a.mu.Lock()
		a.begun, a.opening[id] = append(a.begun, id), opened
		a.mu.Unlock()
		stop := context.AfterFunc(ctx, func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.stopped = append(a.stopped, id)
		})
		defer stop()
		return <-opened
	})
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	go func() { a.ended <- a.run(ctx) }()
	return a
}

// hear is a message of a server, as the agent takes it in.
func (a *aheads) hear(incarnation uint64, m *rotav1.WatchNodeResponse, ids ...uint64) {
	for _, id := range ids {
		m.Sandboxes = append(m.Sandboxes, &rotav1.DesiredSandbox{TrajectoryId: id, Container: &rotav1.Container{Image: "tools:1"}})
	}
	a.homes.told(m)
	a.told(incarnation, m)
	synctest.Wait()
}

// end ends the opening of a sandbox.
func (a *aheads) end(id uint64, err error) {
	a.mu.Lock()
	opened := a.opening[id]
	delete(a.opening, id)
	a.mu.Unlock()
	opened <- err
	synctest.Wait()
}

func (a *aheads) check(t *testing.T, what string, got *[]uint64, want ...uint64) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.Sort(*got)
	if !slices.Equal(*got, want) {
		t.Errorf("%s: %v, want %v", what, *got, want)
	}
	*got = nil
}

// sweeps reports whether a sweep of sandboxes was asked for, and forgets it.
func (a *aheads) sweeps() bool {
	select {
	case <-a.homes.ended:
		return true
	default:
		return false
	}
}

func (a *aheads) stop(t *testing.T) {
	t.Helper()
	a.cancel()
	synctest.Wait()
	for id := range a.opening {
		select {
		case err := <-a.ended:
			t.Errorf("it ended with %v while sandbox %d was being opened", err, id)
		default:
		}
		a.end(id, context.Canceled)
	}
	if err := <-a.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

// A few sandboxes are opened ahead at once, each once, and again in another incarnation.
func TestFewSandboxesAreOpenedAheadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAheads()
		a.hear(1, openNow(1, 2, 3, 4, 5, 6), 1, 2, 3)
		a.check(t, "opened", &a.begun, 1, 2, 3)
		a.hear(1, &rotav1.WatchNodeResponse{}, 4, 5, 6, 1)
		a.check(t, "opened, as there is room", &a.begun, 4)
		a.end(2, nil)
		a.check(t, "opened next", &a.begun, 5)
		a.end(1, errors.New("no such image"))
		a.check(t, "opened after a failure", &a.begun, 6)
		if said := a.said.String(); strings.Count(said, "no such image") != 1 || a.sweeps() != true || a.sweeps() {
			t.Errorf("it said %q", said)
		}
		for _, id := range []uint64{3, 4, 5, 6} {
			a.end(id, nil)
		}
		a.hear(1, openNow(1, 2, 3, 4, 5, 6), 1, 2, 3, 4, 5, 6) // a new stream
		a.check(t, "opened again", &a.begun)
		a.hear(2, openNow(2), 2)
		a.check(t, "opened in another incarnation", &a.begun, 2)
		a.stop(t)
	})
}

// Nothing stays of a sandbox whose trajectory ended while it was being opened, and those of which none was
// begun are not opened.
func TestASandboxOfATrajectoryThatEndedMeanwhileIsSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAheads()
		a.hear(1, openNow(), 1, 2, 3, 4, 5, 6)
		a.check(t, "opened", &a.begun, 1, 2, 3, 4)
		a.hear(1, openNow(2, 3, 4, 6))
		a.check(t, "not opened any more", &a.stopped, 1)
		if !a.sweeps() {
			t.Error("a list had nothing swept")
		}
		a.end(1, nil) // it was open by then
		if !a.sweeps() {
			t.Error("the sandbox of an ended trajectory stays")
		}
		a.check(t, "opened next", &a.begun, 6)
		a.end(2, nil)
		if a.sweeps() {
			t.Error("the sandboxes were swept, and all trajectories are open")
		}
		a.stop(t)
	})
}

// A trajectory whose sandbox was named since the newest list is open.
func TestAPlacedTrajectoryIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAheads()
		a.hear(1, openNow())
		a.hear(1, &rotav1.WatchNodeResponse{Sandboxes: []*rotav1.DesiredSandbox{{TrajectoryId: 9}}}, 7)
		a.check(t, "opened, without one that has no container", &a.begun, 7)
		if list := a.homes.list(); !slices.Contains(list, 7) {
			t.Errorf("a sweep would remove it: %v are open", list)
		}
		a.stop(t)
	})
}
