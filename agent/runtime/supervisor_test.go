package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/internal/need"
)

// forEachMode runs a test under every way to confine attempts that this machine
// has.
func forEachMode(t *testing.T, test func(t *testing.T, mode string)) {
	for _, mode := range []string{runtime.ModeHybrid, runtime.ModeCgroupV1, runtime.ModeCgroupV2, runtime.ModeAffinity} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			test(t, mode)
		})
	}
}

// dial connects to a supervisor that is stopped with the test.
func dial(t testing.TB, o runtime.Options) *runtime.Client {
	t.Helper()
	if o.Mode != "" && o.Mode != runtime.ModeAffinity {
		need.Cgroup(t)
		if has := hierarchiesHere(); !has[o.Mode] {
			t.Skipf("this machine has no %s", o.Mode)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := runtime.Dial(ctx, o)
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(o.Dir, "supervisor.log"))
		t.Fatalf("%v\n%s", err, log)
	}
	t.Cleanup(func() { c.Close() })
	stopAtEnd(t, o)
	return c
}

// hierarchiesHere says which modes the mounts of this machine allow.
func hierarchiesHere() map[string]bool {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	v1 := strings.Contains(string(mounts), " - cgroup cgroup ") && strings.Contains(string(mounts), "freezer")
	v2 := strings.Contains(string(mounts), " - cgroup2 ")
	return map[string]bool{runtime.ModeCgroupV1: v1, runtime.ModeCgroupV2: v2, runtime.ModeHybrid: v1 && v2}
}

// stopAtEnd stops whatever supervisor serves the directory when the test ends.
func stopAtEnd(t testing.TB, o runtime.Options) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		c, err := runtime.Dial(ctx, o)
		if err != nil {
			t.Errorf("stop supervisor: %v", err)
			return
		}
		defer c.Close()
		if err := c.Stop(ctx); err != nil && !errors.Is(err, runtime.ErrLost) {
			t.Errorf("stop supervisor: %v", err)
		}
	})
}

func key(n uint64) plan.Key { return plan.Key{Action: n, Attempt: 1, Incarnation: 7} }

func start(t testing.TB, c *runtime.Client, s runtime.Spec) {
	t.Helper()
	if err := c.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func nextExit(t testing.TB, c *runtime.Client) plan.Exit {
	t.Helper()
	select {
	case e, ok := <-c.Exits():
		if !ok {
			t.Fatal("supervisor lost")
		}
		return e
	case <-time.After(time.Minute):
		t.Fatal("no attempt ended")
	}
	panic("unreachable")
}

func runOne(t testing.TB, c *runtime.Client, s runtime.Spec) plan.Exit {
	t.Helper()
	start(t, c, s)
	e := nextExit(t, c)
	if e.Key != s.Key {
		t.Fatalf("%s ended, want %s", e.Key, s.Key)
	}
	return e
}

// waitFor waits for something another process does.
func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestEveryEndIsTold(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		c := dial(t, options(t.TempDir(), mode))
		if got := c.Describe().Mode; got != mode {
			t.Fatalf("mode %q, want %q", got, mode)
		}
		timeout := shell(key(5), "sleep 100")
		timeout.Timeout = 30 * time.Millisecond
		badDir := shell(key(8), "true")
		badDir.Dir = "/nowhere/at/all"
		noCPU := shell(key(9), "true")
		noCPU.CPUs = []int{99999}
		notExec := shell(key(10), "true")
		notExec.Argv = []string{"/etc/passwd"}
		missing := shell(key(7), "true")
		missing.Argv = []string{"no-such-command"}
		for _, tt := range []struct {
			name    string
			spec    runtime.Spec
			reason  plan.Reason
			code    int
			signal  int
			message string
		}{
			{"success", shell(key(1), "exit 0"), plan.ReasonExited, 0, 0, ""},
			{"exit code", shell(key(2), "exit 42"), plan.ReasonExited, 42, 0, ""},
			{"signal", shell(key(3), "kill -USR1 $$"), plan.ReasonSignaled, 0, int(syscall.SIGUSR1), "signal 10"},
			{"its own SIGKILL is not ours", shell(key(4), "kill -9 $$"), plan.ReasonSignaled, 0, 9, "signal 9"},
			{"timeout", timeout, plan.ReasonTimeout, 0, 9, "run timeout of 30ms"},
			{"no such command", missing, plan.ReasonStartFailed, 0, 0, `"no-such-command" is not in PATH`},
			{"no such directory", badDir, plan.ReasonStartFailed, 0, 0, "/nowhere/at/all"},
			{"no such CPU", noCPU, plan.ReasonStartFailed, 0, 0, "CPU 99999"},
			{"not executable", notExec, plan.ReasonStartFailed, 0, 0, "permission denied"},
		} {
			e := runOne(t, c, tt.spec)
			if e.Reason != tt.reason || e.ExitCode != tt.code || e.Signal != tt.signal || !strings.Contains(e.Message, tt.message) {
				t.Errorf("%s: got %+v", tt.name, e)
			}
		}
	})
}

