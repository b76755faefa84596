package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	content "github.com/containerd/containerd/api/services/content/v1"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"

	"rota/agent/runtime/container/registry"
	"rota/api/backoff"
)

const (
	// PullMax is how long one pull may take. It is less than leaseFor, which keeps what is pulled.
	PullMax = 45 * time.Minute
	// pullingMax is how many images are pulled at once, and layersAtOnce how many layers of each.
	pullingMax   = 3
	layersAtOnce = 3
	// pullingAheadMax is how many of those no action waits for.
	pullingAheadMax = pullingMax - 1
	// readsMax is how often the read of a blob is begun or goes on.
	readsMax = 4
	// failedFor is how long a pull that has failed is not tried again.
	failedFor = 30 * time.Second
	// roomEvery is how often the free space is looked at.
	roomEvery = time.Second
	// makeRoomMax is how long a pull waits while images are removed for it.
	makeRoomMax = 30 * time.Second
)

var (
	errNoRoom = errors.New("the disk of containerd would have less free space than the agent's --disk-floor")
	errTooOld = fmt.Errorf("it has taken more than %v", PullMax)
)

// PullOptions says how images are pulled.
type PullOptions struct {
	Registry registry.Options
	// Room returns how many bytes the file system of a folder has above what has to stay free; nil: all.
	Room func(dir string) (bytes uint64, err error)
	// Ended hears of each pull with the bytes that were downloaded; nil: nobody.
	Ended func(bytes uint64, took time.Duration, err error)
	// Collector makes room for pulls, and hears of what was pulled; nil: images stay.
	Collector *Collector
	Logger    hclog.Logger
}

// Puller pulls images from registries into containerd.
type Puller struct {
	opts     PullOptions
	c        *Containerd
	registry *registry.Client
	// pulling bounds how many are pulled at once; pullingAhead, those of them that no action waits for;
	// unpacking, those that are unpacked.
	pulling, pullingAhead, unpacking chan struct{}

	mu    sync.Mutex
	pulls map[string]*pull // by full name: those that go on, and those that failed a short while ago
}

// pull is one for all that want the same image.
type pull struct {
	done    chan struct{} // closed when it has ended
	err     error         // after that
	waiting int
	cancel  context.CancelFunc
	// asked is closed when one that wants it does not want it ahead of an action.
	asked chan struct{}
	// got counts the bytes of layers that were downloaded, of all that have to be.
	got, all atomic.Uint64
}

// wasAsked reports whether anyone has wanted a pull that was not ahead of an action.
func (one *pull) wasAsked() bool {
	select {
	case <-one.asked:
		return true
	default:
		return false
	}
}

// NewPuller checks the options. Its error wraps registry.ErrConfig.
func NewPuller(c *Containerd, o PullOptions) (*Puller, error) {
	client, err := registry.New(o.Registry)
	if err != nil {
		return nil, err
	}
	if o.Ended == nil {
		o.Ended = func(uint64, time.Duration, error) {}
	}
	return &Puller{opts: o, c: c, registry: client, pulling: make(chan struct{}, pullingMax),
		pullingAhead: make(chan struct{}, pullingAheadMax), unpacking: make(chan struct{}, 1), pulls: map[string]*pull{}}, nil
}

// fullName is the name of an image with its registry.
func fullName(name string) string {
	all := names(name)
	return all[len(all)-1]
}

// RegistryOf returns the registry that an image is pulled from.
func RegistryOf(name string) string {
	host, _, _ := strings.Cut(fullName(name), "/")
	return host
}

// Pull gets an image from its registry, whether or not the node has one of that name. All that want one
// image at a time share one pull, which goes on while any of them waits, and their error is the same
// for a while. Its error is a sentence for the owner of a trajectory.
func (p *Puller) Pull(ctx context.Context, name string) error { return p.pull(ctx, name, false) }

