package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/internal/s3/s3test"
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
		b.copies = &copies{open: func() (objectStore, error) { return store, nil }, prefix: "p/", retain: 2, done: make(chan copied, 1)}
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
		b.copies = &copies{open: func() (objectStore, error) { return store, nil }, prefix: "p/", retain: 2, done: make(chan copied, 1)}
		runFor(t, b, time.Hour+time.Minute)
		if want := []string{"p/c1/notes", name(began), name(began.Add(time.Hour))}; !slices.Equal(store.keys, want) {
			t.Errorf("the copies are %q, want %q", store.keys, want)
		}
	})
}

// TestCopiesFollowTheCredentials: the keys in the file are replaced while the agent runs, and the store
// takes the new one only.
func TestCopiesFollowTheCredentials(t *testing.T) {
	store := s3test.New(t)
	store.OtherKeys = true
	dir := t.TempDir()
	file := filepath.Join(dir, "credentials")
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	keys := func(access, secret string) {
		t.Helper()
		text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\naws_session_token = %s\n", access, secret, s3test.Session)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keys("A", "a")
	b := agentFor(t.TempDir())
	b.metrics = filepath.Join(dir, "rota.prom")
	var err error
	if b.copies, err = newCopies("s3://bucket/p", 2); err != nil {
		t.Fatal(err)
	}
	folder, err := b.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if err := b.save(t.Context(), folder); err != nil {
		t.Fatal(err)
	}
	// try makes a copy, and returns what the file of metrics says of the newest one.
	try := func() string {
		t.Helper()
		b.copies.retryAt = time.Time{}
		b.copies.begin(t.Context())
		b.copied(t.Context(), folder, <-b.copies.ended())
		text, err := os.ReadFile(b.metrics)
		if err != nil {
			t.Fatal(err)
		}
		_, value, _ := strings.Cut(string(text), "\nrota_backup_last_copy_timestamp_seconds ")
		return strings.TrimSpace(value)
	}
	if newest := try(); newest != "0.000" || store.Refused == 0 || len(store.Objects) != 0 {
		t.Fatalf("with the key that the store does not take: newest copy %s, %d refused, %d objects", newest, store.Refused, len(store.Objects))
	}
	keys(s3test.AccessKey, s3test.Secret)
	newest, ok, err := newestIn(folder)
	if err != nil || !ok {
		t.Fatal(err)
	}
	if got, want := try(), fmt.Sprintf("%.3f", float64(newest.Time.UnixMilli())/1000); got != want {
		t.Errorf("the newest copy is of %s, want %s", got, want)
	}
	if _, ok := store.Objects["/p/c1/"+filepath.Base(newest.Path)]; !ok {
		t.Errorf("the store has %d objects, and no copy of %s", len(store.Objects), newest.Path)
	}
}

// TestACopyThatFailsIsTriedMoreRarely: each try reads the whole backup.
func TestACopyThatFailsIsTriedMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		b := agentFor(t.TempDir())
		b.interval = 24 * time.Hour
		b.copies = &copies{open: func() (objectStore, error) { tries++; return nil, errors.New("no credentials") }, retain: 2, done: make(chan copied, 1)}
		runFor(t, b, 10*time.Hour)
		if tries < 100 || tries > 140 {
			t.Errorf("%d tries in ten hours, want one every five minutes", tries)
		}
	})
}
