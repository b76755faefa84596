package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// A mark file has two slots that are written in turn, each in a block of its
// own, so that a torn write never touches the newest complete one:
//
//	magic 8 | seq 8 | last index 8 | last term 8 | term 8 | vote term 8 | held 8 | len 4 | candidate | crc 4
const (
	markMagic     = "rotamrk1"
	markSlot      = 4096
	markHeader    = 60
	candidateMax  = 1024
	markFileBytes = 2 * markSlot
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// vote is raft's durable promise: the term it has seen, and whom it voted for.
type vote struct {
	term      uint64
	voteTerm  uint64
	candidate string
}

// newer says whether v promises more than o.
func (v vote) newer(o vote) bool {
	if v.term != o.term {
		return v.term > o.term
	}
	return v.voteTerm > o.voteTerm
}

// markState is what the mark remembers of the store beside it.
type markState struct {
	seq   uint64
	index uint64 // last index that was durably appended
	term  uint64 // its term
	vote  vote
	// held: the store was found behind, and has not caught up since. The mark
	// stands still until it has, also over restarts.
	held bool
}

// mark is the high-water mark of the log store, and a second copy of the vote.
type mark struct {
	guard *guard
	file  *os.File

	mu    sync.Mutex // state
	state markState
	dirty bool

	writing sync.Mutex // file; taken before mu

	kick chan struct{}
	stop chan struct{}
	done chan struct{}
}

// openMark opens or creates the mark in dir.
func openMark(dir string, g *guard) (*mark, error) {
	path := filepath.Join(dir, "mark")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open high-water mark: %w", err)
	}
	state, err := readMark(file)
	if err == nil {
		err = initMark(file, dir)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("high-water mark %s: %w", path, err)
	}
	m := &mark{
		guard: g, file: file, state: state,
		kick: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go m.run()
	return m, nil
}

// initMark gives a new file its full length, so that later writes change no
// metadata and one flush of data is enough.
func initMark(file *os.File, dir string) error {
	info, err := file.Stat()
	if err != nil || info.Size() >= markFileBytes {
		return err
	}
	if _, err := file.WriteAt(make([]byte, markFileBytes-info.Size()), info.Size()); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

var errMarkDamaged = errors.New("both slots are damaged: if the log beside it is known to be whole, remove the file; else replace the data directory")

// readMark returns the newest complete slot; the zero state for a new file.
func readMark(file *os.File) (markState, error) {
	buf := make([]byte, markFileBytes)
	n, err := file.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return markState{}, err
	}
	if n < markFileBytes {
		return markState{}, nil // creation was cut short: nothing was marked yet
	}
	a, aOK := decodeMark(buf[:markSlot])
	b, bOK := decodeMark(buf[markSlot:])
	switch {
	case aOK && (!bOK || a.seq > b.seq):
		return a, nil
	case bOK:
		return b, nil
	case allZero(buf):
		return markState{}, nil
	}
	return markState{}, errMarkDamaged
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

func encodeMark(buf []byte, s markState) []byte {
	buf = append(buf[:0], markMagic...)
	var held uint64
	if s.held {
		held = 1
	}
	for _, v := range []uint64{s.seq, s.index, s.term, s.vote.term, s.vote.voteTerm, held} {
		buf = binary.LittleEndian.AppendUint64(buf, v)
	}
	buf = binary.LittleEndian.AppendUint32(buf, uint32(len(s.vote.candidate)))
	buf = append(buf, s.vote.candidate...)
	return binary.LittleEndian.AppendUint32(buf, crc32.Checksum(buf, castagnoli))
}

func decodeMark(b []byte) (markState, bool) {
	if len(b) < markHeader+4 || string(b[:8]) != markMagic {
		return markState{}, false
	}
	u := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8+8*i:]) }
	n := int(binary.LittleEndian.Uint32(b[markHeader-4:]))
	if n > candidateMax || markHeader+n+4 > len(b) {
		return markState{}, false
	}
	end := markHeader + n
	if crc32.Checksum(b[:end], castagnoli) != binary.LittleEndian.Uint32(b[end:]) {
		return markState{}, false
	}
	return markState{
		seq: u(0), index: u(1), term: u(2), held: u(5) != 0,
		vote: vote{term: u(3), voteTerm: u(4), candidate: string(b[markHeader:end])},
	}, true
}

// raise notes a durable append; it is written in the background.
func (m *mark) raise(index, term uint64) {
	m.mu.Lock()
	if m.state.held {
		m.mu.Unlock()
		return
	}
	m.state.index, m.state.term = index, term
	m.dirty = true
	m.mu.Unlock()
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// lower notes, durably, that the log will be cut back to index.
func (m *mark) lower(index, term uint64) error {
	m.mu.Lock()
	if index < m.state.index && !m.state.held {
		m.state.index, m.state.term = index, term
		m.dirty = true
	}
	m.mu.Unlock()
	return m.sync()
}

// hold makes the mark stand still, durably.
func (m *mark) hold() error {
	m.mu.Lock()
	m.dirty = m.dirty || !m.state.held
	m.state.held = true
	m.mu.Unlock()
	return m.sync()
}

// release ends hold: the log is whole up to index.
func (m *mark) release(index, term uint64) error {
	m.mu.Lock()
	m.state.held = false
	m.state.index, m.state.term = index, term
	m.dirty = true
	m.mu.Unlock()
	return m.sync()
}

// setVote notes a vote, durably.
func (m *mark) setVote(v vote) error {
	m.mu.Lock()
	m.state.vote = v
	m.dirty = true
	m.mu.Unlock()
	return m.sync()
}

// snapshot returns what is (or is about to be) marked.
func (m *mark) snapshot() markState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// sync writes the state if it changed.
func (m *mark) sync() error {
	m.writing.Lock()
	defer m.writing.Unlock()
	m.mu.Lock()
	if !m.dirty {
		m.mu.Unlock()
		return nil
	}
	m.dirty = false
	m.state.seq++
	state := m.state
	m.mu.Unlock()
	return m.guard.write("high-water mark", func() error {
		buf := encodeMark(make([]byte, 0, 256), state)
		if _, err := m.file.WriteAt(buf, int64(state.seq%2)*markSlot); err != nil {
			return err
		}
		return unix.Fdatasync(int(m.file.Fd()))
	})
}

func (m *mark) run() {
	defer close(m.done)
	for {
		select {
		case <-m.stop:
			return
		case <-m.kick:
			_ = m.sync() // an error is fatal already
		}
	}
}

// close writes what is pending and closes the file.
func (m *mark) close() error {
	close(m.stop)
	<-m.done
	return errors.Join(m.sync(), m.file.Close())
}
