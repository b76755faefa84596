package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	images "github.com/containerd/containerd/api/services/images/v1"
	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	"google.golang.org/grpc/codes"
)

// storedImage is an image of the namespace, as a collection sees it.
type storedImage struct {
	name string
	// used is usedLabel; empty: rota has neither pulled nor imported the image.
	used string
	// inUse says that the root file system of a sandbox or of a snapshot is above its layers.
	inUse bool
	// parts are the bytes of its blobs and of its layers, by names that are equal for what images share.
	parts map[string]uint64
	chain string
}

// lastUsed is zero for what cannot be read.
func (i *storedImage) lastUsed() time.Time {
	at, _ := time.Parse(time.RFC3339Nano, i.used)
	return at
}

// storedImages are the images of the namespace that can be read. One that cannot takes no bytes that are known.
func (c *Containerd) storedImages(ctx context.Context) ([]*storedImage, error) {
	ctx = in(ctx, Namespace)
	list, err := c.images.List(ctx, &images.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	parents, err := c.snapshotParents(ctx)
	if err != nil {
		return nil, fmt.Errorf("list file systems: %w", err)
	}
	var all []*storedImage
	sizes := map[string]uint64{}
	for _, i := range list.GetImages() {
		target := i.GetTarget()
		m, err := c.manifest(ctx, descriptor{MediaType: target.GetMediaType(), Digest: target.GetDigest(), Size: target.GetSize()})
		if isCode(err, codes.NotFound) || errors.Is(err, ErrArchive) || errors.Is(err, ErrNoImage) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", i.GetName(), err)
		}
		one := &storedImage{name: i.GetName(), used: i.GetLabels()[usedLabel], chain: m.chain()}
		if one.parts, err = c.parts(ctx, m, parents, sizes); err != nil {
			return nil, fmt.Errorf("count the bytes of image %s: %w", i.GetName(), err)
		}
		all = append(all, one)
	}
	markUsed(all, parents)
	return all, nil
}

// parts counts the bytes of an image. It remembers the sizes of layers for the next one.
func (c *Containerd) parts(ctx context.Context, m *manifest, parents map[string]string, sizes map[string]uint64) (map[string]uint64, error) {
	out := map[string]uint64{}
	for _, blob := range append([]descriptor{m.self, m.Config}, m.Layers...) {
		out["blob "+blob.Digest] = uint64(max(0, blob.Size))
	}
	chain := ""
	for i := range m.Layers {
		chain = m.chainTo(i, chain)
		if _, ok := parents[chain]; !ok {
			continue // it is not unpacked
		}
		if _, ok := sizes[chain]; !ok {
			got, err := c.snapshots.Usage(ctx, &snapshots.UsageRequest{Snapshotter: c.snapshotter, Key: chain})
			if exceptCode(err, codes.NotFound) != nil {
				return nil, err
			}
			sizes[chain] = uint64(max(0, got.GetSize()))
		}
		out["layer "+chain] = sizes[chain]
	}
	return out, nil
}

// snapshotParents are the file systems of the namespace, each with that which it is above.
func (c *Containerd) snapshotParents(ctx context.Context) (map[string]string, error) {
	list, err := c.snapshots.List(ctx, &snapshots.ListSnapshotsRequest{Snapshotter: c.snapshotter})
	if err != nil {
		return nil, err
	}
	for out := map[string]string{}; ; {
		page, err := list.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		for _, info := range page.GetInfo() {
			out[info.GetName()] = info.GetParent()
		}
	}
}

// markUsed finds the images that something is above which is a layer of none: the root file systems of sandboxes and of
// snapshots, and what is being unpacked.
func markUsed(all []*storedImage, parents map[string]string) {
	layers, tops := map[string]bool{}, map[string]bool{}
	for _, i := range all {
		tops[i.chain] = true
		for at := i.chain; at != ""; at = parents[at] {
			layers[at] = true
		}
	}
	used := map[string]bool{}
	for at := range parents {
		for at != "" && !layers[at] {
			if at = parents[at]; tops[at] {
				used[at] = true
			}
		}
	}
	for _, i := range all {
		i.inUse = used[i.chain]
	}
}

// bytesOf counts what images take. What they share counts once.
func bytesOf(all []*storedImage) (total uint64) {
	once := map[string]bool{}
	for _, i := range all {
		for part, bytes := range i.parts {
			if !once[part] {
				total += bytes
			}
			once[part] = true
		}
	}
	return total
}

// victim is an image to remove, and what its removal frees after that of those before it.
type victim struct {
	*storedImage
	frees uint64
}

// choose returns images to remove so that the others take less by some bytes, or as many as may be removed:
// the least recently used of those that rota has made and that nothing uses.
func choose(all []*storedImage, less uint64) (victims []victim) {
	sharers := map[string]int{}
	var may []*storedImage
	for _, i := range all {
		for part := range i.parts {
			sharers[part]++
		}
		if i.used != "" && !i.inUse {
			may = append(may, i)
		}
	}
	slices.SortFunc(may, func(a, b *storedImage) int {
		return cmp.Or(a.lastUsed().Compare(b.lastUsed()), cmp.Compare(a.name, b.name))
	})
	freed := uint64(0)
	for _, i := range may {
		if freed >= less {
			break
		}
		v := victim{storedImage: i}
		for part, bytes := range i.parts {
			if sharers[part]--; sharers[part] == 0 {
				v.frees += bytes
			}
		}
		freed += v.frees
		victims = append(victims, v)
	}
	return victims
}
