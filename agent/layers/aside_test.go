package layers_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// copiedFork makes directory two begin with a copy of a snapshot that has the root file system "a-root",
// writes into it, and lets layers be mounted from then on.
func copiedFork(t *testing.T) *place {
	t.Helper()
	p := newPlace(t).overlays()
	p.CanMount(false)
	p.make("one", 70001)
	p.as("one", "echo first > file")
	if err := p.Take(t.Context(), 1, "a-root", 11, p.home("one")); err != nil {
		t.Fatal(err)
	}
	p.make("two", 70002)
	p.begin(1, 12, "two")
	p.as("two", "echo mine > file")
	p.CanMount(true)
	return p
}

// onWrite is OnWrite for all records but that of snapshot 1, which is written when its files are on disk.
func (p *place) onWrite(fn func() error) {
	p.OnWrite(func(path string) error {
		if filepath.Base(path) == "1.json" {
			return nil
		}
		return fn()
	})
}

// isFork checks that directory two has its own files and its root file system, and does not begin again.
func (p *place) isFork(when string) {
	p.t.Helper()
	if began, err := p.Began(12); !began || err != nil {
		p.t.Errorf("%s: began %v, %v", when, began, err)
	}
	if root, err := p.Root(12); root != "a-root" || err != nil {
		p.t.Errorf("%s: root %q, %v", when, root, err)
	}
	if err := p.Whole(12); err != nil {
		p.t.Errorf("%s: %v", when, err)
	}
	p.begin(1, 12, "two")
	if got := p.as("two", "cat file"); got != "mine\n" {
		p.t.Errorf("%s: its file has %q", when, got)
	}
}

// A snapshot of a fork that was made by copying leaves the fork its files and its root file system, at
// whatever write it fails.
func TestASnapshotOfACopiedForkKeepsItsRoot(t *testing.T) {
	for fails := 0; ; fails++ {
		p := copiedFork(t)
		writes := 0
		p.onWrite(func() error {
			if writes++; writes > fails {
				return syscall.ENOSPC
			}
			return nil
		})
		err := p.Take(t.Context(), 2, "a-root", 12, p.home("two"))
		p.OnWrite(func(string) error { return nil })
		p.isFork("after the snapshot")
		p.open()
		p.isFork("after a restart")
		if err == nil {
			break
		}
		if err := p.Take(t.Context(), 2, "a-root", 12, p.home("two")); err != nil {
			t.Fatal(err)
		}
		p.isFork("after the second try")
	}
}

// An agent that is killed just before the files of a copied fork become a layer finds the fork as it was.
func TestAKillBeforeACopiedForkIsMoved(t *testing.T) {
	p := copiedFork(t)
	var blocker string
	p.onWrite(func() error {
		if blocker != "" {
			return syscall.ENOSPC // nothing is written after the kill
		}
		found, err := filepath.Glob(filepath.Join(p.dir, "store", "layers", "*"))
		if err != nil || len(found) == 0 {
			t.Fatalf("no layers: %v", err)
		}
		for _, layer := range found { // the new layer has no files yet, and cannot get any
			if err := os.Mkdir(filepath.Join(layer, "files"), 0o700); err == nil {
				blocker = filepath.Join(layer, "files")
			}
		}
		return os.Mkdir(filepath.Join(blocker, "full"), 0o700)
	})
	if err := p.Take(t.Context(), 2, "a-root", 12, p.home("two")); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the snapshot: %v", err)
	}
	if err := os.RemoveAll(blocker); err != nil {
		t.Fatal(err)
	}
	p.OnWrite(func(string) error { return nil })
	p.isFork("before a restart")
	p.open()
	p.isFork("after a restart")
}

// An agent that is killed just after the files of a copied fork became a layer mounts that, with its root.
func TestAKillAfterACopiedForkIsMoved(t *testing.T) {
	p := copiedFork(t)
	var files, away string
	writes := 0
	p.onWrite(func() error {
		if writes++; writes == 1 {
			return nil
		}
		found, err := filepath.Glob(filepath.Join(p.dir, "store", "layers", "2", "files"))
		if err != nil || len(found) != 1 {
			t.Fatalf("the layer is not found: %v, %v", found, err)
		}
		files, away = found[0], filepath.Join(p.dir, "away")
		return errors.Join(syscall.ENOSPC, os.Rename(files, away))
	})
	if err := p.Take(t.Context(), 2, "a-root", 12, p.home("two")); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the snapshot: %v", err)
	}
	if err := os.Rename(away, files); err != nil {
		t.Fatal(err)
	}
	p.Close()
	p.open()
	p.isFork("after a restart")
}
