package state

import "fmt"

// FileSnapshotID orders the snapshots of files by request, over all namespaces.
type FileSnapshotID uint64

const (
	// FileSnapshotsMax bounds the snapshots of files that are kept, those among them that failed.
	FileSnapshotsMax = 4096
	// FileSnapshotsPerNodeMax bounds those that are on a node.
	FileSnapshotsPerNodeMax = 256
	// FileSnapshotMessageBytesMax bounds what is said of why one failed.
	FileSnapshotMessageBytesMax = 512
	// fileSnapshotNameBytesMax bounds its name.
	fileSnapshotNameBytesMax = 128
)

// FileSnapshotState has the values of rota.v1.SnapshotState.
type FileSnapshotState uint8

// The life of a snapshot of files.
const (
	FileSnapshotCreating FileSnapshotState = 1 + iota
	FileSnapshotReady
	FileSnapshotFailed
	FileSnapshotRemoving
	FileSnapshotLost
)

// Ended reports whether there is nothing of it on its node, and never will be.
func (s FileSnapshotState) Ended() bool { return s == FileSnapshotFailed || s == FileSnapshotLost }

// FileSnapshot is an immutable copy of the files of a trajectory, on one node.
type FileSnapshot struct {
	ID         FileSnapshotID
	Namespace  NamespaceID
	Node       NodeID
	Trajectory TrajectoryID // whose files they are; it may be forgotten since
	Name       string
	State      FileSnapshotState
	// Container and Spec are as those of the trajectory.
	Container bool
	Spec      string
	Bytes     uint64 // 0: not counted yet
	Message   string
	// CreatedAt and EndedAt are log times. EndedAt is when it became ready, failed or was lost.
	CreatedAt, EndedAt int64
}

func (r *FileSnapshot) code(c *codec) {
	number(c, &r.ID)
	number(c, &r.Namespace)
	number(c, &r.Node)
	number(c, &r.Trajectory)
	c.text(&r.Name)
	number(c, &r.State)
	c.flag(&r.Container)
	c.text(&r.Spec)
	number(c, &r.Bytes)
	c.text(&r.Message)
	signed(c, &r.CreatedAt)
	signed(c, &r.EndedAt)
}

type (
	// nodeFileSnapshot is a snapshot that is on a node, or is to be or was to be there.
	nodeFileSnapshot struct {
		node NodeID
		id   FileSnapshotID
	}
	// fork is an open trajectory that began with a snapshot, on its node.
	fork struct {
		node       NodeID
		trajectory TrajectoryID
		snapshot   FileSnapshotID
	}
)

func (a nodeFileSnapshot) less(b nodeFileSnapshot) bool {
	if a.node != b.node {
		return a.node < b.node
	}
	return a.id < b.id
}

func (a fork) less(b fork) bool {
	if a.node != b.node {
		return a.node < b.node
	}
	return a.trajectory < b.trajectory
}

// PutFileSnapshot stores a snapshot of files.
func (s *State) PutFileSnapshot(r *FileSnapshot) {
	old := db(s).fileSnapshots.put(db(s).enc, r.ID, r)
	if old == nil {
		s.refer(r.Namespace, 0, 1)
	}
	s.countFileSnapshot(old, -1)
	s.countFileSnapshot(r, 1)
	s.indexFileSnapshot(r, true)
}

// DeleteFileSnapshot forgets a snapshot of files.
func (s *State) DeleteFileSnapshot(id FileSnapshotID) {
	if old := db(s).fileSnapshots.delete(id); old != nil {
		s.refer(old.Namespace, 0, -1)
		s.countFileSnapshot(old, -1)
		s.indexFileSnapshot(old, false)
	}
}

// countFileSnapshot counts a snapshot for its namespace until it has ended; nil: there is none.
func (s *State) countFileSnapshot(r *FileSnapshot, by int) {
	if r != nil && !r.State.Ended() {
		count(&db(s).index.nsFileSnapshots, r.Namespace, by)
	}
}

// indexFileSnapshot has a snapshot among those of its node, or among those that have ended: of which
// there are none on any node.
func (s *State) indexFileSnapshot(r *FileSnapshot, kept bool) {
	include(&db(s).index.nodeFileSnapshots, nodeFileSnapshot{r.Node, r.ID}, kept && !r.State.Ended())
	if kept && r.State.Ended() {
		db(s).index.endedFileSnapshots.Set(r.ID, struct{}{})
	} else {
		db(s).index.endedFileSnapshots.Delete(r.ID)
	}
}

