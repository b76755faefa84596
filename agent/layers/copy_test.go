package layers_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"rota/agent/layers"
)

// copies makes the store one that copies files, with so much room.
func (p *place) copies(room func() (uint64, error)) *place {
	p.t.Helper()
	s, err := layers.Open(filepath.Join(p.dir, "copies"), p.homeOf, hclog.NewNullLogger(), false, room)
	if err != nil {
		p.t.Fatal(err)
	}
	p.Store = s
	return p
}

// blocks returns how many bytes a file takes on disk.
func blocks(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

// A file of holes takes as little in a snapshot, and in what begins with it, as it does.
func TestCopiesKeepHoles(t *testing.T) {
	p := newPlace(t).copies(plenty)
	path := filepath.Join(p.make("one", os.Geteuid()), "sparse")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	const size = 64 << 20
	_, err = f.WriteAt([]byte("data"), size/2)
	if err := errors.Join(err, f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
	if blocks(t, path) > size/4 {
		t.Skip("the file system has no holes")
	}
	p.take(1, 11, "one")
	p.make("two", os.Geteuid())
	p.begin(1, 12, "two")
	whole, err := os.ReadFile(filepath.Join(p.home("two"), "sparse"))
	if err != nil || len(whole) != size || string(whole[size/2:size/2+4]) != "data" || whole[0] != 0 {
		t.Fatalf("the copy of %d bytes has %d: %v", size, len(whole), err)
	}
	_ = filepath.WalkDir(p.dir, func(path string, e fs.DirEntry, _ error) error {
		if e.Name() == "sparse" && blocks(t, path) > size/4 {
			t.Errorf("%s takes %d bytes", path, blocks(t, path))
		}
		return nil
	})
}

// A copy ends as soon as the disk is too full for it, and leaves nothing.
func TestCopiesEndBeforeTheDiskIsFull(t *testing.T) {
	full, asked := false, 0
	p := newPlace(t).copies(func() (uint64, error) {
		if asked++; full && asked > 3 {
			return 0, nil
		}
		return 1 << 30, nil
	})
	p.make("one", os.Geteuid())
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(p.home("one"), name), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.take(1, 11, "one")
	p.make("two", os.Geteuid())
	full, asked = true, 0
	if err := p.Take(t.Context(), 2, "", 11, p.home("one")); !errors.Is(err, layers.ErrNoRoom) {
		t.Errorf("a snapshot on a full disk: %v", err)
	}
	asked = 0
	if err := p.Begin(t.Context(), 1, 12, p.home("two")); !errors.Is(err, layers.ErrNoRoom) {
		t.Errorf("a fork on a full disk: %v", err)
	}
	for dir, most := range map[string]int{p.home("two"): 0, filepath.Join(p.dir, "copies", "layers"): 1} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > most {
			t.Errorf("left in %s: %v, %v", dir, left, err)
		}
	}
	full = false
	p.begin(1, 12, "two")
	if left, err := os.ReadDir(p.home("two")); err != nil || len(left) != 3 {
		t.Errorf("with room again, the fork has %v: %v", left, err)
	}
}

// A copy that a kill has cut short is not taken for whole, holds up no agent that starts, and is made from the start again by
// what uses the directory next, also if its snapshot was deleted meanwhile.
func TestACopyThatWasCutShortIsMadeAgain(t *testing.T) {
	p := newPlace(t).copies(plenty)
	p.make("one", os.Geteuid())
	p.as("one", "echo first > file; echo second > other")
	p.take(1, 11, "one")
	p.make("two", os.Geteuid())
	p.begin(1, 12, "two")
	p.as("two", "rm other; echo half > file")
	record := filepath.Join(p.dir, "copies", "homes", "12.json")
	owner := fmt.Sprintf(`"UID":%d,"GID":%d`, os.Geteuid(), os.Getegid())
	before := fmt.Sprintf(`{"Path":%q,"Lower":[{"Name":"1",%s}],"Owner":{%s}}`, p.home("two"), owner, owner)
	if err := os.WriteFile(record, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := 0
	p.copies(func() (uint64, error) { asked++; return 1 << 60, nil })
	if asked != 0 {
		t.Error("an agent that starts copies files")
	}
	if began, err := p.Began(12); began || err != nil {
		t.Errorf("began: %v, %v", began, err)
	}
	if p.Whole(12) == nil {
		t.Error("half of the files are taken for all")
	}
	if err := p.Remove(1); err != nil {
		t.Fatal(err)
	}
	p.begin(1, 12, "two")
	if got := p.as("two", "cat file other"); got != "first\nsecond\n" {
		t.Errorf("it has %q", got)
	}
	if err := p.Whole(12); err != nil {
		t.Error(err)
	}
}

// Others may be let into a directory that is copied, and exchange a file or a directory for a link while it is: a copy has
// nothing from outside.
func TestACopyHasNothingFromOutside(t *testing.T) {
	for name, c := range map[string]struct {
		// The path is exchanged for a link to the target, after so many files have been looked at.
		path, target string
		after        int
	}{
		"a file":      {"a/file", "file", 3}, // after . and a
		"a directory": {"a", ".", 2},
		"a pipe":      {"a/file", "pipe", 3},
	} {
		t.Run(name, func(t *testing.T) {
			outside := t.TempDir()
			if err := errors.Join(os.WriteFile(filepath.Join(outside, "file"), []byte("of somebody else"), 0o600), unix.Mkfifo(filepath.Join(outside, "pipe"), 0o600)); err != nil {
				t.Fatal(err)
			}
			p := newPlace(t)
			dir, looked := "", 0
			p.copies(func() (uint64, error) {
				if looked++; looked == c.after {
					return 1 << 60, unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, c.path), unix.AT_FDCWD, filepath.Join(dir, "z"), unix.RENAME_EXCHANGE)
				}
				return 1 << 60, nil
			})
			dir = p.make("one", os.Geteuid())
			if err := errors.Join(
				os.Mkdir(filepath.Join(dir, "a"), 0o700), os.WriteFile(filepath.Join(dir, "a", "file"), []byte("own"), 0o600),
				os.Symlink(filepath.Join(outside, c.target), filepath.Join(dir, "z")),
			); err != nil {
				t.Fatal(err)
			}
			if err := p.Take(t.Context(), 1, "", 11, dir); err == nil || looked < c.after {
				t.Errorf("a copy was made of what was exchanged, after %d files: %v", looked, err)
			}
		})
	}
}

