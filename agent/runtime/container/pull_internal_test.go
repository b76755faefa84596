package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	content "github.com/containerd/containerd/api/services/content/v1"
	leases "github.com/containerd/containerd/api/services/leases/v1"
	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"rota/agent/runtime/container/containertest"
	"rota/agent/runtime/container/registry"
)

// pulling is a manager that pulls from a registry.
func pulling(t *testing.T, r *containertest.Registry, change func(*PullOptions)) (*Manager, *Containerd) {
	t.Helper()
	m, c := managerOfItsOwn(t)
	renew(t, m, r, change)
	return m, c
}

// renew gives a manager a puller that remembers no failure.
func renew(t *testing.T, m *Manager, r *containertest.Registry, change func(*PullOptions)) {
	t.Helper()
	o := PullOptions{Registry: registry.Options{Hosts: []string{r.Host}, CA: r.CA, Pause: time.Millisecond}, Logger: hclog.NewNullLogger()}
	if change != nil {
		change(&o)
	}
	p, err := NewPuller(m.opts.Containerd, o)
	if err != nil {
		t.Fatal(err)
	}
	m.opts.Puller, m.importing = p, p.unpacking
}

// noise is a layer that gzip makes no smaller: a tar of one file.
func noise(t *testing.T, size int) []byte {
	t.Helper()
	b := make([]byte, size)
	source := rand.NewChaCha8([32]byte{byte(size)})
	_, _ = source.Read(b)
	return containertest.FileLayer(t, "noise", b)
}

func leasesOf(t *testing.T, c *Containerd) []*leases.Lease {
	t.Helper()
	resp, err := c.leases.List(in(t.Context(), Namespace), &leases.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetLeases()
}

// asked counts the requests for layers, which are the blobs that are neither a manifest nor a configuration.
func asked(r *containertest.Registry, m *manifest) int {
	n := 0
	for _, l := range m.Layers {
		paths, _ := r.Requests("/blobs/" + l.Digest)
		n += len(paths)
	}
	return n
}

func TestAnImageIsPulledOnce(t *testing.T) {
	r := containertest.NewRegistry(t)
	name := r.Push("team/tools", "1", noise(t, 100_000))
	var bytes, ended atomic.Uint64
	m, c := pulling(t, r, func(o *PullOptions) {
		o.Ended = func(n uint64, _ time.Duration, err error) {
			bytes.Add(n)
			ended.Add(1)
			if err != nil {
				t.Error(err)
			}
		}
	})
	image, err := m.image(t.Context(), name, false)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Load() != uint64(image.Layers[0].Size) || ended.Load() != 1 || len(leasesOf(t, c)) != 0 {
		t.Errorf("%d of %d bytes in %d pulls; leases left: %v", bytes.Load(), image.Layers[0].Size, ended.Load(), leasesOf(t, c))
	}
	before, _ := r.Requests("")
	if _, err := m.image(t.Context(), name, false); err != nil {
		t.Error(err)
	}
	if after, _ := r.Requests(""); len(after) != len(before) {
		t.Errorf("an image that is on the node was asked for: %q", after[len(before):])
	}
	// By its digest it is another name, and nothing that has to be downloaded.
	if _, err := m.image(t.Context(), r.Host+"/team/tools:any@"+image.self.Digest, false); err != nil || asked(r, image) != 1 {
		t.Errorf("by its digest it was downloaded %d times: %v", asked(r, image), err)
	}
	stored, err := c.ImageNames(t.Context())
	if want := r.Host + "/team/tools@" + image.self.Digest; err != nil || len(stored) != 2 || stored[0] != name || stored[1] != want {
		t.Errorf("the node has %q: %v", stored, err)
	}
	// A tag that names something else is so for who asks the registry.
	r.Push("team/tools", "1", noise(t, 50_000))
	if err := m.opts.Puller.Pull(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if now, err := m.image(t.Context(), name, false); err != nil || now.self.Digest == image.self.Digest {
		t.Errorf("after the tag was pulled again it is the same: %v", err)
	}
}

func TestAnImageThatCannotBePulledSaysWhy(t *testing.T) {
	r := containertest.NewRegistry(t)
	m, _ := pulling(t, r, nil)
	for name, want := range map[string][]string{
		"python:3.12":         {"--pull docker.io", "rota image import"},
		r.Host + "/nothing:1": {"has no " + r.Host + "/nothing:1"},
		"/etc/passwd":         {"not a name"},
	} {
		_, err := m.image(t.Context(), name, false)
		if !errors.Is(err, ErrNoImage) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is not in %v", name, w, err)
			}
		}
	}
	before, _ := r.Requests("")
	_, err := m.image(t.Context(), r.Host+"/nothing:1", false)
	if after, _ := r.Requests(""); len(after) != len(before) || !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("a moment after a failure it was asked %d times: %v", len(after)-len(before), err)
	}
}

