package tier

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"rota/agent/internal/record"
	"rota/internal/need"
)

// story writes to a store step by step. It returns the manifest after each step, with the
// hashes of the keys that are on disk then.
func story(t *testing.T, dir string) (steps [][]byte, keys []map[string]hash) {
	t.Helper()
	s := open(t, small(dir))
	now := map[string]hash{}
	put := func(key string, number int) {
		set(t, s, key, text(number, 5000))
		now[key] = blake3.Sum256(text(number, 5000))
	}
	note := func() {
		flush(t, s)
		data, err := os.ReadFile(filepath.Join(dir, manifestName))
		must(t, err)
		step := map[string]hash{}
		for k, h := range now {
			step[k] = h
		}
		steps, keys = append(steps, data), append(keys, step)
	}
	note()
	put("a", 1)
	note()
	put("b", 2)
	note()
	put("c", 1) // the value that a has
	note()
	s.Delete("b")
	delete(now, "b")
	note()
	s.mu.Lock()
	s.lose(s.index.byKey["a"].block) // a and c are in memory only, and on disk no more
	s.settle(t.Context())
	s.mu.Unlock()
	clear(now)
	data, err := os.ReadFile(filepath.Join(dir, manifestName))
	must(t, err)
	steps, keys = append(steps, data), append(keys, map[string]hash{})
	put("d", 1) // the same value again: a and c must not come back with it
	s.Delete("a")
	s.Delete("c")
	note()
	put("d", 3)
	note()
	s.Expire("d", time.Now().Add(time.Hour))
	note()
	put("e", 4)
	note()
	for _, to := range []string{"f", "d"} { // to a key that is not there, and to one that is
		from := map[string]string{"f": "e", "d": "f"}[to]
		if !s.Rename(from, to) {
			t.Fatal(from, "was not renamed")
		}
		now[to] = now[from]
		delete(now, from)
		note()
	}
	must(t, s.Close())
	return steps, keys
}

// A process that dies leaves a prefix of what it wrote. A key is then as it was after
// the last whole step or the one that was under way, or missing.
func TestACrashAtEveryByteOfTheManifest(t *testing.T) {
	steps, keys := story(t, t.TempDir())
	whole := steps[len(steps)-1]
	found := 0
	for n, step := len(steps[0]), 0; n <= len(whole); n++ {
		for step+1 < len(steps) && n >= len(steps[step+1]) {
			step++
		}
		c, err := decodeManifest(whole[:n])
		must(t, err)
		for key, k := range c.keys {
			if k.hash != keys[step][key] && (step+1 == len(keys) || k.hash != keys[step+1][key]) {
				t.Fatalf("cut at byte %d of %d, after step %d: %s has a value of another time", n, len(whole), step, key)
			}
			found++
		}
		if n == len(steps[step]) && len(c.keys) != len(keys[step]) {
			t.Fatalf("after step %d: %d keys, want %d", step, len(c.keys), len(keys[step]))
		}
	}
	if found < len(whole)/2 {
		t.Errorf("only %d keys were looked at", found)
	}
}

func TestEveryFlippedBitOfTheManifestIsNoticed(t *testing.T) {
	dir := t.TempDir()
	steps, _ := story(t, dir)
	whole := steps[len(steps)-1]
	for i := range whole {
		for bit := range 8 {
			data := bytes.Clone(whole)
			data[i] ^= 1 << bit
			if _, err := decodeManifest(data); err == nil {
				t.Fatalf("bit %d of byte %d of %d", bit, i, len(whole))
			}
		}
	}
	whole[100] ^= 1
	must(t, os.WriteFile(filepath.Join(dir, manifestName), whole, 0o600))
	s := open(t, small(dir))
	wantValue(t, s, "d", nil)
	if st := s.Stat(); st.Disk != DiskStarted || st.DiskWhy == "" || st.Segments != 0 {
		t.Errorf("%+v", st)
	}
	set(t, s, "d", []byte("new"))
}

