package journal

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"rota/agent/internal/record"
	"rota/agent/plan"
)

var (
	// ErrCorrupt means that the file was damaged after it was written.
	ErrCorrupt = errors.New("journal: damaged")
	// ErrLocked means that another process has the journal open.
	ErrLocked = errors.New("journal: in use by another agent")
	// ErrFailed means that an earlier write failed: what is on disk is unknown
	// until the journal is opened again.
	ErrFailed = errors.New("journal: an earlier write failed")
)

// compactMin is the size in bytes below which a journal is never rewritten, and what it grows by before
// that is tried again if it failed.
const compactMin = 1 << 20

// State is what the journal knows of one attempt.
type State struct {
	// Reported says that a server has confirmed the report of its end.
	Reported bool
	// Rebooted says that the machine was started anew since it was accepted.
	Rebooted bool
}

// Journal is an open journal. Its methods may be called concurrently. After
// an error of a write every later write fails with ErrFailed.
type Journal struct {
	mu        sync.Mutex
	path      string
	lock      *os.File
	file      *os.File
	size      int64
	compactAt int64 // size above which it is to be rewritten
	reserve   int64 // size at which space is to be reserved
	content   content
	failed    bool

	// said is what is asked for while the disk may hang: mu is held while it is written to.
	said struct {
		incarnation atomic.Uint64
		size        atomic.Int64
	}
}

// Open opens the journal at path or creates an empty one with a random ID.
// bootID identifies the current boot of the machine. It fails with ErrCorrupt
// if the file cannot be trusted and with ErrLocked if it is in use.
func Open(path, bootID string) (*Journal, error) {
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, err
	}
	j := &Journal{path: path, lock: lock}
	if err := j.open(bootID); err != nil {
		_ = j.Close()
		return nil, err
	}
	j.say()
	return j, nil
}

// say tells those who do not take the lock.
func (j *Journal) say() {
	j.said.incarnation.Store(j.content.incarnation)
	j.said.size.Store(j.size)
}

func (j *Journal) open(bootID string) error {
	data, err := os.ReadFile(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		j.content = content{id: randomID(), boot: bootID, attempts: map[plan.Key]State{}}
		return j.rewrite()
	}
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	c, valid, err := decode(data)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, j.path, err)
	}
	j.content = c
	if j.file, err = os.OpenFile(j.path, os.O_RDWR, 0); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := j.cut(int64(valid), valid < len(data)); err != nil {
		return err
	}
	if c.boot == bootID {
		return nil
	}
	return j.append(true, bootRecord(bootID))
}

// cut drops the torn tail, durably: an append over it must not be mistaken for
// the rest of a frame. Where nothing is torn the file is not truncated, as that would
// free the space that is reserved behind its end, and the disk may be full.
func (j *Journal) cut(size int64, torn bool) error {
	if torn {
		if err := j.file.Truncate(size); err != nil {
			return fmt.Errorf("journal: cut torn tail: %w", err)
		}
		j.reserve = record.Reserve(j.file, size)
	}
	if _, err := j.file.Seek(size, io.SeekStart); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.size, j.compactAt = size, compactAfter(size)
	return nil
}

// SetAside renames a journal that cannot be trusted, so that a new one can be
// created and the damage can still be looked at. It returns the new name.
func SetAside(path string) (string, error) {
	for i := 1; ; i++ {
		aside := fmt.Sprintf("%s.damaged-%d", path, i)
		if _, err := os.Lstat(aside); err == nil {
			continue
		}
		if err := os.Rename(path, aside); err != nil {
			return "", fmt.Errorf("journal: set aside: %w", err)
		}
		return aside, record.SyncDir(filepath.Dir(path))
	}
}

// ID is the random value drawn when the journal was created.
func (j *Journal) ID() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.content.id
}

// Incarnation is the one whose attempts the journal holds; 0 for none. It does not wait for the disk.
func (j *Journal) Incarnation() uint64 { return j.said.incarnation.Load() }

// Size is how many bytes the journal has. It does not wait for the disk.
func (j *Journal) Size() int64 { return j.said.size.Load() }

