package container

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"time"

	content "github.com/containerd/containerd/api/services/content/v1"
	images "github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/grpc/codes"

	"rota/api/backoff"
)

var (
	// ErrArchive says that a file is no archive of the OCI image layout.
	ErrArchive = errors.New("not an OCI archive")
	// ErrDamaged says that a layer of an image is not what the configuration of the image names.
	ErrDamaged = errors.New("the image is damaged")
)

const (
	indexName = "index.json"
	// metadataMax bounds an index, a manifest and a configuration.
	metadataMax = 4 << 20
	// writePiece is how much of a blob goes into one message.
	writePiece = 1 << 20
	// writeAgain is how long a write waits for another one of the same blob.
	writeAgain = 200 * time.Millisecond
	// refName is the annotation of an image's tag or name, and imageName that of its whole name.
	refName   = "org.opencontainers.image.ref.name"
	imageName = "io.containerd.image.name"
)

// descriptor names a blob. The field names are those of the OCI image specification.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    *platform         `json:"platform,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

func (d descriptor) wire() *types.Descriptor {
	return &types.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
}

// index lists manifests, or indexes.
type index struct {
	Manifests []descriptor `json:"manifests"`
}

// Import puts the images of an archive into containerd, unpacks them and returns their names.
// as is the name if the archive has one image; empty: that which the archive says.
func (c *Containerd) Import(ctx context.Context, archive io.Reader, as string) (names []string, err error) {
	ctx, done, err := c.leased(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	top, err := c.writeBlobs(ctx, archive)
	if err != nil {
		return nil, err
	}
	if as != "" && len(top.Manifests) != 1 {
		return nil, fmt.Errorf("%w: it has %d images, and one name is given", ErrArchive, len(top.Manifests))
	}
	for _, d := range top.Manifests {
		name := as
		if name == "" {
			if name, err = nameOf(d); err != nil {
				return names, err
			}
		}
		if err := c.addImage(ctx, name, d, madeNow()); err != nil {
			return names, err
		}
		names = append(names, name)
	}
	return names, nil
}

// nameOf is what an archive calls an image.
func nameOf(d descriptor) (string, error) {
	for _, key := range []string{imageName, refName} {
		if name := d.Annotations[key]; name != "" {
			return name, nil
		}
	}
	return "", fmt.Errorf("%w: its image has no name; give one with --name", ErrArchive)
}

// writeBlobs stores what is in an archive and returns its index.
func (c *Containerd) writeBlobs(ctx context.Context, archive io.Reader) (*index, error) {
	var top *index
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrArchive, err)
		}
		name := path.Clean(h.Name)
		dir, sum := path.Split(name)
		switch {
		case h.Typeflag != tar.TypeReg:
		case name == indexName:
			if err := json.NewDecoder(io.LimitReader(r, metadataMax)).Decode(&top); err != nil {
				return nil, fmt.Errorf("%w: %s: %w", ErrArchive, indexName, err)
			}
		case strings.HasPrefix(dir, "blobs/"):
			digest := filepath.Base(dir) + ":" + sum
			if err := c.writeBlob(ctx, digest, h.Size, streamed(r)); err != nil {
				return nil, fmt.Errorf("store blob %s: %w", digest, err)
			}
		}
	}
	if top == nil || len(top.Manifests) == 0 {
		return nil, fmt.Errorf("%w: it has no %s that names an image (docker save writes one since Docker 25)", ErrArchive, indexName)
	}
	return top, nil
}

// source is where a blob comes from: a reader of it from an offset on.
type source func(from int64) (io.Reader, error)

// streamed is a source that has to be read from its begin.
func streamed(r io.Reader) source {
	return func(from int64) (io.Reader, error) {
		_, err := io.CopyN(io.Discard, r, from)
		return r, err
	}
}

// writeBlob stores a blob under its digest, which containerd checks. It goes on where an earlier write
// was cut short, and waits while another write of the same blob goes on.
func (c *Containerd) writeBlob(ctx context.Context, digest string, size int64, from source) error {
	for {
		err := c.tryWriteBlob(ctx, digest, size, from)
		if !isCode(err, codes.Unavailable) || !strings.Contains(err.Error(), "locked") {
			return exceptCode(err, codes.AlreadyExists)
		}
		if backoff.Sleep(ctx, writeAgain) != nil {
			return context.Cause(ctx)
		}
	}
}

func (c *Containerd) tryWriteBlob(ctx context.Context, digest string, size int64, from source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.content.Write(ctx)
	if err != nil {
		return err
	}
	say := func(m *content.WriteContentRequest) (int64, error) {
		if err := stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		resp, err := stream.Recv()
		return resp.GetOffset(), err
	}
	at, err := say(&content.WriteContentRequest{Action: content.WriteAction_STAT, Ref: "rota-" + digest, Total: size, Expected: digest})
	if err != nil {
		return err
	}
	if at < size {
		r, err := from(at)
		if err != nil {
			return err
		}
		piece := make([]byte, writePiece)
		for at < size {
			n, readErr := io.ReadFull(r, piece[:min(writePiece, size-at)])
			if n > 0 { // also the last of what was cut short
				if _, err = say(&content.WriteContentRequest{Action: content.WriteAction_WRITE, Offset: at, Data: piece[:n]}); err != nil {
					return err
				}
			}
			if at += int64(n); readErr != nil {
				return readErr
			}
		}
	}
	_, err = say(&content.WriteContentRequest{Action: content.WriteAction_COMMIT, Total: size, Offset: size, Expected: digest})
	return err
}

// dropBlob removes what was written of a blob, which is not what its digest names.
func (c *Containerd) dropBlob(ctx context.Context, digest string) error {
	_, err := c.content.Abort(ctx, &content.AbortRequest{Ref: "rota-" + digest})
	return exceptCode(err, codes.NotFound)
}

// addImage names an image, and keeps what it consists of.
func (c *Containerd) addImage(ctx context.Context, name string, d descriptor, labels map[string]string) error {
	m, err := c.manifest(ctx, d)
	if err != nil {
		return fmt.Errorf("image %s: %w", name, err)
	}
	if err := c.unpack(ctx, m); err != nil {
		return fmt.Errorf("unpack image %s: %w", name, err)
	}
	image := &images.Image{Name: name, Target: m.self.wire(), Labels: labels}
	_, err = c.images.Create(ctx, &images.CreateImageRequest{Image: image})
	if isCode(err, codes.AlreadyExists) {
		_, err = c.images.Update(ctx, &images.UpdateImageRequest{Image: image})
	}
	if err != nil {
		return fmt.Errorf("store image %s: %w", name, err)
	}
	return nil
}
