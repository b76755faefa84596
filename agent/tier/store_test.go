package tier

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"rota/agent/internal/directio"
)

// fakeClock is a wall clock that stands still.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *fakeClock { return &fakeClock{now: time.Unix(1_700_000_000, 0)} }

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func small(dir string) Options {
	return Options{MemoryBytes: 1 << 20, Dir: dir, DiskBytes: 4 << 20, BootID: "boot"}
}

func open(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// text is a value of n bytes that only this number has.
func text(number, n int) []byte {
	type what struct{ number, n int }
	if b, ok := texts.Load(what{number, n}); ok {
		return b.([]byte)
	}
	b := make([]byte, n)
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], uint64(number))
	_, _ = rand.NewChaCha8(seed).Read(b)
	texts.Store(what{number, n}, b)
	return b
}

var texts sync.Map

func set(t testing.TB, s *Store, key string, value []byte) {
	t.Helper()
	if ok, err := setUntil(s, key, value, time.Time{}, Always); err != nil || !ok {
		t.Fatalf("set %s: %v, %v", key, ok, err)
	}
}

func setUntil(s *Store, key string, value []byte, at time.Time, when Condition) (bool, error) {
	v, err := s.NewValue(uint64(len(value)))
	if err != nil {
		return false, err
	}
	copy(v.Bytes(), value)
	return s.Set(key, v, at, when)
}

// get returns nil for a miss and never nil for a hit.
func get(s *Store, key string) []byte {
	v := s.Get(key)
	if v == nil {
		return nil
	}
	defer v.Release()
	return append([]byte{}, v.Bytes()...)
}

func wantValue(t testing.TB, s *Store, key string, want []byte) {
	t.Helper()
	if got := get(s, key); !bytes.Equal(got, want) || (got == nil) != (want == nil) {
		t.Fatalf("%s has %d bytes, want %d, and equal ones", key, len(got), len(want))
	}
}

func flush(t testing.TB, s *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, s.Flush(ctx))
}

// forgetMemory writes everything to disk and keeps nothing in memory.
func forgetMemory(t testing.TB, s *Store) {
	t.Helper()
	flush(t, s)
	s.mu.Lock()
	defer s.mu.Unlock()
	for last := s.clean.Back(); last != nil; last = s.clean.Back() {
		s.leaveMemory(last.Value.(*block))
	}
}

func TestAValueGoesToDiskAndBack(t *testing.T) {
	o := small(t.TempDir())
	o.MemoryBytes, o.DiskBytes = 16<<20, 64<<20
	s := open(t, o)
	for i, n := range []int{0, 1, 4095, 4096, 4097, chunkBytes, chunkBytes + 1, 3*chunkBytes + 17} {
		key := fmt.Sprint("key", i)
		set(t, s, key, text(i, n))
		wantValue(t, s, key, text(i, n))
		forgetMemory(t, s)
		wantValue(t, s, key, text(i, n)) // from disk
		wantValue(t, s, key, text(i, n)) // from memory again
	}
	if st := s.Stat(); st.DiskHits != 8 || st.MemoryHits != 16 || st.Misses != 0 || st.Demoted != 8 || st.Corrupt != 0 {
		t.Errorf("%+v", st)
	}
}

func TestEqualValuesAreStoredOnce(t *testing.T) {
	s := open(t, small(t.TempDir()))
	for i := range 20 {
		set(t, s, fmt.Sprint(i), text(i%2, 100_000))
	}
	flush(t, s)
	st := s.Stat()
	if st.LogicalBytes != 2_000_000 || st.UniqueBytes != 200_000 || st.DiskItems != 2 || st.DiskLiveBytes != 2*102_400 {
		t.Errorf("%+v", st)
	}
	for i := range 19 {
		s.Delete(fmt.Sprint(i))
	}
	wantValue(t, s, "19", text(1, 100_000))
	if st := s.Stat(); st.UniqueBytes != 100_000 || st.DiskItems != 1 {
		t.Errorf("after deletes: %+v", st)
	}
}