// Machine is what SetMachine has recorded last. It is empty in a new journal, and in one of an older
// release.
func (j *Journal) Machine() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.content.machine
}

// SetMachine records, durably, as which machine the cluster knows the node. It comes before
// SetIncarnation, so that nothing runs of an incarnation whose machine is unknown.
func (j *Journal) SetMachine(machine string) error {
	if machine == j.Machine() {
		return nil
	}
	return j.commit(true, stringRecord(kindMachine, machine))
}

// Attempts returns every attempt that was accepted and not forgotten.
func (j *Journal) Attempts() map[plan.Key]State {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.content.attempts)
}

// SetIncarnation forgets the attempts of all others, durably.
func (j *Journal) SetIncarnation(incarnation uint64) error {
	return j.commit(true, incarnationRecord(incarnation))
}

// Accept records that attempts are about to be started. It is durable on
// return: an attempt may be started only after that.
func (j *Journal) Accept(keys []plan.Key) error {
	return j.commit(true, keyRecords(kindAccepted, keys))
}

// Report records that servers have confirmed the ends of attempts.
func (j *Journal) Report(keys []plan.Key) error {
	return j.commit(false, keyRecords(kindReported, keys))
}

// Forget drops attempts that the cluster will not name again.
func (j *Journal) Forget(keys []plan.Key) error {
	return j.commit(false, keyRecords(kindForgotten, keys))
}

// Close releases the journal. Every durable write was made so before.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var err error
	if j.file != nil {
		err = j.file.Close()
		j.file = nil
	}
	return errors.Join(err, j.lock.Close())
}

func (j *Journal) commit(sync bool, payload []byte) error {
	if len(payload) == 0 {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.say()
	if err := j.append(sync, payload); err != nil {
		return err
	}
	if j.size <= j.compactAt {
		return nil
	}
	err := j.rewrite()
	if err != nil && j.inPlace() { // as on a full disk: the old file is as good as before
		j.compactAt = j.size + compactMin
		return nil
	}
	j.failed = err != nil
	return err
}

// inPlace reports whether the open file is the one that the next Open will read.
func (j *Journal) inPlace() bool {
	open, err := j.file.Stat()
	if err != nil {
		return false
	}
	found, err := os.Stat(j.path)
	return err == nil && os.SameFile(open, found)
}

// append writes one frame and applies it. A frame that may be on disk in part
// is never followed by another, so only the last one can be torn.
func (j *Journal) append(sync bool, payload []byte) error {
	if j.failed || j.file == nil {
		return ErrFailed
	}
	if j.size >= j.reserve {
		j.reserve = record.Reserve(j.file, j.size)
	}
	frame := record.Append(nil, payload)
	if _, err := j.file.Write(frame); err != nil {
		j.failed = true
		return fmt.Errorf("journal: %w", err)
	}
	if sync {
		if err := unix.Fdatasync(int(j.file.Fd())); err != nil {
			j.failed = true
			return fmt.Errorf("journal: sync: %w", err)
		}
	}
	j.size += int64(len(frame))
	if err := j.content.apply(payload); err != nil {
		j.failed = true
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// compactAfter is the size above which a journal is rewritten that had so many bytes without garbage.
func compactAfter(live int64) int64 { return max(compactMin, 4*live) }

// rewrite replaces the file by one that holds only what is still known.
func (j *Journal) rewrite() error {
	data := j.content.encode()
	f, err := record.Replace(j.path, data)
	if err != nil {
		return fmt.Errorf("journal: rewrite: %w", err)
	}
	if j.file != nil {
		_ = j.file.Close()
	}
	j.file, j.size, j.compactAt = f, int64(len(data)), compactAfter(int64(len(data)))
	j.reserve = record.Reserve(f, j.size)
	return nil
}

// lockFile takes a lock that the kernel gives back when the process dies.
func lockFile(path string) (*os.File, error) {
	f, err := record.Lock(path)
	if errors.Is(err, record.ErrLocked) {
		return nil, fmt.Errorf("%w: %s", ErrLocked, path)
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return f, nil
}

func randomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}