func TestAnAttemptSeesOnlyWhatItIsGiven(t *testing.T) {
	c := dial(t, options(t.TempDir(), ""))
	spec := shell(key(1), "env; pwd; ls /proc/self/fd; cat")
	spec.Env = append(spec.Env, "A=b c", "PWD=/")
	e := runOne(t, c, spec)
	out := string(e.Stdout)
	for _, want := range []string{"A=b c\n", "/work/1.1.7\n", "0\n1\n2\n3\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
	for _, not := range []string{"HOME=", "GOPATH=", "\n4\n"} {
		if strings.Contains(out, not) {
			t.Errorf("output has %q:\n%s", not, out)
		}
	}
}

func TestCommandsAreFoundInTheAttemptsOwnPath(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), []byte("#!/bin/sh\necho found\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := dial(t, options(t.TempDir(), ""))
	spec := shell(key(1), "")
	spec.Argv = []string{"mine"}
	spec.Env = append(spec.Env, "PATH=relative:"+dir)
	if e := runOne(t, c, spec); string(e.Stdout) != "found\n" {
		t.Errorf("got %+v", e)
	}
}

func TestWorkingDirectories(t *testing.T) {
	dir, existing := t.TempDir(), t.TempDir()
	c := dial(t, options(dir, ""))
	spec := shell(key(1), "pwd; touch kept")
	spec.Dir = existing
	if e := runOne(t, c, spec); string(e.Stdout) != existing+"\n" {
		t.Fatalf("got %+v", e)
	}
	if _, err := os.Stat(filepath.Join(existing, "kept")); err != nil {
		t.Errorf("a directory that existed is kept: %v", err)
	}
	for k, sub := range map[plan.Key]string{key(2): "", key(3): "src/deep"} {
		spec := shell(k, "pwd; mkdir -p a/b; touch a/b/c")
		spec.Dir = sub
		e := runOne(t, c, spec)
		want, made := runtime.WorkDir(dir, k), strings.TrimSpace(string(e.Stdout))
		if made != filepath.Join(want, sub) {
			t.Errorf("%q: got %+v, want %s", sub, e, want)
		}
		waitFor(t, "the attempt's own directory to be removed", func() bool {
			_, err := os.Stat(want)
			return errors.Is(err, os.ErrNotExist)
		})
	}
}

// A supervisor makes nothing that a client names: not in its own folder, where
// directories would stand in the way of its files, and not anywhere else.
func TestNamedDirectoriesAreNotMade(t *testing.T) {
	dir := t.TempDir()
	c := dial(t, options(dir, ""))
	runOne(t, c, shell(key(1), "true"))
	for i, named := range []string{
		filepath.Join(dir, "supervisor.journal.new"),
		filepath.Join(dir, "output", "14.1.1.stdout", "x"),
		filepath.Join(dir, "work", "trajectory-5"),
		filepath.Join(t.TempDir(), "elsewhere"),
		"../14.1.1",
		"a/../../b",
	} {
		spec := shell(key(uint64(i)+2), "true")
		spec.Dir = named
		if e := runOne(t, c, spec); e.Reason != plan.ReasonStartFailed || !strings.Contains(e.Message, "working directory") {
			t.Errorf("%s: got %+v", named, e)
		}
		if _, err := os.Stat(named); err == nil && filepath.IsAbs(named) {
			t.Errorf("%s was made", named)
		}
	}
}

func TestCPUsAreHeld(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		c := dial(t, options(t.TempDir(), mode))
		spec := shell(key(1), "grep Cpus_allowed_list /proc/self/status")
		spec.CPUs = []int{0}
		if e := runOne(t, c, spec); strings.TrimSpace(strings.TrimPrefix(string(e.Stdout), "Cpus_allowed_list:")) != "0" {
			t.Errorf("got %q %q", e.Stdout, e.Message)
		}
		// The next one is not bound to what this one had.
		free := runOne(t, c, shell(key(2), "grep Cpus_allowed_list /proc/self/status"))
		own, _ := os.ReadFile("/proc/self/status")
		if !strings.Contains(string(own), string(free.Stdout)) {
			t.Errorf("without CPUs of its own: %q", free.Stdout)
		}
	})
}