// Two values of one size and checksum are still two.
func TestChecksumsThatCollide(t *testing.T) {
	seen := map[uint32][]byte{}
	var x, y []byte
	for r := rand.New(rand.NewPCG(1, 2)); y == nil; {
		b := binary.LittleEndian.AppendUint64(nil, r.Uint64())
		sum := checksums(b)[0]
		if x = seen[sum]; x != nil && !bytes.Equal(x, b) {
			y = b
		}
		seen[sum] = b
	}
	dir := t.TempDir()
	s := open(t, small(dir))
	want := map[string][]byte{"x": x, "y": y, "x too": x, "y too": y}
	check := func() {
		t.Helper()
		for key, value := range want {
			wantValue(t, s, key, value)
		}
	}
	for _, key := range []string{"x", "y", "x too"} {
		set(t, s, key, want[key])
	}
	forgetMemory(t, s)
	set(t, s, "y too", y)
	set(t, s, "x too", x) // compared with what is on disk
	check()
	forgetMemory(t, s)
	check()
	if st := s.Stat(); st.UniqueBytes != 3*8 { // y is there twice, since x is what is found
		t.Errorf("%+v", st)
	}
	must(t, s.Close())
	s = open(t, small(dir))
	check()
	s.Delete("y")
	delete(want, "y")
	check()
}

func TestBothTiersAreBoundedAndTheRecentStays(t *testing.T) {
	o := small(t.TempDir())
	s := open(t, o)
	hot := text(-1, 50_000)
	set(t, s, "hot", hot)
	for i := range 200 { // 10 MB through 1 MiB of memory and 4 MiB of disk
		set(t, s, fmt.Sprint(i), text(i, 50_000))
		wantValue(t, s, "hot", hot)
		st := s.Stat()
		if st.DiskBytes > o.DiskBytes || st.MemoryBytes+st.IndexBytes > o.MemoryBytes {
			t.Fatalf("beyond the bounds: %+v", st)
		}
	}
	flush(t, s)
	found := 0
	for i := range 200 {
		if v := get(s, fmt.Sprint(i)); v != nil {
			found++
			if !bytes.Equal(v, text(i, 50_000)) {
				t.Fatalf("%d has other bytes", i)
			}
		}
	}
	wantValue(t, s, "199", text(199, 50_000))
	if st := s.Stat(); found < 40 || found > 90 || st.Evicted == 0 || st.Corrupt != 0 {
		t.Errorf("%d of 200 found; %+v", found, st)
	}
}

func TestWithoutADiskMemoryEvicts(t *testing.T) {
	s := open(t, Options{MemoryBytes: 1 << 20})
	for i := range 50 {
		set(t, s, fmt.Sprint(i), text(i, 50_000))
	}
	wantValue(t, s, "0", nil)
	wantValue(t, s, "49", text(49, 50_000))
	if st := s.Stat(); st.Evicted == 0 || st.Disk != DiskNone {
		t.Errorf("%+v", st)
	}
}

func TestManyKeysOfOneValueAreBounded(t *testing.T) {
	s := open(t, small(t.TempDir()))
	for i := range 2000 {
		set(t, s, fmt.Sprint(i), []byte("equal"))
		set(t, s, fmt.Sprint("other", i), fmt.Append(nil, i))
	}
	if st := s.Stat(); st.IndexBytes > 1<<20/indexPart {
		t.Errorf("%+v", st)
	}
}

