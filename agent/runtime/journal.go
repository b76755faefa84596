package runtime

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	files "rota/agent/internal/record"
	"rota/agent/plan"
)

// The journal is a sequence of records: length and CRC-32C of the body, both 4
// bytes big endian, then the body in JSON. It is written without fsync: what it
// has to survive is the death of the supervisor, which loses nothing that
// write(2) took. On the death of the machine the attempts died too.
const (
	recordHead      = 8
	recordBytesMax  = 64 << 10
	journalBytesMin = 1 << 20 // not compacted below
	// endMessageMax bounds the message of an end, so that its record has room for all escapes.
	endMessageMax = 4 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is one fact. Exactly one field is set.
type record struct {
	Boot   *bootRecord  `json:"boot,omitempty"`
	Start  *plan.Key    `json:"start,omitempty"` // written before the child exists
	Child  *childRecord `json:"child,omitempty"`
	End    *plan.Exit   `json:"end,omitempty"`
	Forget []plan.Key   `json:"forget,omitempty"`
}

// bootRecord says which supervisor wrote what follows.
type bootRecord struct {
	BootID string `json:"boot_id"` // of the kernel
	PID    int    `json:"pid"`
	// Cgroups are the directories that hold nothing but this supervisor's
	// cgroups: what is found in them later was started by it.
	Cgroups []string `json:"cgroups,omitempty"`
}

// childRecord says which process leads an attempt, for where no cgroup does. A
// process ID alone may be reused; with its start time it is not.
type childRecord struct {
	Key       plan.Key `json:"key"`
	PID       int      `json:"pid"`
	StartTime uint64   `json:"start_time"`
}

// history is what a journal says.
type history struct {
	boot    *bootRecord
	started map[plan.Key]*childRecord // not ended; nil child: none recorded
	ended   map[plan.Key]*plan.Exit   // not forgotten
	order   []plan.Key                // of ends
}

func newHistory() *history {
	return &history{started: make(map[plan.Key]*childRecord), ended: make(map[plan.Key]*plan.Exit)}
}

func (h *history) apply(r *record) {
	switch {
	case r.Boot != nil:
		h.boot = r.Boot
	case r.Start != nil:
		h.started[*r.Start] = nil
	case r.Child != nil:
		if _, ok := h.started[r.Child.Key]; ok {
			h.started[r.Child.Key] = r.Child
		}
	case r.End != nil:
		delete(h.started, r.End.Key)
		if h.ended[r.End.Key] == nil {
			h.order = append(h.order, r.End.Key)
		}
		h.ended[r.End.Key] = r.End
	case r.Forget != nil:
		for _, k := range r.Forget {
			delete(h.ended, k)
			delete(h.started, k) // its end could not be written, on a full disk
		}
	}
}

// exits returns what ended and was not forgotten, in the order of the ends.
func (h *history) exits() []*plan.Exit {
	var out []*plan.Exit
	seen := make(map[plan.Key]bool)
	for _, k := range h.order {
		if e := h.ended[k]; e != nil && !seen[k] {
			seen[k] = true
			out = append(out, e)
		}
	}
	return out
}

func appendRecord(b []byte, r *record) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return b, fmt.Errorf("encode journal record: %w", err)
	}
	if len(body) > recordBytesMax {
		return b, fmt.Errorf("journal record of %d bytes, at most %d", len(body), recordBytesMax)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(body, castagnoli))
	return append(b, body...), nil
}

var errTorn = errors.New("torn journal record")

// readRecord returns io.EOF at the end, and errTorn at a record that was not
// written to its end or was damaged.
func readRecord(r io.Reader) (*record, int64, error) {
	var head [recordHead]byte
	if _, err := io.ReadFull(r, head[:]); err == io.EOF {
		return nil, 0, io.EOF
	} else if err != nil {
		return nil, 0, errTorn
	}
	size := binary.BigEndian.Uint32(head[:4])
	if size > recordBytesMax {
		return nil, 0, errTorn
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, 0, errTorn
	}
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(head[4:]) {
		return nil, 0, errTorn
	}
	rec := new(record)
	if err := json.Unmarshal(body, rec); err != nil {
		return nil, 0, errTorn
	}
	return rec, int64(recordHead + size), nil
}

// replay reads records up to the end or the first torn one. It returns where
// that is; what follows a torn record is not believed.
func replay(r io.Reader) (h *history, end int64, torn bool) {
	h = newHistory()
	for {
		rec, n, err := readRecord(r)
		if err != nil {
			return h, end, err != io.EOF
		}
		h.apply(rec)
		end += n
	}
}

// journal is the open file. Its user makes calls one at a time.
type journal struct {
	path string
	file *os.File
	size int64
	buf  []byte
	// reserve is the size at which space is to be reserved.
	reserve int64
}

// openJournal reads what is there, cuts off a torn tail and appends from then on.
func openJournal(path string) (*journal, *history, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open supervisor journal: %w", err)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("read supervisor journal: %w", err)
	}
	h, end, torn := replay(bytes.NewReader(data))
	if torn {
		if err := f.Truncate(end); err != nil {
			f.Close()
			return nil, nil, fmt.Errorf("cut the torn tail off the supervisor journal: %w", err)
		}
	}
	j := &journal{path: path, file: f, size: end}
	if torn {
		j.reserve = files.Reserve(f, end) // the cut has freed what was reserved
	}
	return j, h, nil
}

// write appends records with one write(2).
func (j *journal) write(recs ...*record) error {
	b := j.buf[:0]
	var err error
	for _, r := range recs {
		if b, err = appendRecord(b, r); err != nil {
			return err
		}
	}
	j.buf = b
	if j.size >= j.reserve {
		j.reserve = files.Reserve(j.file, j.size)
	}
	if _, err := j.file.Write(b); err != nil {
		// A part may have been written; cut it off so that what follows is read.
		if cut := j.file.Truncate(j.size); cut != nil {
			err = errors.Join(err, cut)
		}
		j.reserve = files.Reserve(j.file, j.size) // the cut has freed what was reserved
		return fmt.Errorf("%w: %w", ErrJournal, err)
	}
	j.size += int64(len(b))
	return nil
}

// rewrite replaces the journal by these records, atomically. If it fails, the journal is as it was.
func (j *journal) rewrite(recs []*record) (err error) {
	tmp := j.path + ".new"
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("compact supervisor journal: %w", err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(tmp) // the disk may be full
		}
	}()
	next := &journal{path: j.path, file: f}
	for _, r := range recs {
		if err := next.write(r); err != nil {
			return fmt.Errorf("compact supervisor journal: %w", err)
		}
	}
	if err := os.Rename(tmp, filepath.Clean(j.path)); err != nil {
		return fmt.Errorf("compact supervisor journal: %w", err)
	}
	j.file.Close()
	next.buf = j.buf
	next.reserve = files.Reserve(f, next.size) // there may have been no room beside the old file
	*j = *next
	return nil
}

func (j *journal) close() error { return j.file.Close() }