// hang lets requests for layers wait, and says when one came and when one ended.
func hang(r *containertest.Registry) (came, ended chan struct{}, release func()) {
	came, ended = make(chan struct{}, 100), make(chan struct{}, 100)
	released := make(chan struct{})
	r.Fail(func(_ http.ResponseWriter, req *http.Request) bool {
		if req.Header.Get("Accept") != "" || !strings.Contains(req.URL.Path, "/blobs/") {
			return false
		}
		select {
		case <-released:
			return false
		default:
		}
		came <- struct{}{}
		select {
		case <-released:
			return false
		case <-req.Context().Done():
			ended <- struct{}{}
			return true
		}
	})
	return came, ended, sync.OnceFunc(func() { close(released) })
}

func TestThoseWhoWantAnImageShareItsPull(t *testing.T) {
	r := containertest.NewRegistry(t)
	name := r.Push("tools", "1", noise(t, 100_000))
	came, _, release := hang(r)
	defer release()
	m, c := pulling(t, r, nil)
	impatient, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := m.image(impatient, name, false)
		gone <- err
	}()
	<-came
	for _, l := range leasesOf(t, c) {
		if expires, err := time.Parse(time.RFC3339, l.GetLabels()[expireLabel]); err != nil || time.Until(expires) < PullMax || time.Until(expires) > leaseFor {
			t.Errorf("the lease of a pull ends at %v: %v", expires, err)
		}
	}
	if len(leasesOf(t, c)) != 1 {
		t.Errorf("a pull has the leases %v", leasesOf(t, c))
	}
	var others sync.WaitGroup
	for range 8 {
		others.Go(func() {
			if _, err := m.image(t.Context(), name, false); err != nil {
				t.Error(err)
			}
		})
	}
	containertest.Wait(t, "the others wait", func() bool {
		m.opts.Puller.mu.Lock()
		defer m.opts.Puller.mu.Unlock()
		return m.opts.Puller.pulls[name].waiting == 9
	})
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up heard %v", err)
	}
	release()
	others.Wait()
	image, err := m.image(t.Context(), name, false)
	if manifests, _ := r.Requests("/manifests/1"); err != nil || len(manifests) != 1 || asked(r, image) != 1 {
		t.Errorf("it was pulled %d times: %v", len(manifests), err)
	}
}

// A prefetch shares the pull of sandboxes, says how far it is, and holds the image.
func TestAPrefetchIsAPull(t *testing.T) {
	r := containertest.NewRegistry(t)
	name := r.Push("tools", "1", noise(t, 3<<20))
	came, release := r.Hang(2 << 20)
	defer release()
	m, c := pulling(t, r, nil)
	ended := make(chan error, 1)
	go func() { ended <- m.Prefetch(context.Background(), name) }()
	<-came
	containertest.Wait(t, "it says how far it is", func() bool {
		got, all := m.Pulling(name)
		return got >= 1<<20 && got < 3<<20 && all > 3<<20
	})
	defer c.holds.begin()()
	release()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if image, err := c.findUnpacked(t.Context(), name); err != nil || image == nil {
		t.Errorf("after it the node has %v, %v", image, err)
	}
	if got, all := m.Pulling(name); got != 0 || all != 0 || removed(t, &c.holds, name) {
		t.Errorf("after it %d of %d bytes are downloaded, or the image is not held", got, all)
	}
	if err := m.Prefetch(t.Context(), name); err != nil || len(leasesOf(t, c)) > 0 {
		t.Errorf("of an image that is there: %v", err)
	}
	m.opts.Puller = nil
	if err := m.Prefetch(t.Context(), "nothing:1"); !errors.Is(err, ErrNoImage) {
		t.Errorf("of an image that cannot be had: %v", err)
	}
}

