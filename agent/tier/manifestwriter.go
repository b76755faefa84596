package tier

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"time"

	"rota/agent/internal/record"
	"rota/internal/clock"
)

const (
	// compactMin is the size in bytes below which a manifest is not rewritten.
	compactMin = 1 << 20
	// compactAgain is when that is tried again after it failed.
	compactAgain = time.Minute
)

// manifest is the open file, and what is to be appended to it. One goroutine writes it, writeManifest.
type manifest struct {
	path    string
	file    *os.File
	size    int64
	live    int64     // size after the last rewriting
	reserve int64     // size at which space is to be reserved
	again   time.Time // no rewriting before
	// Replaced in tests.
	replace func(path string, data []byte) (*os.File, error)

	// Store.mu guards what follows.

	pending         []byte    // frames
	queued, written uint64    // bytes of frames since Open
	writing         time.Time // when the write began that is under way; zero: none is
	ended           bool      // nothing is recorded any more
	// unwritten has, of keys, the value of queued after their last frame that is not written yet, and
	// unwrittenAll that of the last frame that is about all keys. Keys are hashed, so that long ones take
	// no memory: where two have one hash, their callers wait a little longer.
	unwritten    map[uint64]uint64
	unwrittenAll uint64
	seed         maphash.Seed
}

// record has the manifest say what has just been done to the index, and returns it, or nil if nothing is
// recorded any more. It does not wait for that.
func (s *Store) record(payloads ...[]byte) *manifest {
	if s.disk == nil || s.disk.broken != nil || s.disk.manifest.ended {
		return nil
	}
	m := &s.disk.manifest
	before := len(m.pending)
	for _, p := range payloads {
		m.pending = record.Append(m.pending, p)
	}
	m.queued += uint64(len(m.pending) - before)
	s.changed.Broadcast()
	return m
}

// recordOf is record of what was done to keys, for settleKeys.
func (s *Store) recordOf(payload []byte, keys ...string) {
	m := s.record(payload)
	if m == nil {
		return
	}
	for _, key := range keys {
		m.unwritten[maphash.String(m.seed, key)] = m.queued
	}
	if uint64(len(m.unwritten)) > s.indexMax/entryBytes { // more than the index has room for, so the disk hangs
		m.recordedAll()
	}
}

// recordedAll says that what was recorded before may be about any key.
func (m *manifest) recordedAll() { m.unwritten, m.unwrittenAll = map[uint64]uint64{}, m.queued }

// settle returns when the manifest has everything that was recorded before, or is gone, or the context
// ends. Store.mu is held at the call, and not meanwhile.
func (s *Store) settle(ctx context.Context) {
	if s.disk != nil {
		s.settleTo(ctx, s.disk.manifest.queued)
	}
}

// settleKeys is settle for what was recorded of these keys, by whichever call. A call that changes a key,
// or says that there is none, is answered after that: a value that it drops, or that one before it has
// dropped, would be back after a crash. What is recorded of other keys holds up no call.
func (s *Store) settleKeys(keys ...string) {
	if s.disk == nil {
		return
	}
	m := &s.disk.manifest
	upTo := m.unwrittenAll
	for _, key := range keys {
		upTo = max(upTo, m.unwritten[maphash.String(m.seed, key)])
	}
	s.settleTo(context.Background(), upTo)
}

func (s *Store) settleTo(ctx context.Context, upTo uint64) {
	for m := &s.disk.manifest; m.written < upTo && s.disk.broken == nil && ctx.Err() == nil; {
		s.changed.Wait()
	}
}

// wrote notes what is written. The map is made anew, since one that was large would stay so.
func (m *manifest) wrote(upTo uint64) {
	m.writing, m.written = time.Time{}, upTo
	left := map[uint64]uint64{}
	for key, at := range m.unwritten {
		if at > upTo {
			left[key] = at
		}
	}
	m.unwritten = left
}

// writeManifest is the goroutine that writes the manifest: what was recorded since it wrote last at
// once, or everything anew. A manifest that cannot be appended to is removed, because it would bring
// back what has been dropped since: the disk tier has ended then.
func (s *Store) writeManifest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.disk
	for m := &d.manifest; d.broken == nil; {
		if len(m.pending) == 0 {
			if m.ended {
				return
			}
			s.changed.Wait()
			continue
		}
		frames, upTo := m.pending, m.queued
		m.pending = nil
		var whole []byte
		if m.grown(len(frames)) {
			whole = s.manifestNow()
		}
		m.writing = time.Now()
		s.mu.Unlock()
		err := m.write(frames, whole)
		if err != nil {
			m.discard()
		}
		s.mu.Lock()
		m.wrote(upTo)
		if err != nil {
			d.broken = fmt.Errorf("manifest: %w", err) // the demoter drops what is there
		}
		s.changed.Broadcast()
	}
}

