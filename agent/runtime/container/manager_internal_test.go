package container

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/agent/runtime/container/containertest"
	"rota/internal/need"
)

// managerOfItsOwn is one with a containerd that the test has to itself.
func managerOfItsOwn(t *testing.T) (*Manager, *Containerd) {
	t.Helper()
	need.Containerd(t)
	c, err := Connect(t.Context(), containertest.Start(t).Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	m, err := NewManager(Options{Containerd: c, Dir: t.TempDir(), Logger: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	return m, c
}

// An import takes minutes. Sandboxes with images that the node has are opened meanwhile.
func TestAnImageThatIsThereWaitsForNoImport(t *testing.T) {
	m, c := managerOfItsOwn(t)
	f, err := os.Open(containertest.Archive(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := c.Import(t.Context(), f, ""); err != nil {
		t.Fatal(err)
	}
	m.importing <- struct{}{}
	found := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := m.image(ctx, containertest.ImageName, false)
		found <- err
	}()
	select {
	case err := <-found:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("it waits for an import")
	}
	// Another image waits, for as long as its caller does.
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := m.image(ctx, "another:1", false); err == nil {
		t.Error("an image was found that there is not")
	}
}

// lockNow locks the entry of a trajectory, for as long as the lock takes.
func lockNow(t *testing.T, m *Manager, trajectory uint64) *entry {
	t.Helper()
	e, err := m.lock(context.Background(), trajectory)
	if err != nil {
		t.Error(err)
	}
	return e
}

// An action that is canceled does not wait for an import by another action of its trajectory.
func TestALockIsWaitedForUntilTheContextEnds(t *testing.T) {
	m := &Manager{sandboxes: map[uint64]*entry{}}
	importing := lockNow(t, m, 7)
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error, 1)
	go func() {
		_, err := m.Open(ctx, Spec{Trajectory: 7})
		opened <- err
	}()
	cancel()
	select {
	case err := <-opened:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a start waits for another although it was canceled")
	}
	importing.unlock()
	lockNow(t, m, 7).unlock()
}

// A sandbox that is being opened while its trajectory ends holds up the removal of no other.
func TestASandboxThatIsBusyHoldsUpNoOthers(t *testing.T) {
	m, _ := managerOfItsOwn(t)
	for id := range uint64(4) {
		if err := m.Reserve(id + 1); err != nil {
			t.Fatal(err)
		}
	}
	busy := lockNow(t, m, 1) // the first that is found
	kept := make(chan error, 1)
	go func() { kept <- m.Keep(context.Background(), func() []uint64 { return []uint64{4} }) }()
	for _, id := range []uint64{2, 3} {
		for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(m.dir(id)); err != nil {
				break
			}
			if time.Now().After(limit) {
				t.Fatalf("sandbox %d waits for another", id)
			}
		}
	}
	busy.unlock()
	if err := <-kept; err != nil {
		t.Error(err)
	}
	for id, want := range map[uint64]bool{1: false, 4: true} {
		if _, err := os.Stat(m.dir(id)); (err == nil) != want {
			t.Errorf("sandbox %d: %v", id, err)
		}
	}
}

// Who waits for a sandbox while it is removed, and who comes after, have one lock.
func TestALockIsOneForEachTrajectory(t *testing.T) {
	m := &Manager{sandboxes: map[uint64]*entry{}}
	e := lockNow(t, m, 7)
	var all sync.WaitGroup
	inside := 0 // the race detector looks at it, too
	for range 8 {
		all.Go(func() {
			e := lockNow(t, m, 7)
			if inside++; inside != 1 {
				t.Errorf("%d are inside", inside)
			}
			if inside--; e.open == nil {
				e.open = &record{}
				m.drop(7, e)
				return
			}
			e.unlock()
		})
	}
	m.drop(7, e)
	all.Wait()
}
