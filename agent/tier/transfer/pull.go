package transfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"rota/agent/tier"
	"rota/api/backoff"
)

const (
	// patience is how long a pull tries again while nothing gets through.
	patience = 15 * time.Second
	// fullMax is how long it waits for memory of the target.
	fullMax = 5 * time.Second
	// reportEvery is how often progress is reported.
	reportEvery = 200 * time.Millisecond
	// surplusValues and surplusBytes are how much more than twice of what was announced a
	// source may list: keys come and go meanwhile, but not without end.
	surplusValues = 1 << 16
	surplusBytes  = 1 << 30
	// emptyPagesMax is how many pages in a row may have nothing.
	emptyPagesMax = 1 << 16
	// pageMemoryMax is what the keys and checksums of a page may take.
	pageMemoryMax = 8 << 20
)

// Errors of Pull.Run, beside those of its context and tier.ErrClosed.
var (
	// ErrUnknown means that the source was not told of the migration, or not yet.
	ErrUnknown = errors.New("the source does not know this migration")
	// ErrUnreachable means that the source did not answer, or that the connection broke again
	// and again without anything getting through.
	ErrUnreachable = errors.New("the source cannot be reached")
	// ErrPeer means that another node than the source answered.
	ErrPeer = errors.New("the certificate at the source's address is of another node")
	// ErrNoCache means that one of the nodes has no cache.
	ErrNoCache = errors.New("the node has no KV cache")
	// ErrFull means that the values do not fit in the target's cache, or that its memory is
	// in use by others.
	ErrFull = errors.New("the target's cache is full")
	// ErrCorrupt means that the source sent what it may not: damaged bytes, wrong lengths,
	// or keys that the selector does not choose.
	ErrCorrupt = errors.New("the source sent damaged or malformed data")
)

// errTorn means that a connection broke, which is no end.
var errTorn = errors.New("the connection broke off")

// Progress says how far a pull is. Numbers only grow.
type Progress struct {
	// Values are those that the selector chooses at the source, TotalBytes their bytes. Equal
	// values under several keys count several times.
	Values, TotalBytes uint64
	// MovedBytes came over the network and are in the target's cache.
	MovedBytes uint64
	// PresentBytes are of values of which the target had equal bytes already.
	PresentBytes uint64
	// Skipped are values that are not at the target: they vanished at the source, are larger
	// than the target takes, or the target has another value of its own under their key.
	Skipped uint64
}

// Pull moves the values of one migration from the source's cache to a store.
type Pull struct {
	// Client is made by NewClient.
	Client *http.Client
	// Address of the source's agent, host:port.
	Address   string
	Migration uint64
	// Store is the target's cache; nil: Run fails with ErrNoCache.
	Store *tier.Store
	// Peer is the node name that the source's certificate must have; empty: any.
	Peer string
	// Selector is what the source may send: any other key is refused with ErrCorrupt. Empty:
	// any key.
	Selector Selector
	// BytesPerSecond limits the rate; 0: no limit. Less than BytesPerSecondMin is taken for it.
	BytesPerSecond uint64
	// Progress is called now and then, from one goroutine; may be nil.
	Progress func(Progress)

	patience time.Duration // replaced in tests
}

// Run pulls until everything is there, and returns how far it came also when it fails. A
// connection that breaks is made again. After an error, another Run goes on: what arrived is
// not moved again.
func (p Pull) Run(ctx context.Context) (Progress, error) {
	if p.Store == nil {
		return Progress{}, fmt.Errorf("%w: the target; give its agent --kv-memory", ErrNoCache)
	}
	u := &puller{Pull: p, pace: newPace(p.BytesPerSecond), base: baseURL(p.Client, p.Address)}
	if u.patience == 0 {
		u.patience = patience
	}
	if !p.Selector.empty() {
		if err := p.Selector.Check(); err != nil {
			return Progress{}, err
		}
		u.accept = newMatcher(p.Selector)
	}
	err := u.run(ctx)
	u.report(true)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return u.progress, err
}

// puller is a Pull while it runs.
type puller struct {
	Pull
	base   string   // URL
	accept *matcher // nil: any key
	pace   *pace

	progress                  Progress
	reported                  time.Time
	announced, announcedBytes uint64 // by the first page
	listed, listedBytes       uint64 // by all pages so far
	emptyPages                int    // in a row
	gained                    bool   // something got through since the last failure
}

