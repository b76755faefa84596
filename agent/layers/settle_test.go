package layers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"rota/agent/layers"
)

// bootOf is the boot in the record of a snapshot: empty once its files are on disk.
func (p *place) bootOf(id uint64) string {
	p.t.Helper()
	var rec struct{ Boot string }
	b, err := os.ReadFile(p.snapshotRecord(id))
	if err == nil {
		err = json.Unmarshal(b, &rec)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return rec.Boot
}

func (p *place) snapshotRecord(id uint64) string {
	return filepath.Join(p.dir, "store", "snapshots", strconv.FormatUint(id, 10)+".json")
}

// otherBoot makes the record of a snapshot one that an earlier boot of the machine wrote.
func (p *place) otherBoot(id uint64) {
	p.t.Helper()
	b, err := os.ReadFile(p.snapshotRecord(id))
	if err != nil {
		p.t.Fatal(err)
	}
	var rec map[string]any
	if err := json.Unmarshal(b, &rec); err != nil {
		p.t.Fatal(err)
	}
	if rec["Boot"] == nil {
		p.t.Fatalf("the record names no boot: %s", b)
	}
	rec["Boot"] = "an-earlier-one"
	if b, err = json.Marshal(rec); err == nil {
		err = os.WriteFile(p.snapshotRecord(id), b, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// eventually waits until something is so.
func (p *place) eventually(what string, is func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatal("not in a minute: ", what)
		}
	}
}

// A record that cannot be written is written later: the files are on disk, and not synced again.
func TestARecordThatCannotBeWrittenIsTriedAgain(t *testing.T) {
	p := newPlace(t)
	p.make("one", 70001)
	var writes, syncs atomic.Int32
	p.OnSync(func() error { syncs.Add(1); return nil })
	p.OnWrite(func(path string) error {
		if n := writes.Add(1); path == p.snapshotRecord(1) && n > 1 && n < 8 {
			if _, err := os.Lstat(path); err == nil { // it was taken
				return syscall.ENOSPC
			}
		}
		return nil
	})
	p.take(1, 11, "one")
	p.eventually("the record is written", func() bool { return p.bootOf(1) == "" })
	if n := syncs.Load(); n != 1 {
		t.Errorf("%d syncs", n)
	}
}

// A record that is damaged is not written again and again.
func TestADamagedRecordIsNotTriedAgain(t *testing.T) {
	p := newPlace(t)
	p.make("one", 70001)
	p.OnSync(func() error { return os.WriteFile(p.snapshotRecord(1), []byte("{"), 0o600) })
	p.take(1, 11, "one")
	p.eventually("it is given up", func() bool { return !p.Settling() })
}

// A sync that could not begin has lost nothing: the next one writes the files to disk.
func TestASyncThatCouldNotBeginIsTriedAgain(t *testing.T) {
	p := newPlace(t)
	p.make("one", 70001)
	var syncs atomic.Int32
	p.OnSync(func() error {
		if syncs.Add(1) < 3 {
			return fmt.Errorf("%w: %w", layers.ErrNotTried, syscall.EMFILE)
		}
		return nil
	})
	p.take(1, 11, "one")
	p.eventually("the files are on disk", func() bool { return p.bootOf(1) == "" })
	if _, err := os.Lstat(p.suspect()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the store is suspect: %v", err)
	}
}

// What was on disk before a sync failed is noted, also where it could not be noted before.
func TestWhatIsOnDiskIsNotedAfterAFailure(t *testing.T) {
	p := newPlace(t)
	p.make("one", 70001)
	var syncs, refused atomic.Int32
	p.OnSync(func() error {
		if syncs.Add(1) > 1 {
			return syscall.EIO
		}
		return nil
	})
	p.OnWrite(func(path string) error {
		if path == p.snapshotRecord(1) && syncs.Load() == 1 {
			refused.Add(1)
			return syscall.ENOSPC
		}
		return nil
	})
	p.take(1, 11, "one")
	p.eventually("its record cannot be written", func() bool { return refused.Load() > 0 })
	p.take(2, 11, "one")
	p.eventually("the first snapshot is on disk", func() bool { return p.bootOf(1) == "" })
	p.eventually("the failure is written down", func() bool { return !p.Settling() })
	if p.bootOf(2) == "" {
		t.Error("the second snapshot counts as being on disk")
	}
	if _, err := os.Lstat(p.suspect()); err != nil {
		t.Error(err)
	}
}

// suspect is the file that says that a sync has failed.
func (p *place) suspect() string { return filepath.Join(p.dir, "store", "suspect") }

// A sync that failed is not made good by one that succeeds, as the data may be gone: nothing that was taken
// in this boot and was not on disk before outlives it, also where another agent goes on.
func TestASyncThatFailedIsRemembered(t *testing.T) {
	p := newPlace(t)
	p.make("one", 70001)
	disk := make(chan error)
	p.OnSync(func() error { disk <- nil; return <-disk })
	var writes atomic.Int32
	p.OnWrite(func(path string) error {
		if path == p.suspect() && writes.Add(1) < 4 {
			return syscall.ENOSPC
		}
		return nil
	})
	p.take(1, 11, "one")
	<-disk
	disk <- nil
	p.eventually("the first snapshot is on disk", func() bool { return p.bootOf(1) == "" })
	p.take(2, 11, "one")
	<-disk
	p.take(3, 11, "one") // while the sync runs
	disk <- syscall.EIO
	p.eventually("the failure is written down", func() bool { _, err := os.Lstat(p.suspect()); return err == nil })
	p.take(4, 11, "one") // its layers are among those above
	p.Close()
	p.open()
	p.take(5, 11, "one")
	if p.Settling() {
		t.Error("the next agent goes on as if no sync had failed")
	}
	for id := uint64(1); id <= 5; id++ {
		if boot := p.bootOf(id); (boot == "") != (id == 1) {
			t.Errorf("snapshot %d is of boot %q", id, boot)
		}
		if has, err := p.Has(id); !has || err != nil {
			t.Errorf("snapshot %d, until the machine stops: %v, %v", id, has, err)
		}
	}
	p.Close()
	for id := uint64(2); id <= 5; id++ {
		p.otherBoot(id)
	}
	if err := os.WriteFile(p.suspect(), []byte(`{"Boot":"an-earlier-one"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p.open()
	for id := uint64(1); id <= 5; id++ {
		if has, err := p.Has(id); has != (id == 1) || err != nil {
			t.Errorf("snapshot %d, after the machine stopped: %v, %v", id, has, err)
		}
	}
	p.OnSync(func() error { return nil })
	p.take(6, 11, "one")
	p.eventually("snapshots are written to disk again", func() bool { return p.bootOf(6) == "" })
}

// A snapshot whose files were not on disk when the machine lost power is not there any more, rather than
// with files that are cut off. One whose files were is.
func TestWhatWasNotOnDiskIsLostWithPower(t *testing.T) {
	p := newPlace(t)
	p.make("one", 70001)
	p.as("one", "echo first > file")
	disk := make(chan struct{})
	defer close(disk)
	p.OnSync(func() error { <-disk; return nil })
	p.take(1, 11, "one")
	disk <- struct{}{}
	p.eventually("that the files are on disk is written down", func() bool { return p.bootOf(1) == "" })
	p.take(2, 11, "one")
	p.take(3, 11, "one")
	p.otherBoot(2)
	p.Close()
	p.open()
	for id, want := range map[uint64]bool{1: true, 2: false, 3: true} {
		if has, err := p.Has(id); has != want || err != nil {
			t.Errorf("snapshot %d: %v, %v; want %v", id, has, err, want)
		}
	}
	if got := p.as("one", "cat file"); got != "first\n" {
		t.Errorf("the directory has %q", got)
	}
}

// A snapshot that is removed before its files are on disk stays removed.
func TestARemovedSnapshotIsNotWrittenAgain(t *testing.T) {
	p := newPlace(t)
	p.make("one", 70001)
	begun, goOn := make(chan struct{}), make(chan struct{})
	p.OnSync(func() error { begun <- struct{}{}; <-goOn; return nil })
	p.take(1, 11, "one")
	<-begun
	if err := p.Remove(1); err != nil {
		t.Fatal(err)
	}
	p.take(2, 11, "one") // the next round comes after what the first one writes down
	goOn <- struct{}{}
	<-begun
	if has, err := p.Has(1); has || err != nil {
		t.Errorf("it is there: %v, %v", has, err)
	}
	goOn <- struct{}{}
}
