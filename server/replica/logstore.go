package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"rota/internal/failpoint"
)

// logStore adds to the entries of the log a checksum for each, the high-water mark
// and a bounded cache of the newest.
//
// The checksum is kept behind the entry's extensions, which raft carries but
// does not read; it is taken off before anybody sees the entry.
type logStore struct {
	guard *guard
	raw   LogStore
	mark  *mark
	cache logCache
	last  atomic.Uint64
	// closed: the store below is closed or about to be, so an error says nothing of the disk.
	closed atomic.Bool
	// stored gets a token after each append, for the proposer.
	stored chan struct{}
	// appended is told how long each append took.
	appended func(time.Duration)

	mu   sync.Mutex
	noop position // of the newest no-op entry
}

type position struct{ index, term uint64 }

func openLogs(raw LogStore, m *mark, g *guard) (*logStore, error) {
	s := &logStore{guard: g, raw: raw, mark: m, stored: make(chan struct{}, 1), appended: func(time.Duration) {}}
	last, err := s.LastIndex()
	if err != nil {
		return nil, fmt.Errorf("read last index: %w", err)
	}
	s.last.Store(last)
	return s, nil
}

func entryCRC(l *raft.Log, ext []byte) uint32 {
	var head [17]byte
	binary.LittleEndian.PutUint64(head[:], l.Index)
	binary.LittleEndian.PutUint64(head[8:], l.Term)
	head[16] = byte(l.Type)
	crc := crc32.Update(0, castagnoli, head[:])
	crc = crc32.Update(crc, castagnoli, l.Data)
	return crc32.Update(crc, castagnoli, ext)
}

// seal returns a copy of the entry with its checksum behind the extensions.
func seal(l *raft.Log) raft.Log {
	sealed := *l
	ext := append(make([]byte, 0, len(l.Extensions)+4), l.Extensions...)
	sealed.Extensions = binary.LittleEndian.AppendUint32(ext, entryCRC(l, l.Extensions))
	return sealed
}

// unseal verifies the entry and takes its checksum off.
func unseal(index uint64, l *raft.Log) error {
	n := len(l.Extensions) - 4
	if n < 0 || l.Index != index || entryCRC(l, l.Extensions[:n]) != binary.LittleEndian.Uint32(l.Extensions[n:]) {
		return fmt.Errorf("%w: checksum of entry %d", ErrCorrupt, index)
	}
	l.Extensions = l.Extensions[:n:n]
	if n == 0 {
		l.Extensions = nil
	}
	return nil
}

// read runs a read; a panic of a store over its own files is corruption.
func (s *logStore) read(what string, fn func() error) (err error) {
	defer func() {
		p := recover()
		switch {
		case p == nil:
		case s.closed.Load():
			err = fmt.Errorf("%s of a closed log: %v", what, p)
		default:
			err = fmt.Errorf("%w: %s: %v", ErrCorrupt, what, p)
			s.guard.fatal(err)
		}
	}()
	return fn()
}

// FirstIndex implements raft.LogStore.
func (s *logStore) FirstIndex() (first uint64, err error) {
	err = s.read("first index", func() error { first, err = s.raw.FirstIndex(); return err })
	return first, err
}

// LastIndex implements raft.LogStore.
func (s *logStore) LastIndex() (last uint64, err error) {
	err = s.read("last index", func() error { last, err = s.raw.LastIndex(); return err })
	return last, err
}

// GetLog implements raft.LogStore. An entry that does not match its checksum is
// never returned: it ends the process. After the end of the replica, status and questions of
// other servers may still read, and fail.
func (s *logStore) GetLog(index uint64, l *raft.Log) error {
	if s.cache.get(index, l) {
		return nil
	}
	err := s.read(fmt.Sprintf("entry %d", index), func() error { return s.raw.GetLog(index, l) })
	if errors.Is(err, raft.ErrLogNotFound) {
		return raft.ErrLogNotFound // raft compares it with ==
	}
	if err != nil && s.closed.Load() {
		return err
	}
	if err == nil {
		err = unseal(index, l)
	} else if !errors.Is(err, ErrCorrupt) {
		err = fmt.Errorf("%w: entry %d: %w", ErrCorrupt, index, err)
	}
	if err != nil {
		*l = raft.Log{}
		s.guard.fatal(err)
	}
	return err
}

