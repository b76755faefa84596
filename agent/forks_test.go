package agent

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/agent/layers"
	"rota/agent/plan"
	"rota/agent/runtime"
	rotav1 "rota/api/gen/rota/v1"
)

// forkNode is a node whose snapshots are copies of files.
type forkNode struct {
	*forks
	t   *testing.T
	log bytes.Buffer

	mu   sync.Mutex
	room func() // is called before each file is copied
	down bool   // its supervisor is being started
	lost bool   // calls of its supervisor break off
}

// makesTrajectories is a supervisor on which nothing runs.
type makesTrajectories struct {
	*nothing
	n *forkNode
}

func (m makesTrajectories) MakeTrajectory(_ context.Context, trajectory uint64) (running int, err error) {
	if m.n.lost {
		return 0, runtime.ErrLost
	}
	return 0, os.MkdirAll(runtime.TrajectoryDir(m.n.dir, trajectory), 0o700)
}

func newForkNode(t *testing.T) *forkNode {
	t.Helper()
	n := &forkNode{t: t}
	log := hclog.New(&hclog.LoggerOptions{Output: &n.log, Level: hclog.Warn})
	n.forks = &forks{log: log, dir: t.TempDir(), changed: make(chan struct{}, 1), held: map[uint64]*heldFiles{}}
	n.conn = func() runtime.Runtime {
		if n.down {
			return nil
		}
		return makesTrajectories{newNothing(), n}
	}
	n.jobs = newForkJobs(n.poke)
	homeOf := func(trajectory uint64) string { return runtime.TrajectoryDir(n.dir, trajectory) }
	store, err := layers.Open(filepath.Join(n.dir, layersName), homeOf, log, false, func() (uint64, error) {
		n.mu.Lock()
		room := n.room
		n.mu.Unlock()
		if room != nil {
			room()
		}
		return 1 << 60, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	n.store = store
	return n
}

// file makes the directory of a trajectory, with a file.
func (n *forkNode) file(trajectory uint64) {
	n.t.Helper()
	home := runtime.TrajectoryDir(n.dir, trajectory)
	if err := errors.Join(os.MkdirAll(home, 0o700), os.WriteFile(filepath.Join(home, "file"), []byte("x"), 0o600)); err != nil {
		n.t.Fatal(err)
	}
}

// tell says which snapshots the cluster wants: pairs of a snapshot and its trajectory.
func (n *forkNode) tell(state rotav1.SnapshotState, pairs ...uint64) {
	out := &rotav1.NodeSnapshots{}
	for i := 0; i < len(pairs); i += 2 {
		out.Snapshots = append(out.Snapshots, &rotav1.DesiredSnapshot{SnapshotId: pairs[i], TrajectoryId: pairs[i+1], State: state, TrajectoryOpen: true})
	}
	n.told(&rotav1.WatchNodeResponse{Snapshots: out}, func(uint64, uint64) {})
}

func (n *forkNode) look(ctx context.Context) (reports []*rotav1.SnapshotReport, again bool) {
	return n.review(ctx, func(uint64) bool { return true })
}

// report waits for the next report of a snapshot. Those of others are repeated until a server took note.
func (n *forkNode) report(snapshot uint64) *rotav1.SnapshotReport {
	n.t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case <-n.changed:
			reports, _ := n.look(n.t.Context())
			of := func(r *rotav1.SnapshotReport) bool { return r.SnapshotId == snapshot }
			if i := slices.IndexFunc(reports, of); i >= 0 {
				return reports[i]
			}
		case <-limit:
			n.t.Fatalf("no report of snapshot %d; the log is:\n%s", snapshot, n.log.String())
		}
	}
}

// blocks has the next copies of files wait. It returns what says that one does, and what lets them go on.
func (n *forkNode) blocks() (waits <-chan struct{}, goOn func()) {
	wait, entered, once := make(chan struct{}), make(chan struct{}), sync.Once{}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.room = func() {
		once.Do(func() { close(entered) })
		<-wait
	}
	return entered, func() { close(wait) }
}

