package replica

import (
	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
)

// StoreKind says what keeps the entries of the log.
type StoreKind string

// Kinds of stores.
const (
	// WAL appends entries to files of their own: one flush for each append.
	WAL StoreKind = "wal"
	// BoltDB keeps entries in the file that also holds term and vote: two flushes.
	BoltDB StoreKind = "boltdb"
)

// LogStore keeps the entries of the log, below their checksums and the mark. Raft
// never sees it: there is a logStore in between.
type LogStore interface {
	raft.LogStore
	// DeleteMax is how many entries one DeleteRange may remove, so that an append
	// that comes in the middle does not wait for long.
	DeleteMax() uint64
	Close() error
}

// boltEntries are the entries in the database that is also the stable store.
type boltEntries struct{ *boltdb.BoltStore }

// deleteChunk is how many entries go in one transaction. Compaction shares the
// writer's lock with appends, which must not wait for all of it.
const deleteChunk = 256

// DeleteMax implements LogStore.
func (boltEntries) DeleteMax() uint64 { return deleteChunk }

// Close implements LogStore. The stable store closes the file.
func (boltEntries) Close() error { return nil }
