package runtime

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"rota/agent/plan"
	"rota/internal/need"
)

// Root in a sandbox may give the directory of its trajectory to anybody. The next supervisor must
// neither run anything as that user nor take the number from who has it.
func TestASandboxTakesNobodysUser(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	homes := filepath.Join(dir, "trajectories")
	for path, uid := range map[string]int{
		"trajectories/trajectory-1": 70001, // contained: 70001 is the user of 2
		"trajectories/trajectory-2": 70001,
		"trajectories/trajectory-3": 0, // contained
		"sandboxes/1":               0,
		"sandboxes/3":               0,
	} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(dir, path), uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	o, err := newOwners("", homes, uidRange{70001, 70002}, nil, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	// Nobody else reaches what root in a sandbox has opened to all.
	if st, err := os.Stat(homes); err != nil || st.Mode().Perm() != 0o710 || st.Sys().(*syscall.Stat_t).Gid != 70001 {
		t.Errorf("the directories of trajectories are open: %v, %v", st, err)
	}
	for _, id := range []uint64{1, 3} {
		if w, err := o.take(&Spec{Trajectory: id}); err == nil {
			t.Errorf("a command of trajectory %d runs outside of its sandbox as %+v", id, w.user)
		}
		if _, err := o.take(&Spec{Trajectory: id, Sandbox: &Sandbox{}}); err != nil {
			t.Error(err)
		}
		call, err := o.take(&Spec{Trajectory: id, Call: true})
		if err != nil || call.user.uid != 70002 || call.home != "" {
			t.Errorf("an HTTP call of trajectory %d is made as %+v, %v", id, call, err)
		}
		o.give(call)
	}
	own, err := o.take(&Spec{Trajectory: 2})
	if err != nil || own.user.uid != 70001 || !slices.Equal(own.groups, []uint32{70001}) {
		t.Fatalf("trajectory 2 has %+v, %v", own.user, err)
	}
	o.give(owner{trajectory: 1})
	o.mu.Lock()
	o.drop(1, o.trajectories[1])
	o.mu.Unlock()
	for range 2 {
		if w, err := o.take(&Spec{Trajectory: 4}); err != nil || w.user.uid != 70002 {
			t.Errorf("another trajectory has %+v, %v", w.user, err)
		}
	}
	if w, err := o.take(&Spec{}); err == nil {
		t.Errorf("no user is free, and an attempt has %+v", w.user)
	}
}

// A directory of a trajectory that root in a sandbox gives to the user of another one takes no directory
// from that, whichever is found first. A sandbox in which nothing has run shares its user with no other.
func TestASandboxTakesNobodysDirectory(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	for path, uid := range map[string]int{"trajectories/trajectory-1": 70001, "sandboxes/1": 0, "trajectories/trajectory-2": 70001,
		"trajectories/trajectory-3": 70002, "sandboxes/3": 0} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, path), 0o700), os.Chown(filepath.Join(dir, path), uid, uid)); err != nil {
			t.Fatal(err)
		}
	}
	o, err := newOwners("", filepath.Join(dir, "trajectories"), uidRange{70001, 70002}, nil, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	for id, contained := range map[uint64]bool{1: true, 2: false, 3: true} {
		if got := o.trajectories[id]; got == nil || got.contained != contained {
			t.Errorf("trajectory %d: %+v", id, got)
		}
		if _, err := os.Stat(filepath.Join(dir, "trajectories", trajectoryPrefix+strconv.FormatUint(id, 10))); err != nil {
			t.Error(err)
		}
	}
	if !o.used[70002] {
		t.Error("the user of trajectory 3 is free")
	}
	o.drop(1, o.trajectories[1])
	o.drop(3, o.trajectories[3])
	if !o.used[70001] || o.used[70002] {
		t.Errorf("users after the end of the sandboxes: %v", o.used)
	}
	o.close()
}

// A supervisor does not know which trajectories are open until the agent has said so.
func TestAnIdleTrajectoryOutlivesItsSupervisor(t *testing.T) {
	dir := t.TempDir()
	homes := filepath.Join(dir, "trajectories")
	home, long := filepath.Join(homes, "trajectory-7"), time.Now().Add(-3*trajectoryKeep)
	if err := errors.Join(os.MkdirAll(home, 0o700), os.Chtimes(home, long, long)); err != nil {
		t.Fatal(err)
	}
	o, err := newOwners("", homes, uidRange{}, nil, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	o.sweep(time.Now())
	o.sweep(time.Now().Add(trajectoryKeep - time.Minute))
	if !exists(home) {
		t.Error("it was dropped before the agent can have said that it is open")
	}
	o.sweep(time.Now().Add(trajectoryKeep + time.Minute))
	if exists(home) {
		t.Error("it was kept for ever")
	}
}

// Nothing that an attempt puts into its own /tmp holds up who makes places for mounts there, which is
// the thread that forks.
func TestAFIFOIsNoPlaceToWait(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	made := make(chan error, 1)
	go func() {
		f, err := makePlace(root, "fifo", false)
		if err == nil {
			err = f.Close()
		}
		made <- err
	}()
	select {
	case err := <-made:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for somebody to open the other end")
	}
}

// A snapshot of a trajectory waits for what has started, also before it has its directories.
func TestAnAttemptCountsFromItsStart(t *testing.T) {
	s := &supervisor{attempts: map[plan.Key]*attempt{}}
	for n, spec := range []Spec{{Trajectory: 7}, {Trajectory: 7}, {Trajectory: 7, Call: true}, {Trajectory: 8}} {
		s.attempts[plan.Key{Action: uint64(n)}] = newAttempt(&spec)
	}
	s.attempts[plan.Key{Action: 1}].ended = new(plan.Exit)
	if n := s.runningIn(7); n != 1 {
		t.Errorf("%d attempts run", n)
	}
}
