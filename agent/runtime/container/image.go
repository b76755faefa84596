package container

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"

	content "github.com/containerd/containerd/api/services/content/v1"
	diff "github.com/containerd/containerd/api/services/diff/v1"
	images "github.com/containerd/containerd/api/services/images/v1"
	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// ErrNoImage says that the node does not have an image.
var ErrNoImage = errors.New("image is not on the node")

// otherNamespaces of containerd are searched for images after that of rota: those of ctr,
// Kubernetes and Docker.
var otherNamespaces = []string{"default", "k8s.io", "moby"}

// manifest is one image for this machine.
type manifest struct {
	// name and used are those of the image that it was found by: used is its usedLabel.
	name, used string

	self   descriptor
	Config descriptor   `json:"config"`
	Layers []descriptor `json:"layers"`
	image  imageConfig
}

// imageConfig is what an image says of itself.
type imageConfig struct {
	Config struct {
		User       string   `json:"User"`
		Env        []string `json:"Env"`
		WorkingDir string   `json:"WorkingDir"`
	} `json:"config"`
	RootFS struct {
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// chain is the name of the snapshot of all layers, as the image specification defines it.
func (m *manifest) chain() string {
	chain := ""
	for i := range m.image.RootFS.DiffIDs {
		chain = m.chainTo(i, chain)
	}
	return chain
}

func (m *manifest) chainTo(layer int, parent string) string {
	id := m.image.RootFS.DiffIDs[layer]
	if parent == "" {
		return id
	}
	sum := sha256.Sum256([]byte(parent + " " + id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// names are what an image may be called that a user names shortly. The last one is its full name.
func names(short string) []string {
	repo, digest, pinned := strings.Cut(short, "@")
	tagged := strings.LastIndexByte(repo, ':') > strings.LastIndexByte(repo, '/')
	full := short
	switch {
	case pinned && tagged: // the digest alone counts
		full = repo[:strings.LastIndexByte(repo, ':')] + "@" + digest
	case !pinned && !tagged:
		full += ":latest"
	}
	out := []string{short}
	if full != short {
		out = append(out, full)
	}
	host, path, hasHost := strings.Cut(full, "/")
	switch {
	case strings.Contains(host, "@"), !hasHost:
		out = append(out, "docker.io/library/"+full)
	case !strings.ContainsAny(host, ".:") && host != "localhost":
		out = append(out, "docker.io/"+full)
	case host == "docker.io" && !strings.Contains(path, "/"):
		out = append(out, "docker.io/library/"+path)
	}
	return out
}

// findImage finds an image by its name, in any of the namespaces, and has its snapshot made if it
// is not there yet. Its error wraps ErrNoImage if there is none.
func (c *Containerd) findImage(ctx context.Context, name string) (*manifest, error) {
	for _, namespace := range append([]string{Namespace}, otherNamespaces...) {
		for _, full := range names(name) {
			resp, err := c.images.Get(in(ctx, namespace), &images.GetImageRequest{Name: full})
			if isCode(err, codes.NotFound) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("find image %s: %w", full, err)
			}
			target := resp.GetImage().GetTarget()
			labels := resp.GetImage().GetLabels() // one of rota's namespace stays removable, or not
			if namespace != Namespace {
				labels = madeNow()
			}
			m, err := c.ready(ctx, namespace, full, descriptor{MediaType: target.GetMediaType(), Digest: target.GetDigest(), Size: target.GetSize()}, labels)
			if err != nil {
				return nil, err
			}
			m.name, m.used = full, labels[usedLabel]
			return m, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrNoImage, name)
}

// findUnpacked finds an image that rota has, with its snapshot; nil if there is more to do.
func (c *Containerd) findUnpacked(ctx context.Context, name string) (*manifest, error) {
	ctx = in(ctx, Namespace)
	for _, full := range names(name) {
		resp, err := c.images.Get(ctx, &images.GetImageRequest{Name: full})
		if isCode(err, codes.NotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("find image %s: %w", full, err)
		}
		target := resp.GetImage().GetTarget()
		m, err := c.manifest(ctx, descriptor{MediaType: target.GetMediaType(), Digest: target.GetDigest(), Size: target.GetSize()})
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", full, err)
		}
		m.name, m.used = full, resp.GetImage().GetLabels()[usedLabel]
		_, err = c.snapshots.Stat(ctx, &snapshots.StatSnapshotRequest{Snapshotter: c.snapshotter, Key: m.chain()})
		if isCode(err, codes.NotFound) {
			return nil, nil
		}
		return m, err
	}
	return nil, nil
}

// ready makes an image one of rota, with a snapshot and these labels.
func (c *Containerd) ready(ctx context.Context, namespace, name string, d descriptor, labels map[string]string) (*manifest, error) {
	ctx, done, err := c.leased(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if namespace != Namespace {
		if err := c.adopt(ctx, namespace, &d); err != nil {
			return nil, fmt.Errorf("take image %s over from namespace %s: %w", name, namespace, err)
		}
	}
	m, err := c.manifest(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", name, err)
	}
	_, err = c.snapshots.Stat(ctx, &snapshots.StatSnapshotRequest{Snapshotter: c.snapshotter, Key: m.chain()})
	if namespace != Namespace || isCode(err, codes.NotFound) {
		err = c.addImage(ctx, name, d, labels)
	}
	return m, err
}

// adopt copies what an image consists of from another namespace, of which d is the image for this
// machine then. containerd shares what is equal.
func (c *Containerd) adopt(ctx context.Context, namespace string, d *descriptor) error {
	from := in(context.Background(), namespace)
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		from, cancel = context.WithDeadline(from, deadline)
		defer cancel()
	}
	m, err := c.manifest(from, *d)
	if err != nil {
		return err
	}
	*d = m.self
	for _, blob := range append([]descriptor{m.self, m.Config}, m.Layers...) {
		r := &blobReader{ctx: from, c: c, d: blob}
		if err := c.writeBlob(ctx, blob.Digest, blob.Size, streamed(r)); err != nil {
			return fmt.Errorf("blob %s: %w", blob.Digest, err)
		}
	}
	return nil
}

// manifest reads an image; of an index, that for this machine.
func (c *Containerd) manifest(ctx context.Context, d descriptor) (*manifest, error) {
	for range 4 { // an index may list indexes
		b, err := c.readBlob(ctx, d)
		if err != nil {
			return nil, err
		}
		var list index
		m := &manifest{self: d}
		if err := errors.Join(json.Unmarshal(b, m), json.Unmarshal(b, &list)); err != nil {
			return nil, fmt.Errorf("%w: manifest %s: %w", ErrArchive, d.Digest, err)
		}
		if m.Config.Digest == "" {
			if d, err = forThisMachine(list.Manifests); err != nil {
				return nil, err
			}
			continue
		}
		if b, err = c.readBlob(ctx, m.Config); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(b, &m.image); err != nil {
			return nil, fmt.Errorf("%w: configuration %s: %w", ErrArchive, m.Config.Digest, err)
		}
		if n := len(m.image.RootFS.DiffIDs); n == 0 || n != len(m.Layers) {
			return nil, fmt.Errorf("%w: %d layers, and %d in the configuration", ErrArchive, len(m.Layers), n)
		}
		return m, nil
	}
	return nil, fmt.Errorf("%w: its indexes are too deep", ErrArchive)
}

func forThisMachine(list []descriptor) (descriptor, error) {
	for _, d := range list {
		if p := d.Platform; p == nil || p.OS == "linux" && p.Architecture == runtime.GOARCH {
			return d, nil
		}
	}
	return descriptor{}, fmt.Errorf("%w for linux/%s", ErrNoImage, runtime.GOARCH)
}

// readBlob reads a small blob.
func (c *Containerd) readBlob(ctx context.Context, d descriptor) ([]byte, error) {
	if d.Size > metadataMax {
		return nil, fmt.Errorf("%w: %s has %d bytes", ErrArchive, d.Digest, d.Size)
	}
	b, err := io.ReadAll(io.LimitReader(&blobReader{ctx: ctx, c: c, d: d}, metadataMax))
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", d.Digest, err)
	}
	return b, nil
}

// blobReader reads a blob of the namespace of its context.
type blobReader struct {
	ctx    context.Context
	c      *Containerd
	d      descriptor
	stream content.Content_ReadClient
	piece  bytes.Reader
}

func (r *blobReader) Read(p []byte) (int, error) {
	if r.stream == nil {
		var err error
		if r.stream, err = r.c.content.Read(r.ctx, &content.ReadContentRequest{Digest: r.d.Digest, Size: r.d.Size}); err != nil {
			return 0, err
		}
	}
	for r.piece.Len() == 0 {
		resp, err := r.stream.Recv()
		if err != nil {
			return 0, err
		}
		r.piece.Reset(resp.GetData())
	}
	return r.piece.Read(p)
}

// unpack makes the snapshots of an image, and labels that keep them with its blobs.
func (c *Containerd) unpack(ctx context.Context, m *manifest) error {
	parent := ""
	for i, layer := range m.Layers {
		chain := m.chainTo(i, parent)
		if err := c.unpackLayer(ctx, layer, m.image.RootFS.DiffIDs[i], chain, parent); err != nil {
			return fmt.Errorf("layer %s: %w", layer.Digest, err)
		}
		parent = chain
	}
	keeps := map[string]string{"containerd.io/gc.ref.content.config": m.Config.Digest}
	for i, layer := range m.Layers {
		keeps["containerd.io/gc.ref.content.l."+strconv.Itoa(i)] = layer.Digest
	}
	if err := c.label(ctx, m.self, keeps); err != nil {
		return err
	}
	return c.label(ctx, m.Config, map[string]string{"containerd.io/gc.ref.snapshot." + c.snapshotter: parent})
}

func (c *Containerd) label(ctx context.Context, d descriptor, labels map[string]string) error {
	req := &content.UpdateRequest{Info: &content.Info{Digest: d.Digest, Labels: labels}, UpdateMask: &fieldmaskpb.FieldMask{}}
	for key := range labels {
		req.UpdateMask.Paths = append(req.UpdateMask.Paths, "labels."+key)
	}
	if _, err := c.content.Update(ctx, req); err != nil {
		return fmt.Errorf("label blob %s: %w", d.Digest, err)
	}
	return nil
}

// unpackLayer makes a snapshot. The name of a snapshot says what is in it, and images share those of equal
// names, so a layer must be what it is called. The lease of the context keeps the snapshot, also one of
// another image, which may be removed meanwhile.
func (c *Containerd) unpackLayer(ctx context.Context, layer descriptor, diffID, chain, parent string) error {
	if err := c.keepSnapshot(ctx, chain); err != nil {
		return err
	}
	_, err := c.snapshots.Stat(ctx, &snapshots.StatSnapshotRequest{Snapshotter: c.snapshotter, Key: chain})
	if !isCode(err, codes.NotFound) {
		return err
	}
	key := "rota-unpack-" + chain
	prepare := &snapshots.PrepareSnapshotRequest{Snapshotter: c.snapshotter, Key: key, Parent: parent}
	prepared, err := c.snapshots.Prepare(ctx, prepare)
	if isCode(err, codes.AlreadyExists) { // left by an import that was cut short
		if err := c.removeSnapshot(ctx, key); err != nil {
			return err
		}
		prepared, err = c.snapshots.Prepare(ctx, prepare)
	}
	if err != nil {
		return err
	}
	applied, err := c.diff.Apply(ctx, &diff.ApplyRequest{Diff: layer.wire(), Mounts: prepared.GetMounts()})
	if got := applied.GetApplied().GetDigest(); err == nil && got != diffID {
		err = fmt.Errorf("%w: unpacked it is %s, and its configuration says %s", ErrDamaged, got, diffID)
	}
	if err == nil {
		_, err = c.snapshots.Commit(ctx, &snapshots.CommitSnapshotRequest{Snapshotter: c.snapshotter, Name: chain, Key: key})
	}
	if err != nil {
		return errors.Join(exceptCode(err, codes.AlreadyExists), c.removeSnapshot(context.WithoutCancel(ctx), key))
	}
	return nil
}

func (c *Containerd) removeSnapshot(ctx context.Context, key string) error {
	_, err := c.snapshots.Remove(ctx, &snapshots.RemoveSnapshotRequest{Snapshotter: c.snapshotter, Key: key})
	return exceptCode(err, codes.NotFound)
}

// ImageNames lists the images of rota.
func (c *Containerd) ImageNames(ctx context.Context) ([]string, error) {
	resp, err := c.images.List(in(ctx, Namespace), &images.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	var out []string
	for _, i := range resp.GetImages() {
		out = append(out, i.GetName())
	}
	return out, nil
}
