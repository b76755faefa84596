package container

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/agent/runtime/container/containertest"
	"rota/internal/need"
)

// An import takes minutes. Sandboxes with images that the node has are opened meanwhile.
func TestAnImageThatIsThereWaitsForNoImport(t *testing.T) {
	need.Containerd(t)
	c, err := Connect(t.Context(), containertest.Start(t).Address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m, err := NewManager(Options{Containerd: c, Dir: t.TempDir(), Logger: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(containertest.Archive(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := c.Import(t.Context(), f, ""); err != nil {
		t.Fatal(err)
	}
	m.importing.Lock()
	defer m.importing.Unlock()
	found := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := m.image(ctx, containertest.ImageName)
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
}

// Who waits for a sandbox while it is removed, and who comes after, have one lock.
func TestALockIsOneForEachTrajectory(t *testing.T) {
	m := &Manager{sandboxes: map[uint64]*entry{}}
	e := m.lock(7)
	var all sync.WaitGroup
	inside := 0 // the race detector looks at it, too
	for range 8 {
		all.Go(func() {
			e := m.lock(7)
			if inside++; inside != 1 {
				t.Errorf("%d are inside", inside)
			}
			if inside--; e.open == nil {
				e.open = &record{}
				m.drop(7, e)
				return
			}
			e.Unlock()
		})
	}
	m.drop(7, e)
	all.Wait()
}
