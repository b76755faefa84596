package tier

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rota/agent/internal/directio"
)

// soon fails the test if something takes as long as a disk that hangs.
func soon(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal(what, "waits for the disk")
	}
}

// hangManifest has the next write of the manifest hang until release is called, and fail then.
func hangManifest(t *testing.T, s *Store) (release func()) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	must(t, w.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	for err == nil {
		_, err = w.Write(make([]byte, 1<<10))
	}
	must(t, w.SetWriteDeadline(time.Time{}))
	s.mu.Lock()
	defer s.mu.Unlock()
	must(t, s.disk.manifest.file.Close())
	s.disk.manifest.file = w
	release = sync.OnceFunc(func() { _ = r.Close() })
	t.Cleanup(release) // before the store is closed
	return release
}

// What is in memory is answered while the manifest cannot be written. What drops a value that is on
// disk waits, since the value would be back after a crash.
func TestAManifestThatHangs(t *testing.T) {
	s := open(t, small(t.TempDir()))
	for _, key := range []string{"a", "b", "c"} {
		set(t, s, key, text(int(key[0]), 5000))
	}
	flush(t, s)
	release := hangManifest(t, s)
	deleted := make(chan bool, 1)
	go func() { deleted <- s.Delete("a") }()
	for limit := time.Now().Add(time.Minute); get(s, "a") != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("it is not deleted")
		}
	}
	soon(t, "a hit", func() {
		wantValue(t, s, "b", text('b', 5000))
		wantValue(t, s, "c", text('c', 5000))
		s.Stat()
		s.Len()
	})
	soon(t, "a new value", func() { set(t, s, "d", text('d', 5000)) })
	time.Sleep(20 * time.Millisecond)
	if len(deleted) > 0 {
		t.Error("a removal is answered, and the manifest does not have it")
	}
	s.mu.Lock()
	s.disk.writeMax = time.Millisecond
	s.mu.Unlock()
	if st := s.Stat(); st.Disk != DiskPaused {
		t.Errorf("the disk hangs: %+v", st)
	}
	release()
	if !<-deleted {
		t.Error("it was not there")
	}
	wantValue(t, s, "b", text('b', 5000))
}

// Whoever changes a key waits for what others have done to it, and for nothing else: its old value would be
// back after a crash.
func TestADropThatIsNotWritten(t *testing.T) {
	calls := map[string]func(s *Store){
		"Set":    func(s *Store) { _, _ = setUntil(s, "a", text('n', 5000), time.Time{}, Always) },
		"Delete": func(s *Store) { s.Delete("a") },
		"Expire": func(s *Store) { s.Expire("a", time.Now().Add(time.Hour)) },
		"Rename": func(s *Store) { s.Rename("a", "x") },
		"to it":  func(s *Store) { s.Rename("memory", "a") },
		"Adopt": func(s *Store) {
			infos := s.Describe([]string{"memory"})
			hash, _ := s.HashOf("memory")
			_, _ = s.Adopt(Info{Key: "a", Size: infos[0].Size, Sums: infos[0].Sums, Hash: hash}, time.Time{})
		},
	}
	for name, drop := range map[string]func(s *Store, now *fakeClock){ // with Store.mu
		"a removal":   func(s *Store, _ *fakeClock) { s.remove(s.index.byKey["a"]) },
		"an eviction": func(s *Store, _ *fakeClock) { s.evict(s.index.byKey["a"].block) },
		"a lost copy": func(s *Store, _ *fakeClock) { s.lose(s.index.byKey["a"].block) },
		"another value": func(s *Store, _ *fakeClock) {
			s.link(s.index.byKey["a"], s.index.byKey["memory"].block, 0)
		},
		"its time": func(s *Store, now *fakeClock) {
			s.index.setExpiry(s.index.byKey["a"], now.Now().UnixMilli())
			now.advance(time.Second)
		},
	} {
		for call, do := range calls {
			t.Run(name+", "+call, func(t *testing.T) {
				now := newClock()
				o := small(t.TempDir())
				o.Now = now.Now
				s := open(t, o)
				set(t, s, "a", text('a', 5000))
				set(t, s, "b", text('b', 5000))
				flush(t, s)
				set(t, s, "memory", text('m', 5000))
				hangManifest(t, s)
				s.mu.Lock()
				drop(s, now)
				s.mu.Unlock()
				done := make(chan struct{})
				go func() {
					defer close(done)
					do(s)
				}()
				soon(t, "a new value", func() { set(t, s, "d", text('d', 5000)) })
				select {
				case <-done:
					t.Error("it is answered, and the manifest has the old value")
				case <-time.After(20 * time.Millisecond):
				}
				s.mu.Lock()
				s.disk.manifest.written = s.disk.manifest.queued
				s.changed.Broadcast()
				s.mu.Unlock()
				soon(t, "a call whose key is written", func() { <-done })
			})
		}
	}
}

