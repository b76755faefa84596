package backup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
)

const (
	magic          = "ROTABKUP"
	version        = 1
	headBytes      = len(magic) + 4 + 4
	headerBytesMax = 64 << 10
	tailBytes      = 8 + sha256.Size
)

// Errors of Open and Verify. All wrap what went wrong in detail.
var (
	ErrNotBackup = errors.New("not a backup of rota")
	ErrVersion   = errors.New("the backup has a version that this build does not read")
	ErrDamaged   = errors.New("the backup is damaged or cut short")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Writer writes a backup to a file that appears under its name only when it is whole and on
// the disk.
type Writer struct {
	path string
	tmp  *os.File
	out  *bufio.Writer
	sum  hash.Hash
	data hash.Hash // of the data alone
	n    uint64
	err  error
}

// unfinished is what the name of a file ends with that is still written.
const unfinished = ".tmp"

// Create begins a backup at a path. Only its user may read it: it holds what the cluster's
// actions are given.
func Create(path string, h *rotav1.BackupHeader) (*Writer, error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*"+unfinished) // mode 0600
	if err != nil {
		return nil, err
	}
	w := &Writer{path: path, tmp: tmp, sum: sha256.New(), data: sha256.New()}
	w.out = bufio.NewWriterSize(io.MultiWriter(tmp, w.sum), 1<<20)
	head, err := encodeHead(h)
	if err == nil {
		_, err = w.out.Write(head)
	}
	if err != nil {
		return nil, errors.Join(err, w.Cancel())
	}
	return w, nil
}

func encodeHead(h *rotav1.BackupHeader) ([]byte, error) {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode the header of a backup: %w", err)
	}
	head := binary.LittleEndian.AppendUint32([]byte(magic), version)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(text)))
	head = append(head, text...)
	return binary.LittleEndian.AppendUint32(head, crc32.Checksum(head, castagnoli)), nil
}

// Write adds data. The first error sticks.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	_, _ = w.data.Write(p) // never fails
	n, err := w.out.Write(p)
	w.n, w.err = w.n+uint64(n), err
	return n, err
}

// Finish makes the backup durable under its name, if the trailer says that all of the data
// has come. It replaces a file of that name.
func (w *Writer) Finish(t *rotav1.BackupTrailer) error {
	err := w.err
	if err == nil && (t.GetBytes() != w.n || !bytes.Equal(t.GetSha256(), w.data.Sum(nil))) {
		err = fmt.Errorf("%w: %d bytes came of %d, or others than were sent", ErrDamaged, w.n, t.GetBytes())
	}
	if err == nil {
		_, err = w.out.Write(binary.LittleEndian.AppendUint64(nil, w.n))
	}
	if err == nil {
		err = w.out.Flush()
	}
	if err == nil {
		_, err = w.tmp.Write(w.sum.Sum(nil))
	}
	if err == nil {
		err = w.tmp.Sync()
	}
	if err != nil {
		return errors.Join(err, w.Cancel())
	}
	if err := w.tmp.Close(); err != nil {
		return errors.Join(err, os.Remove(w.tmp.Name()))
	}
	if err := os.Rename(w.tmp.Name(), w.path); err != nil {
		return errors.Join(err, os.Remove(w.tmp.Name()))
	}
	return syncDir(filepath.Dir(w.path))
}

// Cancel gives the backup up. A file of its name stays as it was.
func (w *Writer) Cancel() error {
	return errors.Join(w.tmp.Close(), os.Remove(w.tmp.Name()))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// File is a backup that was found whole.
type File struct {
	Header *rotav1.BackupHeader
	// Bytes of the data.
	Bytes int64
	// SHA256 is that at the end of the file.
	SHA256 [sha256.Size]byte

	file  *os.File
	start int64
}

// Open opens a backup and verifies all its checksums, for which it reads it once.
func Open(path string) (f *File, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	f = &File{file: file}
	if err := f.verify(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return f, nil
}

func (f *File) verify() error {
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	if err := f.readHead(); err != nil {
		return err
	}
	f.Bytes = info.Size() - f.start - int64(tailBytes)
	if f.Bytes < 0 {
		return fmt.Errorf("%w: it ends within its header", ErrDamaged)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f.file, 0, f.start+f.Bytes+8)); err != nil {
		return err
	}
	tail := make([]byte, tailBytes)
	if _, err := f.file.ReadAt(tail, f.start+f.Bytes); err != nil {
		return err
	}
	copy(f.SHA256[:], tail[8:])
	switch n := binary.LittleEndian.Uint64(tail); {
	case n != uint64(f.Bytes):
		return fmt.Errorf("%w: it has %d bytes of data, and says %d", ErrDamaged, f.Bytes, n)
	case !bytes.Equal(sum.Sum(nil), tail[8:]):
		return fmt.Errorf("%w: its SHA-256 is %x, and it says %x", ErrDamaged, sum.Sum(nil), tail[8:])
	}
	return nil
}

// readHead reads and checks what is before the data.
func (f *File) readHead() error {
	head := make([]byte, headBytes)
	if _, err := f.file.ReadAt(head, 0); err != nil || string(head[:len(magic)]) != magic {
		return ErrNotBackup
	}
	if v := binary.LittleEndian.Uint32(head[len(magic):]); v != version {
		return fmt.Errorf("%w: %d, this build reads %d", ErrVersion, v, version)
	}
	n := binary.LittleEndian.Uint32(head[len(magic)+4:])
	if n > headerBytesMax {
		return fmt.Errorf("%w: its header has %d bytes", ErrDamaged, n)
	}
	rest := make([]byte, n+4)
	if _, err := f.file.ReadAt(rest, int64(headBytes)); err != nil {
		return fmt.Errorf("%w: it ends within its header", ErrDamaged)
	}
	text := rest[:n]
	if crc32.Checksum(append(head, text...), castagnoli) != binary.LittleEndian.Uint32(rest[n:]) {
		return fmt.Errorf("%w: its header does not match its checksum", ErrDamaged)
	}
	f.Header, f.start = &rotav1.BackupHeader{}, int64(headBytes)+int64(len(rest))
	if err := proto.Unmarshal(text, f.Header); err != nil {
		return fmt.Errorf("%w: its header cannot be decoded: %w", ErrDamaged, err)
	}
	return nil
}

// Data returns a reader of the data, from its beginning.
func (f *File) Data() io.Reader { return io.NewSectionReader(f.file, f.start, f.Bytes) }

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }
