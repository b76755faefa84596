package backup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestFolderKeepsTheNewest(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, ".rota-x"+suffix+"-1"+unfinished)
	other := filepath.Join(dir, "notes.txt")
	for _, path := range []string{left, other} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Take(dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Take(dir, 2); !errors.Is(err, ErrTaken) {
		t.Fatalf("the folder was taken twice: %v", err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("an unfinished backup is left")
	}
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 4 {
		write(t, f.Name(at.Add(time.Duration(i)*time.Hour)), "x")
		if _, err := f.Prune(at.Add(time.Duration(i) * time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	list, err := f.List(at.Add(4 * time.Hour))
	if err != nil || len(list) != 2 || !list[1].Time.Equal(at.Add(3*time.Hour)) {
		t.Errorf("%v: %v", list, err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("a file of somebody else is gone: %v", err)
	}
}

// TestTakeRemovesWhatIsUnfinished: whatever the folder is called.
func TestTakeRemovesWhatIsUnfinished(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "of [a")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".rota-x.backup-1.tmp", "kept.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Take(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*", "*.tmp"))
	if err != nil || len(left) != 0 && filepath.Base(left[0]) != "kept.tmp" || len(left) > 1 {
		t.Errorf("left are %v: %v", left, err)
	}
}

// TestBackupsFromTheFuture: backups that were made while the clock was ahead are removed first, and
// none of them counts as the newest.
func TestBackupsFromTheFuture(t *testing.T) {
	f, err := Take(t.TempDir(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	write(t, f.Name(now.AddDate(1, 0, 0)), "x")
	write(t, f.Name(now.AddDate(2, 0, 0)), "x")
	list, err := f.List(now)
	if err != nil || len(list) != 2 {
		t.Fatalf("%v: %v", list, err)
	}
	if newest, ok := Newest(list, now); ok {
		t.Errorf("%v counts as the newest", newest)
	}
	for range 2 {
		now = now.Add(time.Hour)
		write(t, f.Name(now), "x")
		if _, err := f.Prune(now); err != nil {
			t.Fatal(err)
		}
		list, err = f.List(now)
		if newest, ok := Newest(list, now); err != nil || !ok || !newest.Time.Equal(now) {
			t.Errorf("the newest of %v is %v: %v", list, newest, err)
		}
	}
	if len(list) != 2 || !list[0].Time.Equal(now.Add(-time.Hour)) {
		t.Errorf("left are %v", list)
	}
}
