package state

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
)

const (
	// RestorePartBytesMax bounds one part of a backup that is being restored, so that its
	// entry is no larger than others.
	RestorePartBytesMax = 512 << 10
	// RestorePartsMax bounds the parts of a backup: 8 GiB of a compressed snapshot.
	RestorePartsMax = 16384
	// UploadBytesMax bounds the name of an upload.
	UploadBytesMax = 64
	// RestoreIdleNS is how long an upload may stand still before its parts are dropped: its client
	// is gone.
	RestoreIdleNS int64 = 600_000_000_000
)

// RestorePart is a part of a backup that is being uploaded. The parts of one upload, in the
// order of their numbers, are a snapshot.
type RestorePart struct {
	// Number of the part, from 0 on.
	Number uint32
	// Upload that the part is of; all parts that are kept have the same.
	Upload string
	Data   []byte
	// At is the log time at which the part came.
	At int64
}

func (r *RestorePart) code(c *codec) {
	number(c, &r.Number)
	c.text(&r.Upload)
	c.bytes(&r.Data)
	trailing(c, &r.At, signed)
}

// PutRestorePart stores a part.
func (s *State) PutRestorePart(r *RestorePart) {
	d := db(s)
	d.restoreParts.put(d.enc, r.Number, r)
	d.index.restoreNewest = max(d.index.restoreNewest, r.At)
}

// RestorePart returns a part, nil if it is not there.
func (s *State) RestorePart(n uint32) *RestorePart { return db(s).restoreParts.get(n) }

// RestorePartCount returns how many parts there are.
func (s *State) RestorePartCount() int { return db(s).restoreParts.rows.Len() }

// RestoreDue returns the log time at which the upload that is there is given up: some time after
// the newest part came, whatever its number: a client sends a part again if it missed the answer.
func (s *State) RestoreDue() (at int64, ok bool) {
	d := db(s)
	if d.restoreParts.rows.Len() == 0 {
		return 0, false
	}
	return d.index.restoreNewest + RestoreIdleNS, true
}

// DropRestoreParts forgets all parts.
func (s *State) DropRestoreParts() {
	d := db(s)
	d.restoreParts = newTable[uint32, RestorePart, *RestorePart](tableRestoreParts)
	d.index.restoreNewest = 0
}

// errNotStaged is that of Staged.
var errNotStaged = errors.New("not all parts of the backup are there")

// Staged returns the snapshot whose parts are there, and its xxHash64. It is an error unless
// these are the parts of the upload, and all of them.
func (s *State) Staged(upload string, parts uint32) (io.Reader, uint64, error) {
	if first := s.RestorePart(0); first == nil || first.Upload != upload || s.RestorePartCount() != int(parts) {
		return nil, 0, errNotStaged
	}
	sum := xxhash.New()
	readers := make([]io.Reader, parts)
	for n := range parts {
		p := s.RestorePart(n)
		if p == nil {
			return nil, 0, errNotStaged
		}
		_, _ = sum.Write(p.Data) // never fails
		readers[n] = bytes.NewReader(p.Data)
	}
	return io.MultiReader(readers...), sum.Sum64(), nil
}

// RestoreForeign is Restore for a snapshot that was not written by this cluster: it also checks
// what a checksum cannot, that the rows fit together as any write would have left them. Who crafts
// a backup can give it the right checksum, and a state with a broken invariant would stop every
// server later. The error wraps ErrSnapshotCorrupt and names the row.
//
// A row that breaks a check so that it panics is an error as well, the same on every server.
//
// Apply calls it, so what it refuses is part of the meaning of the log: servers of two builds that
// differ in a check would part. A check of the rows of a released level must not become stricter or
// laxer. A new or a changed check is for a level that is not released yet: it looks at what only
// that level writes, or asks for the level of the restored state first. TestRestoreOfGoldenBackups
// restores what released builds wrote.
func RestoreForeign(r io.Reader) (s *State, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			s, err = nil, fmt.Errorf("%w: its rows cannot be checked: %v", ErrSnapshotCorrupt, cause)
		}
	}()
	if s, err = Restore(r); err != nil {
		return nil, err
	}
	// Indexes and hash need no check: they were made of the rows just now.
	if err := cmp.Or(s.CheckRows(), s.checkEvents()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSnapshotCorrupt, err)
	}
	return s, nil
}

