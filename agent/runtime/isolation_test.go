package runtime_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/internal/need"
)

// isolated is a supervisor that keeps attempts apart.
func isolated(t testing.TB, mode string) runtime.Options {
	t.Helper()
	need.Root(t)
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	o := options(dir, mode)
	first := 300000 + 100*ranges.Add(1)
	o.AttemptUIDs, o.Namespaces = fmt.Sprintf("%d-%d", first, first+99), runtime.On
	return o
}

// ranges counts the ranges of users that tests have.
var ranges atomic.Int64

// lacks says whether the supervisor says that it cannot do something.
func lacks(c *runtime.Client, what string) bool {
	return strings.Contains(strings.Join(c.Describe().NotEnforced, "; "), what)
}

// inTrajectory is an attempt of a trajectory.
func inTrajectory(n uint64, trajectory uint64, script string) runtime.Spec {
	spec := shell(key(n), script)
	spec.Trajectory = trajectory
	return spec
}

// A command that does all it can to find others on its node finds none: not their
// processes, files, output or environment, and kills none.
func TestAttemptsDoNotReachEachOther(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		o := isolated(t, mode)
		c := dial(t, o)
		if lacks(c, "uid") || lacks(c, "namespaces") {
			t.Fatalf("it says %q", c.Describe().NotEnforced)
		}
		victim := shell(key(1), `echo secret > mine; echo secret > /tmp/secret; echo secret > /dev/shm/secret; echo secret; echo ready; exec sleep 1000`)
		victim.Env = append(victim.Env, "SECRET=secret")
		start(t, c, victim)
		out := runtime.OutputPath(o.Dir, key(1), runtime.Stdout)
		waitFor(t, "the victim", func() bool { b, _ := os.ReadFile(out); return strings.HasSuffix(string(b), "ready\n") })
		work := runtime.WorkDir(o.Dir, key(1))
		e := runOne(t, c, shell(key(2), fmt.Sprintf(`id -u; ls /proc | grep -c '^[0-9]'
			cat %s/mine %s /tmp/secret /dev/shm/secret /var/tmp/secret /proc/*/environ 2>/dev/null | grep -ac '=secret\|^secret'
			echo x >> %s && echo forged; ls /tmp /var/tmp %s; cat /proc/1/environ && echo read
			kill -9 -1`, work, out, out, work)))
		words := strings.Fields(string(e.Stdout))
		if len(words) < 3 || words[2] != "0" || slices.Contains(words, "forged") || slices.Contains(words, "read") || slices.Contains(words, "secret") {
			t.Errorf("the attacker found %q (%s)", e.Stdout, e.Stderr)
		}
		if running, _, err := c.List(t.Context()); err != nil || len(running) != 1 {
			t.Errorf("after kill -9 -1 %v runs, %v", running, err)
		}
		if b, _ := os.ReadFile(out); string(b) != "secret\nready\n" {
			t.Errorf("the victim's output is %q", b)
		}
	})
}

// What holds without namespaces of its own holds with them.
func TestAnIsolatedAttemptEndsAsAnyOther(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		o := isolated(t, mode)
		c := dial(t, o)
		for n, tt := range []struct {
			script string
			reason plan.Reason
			code   int
			signal int
		}{
			{"exit 42", plan.ReasonExited, 42, 0},
			{"kill -9 $$", plan.ReasonSignaled, 0, 9},
			{"kill -TERM $$", plan.ReasonSignaled, 0, 15},
			{"touch mine /tmp/mine /dev/shm/mine; test -O mine -a -O /tmp/mine; echo again > /dev/stderr", plan.ReasonExited, 0, 0},
			{"cat /proc/self/oom_score_adj | grep -x 500", plan.ReasonExited, 0, 0},
			// Whoever reads less than all of it ends a producer. What started the tests may ignore other signals.
			{"m=$(grep SigIgn /proc/self/status | cut -f 2); echo $m; exit $((0x$m & 0x1001))", plan.ReasonExited, 0, 0}, // SIGHUP, SIGPIPE
			{"test $(whoami 2>/dev/null || echo $USER) = rota", plan.ReasonExited, 0, 0},
			// Orphans are reaped: no zombie is left of what another process left.
			{"for i in 1 2 3; do (true &); done; sleep 0.1; ! grep -h 'State:.*Z' /proc/[0-9]*/status", plan.ReasonExited, 0, 0},
		} {
			e := runOne(t, c, shell(key(uint64(n)+1), tt.script))
			if e.Reason != tt.reason || e.ExitCode != tt.code || e.Signal != tt.signal {
				t.Errorf("%s: got %+v", tt.script, e)
			}
		}
		score, _ := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", c.Describe().PID))
		if strings.TrimSpace(string(score)) == "500" {
			t.Error("the supervisor kept the score of attempts")
		}
		e := runOne(t, c, shell(key(20), "(setsid sh -c '(sleep 1000 & ) &' ); echo done"))
		if e.Reason != plan.ReasonExited {
			t.Errorf("with something left behind: %+v", e)
		}
		if left := processesOf(o.AttemptUIDs); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		big := shell(key(21), eat(400))
		big.MemoryBytes = 64 << 20
		if e := runOne(t, c, big); !lacks(c, "memory limits") && e.Reason != plan.ReasonOutOfMemory {
			t.Errorf("out of memory: %+v", e)
		}
	})
}

