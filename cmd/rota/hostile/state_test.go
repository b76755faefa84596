package hostile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/fsm/state"
)

// Numbers of the tables that any request may change: the clock is in one, and
// the other holds the IDs of requests, refused ones too.
const (
	tableMeta     = 1
	tableRequests = 8
)

// contents is the whole replicated state, as a server writes it into a snapshot.
type contents struct {
	meta   state.Meta
	tables map[byte][][]byte // rows
}

// takeContents makes the server write a snapshot and reads it.
func takeContents(t *testing.T, c *devcluster.Cluster, api *client.Client) contents {
	t.Helper()
	if _, err := api.Operator.TakeSnapshot(t.Context(), &rotav1.TakeSnapshotRequest{}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(c.Servers[0].Dir, "data", "snapshots", "*", "state.bin"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no snapshot: %v", err)
	}
	slices.SortFunc(files, func(a, b string) int { return modified(t, a).Compare(modified(t, b)) })
	raw, err := os.ReadFile(files[len(files)-1])
	if err != nil {
		t.Fatal(err)
	}
	s, err := state.Restore(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return contents{*s.Meta(), readTables(t, raw)}
}

// readTables splits a snapshot, which is known to be whole, into rows.
func readTables(t *testing.T, raw []byte) map[byte][][]byte {
	t.Helper()
	const head = len("ROTASNAP") + 4
	body := bytes.NewReader(raw[head:])
	_, err1 := binary.ReadUvarint(body) // the feature level
	release, err2 := binary.ReadUvarint(body)
	_, err3 := body.Seek(int64(release), io.SeekCurrent)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(s2.NewReader(body))
	number := func() uint64 {
		n, err := binary.ReadUvarint(r)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	tables := map[byte][][]byte{}
	for {
		table, err := r.ReadByte()
		if err != nil {
			t.Fatal(err)
		}
		if table == 0 {
			return tables
		}
		tables[table] = make([][]byte, number())
		for i := range tables[table] {
			tables[table][i] = make([]byte, number())
			if _, err := io.ReadFull(r, tables[table][i]); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// checkSame fails the test unless two states differ in nothing but the clock and
// the request IDs.
func checkSame(t *testing.T, before, after contents) {
	t.Helper()
	if len(before.tables) != 43 || len(before.tables[tableMeta]) != 1 {
		t.Fatalf("there are %d tables: does this test still know the format?", len(before.tables))
	}
	for id, rows := range before.tables {
		if id != tableMeta && id != tableRequests && !slices.EqualFunc(rows, after.tables[id], bytes.Equal) {
			t.Errorf("table %d has changed:\n%q\n%q", id, rows, after.tables[id])
		}
	}
	a, b := before.meta, after.meta
	if b.Applied <= a.Applied || b.Now < a.Now {
		t.Errorf("applied %d and then %d, at %d and then %d", a.Applied, b.Applied, a.Now, b.Now)
	}
	a.Applied, a.Now, b.Applied, b.Now = 0, 0, 0, 0
	if !reflect.DeepEqual(a, b) {
		t.Errorf("what is counted has changed:\n%+v\n%+v", a, b)
	}
}

func modified(t *testing.T, file string) time.Time {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}
