package disk

import (
	"bytes"
	"errors"
	"maps"
	"math/bits"
	"os"
	"path/filepath"
	"testing"
)

// usedBytes of a file of the log; the rest of it is not in use.
var usedBytes = 3 * metaBytes

// dataDir looks like the data directory of a server that has its log in a folder or in
// the database.
func dataDir(t *testing.T, wal bool) string {
	t.Helper()
	dir := t.TempDir()
	log := make([]byte, 10*metaBytes)
	for i := range usedBytes {
		log[i] = 0xaa
	}
	files := map[string][]byte{
		"raft.db": log, "mark": bytes.Repeat([]byte("m"), 200), "lock": nil,
		"snapshots/1-2-3/state.bin": bytes.Repeat([]byte("s"), 20_000),
		"snapshots/1-2-3/meta.json": []byte("{}"),
	}
	if wal {
		files["wal/1-1.wal"], files["wal/2-2.wal"] = log, log
		files["wal/segments"], files["raft.db"] = bytes.Repeat([]byte("l"), 700), log[:2*metaBytes]
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOneBitOfTheClassIsFlipped(t *testing.T) {
	t.Run("wal", func(t *testing.T) { testOneBitOfTheClassIsFlipped(t, true) })
	t.Run("boltdb", func(t *testing.T) { testOneBitOfTheClassIsFlipped(t, false) })
}

func testOneBitOfTheClassIsFlipped(t *testing.T, wal bool) {
	seen := map[Class]int{}
	for _, class := range []Class{AnyByte, LogBytes, Meta, Mark, Snapshot} {
		for seed := range uint64(20) {
			dir := dataDir(t, wal)
			before := contents(t, dir)
			rot, err := FlipBit(dir, class, seed)
			if err != nil {
				t.Fatal(err)
			}
			flipped := 0
			for name, is := range contents(t, dir) {
				for i := range is.content {
					if n := bits.OnesCount8(is.content[i] ^ before[name].content[i]); n > 0 {
						flipped += n
						if name != rot.File || int64(i) != rot.Offset || is.content[i]^before[name].content[i] != 1<<rot.Bit {
							t.Errorf("%s says %v, but byte %d of %s changed", class, rot, i, name)
						}
					}
				}
			}
			is := classOf(rot.File, rot.Offset, wal)
			if flipped != 1 || class != AnyByte && is != class {
				t.Errorf("%s: %v flipped %d bits of class %s", class, rot, flipped, is)
			}
			if class == AnyByte {
				seen[is]++
			}
			if is == LogBytes && rot.Offset >= usedBytes {
				t.Errorf("%v, which is not in use", rot)
			}
			if class == LogBytes && (filepath.Ext(rot.File) == ".wal") != wal {
				t.Errorf("%v, which holds no entries", rot)
			}
		}
	}
	if seen[LogBytes] <= seen[Mark] || seen[Snapshot] == 0 {
		t.Errorf("any byte fell on %v: not weighted by bytes", maps.Clone(seen))
	}
}

func TestAFileOfTheClassIsCut(t *testing.T) {
	dir := dataDir(t, true)
	rot, err := Truncate(dir, Snapshot, 3)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, rot.File))
	if err != nil || info.Size() != rot.Offset || rot.Cut <= 0 || classOf(rot.File, 0, true) != Snapshot {
		t.Errorf("%v, but it has %d bytes, %v", rot, info.Size(), err)
	}
	if _, err := FlipBit(t.TempDir(), LogBytes, 1); !errors.Is(err, ErrNothing) {
		t.Errorf("a flipped bit in an empty folder: %v", err)
	}
}