// A segment that ends early, or has other bytes, at any place, gives right values or none.
func TestDamageAtEveryByteOfASegment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, small(dir))
	const blocks, size = 2, 1500
	for i := range blocks {
		set(t, s, fmt.Sprint(i), text(i, size))
	}
	must(t, s.Close())
	whole, err := os.ReadFile(filepath.Join(dir, segmentPrefix+"1"))
	must(t, err)
	memory, err := newArena(pageBytes)
	must(t, err)
	v := memory.value(size)
	found := func(data []byte, i int) bool {
		b := s.index.blocks[fingerprintOf(size, checksums(text(i, size)))]
		if readBlock(bytes.NewReader(data), b.offset, v, b.sums) != nil {
			return false
		}
		if !bytes.Equal(v.Bytes(), text(i, size)) {
			t.Fatalf("block %d has other bytes", i)
		}
		return true
	}
	for n := range whole {
		i := n / pageBytes
		inside := n%pageBytes < size
		if found(whole[:n], i) == inside {
			t.Fatalf("cut at byte %d: block %d is found: %v", n, i, !inside)
		}
		whole[n] ^= 1 << (n % 8)
		if found(whole, i) == inside {
			t.Fatalf("byte %d changed: block %d is found: %v", n, i, !inside)
		}
		whole[n] ^= 1 << (n % 8)
	}
	for i := range blocks {
		if !found(whole, i) {
			t.Errorf("block %d of a whole segment is not found", i)
		}
	}
}

func TestASegmentThatWasCutIsNoticedWhenTheStoreIsOpened(t *testing.T) {
	dir := t.TempDir()
	s := open(t, small(dir))
	for i := range 3 {
		set(t, s, fmt.Sprint(i), text(i, 5000))
	}
	must(t, s.Close())
	must(t, os.Truncate(filepath.Join(dir, segmentPrefix+"1"), 2*2*pageBytes))
	s = open(t, small(dir))
	if st := s.Stat(); st.Lost != 1 || st.Keys != 2 {
		t.Errorf("%+v", st)
	}
	must(t, s.Close())
	must(t, os.Remove(filepath.Join(dir, segmentPrefix+"1")))
	if st := open(t, small(dir)).Stat(); st.Lost != 2 || st.Keys != 0 {
		t.Errorf("%+v", st)
	}
}

// After a crash of the machine nothing is trusted; after a clean end everything is.
func TestAReboot(t *testing.T) {
	for _, clean := range []bool{true, false} {
		dir := t.TempDir()
		o := small(dir)
		s := open(t, o)
		set(t, s, "key", text(1, 5000))
		flush(t, s)
		if !clean { // the state that a crash leaves
			saved := filepath.Join(t.TempDir(), "saved")
			must(t, os.CopyFS(saved, os.DirFS(dir)))
			dir = saved
		}
		must(t, s.Close())
		o.Dir, o.BootID = dir, "another boot"
		s = open(t, o)
		if clean {
			wantValue(t, s, "key", text(1, 5000))
			continue
		}
		wantValue(t, s, "key", nil)
		if st := s.Stat(); st.Disk != DiskStarted || st.DiskBytes != 0 {
			t.Errorf("%+v", st)
		}
	}
}

func TestTheManifestStaysSmall(t *testing.T) {
	dir := t.TempDir()
	s := open(t, small(dir))
	set(t, s, "key", text(1, 5000))
	flush(t, s)
	for i := range 40_000 {
		s.Expire("key", time.Now().Add(time.Hour+time.Duration(i)*time.Second))
	}
	st, err := os.Stat(filepath.Join(dir, manifestName))
	must(t, err)
	if st.Size() > 2*compactMin {
		t.Errorf("the manifest of one key has %d bytes", st.Size())
	}
	must(t, s.Close())
	wantValue(t, open(t, small(dir)), "key", text(1, 5000))
}

// A manifest that cannot be written could bring old values back, so it goes.
func TestTheDiskTierEndsWithItsManifest(t *testing.T) {
	dir := t.TempDir()
	s := open(t, small(dir))
	set(t, s, "old", text(1, 5000))
	forgetMemory(t, s)
	set(t, s, "both", text(2, 5000))
	flush(t, s)
	s.mu.Lock()
	must(t, s.disk.manifest.file.Close())
	s.mu.Unlock()
	set(t, s, "both", text(3, 5000))
	set(t, s, "new", text(4, 5000))
	wantValue(t, s, "both", text(3, 5000))
	for limit := time.Now().Add(time.Minute); s.Stat().Segments > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the segments stay")
		}
	}
	wantValue(t, s, "old", nil)
	wantValue(t, s, "new", text(4, 5000))
	if st := s.Stat(); st.Disk != DiskBroken || st.DiskItems != 0 {
		t.Errorf("%+v", st)
	}
	_ = s.Close()
	s = open(t, small(dir))
	wantValue(t, s, "both", nil)
	set(t, s, "both", text(5, 5000))
}

