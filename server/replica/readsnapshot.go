package replica

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/raft"
)

// StoredSnapshot is a snapshot as it lies on disk.
type StoredSnapshot struct {
	Index, Term uint64 // of the last entry in it
	Path        string // of the file that the state machine restores

	configuration raft.Configuration
}

// ReadSnapshots returns the snapshots in the data directory of a server, the oldest
// first. It changes nothing. Their content is not looked at.
func ReadSnapshots(dir string) (out []StoredSnapshot, err error) {
	dir = filepath.Join(dir, "snapshots")
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	for _, item := range list {
		if !item.IsDir() || strings.HasSuffix(item.Name(), unfinished) {
			continue
		}
		path := filepath.Join(dir, item.Name())
		text, err := os.ReadFile(filepath.Join(path, "meta.json"))
		if err != nil {
			return nil, fmt.Errorf("read snapshot: %w", err)
		}
		var meta raft.SnapshotMeta
		if err := json.Unmarshal(text, &meta); err != nil {
			return nil, fmt.Errorf("%w: meta.json of snapshot %s: %w", ErrCorrupt, path, err)
		}
		out = append(out, StoredSnapshot{meta.Index, meta.Term, filepath.Join(path, "state.bin"), meta.Configuration})
	}
	slices.SortFunc(out, func(a, b StoredSnapshot) int { return cmp.Compare(a.Index, b.Index) })
	return out, nil
}