// processesOf lists processes of a range of users.
func processesOf(uids string) (out []string) {
	var first, last int
	fmt.Sscanf(uids, "%d-%d", &first, &last)
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		status, _ := os.ReadFile(dir + "/status")
		var uid int
		if i := strings.Index(string(status), "Uid:"); i >= 0 {
			fmt.Sscan(string(status[i+4:]), &uid)
		}
		dead := strings.Contains(string(status), "State:\tZ") || strings.Contains(string(status), "State:\tX")
		if first <= uid && uid <= last && !dead {
			out = append(out, dir)
		}
	}
	return out
}

// Actions of one trajectory share a user and /tmp, also across a restart of the
// supervisor; no two owners that run have the same user.
func TestATrajectoryKeepsItsUserAndTmp(t *testing.T) {
	o := isolated(t, "")
	c := dial(t, o)
	uidOf := func(e plan.Exit) string { return strings.TrimSpace(string(e.Stdout)) }
	first := uidOf(runOne(t, c, inTrajectory(1, 7, "id -u; echo kept > /tmp/state")))
	other := uidOf(runOne(t, c, inTrajectory(2, 8, "id -u; cat /tmp/state 2>/dev/null")))
	single := uidOf(runOne(t, c, shell(key(3), "id -u; cat /tmp/state 2>/dev/null")))
	if first == other || single == first || single == other {
		t.Errorf("users %s, %s and %s", first, other, single)
	}
	if again := uidOf(runOne(t, c, inTrajectory(4, 7, "id -u; cat /tmp/state"))); again != first+"\nkept" {
		t.Errorf("later, of the same trajectory: %q, first %s", again, first)
	}
	if err := c.Forget(t.Context(), []plan.Key{key(1), key(2), key(3), key(4)}); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c = dial(t, o)
	for n := uint64(5); n < 205; n++ { // twice the range
		if uid := uidOf(runOne(t, c, shell(key(n), "id -u"))); uid == first || uid == other {
			t.Fatalf("an attempt has the user %s of a trajectory", uid)
		}
	}
	if again := uidOf(runOne(t, c, inTrajectory(300, 7, "id -u; cat /tmp/state"))); again != first+"\nkept" {
		t.Errorf("after a restart: %q, first %s", again, first)
	}
}

// When the range is used up, trajectories that run nothing make room, and then
// attempts fail with a sentence.
func TestUsersCanRunOut(t *testing.T) {
	o := isolated(t, "")
	o.AttemptUIDs = "399000-399001"
	c := dial(t, o)
	runOne(t, c, inTrajectory(1, 7, "true"))
	start(t, c, shell(key(2), "sleep 1000"))
	start(t, c, shell(key(3), "sleep 1000"))
	waitFor(t, "both users to be taken", func() bool {
		return len(processesOf("399000-399000")) > 0 && len(processesOf("399001-399001")) > 0
	})
	if e := runOne(t, c, shell(key(4), "true")); e.Reason != plan.ReasonStartFailed || !strings.Contains(e.Message, "--attempt-uids") {
		t.Errorf("got %+v", e)
	}
}