func TestAFullDisk(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		t.Skipf("this machine mounts no tmpfs: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	o := small(dir)
	o.DiskBytes = 64 << 20 // more than there is
	s := open(t, o)
	for i := range 200 {
		set(t, s, fmt.Sprint(i), text(i, 50_000))
		wantValue(t, s, fmt.Sprint(i), text(i, 50_000))
	}
	for i := range 200 {
		if v := get(s, fmt.Sprint(i)); v != nil && !bytes.Equal(v, text(i, 50_000)) {
			t.Fatalf("%d has other bytes", i)
		}
	}
	st := s.Stat()
	if st.Evicted == 0 || st.Demoted == 0 || st.Corrupt > 0 || st.Disk == DiskBroken {
		t.Errorf("%+v", st)
	}
	must(t, s.Close())
	if again := open(t, o).Stat(); again.Lost > 0 || again.Keys == 0 {
		t.Errorf("opened again: %+v", again)
	}
}

func FuzzManifest(f *testing.F) {
	b := &block{hash: blake3.Sum256(nil), sums: []uint32{7}, segment: &segment{id: 3}, offset: 4096}
	f.Add(blockRecord(b))
	f.Add(keyRecord(&entry{key: "key", expires: 5, block: b}))
	f.Add(evictRecord(b.hash))
	f.Fuzz(func(t *testing.T, payload []byte) {
		data := record.Append([]byte(manifestMagic), blockRecord(b))
		c, err := decodeManifest(record.Append(data, payload))
		if err != nil {
			return
		}
		for key, k := range c.keys {
			if _, there := c.blocks[k.hash]; !there {
				t.Fatalf("%q names a block that is not there", key)
			}
		}
	})
}

// The test binary is also a process that writes to a store until it is killed.
const dirEnv = "ROTA_TEST_TIER"

func TestMain(m *testing.M) {
	dir := os.Getenv(dirEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := writeForever(dir, os.Stdout); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

const writerKeys = 20

// writeForever sets keys to ever higher numbers and says so. Before it changes a key it
// says so too.
func writeForever(dir string, out io.Writer) error {
	s, err := Open(small(dir))
	if err != nil {
		return err
	}
	for i := 1; ; i++ {
		key := i * 7 % writerKeys
		fmt.Fprintln(out, "begin", key, i)
		if _, err := setUntil(s, fmt.Sprint(key), text(i, 20_000+i%1000), time.Time{}, Always); err != nil {
			return err
		}
		fmt.Fprintln(out, "done", key, i)
		if i%10 == 0 {
			if err := s.Flush(context.Background()); err != nil {
				return err
			}
			fmt.Fprintln(out, "flushed", key, i)
		}
	}
}

// It does not run beside others: between fork and exec, a child has the locks of their
// stores.
func TestAProcessIsKilledWhileItWrites(t *testing.T) {
	for round := range 6 {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", dirEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		begun, done, flushed := map[int]int{}, map[int]int{}, map[int]int{}
		lines := 0
		for scan := bufio.NewScanner(out); scan.Scan(); lines++ {
			var word string
			var key, i int
			if _, err := fmt.Sscan(scan.Text(), &word, &key, &i); err != nil {
				t.Fatalf("the writer says %q", scan.Text())
			}
			switch word {
			case "begin":
				begun[key] = i
				delete(flushed, key)
			case "done":
				done[key] = i
			case "flushed":
				for k, n := range done {
					flushed[k] = n
				}
			}
			if lines == 40+round*61 {
				must(t, cmd.Process.Kill())
			}
		}
		_ = cmd.Wait()
		s := open(t, small(dir))
		for key := range writerKeys {
			got := get(s, strconv.Itoa(key))
			switch n := flushed[key]; {
			case n > 0 && !bytes.Equal(got, text(n, 20_000+n%1000)):
				t.Errorf("round %d: %d, which was on disk, has %d bytes", round, key, len(got))
			case got == nil:
			case !bytes.Equal(got, text(begun[key], 20_000+begun[key]%1000)) && !bytes.Equal(got, text(done[key], 20_000+done[key]%1000)):
				t.Errorf("round %d: %d has a value of another time", round, key)
			}
		}
		if st := s.Stat(); st.Corrupt+st.Lost > 0 || lines < 40 || len(flushed) == 0 {
			t.Errorf("round %d, %d lines, %d flushed: %+v", round, lines, len(flushed), st)
		}
	}
}
