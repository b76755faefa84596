package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// trajectoriesMax is how many trajectories keep their user and their /tmp. It is
	// twice what the cluster places on a node.
	trajectoriesMax = 8192
	// trajectoryKeep is how long they keep them after their last attempt has ended.
	trajectoryKeep = 24 * time.Hour
	// trajectoryPrefix begins the name of a trajectory's /tmp.
	trajectoryPrefix = "trajectory-"
)

// owner is whom an attempt runs as, and the directory that it finds as /tmp.
type owner struct {
	user       *userID // nil: as the supervisor
	tmp        string  // empty: that of the machine
	trajectory uint64  // 0: this attempt only
}

// owners gives each attempt outside trajectories, and each trajectory, a user and a
// /tmp. No two that run have the same user. What a supervisor knows of trajectories
// is on disk: their /tmp belongs to their user, and is found again after a restart.
type owners struct {
	dir    string // of the private /tmp directories; empty: none are made
	uids   uidRange
	shared *userID // where there is no range
	log    hclog.Logger
	tasks  sync.WaitGroup // removals

	mu           sync.Mutex
	next         uint32
	used         map[uint32]bool
	trajectories map[uint64]*trajectoryOwner
}

// trajectoryOwner is what a trajectory has on this node.
type trajectoryOwner struct {
	user    *userID
	running int
	at      time.Time // when the last attempt ended
}

// newOwners finds the trajectories of earlier supervisors, and removes what attempts
// left.
func newOwners(dir string, uids uidRange, shared *userID, log hclog.Logger) (*owners, error) {
	o := &owners{dir: dir, uids: uids, shared: shared, log: log, next: uids.first,
		used: make(map[uint32]bool), trajectories: make(map[uint64]*trajectoryOwner)}
	if dir == "" {
		return o, nil
	}
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("make directory of private /tmp: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read directory of private /tmp: %w", err)
	}
	for _, e := range entries {
		if _, isKey := parseKey(e.Name()); isKey || !o.adopt(e) {
			o.remove(filepath.Join(dir, e.Name()))
		}
	}
	return o, nil
}

// adopt takes over the directory of a trajectory, if its user is one of ours.
func (o *owners) adopt(e os.DirEntry) bool {
	number, ok := strings.CutPrefix(e.Name(), trajectoryPrefix)
	id, err := strconv.ParseUint(number, 10, 64)
	st, statErr := e.Info()
	if !ok || err != nil || statErr != nil || !st.IsDir() {
		return false
	}
	t := &trajectoryOwner{user: o.shared, at: st.ModTime()}
	if o.uids.any() {
		uid := st.Sys().(*syscall.Stat_t).Uid
		if !o.uids.has(uid) || o.used[uid] {
			return false
		}
		o.used[uid] = true
		t.user = &userID{uid, uid}
	}
	o.trajectories[id] = t
	return true
}

// take returns the owner of an attempt that starts.
func (o *owners) take(spec *Spec) (owner, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if spec.Trajectory != 0 && (o.dir != "" || o.uids.any()) {
		return o.takeTrajectory(spec.Trajectory)
	}
	user, err := o.free()
	if err != nil {
		return owner{}, err
	}
	w := owner{user: user}
	if w.tmp, err = o.makeTmp(spec.Key.String(), user); err != nil {
		o.release(user)
	}
	return w, err
}

func (o *owners) takeTrajectory(id uint64) (owner, error) {
	name := trajectoryPrefix + strconv.FormatUint(id, 10)
	t := o.trajectories[id]
	if t == nil {
		if len(o.trajectories) >= trajectoriesMax {
			o.dropOldest()
		}
		user, err := o.free()
		if err != nil {
			return owner{}, err
		}
		if _, err := o.makeTmp(name, user); err != nil {
			o.release(user)
			return owner{}, err
		}
		t = &trajectoryOwner{user: user}
		o.trajectories[id] = t
	}
	t.running++
	w := owner{user: t.user, trajectory: id}
	if o.dir != "" {
		w.tmp = filepath.Join(o.dir, name)
	}
	return w, nil
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

// makeTmp makes a private /tmp, if there are any.
func (o *owners) makeTmp(name string, user *userID) (string, error) {
	if o.dir == "" {
		return "", nil
	}
	path := filepath.Join(o.dir, name)
	err := os.Mkdir(path, workMode)
	if err == nil && user != nil {
		err = os.Lchown(path, int(user.uid), int(user.gid))
	}
	if err != nil {
		return "", fmt.Errorf("make private /tmp: %w", err)
	}
	return path, nil
}

// give takes back what an attempt had, once nothing of it is alive.
func (o *owners) give(w owner) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if t := o.trajectories[w.trajectory]; w.trajectory != 0 && t != nil {
		t.running--
		t.at = time.Now()
		if w.tmp != "" {
			_ = os.Chtimes(w.tmp, t.at, t.at) // for the next supervisor
		}
		return
	}
	o.release(w.user)
	if w.tmp != "" {
		o.remove(w.tmp)
	}
}

// sweep drops trajectories that have not been seen for long.
func (o *owners) sweep(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, t := range o.trajectories {
		if t.running == 0 && now.Sub(t.at) > trajectoryKeep {
			o.drop(id, t)
		}
	}
}

// dropOldest drops the trajectory that has run nothing for longest.
func (o *owners) dropOldest() {
	var oldest uint64
	for id, t := range o.trajectories {
		if t.running == 0 && (oldest == 0 || t.at.Before(o.trajectories[oldest].at)) {
			oldest = id
		}
	}
	if oldest != 0 {
		o.drop(oldest, o.trajectories[oldest])
	}
}

// drop forgets a trajectory. Its user is free only when its directory has another
// name: what is found after a restart has users that nothing else has.
func (o *owners) drop(id uint64, t *trajectoryOwner) {
	delete(o.trajectories, id)
	o.release(t.user)
	if o.dir == "" {
		return
	}
	path := filepath.Join(o.dir, trajectoryPrefix+strconv.FormatUint(id, 10))
	gone := filepath.Join(o.dir, "dropped-"+strconv.FormatUint(id, 10))
	if os.Rename(path, gone) == nil {
		path = gone
	}
	o.remove(path)
}

// remove deletes in the background.
func (o *owners) remove(path string) {
	o.tasks.Go(func() {
		if err := os.RemoveAll(path); err != nil {
			o.log.Warn("private /tmp cannot be removed", "error", err)
		}
	})
}

func (o *owners) close() { o.tasks.Wait() }

// uidRange is the users that attempts run as; the group of each has the same number.
// The zero value is no range.
type uidRange struct{ first, last uint32 }

func (r uidRange) any() bool           { return r.first != 0 }
func (r uidRange) has(uid uint32) bool { return r.first <= uid && uid <= r.last }
func (r uidRange) count() uint64       { return uint64(r.last) - uint64(r.first) + 1 }
func (r uidRange) String() string      { return fmt.Sprintf("%d-%d", r.first, r.last) }

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
