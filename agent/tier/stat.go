package tier

import "fmt"

// counts only ever grow.
type counts struct {
	memoryHits, diskHits, misses uint64
	demoted, evicted, expired    uint64
	corrupt, lost                uint64
}

// Stat says how a store is.
type Stat struct {
	Keys int
	// LogicalBytes are those of the values of all keys, UniqueBytes those that are
	// stored, since equal values are stored once.
	LogicalBytes, UniqueBytes uint64
	IndexBytes                uint64 // of keys, estimated

	MemoryBytes, MemoryBytesMax uint64
	MemoryItems                 int

	// Disk is what the disk tier does: one of the words below. DiskWhy says more.
	Disk, DiskWhy           string
	DiskBytes, DiskBytesMax uint64 // of files
	DiskLiveBytes           uint64 // of values in them
	DiskItems               int
	Segments                int
	// Direct says that the file system takes direct I/O.
	Direct bool

	MemoryHits, DiskHits, Misses uint64 // of Get
	Demoted                      uint64 // values that were written to disk
	Evicted                      uint64 // values that were dropped for others
	Expired                      uint64 // keys
	// Corrupt counts copies that did not match their checksum, Lost what the manifest
	// named and the disk did not have when the store was opened.
	Corrupt, Lost uint64
}

// What the disk tier may do.
const (
	DiskNone    = "none"
	DiskWorks   = "works"
	DiskFull    = "full"    // the file system is full: values are dropped for others, or go on in memory only
	DiskPaused  = "paused"  // writes nothing for a while: a write failed
	DiskBroken  = "broken"  // has ended: the manifest could not be written
	DiskStarted = "emptied" // works; Open found what could not be trusted, and dropped it
)

// Stat returns the state and the counts since Open.
func (s *Store) Stat() Stat {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	st := Stat{
		Keys: len(s.index.byKey), LogicalBytes: s.index.logical, UniqueBytes: s.index.unique, IndexBytes: s.index.bytes,
		MemoryBytes: uint64(s.arena.usedBytes()), MemoryBytesMax: uint64(len(s.arena.mem)),
		MemoryItems: s.clean.Len() + s.dirty.Len(), Disk: DiskNone,
		MemoryHits: c.memoryHits, DiskHits: c.diskHits, Misses: c.misses,
		Demoted: c.demoted, Evicted: c.evicted, Expired: c.expired, Corrupt: c.corrupt, Lost: c.lost,
	}
	if s.disk != nil {
		s.disk.stat(&st)
		st.DiskItems = s.onDisk.Len()
	}
	return st
}

func (d *disk) stat(st *Stat) {
	st.DiskBytes, st.DiskBytesMax, st.Segments, st.Direct = uint64(d.used), uint64(d.limit), len(d.segments), d.direct
	for _, g := range d.segments {
		st.DiskLiveBytes += uint64(g.live)
	}
	switch {
	case d.broken != nil:
		st.Disk, st.DiskWhy = DiskBroken, d.broken.Error()
	case d.hangs():
		st.Disk, st.DiskWhy = DiskPaused, fmt.Sprintf("a write has taken more than %v: the disk seems to hang", d.writeMax)
	case d.problem != nil && isFull(d.problem):
		st.Disk, st.DiskWhy = DiskFull, d.problem.Error()
	case d.problem != nil:
		st.Disk, st.DiskWhy = DiskPaused, d.problem.Error()
	case d.discarded != "":
		st.Disk, st.DiskWhy = DiskStarted, d.discarded
	default:
		st.Disk = DiskWorks
	}
	if !d.direct && st.DiskWhy == "" {
		st.DiskWhy = "the file system refuses direct I/O: the kernel caches what is read and written"
	}
}