func TestAPullEndsWhenNobodyWaitsForIt(t *testing.T) {
	r := containertest.NewRegistry(t)
	name := r.Push("tools", "1", noise(t, 100_000))
	came, ended, release := hang(r)
	defer release()
	m, c := pulling(t, r, nil)
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := m.image(ctx, name, false)
		gone <- err
	}()
	<-came
	leave()
	<-gone
	<-ended
	containertest.Wait(t, "its lease is gone", func() bool { return len(leasesOf(t, c)) == 0 })
	release()
	if _, err := m.image(t.Context(), name, false); err != nil {
		t.Errorf("wanted again: %v", err)
	}
}

// At most three images are pulled at once. One more waits.
func TestPullsAreBounded(t *testing.T) {
	r := containertest.NewRegistry(t)
	came, _, release := hang(r)
	defer release()
	m, _ := pulling(t, r, nil)
	var pulls sync.WaitGroup
	for i := range pullingMax + 1 {
		name := r.Push(fmt.Sprint("tools", i), "1", noise(t, 10_000+i))
		pulls.Go(func() {
			if _, err := m.image(t.Context(), name, false); err != nil {
				t.Error(err)
			}
		})
	}
	for range pullingMax {
		<-came
	}
	containertest.Wait(t, "all are known", func() bool {
		m.opts.Puller.mu.Lock()
		defer m.opts.Puller.mu.Unlock()
		return len(m.opts.Puller.pulls) == pullingMax+1
	})
	if opened, _ := r.Requests("/manifests/1"); len(opened) != pullingMax {
		t.Errorf("%d images are being pulled", len(opened))
	}
	release()
	pulls.Wait()
}

// A pull that failed ahead of an action is tried again for the action, and after that for nobody for a while.
func TestAFailedPullAheadOfAnActionIsTriedAgain(t *testing.T) {
	r := containertest.NewRegistry(t)
	m, _ := pulling(t, r, nil)
	for i, ahead := range []bool{true, true, false, false, true} {
		before, _ := r.Requests("")
		_, err := m.image(t.Context(), r.Host+"/nothing:1", ahead)
		after, _ := r.Requests("")
		if want := i == 0 || i == 2; !errors.Is(err, registry.ErrNotFound) || len(after) > len(before) != want {
			t.Errorf("try %d, ahead of an action %v, asked the registry %d times: %v", i, ahead, len(after)-len(before), err)
		}
	}
}

// Pulls ahead of actions leave room for those of actions. One that an action asks for meanwhile is its own.
func TestPullsAheadLeaveRoom(t *testing.T) {
	r := containertest.NewRegistry(t)
	came, _, release := hang(r)
	defer release()
	m, _ := pulling(t, r, nil)
	var pulls sync.WaitGroup
	pull := func(name string, ahead bool) {
		pulls.Go(func() {
			if _, err := m.image(t.Context(), name, ahead); err != nil {
				t.Error(err)
			}
		})
	}
	var last string
	for i := range pullingAheadMax + 1 {
		last = r.Push(fmt.Sprint("tools", i), "1", noise(t, 10_000+i))
		pull(last, true)
		if i < pullingAheadMax {
			<-came
		}
	}
	containertest.Wait(t, "all are known", func() bool {
		m.opts.Puller.mu.Lock()
		defer m.opts.Puller.mu.Unlock()
		return len(m.opts.Puller.pulls) == pullingAheadMax+1
	})
	if opened, _ := r.Requests("/manifests/1"); len(opened) != pullingAheadMax {
		t.Errorf("%d images are being pulled", len(opened))
	}
	pull(last, false)
	<-came
	release()
	pulls.Wait()
}

// Two images with a layer in common are pulled at once.
func TestALayerOfTwoImages(t *testing.T) {
	r := containertest.NewRegistry(t)
	layer := noise(t, 3<<20)
	names := []string{r.Push("one", "1", layer), r.Push("two", "1", layer)}
	m, _ := pulling(t, r, nil)
	var pulls sync.WaitGroup
	for _, name := range names {
		pulls.Go(func() {
			if _, err := m.image(t.Context(), name, false); err != nil {
				t.Error(err)
			}
		})
	}
	pulls.Wait()
}

