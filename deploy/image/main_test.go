package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// entries reads a tar file: content by name, and headers.
func entries(t *testing.T, archive []byte) (content map[string][]byte, headers map[string]*tar.Header) {
	t.Helper()
	content, headers = map[string][]byte{}, map[string]*tar.Header{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return content, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		content[h.Name], headers[h.Name] = b, h
	}
}

// layout is an image that was read back.
type layout struct {
	*testing.T
	files map[string][]byte
}

// blob returns what a descriptor points at, after a check of its size and digest.
func (l layout) blob(d descriptor, mediaType string) []byte {
	l.Helper()
	b, ok := l.files[blobPath(d.Digest)]
	sum := sha256.Sum256(b)
	if !ok || d.MediaType != mediaType || len(b) != d.Size || d.Digest != "sha256:"+hex.EncodeToString(sum[:]) {
		l.Fatalf("%+v points at %d bytes", d, len(b))
	}
	return b
}

func (l layout) json(b []byte, into any) {
	l.Helper()
	if err := json.Unmarshal(b, into); err != nil {
		l.Fatal(err)
	}
}

// TestAnImageIsReadBack follows the file as a container engine does: from the index to the
// manifest, to the configuration and the layer, and to the binary in it.
func TestAnImageIsReadBack(t *testing.T) {
	dir := t.TempDir()
	binary, out := filepath.Join(dir, "rota"), filepath.Join(dir, "rota.tar")
	if err := os.WriteFile(binary, []byte("a binary"), 0o755); err != nil {
		t.Fatal(err)
	}
	img := image{arch: "amd64", tag: "rota:1.2.3", version: "1.2.3"}
	if err := run(binary, out, img); err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := entries(t, archive)
	l := layout{t, files}
	var index struct{ Manifests []descriptor }
	l.json(files["index.json"], &index)
	if name := index.Manifests[0].Annotations["io.containerd.image.name"]; name != "docker.io/library/rota:1.2.3" {
		t.Errorf("containerd calls it %s", name)
	}
	if len(index.Manifests) != 1 || index.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "rota:1.2.3" {
		t.Fatalf("the index has %+v", index)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	l.json(l.blob(index.Manifests[0], manifestType), &manifest)
	var config struct {
		Architecture, OS string
		Config           struct {
			User       string
			Entrypoint []string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	l.json(l.blob(manifest.Config, configType), &config)
	if config.OS != "linux" || config.Architecture != "amd64" || config.Config.User != "65532:65532" ||
		strings.Join(config.Config.Entrypoint, " ") != "/usr/bin/rota" || len(manifest.Layers) != 1 || config.RootFS.DiffIDs[0] != manifest.Layers[0].Digest {
		t.Errorf("the configuration is %+v", config)
	}
	root, headers := entries(t, l.blob(manifest.Layers[0], layerType))
	if string(root["usr/bin/rota"]) != "a binary" || headers["usr/bin/rota"].Mode != 0o755 {
		t.Error("the binary is not in the layer as it was")
	}
	trusted := x509.NewCertPool()
	if pems := root["etc/ssl/certs/ca-certificates.crt"]; !trusted.AppendCertsFromPEM(pems) || bytes.Count(pems, []byte("BEGIN CERTIFICATE")) < 50 {
		t.Errorf("the list of authorities has %d bytes", len(pems))
	}
	if h := headers["var/lib/rota/"]; h == nil || h.Uid != user || h.Mode != 0o700 {
		t.Errorf("the folder of the data is %+v", h)
	}
	var loaded []struct {
		Config           string
		RepoTags, Layers []string
	}
	l.json(files["manifest.json"], &loaded)
	if len(loaded) != 1 || files[loaded[0].Config] == nil || files[loaded[0].Layers[0]] == nil || loaded[0].RepoTags[0] != "rota:1.2.3" {
		t.Errorf("docker load would find %+v", loaded)
	}
	again := filepath.Join(dir, "again.tar")
	if err := run(binary, again, img); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(again); err != nil || !bytes.Equal(b, archive) {
		t.Errorf("the same build gives other bytes: %v", err)
	}
}

func TestAMissingBinaryIsAnError(t *testing.T) {
	if err := run(filepath.Join(t.TempDir(), "none"), filepath.Join(t.TempDir(), "out"), image{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
