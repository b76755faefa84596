package layers_test

import (
	"os"
	"path/filepath"
	"testing"
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