// pull is Pull for an action, or ahead of one. A pull that failed and that no action waited for is tried again
// for an action.
func (p *Puller) pull(ctx context.Context, name string, ahead bool) error {
	full := fullName(name)
	if err := p.registry.Allows(full); err != nil {
		return err
	}
	defer p.c.holds.hold(full)()
	one := p.join(full, ahead)
	select {
	case <-one.done:
		return one.err
	case <-ctx.Done():
		p.leave(full, one)
		return context.Cause(ctx)
	}
}

func (p *Puller) join(full string, ahead bool) *pull {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.pulls[full]
	if one == nil || one.err != nil && !ahead && !one.wasAsked() {
		one = &pull{done: make(chan struct{}), asked: make(chan struct{})}
		var ctx context.Context
		ctx, one.cancel = context.WithCancel(context.Background())
		p.pulls[full] = one
		go p.run(ctx, full, one)
	}
	if !ahead && !one.wasAsked() {
		close(one.asked)
	}
	one.waiting++
	return one
}

// leave ends a pull that nobody waits for any more.
func (p *Puller) leave(full string, one *pull) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one.waiting--
	select {
	case <-one.done:
	default:
		if one.waiting == 0 {
			one.cancel()
			p.forget(full, one)
		}
	}
}

// forget is called under the lock.
func (p *Puller) forget(full string, one *pull) {
	if p.pulls[full] == one {
		delete(p.pulls, full)
	}
}

