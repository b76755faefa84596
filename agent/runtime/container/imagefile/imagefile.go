package imagefile

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
)

// Config is what an image says of the commands in it.
type Config struct {
	Env        []string
	WorkingDir string
}

// object is JSON.
type object = map[string]any

// Write writes an archive of an image with one layer, an uncompressed tar of its files.
func Write(to io.Writer, name string, layer []byte, c Config) error {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(layer); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	w := &writer{tar: tar.NewWriter(to)}
	config := w.blob("application/vnd.oci.image.config.v1+json", w.encode(object{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": object{"Env": c.Env, "WorkingDir": c.WorkingDir},
		"rootfs": object{"type": "layers", "diff_ids": []string{"sha256:" + digestOf(layer)}},
	}))
	content := w.blob("application/vnd.oci.image.layer.v1.tar+gzip", zipped.Bytes())
	manifest := w.blob("application/vnd.oci.image.manifest.v1+json", w.encode(object{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": config.descriptor, "layers": []object{content.descriptor},
	}))
	manifest.descriptor["annotations"] = object{"io.containerd.image.name": name}
	manifest.descriptor["platform"] = object{"architecture": runtime.GOARCH, "os": "linux"}
	w.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	w.file("index.json", w.encode(object{"schemaVersion": 2, "manifests": []object{manifest.descriptor}}))
	// What Docker reads.
	w.file("manifest.json", w.encode([]object{{"Config": config.path, "RepoTags": []string{name}, "Layers": []string{content.path}}}))
	return errors.Join(w.err, w.tar.Close())
}

// writer writes files into an archive until one fails.
type writer struct {
	tar *tar.Writer
	err error
}

// blob is a file that is named by what is in it.
type blob struct {
	path       string
	descriptor object
}

func (w *writer) blob(mediaType string, b []byte) blob {
	digest := digestOf(b)
	path := "blobs/sha256/" + digest
	w.file(path, b)
	return blob{path, object{"mediaType": mediaType, "digest": "sha256:" + digest, "size": len(b)}}
}

func (w *writer) file(name string, b []byte) {
	if w.err == nil {
		w.err = File(w.tar, &tar.Header{Name: name, Mode: 0o644}, b)
	}
}

func (w *writer) encode(v any) []byte {
	b, err := json.Marshal(v)
	w.err = errors.Join(w.err, err)
	return b
}

// File adds a file to a layer, with its content.
func File(w *tar.Writer, h *tar.Header, content []byte) error {
	h.Size = int64(len(content))
	if err := w.WriteHeader(h); err != nil {
		return fmt.Errorf("write %s to an archive: %w", h.Name, err)
	}
	if _, err := w.Write(content); err != nil {
		return fmt.Errorf("write %s to an archive: %w", h.Name, err)
	}
	return nil
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
