package containertest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rota/agent/runtime/container/imagefile"
)

// IndexType is the media type of an index of OCI, and ManifestType that of a manifest.
const (
	IndexType    = "application/vnd.oci.image.index.v1+json"
	ManifestType = "application/vnd.oci.image.manifest.v1+json"
)

// Registry is a registry of images on a loopback address, as OCI distribution defines it, of which only
// the half for pulls exists.
type Registry struct {
	Host string // HOST:PORT
	CA   string // file of the certificate that it is trusted by; empty: it has no TLS
	// User and Password are those that may pull, if they are set before the first request.
	User, Password string

	t        testing.TB
	url      string
	mu       sync.Mutex
	blobs    map[string][]byte    // by digest
	tags     map[string]reference // by REPOSITORY:TAG and by digest
	requests []string
	authed   int
	fault    Fault
	cuts     int // answers that are still to be cut off
	cutAfter int // bytes
	hanging  *hang
	resumed  int // requests for a part of a blob
}

// hang has answers stop in the middle.
type hang struct {
	after    int // bytes
	came     chan struct{}
	released chan struct{}
}

// Hang lets answers that are longer stop after a number of bytes, and says so of each on a channel. They go on, and
// later ones do not stop, after release.
func (r *Registry) Hang(after int) (came <-chan struct{}, release func()) {
	h := &hang{after: after, came: make(chan struct{}, 100), released: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hanging = h
	return h.came, sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.hanging = nil
		close(h.released)
	})
}

// hangWriter stops after a number of bytes, until it is released or its client is gone.
type hangWriter struct {
	http.ResponseWriter
	*hang
	gone <-chan struct{}
	left int
}

func (w *hangWriter) Write(p []byte) (int, error) {
	if w.left < 0 || len(p) <= w.left {
		w.left -= len(p)
		return w.ResponseWriter.Write(p)
	}
	n, err := w.ResponseWriter.Write(p[:w.left])
	if err != nil {
		return n, err
	}
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	w.left = -1
	w.came <- struct{}{}
	select {
	case <-w.released:
	case <-w.gone:
	}
	more, err := w.ResponseWriter.Write(p[n:])
	return n + more, err
}

// Resumed is how many requests were for a part of a blob.
func (r *Registry) Resumed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resumed
}

// Fault answers a request itself, or returns false.
type Fault func(w http.ResponseWriter, r *http.Request) bool

// Fail lets a fault answer from now on; nil: none.
func (r *Registry) Fail(f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = f
}

// Cut lets the connection break in the next answers that are longer, after a number of bytes of each.
func (r *Registry) Cut(answers, after int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cuts, r.cutAfter = answers, after
}

// cutWriter breaks its connection after a number of bytes.
type cutWriter struct {
	http.ResponseWriter
	left int
}

func (w *cutWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		_, _ = w.ResponseWriter.Write(p[:w.left])
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	w.left -= len(p)
	return w.ResponseWriter.Write(p)
}

// reference is what a tag or a digest names.
type reference struct {
	mediaType string
	body      []byte
}

// token is what a registry gives to who has the password.
const token = "token-of-the-registry"

// NewRegistry starts a registry with TLS, and ends it with the test.
func NewRegistry(t testing.TB) *Registry {
	return newRegistry(t, httptest.NewUnstartedServer(nil), true)
}

// NewPlainRegistry starts a registry without TLS.
func NewPlainRegistry(t testing.TB) *Registry {
	return newRegistry(t, httptest.NewUnstartedServer(nil), false)
}

func newRegistry(t testing.TB, s *httptest.Server, secure bool) *Registry {
	t.Helper()
	r := &Registry{t: t, blobs: map[string][]byte{}, tags: map[string]reference{}}
	s.Config.Handler = http.HandlerFunc(r.serve)
	if secure {
		s.StartTLS()
		r.CA = filepath.Join(t.TempDir(), "ca.pem")
		b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
		if err := os.WriteFile(r.CA, b, 0o600); err != nil {
			t.Fatal(err)
		}
	} else {
		s.Start()
	}
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	r.url, r.Host = s.URL, s.Listener.Addr().String()
	return r
}

