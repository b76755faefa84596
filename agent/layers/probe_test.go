package layers_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// twoLayers takes a snapshot of two layers, and makes a directory that is to begin with it.
func twoLayers(t *testing.T) *place {
	t.Helper()
	p := newPlace(t).overlays()
	p.make("one", 70001)
	p.as("one", "echo first > first")
	p.take(1, 11, "one")
	p.as("one", "echo second > second")
	p.take(2, 11, "one")
	p.make("two", 70002)
	return p
}

// begun checks that a directory has the files of the snapshot, and that it still has them when the store is opened again.
func (p *place) begun() {
	p.t.Helper()
	for range 2 {
		if err := p.Whole(12); err != nil {
			p.t.Error(err)
		}
		if got := p.as("two", "cat first second; ls"); got != "first\nsecond\nfirst\nsecond\n" {
			p.t.Errorf("it has %q", got)
		}
		p.open()
	}
}

// What could not be mounted when a trajectory was to begin with it can be later.
func TestWhatCannotBeMountedBeginsLater(t *testing.T) {
	p := twoLayers(t)
	p.CanMount(false)
	if err := p.Begin(t.Context(), 2, 12, p.home("two")); err == nil || !strings.Contains(err.Error(), "2 layers") {
		t.Fatalf("without mounts it begins: %v", err)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "store", "homes", "12.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what does not begin leaves a record: %v", err)
	}
	p.open()
	p.begin(2, 12, "two")
	p.begun()
}

// A copy that earlier releases have begun, and that could not be made, becomes a mount, also if its snapshot was deleted
// meanwhile.
func TestACopyThatWasNotMadeBecomesAMount(t *testing.T) {
	p := twoLayers(t)
	record := filepath.Join(p.dir, "store", "homes", "12.json")
	layer := func(name string) string { return fmt.Sprintf(`{"Name":%q,"UID":70001,"GID":70001}`, name) }
	whole, err := os.ReadFile(filepath.Join(p.dir, "store", "snapshots", "2.json"))
	if err != nil {
		t.Fatal(err)
	}
	var lower []string
	for _, name := range []string{"1", "2", "3"} {
		if l := layer(name); strings.Contains(string(whole), l) {
			lower = append([]string{l}, lower...) // the top was made last
		}
	}
	text := fmt.Sprintf(`{"Path":%q,"Lower":[%s],"Owner":{"UID":70002,"GID":70002}}`, p.home("two"), strings.Join(lower, ","))
	if err := errors.Join(os.WriteFile(record, []byte(text), 0o600), os.WriteFile(filepath.Join(p.home("two"), "half"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	p.open()
	if err := p.Remove(2); err != nil {
		t.Fatal(err)
	}
	p.OnWrite(func(string) error { return unix.ENOSPC })
	if err := p.Begin(t.Context(), 2, 12, p.home("two")); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("with a disk that is full: %v", err)
	}
	if began, err := p.Began(12); began || err != nil {
		t.Errorf("it began: %v, %v", began, err)
	}
	p.open()
	p.begin(2, 12, "two")
	p.begun()
}

// A store that was opened while something was lacking mounts layers when that is there again.
func TestALackOfSomethingDoesNotTurnMountsOff(t *testing.T) {
	for _, lack := range []error{unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.ENFILE, unix.EAGAIN, unix.ENOMEM} {
		p := twoLayers(t)
		left := 2
		p.OnProbe(func() error {
			if left--; left >= 0 {
				return &os.PathError{Op: "mkdir", Path: "probe", Err: lack}
			}
			return nil
		})
		if err := p.Begin(t.Context(), 2, 12, p.home("two")); !errors.Is(err, lack) {
			t.Fatalf("with %v it begins: %v", lack, err)
		}
		p.begin(2, 12, "two")
		p.begun()
	}
	p := twoLayers(t)
	asked := 0
	p.OnProbe(func() error { asked++; return unix.EPERM })
	if err := p.Begin(t.Context(), 2, 12, p.home("two")); err == nil || asked != 1 {
		t.Errorf("what the kernel cannot do is tried %d times: %v", asked, err)
	}
}

// A disk that is full when the store is opened may have room later.
func TestAFullDiskDoesNotTurnMountsOff(t *testing.T) {
	for _, disk := range []string{"size=4m", "size=64m,nr_inodes=200"} {
		p := newPlace(t).overlays()
		p.dir = t.TempDir()
		if err := unix.Mount("tmpfs", p.dir, "tmpfs", 0, "mode=755,"+disk); err != nil {
			t.Skipf("this machine mounts no tmpfs: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(p.dir, unix.MNT_DETACH) })
		if err := os.Mkdir(filepath.Join(p.dir, "homes"), 0o755); err != nil {
			t.Fatal(err)
		}
		if p.open(); !p.Overlays() {
			t.Skip("the kernel cannot mount layers with other owners on tmpfs")
		}
		fill := filepath.Join(p.dir, "fill")
		err := os.Mkdir(fill, 0o700)
		for n := 0; err == nil; n++ {
			err = os.WriteFile(filepath.Join(fill, fmt.Sprint(n)), make([]byte, 64<<10), 0o600)
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		p.open()
		if err := os.RemoveAll(fill); err != nil {
			t.Fatal(err)
		}
		p.make("one", 70001)
		p.as("one", "echo first > first")
		p.take(1, 11, "one")
		if !p.Overlays() {
			t.Errorf("%s: with room again, snapshots are copies", disk)
		}
		_ = unix.Unmount(p.home("one"), unix.MNT_DETACH)
	}
}
