package fsm

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/datadriven"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// The files in golden/ are logs and snapshots as a release of each feature level wrote
// them. A file is written once, before the first release of its level, and never again:
// what it holds may be on somebody's disk.
var writeGolden = flag.Bool("golden", false, "write the golden file of the newest feature level")

// golden is a line of a golden file. A story begins with its name, has its entries, and
// ends with its snapshot.
type golden struct {
	Story    string `json:"story,omitempty"`
	Index    uint64 `json:"index,omitempty"`
	Entry    []byte `json:"entry,omitempty"`
	Snapshot []byte `json:"snapshot,omitempty"`
	// Hash is that of the state after the entry, or of the snapshot.
	Hash string `json:"hash,omitempty"`
}

func goldenFile(level state.Level) string {
	return filepath.Join("golden", fmt.Sprintf("level-%d.jsonl.gz", level))
}

// TestGolden: every log of a level that this build knows is applied as it was when it was
// written, entry by entry, and every snapshot is read.
func TestGolden(t *testing.T) {
	if *writeGolden {
		recordGolden(t)
	}
	for level := state.LevelMin; level <= state.LevelMax-state.Level(nextLevels); level++ {
		for _, story := range readGolden(t, level) {
			t.Run(fmt.Sprintf("level %d/%s", level, story[0].Story), func(t *testing.T) { replayGolden(t, story) })
		}
	}
}

func replayGolden(t *testing.T, story []golden) {
	m := New(Options{})
	hash := func() string { _, h := m.Hash(); return fmt.Sprintf("%016x", h) }
	for _, g := range story[1:] {
		if len(g.Snapshot) > 0 {
			m = New(Options{})
			if err := m.Restore(io.NopCloser(bytes.NewReader(g.Snapshot))); err != nil {
				t.Fatal(err)
			}
		} else if _, err := m.ApplyData(g.Index, 0, g.Entry); err != nil {
			t.Fatal(err)
		}
		if got := hash(); got != g.Hash {
			t.Fatalf("entry %d, snapshot %t: the hash is %s, it was %s", g.Index, len(g.Snapshot) > 0, got, g.Hash)
		}
	}
}

// TestGoldenOfBuildsBeforeLevels: their snapshots can be read, but neither they nor their
// logs can be gone on from, and a server that finds them says so.
func TestGoldenOfBuildsBeforeLevels(t *testing.T) {
	for _, story := range readGolden(t, 1) {
		for _, g := range story[1:] {
			m := New(Options{})
			var err error
			if len(g.Snapshot) > 0 {
				s, broken := state.Restore(bytes.NewReader(g.Snapshot))
				if broken != nil {
					t.Fatalf("%s: %v", story[0].Story, broken)
				}
				if got := fmt.Sprintf("%016x", s.Hash()); got != g.Hash {
					t.Errorf("%s: the hash of the snapshot is %s, it was %s", story[0].Story, got, g.Hash)
				}
				err = m.Restore(io.NopCloser(bytes.NewReader(g.Snapshot)))
			} else if g.Index == 1 {
				_, err = m.ApplyData(g.Index, 0, g.Entry)
			} else {
				continue
			}
			var beyond *state.Beyond
			if !errors.As(err, &beyond) || beyond.Level != 1 {
				t.Errorf("%s: a server that finds it goes on: %v", story[0].Story, err)
			}
		}
	}
}

// readGolden returns the stories of a golden file.
func readGolden(t *testing.T, level state.Level) (stories [][]golden) {
	t.Helper()
	f, err := os.Open(goldenFile(level))
	if err != nil {
		t.Fatalf("%v: before a level is released, write its file with: go test ./fsm -run TestGolden -golden", err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(z); ; {
		var g golden
		switch err := d.Decode(&g); {
		case errors.Is(err, io.EOF):
			return stories
		case err != nil:
			t.Fatal(err)
		case g.Story != "":
			stories = append(stories, nil)
		}
		last := len(stories) - 1
		stories[last] = append(stories[last], g)
	}
}

// recordGolden writes the golden file of the newest level: all transcripts in which
// nothing panics.
func recordGolden(t *testing.T) {
	var lines []golden
	walkTranscripts(t, func(t *testing.T, path string) {
		s := newStory(t)
		fails := false
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			fails = fails || d.Cmd == "fail"
			return s.play(t, d)
		})
		if !fails {
			lines = append(append(lines, golden{Story: filepath.Base(path)}), s.recorded(t)...)
		}
	})
	f, err := os.Create(goldenFile(state.LevelMax))
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	e := json.NewEncoder(z)
	for _, g := range lines {
		err = errors.Join(err, e.Encode(g))
	}
	if err := errors.Join(err, z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// recorded returns what a story has put into the log, and a snapshot of its end.
func (s *story) recorded(t *testing.T) (lines []golden) {
	m := New(Options{})
	for i, e := range s.entries {
		data, err := e.MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.ApplyData(uint64(i+1), 0, data); err != nil {
			t.Fatal(err)
		}
		index, hash := m.Hash()
		lines = append(lines, golden{Index: index, Entry: data, Hash: fmt.Sprintf("%016x", hash)})
	}
	var snapshot bytes.Buffer
	if err := m.Fork().Save(&snapshot); err != nil {
		t.Fatal(err)
	}
	return append(lines, golden{Snapshot: snapshot.Bytes(), Hash: lines[len(lines)-1].Hash})
}

// entryOf is what a story puts into the log.
func (s *story) entryOf(commands []*logv1.Command) *logv1.Entry {
	e := &logv1.Entry{TimeNs: s.now, Commands: commands}
	s.entries = append(s.entries, e)
	return e
}
