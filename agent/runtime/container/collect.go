package container

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	images "github.com/containerd/containerd/api/services/images/v1"
	leases "github.com/containerd/containerd/api/services/leases/v1"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"rota/api/backoff"
)

const (
	// usedLabel is on the images that rota has pulled or imported: when it did, or when a sandbox opened last.
	usedLabel = "rota/used"
	// usedEvery is how often the label is written of an image that sandboxes open with.
	usedEvery = time.Minute
	// collectPause is the least time between two collections, collectEvery the longest: operators pull and
	// import, too. A collection that failed is tried again after collectAgain.
	collectPause = 2 * time.Second
	collectEvery = 10 * time.Minute
	collectAgain = 30 * time.Second
	// collectMax is how long a collection may take, and removeImageMax how long the removal of one name.
	collectMax     = 10 * time.Minute
	removeImageMax = 10 * time.Second
)

// CollectorOptions says which images are removed.
type CollectorOptions struct {
	// BytesMax is what the images of rota may take on disk, with their unpacked layers.
	BytesMax uint64
	// Removed hears of each image that was removed, with the bytes that it did not share; nil: nobody.
	Removed func(bytes uint64)
	Logger  hclog.Logger
}

// Collector removes images that no sandbox uses, when all of them take too much.
type Collector struct {
	opts CollectorOptions
	c    *Containerd
	one  chan struct{} // has a value while a collection goes on
	due  chan struct{}
	// over says that images were left that take more than they may; bytes is what those take that were left.
	over  atomic.Bool
	bytes atomic.Uint64
}

// NewCollector returns a collector that has removed nothing yet; see Run.
func NewCollector(c *Containerd, o CollectorOptions) *Collector {
	if o.Removed == nil {
		o.Removed = func(uint64) {}
	}
	return &Collector{opts: o, c: c, one: make(chan struct{}, 1), due: make(chan struct{}, 1)}
}

// Bytes is what the images of rota took after the last collection.
func (g *Collector) Bytes() uint64 { return g.bytes.Load() }

// Run collects at once, when images came or sandboxes ended, and now and then, until the context ends.
func (g *Collector) Run(ctx context.Context) error {
	for said := ""; ; {
		err := g.Collect(ctx)
		next := collectEvery
		if err != nil {
			next = collectAgain
		}
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			g.opts.Logger.Warn("images that nothing uses are not removed; trying on", "error", err)
		}
		if err := backoff.Sleep(ctx, collectPause); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.due:
		case <-time.After(next):
		}
	}
}

// grown has Run collect soon, as there is another image.
func (g *Collector) grown() {
	if g == nil {
		return
	}
	select {
	case g.due <- struct{}{}:
	default:
	}
}

// unused has Run collect soon, as fewer images are in use, if more was left than there should be.
func (g *Collector) unused() {
	if g != nil && g.over.Load() {
		g.grown()
	}
}

// Collect removes images that nothing uses, the least recently used first, until the others take no more than
// they may. It is no error if they still do because they are in use.
func (g *Collector) Collect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, collectMax)
	defer cancel()
	return g.shrink(ctx, func(total uint64) uint64 {
		over := total - min(total, g.opts.BytesMax)
		g.over.Store(over > 0)
		g.bytes.Store(total)
		return over
	})
}

// shrink removes images until those that are left, which take total bytes, are too large by none.
func (g *Collector) shrink(ctx context.Context, tooMuch func(total uint64) uint64) error {
	ctx = metadata.NewOutgoingContext(ctx, nil) // the lease of a pull that needs room is not for this
	leave, err := slot(ctx, g.one)
	if err != nil {
		return err
	}
	defer leave()
	defer g.c.holds.begin()()
	for {
		all, err := g.c.storedImages(ctx)
		if err != nil {
			return err
		}
		less := tooMuch(bytesOf(all))
		if less == 0 {
			return nil
		}
		g.c.holds.mark(all)
		removed, err := g.remove(ctx, choose(all, less))
		if err != nil || removed == 0 {
			return err
		}
		if err := g.c.collectGarbage(ctx); err != nil {
			return err
		}
	}
}

// remove removes the names of images. containerd removes what they consist of when it collects garbage.
func (g *Collector) remove(ctx context.Context, victims []victim) (removed int, err error) {
	for _, v := range victims {
		gone, err := g.c.removeImage(ctx, v.storedImage)
		if err != nil {
			return removed, fmt.Errorf("remove image %s: %w", v.name, err)
		}
		if gone {
			removed++
			g.opts.Removed(v.frees)
			g.opts.Logger.Info("an image that nothing uses was removed", "image", v.name, "bytes", v.frees, "last_used", v.used)
		}
	}
	return removed, nil
}

// removeImage removes an image, unless it was used, pulled or imported since it was looked at.
func (c *Containerd) removeImage(ctx context.Context, i *storedImage) (removed bool, err error) {
	ctx, cancel := context.WithTimeout(in(ctx, Namespace), removeImageMax)
	defer cancel()
	err = c.holds.unlessHeld(i.name, func() error {
		now, err := c.images.Get(ctx, &images.GetImageRequest{Name: i.name})
		if err != nil || now.GetImage().GetLabels()[usedLabel] != i.used {
			return exceptCode(err, codes.NotFound)
		}
		_, err = c.images.Delete(ctx, &images.DeleteImageRequest{Name: i.name})
		removed = err == nil
		return exceptCode(err, codes.NotFound)
	})
	return removed, err
}

// collectGarbage has containerd remove what no image, container or lease needs, and waits until that is done.
func (c *Containerd) collectGarbage(ctx context.Context) error {
	ctx, done, err := c.leased(ctx)
	if err != nil {
		return err
	}
	defer done()
	if _, err := c.leases.Delete(ctx, &leases.DeleteRequest{ID: leaseOf(ctx), Sync: true}); err != nil {
		return fmt.Errorf("collect the garbage of containerd: %w", err)
	}
	return nil
}

// noteUse writes down that a sandbox opens with an image that rota has made.
func (c *Containerd) noteUse(ctx context.Context, m *manifest) error {
	at, err := time.Parse(time.RFC3339Nano, m.used)
	if age := time.Since(at); m.used == "" || err == nil && age >= 0 && age < usedEvery {
		return nil
	}
	return c.setUsed(ctx, m.name, usedNow())
}

// Pin keeps collections from an image, which is then as one that another program has made. Its error wraps
// ErrNoImage if rota has none of the name.
func (c *Containerd) Pin(ctx context.Context, name string) error {
	pinned := false
	for _, full := range names(name) {
		err := c.setUsed(ctx, full, "")
		if exceptCode(err, codes.NotFound) != nil {
			return err
		}
		pinned = pinned || err == nil
	}
	if !pinned {
		return fmt.Errorf("%w: %s", ErrNoImage, name)
	}
	return nil
}

// setUsed changes the label of an image; empty: it has none.
func (c *Containerd) setUsed(ctx context.Context, name, used string) error {
	_, err := c.images.Update(in(ctx, Namespace), &images.UpdateImageRequest{
		Image:      &images.Image{Name: name, Labels: map[string]string{usedLabel: used}},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels." + usedLabel}},
	})
	if err != nil {
		return fmt.Errorf("label image %s: %w", name, err)
	}
	return nil
}

// usedNow is a value of usedLabel, and madeNow has the labels of an image that rota makes.
func usedNow() string            { return time.Now().UTC().Format(time.RFC3339Nano) }
func madeNow() map[string]string { return map[string]string{usedLabel: usedNow()} }