// A layer goes on where it was cut off: each answer brings two MiB of five.
func TestALayerGoesOnWhereItWasCutOff(t *testing.T) {
	r := containertest.NewRegistry(t)
	name := r.Push("tools", "1", noise(t, 5<<20))
	var got atomic.Uint64
	m, _ := pulling(t, r, func(o *PullOptions) {
		o.Ended = func(n uint64, _ time.Duration, _ error) { got.Add(n) }
	})
	r.Cut(2, 2<<20)
	image, err := m.image(t.Context(), name, false)
	if err != nil {
		t.Fatal(err)
	}
	if n := got.Load(); n != uint64(image.Layers[0].Size) {
		t.Errorf("%d bytes were read of %d", n, image.Layers[0].Size)
	}
	name = r.Push("more", "1", noise(t, 5<<20+1))
	r.Cut(1000, 100)
	if _, err := m.image(t.Context(), name, false); !errors.Is(err, registry.ErrInterrupted) {
		t.Errorf("a layer that is always cut off: %v", err)
	}
}

// What a registry sends is stored if it is what its digest names.
func TestOtherBytesAreNotStored(t *testing.T) {
	r := containertest.NewRegistry(t)
	name := r.Push("tools", "1", noise(t, 100_000))
	m, c := pulling(t, r, nil)
	image, err := m.opts.Puller.registry.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	layer := image.Layers[0]
	lies := new(atomic.Int64)
	lie := func(size int) containertest.Fault {
		return func(w http.ResponseWriter, req *http.Request) bool {
			if !strings.Contains(req.URL.Path, layer.Digest) {
				return false
			}
			lies.Add(1)
			_, _ = w.Write(bytes.Repeat([]byte{'x'}, size))
			return true
		}
	}
	for what, fault := range map[string]containertest.Fault{"as many": lie(int(layer.Size)), "more": lie(int(layer.Size) + 1), "fewer": lie(int(layer.Size) - 1)} {
		renew(t, m, r, nil)
		r.Fail(fault)
		if _, err := m.image(t.Context(), name, false); !errors.Is(err, ErrNoImage) {
			t.Errorf("%s bytes: %v", what, err)
		}
		if _, err := c.content.Info(in(t.Context(), Namespace), &content.InfoRequest{Digest: layer.Digest}); !isCode(err, codes.NotFound) {
			t.Errorf("%s bytes were stored: %v", what, err)
		}
	}
	if lies.Load() < 3 || len(leasesOf(t, c)) > 0 {
		t.Errorf("%d lies; leases left: %v", lies.Load(), leasesOf(t, c))
	}
	r.Fail(nil)
	renew(t, m, r, nil)
	if _, err := m.image(t.Context(), name, false); err != nil {
		t.Errorf("after the lies: %v", err)
	}
}