// item is a value that is to come.
type item struct {
	tier.Info
	until time.Time // zero: never

	// What was received of it: the chunks below chunk, of the value that has got.
	value *tier.Value
	got   tier.Info
	chunk uint64
	// damaged counts bytes that did not match: the source is to check what it has.
	damaged int
}

func (it *item) release() {
	if it.value != nil {
		it.value.Release()
	}
	it.value, it.chunk = nil, 0
}

func (it *item) want() want {
	return want{key: it.Key, check: it.damaged > 0, chunk: it.chunk, size: it.got.Size, sums: it.got.Sums}
}

// content is what equal values have in common, and others only by chance.
func (it *item) content() string {
	return string(appendSums(binary.AppendUvarint(nil, it.Size), it.Sums))
}

func (u *puller) run(ctx context.Context) error {
	for cursor := uint64(0); ; {
		page, next, err := u.list(ctx, cursor)
		if err == nil {
			err = u.move(ctx, page)
		}
		if err != nil || next == 0 {
			return err
		}
		cursor = next
	}
}

// move brings the values of a page here.
func (u *puller) move(ctx context.Context, todo []*item) error {
	for len(todo) > 0 {
		wanted, later, err := u.sort(ctx, todo)
		if err == nil {
			err = u.fetch(ctx, wanted)
		}
		if err != nil {
			return err
		}
		todo = later
	}
	return nil
}

// sort finds what is here already. Of likely equal values that are not, it returns one in
// wanted and the others in later: they will be here then.
func (u *puller) sort(ctx context.Context, todo []*item) (wanted, later []*item, err error) {
	var likely []*item
	coming := map[string]bool{}
	for _, it := range todo {
		exists, equal := u.Store.Compare(it.Key, it.Size, it.Sums)
		switch {
		case equal:
			u.progress.PresentBytes += it.Size
		case exists || u.over(it.until):
			u.progress.Skipped++
		case u.Store.Likely(it.Size, it.Sums):
			likely = append(likely, it)
		case coming[it.content()]:
			later = append(later, it)
		default:
			coming[it.content()] = true
			wanted = append(wanted, it)
		}
	}
	others, err := u.adopt(ctx, likely)
	return append(wanted, others...), later, err
}

// over says whether a time to live has ended.
func (u *puller) over(until time.Time) bool { return !until.IsZero() && !until.After(u.Store.Now()) }

// expiry is when a key ends that the source has just said has so much time left.
func expiry(now time.Time, left time.Duration) time.Time {
	if left < 0 {
		return time.Time{}
	}
	return now.Add(left)
}

// adopt links keys to values that the store has, and returns those that it does not have.
func (u *puller) adopt(ctx context.Context, likely []*item) (others []*item, err error) {
	var unhashed []*item
	for _, it := range likely {
		if !it.Hashed {
			unhashed = append(unhashed, it)
		} else if others, err = u.adoptOne(it, others); err != nil {
			return nil, err
		}
	}
	err = u.again(ctx, func() error {
		if len(unhashed) == 0 {
			return nil
		}
		return u.ask(ctx, requestHash, 0, wantsBody(unhashed), func(m messages) error {
			for ; len(unhashed) > 0; unhashed = unhashed[1:] {
				exists, err := readHashAnswer(m, unhashed[0])
				if err != nil {
					return err
				}
				u.gained = true
				if !exists {
					u.progress.Skipped++
				} else if others, err = u.adoptOne(unhashed[0], others); err != nil {
					return err
				}
			}
			return readEnd(m)
		})
	})
	return others, err
}

func (u *puller) adoptOne(it *item, others []*item) ([]*item, error) {
	did, err := u.Store.Adopt(it.Info, it.until)
	switch {
	case err != nil:
		return nil, err
	case did == tier.AdoptedKey:
		u.progress.PresentBytes += it.Size
		u.report(false)
	case did == tier.AdoptedNot:
		u.progress.Skipped++
	default:
		others = append(others, it)
	}
	return others, nil
}

