package transfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rota/agent/tier"
)

const theMigration = 7

// wallClock stands still.
type wallClock struct{ ns atomic.Int64 }

func newWallClock() *wallClock {
	c := &wallClock{}
	c.ns.Store(1_700_000_000_000_000_000)
	return c
}

func (c *wallClock) Now() time.Time          { return time.Unix(0, c.ns.Load()) }
func (c *wallClock) advance(d time.Duration) { c.ns.Add(int64(d)) }

type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

func must(t failer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openStore(t testing.TB, o tier.Options) *tier.Store {
	t.Helper()
	if o.MemoryBytes == 0 {
		o.MemoryBytes = 32 << 20
	}
	if o.Now == nil {
		o.Now = newWallClock().Now
	}
	o.BootID = "boot"
	s, err := tier.Open(o)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// text is a value of n bytes that only this number has.
func text(number uint64, n int) []byte {
	b := make([]byte, n)
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], number)
	_, _ = rand.NewChaCha8(seed).Read(b)
	return b
}

func set(t failer, s *tier.Store, key string, b []byte, expires time.Time) {
	t.Helper()
	v, err := s.NewValue(uint64(len(b)))
	must(t, err)
	copy(v.Bytes(), b)
	_, err = s.Set(key, v, expires, tier.Always)
	must(t, err)
}

// contents are all keys of a store with their values.
func contents(s *tier.Store) map[string]string {
	all := map[string]string{}
	for cursor := uint64(0); ; {
		keys, next := s.Scan(cursor, 100)
		for _, key := range keys {
			if v := s.Get(key); v != nil {
				all[key] = string(v.Bytes())
				v.Release()
			}
		}
		if cursor = next; cursor == 0 {
			return all
		}
	}
}

func wantContents(t failer, s *tier.Store, want map[string]string) {
	t.Helper()
	if got := contents(s); !maps.Equal(got, want) {
		t.Fatalf("the target has %d keys, want %d, and equal values", len(got), len(want))
	}
}

// allow lets everybody pull one selection.
func allow(selector Selector) func(string, uint64) (Selector, bool) {
	return func(_ string, migration uint64) (Selector, bool) { return selector, migration == theMigration }
}

// counter counts bytes of answers.
type counter struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c counter) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.n.Add(int64(n))
	return n, err
}