// An image cannot give its files to another one, whose layers it claims to have.
func TestALayerThatIsNotWhatItsImageSays(t *testing.T) {
	r := containertest.NewRegistry(t)
	victim := containertest.FileLayer(t, "file", []byte("of the victim"))
	poison := containertest.FileLayer(t, "file", []byte("of another"))
	diffID := r.PushBlob(victim)
	config := fmt.Appendf(nil, `{"architecture":"x","os":"linux","rootfs":{"type":"layers","diff_ids":[%q]}}`, diffID)
	describe := func(mediaType string, b []byte) map[string]any {
		return map[string]any{"mediaType": mediaType, "digest": r.PushBlob(b), "size": len(b)}
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "config": describe("application/vnd.oci.image.config.v1+json", config),
		"layers": []any{describe("application/vnd.oci.image.layer.v1.tar", poison)},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.PushManifest("poison", "1", containertest.ManifestType, manifest)
	m, c := pulling(t, r, nil)
	if _, err := m.image(t.Context(), r.Host+"/poison:1", false); !errors.Is(err, ErrDamaged) {
		t.Errorf("it was pulled: %v", err)
	}
	if _, err := c.snapshots.Stat(in(t.Context(), Namespace), &snapshots.StatSnapshotRequest{Snapshotter: c.snapshotter, Key: diffID}); !isCode(err, codes.NotFound) {
		t.Errorf("the snapshot of the victim is there: %v", err)
	}
	if _, err := m.image(t.Context(), r.Push("victim", "1", victim), false); err != nil {
		t.Error(err)
	}
}

// A pull needs room for what it downloads, and ends when the disk fills up.
func TestAPullLeavesRoom(t *testing.T) {
	r := containertest.NewRegistry(t)
	name := r.Push("tools", "1", noise(t, 100_000))
	var packed, unpacked atomic.Uint64
	m, c := pulling(t, r, nil)
	options := func(o *PullOptions) {
		o.Room = func(dir string) (uint64, error) {
			switch dir {
			case c.contentDir:
				return packed.Load(), nil
			case c.snapshotsDir:
				return unpacked.Load(), nil
			}
			return 0, errors.New("another folder")
		}
	}
	packed.Store(1000)
	unpacked.Store(1 << 30)
	renew(t, m, r, options)
	if _, err := m.image(t.Context(), name, false); !errors.Is(err, errNoRoom) {
		t.Errorf("with room for 1000 bytes: %v", err)
	}
	if layers, _ := r.Requests("/blobs/"); len(layers) > 1 {
		t.Errorf("without room it asked for %q", layers)
	}
	packed.Store(1 << 30)
	renew(t, m, r, options)
	came, ended, release := hang(r)
	defer release()
	failed := make(chan error, 1)
	go func() {
		_, err := m.image(context.Background(), name, false)
		failed <- err
	}()
	<-came
	unpacked.Store(0)
	if err := <-failed; !errors.Is(err, errNoRoom) || !strings.Contains(err.Error(), "--disk-floor") {
		t.Errorf("when the disk is full: %v", err)
	}
	<-ended
}

// What a pull leaves that died with its agent is removed once its lease has expired.
func TestAnExpiredLeaseKeepsNothing(t *testing.T) {
	_, c := managerOfItsOwn(t)
	ctx := in(t.Context(), Namespace)
	expired := time.Now().Add(time.Second).UTC().Format(time.RFC3339)
	lease, err := c.leases.Create(ctx, &leases.CreateRequest{Labels: map[string]string{expireLabel: expired}})
	if err != nil {
		t.Fatal(err)
	}
	half := bytes.NewReader(make([]byte, 1000))
	digest := "sha256:" + strings.Repeat("0", 64)
	err = c.writeBlob(metadata.AppendToOutgoingContext(ctx, leaseKey, lease.GetLease().GetID()), digest, 2000, streamed(half))
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	pieces := func() int {
		resp, err := c.content.ListStatuses(ctx, &content.ListStatusesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return len(resp.GetStatuses())
	}
	if err := c.collectGarbage(t.Context()); err != nil || pieces() != 1 {
		t.Errorf("before it expires there are %d pieces of blobs: %v", pieces(), err)
	}
	containertest.Wait(t, "the lease and its piece are gone", func() bool {
		if err := c.collectGarbage(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(leasesOf(t, c)) == 0 && pieces() == 0
	})
}

func TestFullNames(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for name, want := range map[string]string{
		"python":                            "docker.io/library/python:latest",
		"python:3.12":                       "docker.io/library/python:3.12",
		"team/python":                       "docker.io/team/python:latest",
		"docker.io/python:3":                "docker.io/library/python:3",
		"docker.io/team/python:3":           "docker.io/team/python:3",
		"localhost/python":                  "localhost/python:latest",
		"example.com:5000/python":           "example.com:5000/python:latest",
		"example.com:5000/a/b:1":            "example.com:5000/a/b:1",
		"python" + digest:                   "docker.io/library/python" + digest,
		"python:3.12" + digest:              "docker.io/library/python" + digest,
		"example.com:5000/a/b:1" + digest:   "example.com:5000/a/b" + digest,
		"example.com:5000/a/b" + digest:     "example.com:5000/a/b" + digest,
		"team/python:3" + digest:            "docker.io/team/python" + digest,
		"docker.io/library/python" + digest: "docker.io/library/python" + digest,
	} {
		if got := fullName(name); got != want || fullName(got) != got {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
		host, _, _ := strings.Cut(want, "/")
		if got := RegistryOf(name); got != host {
			t.Errorf("%s is in %s, want %s", name, got, host)
		}
	}
}
