package layers_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// bootOf is the boot in the record of a snapshot: empty once its files are on disk.
func (p *place) bootOf(id uint64) string {
	p.t.Helper()
	boot, _ := p.snapshotOf(id)
	return boot
}

// snapshotOf is what the record of a snapshot says of its way to disk.
func (p *place) snapshotOf(id uint64) (boot string, unsynced bool) {
	p.t.Helper()
	var rec struct {
		Boot     string
		Unsynced bool
	}
	b, err := os.ReadFile(p.snapshotRecord(id))
	if err == nil {
		err = json.Unmarshal(b, &rec)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return rec.Boot, rec.Unsynced
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

// A record that cannot be written is written later: the files are on disk.
func TestARecordThatCannotBeWrittenIsTriedAgain(t *testing.T) {
	p := newPlace(t)
	p.make("one", 70001)
	p.OnSync(func() error { return nil })
	var writes atomic.Int32
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
}

// A sync that failed is not made good by one that succeeds: the data may be gone. The next agent does
// not try that either.
func TestASyncThatFailedIsRemembered(t *testing.T) {
	p := newPlace(t)
	p.make("one", 70001)
	var syncs atomic.Int32
	p.OnSync(func() error {
		if syncs.Add(1) == 1 {
			return syscall.EIO
		}
		return nil
	})
	p.take(1, 11, "one")
	p.eventually("the failure is written down", func() bool { _, unsynced := p.snapshotOf(1); return unsynced })
	p.take(2, 11, "one")
	p.eventually("the next snapshot is on disk", func() bool { return p.bootOf(2) == "" })
	if p.bootOf(1) == "" {
		t.Error("the first snapshot counts as being on disk")
	}
	p.Close()
	p.open()
	if n := p.Unsettled(); n != 0 {
		t.Errorf("the next agent writes %d snapshots to disk", n)
	}
	if has, err := p.Has(1); !has || err != nil {
		t.Errorf("until the machine stops it is there: %v, %v", has, err)
	}
	p.otherBoot(1)
	p.Close()
	p.open()
	if has, err := p.Has(1); has || err != nil {
		t.Errorf("after the machine stopped it is there: %v, %v", has, err)
	}
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