// After FLUSHDB all keys wait, and where very many were dropped: to know which takes memory.
func TestDropsThatAreNotWrittenAreBounded(t *testing.T) {
	for name, drop := range map[string]func(s *Store){
		"Clear": func(s *Store) { go s.Clear() },
		"many": func(s *Store) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for i := range 10 * s.indexMax / entryBytes {
				key := fmt.Sprint(i)
				s.recordOf(dropRecord(key), key)
			}
			if n := len(s.disk.manifest.unwritten); uint64(n) > s.indexMax/entryBytes {
				t.Errorf("%d keys are remembered", n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, small(t.TempDir()))
			set(t, s, "0", text(0, 5000))
			flush(t, s)
			release := hangManifest(t, s)
			drop(s)
			for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				s.mu.Lock()
				queued := s.disk.manifest.queued > s.disk.manifest.written
				s.mu.Unlock()
				if queued {
					break
				}
				if time.Now().After(limit) {
					t.Fatal("nothing is dropped")
				}
			}
			deleted := make(chan bool, 1)
			go func() { deleted <- s.Delete("0") }()
			time.Sleep(20 * time.Millisecond)
			if len(deleted) > 0 {
				t.Error("it is answered, and the manifest has the old value")
			}
			release()
			<-deleted
		})
	}
	s := open(t, small(t.TempDir()))
	set(t, s, "key", text(1, 5000))
	flush(t, s)
	s.Delete("key")
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.disk.manifest.unwritten); n > 0 {
		t.Errorf("%d keys are remembered that are written", n)
	}
}

// TestASegmentThatCannotBeMade or removed at once holds up no hit.
func TestASegmentThatCannotBeMade(t *testing.T) {
	s := open(t, small(t.TempDir()))
	hang, began := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(began) })
	t.Cleanup(sync.OnceFunc(func() { close(hang) })) // before the store is closed
	defer func() { opening = directio.Open }()
	s.mu.Lock()
	opening = func(path string, flags int) (*os.File, error) {
		begin()
		<-hang
		return directio.Open(path, flags)
	}
	s.disk.writeMax = time.Millisecond
	s.flushes++ // has the demoter begin
	s.mu.Unlock()
	set(t, s, "first", text(1, 5000))
	<-began
	soon(t, "a hit", func() { wantValue(t, s, "first", text(1, 5000)) })
	soon(t, "a new value", func() {
		for i := range 60 { // more than there is memory for
			set(t, s, fmt.Sprint(i), text(i, 50_000))
		}
	})
	soon(t, "a hit", func() { wantValue(t, s, "59", text(59, 50_000)) })
	s.mu.Lock()
	s.flushes--
	s.mu.Unlock()
}

// TestAManifestThatCannotBeRewritten goes on as it is, and is rewritten later.
func TestAManifestThatCannotBeRewritten(t *testing.T) {
	dir := t.TempDir()
	s := open(t, small(dir))
	set(t, s, "key", text(1, 5000))
	flush(t, s)
	s.mu.Lock()
	m := &s.disk.manifest
	replace, tries := m.replace, 0
	m.replace = func(path string, _ []byte) (*os.File, error) {
		tries++
		must(t, os.WriteFile(path+".new", []byte("a part"), 0o600))
		return nil, unix.ENOSPC
	}
	s.mu.Unlock()
	grow := func() int64 {
		for i := range 20_000 {
			s.Expire("key", time.Now().Add(time.Hour+time.Duration(i)*time.Second))
		}
		st, err := os.Stat(filepath.Join(dir, manifestName))
		must(t, err)
		return st.Size()
	}
	if grow(); grow() < compactMin || tries != 1 {
		t.Fatalf("it was to be rewritten %d times, want once", tries)
	}
	if left, err := os.Stat(filepath.Join(dir, manifestName+".new")); err == nil {
		t.Errorf("%d bytes are left of the attempt", left.Size())
	}
	if st := s.Stat(); st.Disk != DiskWorks || st.DiskItems != 1 {
		t.Errorf("%+v", st)
	}
	s.mu.Lock()
	m.replace, m.again = replace, time.Time{}
	s.mu.Unlock()
	if size := grow(); size > 2*compactMin {
		t.Errorf("later it has %d bytes", size)
	}
	must(t, s.Close())
	wantValue(t, open(t, small(dir)), "key", text(1, 5000))
}

// TestAManifestThatCannotBeRewrittenAtTheStart goes on as one of this boot.
func TestAManifestThatCannotBeRewrittenAtTheStart(t *testing.T) {
	o := small(t.TempDir())
	s := open(t, o)
	set(t, s, "stays", text(1, 5000))
	set(t, s, "goes", text(2, 5000))
	must(t, s.Close())
	inTheWay := filepath.Join(o.Dir, manifestName+".new")
	must(t, os.MkdirAll(filepath.Join(inTheWay, "file"), 0o700))
	o.BootID = "second boot"
	s = open(t, o)
	if st := s.Stat(); st.Disk != DiskWorks || st.DiskItems != 2 {
		t.Fatalf("%+v", st)
	}
	s.Delete("goes")
	set(t, s, "comes", text(3, 5000))
	flush(t, s)
	wantValue(t, s, "stays", text(1, 5000))
	for boot, want := range map[string]int{"second boot": 2, "third boot": 0} { // after a kill, and a crash of the machine
		saved := filepath.Join(t.TempDir(), "saved")
		must(t, os.CopyFS(saved, os.DirFS(o.Dir)))
		killed := open(t, Options{MemoryBytes: o.MemoryBytes, Dir: saved, DiskBytes: o.DiskBytes, BootID: boot})
		if st := killed.Stat(); st.Keys != want || st.Lost != 0 {
			t.Errorf("the next store at the %s: %+v", boot, st)
		}
		wantValue(t, killed, "goes", nil)
	}
	must(t, s.Close())
	must(t, os.RemoveAll(inTheWay))
	o.BootID = "third boot"
	wantValue(t, open(t, o), "comes", text(3, 5000)) // after a clean end
}
