package runtime

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"rota/agent/internal/removal"
)

const (
	// trajectoriesMax is how many trajectories have a user and directories. It is twice what
	// the cluster places on a node.
	trajectoriesMax = 8192
	// trajectoryKeep is how long they keep them after their last attempt has ended, if
	// nobody says which trajectories are open.
	trajectoryKeep = 24 * time.Hour
	// trajectoryPrefix begins the names of a trajectory's directories.
	trajectoryPrefix = "trajectory-"
)

// owner is whom an attempt runs as, and the directories that it finds.
type owner struct {
	user       *userID  // nil: as the supervisor
	groups     []uint32 // besides that of the user
	tmp        string   // as /tmp; empty: that of the machine
	home       string   // the directory of its trajectory; empty: it has none
	trajectory uint64   // 0: this attempt only
}

// owners gives each attempt outside trajectories, each HTTP call, and each trajectory, a user and a
// /tmp. No two that run have the same user. A trajectory has a directory that lasts, too.
// What a supervisor knows of trajectories is on disk: their directories belong to their
// user, and are found again after a restart.
type owners struct {
	tmps   string // has the private /tmp directories; empty: none are made
	homes  string // has the directories of trajectories
	uids   uidRange
	shared *userID // where there is no range
	log    hclog.Logger
	began  time.Time
	tasks  sync.WaitGroup // removals

	mu           sync.Mutex
	next         uint32
	used         map[uint32]bool
	trajectories map[uint64]*trajectoryOwner
}

// trajectoryOwner is what a trajectory has on this node.
type trajectoryOwner struct {
	user *userID
	made bool // its directories are there
	// contained: user is whom its sandbox has given the directory to, and none of the range.
	contained bool
	// reserved: user is one of the range all the same, as nothing has run in the sandbox yet.
	reserved bool
	running  int
	at       time.Time // when the last attempt ended
	// open: the agent named it when it last said which trajectories are open. missing: it
	// did not, and no attempt has started since.
	open, missing bool
}

// newOwners finds the trajectories of earlier supervisors, and removes what attempts
// left. Without tmps no attempt has a /tmp of its own.
func newOwners(tmps, homes string, uids uidRange, shared *userID, log hclog.Logger) (*owners, error) {
	o := &owners{tmps: tmps, homes: homes, uids: uids, shared: shared, log: log, began: time.Now(), next: uids.somewhere(),
		used: make(map[uint32]bool), trajectories: make(map[uint64]*trajectoryOwner)}
	for _, dir := range o.places() {
		if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("make the place of directories of trajectories: %w", err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("find directories of trajectories: %w", err)
		}
		o.adoptAll(dir, entries)
	}
	return o, o.gate()
}

// adoptAll removes what it does not adopt. Trajectories with sandboxes come last: root in a sandbox may
// have named the user of another trajectory, which needs it.
func (o *owners) adoptAll(dir string, entries []os.DirEntry) {
	for _, contained := range []bool{false, true} {
		for _, e := range entries {
			id, isOne := trajectoryIn(e.Name())
			if contained != (isOne && o.contained(id)) {
				continue
			}
			if !isOne || !o.adopt(dir, id, e) {
				o.remove(filepath.Join(dir, e.Name()))
			}
		}
	}
}

// trajectoryIn is the trajectory that the name of a directory says.
func trajectoryIn(name string) (id uint64, ok bool) {
	number, ok := strings.CutPrefix(name, trajectoryPrefix)
	id, err := strconv.ParseUint(number, 10, 64)
	return id, ok && err == nil
}

// gate keeps the directories of trajectories from the other users of the machine. Root in a
// sandbox is root to files: it may open its directory to all, with a program in it that runs as
// root for whoever calls it. Attempts pass by a group.
func (o *owners) gate() error {
	group, mode := -1, os.FileMode(0o700)
	switch {
	case o.uids.any():
		group, mode = int(o.uids.first), 0o710
	case o.shared != nil:
		group, mode = int(o.shared.gid), 0o710
	}
	if err := errors.Join(os.Lchown(o.homes, -1, group), os.Chmod(o.homes, mode)); err != nil {
		return fmt.Errorf("keep the directories of trajectories from other users: %w", err)
	}
	return nil
}

// places are where trajectories have directories, each under the same name.
func (o *owners) places() []string {
	if o.tmps == "" {
		return []string{o.homes}
	}
	return []string{o.homes, o.tmps}
}

