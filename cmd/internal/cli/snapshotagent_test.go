package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/server/backup"
)

// writeBackup makes a backup of a cluster without a cluster.
func writeBackup(_ context.Context, path string) (*backup.File, error) {
	w, err := backup.Create(path, &rotav1.BackupHeader{ClusterId: "c1"})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte("x"))
	if _, err := w.Write([]byte("x")); err != nil {
		return nil, errors.Join(err, w.Cancel())
	}
	if err := w.Finish(&rotav1.BackupTrailer{Bytes: 1, Sha256: sum[:]}); err != nil {
		return nil, err
	}
	return &backup.File{Header: &rotav1.BackupHeader{ClusterId: "c1"}, Bytes: 1}, nil
}

// agentFor is an agent for a folder, which saves every hour and keeps two.
func agentFor(dir string) *backupAgent {
	return &backupAgent{
		a: &app{out: io.Discard, err: io.Discard}, dir: dir, interval: time.Hour, retain: 2, saveTo: writeBackup,
	}
}

// runFor runs an agent for a time.
func runFor(t *testing.T, b *backupAgent, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := b.run(ctx); err != nil {
		t.Error(err)
	}
}

// TestABackupFromTheFutureStopsNothing: after the clock was ahead, new backups are made when they
// are due, and they are the ones that are kept.
func TestABackupFromTheFutureStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, began := t.TempDir(), time.Now()
		folder, err := backup.Take(dir, 2)
		if err != nil {
			t.Fatal(err)
		}
		for years := 1; years <= 2; years++ {
			if _, err := writeBackup(t.Context(), folder.Name(began.AddDate(years, 0, 0))); err != nil {
				t.Fatal(err)
			}
		}
		if err := folder.Close(); err != nil {
			t.Fatal(err)
		}
		b := agentFor(dir)
		runFor(t, b, 2*time.Hour+time.Minute)
		if b.saved != 3 || b.failures != 0 {
			t.Errorf("%d backups, %d failures; want 3 and none", b.saved, b.failures)
		}
		var want []string
		for hours := 1; hours <= 2; hours++ {
			want = append(want, folder.Name(began.Add(time.Duration(hours)*time.Hour)))
		}
		if kept, err := filepath.Glob(filepath.Join(dir, "*.backup")); err != nil || !slices.Equal(kept, want) {
			t.Errorf("kept are %q, want %q: %v", kept, want, err)
		}
	})
}

// slowStore takes objects once it is open.
type slowStore struct {
	open chan struct{}
	mu   sync.Mutex
	keys []string
}

func (s *slowStore) Put(ctx context.Context, key string, _ io.ReaderAt, _ int64) error {
	select {
	case <-s.open:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, key)
	return nil
}

func (s *slowStore) List(context.Context, string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.keys), nil
}

func (s *slowStore) Delete(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = slices.DeleteFunc(s.keys, func(k string) bool { return k == key })
	return nil
}

// TestBackupsGoOnBesideASlowCopy: the folder gets its backups on time, and the newest one is copied
// when the store answers.
func TestBackupsGoOnBesideASlowCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, began := t.TempDir(), time.Now()
		store := &slowStore{open: make(chan struct{})}
		b := agentFor(dir)
		b.copies = &copies{bucket: store, prefix: "p/", retain: 2, done: make(chan copied, 1)}
		time.AfterFunc(3*time.Hour+30*time.Minute, func() { close(store.open) })
		runFor(t, b, 3*time.Hour+45*time.Minute)
		if b.saved != 4 {
			t.Errorf("%d backups, want 4", b.saved)
		}
		if b.failures == 0 {
			t.Error("copies that took longer than the limit are no failures")
		}
		newest := "p/c1/" + filepath.Base((&backup.Folder{}).Name(began.Add(3*time.Hour)))
		if n := len(store.keys); n == 0 || store.keys[n-1] != newest {
			t.Errorf("the copies are %q, want %s as the newest", store.keys, newest)
		}
	})
}

// TestCopiesFromTheFutureAreRemovedFirst: they were made while the clock was wrong.
func TestCopiesFromTheFutureAreRemovedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, began := t.TempDir(), time.Now()
		name := func(at time.Time) string { return "p/c1/" + filepath.Base((&backup.Folder{}).Name(at)) }
		store := &slowStore{open: make(chan struct{}), keys: []string{name(began.AddDate(1, 0, 0)), name(began.AddDate(2, 0, 0)), "p/c1/notes"}}
		close(store.open)
		b := agentFor(dir)
		b.copies = &copies{bucket: store, prefix: "p/", retain: 2, done: make(chan copied, 1)}
		runFor(t, b, time.Hour+time.Minute)
		if want := []string{"p/c1/notes", name(began), name(began.Add(time.Hour))}; !slices.Equal(store.keys, want) {
			t.Errorf("the copies are %q, want %q", store.keys, want)
		}
	})
}