func (c counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// served serves a store on loopback and counts what it answers with.
func served(t testing.TB, h http.Handler) (address string, sent *atomic.Int64) {
	t.Helper()
	sent = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(counter{w, sent}, r)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://"), sent
}

func newPull(t testing.TB, address string, target *tier.Store) Pull {
	client := NewClient(nil)
	t.Cleanup(client.CloseIdleConnections)
	return Pull{Client: client, Address: address, Migration: theMigration, Store: target, patience: 5 * time.Second}
}

func run(t testing.TB, p Pull) (Progress, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return p.Run(ctx)
}

func lmcache(hash int, tag, part string) string {
	return fmt.Sprintf("org/model@2@1@%016x@bfloat16@%s%s", hash, tag, part)
}

func TestATrajectoryMovesAlone(t *testing.T) {
	source, target := openStore(t, tier.Options{Dir: t.TempDir(), DiskBytes: 64 << 20}), openStore(t, tier.Options{})
	want := map[string]string{}
	for i := range 40 {
		for j, part := range []string{"kv_bytes", "metadata"} {
			mine, other := lmcache(i, "trajectory%1", part), lmcache(i, "trajectory%17", part)
			b := text(uint64(2*i+j), 1000*i)
			set(t, source, mine, b, time.Time{})
			set(t, source, other, text(uint64(100+i), 100), time.Time{})
			want[mine] = string(b)
		}
	}
	must(t, source.Flush(t.Context()))
	address, _ := served(t, NewSource(source, allow(Selector{Tag: "trajectory%1"})))
	p := newPull(t, address, target)
	var reports []Progress
	p.Progress = func(got Progress) { reports = append(reports, got) }
	got, err := run(t, p)
	must(t, err)
	wantContents(t, target, want)
	total := uint64(2 * 1000 * 39 * 40 / 2)
	if got != (Progress{Values: 80, TotalBytes: total, MovedBytes: total}) {
		t.Errorf("%+v", got)
	}
	if len(reports) == 0 || reports[len(reports)-1] != got {
		t.Errorf("reports %+v", reports)
	}
}

// Whatever is chosen arrives, and nothing else changes.
func TestWhatIsChosenArrives(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		clock := newWallClock()
		source, err := tier.Open(tier.Options{MemoryBytes: 8 << 20, Now: clock.Now})
		must(rt, err)
		defer source.Close()
		target, err := tier.Open(tier.Options{MemoryBytes: 8 << 20, Now: clock.Now})
		must(rt, err)
		defer target.Close()
		parts := []string{"a", "b", "a@t%1", "a@t%1kv_bytes", "b@t%1@u%2", "b@t%11", "", "@", "t%1"}
		keys := rapid.Custom(func(t *rapid.T) string {
			return rapid.SampledFrom(parts).Draw(t, "first") + rapid.SampledFrom(parts).Draw(t, "second")
		})
		fill := func(s *tier.Store, name string) map[string]string {
			m := rapid.MapOfN(keys, rapid.IntRange(0, 12), 0, 30).Draw(rt, name)
			all := map[string]string{}
			for key, number := range m {
				b := text(uint64(number), 700*number*number)
				set(rt, s, key, b, time.Time{})
				all[key] = string(b)
			}
			return all
		}
		has, want := fill(source, "source"), fill(target, "target")
		nonempty := keys.Filter(func(key string) bool { return key != "" })
		selector := Selector{
			Tag:      rapid.SampledFrom([]string{"", "t%1", "t%1kv_bytes", "u%2"}).Draw(rt, "tag"),
			Prefixes: rapid.SliceOfN(nonempty, 0, 2).Draw(rt, "prefixes"),
			Keys:     rapid.SliceOfN(nonempty, 0, 5).Draw(rt, "keys"),
		}
		if selector.empty() {
			selector.Tag = "t%1"
		}
		var chosen, bytes, kept uint64
		for key, value := range has {
			if !chooses(selector, key) {
				continue
			}
			chosen, bytes = chosen+1, bytes+uint64(len(value))
			if own, exists := want[key]; !exists {
				want[key] = value
			} else if own != value {
				kept++
			}
		}
		server := httptest.NewServer(NewSource(source, allow(selector)))
		defer server.Close()
		client := NewClient(nil)
		defer client.CloseIdleConnections()
		p := Pull{Client: client, Address: server.Listener.Addr().String(), Migration: theMigration, Store: target, Selector: selector}
		got, err := p.Run(context.Background())
		must(rt, err)
		wantContents(rt, target, want)
		if got.Values != chosen || got.TotalBytes != bytes || got.Skipped != kept {
			rt.Errorf("%+v, want %d values of %d bytes, %d skipped", got, chosen, bytes, kept)
		}
		if again, err := p.Run(context.Background()); err != nil || again.MovedBytes != 0 || again.Skipped != kept {
			rt.Errorf("once more: %+v, %v", again, err)
		}
	})
}

// chooses is what selectors mean, written down again.
func chooses(s Selector, key string) bool {
	for _, named := range s.Keys {
		if key == named {
			return true
		}
	}
	for _, prefix := range s.Prefixes {
		if len(key) >= len(prefix) && key[:len(prefix)] == prefix {
			return true
		}
	}
	if s.Tag == "" {
		return false
	}
	return strings.Contains("@"+key+"@", "@"+s.Tag+"@") ||
		strings.HasSuffix("@"+key, "@"+s.Tag+"kv_bytes") || strings.HasSuffix("@"+key, "@"+s.Tag+"metadata")
}