// OriginKind is how a state came into a cluster that was not founded with it.
type OriginKind uint8

// How a state came into its cluster. The numbers are in snapshots.
const (
	// OriginFounded: the cluster was founded with it, empty.
	OriginFounded OriginKind = iota
	// OriginRestored: from a backup.
	OriginRestored
	// OriginRecovered: from one server's disk, after the majority was lost.
	OriginRecovered
)

// Origin says where the state of a cluster came from.
type Origin struct {
	Kind OriginKind
	// Upload that was restored.
	Upload string
	// Cluster that the state is of, and the index of the newest entry in it.
	Cluster string
	Index   uint64
	// Incarnation is the newest of that cluster: what runs of it, or of an older one, was
	// started before the state came here.
	Incarnation uint64
	// At is the log time at which it came here.
	At int64
}

func (r *Meta) codeOrigin(c *codec) {
	trailing(c, &r.Origin.Kind, number)
	trailing(c, &r.Origin.Upload, (*codec).text)
	trailing(c, &r.Origin.Cluster, (*codec).text)
	trailing(c, &r.Origin.Index, number)
	trailing(c, &r.Origin.Incarnation, number)
	trailing(c, &r.Origin.At, signed)
}

// Unused says that nothing was ever submitted to or declared in the cluster. Nodes may have
// registered.
func (s *State) Unused() bool {
	m := &s.meta
	return m.LastAction == 0 && m.LastTrajectory == 0 && m.LastJob == 0 && m.LastTurn == 0 && m.LastGroup == 0 &&
		m.LastQuota == 0 && m.LastClass == 0 && m.LastNamespace <= 1 && m.LastGeneration == 0 && m.LastMigration == 0 && m.LastFileSnapshot == 0 &&
		m.LastRollout == 0 && s.PolicyCount() == 0 && db(s).workers.rows.Len() == 0 && s.EngineCount() == 0 && s.RewardCount() == 0 &&
		s.AccessPolicyCount() == 0 && s.AuthMethodCount() == 0 && s.AccessTokenCount() == 0
}

// idGap is by how much the numbers grow when a state comes into another cluster. Those that
// the other cluster gave out since are never given out again here. incarnationGap is that of
// incarnations, to which up to as much again is added by what the cluster is called.
const (
	idGap          = 1 << 32
	incarnationGap = 1 << 40
)

// Refound gives the state the identity of a cluster, and lets all numbers by which the
// outside knows something grow beyond what the state's former cluster, and the clusters
// whose numbers are given, can have given out. It forgets all events: a watcher that goes on
// at an event of the former cluster is told that it is too old.
//
// Tokens and incarnations are fences. Those of two clusters that the same backup was
// restored into differ as well, as they depend on what the cluster is called and on the
// upload: an agent that meets both never takes one for the other.
func (s *State) Refound(cluster string, numbers ...Meta) {
	m := s.meta
	salt := xxhash.Sum64String(cluster + "\x00" + m.Origin.Upload)
	for _, o := range numbers {
		m.LastAction = max(m.LastAction, o.LastAction)
		m.LastTrajectory = max(m.LastTrajectory, o.LastTrajectory)
		m.LastTurn = max(m.LastTurn, o.LastTurn)
		m.LastToken = max(m.LastToken, o.LastToken)
		m.LastIncarnation = max(m.LastIncarnation, o.LastIncarnation)
		m.LastGeneration = max(m.LastGeneration, o.LastGeneration)
		m.LastMigration = max(m.LastMigration, o.LastMigration)
		m.LastRollout = max(m.LastRollout, o.LastRollout)
		m.LastFileSnapshot = max(m.LastFileSnapshot, o.LastFileSnapshot)
		m.Revision = max(m.Revision, o.Revision)
		m.Now = max(m.Now, o.Now)
	}
	m.ClusterID = cluster
	m.Origin.Incarnation = m.LastIncarnation
	m.LastAction += idGap
	m.LastTrajectory += idGap
	m.LastTurn += idGap
	m.LastToken += idGap
	m.LastGeneration += idGap
	m.LastMigration += idGap
	m.LastRollout += idGap
	m.LastFileSnapshot += idGap
	m.LastIncarnation += incarnationGap + salt%incarnationGap
	m.Revision += idGap
	s.meta = m
	db(s).events = newEventRing(m.Revision + 1)
}
