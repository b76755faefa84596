package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rota/agent/plan"
	"rota/agent/runtime"
)

func homeOf(o runtime.Options, trajectory uint64) string {
	return filepath.Join(o.Dir, "trajectories", fmt.Sprintf("trajectory-%d", trajectory))
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// mustRun fails the test if the script does.
func mustRun(t *testing.T, c *runtime.Client, spec runtime.Spec) string {
	t.Helper()
	e := runOne(t, c, spec)
	if e.Reason != plan.ReasonExited || e.ExitCode != 0 {
		t.Errorf("%s: %+v, stderr %s", spec.Argv, e, e.Stderr)
	}
	return string(e.Stdout)
}

// another is the supervisor after one that was stopped, and whose ends were reported.
func another(t *testing.T, c *runtime.Client, o runtime.Options) *runtime.Client {
	t.Helper()
	_, ended, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range ended {
		if err := c.Forget(t.Context(), []plan.Key{e.Key}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	return dial(t, o)
}

// The actions of a trajectory have one directory, which no other trajectory's has.
func TestFilesOfATrajectoryLast(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		o := options(t.TempDir(), mode)
		c := dial(t, o)
		mustRun(t, c, inTrajectory(1, 7, `test "$PWD" = "$ROTA_TRAJECTORY_DIR" && test "$HOME" = "$PWD" && echo one > file && mkdir sub`))
		if got := mustRun(t, c, inTrajectory(2, 7, "cat file")); got != "one\n" {
			t.Errorf("the second action read %q", got)
		}
		below := inTrajectory(3, 7, `echo two > here; pwd; echo $ROTA_TRAJECTORY_DIR`)
		below.Dir = "sub/new/deep"
		home := homeOf(o, 7)
		if got := mustRun(t, c, below); got != home+"/sub/new/deep\n"+home+"\n" {
			t.Errorf("below: %q", got)
		}
		mustRun(t, c, inTrajectory(4, 7, "grep two sub/new/deep/here"))
		mustRun(t, c, inTrajectory(5, 8, "! test -e file"))
		outside := shell(key(6), "! test -e file && test -z \"$ROTA_TRAJECTORY_DIR\"")
		mustRun(t, c, outside)
		// A supervisor that starts anew finds them.
		c = another(t, c, o)
		mustRun(t, c, inTrajectory(7, 7, "grep one file"))
	})
}

// Directories go with their trajectories: when they are missing from two lists, and nothing of
// theirs runs.
func TestDirectoriesOfClosedTrajectoriesAreRemoved(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		o := options(t.TempDir(), mode)
		c := dial(t, o)
		keep := func(open ...uint64) {
			t.Helper()
			if err := c.KeepTrajectories(t.Context(), open); err != nil {
				t.Fatal(err)
			}
		}
		mustRun(t, c, inTrajectory(1, 1, "mkdir -p a/b; touch a/b/c"))
		mustRun(t, c, inTrajectory(2, 2, "touch x"))
		start(t, c, inTrajectory(3, 3, "exec sleep 1000"))
		keep(2)
		if !there(homeOf(o, 1)) {
			t.Error("a directory is gone after one list")
		}
		mustRun(t, c, inTrajectory(4, 1, "touch again")) // 1 was opened after that list was made
		keep(2)
		keep(1, 2)
		keep(2)
		keep(2)
		waitFor(t, "the end of the directory", func() bool { return !there(homeOf(o, 1)) })
		if !there(homeOf(o, 2)) || !there(homeOf(o, 3)) {
			t.Error("the directory of an open trajectory, or of one that runs, is gone")
		}
		if err := c.Kill(t.Context(), key(3), plan.ReasonCanceled); err != nil {
			t.Fatal(err)
		}
		nextExit(t, c)
		keep(2)
		keep(2)
		waitFor(t, "the end of the directory of what ran", func() bool { return !there(homeOf(o, 3)) })
		mustRun(t, c, inTrajectory(5, 1, "! test -e again")) // it begins anew
	})
}

// A trajectory may put links into its directory. The supervisor, which may have more rights,
// makes nothing where they lead.
func TestLinksDoNotLeadOutOfATrajectory(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		o := options(t.TempDir(), mode)
		c := dial(t, o)
		mustRun(t, c, inTrajectory(1, 8, "true"))
		mustRun(t, c, inTrajectory(2, 7, "ln -s ../trajectory-8 other; ln -s /tmp absolute; mkdir real; ln -s real inside"))
		for n, dir := range []string{"other/made", "absolute/rota-made-through-a-link"} {
			spec := inTrajectory(uint64(10+n), 7, "true")
			spec.Dir = dir
			if e := runOne(t, c, spec); e.Reason != plan.ReasonStartFailed {
				t.Errorf("%s: %+v", dir, e)
			}
		}
		if there(filepath.Join(homeOf(o, 8), "made")) || there("/tmp/rota-made-through-a-link") {
			t.Error("a link led out of the directory")
		}
		spec := inTrajectory(20, 7, "true")
		spec.Dir = "inside/made"
		mustRun(t, c, spec)
		if !there(filepath.Join(homeOf(o, 7), "real", "made")) {
			t.Error("a link inside was not followed")
		}
	})
}

// With users of their own, trajectories cannot read each other's files, and each has the same
// user after a restart.
func TestDirectoriesOfTrajectoriesAreTheirs(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		o := isolated(t, mode)
		c := dial(t, o)
		uid := mustRun(t, c, inTrajectory(1, 7, "echo secret > file; id -u"))
		other := mustRun(t, c, inTrajectory(2, 8, fmt.Sprintf("! cat %s/file 2>/dev/null; id -u", homeOf(o, 7))))
		if uid == other || strings.Contains(other, "secret") {
			t.Errorf("users %q and %q", uid, other)
		}
		c = another(t, c, o)
		if got := mustRun(t, c, inTrajectory(3, 7, "cat file >/dev/null && touch more && id -u")); got != uid {
			t.Errorf("it was user %s, and is %s", uid, got)
		}
	})
}