func (p *Puller) run(ctx context.Context, full string, one *pull) {
	defer one.cancel()
	err := p.withSlot(ctx, full, one)
	if err != nil {
		err = fmt.Errorf("pull %s: %w", full, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	one.err = err
	close(one.done)
	if err == nil {
		p.forget(full, one)
		return
	}
	time.AfterFunc(failedFor, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.forget(full, one)
	})
}

// withSlot pulls when fewer than the most are being pulled, logs it, and bounds its time.
func (p *Puller) withSlot(ctx context.Context, full string, one *pull) error {
	select {
	case <-one.asked:
	case p.pullingAhead <- struct{}{}:
		defer func() { <-p.pullingAhead }()
	case <-ctx.Done():
		return ctx.Err()
	}
	leave, err := slot(ctx, p.pulling)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeoutCause(ctx, PullMax, errTooOld)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go p.watchRoom(ctx, stop)
	began, got := time.Now(), &one.got
	p.opts.Logger.Info("pulling an image", "image", full)
	err = p.fetch(ctx, full, one)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	took := time.Since(began)
	p.opts.Ended(got.Load(), took, err)
	if err != nil {
		p.opts.Logger.Warn("an image was not pulled", "image", full, "bytes", got.Load(), "seconds", took.Seconds(), "error", err)
		return err
	}
	p.opts.Logger.Info("an image was pulled", "image", full, "bytes", got.Load(), "seconds", took.Seconds())
	p.opts.Collector.grown()
	return nil
}

// watchRoom ends a pull before it fills the disk: how large layers are when they are unpacked is not known before.
func (p *Puller) watchRoom(ctx context.Context, stop context.CancelCauseFunc) {
	for backoff.Sleep(ctx, roomEvery) == nil {
		if !p.fits(ctx, func() uint64 { return 1 }) {
			stop(errNoRoom)
			return
		}
	}
}

// fits says whether containerd has room for what a pull downloads. Images that nothing uses make room, if
// the operator lets them. What they share with the pulled one has to be downloaded then, too.
func (p *Puller) fits(ctx context.Context, download func() (bytes uint64)) bool {
	short := func() uint64 { return max(p.short(p.c.contentDir, download()), p.short(p.c.snapshotsDir, 1)) }
	if short() == 0 || p.opts.Collector == nil {
		return short() == 0
	}
	ctx, cancel := context.WithTimeout(ctx, makeRoomMax)
	defer cancel()
	if err := p.opts.Collector.shrink(ctx, func(uint64) uint64 { return short() }); err != nil && ctx.Err() == nil {
		p.opts.Logger.Warn("images that nothing uses do not make room for a pull", "error", err)
	}
	return short() == 0
}

// short is how much room a folder of containerd lacks. What cannot be told is not held against it.
func (p *Puller) short(dir string, bytes uint64) uint64 {
	if p.opts.Room == nil || dir == "" {
		return 0
	}
	room, err := p.opts.Room(dir)
	if err != nil {
		return 0
	}
	return bytes - min(bytes, room)
}

// fetch downloads an image, unpacks it and names it. A lease keeps what it is made of until then.
func (p *Puller) fetch(ctx context.Context, full string, one *pull) error {
	ctx, done, err := p.c.leased(ctx)
	if err != nil {
		return err
	}
	defer done()
	var image *registry.Image
	err = again(ctx, func() error {
		var err error
		image, err = p.registry.Open(ctx, full)
		return err
	})
	if err != nil {
		return err
	}
	missing := func() uint64 { return p.missing(ctx, image.Layers) }
	if !p.fits(ctx, missing) {
		return fmt.Errorf("%w: %d MiB have to be downloaded", errNoRoom, missing()>>20)
	}
	one.all.Store(missing())
	for _, b := range []struct {
		registry.Blob
		bytes []byte
	}{{image.Manifest, image.ManifestBytes}, {image.Config, image.ConfigBytes}} {
		if err := p.c.writeBlob(ctx, b.Digest, b.Size, streamed(bytes.NewReader(b.bytes))); err != nil {
			return fmt.Errorf("store %s: %w", b.Digest, err)
		}
	}
	layers, layersCtx := errgroup.WithContext(ctx)
	layers.SetLimit(layersAtOnce)
	for _, l := range image.Layers {
		layers.Go(func() error { return p.layer(layersCtx, image, l, &one.got) })
	}
	if err := layers.Wait(); err != nil {
		return err
	}
	leave, err := slot(ctx, p.unpacking)
	if err != nil {
		return err
	}
	defer leave()
	d := descriptor{MediaType: image.Manifest.MediaType, Digest: image.Manifest.Digest, Size: image.Manifest.Size}
	return p.c.addImage(ctx, full, d, madeNow())
}

// progress is how far the pull of an image is; 0 if none goes on.
func (p *Puller) progress(name string) (got, all uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.pulls[fullName(name)]; one != nil {
		return one.got.Load(), one.all.Load()
	}
	return 0, 0
}

// missing is how many bytes of layers rota does not have.
func (p *Puller) missing(ctx context.Context, layers []registry.Blob) (bytes uint64) {
	for _, l := range layers {
		if _, err := p.c.content.Info(ctx, &content.InfoRequest{Digest: l.Digest}); err != nil {
			bytes += uint64(l.Size)
		}
	}
	return bytes
}

// layer downloads a layer, unless containerd has it.
func (p *Puller) layer(ctx context.Context, image *registry.Image, l registry.Blob, got *atomic.Uint64) error {
	return again(ctx, func() error {
		var body io.ReadCloser
		err := p.c.writeBlob(ctx, l.Digest, l.Size, func(from int64) (io.Reader, error) {
			var err error
			if body, err = image.Layer(ctx, l, from); err != nil {
				return nil, err
			}
			return counted{body, got}, nil
		})
		if body != nil {
			_ = body.Close()
		}
		if isCode(err, codes.FailedPrecondition) { // containerd says so of another digest
			wrong := fmt.Errorf("%w: the registry sends other bytes of layer %s than its digest names", registry.ErrInterrupted, l.Digest)
			return errors.Join(wrong, p.c.dropBlob(ctx, l.Digest))
		}
		return err
	})
}

// again tries something that was interrupted a few times, later each time.
func again(ctx context.Context, try func() error) error {
	pause := backoff.Backoff{Least: 500 * time.Millisecond, Most: 10 * time.Second}
	for n := 1; ; n++ {
		err := try()
		if n == readsMax || !errors.Is(err, registry.ErrInterrupted) || backoff.Sleep(ctx, pause.Next()) != nil {
			return err
		}
	}
}

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	got *atomic.Uint64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.got.Add(uint64(n))
	return n, err
}
