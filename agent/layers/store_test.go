package layers_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"rota/agent/layers"
	"rota/internal/need"
)

// place has the directories of trajectories, and a store.
type place struct {
	*layers.Store
	t   *testing.T
	dir string
}

// plenty is the room of a disk that is never full.
func plenty() (uint64, error) { return 1 << 60, nil }

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(p.dir, "homes"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		entries, _ := os.ReadDir(filepath.Join(p.dir, "homes"))
		for _, e := range entries {
			_ = unix.Unmount(p.home(e.Name()), unix.MNT_DETACH)
		}
	})
	p.open()
	return p
}

// open opens the store as an agent does that was started anew.
func (p *place) open() {
	p.t.Helper()
	s, err := layers.Open(filepath.Join(p.dir, "store"), p.homeOf, hclog.NewNullLogger(), true, plenty)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(s.Close)
	p.Store = s
}

// overlays skips a test that is about overlays where they cannot be.
func (p *place) overlays() *place {
	p.t.Helper()
	need.Root(p.t)
	if !p.Overlays() {
		p.t.Skip("the kernel cannot mount layers with other owners, as Linux 5.19 and later can")
	}
	return p
}

// homeOf is the directory of a trajectory: 11 is one, 12 is two.
func (p *place) homeOf(trajectory uint64) string {
	return p.home([]string{"one", "two", "three", "four"}[trajectory-11])
}

func (p *place) home(name string) string { return filepath.Join(p.dir, "homes", name) }

// make makes the directory of a trajectory, for a user if this process may.
func (p *place) make(name string, uid int) string {
	p.t.Helper()
	if err := os.Mkdir(p.home(name), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Lchown(p.home(name), uid, uid); err != nil {
			p.t.Fatal(err)
		}
	}
	return p.home(name)
}

// as runs a script in a directory, as the user of the directory.
func (p *place) as(name, script string) string {
	p.t.Helper()
	cmd := exec.Command("/bin/sh", "-ec", script)
	cmd.Dir = "/proc/self/fd/3"
	home, err := os.Open(p.home(name))
	if err != nil {
		p.t.Fatal(err)
	}
	defer home.Close()
	info, err := home.Stat()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{home}
	cmd.Dir = ""
	cmd.Args[2] = "cd /proc/self/fd/3\n" + script
	if st := info.Sys().(*syscall.Stat_t); os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: st.Uid, Gid: st.Gid}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s in %s: %v\n%s", script, name, err, out)
	}
	return string(out)
}

