package replica

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// recovery is that of a stopped server, with a new machine.
func recovery(nd *node) Recovery {
	return Recovery{
		Dir: nd.dir, Voter: Server{ID: nd.id, Address: nd.address}, ClusterID: "recovered", Machine: &machine{}, Logger: testLogger(),
	}
}

// TestRecoverFromOneDisk: one of three servers goes on alone with what it has, and decides;
// the newest entry on its disk is the last of the old cluster.
func TestRecoverFromOneDisk(t *testing.T) {
	c := newCluster(t, 3, nil)
	for _, name := range []string{"a", "b", "c"} {
		c.propose(c.leader(), name)
	}
	c.agree()
	nd := c.followers()[0]
	if _, err := Inspect(nd.dir); !errors.Is(err, ErrInUse) {
		t.Fatalf("a running server was looked at: %v", err)
	}
	if _, err := Recover(recovery(nd)); !errors.Is(err, ErrInUse) {
		t.Fatalf("a running server was recovered: %v", err)
	}
	last := nd.replica.Status().LastIndex
	for _, nd := range c.nodes {
		c.kill(nd)
	}
	found, err := Inspect(nd.dir)
	if err != nil || found.Index != last || found.Voters != 3 || found.Behind != 0 {
		t.Fatalf("found %+v, must be index %d: %v", found, last, err)
	}
	stranger := recovery(nd)
	stranger.Voter.ID = "stranger"
	if _, err := Recover(stranger); !errors.Is(err, ErrWrongServer) {
		t.Fatalf("a server that the folder does not know was recovered: %v", err)
	}
	for range 2 { // it may be repeated
		if _, err := Recover(recovery(nd)); err != nil {
			t.Fatal(err)
		}
	}
	c.start(nd, nil)
	eventually(t, "it leads alone", nd.replica.IsLeader)
	c.propose(nd, "d")
	if got := nd.machine.view(); len(got.Names) == 0 || got.Names[len(got.Names)-1] != "d" || nd.replica.Status().Quarantined {
		t.Errorf("it has %+v", got)
	}
	peers, err := nd.replica.Peers(c.ctx())
	if err != nil || len(peers) != 1 {
		t.Errorf("its members are %v: %v", peers, err)
	}
}

func TestRecoverNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := Inspect(dir); !errors.Is(err, ErrNothing) {
		t.Errorf("an empty folder: %v", err)
	}
	if list, _ := os.ReadDir(dir); len(list) != 0 {
		t.Errorf("looking left %v", list)
	}
	if _, err := Inspect(filepath.Join(dir, "none")); !errors.Is(err, ErrNothing) {
		t.Errorf("no folder: %v", err)
	}
}