// StoreLog implements raft.LogStore.
func (s *logStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (s *logStore) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	sealed := make([]raft.Log, len(logs))
	refs := make([]*raft.Log, len(logs))
	for i, l := range logs {
		sealed[i] = seal(l)
		refs[i] = &sealed[i]
	}
	began := time.Now()
	if err := s.guard.write("append to log", func() error { return s.raw.StoreLogs(refs) }); err != nil {
		return err
	}
	s.appended(time.Since(began))
	failpoint.Hit(failpoint.LogAppended)
	last := logs[len(logs)-1]
	s.cache.add(logs)
	s.last.Store(last.Index)
	s.noteNoop(logs)
	s.mark.raise(last.Index, last.Term)
	select {
	case s.stored <- struct{}{}:
	default:
	}
	return nil
}

// clearStored forgets appends before now.
func (s *logStore) clearStored() {
	select {
	case <-s.stored:
	default:
	}
}

func (s *logStore) noteNoop(logs []*raft.Log) {
	for _, l := range logs {
		if l.Type == raft.LogNoop {
			s.mu.Lock()
			s.noop = position{l.Index, l.Term}
			s.mu.Unlock()
		}
	}
}

// newestNoop returns where the newest no-op entry that was stored here is.
func (s *logStore) newestNoop() position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noop
}

// DeleteRange implements raft.LogStore. Cutting off the tail lowers the mark
// first: between the two the store is above its mark, which is harmless.
func (s *logStore) DeleteRange(first, last uint64) error {
	if last == 0 {
		return nil // RecoverCluster deletes all of a log, also of one that is empty
	}
	tail := last >= s.last.Load() && first <= s.last.Load()
	if tail {
		if err := s.lowerMark(first); err != nil {
			return err
		}
		failpoint.Hit(failpoint.LogCut)
	}
	s.cache.drop(first, last)
	return s.deleteInSteps(first, last, tail)
}

// deleteInSteps deletes as many entries at once as the store allows. A tail goes from
// its end: a crash in the middle must not leave a hole.
func (s *logStore) deleteInSteps(first, last uint64, tail bool) error {
	more := s.raw.DeleteMax() - 1
	for first <= last {
		from, to := first, first+min(last-first, more)
		if tail {
			from, to = last-min(last-first, more), last
		}
		err := s.guard.write("delete from log", func() error { return s.raw.DeleteRange(from, to) })
		if err != nil {
			return err
		}
		if tail {
			last = from - 1
		} else {
			first = to + 1
		}
	}
	return nil
}

// lowerMark prepares for the loss of everything from index on. If the whole log
// goes, a snapshot holds what was in it, and the mark stays.
//
// Behind a snapshot that a leader has sent, the log may have a gap. What was in it
// is in that snapshot, so the mark still goes to the index before: at a restart the
// snapshot reaches as far, and without it the server is quarantined. Whose term that
// index is of is not known here, so the mark keeps the term of what is cut off. It is
// a later one: a quarantine ends no sooner with it, and still ends, as whoever cuts
// leads in a later term.
func (s *logStore) lowerMark(index uint64) error {
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	if index <= first {
		s.last.Store(0)
		return nil
	}
	before := raft.Log{Term: s.mark.snapshot().term}
	if err := s.GetLog(index-1, &before); err != nil && !errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	s.last.Store(index - 1)
	return s.mark.lower(index-1, before.Term)
}

// logCache holds the newest entries, contiguous, bounded in number and bytes.
type logCache struct {
	mu    sync.RWMutex
	ring  [cacheEntries]*raft.Log
	lo    uint64 // first index held
	hi    uint64 // one past the last
	bytes int
}

const (
	cacheEntries = 1024
	cacheBytes   = 32 << 20
)

func (c *logCache) get(index uint64, l *raft.Log) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if index < c.lo || index >= c.hi {
		return false
	}
	*l = *c.ring[index%cacheEntries]
	return true
}

func (c *logCache) add(logs []*raft.Log) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range logs {
		if l.Index != c.hi {
			c.clear(l.Index)
		}
		if c.hi-c.lo == cacheEntries {
			c.evict()
		}
		c.ring[l.Index%cacheEntries] = l
		c.hi++
		c.bytes += len(l.Data)
		for c.bytes > cacheBytes && c.lo < c.hi {
			c.evict()
		}
	}
}

func (c *logCache) evict() {
	slot := &c.ring[c.lo%cacheEntries]
	c.bytes -= len((*slot).Data)
	*slot = nil
	c.lo++
}

func (c *logCache) clear(next uint64) {
	for c.lo < c.hi {
		c.evict()
	}
	c.lo, c.hi = next, next
}

// drop forgets what overlaps [first, last].
func (c *logCache) drop(first, last uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last+1 >= c.hi || first > c.lo {
		if first < c.hi && last >= c.lo {
			c.clear(0) // the tail, or a part in the middle
		}
		return
	}
	for c.lo < c.hi && c.lo <= last {
		c.evict()
	}
}
