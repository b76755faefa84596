package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// Class is a kind of bytes in the data directory of a server.
type Class string

// Classes.
const (
	AnyByte  Class = "any"
	LogBytes Class = "log"      // the entries of the log
	Meta     Class = "meta"     // what says where the entries are: a list of files, or meta pages
	Mark     Class = "mark"     // the high-water mark
	Snapshot Class = "snapshot" // everything in snapshots
)

// A server keeps its log in this folder, in files and a list of them, or, if there is
// no such folder, in a database behind its meta pages.
const (
	walFolder   = "wal"
	walList     = "segments"
	walFileEnds = ".wal"
	database    = "raft.db"
)

// metaBytes are what two meta pages of the database take.
var metaBytes = 2 * int64(os.Getpagesize())

// usedBlock is the unit in which bytes count as used, in bytes: a block of
// nothing but zeros does not.
const usedBlock = 512

// ErrNothing says that there are no used bytes of a class.
var ErrNothing = errors.New("disk: no used bytes of that class")

// Rot is damage that was done to a file.
type Rot struct {
	File   string // relative to the folder
	Offset int64
	Bit    int   // 0 to 7; of a flipped bit
	Cut    int64 // bytes that are gone from the end; of a truncation
}

func (r Rot) String() string {
	if r.Cut > 0 {
		return fmt.Sprintf("%s lost its last %d bytes and ends at %d", r.File, r.Cut, r.Offset)
	}
	return fmt.Sprintf("%s has bit %d of byte %d flipped", r.File, r.Bit, r.Offset)
}

// block is a block in use.
type block struct {
	file   string
	offset int64
	bytes  int
}

// FlipBit flips one bit in a file under dir that nobody has open, each used byte
// of the class as likely as any other.
func FlipBit(dir string, class Class, seed uint64) (Rot, error) {
	b, r, err := pick(dir, class, seed)
	if err != nil {
		return Rot{}, err
	}
	rot := Rot{File: b.file, Offset: b.offset + int64(r.IntN(b.bytes)), Bit: r.IntN(8)}
	f, err := os.OpenFile(filepath.Join(dir, b.file), os.O_RDWR, 0)
	if err != nil {
		return Rot{}, err
	}
	var one [1]byte
	if _, err = f.ReadAt(one[:], rot.Offset); err == nil {
		one[0] ^= 1 << rot.Bit
		_, err = f.WriteAt(one[:], rot.Offset)
	}
	return rot, errors.Join(err, f.Close())
}

// Truncate cuts a file under dir that nobody has open, at a used byte of the
// class.
func Truncate(dir string, class Class, seed uint64) (Rot, error) {
	b, r, err := pick(dir, class, seed)
	if err != nil {
		return Rot{}, err
	}
	path := filepath.Join(dir, b.file)
	info, err := os.Stat(path)
	if err != nil {
		return Rot{}, err
	}
	at := b.offset + int64(r.IntN(b.bytes))
	return Rot{File: b.file, Offset: at, Cut: info.Size() - at}, os.Truncate(path, at)
}

// pick draws a used block of the class, weighted by its bytes.
func pick(dir string, class Class, seed uint64) (block, *rand.Rand, error) {
	r := rand.New(rand.NewPCG(seed, 0))
	var chosen block
	total := 0
	_, noWAL := os.Stat(filepath.Join(dir, walFolder))
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return blocks(path, func(offset int64, bytes int) {
			if class != AnyByte && class != classOf(name, offset, noWAL == nil) {
				return
			}
			total += bytes
			if r.IntN(total) < bytes {
				chosen = block{name, offset, bytes}
			}
		})
	})
	if err == nil && total == 0 {
		err = fmt.Errorf("%w: %s in %s", ErrNothing, class, dir)
	}
	return chosen, r, err
}

// blocks visits the used blocks of a file.
func blocks(path string, visit func(offset int64, bytes int)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var zeros [usedBlock]byte
	buf := make([]byte, usedBlock)
	for offset := int64(0); ; offset += usedBlock {
		n, err := io.ReadFull(f, buf)
		if string(buf[:n]) != string(zeros[:n]) {
			visit(offset, n)
		}
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// classOf knows the files of a server by name. Beside the folder of the log the database
// has no entries, only term and vote.
func classOf(name string, offset int64, wal bool) Class {
	inWAL := filepath.Dir(name) == walFolder
	switch {
	case inWAL && filepath.Ext(name) == walFileEnds, !wal && name == database && offset >= metaBytes:
		return LogBytes
	case inWAL && filepath.Base(name) == walList, !wal && name == database:
		return Meta
	case name == "mark":
		return Mark
	case strings.HasPrefix(name, "snapshots"+string(filepath.Separator)):
		return Snapshot
	}
	return AnyByte
}