// beginManifest has a manifest say what was found: a new one, or else the old one if all of it was
// found. Durably: the old one may be marked as closed, and is not true any more once a segment changes.
func (s *Store) beginManifest(old *contents) error {
	whole, m := s.manifestNow(), &s.disk.manifest
	err := m.rewrite(whole, record.Replace)
	if err == nil || old == nil || s.counts.lost > 0 {
		return err
	}
	if cannot := m.goOn(old, s.options.BootID); cannot != nil {
		return errors.Join(err, cannot)
	}
	m.live, m.again = int64(len(whole)), clock.Now().Add(compactAgain)
	return nil
}

// endManifest returns when everything is written that was recorded.
func (s *Store) endManifest() {
	s.mu.Lock()
	s.disk.manifest.ended = true
	s.changed.Broadcast()
	s.mu.Unlock()
	s.manifest.Wait()
}

// manifestNow is a manifest that says what is so now. Blocks and keys are in the order of their last
// use, so that the next Open knows it.
func (s *Store) manifestNow() []byte {
	data := append([]byte(manifestMagic), bootRecord(s.options.BootID)...)
	for rank := s.onDisk.Back(); rank != nil; rank = rank.Prev() {
		data = record.Append(data, blockRecord(rank.Value.(*block)))
	}
	for age := s.index.aged.Back(); age != nil; age = age.Prev() {
		if e := age.Value.(*entry); e.recorded {
			data = record.Append(data, keyRecord(e))
		}
	}
	return data
}

// grown says whether it is mostly garbage with so many more bytes.
func (m *manifest) grown(by int) bool {
	size := m.size + int64(by)
	return size > compactMin && size > 4*m.live && !clock.Now().Before(m.again)
}

// write appends frames, or replaces the file by a whole one, which has what they say. If that fails, as
// on a full disk, the old one goes on.
func (m *manifest) write(frames, whole []byte) error {
	if whole != nil {
		// Without waiting for the disk. After a crash of the machine, the cache is discarded whatever the
		// manifest is: none of this boot is marked as closed before disk.close has synced it.
		err := m.rewrite(whole, m.replace)
		if err == nil {
			return nil
		}
		m.again = clock.Now().Add(compactAgain)
	}
	if m.size >= m.reserve {
		m.reserve = record.Reserve(m.file, m.size)
	}
	n, err := m.file.Write(frames)
	m.size += int64(n)
	return err
}

// rewrite replaces the file.
func (m *manifest) rewrite(whole []byte, replace func(path string, data []byte) (*os.File, error)) error {
	f, err := replace(m.path, whole)
	if err != nil {
		_ = os.Remove(m.path + ".new") // on a full disk it takes what others need
		return err
	}
	if m.file != nil {
		_ = m.file.Close()
	}
	m.file, m.size, m.live = f, int64(len(whole)), int64(len(whole))
	m.reserve = record.Reserve(f, m.size)
	return nil
}

// goOn appends to the manifest of an earlier run, which takes hardly any space, as one of this boot. A
// record at its end that closed it is cut off, as is one that is not whole.
func (m *manifest) goOn(old *contents, bootID string) error {
	f, err := os.OpenFile(m.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	boot := bootRecord(bootID)
	st, err := f.Stat()
	if err == nil && st.Size() != old.size {
		err = errors.New("it is not the one that was read")
	}
	if err == nil {
		err = f.Truncate(old.end)
	}
	if err == nil {
		_, err = f.Write(boot)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	m.file, m.size = f, old.end+int64(len(boot))
	return nil
}

// bootRecord is the frame that says which boot what follows is of.
func bootRecord(id string) []byte {
	return record.Append(nil, record.AppendString([]byte{kindBoot}, id))
}

// discard has no later Open believe the manifest.
func (m *manifest) discard() {
	if err := os.Remove(m.path); err != nil && m.file != nil {
		_ = m.file.Truncate(0)
	}
}