// A directory that a command names stays where it is, even below /tmp. What it may do
// there is up to its permissions.
func TestANamedDirectoryIsSeen(t *testing.T) {
	o := isolated(t, "")
	c := dial(t, o)
	dir, err := os.MkdirTemp("/tmp", "named")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o1777); err != nil {
		t.Fatal(err)
	}
	spec := shell(key(1), "pwd; touch made && stat -c %u made; ls /tmp | wc -l")
	spec.Dir = dir
	e := runOne(t, c, spec)
	var first, last, uid uint32
	fmt.Sscanf(o.AttemptUIDs, "%d-%d", &first, &last)
	fmt.Sscanf(strings.TrimPrefix(string(e.Stdout), dir+"\n"), "%d", &uid)
	if !strings.HasPrefix(string(e.Stdout), dir+"\n") || uid < first || uid > last || !exists(filepath.Join(dir, "made")) {
		t.Errorf("got %q %+v", e.Stdout, e)
	}
}

// What a command names below /tmp is reached with the rights of its user, and of nobody else: a directory on the way
// that this user may not enter keeps it out, as it would anywhere else.
func TestWhatIsNamedIsReachedAsTheAttemptsUser(t *testing.T) {
	o := isolated(t, "")
	c := dial(t, o)
	top, err := os.MkdirTemp("/tmp", "named")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	inside, program, link := filepath.Join(top, "way", "inside"), filepath.Join(top, "way", "inside", "program"), filepath.Join(top, "link")
	if err := errors.Join(os.Chmod(top, 0o755), os.MkdirAll(inside, 0o755), os.Chmod(inside, 0o777), os.Symlink(inside, link),
		os.WriteFile(program, []byte("#!/bin/sh\necho ran\n"), 0o755), os.Chmod(program, 0o755)); err != nil {
		t.Fatal(err)
	}
	number := uint64(0)
	for _, way := range []os.FileMode{0o755, 0o700, 0o750} {
		if err := os.Chmod(filepath.Dir(inside), way); err != nil {
			t.Fatal(err)
		}
		for _, trajectory := range []uint64{0, 7} {
			for _, named := range []struct{ dir, program string }{{dir: inside}, {dir: link}, {program: program}, {program: filepath.Join(link, "program")}} {
				number++
				spec := inTrajectory(number, trajectory, "echo ran")
				spec.Dir = named.dir
				if named.program != "" {
					spec.Argv = []string{named.program}
				}
				e := runOne(t, c, spec)
				if way == 0o755 && (e.Reason != plan.ReasonExited || string(e.Stdout) != "ran\n") {
					t.Errorf("%+v, trajectory %d, behind a directory that is open to all: %+v", named, trajectory, e)
				}
				if way != 0o755 && (e.Reason != plan.ReasonStartFailed || len(e.Stdout) > 0) {
					t.Errorf("%+v, trajectory %d, behind a directory of mode %o of root: %+v", named, trajectory, way, e)
				}
			}
		}
	}
}

// The directories of a trajectory are there for its attempts, also when a command names one of them.
func TestADirectoryOfTheTrajectoryCanBeNamed(t *testing.T) {
	o := isolated(t, "")
	if err := os.Chmod(filepath.Dir(o.Dir), 0o700); err != nil { // nobody else comes this way
		t.Fatal(err)
	}
	c := dial(t, o)
	runOne(t, c, inTrajectory(1, 7, "mkdir -p sub; echo kept > sub/file"))
	spec := inTrajectory(2, 7, "cat file")
	spec.Dir = filepath.Join(runtime.TrajectoryDir(o.Dir, 7), "sub")
	if e := runOne(t, c, spec); string(e.Stdout) != "kept\n" {
		t.Errorf("got %+v", e)
	}
	spec = inTrajectory(3, 7, "cat file")
	spec.Dir = "sub"
	if e := runOne(t, c, spec); string(e.Stdout) != "kept\n" {
		t.Errorf("got %+v", e)
	}
}

// Nothing of an isolated attempt survives the death of its supervisor.
func TestIsolatedAttemptsDieWithTheirSupervisor(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		o := isolated(t, mode)
		c := dial(t, o)
		start(t, c, shell(key(1), "(setsid env -i sh -c '(sleep 1000 &) & sleep 1000') & sleep 1000"))
		waitFor(t, "its processes", func() bool { return len(processesOf(o.AttemptUIDs)) >= 4 })
		kill(t, c.Describe().PID, syscall.SIGKILL)
		c = dial(t, o)
		if e := nextExit(t, c); e.Reason != plan.ReasonSupervisorLost {
			t.Errorf("got %+v", e)
		}
		if left := processesOf(o.AttemptUIDs); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}