// The target has half of the bytes, under other keys and in part on disk.
func TestWhatIsThereIsNotMoved(t *testing.T) {
	source := openStore(t, tier.Options{MemoryBytes: 64 << 20})
	target := openStore(t, tier.Options{MemoryBytes: 64 << 20, Dir: t.TempDir(), DiskBytes: 256 << 20})
	const n, size = 32, 1<<20 + 5
	for i := range uint64(n) {
		b := text(i, size)
		set(t, source, fmt.Sprint("p", i), b, time.Time{})
		if i%2 == 0 {
			set(t, target, fmt.Sprint("other", i), b, time.Time{})
		}
		if i == n/2 {
			must(t, target.Flush(t.Context()))
		}
	}
	set(t, source, "p-twin", text(1, size), time.Time{}) // is moved once
	address, sent := served(t, NewSource(source, allow(Selector{Prefixes: []string{"p"}})))
	got, err := run(t, newPull(t, address, target))
	must(t, err)
	if got.MovedBytes != n/2*size || got.PresentBytes != (n/2+1)*size || got.TotalBytes != (n+1)*size || got.Skipped != 0 {
		t.Errorf("%+v", got)
	}
	if more := sent.Load() - n/2*size; more < 0 || more > 20_000 {
		t.Errorf("%d bytes were sent beside the values", more)
	}
	for i := range uint64(n) {
		if all := contents(target); all[fmt.Sprint("p", i)] != string(text(i, size)) {
			t.Fatalf("value %d is not the source's", i)
		}
	}
	if st := target.Stat(); st.UniqueBytes != n*size {
		t.Errorf("%d bytes are stored, want %d", st.UniqueBytes, n*size)
	}
}

// cutting is a proxy that ends each connection after some bytes of the source.
type cutting struct {
	net.Listener
	to   string
	next func() int64 // bytes until the cut; negative: none
	cuts atomic.Int64
	sent atomic.Int64
	wg   sync.WaitGroup
}

func newCutting(t testing.TB, to string, next func() int64) *cutting {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	c := &cutting{Listener: l, to: to, next: next}
	c.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			limit := next()
			c.wg.Go(func() { c.join(in, limit) })
		}
	})
	t.Cleanup(func() { l.Close(); c.wg.Wait() })
	return c
}

func (c *cutting) join(in net.Conn, limit int64) {
	defer in.Close()
	out, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer out.Close()
	c.wg.Go(func() {
		_, _ = io.Copy(out, in)
		out.Close()
	})
	if limit < 0 {
		n, _ := io.Copy(in, out)
		c.sent.Add(n)
		return
	}
	n, err := io.CopyN(in, out, limit)
	c.sent.Add(n)
	if err == nil {
		c.cuts.Add(1)
	}
}

func TestBrokenConnectionsAreResumed(t *testing.T) {
	source, target := openStore(t, tier.Options{MemoryBytes: 64 << 20}), openStore(t, tier.Options{MemoryBytes: 64 << 20})
	want, bytes := map[string]string{}, int64(0)
	for i := range 12 {
		key, b := fmt.Sprint("p", i), text(uint64(i), 3*tier.ChunkBytes/4*(i%4)+i)
		set(t, source, key, b, time.Time{})
		want[key], bytes = string(b), bytes+int64(len(b))
	}
	big := text(99, 14<<20) // longer than any connection lasts
	set(t, source, "p-big", big, time.Time{})
	want["p-big"], bytes = string(big), bytes+int64(len(big))
	address, _ := served(t, NewSource(source, allow(Selector{Prefixes: []string{"p"}})))
	random := rand.New(rand.NewPCG(1, 2))
	proxy := newCutting(t, address, func() int64 { return random.Int64N(4 << 20) })
	got, err := run(t, newPull(t, proxy.Addr().String(), target))
	must(t, err)
	wantContents(t, target, want)
	if proxy.cuts.Load() < 4 || got.MovedBytes != uint64(bytes) {
		t.Errorf("%d cuts, %+v", proxy.cuts.Load(), got)
	}
	// Of a cut connection, what was not a whole chunk yet is sent again, and what was on its way.
	const onTheWay = 8 << 20
	if most := bytes + proxy.cuts.Load()*(tier.ChunkBytes+64<<10) + onTheWay; proxy.sent.Load() > most {
		t.Errorf("%d bytes were sent for %d, with %d cuts", proxy.sent.Load(), bytes, proxy.cuts.Load())
	}
	if st := target.Stat(); st.MemoryBytes > st.UniqueBytes+4096*uint64(st.Keys) {
		t.Errorf("memory is lost: %+v", st)
	}
}