// What was exchanged for a pipe of its own, of which nobody is the other end, holds up no copy.
func TestACopyWaitsForNoPipe(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a file":      func(path string) error { return os.WriteFile(path, []byte("own"), 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			dir, looked := "", 0
			p.copies(func() (uint64, error) {
				if looked++; looked == 2 { // after .
					return 1 << 60, errors.Join(os.Remove(filepath.Join(dir, "x")), unix.Mkfifo(filepath.Join(dir, "x"), 0o600))
				}
				return 1 << 60, nil
			})
			dir = p.make("one", os.Geteuid())
			if err := make(filepath.Join(dir, "x")); err != nil {
				t.Fatal(err)
			}
			if err := p.Take(t.Context(), 1, "", 11, dir); err == nil {
				t.Error("a copy was made of a pipe")
			}
		})
	}
}

// A directory that becomes a link while its neighbours are copied is copied as that: nothing is put behind it.
func TestACopyPutsNothingBehindALink(t *testing.T) {
	p := newPlace(t)
	outside, dir, looked := t.TempDir(), "", 0
	exchange := func(a, b string) error {
		return unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, a), unix.AT_FDCWD, filepath.Join(dir, b), unix.RENAME_EXCHANGE)
	}
	p.copies(func() (uint64, error) {
		if looked++; looked == 3 { // ., 0 and 1 have been looked at
			return 1 << 60, errors.Join(exchange("0", "s"), exchange("a", "z"))
		}
		return 1 << 60, nil
	})
	dir = p.make("one", os.Geteuid())
	err := errors.Join(os.Mkdir(filepath.Join(outside, "sub"), 0o700), os.Symlink(outside, filepath.Join(dir, "0")), os.Symlink("0/sub", filepath.Join(dir, "z")))
	for _, path := range []string{"1", "a/file", "s/sub/file"} {
		err = errors.Join(err, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o700), os.WriteFile(filepath.Join(dir, path), []byte("own"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	p.take(1, 11, "one")
	if left, err := os.ReadDir(filepath.Join(outside, "sub")); err != nil || len(left) > 0 {
		t.Errorf("outside is %v: %v", left, err)
	}
}

// What a directory gets is put into it while it is nobody's but the agent's.
func TestADirectoryIsWithheldWhileItIsFilled(t *testing.T) {
	p := newPlace(t)
	looked, full := 0, false
	p.copies(func() (uint64, error) {
		info, err := os.Lstat(p.home("two"))
		if err != nil {
			return 1 << 60, nil // the snapshot is taken
		}
		if looked++; info.Mode().Perm() != 0o700 || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
			t.Errorf("%v of %d while it is filled", info.Mode(), info.Sys().(*syscall.Stat_t).Uid)
		}
		if full {
			return 0, nil
		}
		return 1 << 60, nil
	})
	dir := p.make("one", 70001)
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755), os.WriteFile(filepath.Join(dir, "a", "b", "file"), []byte("own"), 0o600)); err != nil {
		t.Fatal(err)
	}
	p.take(1, 11, "one")
	p.make("two", 70002)
	want, err := os.Lstat(p.home("two"))
	if err != nil {
		t.Fatal(err)
	}
	same := func(when string) {
		t.Helper()
		got, err := os.Lstat(p.home("two"))
		if err != nil || got.Mode() != want.Mode() || got.Sys().(*syscall.Stat_t).Uid != want.Sys().(*syscall.Stat_t).Uid {
			t.Errorf("%s: %v: %v", when, got, err)
		}
	}
	full = true
	if err := p.Begin(t.Context(), 1, 12, p.home("two")); err == nil {
		t.Error("a copy was made without room")
	}
	same("after a try that failed")
	full = false
	p.begin(1, 12, "two")
	same("when it is whole")
	if looked < 4 {
		t.Errorf("looked at %d times", looked)
	}
}

// Names are what the file system takes.
func TestCopiesKeepOddNames(t *testing.T) {
	p := newPlace(t).copies(plenty)
	path := filepath.Join("\xff\\dir", "f\xfe")
	dir := p.make("one", os.Geteuid())
	if err := errors.Join(os.Mkdir(filepath.Join(dir, filepath.Dir(path)), 0o700), os.WriteFile(filepath.Join(dir, path), []byte("own"), 0o600)); err != nil {
		t.Fatal(err)
	}
	p.take(1, 11, "one")
	p.make("two", os.Geteuid())
	p.begin(1, 12, "two")
	if content, err := os.ReadFile(filepath.Join(p.home("two"), path)); err != nil || string(content) != "own" {
		t.Errorf("%q: %v", content, err)
	}
}