// OldestEndedSnapshot returns the oldest snapshot of which nothing is left.
func (s *State) OldestEndedSnapshot() (id FileSnapshotID, ok bool) {
	id, _, ok = db(s).index.endedFileSnapshots.Min()
	return id, ok
}

// indexFork has a trajectory among the forks of its node, or not.
func (s *State) indexFork(r *Trajectory, in bool) {
	if r.Snapshot != 0 && r.Node != 0 && !r.State.Ended() {
		include(&db(s).index.forks, fork{r.Node, r.ID, r.Snapshot}, in)
	}
}

// FileSnapshot returns a snapshot of files, nil if there is none.
func (s *State) FileSnapshot(id FileSnapshotID) *FileSnapshot { return db(s).fileSnapshots.get(id) }

// FileSnapshots visits the snapshots of files from the one after an ID on.
func (s *State) FileSnapshots(after FileSnapshotID, fn func(*FileSnapshot) bool) {
	db(s).fileSnapshots.scan(after+1, fn)
}

// FileSnapshotCount returns how many snapshots of files are kept.
func (s *State) FileSnapshotCount() int { return db(s).fileSnapshots.rows.Len() }

// LiveFileSnapshots returns how many snapshots have not ended, of all namespaces and of one.
func (s *State) LiveFileSnapshots(ns NamespaceID) (all, own int) {
	own, _ = db(s).index.nsFileSnapshots.Get(ns)
	return db(s).index.nodeFileSnapshots.Len(), own
}

// NodeFileSnapshots visits the snapshots that have not ended of a node, by ID.
func (s *State) NodeFileSnapshots(node NodeID, fn func(*FileSnapshot) bool) {
	db(s).index.nodeFileSnapshots.Ascend(nodeFileSnapshot{node: node}, func(k nodeFileSnapshot) bool {
		return k.node == node && fn(db(s).fileSnapshots.get(k.id))
	})
}

// Forks visits the open trajectories of a node that began with a snapshot, by ID.
func (s *State) Forks(node NodeID, fn func(TrajectoryID, FileSnapshotID) bool) {
	db(s).index.forks.Ascend(fork{node: node}, func(k fork) bool {
		return k.node == node && fn(k.trajectory, k.snapshot)
	})
}

// checkFileSnapshots: each says what one in its state does, and is on a node that is up unless it
// has ended.
func (s *State) checkFileSnapshots() (err error) {
	s.FileSnapshots(0, func(r *FileSnapshot) bool { err = s.checkFileSnapshot(r); return err == nil })
	if n := s.FileSnapshotCount(); err == nil && n > FileSnapshotsMax {
		err = fmt.Errorf("there are %d snapshots of files", n)
	}
	return err
}

func (s *State) checkFileSnapshot(r *FileSnapshot) error {
	switch {
	case r.ID == 0 || r.ID > s.meta.LastFileSnapshot || s.Namespace(r.Namespace) == nil || r.Trajectory == 0 || r.Trajectory > s.meta.LastTrajectory:
		return fmt.Errorf("snapshot %d is of trajectory %d and namespace %d, and the last is %d", r.ID, r.Trajectory, r.Namespace, s.meta.LastFileSnapshot)
	case r.State < FileSnapshotCreating || r.State > FileSnapshotLost || len(r.Name) > fileSnapshotNameBytesMax || len(r.Message) > FileSnapshotMessageBytesMax || len(r.Spec) > TrajectorySpecBytesMax:
		return fmt.Errorf("snapshot %d is in state %d with a name of %d bytes, a message of %d and a specification of %d", r.ID, r.State, len(r.Name), len(r.Message), len(r.Spec))
	case r.State == FileSnapshotCreating && (r.EndedAt != 0 || r.Bytes != 0) || r.CreatedAt > s.meta.Now || r.EndedAt > s.meta.Now:
		return fmt.Errorf("snapshot %d in state %d was created at %d, and ended at %d with %d bytes", r.ID, r.State, r.CreatedAt, r.EndedAt, r.Bytes)
	}
	if n := s.Node(r.Node); !r.State.Ended() && (n == nil || n.State != NodeUp) {
		return fmt.Errorf("snapshot %d in state %d is on node %d, which is not up", r.ID, r.State, r.Node)
	}
	return nil
}