func TestASourceThatIsGone(t *testing.T) {
	source, target := openStore(t, tier.Options{}), openStore(t, tier.Options{})
	set(t, source, "p1", text(1, 3*tier.ChunkBytes), time.Time{})
	address, _ := served(t, NewSource(source, allow(Selector{Prefixes: []string{"p"}})))
	connections := 0
	proxy := newCutting(t, address, func() int64 {
		if connections++; connections == 1 {
			return tier.ChunkBytes + 100_000
		}
		return 0
	})
	p := newPull(t, proxy.Addr().String(), target)
	p.patience = 100 * time.Millisecond
	if got, err := run(t, p); !errors.Is(err, ErrUnreachable) || got.MovedBytes != 0 || got.Values != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if st := target.Stat(); st.MemoryBytes != 0 {
		t.Errorf("%d bytes of memory are lost", st.MemoryBytes)
	}
	p.Address = "127.0.0.1:1"
	if _, err := run(t, p); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a closed port: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// flip changes a bit of a value in the memory of its store.
func flip(t *testing.T, s *tier.Store, key string, at int) {
	t.Helper()
	v, _, err := s.Peek(key)
	must(t, err)
	v.Bytes()[at] ^= 4
	v.Release()
}

func TestFlippedBitsAreFound(t *testing.T) {
	source, target := openStore(t, tier.Options{Dir: t.TempDir(), DiskBytes: 64 << 20}), openStore(t, tier.Options{})
	for _, key := range []string{"p-disk", "p-lost", "p-well"} {
		set(t, source, key, text(uint64(len(key)+int(key[2])), 2*tier.ChunkBytes+9), time.Time{})
		if key == "p-disk" {
			must(t, source.Flush(t.Context())) // another copy
		}
	}
	want := contents(source)
	delete(want, "p-lost")
	flip(t, source, "p-disk", tier.ChunkBytes+1)
	flip(t, source, "p-lost", 5)
	address, _ := served(t, NewSource(source, allow(Selector{Prefixes: []string{"p"}})))
	got, err := run(t, newPull(t, address, target))
	must(t, err)
	wantContents(t, target, want)
	if got.Skipped != 1 || source.Stat().Corrupt != 2 {
		t.Errorf("%+v; the source counts %d damaged copies", got, source.Stat().Corrupt)
	}
}

func TestAWireThatFlipsBitsIsRefused(t *testing.T) {
	source, target := openStore(t, tier.Options{}), openStore(t, tier.Options{})
	set(t, source, "p", text(1, 100_000), time.Time{})
	honest := NewSource(source, allow(Selector{Prefixes: []string{"p"}}))
	address, _ := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		honest.ServeHTTP(flipping{w}, r)
	}))
	if got, err := run(t, newPull(t, address, target)); !errors.Is(err, ErrCorrupt) || got.MovedBytes != 0 || target.Len() != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// flipping damages long answers.
type flipping struct{ http.ResponseWriter }

func (f flipping) Write(b []byte) (int, error) {
	if len(b) > 50_000 {
		b = append([]byte{}, b...)
		b[40_000] ^= 1
	}
	return f.ResponseWriter.Write(b)
}

func (f flipping) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func TestExpiryMoves(t *testing.T) {
	there, here := newWallClock(), newWallClock()
	here.advance(-1000 * time.Hour) // clocks are not compared
	source, target := openStore(t, tier.Options{Now: there.Now}), openStore(t, tier.Options{Now: here.Now})
	set(t, source, "p-never", text(1, 9), time.Time{})
	set(t, source, "p-minute", text(2, 9), there.Now().Add(time.Minute))
	set(t, source, "p-linked", text(3, 9), there.Now().Add(time.Hour))
	set(t, target, "other", text(3, 9), time.Time{})
	set(t, source, "p-soon", text(4, 9), there.Now().Add(time.Millisecond))
	set(t, source, "p-over", text(5, 9), there.Now().Add(time.Second))
	honest := NewSource(source, allow(Selector{Prefixes: []string{"p"}}))
	address, _ := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, requestValues) {
			there.advance(2 * time.Second) // p-over and p-soon end between listing and values
		}
		honest.ServeHTTP(w, r)
	}))
	got, err := run(t, newPull(t, address, target))
	must(t, err)
	if got.Skipped != 2 || target.Len() != 4 {
		t.Errorf("%+v, %d keys", got, target.Len())
	}
	for key, want := range map[string]time.Duration{"p-never": -1, "p-minute": 58 * time.Second, "p-linked": time.Hour} {
		if left, exists := target.Remaining(key); !exists || left != want {
			t.Errorf("%s has %v left, %v; want %v", key, left, exists, want)
		}
	}
	here.advance(time.Minute)
	if contents(target)["p-minute"] != "" {
		t.Error("a value outlives its time")
	}
}

