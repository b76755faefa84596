package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rota/agent/runtime/container/containertest"
	"rota/agent/runtime/container/registry"
)

// with is a client that may use a registry.
func with(t *testing.T, r *containertest.Registry, change func(*registry.Options)) *registry.Client {
	t.Helper()
	o := registry.Options{Hosts: []string{r.Host}, CA: r.CA, Pause: time.Millisecond}
	if change != nil {
		change(&o)
	}
	c, err := registry.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func write(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// read opens an image and reads its only layer.
func read(ctx context.Context, c *registry.Client, name string) (int, error) {
	image, err := c.Open(ctx, name)
	if err != nil {
		return 0, err
	}
	l, err := image.Layer(ctx, image.Layers[0], 0)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	n, err := io.Copy(io.Discard, l)
	return int(n), err
}

func TestAnImageIsReadFromARegistry(t *testing.T) {
	r := containertest.NewRegistry(t)
	name := r.Push("team/tools", "1", []byte("a layer"))
	c := with(t, r, nil)
	image, err := c.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	l := image.Layers[0]
	if n, err := read(t.Context(), c, name); err != nil || int64(n) != l.Size {
		t.Errorf("read %d of %d bytes: %v", n, l.Size, err)
	}
	rest, err := image.Layer(t.Context(), l, 5)
	if err != nil {
		t.Fatal(err)
	}
	defer rest.Close()
	if b, err := io.ReadAll(rest); err != nil || int64(len(b)) != l.Size-5 {
		t.Errorf("the rest has %d of %d bytes: %v", len(b), l.Size-5, err)
	}
	pinned := r.Host + "/team/tools@" + image.Manifest.Digest
	if again, err := c.Open(t.Context(), pinned); err != nil || again.Config != image.Config {
		t.Errorf("by its digest it is %+v: %v", again, err)
	}
}

func TestOnlyAllowedRegistriesAreAsked(t *testing.T) {
	r := containertest.NewRegistry(t)
	name := r.Push("tools", "1", []byte("a layer"))
	c := with(t, r, func(o *registry.Options) { o.Hosts = []string{"docker.io"} })
	if _, err := c.Open(t.Context(), name); !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), "--pull "+r.Host) {
		t.Error(err)
	}
	c = with(t, r, nil)
	for _, name := range []string{"../../etc/passwd", r.Host + "/../x:1", r.Host + "/a/../../b", r.Host + "/a@sha256:..", r.Host + "/a:..%2f", r.Host, ""} {
		if _, err := c.Open(t.Context(), name); !errors.Is(err, registry.ErrRefused) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if asked, _ := r.Requests(""); len(asked) > 0 {
		t.Errorf("it was asked for %q", asked)
	}
}

func TestWrongOptionsAreRefused(t *testing.T) {
	for what, o := range map[string]registry.Options{
		"chmod":             {Auth: write(t, "{}", 0o644)},
		"damaged":           {Auth: write(t, "{", 0o600)},
		"is damaged":        {Auth: write(t, `{"auths":{"a":{"auth":"c2VjcmV0"}}}`, 0o600)},
		"no such file":      {Auth: "/nowhere"},
		"no certificate":    {CA: write(t, "{", 0o600)},
		"needs HTTPS":       {Hosts: []string{"http://registry.example.com"}},
		"HOST or HOST:PORT": {Hosts: []string{"https://registry.example.com"}},
		"is not HOST":       {Hosts: []string{"docker.io/library"}},
	} {
		if _, err := registry.New(o); !errors.Is(err, registry.ErrConfig) || !strings.Contains(err.Error(), what) || strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("%q: %v", what, err)
		}
	}
	if _, err := registry.New(registry.Options{Hosts: []string{"docker.io", "localhost:5000", "http://127.0.0.1:5000", "http://[::1]:5000"}}); err != nil {
		t.Error(err)
	}
}

