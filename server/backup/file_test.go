package backup

import (
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
)

func write(t testing.TB, path, data string) {
	t.Helper()
	w, err := Create(path, &rotav1.BackupHeader{ClusterId: "c", Index: 7})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, data); err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(trailer(data)); err != nil {
		t.Fatal(err)
	}
}

func trailer(data string) *rotav1.BackupTrailer {
	sum := sha256.Sum256([]byte(data))
	return &rotav1.BackupTrailer{Bytes: uint64(len(data)), Sha256: sum[:]}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b")
	write(t, path, "data of a state")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file has mode %v: %v", info.Mode(), err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f.Data())
	if err != nil || string(data) != "data of a state" || f.Header.Index != 7 || f.Header.ClusterId != "c" {
		t.Errorf("read %q of %v: %v", data, f.Header, err)
	}
}

// TestDamageIsFound: each byte that is changed, and each that is missing.
func TestDamageIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b")
	write(t, path, "data of a state")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, at int, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err == nil {
			f.Close()
			t.Errorf("%s %d: nothing was noticed", what, at)
		} else if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotBackup) && !errors.Is(err, ErrVersion) {
			t.Errorf("%s %d: %v", what, at, err)
		}
	}
	for i := range whole {
		b := append([]byte(nil), whole...)
		b[i] ^= 0x10
		refused("byte", i, b)
		refused("length", i, whole[:i])
	}
	refused("longer", 0, append(append([]byte(nil), whole...), 0))
}

// TestAnUnfinishedBackupReplacesNothing: the file of before stays until the new one is whole.
func TestAnUnfinishedBackupReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "b")
	write(t, path, "old")
	w, err := Create(path, &rotav1.BackupHeader{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "ne"); err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(trailer("new")); !errors.Is(err, ErrDamaged) {
		t.Errorf("a backup that lacks data was finished: %v", err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if data, _ := io.ReadAll(f.Data()); string(data) != "old" {
		t.Errorf("the file has %q", data)
	}
	if list, _ := os.ReadDir(dir); len(list) != 1 {
		t.Errorf("%d files are left", len(list))
	}
}

func FuzzOpen(f *testing.F) {
	path := filepath.Join(f.TempDir(), "b")
	write(f, path, "data")
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "b")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if f, err := Open(path); err == nil {
			_ = f.Close()
		}
	})
}