// adopt takes over a directory of a trajectory, if its user is one of ours.
func (o *owners) adopt(dir string, id uint64, e os.DirEntry) bool {
	st, err := e.Info()
	if err != nil || !st.IsDir() {
		return false
	}
	t := o.trajectories[id]
	uid := st.Sys().(*syscall.Stat_t).Uid
	switch {
	case t == nil && o.uids.any() && o.contained(id):
		reserved := o.uids.has(uid) && !o.used[uid]
		if reserved {
			o.used[uid] = true
		}
		o.trajectories[id] = &trajectoryOwner{user: &userID{uid, uid}, contained: true, reserved: reserved, at: st.ModTime()}
		return true
	case t != nil && o.uids.any() && t.user.uid != uid && !o.contained(id):
		return false
	case t != nil:
		return true
	}
	t = &trajectoryOwner{user: o.shared, at: st.ModTime()}
	if o.uids.any() {
		if !o.uids.has(uid) || o.used[uid] {
			return false
		}
		o.used[uid] = true
		t.user = &userID{uid, uid}
	}
	o.trajectories[id] = t
	return true
}

// contained reports whether a trajectory has a sandbox. Its directory belongs to the user there,
// who is none of the range.
func (o *owners) contained(id uint64) bool {
	return exists(filepath.Join(filepath.Dir(o.homes), SandboxesName, strconv.FormatUint(id, 10)))
}

// take returns the owner of an attempt that starts.
func (o *owners) take(spec *Spec) (owner, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if spec.Trajectory != 0 && !spec.Call {
		return o.takeTrajectory(spec.Trajectory, spec.Sandbox != nil)
	}
	user, err := o.free()
	if err != nil {
		return owner{}, err
	}
	w := owner{user: user}
	if o.tmps != "" {
		w.tmp = filepath.Join(o.tmps, spec.Key.String())
		if err := makeOwned(w.tmp, user); err != nil {
			o.release(user)
			return owner{}, fmt.Errorf("make private /tmp: %w", err)
		}
	}
	return w, nil
}

// takeTrajectory returns the owner of what starts in a trajectory, inside of its sandbox or not.
func (o *owners) takeTrajectory(id uint64, inside bool) (owner, error) {
	t := o.trajectories[id]
	if t != nil && t.contained && !inside {
		return owner{}, fmt.Errorf("trajectory %d has a sandbox, and nothing of it runs outside: upgrade the agent of the node", id)
	}
	if t == nil {
		if len(o.trajectories) >= trajectoriesMax {
			o.dropOldest()
		}
		user, err := o.free()
		if err != nil {
			return owner{}, err
		}
		t = &trajectoryOwner{user: user}
	}
	name := trajectoryPrefix + strconv.FormatUint(id, 10)
	if err := o.makePlaces(t, name); err != nil {
		if o.trajectories[id] == nil {
			o.release(t.user)
		}
		return owner{}, err
	}
	o.trajectories[id] = t
	t.running++
	t.missing = false
	w := owner{user: t.user, trajectory: id, home: filepath.Join(o.homes, name)}
	if o.uids.any() {
		w.groups = []uint32{o.uids.first} // see gate
	}
	if o.tmps != "" {
		w.tmp = filepath.Join(o.tmps, name)
	}
	return w, nil
}

// prepare makes the directories of a trajectory before its first attempt.
func (o *owners) prepare(id uint64) error {
	o.mu.Lock()
	w, err := o.takeTrajectory(id, true)
	o.mu.Unlock()
	if err == nil {
		o.give(w)
	}
	return err
}

// makePlaces makes what a trajectory does not have yet of its directories.
func (o *owners) makePlaces(t *trajectoryOwner, name string) error {
	if t.made {
		return nil
	}
	for _, dir := range o.places() {
		if err := makeOwned(filepath.Join(dir, name), t.user); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make a directory of the trajectory: %w", err)
		}
	}
	t.made = true
	return nil
}

// free returns a user that nothing runs as. The range is gone through in turn, so
// that what a user left somewhere is not soon another's.
func (o *owners) free() (*userID, error) {
	if !o.uids.any() {
		return o.shared, nil
	}
	if uint64(len(o.used)) >= o.uids.count() {
		o.dropOldest()
	}
	for range o.uids.count() {
		uid := o.next
		if o.next++; o.next > o.uids.last {
			o.next = o.uids.first
		}
		if !o.used[uid] {
			o.used[uid] = true
			return &userID{uid, uid}, nil
		}
	}
	return nil, fmt.Errorf("all %d users of --attempt-uids %s are in use; give the agent a larger range", o.uids.count(), o.uids)
}

func (o *owners) release(user *userID) {
	if user != nil && user != o.shared {
		delete(o.used, user.uid)
	}
}

