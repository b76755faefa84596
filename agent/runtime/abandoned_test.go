package runtime

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"rota/internal/need"
)

// TestAbandonedCgroupsAreRemoved: of supervisors that were killed, and not of one that lives or has
// left something running.
func TestAbandonedCgroupsAreRemoved(t *testing.T) {
	need.Cgroup(t)
	o := SuperviseOptions{CgroupParent: "rota-abandoned-" + strconv.Itoa(os.Getpid())}
	make := func() *cgroups {
		o.Dir = t.TempDir()
		c, err := newCgroups(o)
		if err != nil || c == nil {
			t.Fatal("no cgroups: ", err)
		}
		t.Cleanup(func() { c.leaveSupervisor(); c.removeBases() })
		return c
	}
	dead, busy, lives, mine := make(), make(), make(), make()
	running := exec.Command("sleep", "60")
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = running.Process.Kill(); _ = running.Wait() }()
	for _, c := range []*cgroups{dead, busy, lives} {
		box, err := c.makeBox()
		if err != nil {
			t.Fatal(err)
		}
		defer box.remove()
		for _, h := range c.ours() {
			if c != lives { // as if it were killed
				h.claimed.Close()
			}
		}
		if c == busy {
			if err := writeFile(filepath.Join(box.dir(c.hierarchies()[0]), "cgroup.procs"), strconv.Itoa(running.Process.Pid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	mine.removeAbandoned()
	for i, h := range mine.hierarchies() {
		parent := filepath.Dir(h.base)
		for c, there := range map[*cgroups]bool{dead: false, busy: i == 0, lives: true, mine: true} {
			if base := filepath.Join(parent, c.name); exists(base) != there {
				t.Errorf("%s: %t, want %t", base, exists(base), there)
			}
		}
	}
	if left := filepath.Join(lives.hierarchies()[0].base, "a1"); !exists(left) {
		t.Errorf("%s is gone, and its supervisor lives", left)
	}
}

// TestABaseThatIsRemovedIsMadeAgain: a supervisor that starts finds a base that another just removes.
func TestABaseThatIsRemovedIsMadeAgain(t *testing.T) {
	need.Cgroup(t)
	mounts, err := findHierarchies()
	if err != nil {
		t.Fatal(err)
	}
	h := mounts[0]
	if err := h.setup("rota-claimed-"+strconv.Itoa(os.Getpid()), "base"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Remove(h.base); _ = os.Remove(filepath.Dir(h.base)) }()
	if err := os.Remove(h.base); err != nil {
		t.Fatal(err)
	}
	if err := h.claim(); err == nil {
		t.Error("a base that is not there was claimed")
	}
}