func (p *place) take(id, trajectory uint64, name string) {
	p.t.Helper()
	if err := p.Take(p.t.Context(), id, "", trajectory, p.home(name)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) begin(id, trajectory uint64, name string) {
	p.t.Helper()
	if err := p.Begin(p.t.Context(), id, trajectory, p.home(name)); err != nil {
		p.t.Fatal(err)
	}
}

// A snapshot has the files as they were, whatever becomes of the directory, and what begins with it
// has them as its own and changes them for itself only.
func TestForksHaveTheFilesAndShareNoWrites(t *testing.T) {
	p := newPlace(t)
	p.make("one", 70001)
	p.as("one", `mkdir -p a/b; echo first > a/b/file; ln a/b/file a/link; ln -s b/file a/soft; chmod 750 a/b; echo gone > gone`)
	p.take(1, 11, "one")
	p.as("one", `echo second > a/b/file; rm gone; mv a c; echo new > new`)
	p.make("two", 70002)
	p.begin(1, 12, "two")
	got := p.as("two", `cat a/b/file a/link a/soft gone; stat -c %a a/b; test ! -e new; id -u; stat -c %u a/b/file a/soft .`)
	want := "first\nfirst\nfirst\ngone\n750\n"
	if uid := strings.Fields(got[len(want):]); got[:len(want)] != want || uid[0] != uid[1] || uid[0] != uid[2] || uid[0] != uid[3] {
		t.Errorf("the fork has %q", got)
	}
	p.as("two", `echo third > a/b/file; rm gone; mv a/b d; rm -rf a; mkdir a; echo x > a/y`)
	if got := p.as("one", "cat c/b/file new"); got != "second\nnew\n" {
		t.Errorf("the first has %q", got)
	}
	p.make("three", 70003)
	p.begin(1, 13, "three")
	if got := p.as("three", "cat a/b/file gone"); got != "first\ngone\n" {
		t.Errorf("another fork has %q", got)
	}
	// A snapshot of a fork, in turn.
	p.take(2, 12, "two")
	p.as("two", "echo fourth > d/file")
	p.make("four", 70004)
	p.begin(2, 14, "four")
	if got := p.as("four", "cat d/file a/y; ls; echo more >> d/file; cat d/file"); got != "third\nx\na\nd\nthird\nmore\n" {
		t.Errorf("the fork of a fork has %q", got)
	}
}

// What is deleted stays for those who have it, and goes with them.
func TestLayersGoWithTheLast(t *testing.T) {
	p := newPlace(t).overlays()
	p.make("one", 70001)
	p.as("one", "echo first > file")
	p.take(1, 11, "one")
	p.make("two", 70002)
	p.begin(1, 12, "two")
	if err := p.Remove(1); err != nil {
		t.Fatal(err)
	}
	if got := p.as("two", "cat file"); got != "first\n" {
		t.Errorf("the fork has %q", got)
	}
	if err := p.Begin(t.Context(), 1, 13, p.make("three", 70003)); !errors.Is(err, layers.ErrNoSnapshot) {
		t.Errorf("a fork of what was deleted: %v", err)
	}
	for _, name := range []string{"one", "two"} {
		if err := errors.Join(unix.Unmount(p.home(name), 0), os.RemoveAll(p.home(name))); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Sweep(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(p.dir, "store", "layers"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// An agent that is started again, even after the machine was, finds the files.
func TestMountsComeBack(t *testing.T) {
	p := newPlace(t).overlays()
	p.make("one", 70001)
	p.as("one", "echo first > file")
	p.take(1, 11, "one")
	p.as("one", "echo second > file")
	p.make("two", 70002)
	p.begin(1, 12, "two")
	p.as("two", "echo third > other")
	p.open() // what is mounted stays
	for _, name := range []string{"one", "two"} {
		if err := unix.Unmount(p.home(name), 0); err != nil {
			t.Fatal(err)
		}
	}
	p.open()
	if got := p.as("one", "cat file"); got != "second\n" {
		t.Errorf("the first has %q", got)
	}
	if got := p.as("two", "cat file other"); got != "first\nthird\n" {
		t.Errorf("the fork has %q", got)
	}
}

// Files that are under a mount that is missing are not to be used: what is written there would be lost.
func TestFilesThatAreNotMountedAreNotWhole(t *testing.T) {
	p := newPlace(t).overlays()
	p.make("one", 70001)
	p.take(1, 11, "one")
	if err := p.Whole(11); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(p.home("one"), 0); err != nil {
		t.Fatal(err)
	}
	if p.Whole(11) == nil {
		t.Error("a directory whose layers are not mounted is whole")
	}
	if err := p.Whole(12); err != nil {
		t.Errorf("a directory that is as it was made: %v", err)
	}
}

// A container gives its directory to the user of each command. Its other files stay whose they are, in
// what begins with a snapshot as well.
func TestFilesOfAContainerStayWhoseTheyAre(t *testing.T) {
	p := newPlace(t).overlays()
	const root = "a root file system"
	files := func(name string) (owners [3]uint32) {
		t.Helper()
		for i, file := range []string{"of-root", "of-first", "of-second"} {
			info, err := os.Lstat(filepath.Join(p.home(name), file))
			if err != nil {
				t.Fatal(err)
			}
			owners[i] = info.Sys().(*syscall.Stat_t).Uid
			f, err := os.OpenFile(filepath.Join(p.home(name), file), os.O_WRONLY|os.O_APPEND, 0) // copies it up
			if err == nil {
				err = f.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return owners
	}
	p.make("one", 70001)
	for _, uid := range []int{0, 1000, 1001} {
		name := filepath.Join(p.home("one"), map[int]string{0: "of-root", 1000: "of-first", 1001: "of-second"}[uid])
		if err := errors.Join(os.WriteFile(name, []byte("x"), 0o600), os.Lchown(name, uid, uid)); err != nil {
			t.Fatal(err)
		}
	}
	for i, uid := range []int{0, 1000, 1001} { // the users of commands
		if err := os.Lchown(p.home("one"), uid, uid); err != nil {
			t.Fatal(err)
		}
		if err := p.Take(t.Context(), uint64(i+1), root, 11, p.home("one")); err != nil {
			t.Fatal(err)
		}
	}
	p.make("two", 70002)
	p.begin(3, 12, "two")
	for _, name := range []string{"one", "two"} {
		if info, err := os.Lstat(p.home(name)); err != nil || info.Sys().(*syscall.Stat_t).Uid != 1001 {
			t.Errorf("the directory %s is not that of the user of the last command: %v, %v", name, info.Sys(), err)
		}
		if err := errors.Join(os.Lchown(p.home(name), 1000, 1000), unix.Unmount(p.home(name), 0)); err != nil {
			t.Fatal(err)
		}
		p.open()
		if got := files(name); got != [3]uint32{0, 1000, 1001} {
			t.Errorf("files of %s are those of %v", name, got)
		}
	}
}

// What is mounted nowhere is copied, directories that may not be written to as well.
func TestCopiesHaveReadOnlyDirectories(t *testing.T) {
	p := newPlace(t).copies(plenty)
	if p.Overlays() {
		t.Fatal("it mounts layers")
	}
	for _, name := range []string{"one", "two"} {
		if err := os.Mkdir(p.home(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	sealed := filepath.Join(p.home("one"), "sealed")
	if err := errors.Join(os.Mkdir(sealed, 0o700), os.WriteFile(filepath.Join(sealed, "file"), []byte("x"), 0o400), os.Chmod(sealed, 0o500)); err != nil {
		t.Fatal(err)
	}
	p.take(1, 11, "one")
	p.begin(1, 12, "two")
	info, err := os.Stat(filepath.Join(p.home("two"), "sealed"))
	if err != nil || info.Mode().Perm() != 0o500 {
		t.Errorf("the copy is %v (%v), want a directory that may not be written to", info, err)
	}
	for _, dir := range []string{sealed, filepath.Join(p.home("two"), "sealed")} {
		_ = os.Chmod(dir, 0o700) // so that it can be removed
	}
}

// A directory of many layers is copied instead of being mounted from ever more.
func TestLayersAreNotPiledUpForEver(t *testing.T) {
	p := newPlace(t).overlays()
	p.make("one", 70001)
	for i := range uint64(40) {
		p.as("one", "echo more >> file; date +%N > last")
		p.take(i+1, 11, "one")
	}
	p.make("two", 70002)
	p.begin(40, 12, "two")
	if got := p.as("two", "wc -l < file"); strings.TrimSpace(got) != "40" {
		t.Errorf("the fork has %q lines", got)
	}
}
