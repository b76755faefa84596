package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"
)

const (
	// metadataMax bounds an index, a manifest and a configuration.
	metadataMax = 4 << 20
	// layersMax bounds the layers of an image.
	layersMax = 256
	// indexesMax is how deep indexes may list indexes.
	indexesMax = 3
	// stallMax is how long a layer may send nothing.
	stallMax = time.Minute

	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerConfig   = "application/vnd.docker.container.image.v1+json"
	dockerLayer    = "application/vnd.docker.image.rootfs.diff.tar"
)

var (
	indexTypes    = []string{ocispec.MediaTypeImageIndex, dockerList}
	imageTypes    = []string{ocispec.MediaTypeImageManifest, dockerManifest}
	manifestTypes = slices.Concat(imageTypes, indexTypes)
	configTypes   = []string{ocispec.MediaTypeImageConfig, dockerConfig}
	// layerTypes are those that containerd unpacks. Layers at other addresses and encrypted ones are not among them.
	layerTypes = []string{
		ocispec.MediaTypeImageLayer, ocispec.MediaTypeImageLayerGzip, ocispec.MediaTypeImageLayerZstd,
		dockerLayer, dockerLayer + ".gzip", dockerLayer + ".zstd",
	}
)

// Errors of images. All of them are sentences.
var (
	// ErrRefused: this node may not pull the image.
	ErrRefused = errors.New("not pulled")
	// ErrNotFound: the registry does not have the image.
	ErrNotFound = errors.New("not in the registry")
	// ErrUnauthorized: the registry wants other credentials.
	ErrUnauthorized = errors.New("the registry refuses access")
	// ErrUnreachable: the registry gives no answer, or an error that may end.
	ErrUnreachable = errors.New("the registry cannot be reached")
	// ErrBadImage: what the registry has is not an image that this node can use.
	ErrBadImage = errors.New("the registry's image cannot be used")
	// ErrInterrupted: a layer ended too early; the rest can be had with another read.
	ErrInterrupted = errors.New("the download was interrupted")

	errRedirect = errors.New("the registry's redirect is not followed")
)

// Blob names something of an image. Digest is what its bytes must have, and Size how many they are.
type Blob struct {
	MediaType, Digest string
	Size              int64
}

// Image is an image for this machine.
type Image struct {
	Manifest, Config           Blob
	ManifestBytes, ConfigBytes []byte
	Layers                     []Blob

	repo *remote.Repository
}

// Open finds an image by its full name, such as docker.io/library/python:3.12, and checks all that
// can be known of it without its layers.
func (c *Client) Open(ctx context.Context, name string) (*Image, error) {
	if err := c.Allows(name); err != nil {
		return nil, err
	}
	repo, err := c.repository(name)
	if err != nil {
		return nil, err
	}
	i := &Image{repo: repo}
	d, err := i.find(ctx)
	if err != nil {
		return nil, i.sentence(ctx, err)
	}
	i.Manifest = blobOf(d)
	var m ocispec.Manifest
	if err := json.Unmarshal(i.ManifestBytes, &m); err != nil {
		return nil, fmt.Errorf("%w: its manifest is not JSON: %w", ErrBadImage, err)
	}
	if err := check(&m, c.opts.BytesMax); err != nil {
		return nil, err
	}
	i.Config = blobOf(m.Config)
	for _, l := range m.Layers {
		i.Layers = append(i.Layers, blobOf(l))
	}
	if i.ConfigBytes, err = i.read(ctx, m.Config); err != nil {
		return nil, i.sentence(ctx, err)
	}
	return i, i.checkConfig()
}

func blobOf(d ocispec.Descriptor) Blob { return Blob{d.MediaType, d.Digest.String(), d.Size} }

// find reads the manifest for this machine, through indexes.
func (i *Image) find(ctx context.Context) (ocispec.Descriptor, error) {
	d, body, err := i.repo.Manifests().FetchReference(ctx, i.repo.Reference.ReferenceOrDefault())
	if err != nil {
		return d, err
	}
	defer body.Close()
	if d.Size > metadataMax {
		return d, fmt.Errorf("%w: its manifest has %d bytes, and may have %d", ErrBadImage, d.Size, metadataMax)
	}
	if i.ManifestBytes, err = content.ReadAll(body, d); err != nil {
		return d, err
	}
	for depth := 0; slices.Contains(indexTypes, d.MediaType); depth++ {
		if depth == indexesMax {
			return d, fmt.Errorf("%w: its indexes are more than %d deep", ErrBadImage, indexesMax)
		}
		var list ocispec.Index
		if err := json.Unmarshal(i.ManifestBytes, &list); err != nil {
			return d, fmt.Errorf("%w: its index is not JSON: %w", ErrBadImage, err)
		}
		at := slices.IndexFunc(list.Manifests, forThisMachine)
		if at < 0 {
			return d, fmt.Errorf("%w: it has nothing for linux/%s", ErrBadImage, runtime.GOARCH)
		}
		if d = list.Manifests[at]; !slices.Contains(manifestTypes, d.MediaType) {
			break
		}
		if i.ManifestBytes, err = i.read(ctx, d); err != nil {
			return d, err
		}
	}
	if !slices.Contains(imageTypes, d.MediaType) {
		return d, fmt.Errorf("%w: its manifest is of type %.100q", ErrBadImage, d.MediaType)
	}
	return d, nil
}

func forThisMachine(d ocispec.Descriptor) bool {
	return d.Platform == nil || d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH
}

// read reads something small that its digest names.
func (i *Image) read(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	if err := checkBlob(d, metadataMax); err != nil {
		return nil, err
	}
	body, err := i.repo.Fetch(ctx, d)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return content.ReadAll(body, d)
}

