package disk

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"rota/internal/need"
)

// found is a file or a folder as it is on a disk.
type found struct {
	folder  bool
	content string
	ino     uint64
}

// op is one operation of a program that uses a disk.
type op struct {
	Kind string
	Path string
	To   string // of a rename or a link
	Off  int    // of a write; the size of a truncation
	Data []byte
}

const (
	opCreate    = "create"
	opMkdir     = "mkdir"
	opRemove    = "remove"
	opLink      = "link"
	opRename    = "rename"
	opWrite     = "write"
	opTruncate  = "truncate"
	opSync      = "sync"
	opWriteSync = "write-sync" // to a file that is open with O_DSYNC
	opFailSync  = "fail-sync"
	opRemoveAll = "remove-all" // in the root, durably
	// Off records are appended while others read.
	opAppendRead = "append-read"
)

func (o op) String() string {
	return fmt.Sprintf("%s %s %s at %d, %d bytes", o.Kind, o.Path, o.To, o.Off, len(o.Data))
}

// device is a disk under test.
type device interface {
	do(op) error
	powerLoss(seed uint64, tear bool) (Loss, error)
	backing() string
}

// direct is a volume without FUSE around it.
type direct struct{ *volume }

func (d *direct) backing() string { return d.root }

func (d *direct) find(name string) *inode {
	n := d.top
	for element := range strings.SplitSeq(name, "/") {
		if element != "." {
			n, _ = d.lookup(n, element)
		}
	}
	return n
}

func (d *direct) do(o op) (err error) {
	dir, base := d.find(path.Dir(o.Path)), path.Base(o.Path)
	switch o.Kind {
	case opCreate:
		_, err = d.make(dir, base, syscall.S_IFREG, func(path string) error { return os.WriteFile(path, nil, 0o600) })
	case opMkdir:
		_, err = d.make(dir, base, syscall.S_IFDIR, func(path string) error { return os.Mkdir(path, 0o700) })
	case opRemove:
		_, err = d.remove(dir, base, os.Remove)
	case opLink:
		err = d.link(d.find(o.Path), d.find(path.Dir(o.To)), path.Base(o.To))
	case opRename:
		_, err = d.rename(dir, base, d.find(path.Dir(o.To)), path.Base(o.To), 0)
	case opWrite:
		err = d.write(d.find(o.Path), o.Data, int64(o.Off))
	case opTruncate:
		err = d.truncate(d.find(o.Path), int64(o.Off))
	case opSync:
		err = d.sync(d.find(o.Path))
	case opFailSync:
		d.dropSync(d.find(o.Path))
	}
	return err
}

func (d *direct) powerLoss(seed uint64, tear bool) (Loss, error) {
	var r *rand.Rand
	if tear {
		r = rand.New(rand.NewPCG(seed, 0))
	}
	lost, err := d.volume.powerLoss(r)
	if err == nil {
		d.volume, err = openVolume(d.root, d.last)
	}
	return lost, err
}

// mounted is a disk that another process uses through the kernel.
type mounted struct {
	*FS
	user *user
}

func (m *mounted) backing() string { return m.Backing() }

func (m *mounted) do(o op) error {
	if o.Kind == opFailSync {
		m.Fail(Fsync, 1)
		if err := m.user.do(op{Kind: opSync, Path: o.Path}); err == nil || !strings.Contains(err.Error(), "input/output") {
			return fmt.Errorf("a failing fsync answers %v", err)
		}
		return nil
	}
	return m.user.do(o)
}

func (m *mounted) powerLoss(seed uint64, tear bool) (Loss, error) { return m.PowerLoss(seed, tear) }

// user is a process that does what it is told on a mount point.
type user struct {
	in  *json.Encoder
	out *bufio.Scanner
}

const userEnv = "ROTA_TEST_DISK_USER"

func TestMain(m *testing.M) {
	if root := os.Getenv(userEnv); root != "" {
		serveUser(root)
		return
	}
	os.Exit(m.Run())
}

func serveUser(root string) {
	for in := json.NewDecoder(os.Stdin); ; {
		var o op
		if in.Decode(&o) != nil {
			return
		}
		if err := carryOut(root, o); err != nil {
			fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println()
		}
	}
}

func carryOut(root string, o op) error {
	name := filepath.Join(root, o.Path)
	switch o.Kind {
	case opMkdir:
		return os.Mkdir(name, 0o700)
	case opRemove:
		return os.Remove(name)
	case opRemoveAll:
		entries, err := os.ReadDir(root)
		for _, e := range entries {
			err = errors.Join(err, os.RemoveAll(filepath.Join(root, e.Name())))
		}
		return errors.Join(err, carryOut(root, op{Kind: opSync, Path: "."}))
	case opLink:
		return os.Link(name, filepath.Join(root, o.To))
	case opRename:
		return syscall.Rename(name, filepath.Join(root, o.To)) // os.Rename is stricter
	case opTruncate:
		return os.Truncate(name, int64(o.Off))
	case opAppendRead:
		return appendAndRead(name, o.Off)
	}
	flags := map[string]int{opCreate: os.O_CREATE | os.O_EXCL | os.O_WRONLY, opWrite: os.O_WRONLY, opWriteSync: os.O_WRONLY | syscall.O_DSYNC, opSync: os.O_RDONLY}
	f, err := os.OpenFile(name, flags[o.Kind], 0o600)
	if err != nil {
		return err
	}
	if o.Kind == opWrite || o.Kind == opWriteSync {
		_, err = f.WriteAt(o.Data, int64(o.Off))
	}
	if o.Kind == opSync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func newUser(t testing.TB, mountpoint string) *user {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), userEnv+"="+mountpoint)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	return &user{in: json.NewEncoder(in), out: bufio.NewScanner(out)}
}

