package container_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/agent/runtime/container"
	"rota/agent/runtime/container/containertest"
	"rota/agent/runtime/container/registry"
)

// pulling has a node pull from a registry.
func pulling(t *testing.T, r *containertest.Registry, change func(*container.PullOptions)) *node {
	t.Helper()
	n := newNode(t)
	o := container.PullOptions{Registry: registry.Options{Hosts: []string{r.Host}, CA: r.CA, Pause: time.Millisecond}, Logger: hclog.NewNullLogger()}
	if change != nil {
		change(&o)
	}
	var err error
	if n.opts.Puller, err = container.NewPuller(n.opts.Containerd, o); err != nil {
		t.Fatal(err)
	}
	n.restart()
	return n
}

func (n *node) specOf(trajectory uint64, image string) container.Spec {
	s := n.spec(trajectory)
	s.Image = image
	return s
}

// ownLayer is a layer that the node has from no other image: the end of an archive may be longer.
func ownLayer(t *testing.T) []byte { return append(containertest.Layer(t), make([]byte, 1024)...) }

// digest is that of bytes.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// TestPull: sandboxes that want the same image at once share one download, with credentials, and those
// that come later ask nobody.
func TestPull(t *testing.T) {
	r := containertest.NewRegistry(t)
	r.User, r.Password = "robot", "secret"
	name := r.Push("team/tools", "1", ownLayer(t))
	layerDigest, layer := r.Largest()
	auth := filepath.Join(t.TempDir(), "auth.json")
	text := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, r.Host, base64.StdEncoding.EncodeToString([]byte("robot:secret")))
	if err := os.WriteFile(auth, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var ended, bytes atomic.Uint64
	n := pulling(t, r, func(o *container.PullOptions) {
		o.Registry.Auth = auth
		o.Ended = func(got uint64, _ time.Duration, err error) {
			ended.Add(1)
			bytes.Add(got)
		}
	})
	var all sync.WaitGroup
	for i := range uint64(4) {
		all.Go(func() {
			if _, err := n.m.Open(t.Context(), n.specOf(i+1, name)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if out, code := run(t, n.open(n.specOf(1, name)), "echo $FROM_IMAGE; pwd"); out != "yes\n/work" || code != 0 {
		t.Errorf("in the sandbox: %q, %d", out, code)
	}
	asked, _ := r.Requests("/blobs/" + layerDigest)
	if len(asked) != 1 || ended.Load() != 1 || bytes.Load() != uint64(len(layer)) {
		t.Errorf("the layer of %d bytes was asked for %d times, in %d pulls of %d bytes", len(layer), len(asked), ended.Load(), bytes.Load())
	}
	before, _ := r.Requests("")
	n.open(n.specOf(9, name))
	if after, _ := r.Requests(""); len(after) != len(before) {
		t.Errorf("an image that the node has was asked for: %v", after[len(before):])
	}
}

// TestPullsThatAreRefused: what is said of images that cannot be had, and that a failure is not repeated at once.
func TestPullsThatAreRefused(t *testing.T) {
	r := containertest.NewRegistry(t)
	n := pulling(t, r, nil)
	for image, want := range map[string]string{
		"registry.example.com/tools:1": "--pull registry.example.com",
		"python:3.12":                  "--pull docker.io",
		r.Host + "/missing:1":          "has no " + r.Host + "/missing:1",
		r.Host + "/UPPER/../x:1":       "not a name",
	} {
		if _, err := n.m.Open(t.Context(), n.specOf(1, image)); err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, container.ErrNoImage) {
			t.Errorf("%s: %v", image, err)
		}
	}
	before, _ := r.Requests("")
	if _, err := n.m.Open(t.Context(), n.specOf(2, r.Host+"/missing:1")); !errors.Is(err, registry.ErrNotFound) {
		t.Error(err)
	}
	if after, _ := r.Requests(""); len(before) == 0 || len(after) != len(before) {
		t.Errorf("it was asked for again: %v", after[len(before):])
	}
}

// TestAPullThatBreaksOffGoesOn: a layer that breaks off is read on from where it was, and one whose bytes are
// not those that its digest names is read anew.
func TestAPullThatBreaksOffGoesOn(t *testing.T) {
	r := containertest.NewRegistry(t)
	name := r.Push("tools", "1", ownLayer(t))
	layerDigest, layer := r.Largest()
	var tries atomic.Int32
	var ranges sync.Map
	r.Fault = func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, "/blobs/"+layerDigest) {
			return false
		}
		n := tries.Add(1)
		ranges.Store(n, req.Header.Get("Range"))
		switch n {
		case 1: // other bytes
			w.Header().Set("Content-Length", fmt.Sprint(len(layer)))
			_, _ = w.Write(make([]byte, len(layer)))
			return true
		case 2: // half of them
			w.Header().Set("Content-Length", fmt.Sprint(len(layer)))
			w.Header().Set("Accept-Ranges", "bytes")
			_, _ = w.Write(layer[:len(layer)/2])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		return false
	}
	n := pulling(t, r, nil)
	if out, code := run(t, n.open(n.specOf(1, name)), "echo fine"); out != "fine" || code != 0 {
		t.Errorf("in the sandbox: %q, %d", out, code)
	}
	last, _ := ranges.Load(tries.Load())
	if got, _ := last.(string); !strings.HasPrefix(got, "bytes=") || strings.HasPrefix(got, "bytes=0-") {
		t.Errorf("after it broke off, in request %d, %q was asked for", tries.Load(), got)
	}
}

// TestALayerMustBeWhatTheImageCallsIt: snapshots are shared by the names of what is in them, so an image
// could otherwise bring other files into sandboxes of another one.
func TestALayerMustBeWhatTheImageCallsIt(t *testing.T) {
	r := containertest.NewRegistry(t)
	layer := ownLayer(t)
	forged := digest([]byte("what another image has"))
	config := fmt.Sprintf(`{"architecture":"any","os":"linux","rootfs":{"type":"layers","diff_ids":[%q]}}`, forged)
	b, err := json.Marshal(map[string]any{"schemaVersion": 2,
		"config": map[string]any{"mediaType": "application/vnd.oci.image.config.v1+json", "digest": r.PushBlob([]byte(config)), "size": len(config)},
		"layers": []any{map[string]any{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": r.PushBlob(layer), "size": len(layer)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.PushManifest("tools", "1", containertest.ManifestType, b)
	n := pulling(t, r, nil)
	if _, err := n.m.Open(t.Context(), n.specOf(1, r.Host+"/tools:1")); !errors.Is(err, container.ErrDamaged) {
		t.Errorf("with a forged name of its layer: %v", err)
	}
}

// TestAPullGoesOnForOthers: who gives up does not end the pull of another one, and the last one does.
func TestAPullGoesOnForOthers(t *testing.T) {
	r := containertest.NewRegistry(t)
	name := r.Push("tools", "1", ownLayer(t))
	layerDigest, _ := r.Largest()
	asked, send := make(chan struct{}, 8), make(chan struct{})
	r.Fault = func(_ http.ResponseWriter, req *http.Request) bool {
		if strings.Contains(req.URL.Path, "/blobs/"+layerDigest) {
			asked <- struct{}{}
			select {
			case <-send:
			case <-req.Context().Done():
			}
		}
		return false
	}
	n := pulling(t, r, nil)
	first, giveUp := context.WithCancel(t.Context())
	gone, stays := make(chan error, 1), make(chan error, 1)
	go func() { gone <- n.opts.Puller.Pull(first, name) }()
	<-asked
	go func() { stays <- n.opts.Puller.Pull(t.Context(), name) }()
	for n.opts.Puller.Waiting(name) < 2 {
		time.Sleep(time.Millisecond)
	}
	giveUp()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up: %v", err)
	}
	close(send)
	if err := <-stays; err != nil {
		t.Errorf("who stayed: %v", err)
	}
}

// TestAPullLeavesRoomOnTheDisk: nothing is downloaded that would not fit.
func TestAPullLeavesRoomOnTheDisk(t *testing.T) {
	r := containertest.NewRegistry(t)
	name := r.Push("tools", "1", ownLayer(t))
	layerDigest, layer := r.Largest()
	n := pulling(t, r, func(o *container.PullOptions) {
		o.Room = func(string) (uint64, error) { return uint64(len(layer)) - 1, nil }
	})
	if _, err := n.m.Open(t.Context(), n.specOf(1, name)); err == nil || !strings.Contains(err.Error(), "--disk-floor") {
		t.Errorf("without room: %v", err)
	}
	if asked, _ := r.Requests("/blobs/" + layerDigest); len(asked) > 0 {
		t.Error("the layer was downloaded")
	}
}