// One snapshot that takes long holds up neither others nor who waits for its files and gives up.
func TestASlowSnapshotHoldsUpNoOthers(t *testing.T) {
	n := newForkNode(t)
	n.file(11)
	n.file(12)
	waits, goOn := n.blocks()
	n.tell(rotav1.SnapshotState_SNAPSHOT_STATE_CREATING, 1, 11)
	n.look(t.Context())
	<-waits
	n.tell(rotav1.SnapshotState_SNAPSHOT_STATE_CREATING, 1, 11, 2, 12)
	n.mu.Lock()
	n.room = nil
	n.mu.Unlock()
	if r := n.report(2); r.State != rotav1.SnapshotState_SNAPSHOT_STATE_READY {
		t.Errorf("the other one: %v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.use(ctx, 11, 0); !errors.Is(err, runtime.ErrStopping) {
		t.Errorf("a start whose agent ends: %v", err)
	}
	goOn()
	if r := n.report(1); r.State != rotav1.SnapshotState_SNAPSHOT_STATE_READY {
		t.Errorf("the slow one: %v", r)
	}
	done, err := n.use(t.Context(), 11, 0)
	if err != nil {
		t.Fatal(err)
	}
	done()
	if len(n.held) != 0 {
		t.Errorf("files in use by nobody: %v", n.held)
	}
}

// The end of a session ends what it does, which the next session begins again.
func TestASessionThatEndsFailsNoSnapshot(t *testing.T) {
	n := newForkNode(t)
	n.file(11)
	waits, goOn := n.blocks()
	n.tell(rotav1.SnapshotState_SNAPSHOT_STATE_CREATING, 1, 11)
	session, end := context.WithCancel(t.Context())
	n.look(session)
	<-waits
	end()
	n.look(t.Context())
	goOn()
	n.jobs.wait()
	n.poke()
	if r := n.report(1); r.State != rotav1.SnapshotState_SNAPSHOT_STATE_READY {
		t.Errorf("the snapshot: %v", r)
	}
}

// A snapshot waits for a supervisor that is being started, and is taken by the next.
func TestASnapshotWaitsForTheSupervisor(t *testing.T) {
	n := newForkNode(t)
	n.file(11)
	n.tell(rotav1.SnapshotState_SNAPSHOT_STATE_CREATING, 1, 11)
	for _, fault := range []*bool{&n.down, &n.lost} {
		*fault = true
		n.look(t.Context())
		n.jobs.wait()
		if reports, again := n.look(t.Context()); len(reports) > 0 || !again {
			t.Errorf("reports %v, again %v", reports, again)
		}
		*fault = false
	}
	n.poke()
	if r := n.report(1); r.State != rotav1.SnapshotState_SNAPSHOT_STATE_READY {
		t.Errorf("the snapshot: %v", r)
	}
}

// An action whose files cannot be had as the supervisor went away was not started, and is no failure.
func TestAStartWithoutASupervisorIsPutBack(t *testing.T) {
	n := newForkNode(t)
	n.file(11)
	n.tell(rotav1.SnapshotState_SNAPSHOT_STATE_CREATING, 1, 11)
	n.report(1)
	for fault, want := range map[*bool]plan.Answer{&n.down: plan.Full, &n.lost: plan.Full, new(bool): plan.Impossible} {
		*fault = true
		snapshot := uint64(1)
		if want == plan.Impossible {
			snapshot = 2 // which there is not
		}
		_, err := n.use(t.Context(), 12, snapshot)
		if answer, text := answerOf(err); answer != want {
			t.Errorf("answer %v, want %v: %s", answer, want, text)
		}
		*fault = false
	}
}

// Troubles are said once, and what is troubled is tried again. Bytes that could not be counted are counted then.
func TestTroubleIsSaidOnce(t *testing.T) {
	n := newForkNode(t)
	n.file(11)
	n.tell(rotav1.SnapshotState_SNAPSHOT_STATE_CREATING, 1, 11)
	n.report(1)
	rounds := func(trouble string, want int) {
		t.Helper()
		for range 3 {
			n.look(t.Context())
			n.jobs.wait()
			if reports, again := n.look(t.Context()); len(reports) > 0 || again {
				t.Errorf("%s: reports %v, again %v", trouble, reports, again)
			}
		}
		if got := strings.Count(n.log.String(), trouble); got != want {
			t.Errorf("%q is said %d times, want %d:\n%s", trouble, got, want, n.log.String())
		}
	}
	n.tell(rotav1.SnapshotState_SNAPSHOT_STATE_READY, 1, 11)
	layer, away := filepath.Join(n.dir, layersName, "layers", "1"), filepath.Join(n.dir, "away")
	if err := os.Rename(layer, away); err != nil {
		t.Fatal(err)
	}
	rounds("cannot be counted", 1)
	if err := os.Rename(away, layer); err != nil {
		t.Fatal(err)
	}
	n.poke()
	if r := n.report(1); r.State != rotav1.SnapshotState_SNAPSHOT_STATE_READY || r.Bytes == 0 {
		t.Errorf("with its files again: %v", r)
	}
	record := filepath.Join(n.dir, layersName, "snapshots", "1.json")
	if err := errors.Join(os.Rename(record, record+".away"), os.Mkdir(record, 0o700)); err != nil { // nobody can read that
		t.Fatal(err)
	}
	rounds("cannot be told", 1)
	if err := errors.Join(os.Remove(record), os.WriteFile(record, []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	n.poke()
	if r := n.report(1); r.State != rotav1.SnapshotState_SNAPSHOT_STATE_LOST || !strings.Contains(r.Message, "damaged") {
		t.Errorf("with a damaged record: %v", r)
	}
}

// What waits is looked at soon again, without everything being searched for what can be removed.
func TestASnapshotThatWaitsSweepsNothing(t *testing.T) {
	n := newForkNode(t)
	n.file(11)
	n.tell(rotav1.SnapshotState_SNAPSHOT_STATE_CREATING, 1, 11)
	n.down = true
	n.look(t.Context())
	n.jobs.wait()
	n.look(t.Context())
	n.jobs.wait()
	left := filepath.Join(n.dir, layersName, "removed", "77")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, again := n.look(t.Context()); !again {
			n.look(t.Context())
		}
		n.jobs.wait()
	}
	if _, err := os.Lstat(left); err != nil {
		t.Error("it was swept while a snapshot waits")
	}
	n.told(&rotav1.WatchNodeResponse{OpenTrajectories: &rotav1.OpenTrajectories{}}, nil)
	n.look(t.Context())
	n.jobs.wait()
	if _, err := os.Lstat(left); err == nil {
		t.Error("a list of what is open has nothing swept")
	}
}

// A deleted snapshot goes after what begins with it has its files, and not before it is not being taken any more.
func TestADeletedSnapshotGoesLast(t *testing.T) {
	n := newForkNode(t)
	n.file(11)
	n.tell(rotav1.SnapshotState_SNAPSHOT_STATE_CREATING, 1, 11)
	n.report(1)
	_, goOn := n.blocks()
	fork := []*rotav1.Fork{{TrajectoryId: 12, SnapshotId: 1}}
	n.told(&rotav1.WatchNodeResponse{Snapshots: &rotav1.NodeSnapshots{Forks: fork, Snapshots: []*rotav1.DesiredSnapshot{
		{SnapshotId: 1, TrajectoryId: 11, State: rotav1.SnapshotState_SNAPSHOT_STATE_REMOVING},
	}}}, func(uint64, uint64) {})
	for range 3 {
		if reports, _ := n.look(t.Context()); len(reports) > 0 {
			t.Fatalf("reports %v while a trajectory begins", reports)
		}
	}
	goOn()
	if r := n.report(1); r.State != rotav1.SnapshotState_SNAPSHOT_STATE_LOST {
		t.Errorf("the deleted snapshot: %v", r)
	}
	if b, err := os.ReadFile(filepath.Join(runtime.TrajectoryDir(n.dir, 12), "file")); string(b) != "x" {
		t.Errorf("what began with it has %q, %v", b, err)
	}
	if has, err := n.has(1); has || err != nil {
		t.Errorf("it is still there: %v, %v", has, err)
	}
	n.jobs.wait()
}

// fakeRoots are the root file systems of a node with containers.
type fakeRoots struct {
	n        *forkNode
	reserved []uint64
	pinned   bool // the root file system was among those that are needed while it was committed
	commits  int
}

func (r *fakeRoots) Reserve(trajectory uint64) error {
	r.reserved = append(r.reserved, trajectory)
	return nil
}
func (r *fakeRoots) NewRoot(uint64) string { return "a root" }
func (r *fakeRoots) Commit(_ context.Context, _ uint64, root string) (bool, error) {
	needed, err := r.n.store.Roots()
	r.pinned = slices.Contains(needed, root)
	r.commits++
	return true, err
}
func (r *fakeRoots) KeepRoots(context.Context, func() ([]string, error)) error { return nil }
func (r *fakeRoots) RootBytes(context.Context, string) (uint64, error)         { return 1 << 40, nil }

// The root file system of a container is needed from before it is there, its bytes are counted, and the folder
// of a sandbox is there before a directory has the owner that it has in the container.
func TestASnapshotHasTheRootOfItsContainer(t *testing.T) {
	n := newForkNode(t)
	roots := &fakeRoots{n: n}
	n.sandboxes = roots
	n.file(11)
	want := func(state rotav1.SnapshotState, forks ...*rotav1.Fork) {
		n.told(&rotav1.WatchNodeResponse{Snapshots: &rotav1.NodeSnapshots{Forks: forks, Snapshots: []*rotav1.DesiredSnapshot{
			{SnapshotId: 1, TrajectoryId: 11, State: state, Container: true, TrajectoryOpen: true},
		}}}, func(uint64, uint64) {})
	}
	want(rotav1.SnapshotState_SNAPSHOT_STATE_CREATING)
	if r := n.report(1); r.State != rotav1.SnapshotState_SNAPSHOT_STATE_READY || !roots.pinned {
		t.Errorf("the snapshot: %v; its root is pinned: %v", r, roots.pinned)
	}
	want(rotav1.SnapshotState_SNAPSHOT_STATE_READY)
	if r := n.report(1); r.Bytes <= 1<<40 {
		t.Errorf("counted %d bytes", r.Bytes)
	}
	if needed, err := n.store.Roots(); err != nil || !slices.Equal(needed, []string{"a root"}) {
		t.Errorf("needed: %q, %v", needed, err)
	}
	want(rotav1.SnapshotState_SNAPSHOT_STATE_REMOVING, &rotav1.Fork{TrajectoryId: 12, SnapshotId: 1})
	n.report(1)
	if root, err := n.root(12); root != "a root" || err != nil || !slices.Equal(roots.reserved, []uint64{12}) {
		t.Errorf("the fork has root %q (%v), reserved are %v", root, err, roots.reserved)
	}
	n.jobs.wait()
}

// A snapshot that is tried again, as the directory of its trajectory is in use, commits the root file system
// of the container once. It does so again when the container was opened in between.
func TestASnapshotThatWaitsCommitsOnce(t *testing.T) {
	n := newForkNode(t)
	roots := &fakeRoots{n: n}
	n.sandboxes = roots
	try := func(snapshot uint64, commits int) {
		t.Helper()
		root, keep, err := n.rootOf(t.Context(), &rotav1.DesiredSnapshot{SnapshotId: snapshot, TrajectoryId: 11, Container: true})
		if err != nil {
			t.Fatal(err)
		}
		defer keep()
		if needed, err := n.store.Roots(); root != "a root" || err != nil || !slices.Contains(needed, root) {
			t.Errorf("root %q, needed are %q, %v", root, needed, err)
		}
		if roots.commits != commits {
			t.Errorf("snapshot %d: %d commits, want %d", snapshot, roots.commits, commits)
		}
	}
	try(1, 1)
	try(1, 1)
	n.committed.changes(11)
	try(1, 2)
	try(2, 2) // two that wait have the same root
	try(1, 2)
	n.forget(&rotav1.NodeSnapshots{})
	try(2, 3)
}
