package clockctl

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"rota/internal/clock/boottime"
)

// magic is at the start of every clock file.
const magic = 0x31_6b_63_6c_63_74_6f_72 // "rotclck1", little endian

// page is the file, mapped. seq is odd while the line is being written, so that
// a reader sees the whole of a line or tries again.
type page struct {
	magic, seq               atomic.Uint64
	trueNS, shownNS, ratePPM atomic.Int64
}

const pageBytes = int(unsafe.Sizeof(page{}))

// mapPage maps an open file, which can be closed then.
func mapPage(f *os.File, protection int) (*page, []byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if info.Size() != int64(pageBytes) {
		return nil, nil, fmt.Errorf("%s is no clock file: it has %d bytes, not %d", f.Name(), info.Size(), pageBytes)
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, pageBytes, protection, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map clock file %s: %w", f.Name(), err)
	}
	return (*page)(unsafe.Pointer(unsafe.SliceData(memory))), memory, nil
}

func (p *page) write(l line) {
	p.trueNS.Store(l.trueNS)
	p.shownNS.Store(l.shownNS)
	p.ratePPM.Store(l.ratePPM)
}

// read returns the line, and the true time at a moment when it was the one that
// counted: nobody is shown a later time by it than where the next one begins.
func (p *page) read() (l line, now int64) {
	for {
		seq := p.seq.Load()
		if seq%2 == 0 {
			l = line{p.trueNS.Load(), p.shownNS.Load(), p.ratePPM.Load()}
			now = boottime.Now()
			if p.seq.Load() == seq {
				return l, now
			}
		}
		runtime.Gosched()
	}
}

// Follower reads a clock. Its methods may be called concurrently.
type Follower struct{ page *page }

// Follow maps the file for the rest of the life of this process.
func Follow(path string) (*Follower, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("follow clock: %w", err)
	}
	defer f.Close()
	p, _, err := mapPage(f, unix.PROT_READ)
	if err != nil {
		return nil, err
	}
	if p.magic.Load() != magic {
		return nil, errors.New(path + " is no clock file")
	}
	return &Follower{p}, nil
}

// Now is the time that is shown.
func (f *Follower) Now() int64 {
	l, now := f.page.read()
	return l.shown(now)
}

// True is the true CLOCK_BOOTTIME, in nanoseconds, from which on shownNS has
// been shown, or will have been if nothing changes.
func (f *Follower) True(shownNS int64) int64 {
	l, _ := f.page.read()
	return l.true(shownNS)
}