// Push stores an image with one layer, by its tag in a repository, and returns its name.
func (r *Registry) Push(repo, tag string, layer []byte) string {
	r.t.Helper()
	var archive bytes.Buffer
	if err := imagefile.Write(&archive, repo+":"+tag, layer, imagefile.Config{Env: []string{"PATH=/bin", "FROM_IMAGE=yes"}, WorkingDir: "/work"}); err != nil {
		r.t.Fatal(err)
	}
	for in := tar.NewReader(&archive); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return r.Host + "/" + repo + ":" + tag
		}
		var b []byte
		if err == nil {
			b, err = io.ReadAll(in)
		}
		if err != nil {
			r.t.Fatal(err)
		}
		if strings.HasPrefix(h.Name, "blobs/") {
			r.PushBlob(b)
		}
		if h.Name == "index.json" {
			r.PushManifest(repo, tag, IndexType, b)
		}
	}
}

// FileLayer is a layer with one file, not compressed.
func FileLayer(t testing.TB, name string, body []byte) []byte {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	add(t, w, &tar.Header{Name: name, Mode: 0o644}, body)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return layer.Bytes()
}

// PushBlob stores bytes and returns their digest.
func (r *Registry) PushBlob(b []byte) (digest string) {
	sum := sha256.Sum256(b)
	digest = "sha256:" + hex.EncodeToString(sum[:])
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blobs[digest] = b
	return digest
}

// PushManifest stores a manifest, or anything in place of one, by a tag and by its digest, which it returns.
func (r *Registry) PushManifest(repo, tag, mediaType string, b []byte) (digest string) {
	digest = r.PushBlob(b)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tags[repo+":"+tag] = reference{mediaType, b}
	r.tags[digest] = reference{mediaType, b}
	return digest
}

// Requests are the paths that were asked for so far and contain a text, and how many of those requests had credentials.
func (r *Registry) Requests(with string) (paths []string, authorized int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.requests {
		if strings.Contains(p, with) {
			paths = append(paths, p)
		}
	}
	return paths, r.authed
}

func (r *Registry) serve(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.requests = append(r.requests, req.URL.Path)
	if req.Header.Get("Authorization") != "" {
		r.authed++
	}
	if req.Header.Get("Range") != "" {
		r.resumed++
	}
	fault := r.fault
	r.mu.Unlock()
	if fault != nil && fault(w, req) {
		return
	}
	if req.URL.Path == "/token" {
		user, password, _ := req.BasicAuth()
		if user != r.User || password != r.Password {
			http.Error(w, "{}", http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"token": token})
		return
	}
	if r.User != "" && req.Header.Get("Authorization") != "Bearer "+token {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="test"`, r.url))
		http.Error(w, "{}", http.StatusUnauthorized)
		return
	}
	dir, name := path.Split(strings.TrimPrefix(req.URL.Path, "/v2/"))
	r.mu.Lock()
	defer r.mu.Unlock()
	if repo, ok := strings.CutSuffix(dir, "/manifests/"); ok {
		m, found := r.tags[repo+":"+name]
		if !found {
			m, found = r.tags[name]
		}
		if !found {
			m = reference{ManifestType, r.blobs[name]}
		}
		r.send(w, req, m.mediaType, m.body)
	} else {
		r.send(w, req, "application/octet-stream", r.blobs[name])
	}
}

// send answers with bytes, or a part of them. It is called under the lock, which it gives up for that time.
func (r *Registry) send(w http.ResponseWriter, req *http.Request, mediaType string, b []byte) {
	if r.cuts > 0 && len(b) > r.cutAfter {
		r.cuts--
		w = &cutWriter{w, r.cutAfter}
	}
	if r.hanging != nil && len(b) > r.hanging.after {
		w = &hangWriter{w, r.hanging, req.Context().Done(), r.hanging.after}
	}
	r.mu.Unlock()
	defer r.mu.Lock()
	if b == nil {
		http.Error(w, `{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(b))
}
