package kvfs

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/agent/internal/mountinfo"
	"rota/agent/tier"
	"rota/internal/need"
)

const (
	patience = time.Minute
	// serveEnv makes the test binary serve a cache at a directory until it is killed.
	serveEnv = "ROTA_KVFS_SERVE"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == GuardCommand {
		if err := Guard(os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := os.Getenv(serveEnv); dir != "" {
		fmt.Println(serveUntilKilled(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serveUntilKilled has a child that outlives it, as agents do.
func serveUntilKilled(dir string) error {
	s, err := tier.Open(tier.Options{MemoryBytes: 64 << 20})
	if err != nil {
		return err
	}
	d, err := Mount(Options{Store: s, Dir: dir, Program: os.Args[0]})
	if err != nil {
		return err
	}
	child := exec.Command("sleep", "300")
	if err := child.Start(); err != nil {
		return err
	}
	fmt.Println("ready", child.Process.Pid, d.guard.cmd.Process.Pid)
	_, err = io.Copy(io.Discard, os.Stdin) // it never ends
	return errors.Join(err, d.Close())
}

func openStore(t testing.TB, memory uint64) *tier.Store {
	t.Helper()
	s, err := tier.Open(tier.Options{MemoryBytes: memory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func mounted(t testing.TB, memory uint64) (*tier.Store, *Dir) {
	t.Helper()
	need.FUSE(t)
	s := openStore(t, memory)
	d, err := Mount(Options{Store: s, Dir: filepath.Join(t.TempDir(), "kv"), Program: os.Args[0]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if kind, err := mountedAt(d.Path()); err != nil || kind != "" {
			t.Errorf("a mount of type %q stays, %v", kind, err)
		}
		if d.fs.held != 0 {
			t.Errorf("%d bytes are still held", d.fs.held)
		}
	})
	return s, d
}

// engine returns a process that uses the directory. This process must not: it would wait for itself.
func engine(t testing.TB, dir string, args ...string) *exec.Cmd {
	t.Helper()
	need.Tool(t, "python3")
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "python3", append([]string{"testdata/hicache.py", dir}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd
}

func run(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
}

func put(t testing.TB, s *tier.Store, key string, value []byte) {
	t.Helper()
	v, err := s.NewValue(uint64(len(value)))
	if err != nil {
		t.Fatal(err)
	}
	copy(v.Bytes(), value)
	if _, err := s.Set(key, v, time.Time{}, tier.Always); err != nil {
		t.Fatal(err)
	}
}

func get(s *tier.Store, key string) []byte {
	v := s.Get(key)
	if v == nil {
		return nil
	}
	defer v.Release()
	return bytes.Clone(v.Bytes())
}

// until waits for what the kernel tells the server only after it has answered a process.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for limit := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

func (d *Dir) open() int {
	d.fs.mu.Lock()
	defer d.fs.mu.Unlock()
	return len(d.fs.handles)
}

func TestTheBackEndOfHiCache(t *testing.T) {
	s, d := mounted(t, 128<<20)
	put(t, s, "redis", []byte("value"))
	put(t, s, "model/x@1@kv_bytes.bin", []byte("value"))
	run(t, engine(t, d.Path(), "all"))
	until(t, "all files are closed", func() bool { return d.open() == 0 })
	if got := get(s, "kept_model_0_1.bin"); string(got) != "kept" {
		t.Errorf("the value of a file is %q", got)
	}
	keys, _ := s.Scan(0, 1000)
	for _, key := range keys {
		if isTemporary(key) {
			t.Errorf("%s was left", key)
		}
	}
	run(t, engine(t, d.Path(), "clear"))
	keys, _ = s.Scan(0, 1000)
	if slices.Sort(keys); !slices.Equal(keys, []string{"model/x@1@kv_bytes.bin", "redis"}) {
		t.Errorf("an engine that clears its directory leaves %v", keys)
	}
}

func TestFilesAndValuesAreOne(t *testing.T) {
	s, d := mounted(t, 64<<20)
	page := make([]byte, 1<<20)
	_, _ = rand.Read(page)
	put(t, s, "h_model_0_1.bin", page)
	copied := filepath.Join(d.Path(), "copy.bin")
	run(t, exec.Command("cp", filepath.Join(d.Path(), "h_model_0_1.bin"), copied))
	until(t, "the copy is closed", func() bool { return d.open() == 0 })
	if !bytes.Equal(get(s, "copy.bin"), page) {
		t.Error("the copy differs")
	}
	put(t, s, "redis", page)
	if st := s.Stat(); st.Keys != 3 || st.UniqueBytes != 1<<20 || st.LogicalBytes != 3<<20 {
		t.Errorf("equal values are stored more than once: %+v", st)
	}
	run(t, exec.Command("mv", copied, filepath.Join(d.Path(), "moved.bin")))
	if get(s, "copy.bin") != nil || !bytes.Equal(get(s, "moved.bin"), page) {
		t.Error("a file that was renamed is not under its name")
	}
	s.Delete("moved.bin")
	if err := exec.Command("test", "-e", filepath.Join(d.Path(), "moved.bin")).Run(); err == nil {
		t.Error("a value that is gone has a file")
	}
}

// TestEnginesAtOnce: several write the same pages, and each finds them whole.
func TestEnginesAtOnce(t *testing.T) {
	s, d := mounted(t, 128<<20)
	const engines, pages, size = 4, 40, 256 << 10
	for _, what := range []string{"fill", "check"} {
		var all []*exec.Cmd
		for range engines {
			cmd := engine(t, d.Path(), what, fmt.Sprint(pages), fmt.Sprint(size))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			all = append(all, cmd)
		}
		for _, cmd := range all {
			if err := cmd.Wait(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	until(t, "all files are closed", func() bool { return d.open() == 0 })
	if st := s.Stat(); st.Keys != pages || st.UniqueBytes != pages*size || st.MemoryBytes != pages*size {
		t.Errorf("%+v", st)
	}
}

// TestAKilledWriterLeavesNothing: neither under the name, nor in memory.
func TestAKilledWriterLeavesNothing(t *testing.T) {
	s, d := mounted(t, 64<<20)
	for _, name := range []string{"one", "two"} {
		cmd := engine(t, d.Path(), "hold", name, fmt.Sprint(3<<20))
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		lines := begin(t, cmd)
		expect(t, lines, "held")
		if name == "one" {
			_ = cmd.Process.Kill()
		} else {
			_ = in.Close()
		}
		_ = cmd.Wait()
		until(t, "the file is closed", func() bool { return d.open() == 0 })
	}
	if n, there := s.Size("one_model_0_1.bin"); there {
		t.Errorf("a process that was killed has left %d bytes", n)
	}
	if n, _ := s.Size("two_model_0_1.bin"); n != 3<<20 {
		t.Errorf("a process that ended has left %d bytes", n)
	}
}

func begin(t testing.TB, cmd *exec.Cmd) *bufio.Scanner {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return bufio.NewScanner(out)
}

// expect reads lines until one begins as told, and returns the rest of it.
func expect(t testing.TB, lines *bufio.Scanner, word string) string {
	t.Helper()
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), word); ok {
			return strings.TrimSpace(rest)
		}
	}
	t.Fatalf("the process ended before it said %q", word)
	return ""
}

func TestLimits(t *testing.T) {
	s, d := mounted(t, 16<<20)
	write := func(name string, mebibytes int) error {
		cmd := exec.Command("dd", "if=/dev/urandom", "of="+filepath.Join(d.Path(), name), "bs=1M", fmt.Sprintf("count=%d", mebibytes))
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	for i := range 12 {
		if err := write(fmt.Sprintf("%d.bin", i), 3); err != nil {
			t.Fatal(err)
		}
	}
	if st := s.Stat(); st.MemoryBytes > st.MemoryBytesMax || st.Evicted == 0 {
		t.Errorf("36 MiB of files: %+v", st)
	}
	if _, there := s.Size("0.bin"); there {
		t.Error("the oldest file was not evicted")
	}
	if err := write("large.bin", 5); err == nil || !strings.Contains(err.Error(), "File too large") {
		t.Errorf("a file above the limit: %v", err)
	}
	// Open files take up half of the memory at most, and what does not fit then does not exist.
	put(t, s, "page.bin", make([]byte, 3<<20))
	open := exec.Command("sh", "-c", `cd "$0" && exec 3<page.bin 4<page.bin && ! exec 5<page.bin`, d.Path())
	if out, err := open.CombinedOutput(); err == nil || !strings.Contains(string(out), "o such file") {
		t.Errorf("a third open file: %v %s", err, out)
	}
	until(t, "all files are closed", func() bool { return d.open() == 0 })
	if err := write("after.bin", 3); err != nil {
		t.Error(err)
	}
}

// TestDeathOfTheServer: an engine has misses meanwhile, though a child of the dead process lives on,
// and hits as soon as the next process serves. That holds also if the guard is dead.
func TestDeathOfTheServer(t *testing.T) {
	need.FUSE(t)
	dir := filepath.Join(t.TempDir(), "kv")
	t.Cleanup(func() {
		until(t, "nothing is mounted", func() bool { return clearStale(dir) == nil })
	})
	serve := func() (server *exec.Cmd, child, guard int) {
		server = exec.Command(os.Args[0])
		server.Env = append(os.Environ(), serveEnv+"="+dir)
		if _, err := server.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(expect(t, begin(t, server), "ready"), &child, &guard); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
		return server, child, guard
	}
	die := func(server *exec.Cmd) {
		_ = server.Process.Kill()
		_ = server.Wait()
	}
	server, child, _ := serve()
	lines := begin(t, engine(t, dir, "loop"))
	expect(t, lines, "hit")
	if _, err := Mount(Options{Store: openStore(t, 1<<20), Dir: dir}); !errors.Is(err, ErrDir) {
		t.Errorf("a second process serves the same directory: %v", err)
	}
	die(server)
	expect(t, lines, "miss")
	if err := syscall.Kill(child, 0); err != nil {
		t.Fatalf("the child should live: %v", err)
	}
	until(t, "the guard has taken the mount away", func() bool {
		kind, err := mountedAt(dir)
		return err == nil && kind == floorKind
	})
	if out, err := exec.Command("ls", "-A", dir).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("the directory is not empty: %v, %s", err, out)
	}
	if out, err := exec.Command("touch", filepath.Join(dir, "page.bin")).CombinedOutput(); err == nil || !strings.Contains(string(out), "Read-only") {
		t.Errorf("what nobody counts can be written: %v %s", err, out)
	}

	server, _, guard := serve()
	expect(t, lines, "hit")
	_ = syscall.Kill(guard, syscall.SIGKILL)
	die(server)
	expect(t, lines, "miss")
	if kind, err := mountedAt(dir); err != nil || kind != filesKind {
		t.Errorf("%q is mounted, %v; this test is for a mount that is dead", kind, err)
	}
	server, _, _ = serve()
	expect(t, lines, "hit")
	die(server)
}

func TestADirectoryThatOthersUnmount(t *testing.T) {
	_, d := mounted(t, 16<<20)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx) }()
	if err := syscall.Unmount(d.Path(), syscall.MNT_FORCE|syscall.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	until(t, "it is mounted again", func() bool {
		kind, err := mountedAt(d.Path())
		return err == nil && kind == filesKind
	})
	until(t, "the directory says so", d.Mounted)
	run(t, exec.Command("sh", "-c", `echo page > "$0/again.bin" && cat "$0/again.bin"`, d.Path()))
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestDirectoriesThatAreRefused(t *testing.T) {
	need.FUSE(t)
	s, base := openStore(t, 1<<20), t.TempDir()
	if err := os.WriteFile(filepath.Join(base, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(base, "open"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(base, filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"file": "not a directory", "open": "chmod 700", "link": "not a directory"} {
		d, err := Mount(Options{Store: s, Dir: filepath.Join(base, name)})
		if !errors.Is(err, ErrDir) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = d.Close()
		}
	}
	if _, err := Mount(Options{Store: s, Dir: "/"}); !errors.Is(err, ErrDir) {
		t.Errorf("/: %v", err)
	}
}

func TestStatOfAThread(t *testing.T) {
	fields := func(flags, code string) string {
		f := slices.Repeat([]string{"0"}, 50)
		f[6], f[49] = flags, code
		return "12 (a ) name) " + strings.Join(f, " ")
	}
	for stat, want := range map[string]bool{
		fields("4", "9"): true, fields("4194308", "139"): true, fields("4", "256"): false,
		fields("0", "9"): false, fields("4", "0"): false, "12 (x) R": false, "": false,
	} {
		if got := killedBySignal(stat); got != want {
			t.Errorf("%q: %v", stat, got)
		}
	}
}

func TestLastMount(t *testing.T) {
	const info = "31 23 0:31 / /run/k\\040v rw - tmpfs tmpfs rw\n32 23 0:32 / /run/k\\040v rw shared:1 - fuse.rota-kv rota-kv rw\n"
	if got := lastMount(mountinfo.Parse(info), "/run/k v"); got != filesKind {
		t.Error(got)
	}
	if got := lastMount(mountinfo.Parse(info+"33 23 0:33 / /run/k\\040v rw - tmpfs other rw\n"), "/run/k v"); got != "" {
		t.Error(got)
	}
	if got := lastMount(mountinfo.Parse(info), "/run"); got != "" {
		t.Error(got)
	}
}

// BenchmarkPages writes and reads pages as the back end of HiCache does, in this directory and in a
// plain one, which is on the file system of the temporary folder.
func BenchmarkPages(b *testing.B) {
	_, d := mounted(b, 256<<20)
	for name, dir := range map[string]string{"cache": d.Path(), "plain": b.TempDir()} {
		for _, size := range []int{256 << 10, 4 << 20} {
			b.Run(fmt.Sprintf("%s/%dKiB", name, size>>10), func(b *testing.B) {
				b.SetBytes(2 * int64(size))
				cmd := engine(b, dir, "bench", fmt.Sprint(size))
				in, err := cmd.StdinPipe()
				if err != nil {
					b.Fatal(err)
				}
				lines := begin(b, cmd)
				expect(b, lines, "ready")
				for b.Loop() {
					if _, err := io.WriteString(in, "go\n"); err != nil {
						b.Fatal(err)
					}
					expect(b, lines, "done")
				}
				_ = in.Close()
				_ = cmd.Wait()
			})
		}
	}
}
