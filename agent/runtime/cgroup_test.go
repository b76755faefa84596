package runtime

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"rota/internal/need"
)

// TestABaseIsMadeWhileOthersEnd: the last supervisor of a parent takes it away, and
// another that starts meanwhile must not go without a cgroup for it.
func TestABaseIsMadeWhileOthersEnd(t *testing.T) {
	need.Cgroup(t)
	const parent = "rota-come-and-go"
	var supervisors sync.WaitGroup
	for s := range 2 {
		supervisors.Go(func() {
			for range 300 {
				mounts, err := findHierarchies()
				if err != nil {
					t.Error(err)
					return
				}
				for _, h := range mounts {
					if !wanted(h, "", true) {
						continue
					}
					if err := h.setup(parent, fmt.Sprint("s", s)); err != nil {
						t.Error(err)
						return
					}
					_ = syscall.Rmdir(h.base)
					_ = syscall.Rmdir(filepath.Join(h.mount, parent)) // the other may be in it
				}
			}
		})
	}
	supervisors.Wait()
}

// TestABoxPassesOverWhatIsLeft: a cgroup that could not be removed keeps no attempt from its start.
func TestABoxPassesOverWhatIsLeft(t *testing.T) {
	need.Cgroup(t)
	c, err := newCgroups(SuperviseOptions{Dir: t.TempDir(), CgroupParent: "rota-left-" + strconv.Itoa(os.Getpid())})
	if err != nil || c == nil {
		t.Fatal("no cgroups: ", err)
	}
	defer func() { c.leaveSupervisor(); c.removeBases() }()
	last := c.hierarchies()[len(c.hierarchies())-1]
	left := filepath.Join(last.base, "a1")
	if err := os.Mkdir(left, 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := c.makeBox()
	if err != nil {
		t.Fatal(err)
	}
	defer b.remove()
	if !exists(left) || b.dir(last) == left {
		t.Error("what was left was taken for the box")
	}
	_ = syscall.Rmdir(left)
}

// TestMemoryIsLimitedFromTheFork: the supervisor may be held up after the fork, and a command that is
// fast enough must not have more memory meanwhile.
func TestMemoryIsLimitedFromTheFork(t *testing.T) {
	need.Cgroup(t)
	c, err := newCgroups(SuperviseOptions{Dir: t.TempDir(), CgroupParent: "rota-limited-" + strconv.Itoa(os.Getpid()), ProcessesMax: 100})
	if err != nil || c == nil {
		t.Fatal("no cgroups: ", err)
	}
	defer func() { c.leaveSupervisor(); c.removeBases() }()
	if c.holder("memory") == nil {
		t.Skip("this machine has no memory controller")
	}
	b, err := c.makeBox()
	if err != nil {
		t.Fatal(err)
	}
	defer b.remove()
	if err := b.limit(&Spec{MemoryBytes: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	cmd := exec.Command("dd", "if=/dev/zero", "of=/dev/null", "bs=400M", "count=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	b.attr(cmd.SysProcAttr)
	if err := b.enter(); err != nil {
		t.Fatal(err)
	}
	err = cmd.Start()
	if err := errors.Join(err, b.leave()); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || b.usage().oomKills == 0 {
		t.Errorf("400 MiB of 64 were had before arm: %v, %+v", err, b.usage())
	}
}

// TestWhatCannotBeReadIsNotEmpty: a daemon would run on, on the CPUs of another attempt.
func TestWhatCannotBeReadIsNotEmpty(t *testing.T) {
	base := t.TempDir()
	b := &cgroupBox{all: &cgroups{v2: &hierarchy{v2: true, base: base}}, name: "a1"}
	events := filepath.Join(base, "a1", "cgroup.events")
	for _, step := range []struct {
		what  string
		do    func() error
		empty bool
	}{
		{"no cgroup", func() error { return nil }, true},
		{"unreadable", func() error { return os.MkdirAll(events, 0o755) }, false},
		{"populated", func() error {
			return errors.Join(os.Remove(events), os.WriteFile(events, []byte("populated 1\nfrozen 0\n"), 0o600))
		}, false},
		{"not populated", func() error { return os.WriteFile(events, []byte("populated 0\nfrozen 0\n"), 0o600) }, true},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if b.empty() != step.empty {
			t.Errorf("%s: empty is %v", step.what, !step.empty)
		}
	}
}
