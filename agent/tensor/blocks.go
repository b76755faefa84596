package tensor

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"rota/agent/internal/directio"
	"rota/agent/internal/record"
)

const (
	blocksName = "blocks"
	statesName = "states"
	// newMark is in the names of files that are not whole yet.
	newMark = ".new"
)

// folder is where blocks and manifests are: the disk tier or a checkpoint. Both have the
// same form: blocks/HASH and states/DEPLOYMENT@VERSION@RANK.
type folder struct {
	dir    string
	direct int     // flag of open
	spares *spares // nil: what is no longer needed is removed, or somebody else's
}

// process and names tell the files apart that are being written. Agents that write to one folder may
// have the same PID, on other nodes or in other containers.
var (
	process = rand.Text()
	names   atomic.Uint64
)

// openFolder makes a folder ready for blocks.
func openFolder(dir string) (folder, error) {
	if !filepath.IsAbs(dir) {
		return folder{}, fmt.Errorf("%w: the folder %q is not an absolute path", ErrInvalid, dir)
	}
	top := dir // the folder that gets a new name
	for _, err := os.Stat(top); errors.Is(err, fs.ErrNotExist); _, err = os.Stat(top) {
		top = filepath.Dir(top)
	}
	for _, name := range []string{blocksName, statesName} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return folder{}, diskError(err)
		}
	}
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if err := record.SyncDir(at); err != nil {
			return folder{}, diskError(err)
		}
		if at == filepath.Clean(top) {
			break
		}
	}
	f := folder{dir: dir}
	return f, f.probe()
}

func (f *folder) probe() error {
	direct, err := directio.Supported(filepath.Join(f.dir, blocksName), directio.Open)
	if direct {
		f.direct = unix.O_DIRECT
	}
	return err
}

// diskError makes a full file system ErrDisk.
func diskError(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: its file system has no space; free some, or drop states: %w", ErrDisk, err)
	}
	return err
}

func (f folder) block(h hash) string {
	return filepath.Join(f.dir, blocksName, hex.EncodeToString(h[:]))
}

// written is a block that is in a folder under another name than its own, and may not be durable.
type written struct {
	file *os.File
	path string // empty: it has got its own name
}

// discard closes the file, and removes it unless it has its own name.
func (w *written) discard() {
	if w == nil {
		return
	}
	_ = w.file.Close()
	if w.path != "" {
		_ = os.Remove(w.path)
	}
}

// write writes a block that is not in the folder yet under another name; nil if it is there. page
// is the block with what fills its last page. A file that is there is read and compared: it may
// have rotted, and the memory is given up next. It fails with ErrDisk, or as the file does.
func (f folder) write(h hash, page []byte, n uint64) (*written, error) {
	if f.holds(h, n) {
		return nil, nil
	}
	w, err := f.writeApart(h, page, n)
	if errors.Is(diskError(err), ErrDisk) && f.spares.trim(0) > 0 {
		w, err = f.writeApart(h, page, n)
	}
	return w, diskError(err)
}

// holds says whether a block is in the folder and every byte of it is right.
func (f folder) holds(h hash, n uint64) bool {
	if _, err := os.Lstat(f.block(h)); err != nil {
		return false
	}
	buffer, free := pageBuffer(n)
	defer free()
	return f.get(h, buffer, n) == nil
}

// writeApart writes a block over a spare file, or into a new one.
func (f folder) writeApart(h hash, page []byte, n uint64) (*written, error) {
	path, flags := f.spares.take(n), os.O_WRONLY|f.direct
	if path == "" {
		path = fmt.Sprintf("%s%s%s.%d", f.block(h), newMark, process, names.Add(1))
		flags |= os.O_CREATE | os.O_EXCL
	}
	file, err := directio.Open(path, flags)
	if err != nil {
		if !errors.Is(err, fs.ErrExist) { // else another agent may be writing it
			_ = os.Remove(path)
		}
		return nil, err
	}
	w := &written{file, path}
	if _, err = file.WriteAt(page, 0); err == nil && n != uint64(len(page)) {
		err = file.Truncate(int64(n))
	}
	if err != nil {
		w.discard()
		return nil, err
	}
	return w, nil
}

// syncFile makes a file durable but for its name.
var syncFile = func(file *os.File) error { return unix.Fdatasync(int(file.Fd())) }