// makeOwned makes a directory that belongs to a user.
func makeOwned(path string, user *userID) error {
	if err := os.Mkdir(path, workMode); err != nil || user == nil {
		return err
	}
	if err := os.Lchown(path, int(user.uid), int(user.gid)); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// give takes back what an attempt had, once nothing of it is alive.
func (o *owners) give(w owner) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if t := o.trajectories[w.trajectory]; w.trajectory != 0 && t != nil {
		t.running--
		t.at = time.Now()
		_ = os.Chtimes(w.home, t.at, t.at) // for the next supervisor
		return
	}
	o.release(w.user)
	if w.tmp != "" {
		o.remove(w.tmp)
	}
}

// keep is told all trajectories that are open on the node, and drops others. An attempt may
// start while the agent says what is open: so what is missing is dropped only if it is
// missing the next time, too, and nothing has started meanwhile.
func (o *owners) keep(open []uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	is := make(map[uint64]bool, len(open))
	for _, id := range open {
		is[id] = true
	}
	for id, t := range o.trajectories {
		if t.missing && !is[id] && t.running == 0 {
			o.drop(id, t)
		}
		t.open, t.missing = is[id], !is[id]
	}
}

// sweep drops trajectories that have not been seen for long, and of which nobody said that
// they are open. The agent says so some time after this supervisor has begun.
func (o *owners) sweep(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, t := range o.trajectories {
		if t.running == 0 && !t.open && now.Sub(t.at) > trajectoryKeep && now.Sub(o.began) > trajectoryKeep {
			o.drop(id, t)
		}
	}
}

// dropOldest drops the trajectory that has run nothing for longest, of those of which
// nobody said that they are open.
func (o *owners) dropOldest() {
	var oldest uint64
	for id, t := range o.trajectories {
		if t.running == 0 && !t.open && (oldest == 0 || t.at.Before(o.trajectories[oldest].at)) {
			oldest = id
		}
	}
	if oldest != 0 {
		o.drop(oldest, o.trajectories[oldest])
	}
}

// drop forgets a trajectory. Its user is free only when its directories have other
// names: what is found after a restart has users that nothing else has.
func (o *owners) drop(id uint64, t *trajectoryOwner) {
	delete(o.trajectories, id)
	if !t.contained || t.reserved { // root in a sandbox may have named the user of another trajectory
		o.release(t.user)
	}
	number := strconv.FormatUint(id, 10)
	for _, dir := range o.places() {
		path, gone := filepath.Join(dir, trajectoryPrefix+number), filepath.Join(dir, "dropped-"+number)
		unmount(path)
		if os.Rename(path, gone) == nil {
			path = gone
		}
		o.remove(path)
	}
}

// remove deletes in the background.
func (o *owners) remove(path string) {
	unmount(path)
	o.tasks.Go(func() {
		if err := removal.All(path); err != nil {
			o.log.Warn("directory of a trajectory or an attempt cannot be removed", "error", err)
		}
	})
}

// unmount ends what the agent has mounted at a directory of a trajectory, if it has. Its files go
// with the last who uses them.
func unmount(path string) {
	_ = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // mostly nothing is mounted there
}

func (o *owners) close() { o.tasks.Wait() }

// uidRange is the users that attempts run as; the group of each has the same number.
// The zero value is no range.
type uidRange struct{ first, last uint32 }

func (r uidRange) any() bool           { return r.first != 0 }
func (r uidRange) has(uid uint32) bool { return r.first <= uid && uid <= r.last }
func (r uidRange) count() uint64       { return uint64(r.last) - uint64(r.first) + 1 }

// somewhere is where a supervisor begins to give users out. Directories of the users that an earlier one
// gave out last may still be there: they are removed in the background.
func (r uidRange) somewhere() uint32 {
	if !r.any() {
		return 0
	}
	return r.first + uint32(rand.Uint64N(r.count()))
}

func (r uidRange) String() string { return fmt.Sprintf("%d-%d", r.first, r.last) }

// parseUIDs is the inverse of String.
func parseUIDs(text string) (uidRange, error) {
	first, last, ok := strings.Cut(text, "-")
	f, errF := strconv.ParseUint(first, 10, 32)
	l, errL := strconv.ParseUint(last, 10, 32)
	if !ok || errF != nil || errL != nil || f == 0 || l < f || l == 1<<32-1 {
		return uidRange{}, fmt.Errorf("%w: %q is no range of users, such as %s, without 0", ErrInvalidOptions, text, DefaultAttemptUIDs)
	}
	return uidRange{uint32(f), uint32(l)}, nil
}