// What the target sets while values are on their way is newer than what arrives.
func TestNewerValuesStay(t *testing.T) {
	source, target := openStore(t, tier.Options{}), openStore(t, tier.Options{})
	set(t, source, "p1", text(1, 5000), time.Time{})
	set(t, source, "p2", text(2, 5000), time.Time{})
	honest := NewSource(source, allow(Selector{Prefixes: []string{"p"}}))
	address, _ := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, requestValues) {
			set(t, target, "p1", []byte("newer"), time.Time{})
			source.Delete("p2")
		}
		honest.ServeHTTP(w, r)
	}))
	got, err := run(t, newPull(t, address, target))
	must(t, err)
	wantContents(t, target, map[string]string{"p1": "newer"})
	if got.Skipped != 2 || got.MovedBytes != 0 {
		t.Errorf("%+v", got)
	}
}

func TestTargetsWithoutRoom(t *testing.T) {
	source := openStore(t, tier.Options{MemoryBytes: 32 << 20})
	for i := range 20 {
		set(t, source, fmt.Sprint("p", i), text(uint64(i), 100_000), time.Time{})
	}
	set(t, source, "q", text(50, 1<<20), time.Time{})
	set(t, source, "q2", text(51, 1000), time.Time{})
	address, _ := served(t, NewSource(source, func(_ string, migration uint64) (Selector, bool) {
		return Selector{Prefixes: []string{map[uint64]string{1: "p", 2: "q"}[migration]}}, true
	}))
	target := openStore(t, tier.Options{MemoryBytes: 2 << 20})
	p := newPull(t, address, target)
	p.patience = 50 * time.Millisecond
	p.Migration = 1
	used := openStore(t, tier.Options{MemoryBytes: 1 << 20})
	p.Store = used
	if got, err := run(t, p); !errors.Is(err, ErrFull) || got.MovedBytes != 0 {
		t.Errorf("too many bytes: %+v, %v", got, err)
	}
	p.Store, p.Migration = target, 2
	if got, err := run(t, p); err != nil || got.Skipped != 1 || got.MovedBytes != 1000 {
		t.Errorf("a value that is too large: %+v, %v", got, err)
	}
	var held []*tier.Value
	for v, err := target.NewValue(400_000); err == nil; v, err = target.NewValue(400_000) {
		held = append(held, v)
	}
	for v, err := target.NewValue(1); err == nil; v, err = target.NewValue(1) {
		held = append(held, v)
	}
	target.Clear()
	if got, err := run(t, p); !errors.Is(err, ErrFull) || got.MovedBytes != 0 {
		t.Errorf("memory in use: %+v, %v", got, err)
	}
	for _, v := range held {
		v.Release()
	}
	if got, err := run(t, p); err != nil || got.MovedBytes != 1000 {
		t.Errorf("free again: %+v, %v", got, err)
	}
}

// A listing of many pages, with more keys than a request looks at.
func TestManyPages(t *testing.T) {
	source, target := openStore(t, tier.Options{MemoryBytes: 64 << 20}), openStore(t, tier.Options{MemoryBytes: 64 << 20})
	var named []string
	for i := range 3 * pageValues {
		set(t, source, fmt.Sprint("p", i), []byte(fmt.Sprint(i)), time.Time{})
		set(t, source, fmt.Sprint("n", i), []byte(fmt.Sprint(i)), time.Time{})
		named = append(named, fmt.Sprint("n", i), fmt.Sprint("p", i))
	}
	address, _ := served(t, NewSource(source, allow(Selector{Prefixes: []string{"p"}, Keys: named})))
	got, err := run(t, newPull(t, address, target))
	must(t, err)
	wantContents(t, target, contents(source))
	if got.Values != 6*pageValues || got.Skipped != 0 || got.MovedBytes != got.TotalBytes-got.PresentBytes {
		t.Errorf("%+v", got)
	}
}