func TestLimits(t *testing.T) {
	s := open(t, Options{MemoryBytes: 1 << 20})
	if _, err := s.NewValue(256<<10 + 1); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a large value: %v", err)
	}
	if _, err := setUntil(s, string(make([]byte, KeyBytesMax+1)), nil, time.Time{}, Always); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a long key: %v", err)
	}
	var held []*Value
	for {
		v, err := s.NewValue(200 << 10)
		if errors.Is(err, ErrFull) {
			break
		}
		must(t, err)
		held = append(held, v)
	}
	for _, v := range held {
		v.Release()
	}
	set(t, s, "key", text(1, 200<<10))
	dir := t.TempDir()
	for name, o := range map[string]Options{
		"little memory": {MemoryBytes: 1000},
		"large values":  {MemoryBytes: 1 << 20, ValueBytesMax: 1 << 20},
		"no boot ID":    {MemoryBytes: 1 << 20, Dir: dir, DiskBytes: 1 << 30},
		"little disk":   {MemoryBytes: 1 << 20, Dir: dir, DiskBytes: 1 << 10, BootID: "boot"},
	} {
		if _, err := Open(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
	open(t, small(dir))
	if _, err := Open(small(dir)); err == nil {
		t.Error("two stores share a folder")
	}
}

func TestExpiry(t *testing.T) {
	c := newClock()
	o := small(t.TempDir())
	o.Now = c.Now
	s := open(t, o)
	in := func(d time.Duration) time.Time { return c.Now().Add(d) }
	for key, at := range map[string]time.Time{"short": in(time.Second), "long": in(time.Hour), "never": {}} {
		if _, err := setUntil(s, key, []byte(key), at, Always); err != nil {
			t.Fatal(err)
		}
	}
	if left, ok := s.Remaining("short"); left != time.Second || !ok {
		t.Errorf("short has %v, %v", left, ok)
	}
	if left, ok := s.Remaining("never"); left >= 0 || !ok {
		t.Errorf("never has %v, %v", left, ok)
	}
	flush(t, s)
	c.advance(time.Second)
	wantValue(t, s, "short", nil)
	if n := s.Len(); n != 2 {
		t.Errorf("%d keys", n)
	}
	if !s.Expire("long", in(time.Minute)) || s.Expire("short", in(time.Minute)) {
		t.Error("expiry of what is gone, or not of what is there")
	}
	must(t, s.Close())
	c.advance(2 * time.Minute)
	s = open(t, o)
	wantValue(t, s, "long", nil) // the changed expiry was on disk
	wantValue(t, s, "never", []byte("never"))
	if st := s.Stat(); st.Expired != 1 {
		t.Errorf("%+v", st)
	}
}

func TestConditions(t *testing.T) {
	s := open(t, Options{MemoryBytes: 1 << 20})
	for i, c := range []struct {
		when  Condition
		value string
		want  bool
	}{{IfExists, "a", false}, {IfAbsent, "b", true}, {IfAbsent, "c", false}, {IfExists, "d", true}, {Always, "e", true}} {
		if ok, err := setUntil(s, "key", []byte(c.value), time.Time{}, c.when); err != nil || ok != c.want {
			t.Errorf("%d: %v, %v", i, ok, err)
		}
	}
	wantValue(t, s, "key", []byte("e"))
}

// A key that exists all the while is scanned once, whatever else comes and goes.
func TestScan(t *testing.T) {
	s := open(t, Options{MemoryBytes: 1 << 20})
	for i := range 50 {
		set(t, s, fmt.Sprint("stays", i), nil)
		set(t, s, fmt.Sprint("goes", i), nil)
	}
	var seen []string
	for cursor, round := uint64(0), 0; ; round++ {
		keys, next := s.Scan(cursor, 7)
		seen = append(seen, keys...)
		s.Delete(fmt.Sprint("goes", round))
		set(t, s, fmt.Sprint("new", round), nil)
		if cursor = next; next == 0 {
			break
		}
	}
	slices.Sort(seen)
	if len(slices.Compact(slices.Clone(seen))) != len(seen) {
		t.Error("a key was scanned twice")
	}
	for i := range 50 {
		if !slices.Contains(seen, fmt.Sprint("stays", i)) {
			t.Errorf("stays%d was not scanned", i)
		}
	}
}

// TestModel compares a store with a map. A miss is allowed where eviction is; another
// value never is.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		must(t, err)
		c := newClock()
		o := small(dir)
		o.DiskBytes, o.Now = 1<<20, c.Now
		if rapid.Bool().Draw(rt, "roomy") {
			o.DiskBytes = 64 << 20
		}
		s, err := Open(o)
		must(t, err)
		defer func() { _ = s.Close() }()
		type known struct {
			value   []byte
			expires time.Time
		}
		model := map[string]known{}
		key := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"})
		number := rapid.IntRange(0, 5)
		size := rapid.SampledFrom([]int{0, 10, 4096, 30_000, 100_000, 250_000})
		look := func(rt *rapid.T, k string) {
			m, there := model[k]
			there = there && (m.expires.IsZero() || m.expires.After(c.Now()))
			got := get(s, k)
			if got != nil && (!there || !bytes.Equal(got, m.value)) {
				rt.Fatalf("%s: %d bytes, which were not set, or not last", k, len(got))
			}
			if got == nil && there && o.DiskBytes > 1<<20 {
				rt.Fatalf("%s is gone", k)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"set": func(rt *rapid.T) {
				k, v := key.Draw(rt, "key"), text(number.Draw(rt, "number"), size.Draw(rt, "size"))
				var at time.Time
				if rapid.Bool().Draw(rt, "expires") {
					at = c.Now().Add(time.Minute)
				}
				if _, err := setUntil(s, k, v, at, Always); err != nil {
					rt.Fatal(err)
				}
				model[k] = known{v, at}
			},
			"get":    func(rt *rapid.T) { look(rt, key.Draw(rt, "key")) },
			"delete": func(rt *rapid.T) { k := key.Draw(rt, "key"); s.Delete(k); delete(model, k) },
			"rename": func(rt *rapid.T) {
				from, to := key.Draw(rt, "from"), key.Draw(rt, "to")
				m, there := model[from]
				there = there && (m.expires.IsZero() || m.expires.After(c.Now()))
				switch renamed := s.Rename(from, to); {
				case renamed && !there, there && !renamed && o.DiskBytes > 1<<20:
					rt.Fatalf("%s renamed to %s: %v", from, to, renamed)
				case renamed && from != to:
					model[to] = known{value: m.value}
					delete(model, from)
				}
			},
			"clear": func(rt *rapid.T) { s.Clear(); clear(model) },
			"wait":  func(rt *rapid.T) { c.advance(20 * time.Second) },
			"flush": func(rt *rapid.T) { forgetMemory(t, s) },
			"reopen": func(rt *rapid.T) {
				must(t, s.Close())
				s, err = Open(o)
				must(t, err)
			},
			"": func(rt *rapid.T) {
				st := s.Stat()
				if st.Corrupt+st.Lost > 0 || st.DiskBytes > o.DiskBytes {
					rt.Fatalf("%+v", st)
				}
			},
		})
		for k := range model {
			look(rt, k)
		}
	})
}

