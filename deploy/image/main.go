package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	layerType    = "application/vnd.oci.image.layer.v1.tar"
	configType   = "application/vnd.oci.image.config.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"

	// user runs the image: a number that belongs to no account of a host.
	user = 65532
)

// image is what goes into the file.
type image struct {
	binary []byte
	// arch is that of the binary, as Go names it.
	arch string
	// tag is NAME:VERSION.
	tag, version string
}

func main() {
	binary := flag.String("binary", "bin/rota", "static binary for Linux")
	out := flag.String("out", "rota.tar", "file to write")
	img := image{}
	flag.StringVar(&img.tag, "tag", "rota:latest", "name of the image")
	flag.StringVar(&img.version, "version", "", "version for the label of the image")
	flag.StringVar(&img.arch, "arch", runtime.GOARCH, "architecture of the binary")
	flag.Parse()
	if err := run(*binary, *out, img); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run reads the binary and writes the file.
func run(binary, out string, img image) error {
	var err error
	if img.binary, err = os.ReadFile(binary); err != nil {
		return err
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(img.write(file), file.Close())
}

// descriptor points at a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// archive is the file that is being written. Its first error stays.
type archive struct {
	*tar.Writer
	err error
}

// write writes the image layout.
func (img image) write(w io.Writer) error {
	layer, err := img.layer()
	if err != nil {
		return err
	}
	a := &archive{Writer: tar.NewWriter(w)}
	a.file("oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`))
	layerAt := a.blob(layerType, layer)
	configAt := a.blob(configType, a.json(img.config(layerAt.Digest)))
	manifestAt := a.blob(manifestType, a.json(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": configAt, "layers": []descriptor{layerAt},
	}))
	manifestAt.Annotations = map[string]string{"org.opencontainers.image.ref.name": img.tag, "io.containerd.image.name": wholeName(img.tag)}
	a.file("index.json", 0o644, a.json(map[string]any{
		"schemaVersion": 2, "mediaType": indexType, "manifests": []descriptor{manifestAt},
	}))
	a.file("manifest.json", 0o644, a.json([]map[string]any{{
		"Config": blobPath(configAt.Digest), "RepoTags": []string{img.tag}, "Layers": []string{blobPath(layerAt.Digest)},
	}}))
	return errors.Join(a.err, a.Close())
}

// wholeName is the name by which containerd, and Docker with its image store, look an image up: without
// a registry they add that of Docker.
func wholeName(tag string) string {
	first, _, path := strings.Cut(tag, "/")
	switch {
	case !path:
		return "docker.io/library/" + tag
	case strings.ContainsAny(first, ".:") || first == "localhost":
		return tag
	}
	return "docker.io/" + tag
}

// config is how containers of the image run.
func (img image) config(layer string) map[string]any {
	return map[string]any{
		"architecture": img.arch, "os": "linux", "created": time.Unix(0, 0).UTC(),
		"config": map[string]any{
			"User": fmt.Sprintf("%d:%d", user, user), "Entrypoint": []string{"/usr/bin/rota"}, "Cmd": []string{"--help"},
			"Env": []string{"PATH=/usr/bin", "HOME=/var/lib/rota"}, "WorkingDir": "/var/lib/rota",
			"Volumes":      map[string]any{"/var/lib/rota": struct{}{}},
			"ExposedPorts": map[string]any{"7400/tcp": struct{}{}, "7401/tcp": struct{}{}, "7401/udp": struct{}{}},
			"Labels":       map[string]string{"org.opencontainers.image.title": "rota", "org.opencontainers.image.version": img.version},
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{layer}},
		"history": []map[string]any{{"created": time.Unix(0, 0).UTC(), "created_by": "deploy/image"}},
	}
}

// layer is the only one: the root file system.
func (img image) layer() ([]byte, error) {
	var b bytes.Buffer
	a := &archive{Writer: tar.NewWriter(&b)}
	for _, dir := range []string{"etc", "etc/ssl", "etc/ssl/certs", "usr", "usr/bin", "var", "var/lib"} {
		a.folder(dir, 0o755, 0)
	}
	a.folder("tmp", 0o1777, 0)
	a.folder("var/lib/rota", 0o700, user)
	a.file("etc/passwd", 0o644, fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nrota:x:%d:%d:rota:/var/lib/rota:/sbin/nologin\n", user, user))
	a.file("etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\nrota:x:%d:\n", user))
	a.file("etc/ssl/certs/ca-certificates.crt", 0o644, authorities())
	a.file("usr/bin/rota", 0o755, img.binary)
	return b.Bytes(), errors.Join(a.err, a.Close())
}

// authorities are those that browsers trust, without the few that may vouch for some certificates
// only, which a file cannot say.
func authorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return b.Bytes()
}

func (a *archive) folder(name string, mode int64, owner int) {
	a.err = errors.Join(a.err, a.WriteHeader(&tar.Header{
		Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: owner, Gid: owner, ModTime: time.Unix(0, 0),
	}))
}

func (a *archive) file(name string, mode int64, content []byte) {
	err := a.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: time.Unix(0, 0)})
	if err == nil {
		_, err = a.Write(content)
	}
	a.err = errors.Join(a.err, err)
}

// blob writes content under its digest.
func (a *archive) blob(mediaType string, content []byte) descriptor {
	sum := sha256.Sum256(content)
	d := descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: len(content)}
	a.file(blobPath(d.Digest), 0o644, content)
	return d
}

func (a *archive) json(v any) []byte {
	b, err := json.Marshal(v)
	a.err = errors.Join(a.err, err)
	return b
}

// blobPath is where the layout has the blob of a digest.
func blobPath(digest string) string { return path.Join("blobs", "sha256", digest[len("sha256:"):]) }