func checkBlob(d ocispec.Descriptor, most int64) error {
	if err := d.Digest.Validate(); err != nil || d.Digest.Algorithm() != digest.SHA256 {
		return fmt.Errorf("%w: %.100q is not a SHA-256 digest", ErrBadImage, d.Digest)
	}
	if d.Size < 0 || d.Size > most {
		return fmt.Errorf("%w: %s has %d bytes, and may have %d", ErrBadImage, d.Digest, d.Size, most)
	}
	return nil
}

// check refuses a manifest whose layers cannot be had or unpacked.
func check(m *ocispec.Manifest, bytesMax uint64) error {
	if !slices.Contains(configTypes, m.Config.MediaType) {
		return fmt.Errorf("%w: it is no image of a container, as its configuration is of type %.100q", ErrBadImage, m.Config.MediaType)
	}
	if n := len(m.Layers); n == 0 || n > layersMax {
		return fmt.Errorf("%w: it has %d layers, and may have 1 to %d", ErrBadImage, n, layersMax)
	}
	var sum uint64
	for _, l := range m.Layers {
		if !slices.Contains(layerTypes, l.MediaType) {
			return fmt.Errorf("%w: a layer is of type %.100q, which is not unpacked here", ErrBadImage, l.MediaType)
		}
		if err := checkBlob(l, 1<<50); err != nil { // no sum of these overflows
			return err
		}
		sum += uint64(l.Size)
	}
	if sum > bytesMax {
		return fmt.Errorf("%w: its layers have %d MiB, and --pull-max is %d MiB", ErrBadImage, sum>>20, bytesMax>>20)
	}
	return nil
}

// checkConfig checks the names of the unpacked layers.
func (i *Image) checkConfig() error {
	var config ocispec.Image
	if err := json.Unmarshal(i.ConfigBytes, &config); err != nil {
		return fmt.Errorf("%w: its configuration is not JSON: %w", ErrBadImage, err)
	}
	if n := len(config.RootFS.DiffIDs); n != len(i.Layers) {
		return fmt.Errorf("%w: it has %d layers, and %d in the configuration", ErrBadImage, len(i.Layers), n)
	}
	for _, id := range config.RootFS.DiffIDs {
		if err := checkBlob(ocispec.Descriptor{Digest: id}, 0); err != nil {
			return err
		}
	}
	return nil
}

// Layer reads a layer from an offset. A read fails with ErrInterrupted if it ends too early, and
// nothing checks the digest.
func (i *Image) Layer(ctx context.Context, b Blob, from int64) (io.ReadCloser, error) {
	reading, cancel := context.WithCancelCause(ctx)
	body, err := i.repo.Blobs().Fetch(reading, ocispec.Descriptor{MediaType: b.MediaType, Digest: digest.Digest(b.Digest), Size: b.Size})
	if err == nil && from > 0 {
		if s, ok := body.(io.Seeker); ok {
			_, err = s.Seek(from, io.SeekStart)
		} else {
			_, err = io.CopyN(io.Discard, body, from)
		}
	}
	if err != nil {
		cancel(nil)
		return nil, i.sentence(ctx, err)
	}
	l := &layer{ctx: reading, cancel: cancel, body: body, left: b.Size - from}
	l.stalled = time.AfterFunc(stallMax, func() { cancel(errStalled) })
	return l, nil
}

var errStalled = errors.New("the registry has sent nothing for a minute")

// layer is a body that may not stall, and has a size.
type layer struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	body    io.ReadCloser
	left    int64
	stalled *time.Timer
}

func (l *layer) Read(p []byte) (int, error) {
	if l.left == 0 {
		return 0, io.EOF
	}
	n, err := l.body.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	if n > 0 {
		l.stalled.Reset(stallMax)
	}
	if err == nil || l.left == 0 {
		return n, nil
	}
	if cause := context.Cause(l.ctx); cause != nil {
		err = cause
	}
	return n, fmt.Errorf("%w: %w", ErrInterrupted, withoutURL(err))
}

func (l *layer) Close() error {
	l.stalled.Stop()
	l.cancel(nil)
	return l.body.Close()
}

// sentence says what went wrong in words for the owner of a trajectory.
func (i *Image) sentence(ctx context.Context, err error) error {
	ref := i.repo.Reference
	var status *errcode.ErrorResponse
	if errors.As(err, &status) {
		switch code := status.StatusCode; code {
		case http.StatusUnauthorized, http.StatusForbidden:
			return i.unauthorized(fmt.Sprintf("it answers %d", code))
		case http.StatusNotFound:
			err = errdef.ErrNotFound
		case http.StatusTooManyRequests:
			return fmt.Errorf("%w: %s answers to %d requests that there are too many; try later, or give credentials with --registry-auth", ErrUnreachable, ref.Registry, triesMax)
		default:
			return fmt.Errorf("%w: %s answers with status %d", ErrUnreachable, ref.Registry, code)
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, ErrBadImage):
		return err
	case errors.Is(err, errdef.ErrNotFound):
		return fmt.Errorf("%w: %s has no %s", ErrNotFound, ref.Registry, ref)
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		return i.unauthorized("it wants a user and a password")
	case errors.Is(err, content.ErrMismatchedDigest), errors.Is(err, content.ErrTrailingData):
		return fmt.Errorf("%w: %s sends other bytes than the digest names", ErrBadImage, ref.Registry)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %s", ErrInterrupted, ref.Registry)
	}
	return fmt.Errorf("%w: %s: %w", ErrUnreachable, ref.Registry, withoutURL(err))
}

func (i *Image) unauthorized(why string) error {
	ref := i.repo.Reference
	return fmt.Errorf("%w: %s gives no access to %s: %s. If there is this image, give the agent credentials with --registry-auth", ErrUnauthorized, ref.Registry, ref, why)
}