func TestShrunkValuesGiveTheirPagesBack(t *testing.T) {
	s := open(t, Options{MemoryBytes: 4 << 20})
	v, err := s.NewValue(1 << 20)
	must(t, err)
	copy(v.Bytes(), text(1, 5000))
	v.Shrink(5000)
	if n := s.Stat().MemoryBytes; n != 8192 {
		t.Errorf("%d bytes for two pages", n)
	}
	_, err = s.Set("a", v.Retain(), time.Time{}, Always)
	must(t, err)
	s.Delete("a")
	if !bytes.Equal(v.Bytes(), text(1, 5000)) {
		t.Error("a value that is retained has changed")
	}
	v.Release()
	if n := s.Stat().MemoryBytes; n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t, small(t.TempDir()))
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 1))
			for range 150 {
				n := r.IntN(100)
				key := fmt.Sprint(n)
				switch r.IntN(8) {
				case 0:
					s.Delete(key)
				case 1:
					s.Scan(0, 10)
					s.Stat()
				case 2, 3, 4:
					if _, err := setUntil(s, key, text(n, 60_000), time.Time{}, Always); err != nil && !errors.Is(err, ErrFull) {
						t.Error(err)
					}
				default:
					if v := get(s, key); v != nil && !bytes.Equal(v, text(n, 60_000)) {
						t.Errorf("%s has other bytes", key)
					}
				}
			}
		})
	}
	wg.Wait()
	if st := s.Stat(); st.Corrupt > 0 || st.DiskHits == 0 || st.MemoryHits == 0 {
		t.Errorf("%+v", st)
	}
}

func TestAFlippedBitInMemory(t *testing.T) {
	s := open(t, small(t.TempDir()))
	flip := func(key string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.index.byKey[key].block.value.Bytes()[777] ^= 4
	}
	set(t, s, "memory", text(1, 50_000))
	flip("memory")
	wantValue(t, s, "memory", nil)
	set(t, s, "both", text(2, 50_000))
	flush(t, s)
	flip("both")
	wantValue(t, s, "both", text(2, 50_000)) // from disk
	set(t, s, "demoted", text(3, 50_000))
	flip("demoted")
	flush(t, s)
	wantValue(t, s, "demoted", nil)
	if st := s.Stat(); st.Corrupt != 3 || st.DiskHits != 1 {
		t.Errorf("%+v", st)
	}
}