func (u *user) do(o op) error {
	if err := u.in.Encode(o); err != nil {
		return err
	}
	if !u.out.Scan() {
		return errors.New("the process that uses the disk is gone")
	}
	if text := u.out.Text(); text != "" {
		return errors.New(text)
	}
	return nil
}

// scratch is a folder in memory if there is one: fsync is slow elsewhere, and
// what these tests power off is not the machine.
func scratch(t testing.TB) string {
	t.Helper()
	if info, err := os.Stat("/dev/shm"); err != nil || !info.IsDir() {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("/dev/shm", "rota-disk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// mount mounts a disk of its own for a test.
func mount(t testing.TB) *mounted {
	t.Helper()
	need.FUSE(t)
	dir := scratch(t)
	backing, mountpoint := filepath.Join(dir, "below"), filepath.Join(dir, "disk")
	for _, path := range []string{backing, mountpoint} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Mount(backing, mountpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return &mounted{FS: f, user: newUser(t, mountpoint)}
}

// contents are everything in a folder by its path.
func contents(t interface{ Fatal(args ...any) }, root string) map[string]found {
	all := map[string]found{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, _ := filepath.Rel(root, name)
		if entry.IsDir() {
			all[relative] = found{folder: true}
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(name)
		all[relative] = found{content: string(data), ino: info.Sys().(*syscall.Stat_t).Ino}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// draw picks an operation that can succeed.
func draw(t *rapid.T, now map[string]*thing) op {
	var files, folders, others []string
	for _, name := range slices.Sorted(maps.Keys(now)) {
		switch {
		case !now[name].folder:
			files, others = append(files, name), append(others, name)
		case name != ".":
			others = append(others, name)
			fallthrough
		default:
			folders = append(folders, name)
		}
	}
	fresh := path.Join(rapid.SampledFrom(folders).Draw(t, "folder"), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"))
	kinds := []string{opSync}
	if now[fresh] == nil {
		kinds = append(kinds, opCreate, opCreate, opMkdir)
	}
	if len(files) > 0 {
		kinds = append(kinds, opWrite, opWrite, opWrite, opWrite, opTruncate, opSync, opLink, opFailSync)
	}
	if len(others) > 0 {
		kinds = append(kinds, opRename, opRemove)
	}
	o := op{Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Path: fresh, To: fresh}
	switch o.Kind {
	case opWrite:
		data := bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, rapid.IntRange(1, 1500).Draw(t, "bytes"))
		o.Data, o.Off = data, rapid.IntRange(0, 2500).Draw(t, "offset")
	case opTruncate:
		o.Off = rapid.IntRange(0, 3000).Draw(t, "size")
	}
	switch o.Kind {
	case opWrite, opTruncate, opFailSync, opLink:
		o.Path = rapid.SampledFrom(files).Draw(t, "file")
	case opSync:
		o.Path = rapid.SampledFrom(append(folders, files...)).Draw(t, "synced")
	case opRename, opRemove:
		o.Path = rapid.SampledFrom(others).Draw(t, "moved")
	}
	return o
}

// possible says whether POSIX lets an operation succeed.
func possible(o op, now map[string]*thing) bool {
	inside := func(dir string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(now)), func(name string) bool { return strings.HasPrefix(name, dir+"/") })
	}
	target, there := now[o.Path], now[o.To]
	switch o.Kind {
	case opLink:
		return there == nil
	case opRemove:
		return !target.folder || !inside(o.Path)
	case opRename:
		within := strings.HasPrefix(o.To+"/", o.Path+"/") || strings.HasPrefix(o.Path+"/", o.To+"/")
		return !within && (there == nil || there.folder == target.folder && !(there.folder && inside(o.To)))
	}
	return true
}

// compare runs random programs on a disk, cuts the power at random moments and
// asks the oracle what it thinks of what is left.
func compare(t *rapid.T, d device) {
	o := adopt(contents(t, d.backing()))
	for range rapid.IntRange(1, 4).Draw(t, "power losses") {
		for range rapid.IntRange(0, 40).Draw(t, "operations") {
			next := draw(t, o.now())
			if !possible(next, o.now()) {
				continue
			}
			if err := d.do(next); err != nil {
				t.Fatalf("%v: %v", next, err)
			}
			o.do(next)
		}
		for name, is := range contents(t, d.backing()) {
			if f := o.now()[name]; f == nil || is.content != string(f.live) {
				t.Fatalf("before the power loss %s is %s", name, show(is.content))
			}
		}
		tear := rapid.Bool().Draw(t, "tear")
		lost, err := d.powerLoss(rapid.Uint64().Draw(t, "seed"), tear)
		if err != nil {
			t.Fatal(err)
		}
		left := contents(t, d.backing())
		if err := o.judge(left, lost, tear); err != nil {
			t.Fatal(err)
		}
		o = adopt(left)
	}
}

func TestAPowerLossLeavesWhatTheOracleSays(t *testing.T) {
	root := scratch(t)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := filepath.Join(root, fmt.Sprint(n))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		v, err := openVolume(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		d := &direct{v}
		defer func() { d.close() }()
		compare(t, d)
	})
}

func TestAPowerLossThroughTheKernel(t *testing.T) {
	d := mount(t)
	rapid.Check(t, func(t *rapid.T) {
		if err := d.do(op{Kind: opRemoveAll}); err != nil {
			t.Fatal(err)
		}
		if _, err := d.powerLoss(0, false); err != nil { // nothing is pending then
			t.Fatal(err)
		}
		compare(t, d)
	})
}
