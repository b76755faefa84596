package disk

import (
	"sync"
	"syscall"
)

// Op is a kind of operation that can fail.
type Op string

// Operations. Write stands for everything that changes files or names.
const (
	Read  Op = "read"
	Write Op = "write"
	Fsync Op = "fsync" // of files and folders
)

// Counters say what was done, and which faults took effect.
type Counters struct {
	Reads, Writes, Fsyncs                      int
	FailedReads, FailedWrites, FailedFsyncs    int // with EIO
	LiedFsyncs                                 int // that did nothing
	RefusedWrites                              int // with ENOSPC
	HungReads, HungWrites, HungFsyncs, Hanging int // Hanging: right now
	PowerLosses                                int
}

// faults is the switchboard: which operations are to fail, and how.
type faults struct {
	mu     sync.Mutex
	counts Counters
	fail   map[Op]int
	lies   int
	hang   map[Op]*hang
	// free is how many bytes files can still grow by, if limited.
	limited bool
	free    int64
}

// hang holds operations until it is over, but the first few.
type hang struct {
	after int
	over  chan struct{}
}

// verdict is what becomes of an operation.
type verdict int

const (
	pass verdict = iota
	fail
	lie
)

// begin counts an operation, holds it while its kind hangs, and says what
// becomes of it.
func (f *faults) begin(op Op) verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	count(op, &f.counts.Reads, &f.counts.Writes, &f.counts.Fsyncs)
	f.wait(op)
	if f.fail[op] > 0 {
		f.fail[op]--
		count(op, &f.counts.FailedReads, &f.counts.FailedWrites, &f.counts.FailedFsyncs)
		return fail
	}
	if op == Fsync && f.lies > 0 {
		f.lies--
		f.counts.LiedFsyncs++
		return lie
	}
	return pass
}

// wait holds an operation while its kind hangs. It is called under the lock,
// which it gives up meanwhile.
func (f *faults) wait(op Op) {
	h := f.hang[op]
	if h == nil {
		return
	}
	if h.after > 0 {
		h.after--
		return
	}
	count(op, &f.counts.HungReads, &f.counts.HungWrites, &f.counts.HungFsyncs)
	f.counts.Hanging++
	f.mu.Unlock()
	<-h.over
	f.mu.Lock()
	f.counts.Hanging--
}

func count(op Op, reads, writes, fsyncs *int) {
	switch op {
	case Read:
		*reads++
	case Write:
		*writes++
	case Fsync:
		*fsyncs++
	}
}

// grow takes the space for so many bytes, or gives it back if negative.
func (f *faults) grow(bytes int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.limited && bytes > f.free {
		f.counts.RefusedWrites++
		return syscall.ENOSPC
	}
	f.free -= bytes
	return nil
}

// Fail makes the next n operations of a kind fail with EIO, in addition to
// those that still are to. A failed write has written nothing; of a failed
// fsync see the comment of the package.
func (f *FS) Fail(op Op, n int) {
	f.faults.mu.Lock()
	defer f.faults.mu.Unlock()
	f.faults.fail[op] += n
}

// Lie makes the next n fsyncs succeed without making anything durable. A later
// honest fsync does what they did not.
func (f *FS) Lie(n int) {
	f.faults.mu.Lock()
	defer f.faults.mu.Unlock()
	f.faults.lies += n
}

// Hang makes operations of these kinds wait until release is called, or Heal. A
// process in such a call cannot be killed: it is gone only after the release,
// and its ports with it, as on a real disk.
func (f *FS) Hang(ops ...Op) (release func()) {
	var releases []func()
	for _, op := range ops {
		releases = append(releases, f.HangAfter(0, op))
	}
	return func() {
		for _, release := range releases {
			release()
		}
	}
}

// HangAfter lets n operations of a kind pass and makes the others wait, as Hang
// does. A power loss in the meantime happens before the operation that waits.
func (f *FS) HangAfter(n int, op Op) (release func()) {
	h := &hang{after: n, over: make(chan struct{})}
	f.faults.mu.Lock()
	defer f.faults.mu.Unlock()
	f.faults.release(op)
	f.faults.hang[op] = h
	return func() {
		f.faults.mu.Lock()
		defer f.faults.mu.Unlock()
		if f.faults.hang[op] == h {
			f.faults.release(op)
		}
	}
}

// release lets operations of a kind go on. It is called under the lock.
func (f *faults) release(op Op) {
	if h := f.hang[op]; h != nil {
		close(h.over)
		delete(f.hang, op)
	}
}

// Full leaves so many bytes of space. Whatever would make files grow by more
// fails with ENOSPC; shorter and removed files give space back.
func (f *FS) Full(free int64) {
	f.faults.mu.Lock()
	defer f.faults.mu.Unlock()
	f.faults.limited, f.faults.free = true, free
}

// Heal switches all faults off and lets go what hangs.
func (f *FS) Heal() {
	f.faults.mu.Lock()
	defer f.faults.mu.Unlock()
	clear(f.faults.fail)
	f.faults.lies, f.faults.limited = 0, false
	for _, op := range []Op{Read, Write, Fsync} {
		f.faults.release(op)
	}
}

// Counters returns what has happened since Mount.
func (f *FS) Counters() Counters {
	f.faults.mu.Lock()
	defer f.faults.mu.Unlock()
	return f.faults.counts
}