func TestAFlippedBitOnDisk(t *testing.T) {
	dir := t.TempDir()
	s := open(t, small(dir))
	set(t, s, "key", text(1, 50_000))
	set(t, s, "other", text(2, 50_000))
	forgetMemory(t, s)
	path := filepath.Join(dir, segmentPrefix+"1")
	data, err := os.ReadFile(path)
	must(t, err)
	at := bytes.Index(data, text(1, 50_000)[40_000:])
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte{data[at] ^ 1}, int64(at))
	must(t, errors.Join(err, f.Sync(), f.Close()))
	wantValue(t, s, "key", nil)
	wantValue(t, s, "other", text(2, 50_000))
	if st := s.Stat(); st.Corrupt != 1 || st.Misses != 1 || st.Keys != 1 {
		t.Errorf("%+v", st)
	}
}

// failing makes writes of a store fail while an error is set.
func failing(s *Store) (set func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var mu sync.Mutex
	var failure error
	write := s.disk.write
	s.disk.write = func(f *os.File, b []byte, offset int64) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if failure != nil {
			_, _ = write(f, b[:pageBytes], offset) // a part of it comes to disk
			return pageBytes, failure
		}
		return write(f, b, offset)
	}
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		failure = err
	}
}

func TestADiskThatFailsIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		word string
	}{"full": {unix.ENOSPC, DiskFull}, "broken": {unix.EIO, DiskPaused}} {
		t.Run(name, func(t *testing.T) {
			s := open(t, small(t.TempDir()))
			fail := failing(s)
			set(t, s, "early", text(-1, 50_000))
			flush(t, s)
			fail(c.err)
			for i := range 60 {
				set(t, s, fmt.Sprint(i), text(i, 50_000))
			}
			wantValue(t, s, "59", text(59, 50_000))
			wantValue(t, s, "early", text(-1, 50_000)) // reading goes on
			if st := s.Stat(); st.Disk != c.word || st.DiskWhy == "" || st.Evicted == 0 || st.DiskItems != 1 {
				t.Errorf("%+v", st)
			}
			fail(nil)
			for range 3 { // it drops what is there first, and then grows again
				s.mu.Lock()
				s.disk.pausedTo = time.Time{}
				s.mu.Unlock()
				flush(t, s)
			}
			if st := s.Stat(); st.Disk != DiskWorks || st.DiskItems < 2 {
				t.Errorf("when it works again: %+v", st)
			}
		})
	}
}

// A disk that hangs holds no call up: memory evicts, as it does while a disk fails.
func TestADiskThatHangsIsLeftAlone(t *testing.T) {
	s := open(t, small(t.TempDir()))
	hang := make(chan struct{})
	release := sync.OnceFunc(func() { close(hang) })
	t.Cleanup(release) // before the store is closed
	s.mu.Lock()
	write := s.disk.write
	s.disk.writeMax = time.Millisecond
	s.disk.write = func(f *os.File, b []byte, offset int64) (int, error) {
		<-hang
		return write(f, b, offset)
	}
	s.mu.Unlock()
	for i := range 60 {
		set(t, s, fmt.Sprint(i), text(i, 50_000))
	}
	wantValue(t, s, "59", text(59, 50_000))
	if st := s.Stat(); st.Disk != DiskPaused || !strings.Contains(st.DiskWhy, "hang") || st.Evicted == 0 {
		t.Errorf("%+v", st)
	}
	release()
	s.mu.Lock()
	s.disk.writeMax = time.Hour
	s.mu.Unlock()
	set(t, s, "late", text(-1, 50_000))
	flush(t, s)
	if st := s.Stat(); st.Disk != DiskWorks || st.DiskItems == 0 {
		t.Errorf("when it works again: %+v", st)
	}
}

func TestWithoutDirectIO(t *testing.T) {
	o := small(t.TempDir())
	refuse := func(path string, flags int) (*os.File, error) {
		if flags&unix.O_DIRECT != 0 {
			return nil, unix.EINVAL
		}
		return directio.Open(path, flags)
	}
	opening = refuse
	defer func() { opening = directio.Open }()
	s := open(t, o)
	set(t, s, "key", text(1, 100_000))
	forgetMemory(t, s)
	wantValue(t, s, "key", text(1, 100_000))
	if st := s.Stat(); st.Direct || st.Disk != DiskWorks || st.DiskWhy == "" || st.DiskHits != 1 {
		t.Errorf("%+v", st)
	}
}