// sync makes written blocks durable but for their names.
func (f folder) sync(blocks []*written) error {
	return each(len(blocks), func(i int) error {
		if blocks[i] == nil {
			return nil
		}
		if err := syncFile(blocks[i].file); err != nil {
			return diskError(fmt.Errorf("sync %s: %w", blocks[i].path, err))
		}
		return nil
	})
}

// name gives a written block that is durable its own name.
func (f folder) name(h hash, w *written) error {
	if err := os.Rename(w.path, f.block(h)); err != nil {
		return diskError(err)
	}
	w.path = ""
	return nil
}

// get reads a block of n bytes into page. It fails with ErrCorrupt, or as the file does.
func (f folder) get(h hash, page []byte, n uint64) error {
	file, err := directio.Open(f.block(h), os.O_RDONLY|f.direct)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("block %x: %w: its file is gone", h[:8], ErrCorrupt)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	read, err := file.ReadAt(page[:directio.Padded(n)], 0)
	if uint64(read) < n {
		return fmt.Errorf("block %x: %w: %d of %d bytes: %w", h[:8], ErrCorrupt, read, n, err)
	}
	if err := matches(page[:n], h); err != nil {
		return fmt.Errorf("block %x: %w", h[:8], err)
	}
	return nil
}

var pageBuffers = sync.Pool{New: func() any {
	b := make([]byte, BlockBytes+directio.PageBytes)
	from := -uintptr(unsafe.Pointer(&b[0])) % directio.PageBytes
	b = b[from : from+BlockBytes]
	return &b
}}

// pageBuffer is memory for a block, aligned for direct I/O. Nothing is known of its bytes.
func pageBuffer(n uint64) (buffer []byte, free func()) {
	b := pageBuffers.Get().(*[]byte)
	return (*b)[:directio.Padded(n)], func() { pageBuffers.Put(b) }
}

func (f folder) manifest(k Key) string {
	return filepath.Join(f.dir, statesName, fmt.Sprintf("%s@%d@%d", k.Deployment, k.Version, k.Rank))
}

// publish writes the manifest of a state whose blocks have been put: with it the state
// exists in the folder.
func (f folder) publish(k Key, tensors []*tensor) error {
	if err := record.SyncDir(filepath.Join(f.dir, blocksName)); err != nil {
		return diskError(err)
	}
	file, err := record.Replace(f.manifest(k), encodeManifest(k, tensors))
	if err != nil {
		return diskError(err)
	}
	return file.Close()
}

// read returns the tensors of a state. It fails with ErrNotFound or ErrCorrupt.
func (f folder) read(k Key) ([]*tensor, error) {
	data, err := os.ReadFile(f.manifest(k))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s has no state %s", ErrNotFound, f.dir, k)
	}
	if err != nil {
		return nil, err
	}
	return manifestOf(k, data, f.dir)
}

// manifestOf returns the tensors of a state from its manifest in a place. It fails with ErrCorrupt.
func manifestOf(k Key, data []byte, place string) ([]*tensor, error) {
	found, tensors, err := decodeManifest(data)
	if err != nil {
		return nil, fmt.Errorf("manifest of %s in %s: %w", k, place, err)
	}
	if found != k {
		return nil, fmt.Errorf("manifest of %s in %s: %w: it is that of %s", k, place, ErrCorrupt, found)
	}
	return tensors, nil
}

// keys lists the states of the folder, and removes manifests that never became whole.
func (f folder) keys() (keys []Key, err error) {
	files, err := os.ReadDir(filepath.Join(f.dir, statesName))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		name := file.Name()
		if strings.HasSuffix(name, newMark) {
			if err := os.Remove(filepath.Join(f.dir, statesName, name)); err != nil {
				return nil, err
			}
			continue
		}
		k, err := ParseKey(strings.ReplaceAll(name, "@", "/"))
		if err != nil {
			return nil, fmt.Errorf("%w: %s has a file %s that is no manifest; move it away", ErrOptions, f.dir, name)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// removeOthers removes the files of blocks that are not in use.
func (f folder) removeOthers(used func(hash) bool) error {
	dir := filepath.Join(f.dir, blocksName)
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, file := range files {
		var h hash
		n, err := hex.Decode(h[:], []byte(file.Name()[:min(len(file.Name()), 2*len(h))]))
		if err == nil && n == len(h) && len(file.Name()) == 2*len(h) && used(h) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, file.Name())); err != nil {
			return err
		}
	}
	return nil
}
