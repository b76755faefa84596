package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

const recordSize = 300

// appendAndRead fills a file that has its size already, record by record, while others
// look at where it writes, and reads each record when it has been written. It runs in
// the process that uses the disk.
func appendAndRead(name string, records int) (err error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(int64(records * recordSize)); err != nil {
		return err
	}
	var at atomic.Int64
	var readers sync.WaitGroup
	defer readers.Wait()
	defer at.Store(-1)
	for range 4 {
		readers.Go(func() { look(name, &at) })
	}
	read := make([]byte, recordSize)
	for i := range records {
		at.Store(int64(i * recordSize))
		record := bytes.Repeat([]byte{byte(i%255 + 1)}, recordSize)
		if _, err := f.WriteAt(record, int64(i*recordSize)); err != nil {
			return err
		}
		if _, err := f.ReadAt(read, int64(i*recordSize)); err != nil {
			return err
		}
		if !bytes.Equal(read, record) {
			return fmt.Errorf("record %d reads %x to %x when it has been written, want %x", i, read[0], read[recordSize-1], record[0])
		}
	}
	return nil
}

// look asks for the attributes of a file and reads where it is being written, until at
// is negative.
func look(name string, at *atomic.Int64) {
	f, err := os.Open(name)
	if err != nil {
		return
	}
	defer f.Close()
	read := make([]byte, recordSize)
	for off := at.Load(); off >= 0; off = at.Load() {
		_, _ = f.Stat()
		_, _ = f.ReadAt(read, off)
	}
}

// A kernel that drops the pages of a file because the file's time has changed drops
// those of a write that is still under way, too, and reads old bytes in their place.
func TestReadersSeeWhatWasAppended(t *testing.T) {
	const records = 10_000
	m := mount(t)
	m.must(t, op{Kind: opCreate, Path: "log"}, op{Kind: opAppendRead, Path: "log", Off: records})
	if info, err := os.Stat(filepath.Join(m.Backing(), "log")); err != nil || info.Size() != records*recordSize {
		t.Errorf("the file below is %v, %v", info, err)
	}
}
