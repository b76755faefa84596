package layers_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"rota/agent/layers"
)

// A record that cannot be read is not taken for one that is not there: what it names would be written
// over, or removed.
func TestARecordThatCannotBeReadIsNotMissing(t *testing.T) {
	p := newPlace(t).copies(plenty)
	p.make("one", os.Geteuid())
	p.as("one", "echo first > file")
	p.take(1, 11, "one")
	p.make("two", os.Geteuid())
	p.begin(1, 12, "two")
	p.as("two", "echo second > file")
	records := filepath.Join(p.dir, "copies", "homes")
	record := filepath.Join(records, "12.json")
	if err := os.WriteFile(record, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if began, err := p.Began(12); err == nil {
		t.Errorf("began: %v, without an error", began)
	}
	if root, err := p.Root(12); err == nil {
		t.Errorf("root %q, without an error", root)
	}
	if roots, err := p.Roots(); err == nil {
		t.Errorf("roots %q, without an error", roots)
	}
	if err := p.Begin(t.Context(), 1, 12, p.home("two")); err == nil {
		t.Error("the trajectory began a second time")
	}
	if got := p.as("two", "cat file"); got != "second\n" {
		t.Errorf("its file has %q", got)
	}
	for _, id := range []uint64{11, 13} { // those have no record
		began, err := p.Began(id)
		root, failed := p.Root(id)
		if began || err != nil || root != "" || failed != nil {
			t.Errorf("trajectory %d: began %v (%v) with root %q (%v)", id, began, err, root, failed)
		}
	}
}

// A folder of records that cannot be read does not make all layers those of nobody.
func TestAFolderThatCannotBeReadIsNotEmpty(t *testing.T) {
	p := newPlace(t).copies(plenty)
	p.make("one", os.Geteuid())
	p.take(1, 11, "one")
	records := filepath.Join(p.dir, "copies", "snapshots")
	if err := os.Rename(records, records+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(records, nil, 0o600); err != nil { // a folder that is a file cannot be read, even by root
		t.Fatal(err)
	}
	if has, err := p.Has(1); err == nil {
		t.Errorf("has: %v, without an error", has)
	}
	if ids, err := p.Snapshots(); err == nil {
		t.Errorf("snapshots %v, without an error", ids)
	}
	if p.Sweep() == nil {
		t.Error("layers were swept without the records of snapshots")
	}
	if left, err := os.ReadDir(filepath.Join(p.dir, "copies", "layers")); err != nil || len(left) != 1 {
		t.Errorf("there are the layers %v: %v", left, err)
	}
}

// A damaged record keeps the layers of others until its trajectory ends, and nothing else: an agent
// starts with it, and records of other directories that are gone do go.
func TestADamagedRecordStopsNothingElse(t *testing.T) {
	p := newPlace(t).copies(plenty)
	for trajectory, name := range []string{"one", "two", "three"} {
		p.make(name, os.Geteuid())
		if trajectory == 0 {
			p.take(1, 11, "one")
			continue
		}
		p.begin(1, uint64(11+trajectory), name)
	}
	homes, removed := filepath.Join(p.dir, "copies", "homes"), filepath.Join(p.dir, "copies", "removed")
	if err := errors.Join(os.WriteFile(filepath.Join(homes, "12.json"), []byte("{"), 0o600), os.RemoveAll(p.home("three")),
		os.Mkdir(filepath.Join(removed, "77"), 0o700)); err != nil {
		t.Fatal(err)
	}
	p.copies(plenty) // an agent that starts
	if left, err := os.ReadDir(homes); err != nil || len(left) != 1 || left[0].Name() != "12.json" {
		t.Errorf("records of directories: %v, %v", left, err)
	}
	if left, err := os.ReadDir(removed); err != nil || len(left) > 0 {
		t.Errorf("what is to be removed is left: %v, %v", left, err)
	}
	if err := p.Remove(1); !errors.Is(err, layers.ErrDamaged) {
		t.Errorf("layers are removed that the damaged record may name: %v", err)
	}
	if err := os.RemoveAll(p.home("two")); err != nil {
		t.Fatal(err)
	}
	if err := p.Sweep(); err != nil {
		t.Error(err)
	}
	for _, kind := range []string{"homes", "layers", "snapshots"} {
		if left, err := os.ReadDir(filepath.Join(p.dir, "copies", kind)); err != nil || len(left) > 0 {
			t.Errorf("left of %s: %v, %v", kind, left, err)
		}
	}
}

// A snapshot with a damaged record is none that something can begin with.
func TestADamagedSnapshotIsNone(t *testing.T) {
	p := newPlace(t).copies(plenty)
	p.make("one", os.Geteuid())
	p.take(1, 11, "one")
	if err := os.WriteFile(filepath.Join(p.dir, "copies", "snapshots", "1.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if has, err := p.Has(1); has || !errors.Is(err, layers.ErrDamaged) {
		t.Errorf("has: %v, %v", has, err)
	}
	if err := p.Remove(1); err != nil {
		t.Error(err)
	}
	if has, err := p.Has(1); has || err != nil {
		t.Errorf("has what was removed: %v, %v", has, err)
	}
}

// Where no record can be written, as the disk is full, a snapshot fails at whatever step, and its directory is as before:
// with its files, and with nothing that stays when it goes.
func TestASnapshotWithoutRoomChangesNothing(t *testing.T) {
	for _, began := range []bool{false, true} {
		for fails := 0; ; fails++ {
			p := newPlace(t).overlays()
			p.make("one", 70001)
			p.as("one", "echo first > file")
			name := "one"
			if began {
				p.take(1, 11, "one")
				p.make("two", 70002)
				p.begin(1, 12, "two")
				name = "two"
			}
			trajectory, writes := map[string]uint64{"one": 11, "two": 12}[name], 0
			p.OnWrite(func(string) error {
				if writes++; writes > fails {
					return syscall.ENOSPC
				}
				return nil
			})
			err := p.Take(t.Context(), 5, "", trajectory, p.home(name))
			if writes <= fails { // it needed no more
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("at write %d: %v", fails, err)
			}
			p.OnWrite(func(string) error { return nil })
			if got := p.as(name, "cat file; echo second > file; cat file"); got != "first\nsecond\n" {
				t.Errorf("failed at write %d, it has %q", fails, got)
			}
			if err := p.Whole(trajectory); err != nil {
				t.Errorf("failed at write %d: %v", fails, err)
			}
			if n := p.Pinned(); n != 0 {
				t.Errorf("failed at write %d, %d layers are pinned", fails, n)
			}
			for _, name := range []string{"one", "two"} {
				_ = unix.Unmount(p.home(name), unix.MNT_DETACH)
				if err := os.RemoveAll(p.home(name)); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Remove(1); err != nil {
				t.Fatal(err)
			}
			for _, kind := range []string{"homes", "layers"} { // without an agent that starts, which would end it
				if left, err := os.ReadDir(filepath.Join(p.dir, "store", kind)); err != nil || len(left) > 0 {
					t.Errorf("failed at write %d, left of %s: %v, %v", fails, kind, left, err)
				}
			}
		}
	}
}

// A folder in which no layer can be made, as the disk is full, pins no names for ever.
func TestALayerThatCannotBeMadeIsNotPinned(t *testing.T) {
	p := newPlace(t).overlays()
	p.make("one", 70001)
	if err := os.WriteFile(filepath.Join(p.dir, "store", "layers", "2"), nil, 0o600); err != nil { // the name of the second
		t.Fatal(err)
	}
	if err := p.Take(t.Context(), 1, "", 11, p.home("one")); err == nil {
		t.Error("a snapshot without a layer")
	}
	if n := p.Pinned(); n != 0 {
		t.Errorf("%d layers are pinned", n)
	}
}

// A snapshot that fails, and whose files cannot be moved back, leaves the directory where it is: the next
// agent gives it its files again.
func TestADirectoryStaysThoughItsFilesCannotBeMovedBack(t *testing.T) {
	p := newPlace(t).overlays()
	p.make("one", 70001)
	p.as("one", "echo first > file")
	var files, away string
	writes := 0
	p.OnWrite(func(string) error {
		if writes++; writes == 1 {
			return nil
		}
		found, err := filepath.Glob(filepath.Join(p.dir, "store", "layers", "*", "files", "file"))
		if err != nil || len(found) != 1 {
			t.Fatalf("the layer is not found: %v, %v", found, err)
		}
		files, away = filepath.Dir(found[0]), filepath.Join(p.dir, "away")
		return errors.Join(syscall.ENOSPC, os.Rename(files, away))
	})
	if err := p.Take(t.Context(), 5, "", 11, p.home("one")); !errors.Is(err, syscall.ENOSPC) || !errors.Is(err, syscall.ENOENT) {
		t.Fatalf("the snapshot: %v", err)
	}
	if _, err := os.Lstat(p.home("one")); err != nil {
		t.Fatal("the directory is gone: ", err)
	}
	if err := os.Rename(away, files); err != nil {
		t.Fatal(err)
	}
	p.Close()
	p.open()
	if got := p.as("one", "cat file"); got != "first\n" {
		t.Errorf("it has %q", got)
	}
}
