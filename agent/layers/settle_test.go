package layers_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
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
	for deadline := time.Now().Add(10 * time.Second); p.bootOf(1) != ""; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("that the files are on disk is not written down")
		}
	}
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