// fetch receives values.
func (u *puller) fetch(ctx context.Context, wanted []*item) error {
	defer func() {
		for _, it := range wanted {
			it.release()
		}
	}()
	return u.again(ctx, func() error {
		if len(wanted) == 0 {
			return nil
		}
		return u.ask(ctx, requestValues, 0, wantsBody(wanted), func(m messages) error {
			for ; len(wanted) > 0; wanted = wanted[1:] {
				if err := u.receive(ctx, m, wanted[0]); err != nil {
					return err
				}
			}
			return readEnd(m)
		})
	})
}

// receive reads the answer to one want. What came of a value before an error is kept in the
// item.
func (u *puller) receive(ctx context.Context, m messages, it *item) error {
	d, exists, err := readDataAnswer(m)
	if err != nil {
		return err
	}
	until := expiry(u.Store.Now(), d.info.Left)
	if !exists {
		u.progress.Skipped++
		u.gained = true
		it.release()
		return nil
	}
	if err := u.prepare(ctx, it, d); err != nil {
		return err
	}
	for ; it.chunk < uint64(len(it.got.Sums)); it.chunk++ {
		sum, err := it.value.FillChunk(m.r, int(it.chunk))
		if err != nil {
			return err
		}
		if sum != it.got.Sums[it.chunk] {
			return it.isDamaged()
		}
		u.gained = true
	}
	v := it.value
	it.value = nil // Set takes it
	set, err := u.Store.SetSummed(it.Key, v, it.got.Sums, until, tier.IfAbsent)
	switch {
	case err != nil:
		return err
	case set:
		u.progress.MovedBytes += it.got.Size
	default:
		u.progress.Skipped++
	}
	u.report(false)
	return nil
}

// prepare makes an item ready for the bytes that come.
func (u *puller) prepare(ctx context.Context, it *item, d data) (err error) {
	if d.chunk > 0 {
		if d.chunk != it.chunk || d.info.Size != it.got.Size || string(appendSums(nil, d.info.Sums)) != string(appendSums(nil, it.got.Sums)) {
			return fmt.Errorf("%w: a value goes on where it was not left", errMalformed)
		}
		return nil
	}
	if it.chunk = 0; it.value != nil && it.got.Size != d.info.Size {
		it.release()
	}
	it.got = d.info
	if d.info.Size > u.Store.ValueBytesMax() {
		return fmt.Errorf("%w: a value of %d bytes, which the target was not told of and does not take", errMalformed, d.info.Size)
	}
	if it.value == nil {
		it.value, err = u.memory(ctx, d.info.Size)
	}
	return err
}

// isDamaged says how to go on when bytes do not match their checksum: once more, after the
// source has looked at what it has.
func (it *item) isDamaged() error {
	if it.damaged++; it.damaged > 1 {
		return fmt.Errorf("%w: a value does not match its checksum, though the source has checked it", ErrCorrupt)
	}
	return fmt.Errorf("%w: a value does not match its checksum", errTorn)
}

// memory waits a while for memory of the target.
func (u *puller) memory(ctx context.Context, n uint64) (*tier.Value, error) {
	pause := backoff.Backoff{Least: time.Millisecond, Most: 100 * time.Millisecond}
	for until := time.Now().Add(min(fullMax, u.patience)); ; {
		v, err := u.Store.NewValue(n)
		if !errors.Is(err, tier.ErrFull) {
			return v, err
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("%w: %w", ErrFull, err)
		}
		if err := backoff.Sleep(ctx, pause.Next()); err != nil {
			return nil, err
		}
	}
}

// again tries until it works or fails for good. Broken connections are no failure as long as
// something gets through.
func (u *puller) again(ctx context.Context, try func() error) error {
	pause := backoff.Backoff{Least: 10 * time.Millisecond, Most: 2 * time.Second}
	until := time.Now().Add(u.patience)
	for {
		u.gained = false
		err := try()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil || !isTorn(err):
			return err
		case u.gained:
			pause.Reset()
			until = time.Now().Add(u.patience)
		case time.Now().After(until):
			return fmt.Errorf("%w at %s: %w", ErrUnreachable, u.Address, err)
		}
		if err := backoff.Sleep(ctx, pause.Next()); err != nil {
			return err
		}
	}
}

// isTorn says whether an error comes from the connection.
func isTorn(err error) bool {
	return errors.Is(err, errTorn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func (u *puller) report(last bool) {
	now := time.Now()
	if u.Progress != nil && (last || now.Sub(u.reported) >= reportEvery) {
		u.reported = now
		u.Progress(u.progress)
	}
}
