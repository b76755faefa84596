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

// dataDir looks like the data directory of a server.
func dataDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	db := make([]byte, 10*metaBytes)
	for i := range 3 * metaBytes {
		db[i] = 0xaa // the rest is not in use
	}
	for name, content := range map[string][]byte{
		"raft.db": db, "mark": bytes.Repeat([]byte("m"), 200), "lock": nil,
		"snapshots/1-2-3/state.bin": bytes.Repeat([]byte("s"), 5000),
		"snapshots/1-2-3/meta.json": []byte("{}"),
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOneBitOfTheClassIsFlipped(t *testing.T) {
	seen := map[Class]int{}
	for _, class := range []Class{AnyByte, LogBytes, Meta, Mark, Snapshot} {
		for seed := range uint64(20) {
			dir := dataDir(t)
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
			is := classOf(rot.File, rot.Offset)
			if flipped != 1 || class != AnyByte && is != class {
				t.Errorf("%s: %v flipped %d bits of class %s", class, rot, flipped, is)
			}
			if class == AnyByte {
				seen[is]++
			}
			if rot.File == "raft.db" && rot.Offset >= 3*metaBytes {
				t.Errorf("%v, which is not in use", rot)
			}
		}
	}
	if seen[LogBytes] <= seen[Mark] || seen[Snapshot] == 0 {
		t.Errorf("any byte fell on %v: not weighted by bytes", maps.Clone(seen))
	}
}

func TestAFileOfTheClassIsCut(t *testing.T) {
	dir := dataDir(t)
	rot, err := Truncate(dir, Snapshot, 3)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, rot.File))
	if err != nil || info.Size() != rot.Offset || rot.Cut <= 0 || classOf(rot.File, 0) != Snapshot {
		t.Errorf("%v, but it has %d bytes, %v", rot, info.Size(), err)
	}
	if _, err := FlipBit(t.TempDir(), LogBytes, 1); !errors.Is(err, ErrNothing) {
		t.Errorf("a flipped bit in an empty folder: %v", err)
	}
}
