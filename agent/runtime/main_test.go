package runtime_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/internal/clock"
)

// cgroupParent keeps the tests' cgroups apart from any real agent's.
var cgroupParent = "rota-test-" + strconv.Itoa(os.Getpid())

// leftover is an environment variable whose value marks every process that the
// tests have attempts start, so that one that escapes is found.
const leftover = "ROTA_RUNTIME_TEST"

// TestMain makes the test binary its own supervisor and its own attempts: what
// it does is in its first argument.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if os.Args[1] == "supervise" {
			os.Exit(superviseMain(os.Args[2:]))
		}
		if helper, ok := helpers[os.Args[1]]; ok {
			helper(os.Args[2:])
			os.Exit(0)
		}
	}
	code := m.Run()
	if left := leftBehind(); len(left) > 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "tests left behind:\n%s\n", strings.Join(left, "\n"))
		code = 1
	}
	os.Exit(code)
}

// noLauncher is a file in the directory of a supervisor which is to be one of a machine without the launcher.
const noLauncher = "no-launcher"

func superviseMain(args []string) int {
	opts, err := runtime.ParseSuperviseArgs(args)
	if err == nil {
		if _, err := os.Stat(filepath.Join(opts.Dir, noLauncher)); err == nil {
			runtime.WithoutLauncher()
		}
		err = runtime.Supervise(context.Background(), opts)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// helpers are commands for attempts, for what no shell does reliably.
var helpers = map[string]func(args []string){
	// helper-burn uses so much CPU time.
	"helper-burn": func(args []string) {
		d, _ := time.ParseDuration(args[0])
		for {
			var ru syscall.Rusage
			syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
			if time.Duration(ru.Utime.Nano()) >= d {
				return
			}
		}
	},
	// helper-write writes so many numbered lines of 100 bytes.
	"helper-write": func(args []string) {
		n, _ := strconv.Atoi(args[0])
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%099d\n", i)
			if b.Len() > 1<<16 || i == n-1 {
				os.Stdout.WriteString(b.String())
				b.Reset()
			}
		}
	},
	// helper-client is an agent that starts an attempt, waits for the line that it
	// writes to a file, if any, sets a deadline so far from now, says so, and waits.
	"helper-client": clientMain,
	"helper-unprivileged": func(args []string) {
		if err := unprivilegedMain(args[0]); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	},
}

// clientMain is another process that uses the supervisor of a directory.
func clientMain(args []string) {
	ctx := context.Background()
	c, err := runtime.Dial(ctx, options(args[0], args[1]))
	if err == nil {
		err = c.Start(ctx, shell(plan.Key{Action: 1, Attempt: 1, Incarnation: 1}, args[2]))
	}
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	for written := args[4]; written != ""; time.Sleep(2 * time.Millisecond) {
		if text, _ := os.ReadFile(written); strings.HasSuffix(string(text), "\n") {
			break
		}
	}
	if after, _ := time.ParseDuration(args[3]); after > 0 {
		if err := c.SetDeadline(ctx, clock.Boottime()+int64(after)); err != nil {
			fmt.Println("error:", err)
			return
		}
	}
	fmt.Println("ready")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
}

func options(dir, mode string) runtime.Options {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return runtime.Options{Executable: exe, SuperviseOptions: runtime.SuperviseOptions{
		Dir: dir, Mode: mode, CgroupParent: parentOf(), Linger: time.Minute,
	}}
}

// parentOf is the same in the processes that a test starts.
func parentOf() string {
	if p := os.Getenv(leftover + "_PARENT"); p != "" {
		return p
	}
	return cgroupParent
}

// shell is an attempt that runs a shell script.
func shell(k plan.Key, script string) runtime.Spec {
	return runtime.Spec{
		Key:  k,
		Argv: []string{"sh", "-c", script},
		Env:  []string{leftover + "=" + parentOf()},
	}
}

// self is an attempt that runs a helper of this binary.
func self(t testing.TB, k plan.Key, args ...string) runtime.Spec {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return runtime.Spec{Key: k, Argv: append([]string{exe}, args...), Env: []string{leftover + "=" + parentOf()}}
}

// leftBehind lists supervisors, attempts and cgroups that outlived the tests. Tests kill
// supervisors, and one that is killed while it starts leaves empty cgroups until the next one
// of its directory comes: those of one supervisor are removed here and are no failure.
func leftBehind() []string {
	deadline := time.Now().Add(20 * time.Second)
	for {
		processes, cgroups := markedProcesses(), cgroupsLeft()
		if len(processes)+len(cgroups) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			if len(processes) == 0 && ofOneSupervisor(cgroups) {
				removeCgroups(cgroups)
				cgroups = cgroupsLeft()
			}
			return append(processes, cgroups...)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// ofOneSupervisor says whether cgroups of the tests are those of a single supervisor, whose
// name is the same in every hierarchy.
func ofOneSupervisor(parents []string) bool {
	names := make(map[string]bool)
	for _, parent := range parents {
		children, err := os.ReadDir(parent)
		if err != nil {
			return false
		}
		for _, c := range children {
			if c.IsDir() {
				names[c.Name()] = true
			}
		}
	}
	return len(names) <= 1
}

// removeCgroups removes cgroups from the inside out. The kernel keeps those in which something
// runs.
func removeCgroups(parents []string) {
	for _, parent := range parents {
		var dirs []string
		filepath.WalkDir(parent, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			syscall.Rmdir(dir)
		}
	}
}

// markedProcesses lists the attempts' processes that are alive.
func markedProcesses() []string {
	var out []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		env, _ := os.ReadFile(filepath.Join(d, "environ"))
		cmd, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		own := strings.Contains(string(env), leftover+"="+cgroupParent+"\x00")
		supervisor := strings.Contains(string(cmd), "--cgroup-parent="+cgroupParent+"\x00")
		if own || supervisor {
			out = append(out, d+" "+strings.ReplaceAll(string(cmd), "\x00", " "))
		}
	}
	return out
}

func cgroupsLeft() []string {
	var out []string
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == cgroupParent {
			out = append(out, path)
			return fs.SkipDir
		}
		return nil
	})
	return out
}

// startClient runs helper-client and returns once it is ready.
func startClient(t *testing.T, dir, mode, script string, deadline time.Duration, written string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "helper-client", dir, mode, script, deadline.String(), written)
	cmd.Env = append(os.Environ(), leftover+"_PARENT="+cgroupParent)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line := make([]byte, 256)
	n, _ := out.Read(line)
	if got := strings.TrimSpace(string(line[:n])); got != "ready" {
		t.Fatalf("client said %q", got)
	}
	return cmd
}
