package replica

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	logv1 "rota/api/gen/log/v1"
)

func TestReadLog(t *testing.T) { eachStore(t, testReadLog) }

func testReadLog(t *testing.T, kind StoreKind) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.LogStore = kind })
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprint("name-", i))
		c.propose(c.leader(), want[i])
	}
	c.agree()
	if _, err := ReadLog(c.nodes[0].dir); !errors.Is(err, ErrInUse) {
		t.Errorf("of a replica that runs: %v, want ErrInUse", err)
	}
	logs := make([][]StoredEntry, len(c.nodes))
	for i, nd := range c.nodes {
		c.kill(nd)
		var err error
		if logs[i], err = ReadLog(nd.dir); err != nil {
			t.Fatal(err)
		}
	}
	for i, log := range logs {
		if got := namesOf(t, log); !slices.Equal(got, want) {
			t.Errorf("s%d holds %q, want %q", i+1, got, want)
		}
		if first := log[0]; first.Index != 1 || !slices.Equal(first.Voters, []string{"s1", "s2", "s3"}) {
			t.Errorf("the first entry of s%d is %+v", i+1, first)
		}
		for at, e := range log {
			if e.Index != uint64(at+1) || e.Term == 0 || e.Command != nil && e.Voters != nil {
				t.Errorf("entry %d of s%d is %+v", at+1, i+1, e)
			}
		}
	}
}

// namesOf are the names that the commands of a log create.
func namesOf(t *testing.T, log []StoredEntry) (names []string) {
	t.Helper()
	for _, stored := range log {
		var e logv1.Entry
		if err := e.UnmarshalVT(stored.Command); err != nil {
			t.Fatalf("entry %d: %v", stored.Index, err)
		}
		for _, command := range e.Commands {
			names = append(names, command.GetCreateNamespace().GetName())
		}
	}
	return names
}

func TestReadLogBehindASnapshotAndOfDamagedFiles(t *testing.T) {
	eachStore(t, testReadLogBehindASnapshotAndOfDamagedFiles)
}

func testReadLogBehindASnapshotAndOfDamagedFiles(t *testing.T, kind StoreKind) {
	c := newCluster(t, 1, func(cfg *Config) {
		cfg.LogStore = kind
		cfg.SnapshotThreshold, cfg.TrailingLogs, cfg.SnapshotInterval = 4, 9, 10*time.Millisecond
	})
	nd := c.nodes[0]
	for i := range 60 {
		c.propose(c.leader(), fmt.Sprint("name-", i))
	}
	eventually(t, "the log is compacted", func() bool {
		first, err := nd.replica.store.logs.FirstIndex()
		return err == nil && first > 1
	})
	c.kill(nd)
	log, err := ReadLog(nd.dir)
	if err != nil {
		t.Fatal(err)
	}
	if names := namesOf(t, log); log[0].Index == 1 || len(names) == 0 || names[len(names)-1] != "name-59" {
		t.Errorf("from %d on, names %q", log[0].Index, names)
	}

	snapshots, err := ReadSnapshots(nd.dir)
	if err != nil || len(snapshots) == 0 || snapshots[len(snapshots)-1].Index+1 < log[0].Index {
		t.Fatalf("snapshots %+v (%v) of a log from %d on", snapshots, err, log[0].Index)
	}
	newest := snapshots[len(snapshots)-1]
	if _, err := os.Stat(newest.Path); err != nil || newest.Index < snapshots[0].Index || newest.Term == 0 {
		t.Errorf("%+v: %v", snapshots, err)
	}
	tail, err := ReadTail(nd.dir, newest, snapshots)
	if err != nil {
		t.Fatal(err)
	}
	if last := log[len(log)-1]; tail.Index != last.Index || tail.Term != last.Term || tail.Lost != 0 || len(tail.Commands) > int(last.Index-newest.Index) {
		t.Errorf("behind entry %d: %+v, and the last entry is %+v", newest.Index, tail, last)
	}
	inside := log[len(log)/2]
	other := StoredSnapshot{Index: inside.Index, Term: inside.Term + 1}
	if tail, err := ReadTail(nd.dir, other, []StoredSnapshot{other}); err != nil || tail.Index != inside.Index || len(tail.Commands) != 0 {
		t.Errorf("behind a snapshot that the log contradicts: %+v, %v", tail, err)
	}
	if _, err := ReadTail(nd.dir, StoredSnapshot{}, nil); err == nil || !strings.Contains(err.Error(), "are missing") {
		t.Errorf("from the beginning, which is gone: %v", err)
	}

	if err := os.WriteFile(filepath.Join(filepath.Dir(newest.Path), "meta.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSnapshots(nd.dir); !errors.Is(err, ErrCorrupt) {
		t.Errorf("of a damaged snapshot: %v, want ErrCorrupt", err)
	}

	replaceInLog(t, nd.dir, kind, "name-58", "name-57")
	if _, err := ReadLog(nd.dir); !errors.Is(err, ErrCorrupt) {
		t.Errorf("of a damaged entry: %v, want ErrCorrupt", err)
	}
	if none, err := ReadSnapshots(t.TempDir()); none != nil || err != nil {
		t.Errorf("of an empty folder: %v, %v", none, err)
	}
	if _, err := ReadLog(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of an empty folder: %v, want ErrNotExist", err)
	}
}
