package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	content "github.com/containerd/containerd/api/services/content/v1"
	images "github.com/containerd/containerd/api/services/images/v1"
	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"

	"rota/agent/runtime/container/containertest"
)

// collecting is a manager that pulls from a registry, opens sandboxes, and whose collector lets images have
// some bytes.
func collecting(t *testing.T, r *containertest.Registry, o CollectorOptions) (*Manager, *Collector) {
	t.Helper()
	m, c := managerOfItsOwn(t)
	o.Logger = hclog.NewNullLogger()
	g := NewCollector(c, o)
	m.opts.Init, m.opts.Cgroup, m.opts.Collector = containertest.Init(t), "rota-collect-test", g
	renew(t, m, r, func(o *PullOptions) { o.Collector = g })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.Keep(ctx, func() []uint64 { return nil }); err != nil {
			t.Error(err)
		}
		containertest.RemoveCgroups(t, m.opts.Cgroup)
	})
	return m, g
}

// opened opens a sandbox.
func opened(t *testing.T, m *Manager, trajectory uint64, image string) {
	t.Helper()
	s := Spec{Trajectory: trajectory, Incarnation: 1, Image: image, Home: t.TempDir()}
	if _, err := m.Open(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// closed removes all sandboxes but some.
func closed(t *testing.T, m *Manager, but ...uint64) {
	t.Helper()
	if err := m.Keep(t.Context(), func() []uint64 { return but }); err != nil {
		t.Fatal(err)
	}
}

// collect collects, and checks which images are left.
func collect(t *testing.T, g *Collector, want ...string) {
	t.Helper()
	if err := g.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := g.c.ImageNames(t.Context())
	want = slices.Sorted(slices.Values(want))
	slices.Sort(left)
	if err != nil || !slices.Equal(left, want) {
		t.Fatalf("left are %q: %v; want %q", left, err, want)
	}
}

// diskBytes is what a containerd has in its folders of layers.
func diskBytes(t *testing.T, dirs ...string) (bytes uint64) {
	t.Helper()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			if info, infoErr := d.Info(); infoErr == nil && info.Mode().IsRegular() {
				bytes += uint64(info.Size())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	return bytes
}

// Images that together take too much are removed, the least recently used first, with all that they
// consist of. An agent that starts knows which those are.
func TestTheLeastRecentlyUsedImageIsRemoved(t *testing.T) {
	r := containertest.NewRegistry(t)
	var freed atomic.Uint64
	m, g := collecting(t, r, CollectorOptions{BytesMax: 1 << 40, Removed: func(n uint64) { freed.Add(n) }})
	var all []string
	for i := range 3 {
		all = append(all, r.Push(fmt.Sprint("tools", i), "1", noise(t, 1<<20+i)))
		if _, err := m.image(t.Context(), all[i], false); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(time.Duration(i-10) * time.Hour).UTC().Format(time.RFC3339Nano)
		if err := g.c.setUsed(t.Context(), all[i], old); err != nil {
			t.Fatal(err)
		}
	}
	second, err := g.c.findUnpacked(t.Context(), all[1])
	if err != nil {
		t.Fatal(err)
	}
	collect(t, g, all...)
	if took := g.Bytes(); took < 6<<20 || took > 7<<20 {
		t.Errorf("three images of a MiB each, packed and unpacked, take %d bytes", took)
	}
	opened(t, m, 1, all[0]) // the oldest, and now the newest
	closed(t, m)
	next := NewCollector(g.c, CollectorOptions{BytesMax: 5 << 20, Removed: g.opts.Removed, Logger: g.opts.Logger})
	before := diskBytes(t, g.c.contentDir, g.c.snapshotsDir)
	collect(t, next, all[0], all[2])
	after := diskBytes(t, g.c.contentDir, g.c.snapshotsDir)
	if n := freed.Load(); n < 2<<20 || before-after < 2<<20 || next.Bytes() > 5<<20 {
		t.Errorf("%d bytes are said to be freed, and %d were; %d are left", n, before-after, next.Bytes())
	}
	ctx := in(t.Context(), Namespace)
	if _, err := g.c.content.Info(ctx, &content.InfoRequest{Digest: second.Layers[0].Digest}); !isCode(err, codes.NotFound) {
		t.Errorf("its layer is there: %v", err)
	}
	if _, err := g.c.snapshots.Stat(ctx, &snapshots.StatSnapshotRequest{Snapshotter: g.c.snapshotter, Key: second.chain()}); !isCode(err, codes.NotFound) {
		t.Errorf("its unpacked layer is there: %v", err)
	}
	opened(t, m, 2, all[1])
	if n := asked(r, second); n != 2 {
		t.Errorf("a sandbox opened with it after %d downloads", n)
	}
	collect(t, next, all[0], all[1])
}

// The time of the last use is written once a minute.
func TestTheLastUseOfAnImageIsWrittenNowAndThen(t *testing.T) {
	r := containertest.NewRegistry(t)
	m, g := collecting(t, r, CollectorOptions{BytesMax: 1 << 40})
	name := r.Push("tools", "1", noise(t, 1000))
	for _, step := range []struct {
		age     time.Duration // of the last use
		written bool
	}{{30 * time.Second, false}, {2 * time.Minute, true}, {-time.Hour, true}} {
		if _, err := m.image(t.Context(), name, false); err != nil {
			t.Fatal(err)
		}
		before := time.Now().Add(-step.age).UTC().Format(time.RFC3339Nano)
		if err := g.c.setUsed(t.Context(), name, before); err != nil {
			t.Fatal(err)
		}
		opened(t, m, 1, name)
		closed(t, m)
		if after := usedOf(t, g.c, name); (after != before) != step.written {
			t.Errorf("last used %v ago: %s became %s", step.age, before, after)
		}
	}
}

func usedOf(t *testing.T, c *Containerd, name string) string {
	t.Helper()
	resp, err := c.images.Get(in(t.Context(), Namespace), &images.GetImageRequest{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetImage().GetLabels()[usedLabel]
}

// Images that sandboxes and snapshots of sandboxes need stay, whatever they take, and so do those that
// rota has not made, or that were pinned.
func TestImagesThatAreNeededStay(t *testing.T) {
	r := containertest.NewRegistry(t)
	m, g := collecting(t, r, CollectorOptions{BytesMax: 1})
	var all []string
	for i, what := range []string{"open", "snapshot", "pinned", "foreign"} {
		all = append(all, r.Push(what, "1", noise(t, 10_000+i)))
		opened(t, m, uint64(i+1), all[i])
	}
	collect(t, g, all...)
	root := m.NewRoot(7)
	if committed, err := m.Commit(t.Context(), 2, root); err != nil || !committed {
		t.Fatal(err)
	}
	for _, name := range all[2:] {
		if err := g.c.Pin(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	closed(t, m, 1)
	collect(t, g, all...)
	// One of another program that has to be unpacked yet does not become one of rota.
	foreign, err := g.c.findUnpacked(t.Context(), all[3])
	if err == nil {
		err = g.c.removeSnapshot(in(t.Context(), Namespace), foreign.chain())
	}
	if err != nil {
		t.Fatal(err)
	}
	opened(t, m, 4, all[3])
	closed(t, m)
	collect(t, g, all[1:]...)
	if used := usedOf(t, g.c, all[3]); used != "" {
		t.Errorf("an image of another program was used at %s", used)
	}
	if err := m.KeepRoots(t.Context(), func() ([]string, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	select {
	case <-g.due:
	default:
		t.Error("the end of a snapshot has no collection follow, although images take too much")
	}
	collect(t, g, all[2:]...)
}

// Sandboxes open while their images are removed as fast as that goes, and never find half an image.
func TestSandboxesOpenWhileImagesAreRemoved(t *testing.T) {
	r := containertest.NewRegistry(t)
	m, g := collecting(t, r, CollectorOptions{BytesMax: 1})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var collections sync.WaitGroup
	removals := 0
	g.opts.Removed = func(uint64) { removals++ }
	collections.Go(func() {
		for ctx.Err() == nil {
			if err := g.Collect(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	var opens sync.WaitGroup
	for i := range uint64(4) {
		name := r.Push(fmt.Sprint("tools", i), "1", noise(t, 300_000+int(i/2))) // two have the same layer
		home := t.TempDir()
		opens.Go(func() {
			for n := range uint64(12) {
				id := i*100 + n + 1
				if _, err := m.Open(ctx, Spec{Trajectory: id, Incarnation: 1, Image: name, Home: home}); err != nil {
					t.Error(err)
					return
				}
				if err := m.end(ctx, id); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Duration(n) * 20 * time.Millisecond) // a collection may find it idle, or come into the next opening
			}
		})
	}
	opens.Wait()
	stop()
	collections.Wait()
	if removals < 4 {
		t.Errorf("%d images were removed meanwhile", removals)
	}
	collect(t, g)
}

// An image that another program removes after it was found is found or pulled again.
func TestAnImageThatIsRemovedBeforeItsSandboxOpens(t *testing.T) {
	r := containertest.NewRegistry(t)
	m, g := collecting(t, r, CollectorOptions{BytesMax: 1 << 40})
	name := r.Push("tools", "1", noise(t, 10_000))
	image, err := m.image(t.Context(), name, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.c.setUsed(t.Context(), name, time.Unix(1, 0).UTC().Format(time.RFC3339)); err != nil {
		t.Fatal(err)
	}
	for range openingMax {
		m.opening <- struct{}{}
	}
	failed, home := make(chan error, 1), t.TempDir()
	go func() {
		_, err := m.Open(context.Background(), Spec{Trajectory: 1, Incarnation: 1, Image: name, Home: home})
		failed <- err
	}()
	containertest.Wait(t, "the image was found", func() bool { return !strings.HasPrefix(usedOf(t, g.c, name), "1970") })
	// The agent that opens it leaves it.
	g.opts.BytesMax = 1
	collect(t, g, name)
	_, err = g.c.images.Delete(in(t.Context(), Namespace), &images.DeleteImageRequest{Name: name, Sync: true})
	if err != nil {
		t.Fatal(err)
	}
	for range openingMax {
		<-m.opening
	}
	if err := <-failed; err != nil || asked(r, image) != 2 {
		t.Errorf("after %d downloads: %v", asked(r, image), err)
	}
}

// containerd still undoes the opening of an agent that was killed, when the next one opens the sandbox.
func TestASandboxOpensAfterOneThatWasCutShort(t *testing.T) {
	r := containertest.NewRegistry(t)
	m, g := collecting(t, r, CollectorOptions{BytesMax: 1 << 40})
	name := r.Push("tools", "1", noise(t, 10_000))
	if _, err := m.image(t.Context(), name, false); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(g.c.snapshotsDir, "..", "..", "state", "io.containerd.runtime.v2.task", Namespace)
	for id, cutShort := range map[uint64]bool{1: true, 2: false} {
		bundle := filepath.Join(state, m.id(id))
		if err := os.MkdirAll(bundle, 0o700); err != nil {
			t.Fatal(err)
		}
		if cutShort {
			if err := m.Reserve(id); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(openAgain/2, func() { _ = os.Remove(bundle) })
		}
		_, err := m.Open(t.Context(), Spec{Trajectory: id, Incarnation: 1, Image: name, Home: t.TempDir()})
		if cutShort && err != nil || !cutShort && !errors.Is(err, errFirstProcess) {
			t.Errorf("cut short before: %v: %v", cutShort, err)
		}
		_ = os.Remove(bundle)
	}
}

// An image is removed while another one that has its layer is unpacked.
func TestALayerStaysForWhoeverUnpacksOnIt(t *testing.T) {
	r := containertest.NewRegistry(t)
	m, g := collecting(t, r, CollectorOptions{BytesMax: 1})
	image, err := m.image(t.Context(), r.Push("tools", "1", noise(t, 10_000)), false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, done, err := g.c.leased(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := g.c.unpackLayer(ctx, image.Layers[0], image.image.RootFS.DiffIDs[0], image.chain(), ""); err != nil {
		t.Fatal(err)
	}
	stat := &snapshots.StatSnapshotRequest{Snapshotter: g.c.snapshotter, Key: image.chain()}
	collect(t, g)
	if _, err := g.c.snapshots.Stat(ctx, stat); err != nil {
		t.Errorf("the layer that something is unpacked on: %v", err)
	}
	done()
	if err := g.c.collectGarbage(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := g.c.snapshots.Stat(in(t.Context(), Namespace), stat); !isCode(err, codes.NotFound) {
		t.Errorf("after that: %v", err)
	}
}

// A pull that does not fit has images removed that nothing uses, before it begins and while it goes on.
func TestAPullMakesRoomForItself(t *testing.T) {
	r := containertest.NewRegistry(t)
	m, g := collecting(t, r, CollectorOptions{BytesMax: 1 << 40})
	var packed, unpacked atomic.Uint64 // what the folders may have
	packed.Store(2<<20 + 1<<19)
	unpacked.Store(1 << 30)
	room := func(dir string) (uint64, error) {
		most := packed.Load()
		if dir == g.c.snapshotsDir {
			most = unpacked.Load()
		}
		return most - min(most, diskBytes(t, dir)), nil
	}
	with := func(c *Collector) { renew(t, m, r, func(o *PullOptions) { o.Room, o.Collector = room, c }) }
	with(g)
	var all []string
	for i := range 4 {
		all = append(all, r.Push(fmt.Sprint("tools", i), "1", noise(t, 1<<20+i)))
	}
	opened(t, m, 1, all[0])
	if _, err := m.image(t.Context(), all[1], false); err != nil {
		t.Fatal(err)
	}
	with(nil)
	if _, err := m.image(t.Context(), all[2], false); !errors.Is(err, errNoRoom) {
		t.Errorf("without a collector: %v", err)
	}
	with(g)
	if _, err := m.image(t.Context(), all[2], false); err != nil {
		t.Error(err)
	}
	collect(t, g, all[0], all[2])
	packed.Store(1 << 30)
	came, _, release := hang(r)
	defer release()
	pulled := make(chan error, 1)
	go func() {
		_, err := m.image(context.Background(), all[3], false)
		pulled <- err
	}()
	<-came
	unpacked.Store(diskBytes(t, g.c.snapshotsDir)) // none is left, and with the next layer a MiB less
	containertest.Wait(t, "an image made room", func() bool {
		left, err := g.c.ImageNames(t.Context())
		return err == nil && slices.Equal(left, all[:1])
	})
	unpacked.Store(1 << 30)
	release()
	if err := <-pulled; err != nil {
		t.Error(err)
	}
	closed(t, m)
	unpacked.Store(1)
	packed.Store(1)
	if _, err := m.image(t.Context(), r.Push("large", "1", noise(t, 1<<20+5)), false); !errors.Is(err, errNoRoom) {
		t.Errorf("a pull that does not fit at all: %v", err)
	}
	collect(t, g)
}

// The collector runs when there is a reason, and tries again when it has failed.
func TestACollectorThatRuns(t *testing.T) {
	r := containertest.NewRegistry(t)
	m, g := collecting(t, r, CollectorOptions{BytesMax: 1})
	gone := func(name string) bool {
		_, err := g.c.images.Get(in(t.Context(), Namespace), &images.GetImageRequest{Name: name})
		return isCode(err, codes.NotFound)
	}
	first, second := r.Push("first", "1", noise(t, 1000)), r.Push("second", "1", noise(t, 1001))
	if _, err := m.image(t.Context(), first, false); err != nil {
		t.Fatal(err)
	}
	<-g.due // so that it begins for no other reason than its start
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	containertest.Wait(t, "it collects when it starts", func() bool { return gone(first) })
	opened(t, m, 1, second)
	containertest.Wait(t, "it has seen that too much is left", g.over.Load)
	if gone(second) {
		t.Error("an image that a sandbox uses was removed")
	}
	closed(t, m)
	containertest.Wait(t, "it collects after the end of a sandbox", func() bool { return gone(second) })
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