// eat is a script that holds so many MiB of memory at its end. Its programs are small: close to its
// limit a large one would be read from the disk again and again before the kernel gave it up.
func eat(mib int) string {
	return fmt.Sprintf("mkfifo zeros; head -c %dM /dev/zero > zeros & exec tail -n 1 zeros > /dev/null", mib)
}

func TestOutOfMemoryIsToldFromACrash(t *testing.T) {
	c := dial(t, options(t.TempDir(), ""))
	need.Cgroup(t)
	hog := shell(key(1), eat(400))
	hog.MemoryBytes = 64 << 20
	e := runOne(t, c, hog)
	if e.Reason != plan.ReasonOutOfMemory || e.Signal != 9 || e.MemoryPeak > 65<<20 || e.MemoryPeak < 60<<20 {
		t.Errorf("got %+v", e)
	}
	modest := shell(key(2), eat(40))
	modest.MemoryBytes = 256 << 20
	if e := runOne(t, c, modest); e.Reason != plan.ReasonExited || e.MemoryPeak < 40<<20 {
		t.Errorf("got %+v", e)
	}
	crash := shell(key(3), "kill -9 $$")
	crash.MemoryBytes = 64 << 20
	if e := runOne(t, c, crash); e.Reason != plan.ReasonSignaled {
		t.Errorf("got %+v", e)
	}
}

func TestCPUTimeCountsEveryProcess(t *testing.T) {
	for _, mode := range []string{runtime.ModeHybrid, runtime.ModeCgroupV1} {
		c := dial(t, options(t.TempDir(), mode))
		// Nobody waits for the burner, so only its cgroup knows what it used.
		spec := self(t, key(1), "helper-burn", "50ms")
		spec.Argv = []string{"sh", "-c", `"$0" "$@" & while kill -0 $!; do sleep 0.01; done 2>/dev/null`, spec.Argv[0], "helper-burn", "50ms"}
		if e := runOne(t, c, spec); e.CPU < 50*time.Millisecond || e.Exec < 50*time.Millisecond {
			t.Errorf("%s: got %+v", mode, e)
		}
	}
}

// daemon leaves its parent, its session and its process group, and writes its
// process ID to a file.
const daemon = `(setsid sh -c '(sleep 1000 & echo $! > %s)' &) ; `

// alive is not true of a zombie: who reaps orphans is up to the machine.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

func readPID(t *testing.T, path string) int {
	t.Helper()
	var pid int
	waitFor(t, "a process ID in "+path, func() bool {
		b, _ := os.ReadFile(path)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return pid > 0 && strings.HasSuffix(string(b), "\n")
	})
	return pid
}

func TestNothingSurvivesAnAttempt(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		dir := t.TempDir()
		c := dial(t, options(dir, mode))
		left := filepath.Join(dir, "left")
		e := runOne(t, c, shell(key(1), fmt.Sprintf(daemon, left)+"while ! test -s "+left+"; do sleep 0.01; done"))
		if e.Reason != plan.ReasonExited || e.ExitCode != 0 {
			t.Errorf("got %+v", e)
		}
		if pid := readPID(t, left); alive(pid) {
			t.Errorf("daemon %d lives on after the attempt's end was told", pid)
		}
		killed := filepath.Join(dir, "killed")
		start(t, c, shell(key(2), fmt.Sprintf(daemon, killed)+"sleep 1000"))
		pid := readPID(t, killed)
		if err := c.Kill(t.Context(), key(2), plan.ReasonCanceled); err != nil {
			t.Fatal(err)
		}
		if e := nextExit(t, c); e.Reason != plan.ReasonCanceled || alive(pid) {
			t.Errorf("daemon alive %v, got %+v", alive(pid), e)
		}
	})
}

func TestAForkBombIsKilled(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		dir := t.TempDir()
		c := dial(t, options(dir, mode))
		// Every process starts another one and ends: what is seen is gone.
		script := `f() { (sleep 0.002; f) & exit 0; }; touch ` + dir + `/begun; f & f & wait; sleep 1000`
		start(t, c, shell(key(1), script))
		waitFor(t, "the first forks", func() bool { _, err := os.Stat(dir + "/begun"); return err == nil })
		if err := c.Kill(t.Context(), key(1), plan.ReasonCanceled); err != nil {
			t.Fatal(err)
		}
		if e := nextExit(t, c); e.Reason != plan.ReasonCanceled {
			t.Errorf("got %+v", e)
		}
	})
}