func TestCredentials(t *testing.T) {
	r := containertest.NewRegistry(t)
	r.User, r.Password = "ada", "secret"
	name := r.Push("tools", "1", []byte("a layer"))
	if _, err := read(t.Context(), with(t, r, nil), name); !errors.Is(err, registry.ErrUnauthorized) || !strings.Contains(err.Error(), "--registry-auth") || !strings.Contains(err.Error(), r.Host) {
		t.Errorf("without credentials: %v", err)
	}
	file := func(password string) string {
		return fmt.Sprintf(`{"auths":{%q:{"username":"ada","password":%q}},"credsStore":"a-program"}`, r.Host, password)
	}
	path := write(t, file("another"), 0o600)
	c := with(t, r, func(o *registry.Options) { o.Auth = path })
	if _, err := read(t.Context(), c, name); !errors.Is(err, registry.ErrUnauthorized) || strings.Contains(err.Error(), "another") {
		t.Errorf("with wrong credentials: %v", err)
	}
	if err := os.WriteFile(path, []byte(file("secret")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t.Context(), c, name); err != nil {
		t.Errorf("after the file was mended: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t.Context(), c, name); !errors.Is(err, registry.ErrConfig) {
		t.Errorf("after others could read the file: %v", err)
	}
}

func TestCredentialsStayWithTheirRegistry(t *testing.T) {
	r, store := containertest.NewRegistry(t), containertest.NewRegistry(t)
	plain := containertest.NewPlainRegistry(t)
	r.User, r.Password = "ada", "secret"
	name := r.Push("tools", "1", []byte("a layer"))
	store.Push("tools", "1", []byte("a layer"))
	plain.Push("tools", "1", []byte("a layer"))
	auth := write(t, fmt.Sprintf(`{"auths":{%q:{"username":"ada","password":"secret"}}}`, r.Host), 0o600)
	to := "https://" + store.Host
	r.Fail(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.Contains(req.URL.Path, "/blobs/") || req.Header.Get("Authorization") == "" {
			return false
		}
		http.Redirect(w, req, to+req.URL.Path+"?signature=hidden", http.StatusTemporaryRedirect)
		return true
	})
	c := with(t, r, func(o *registry.Options) { o.Auth = auth })
	if _, err := read(t.Context(), c, name); err != nil {
		t.Errorf("with a redirect to another host: %v", err)
	}
	if asked, authorized := store.Requests("/blobs/"); len(asked) == 0 || authorized > 0 {
		t.Errorf("the other host was asked %d times, %d of them with credentials", len(asked), authorized)
	}
	to = "http://" + plain.Host
	_, err := read(t.Context(), c, name)
	if asked, _ := plain.Requests(""); err == nil || len(asked) > 0 || !strings.Contains(err.Error(), "no TLS") || strings.Contains(err.Error(), "hidden") {
		t.Errorf("with a redirect to plain HTTP, which was asked for %q: %v", asked, err)
	}
}

func TestPlainHTTPOnlyIfItIsAskedFor(t *testing.T) {
	r := containertest.NewPlainRegistry(t)
	name := r.Push("tools", "1", []byte("a layer"))
	if _, err := read(t.Context(), with(t, r, nil), name); !errors.Is(err, registry.ErrUnreachable) {
		t.Errorf("with TLS: %v", err)
	}
	c := with(t, r, func(o *registry.Options) { o.Hosts = []string{"http://" + r.Host} })
	if _, err := read(t.Context(), c, name); err != nil {
		t.Error(err)
	}
	secure := containertest.NewRegistry(t)
	name = secure.Push("tools", "1", []byte("a layer"))
	c = with(t, secure, func(o *registry.Options) { o.CA = "" })
	if _, err := read(t.Context(), c, name); !errors.Is(err, registry.ErrUnreachable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("with a certificate that nobody trusts: %v", err)
	}
}

// failing answers the first requests with a status.
func failing(times int64, status int, header ...string) (*atomic.Int64, containertest.Fault) {
	n := new(atomic.Int64)
	return n, func(w http.ResponseWriter, _ *http.Request) bool {
		if n.Add(1) > times {
			return false
		}
		if len(header) == 2 {
			w.Header().Set(header[0], header[1])
		}
		http.Error(w, "{}", status)
		return true
	}
}

func only(_ *atomic.Int64, f containertest.Fault) containertest.Fault { return f }

func TestWhatMayPassIsTriedAgain(t *testing.T) {
	for _, status := range []int{408, 429, 500, 503} {
		r := containertest.NewRegistry(t)
		r.Fail(only(failing(5, status)))
		if _, err := read(t.Context(), with(t, r, nil), r.Push("tools", "1", []byte("a layer"))); err != nil {
			t.Errorf("five times %d: %v", status, err)
		}
		n, fault := failing(1000, status)
		r.Fail(fault)
		if _, err := read(t.Context(), with(t, r, nil), r.Host+"/tools:1"); !errors.Is(err, registry.ErrUnreachable) || n.Load() != 6 {
			t.Errorf("always %d, after %d tries: %v", status, n.Load(), err)
		}
	}
	for status, want := range map[int]error{403: registry.ErrUnauthorized, 404: registry.ErrNotFound, 400: registry.ErrUnreachable} {
		r := containertest.NewRegistry(t)
		n, fault := failing(1000, status)
		r.Fail(fault)
		if _, err := read(t.Context(), with(t, r, nil), r.Host+"/tools:1"); !errors.Is(err, want) || n.Load() != 1 {
			t.Errorf("%d, after %d tries: %v", status, n.Load(), err)
		}
	}
	r := containertest.NewRegistry(t)
	r.Fail(only(failing(1, 429, "Retry-After", "1")))
	began := time.Now()
	if _, err := read(t.Context(), with(t, r, nil), r.Push("tools", "1", []byte("a layer"))); err != nil || time.Since(began) < time.Second {
		t.Errorf("it was asked again after %v: %v", time.Since(began), err)
	}
}

func TestAPauseEndsWithItsCaller(t *testing.T) {
	r := containertest.NewRegistry(t)
	r.Fail(only(failing(1000, 429, "Retry-After", "20")))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := read(ctx, with(t, r, nil), r.Host+"/tools:1"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 10*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

func TestALayerThatEndsEarlyIsInterrupted(t *testing.T) {
	r := containertest.NewRegistry(t)
	name := r.Push("tools", "1", []byte(strings.Repeat("a layer", 1000)))
	image, err := with(t, r, nil).Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	r.Fail(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Length", fmt.Sprint(image.Layers[0].Size))
		_, _ = w.Write([]byte("a"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	l, err := image.Layer(t.Context(), image.Layers[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if n, err := io.Copy(io.Discard, l); !errors.Is(err, registry.ErrInterrupted) || n != 1 {
		t.Errorf("after %d bytes: %v", n, err)
	}
	r.Fail(only(failing(1000, 503)))
	if _, err := image.Layer(t.Context(), image.Layers[0], 0); !errors.Is(err, registry.ErrUnreachable) {
		t.Errorf("a layer that cannot be had: %v", err)
	}
}

// blob is a descriptor.
type blob map[string]any

func describe(mediaType, digest string, size int64) blob {
	return blob{"mediaType": mediaType, "digest": digest, "size": size}
}

const (
	configType = "application/vnd.oci.image.config.v1+json"
	layerType  = "application/vnd.oci.image.layer.v1.tar"
)

func TestHostileManifestsAreRefusedBeforeLayersAreAsked(t *testing.T) {
	r := containertest.NewRegistry(t)
	layer := r.PushBlob([]byte("a layer"))
	config := fmt.Sprintf(`{"rootfs":{"diff_ids":[%q]}}`, layer)
	good := describe(configType, r.PushBlob([]byte(config)), int64(len(config)))
	many := make([]blob, 300)
	for i := range many {
		many[i] = describe(layerType, layer, 7)
	}
	giant := describe(layerType, layer, 1<<50)
	for name, m := range map[string]struct {
		config blob
		layers []blob
	}{
		"--pull-max":          {good, []blob{describe(layerType, layer, 40<<30)}},
		"9223372036854775807": {good, []blob{describe(layerType, layer, 1<<63-1)}},
		"sum-pull-max":        {good, append(many[:0:0], giant, giant, giant)},
		"-5 bytes":            {good, []blob{describe(layerType, layer, -5)}},
		"not unpacked here":   {good, []blob{describe("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", layer, 7)}},
		"300 layers":          {good, many},
		"0 layers":            {good, nil},
		"SHA-256":             {good, []blob{describe(layerType, "sha256:../../etc/passwd", 7)}},
		"sha512":              {good, []blob{describe(layerType, "sha512:"+strings.Repeat("0", 128), 7)}},
		"2 layers":            {good, []blob{describe(layerType, layer, 7), describe(layerType, layer, 7)}},
		"no image of a":       {describe("application/vnd.cncf.helm.config.v1+json", layer, 7), []blob{describe(layerType, layer, 7)}},
		"4194305":             {describe(configType, layer, 4<<20+1), []blob{describe(layerType, layer, 7)}},
		"other bytes":         {describe(configType, "sha256:"+strings.Repeat("0", 64), 7), []blob{describe(layerType, layer, 7)}},
		"is not JSON":         {describe(configType, layer, 7), []blob{describe(layerType, layer, 7)}},
	} {
		b, err := json.Marshal(map[string]any{"schemaVersion": 2, "config": m.config, "layers": m.layers})
		if err != nil {
			t.Fatal(err)
		}
		r.PushManifest("tools", "1", containertest.ManifestType, b)
		want := strings.TrimPrefix(name, "sum")
		if name == "other bytes" {
			want = "not in the registry"
		}
		if _, err := with(t, r, nil).Open(t.Context(), r.Host+"/tools:1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"4194304":    strings.Repeat(" ", 5<<20),
		"not JSON":   "{",
		"it has 0 l": `{"config":{"mediaType":"application/vnd.oci.image.config.v1+json"}}`,
	} {
		r.PushManifest("tools", "1", containertest.ManifestType, []byte(text))
		if _, err := with(t, r, nil).Open(t.Context(), r.Host+"/tools:1"); !errors.Is(err, registry.ErrBadImage) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.PushManifest("tools", "1", "text/html", []byte("<html>"))
	if _, err := with(t, r, nil).Open(t.Context(), r.Host+"/tools:1"); !errors.Is(err, registry.ErrBadImage) {
		t.Errorf("a page: %v", err)
	}
	if asked, _ := r.Requests("/blobs/" + layer); len(asked) != 1 { // for the configuration that is no JSON
		t.Errorf("layers were asked for: %q", asked)
	}
}

func TestIndexes(t *testing.T) {
	r := containertest.NewRegistry(t)
	r.Push("tools", "1", []byte("a layer"))
	index := func(d blob) string {
		b, err := json.Marshal(map[string]any{"manifests": []blob{d}})
		if err != nil {
			t.Fatal(err)
		}
		return r.PushManifest("tools", "1", containertest.IndexType, b)
	}
	other := describe(containertest.ManifestType, "sha256:"+strings.Repeat("0", 64), 7)
	other["platform"] = blob{"os": "linux", "architecture": "riscv-of-" + runtime.GOARCH}
	index(other)
	if _, err := with(t, r, nil).Open(t.Context(), r.Host+"/tools:1"); !errors.Is(err, registry.ErrBadImage) || !strings.Contains(err.Error(), "nothing for linux/") {
		t.Errorf("for other machines: %v", err)
	}
	digest, size := index(describe("text/plain", "sha256:"+strings.Repeat("0", 64), 7)), int64(0)
	for range 8 {
		b, err := json.Marshal(map[string]any{"manifests": []blob{describe(containertest.IndexType, digest, size)}})
		if err != nil {
			t.Fatal(err)
		}
		digest, size = r.PushManifest("tools", "1", containertest.IndexType, b), int64(len(b))
	}
	before, _ := r.Requests("")
	_, err := with(t, r, nil).Open(t.Context(), r.Host+"/tools:1")
	after, _ := r.Requests("")
	if !errors.Is(err, registry.ErrBadImage) || !strings.Contains(err.Error(), "deep") || len(after)-len(before) > 5 {
		t.Errorf("indexes without end, after %d requests: %v", len(after)-len(before), err)
	}
}