func TestAKnownAttemptIsNotStartedAgain(t *testing.T) {
	dir := t.TempDir()
	c := dial(t, options(dir, ""))
	spec := shell(key(1), "echo x >> "+dir+"/count; sleep 1000")
	start(t, c, spec)
	if err := c.Start(t.Context(), spec); !errors.Is(err, runtime.ErrDuplicate) {
		t.Errorf("while it runs: %v", err)
	}
	waitFor(t, "the command to run", func() bool { b, _ := os.ReadFile(dir + "/count"); return len(b) > 0 })
	if err := c.Kill(t.Context(), key(1), plan.ReasonCanceled); err != nil {
		t.Fatal(err)
	}
	nextExit(t, c)
	if err := c.Start(t.Context(), spec); !errors.Is(err, runtime.ErrDuplicate) {
		t.Errorf("after its end: %v", err)
	}
	if b, _ := os.ReadFile(dir + "/count"); string(b) != "x\n" {
		t.Errorf("ran as often as %q", b)
	}
	if err := c.Kill(t.Context(), key(99), plan.ReasonCanceled); err != nil {
		t.Errorf("killing what does not run: %v", err)
	}
}

// TestASupervisorIsKilledAsItStarts: another is started, but not for ever. One that
// ends by itself has a reason, which is told at once.
func TestASupervisorIsKilledAsItStarts(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		starts       int
		err          string
	}{
		{"twice", `[ $(wc -l < starts) -gt 2 ] || kill -9 $$`, 3, ""},
		{"always", `kill -9 $$`, 11, "signal: killed"},
		{"it ends by itself", `exit 3`, 1, "exit status 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options(t.TempDir(), "")
			script := "#!/bin/sh\necho started >> starts\n" + tt.script + "\nexec " + o.Executable + " \"$@\"\n"
			o.Executable = filepath.Join(t.TempDir(), "supervisor")
			if err := os.WriteFile(o.Executable, []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			c, err := runtime.Dial(t.Context(), o)
			if err == nil {
				stopAtEnd(t, o)
				c.Close()
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if b, _ := os.ReadFile(filepath.Join(o.Dir, "starts")); strings.Count(string(b), "\n") != tt.starts {
				t.Errorf("it was started %d times, want %d", strings.Count(string(b), "\n"), tt.starts)
			}
		})
	}
}

func TestInvalidSpecsAreRefused(t *testing.T) {
	c := dial(t, options(t.TempDir(), ""))
	for name, spec := range map[string]runtime.Spec{
		"no command":  {Key: key(1)},
		"NUL":         {Key: key(1), Argv: []string{"a\x00b"}},
		"not UTF-8":   {Key: key(1), Argv: []string{"a"}, Env: []string{"\xff=1"}},
		"too large":   {Key: key(1), Argv: []string{strings.Repeat("x", 2<<20)}},
		"negative":    {Key: key(1), Argv: []string{"a"}, Timeout: -1},
		"empty argv0": {Key: key(1), Argv: []string{""}},
	} {
		if err := c.Start(t.Context(), spec); !errors.Is(err, runtime.ErrInvalidSpec) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if e := runOne(t, c, shell(key(1), "true")); e.Reason != plan.ReasonExited {
		t.Errorf("a refused key stays free: %+v", e)
	}
}

func TestAttemptsRunAsAnotherUser(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	o := options(dir, "")
	o.User = "65534:65534"
	c := dial(t, o)
	e := runOne(t, c, shell(key(1), `id -u; id -g; id -G; grep NoNewPrivs /proc/self/status; umask
		touch mine && echo wrote; echo again > /dev/stderr
		cat `+dir+`/supervisor.journal; ls `+dir+`/output; touch `+dir+`/x; touch ../x`))
	want := "65534\n65534\n65534\nNoNewPrivs:\t1\n0022\nwrote\n"
	if string(e.Stdout) != want {
		t.Errorf("got %q\nwant %q\nstderr: %s", e.Stdout, want, e.Stderr)
	}
	if n := strings.Count(string(e.Stderr), "Permission denied"); n != 4 {
		t.Errorf("%d of 4 accesses refused:\n%s", n, e.Stderr)
	}
}

func TestListAndForget(t *testing.T) {
	c := dial(t, options(t.TempDir(), ""))
	start(t, c, shell(key(1), "sleep 1000"))
	for n := uint64(2); n < 150; n++ {
		runOne(t, c, shell(key(n), "echo some output"))
	}
	running, ended, err := c.List(t.Context())
	if err != nil || len(running) != 1 || running[0].Key != key(1) || len(ended) != 148 {
		t.Fatalf("%d run, %d ended, %v", len(running), len(ended), err)
	}
	keys := []plan.Key{key(1)} // runs: is kept
	for _, e := range ended {
		keys = append(keys, e.Key)
	}
	if err := c.Forget(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	running, ended, err = c.List(t.Context())
	if err != nil || len(running) != 1 || len(ended) != 0 {
		t.Fatalf("%d run, %d ended, %v", len(running), len(ended), err)
	}
}
