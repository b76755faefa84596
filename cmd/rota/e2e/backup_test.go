package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// must runs a command that has to succeed, and returns what it wrote.
func (w *world) must(addrs string, args ...string) string {
	w.Helper()
	out, stderr, _, code := w.rota(addrs, args...)
	if code != 0 {
		w.Fatalf("%q: exit code %d: %s%s", args, code, out, &stderr.text)
	}
	return out
}

func (w *world) addrs() string { return strings.Join(w.cluster.Addrs(), ",") }

// replaceArg changes the value of a flag of a process.
func replaceArg(p *devcluster.Process, flag, value string) {
	for i, arg := range p.Args {
		if arg == flag {
			p.Args[i+1] = value
		}
	}
}

func argOf(p *devcluster.Process, flag string) string {
	for i, arg := range p.Args {
		if arg == flag {
			return p.Args[i+1]
		}
	}
	return ""
}

// sleepers are the processes of the action that runs all the time.
func (w *world) sleepers(mark string) []int { return processes(w.marker(), "E2E_SLEEPER="+mark) }

// TestRestoreIntoANewCluster: what was acknowledged before a backup is in it, and what ran
// when it was made runs once in the new cluster, although the agent of the old one still
// runs it when it meets the new one. A server that is killed meanwhile changes nothing.
func TestRestoreIntoANewCluster(t *testing.T) {
	need.Tool(t, "sleep")
	t.Parallel()
	old := newWorld(t, sturdy, devcluster.Config{Servers: 3, Agents: 1})
	agent := old.cluster.Agents[0]
	id := old.must(old.addrs(), "run", "--detach", "--cores", "3", "--retry", "3",
		"--env", old.marker(), "--env", "E2E_SLEEPER=1", "--", "sleep", "600")
	old.until("it runs", func() bool { return len(old.sleepers("1")) == 1 })
	was := old.sleepers("1")[0]
	for range 5 {
		old.must(old.addrs(), "run", "--detach", "--cores", "4", "--", "true")
	}
	file := filepath.Join(old.dir, "rota.backup")
	old.must(old.follower().Addr, "operator", "snapshot", "save", file)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the backup has mode %v: %v", info.Mode(), err)
	}
	var in struct {
		ClusterID              string
		QueuedActions          int
		RunningActions         int
		Index, Bytes           uint64
		Tables                 []struct{ Name string }
		Hash, SHA256, ServerID string
	}
	if err := json.Unmarshal([]byte(old.must(old.addrs(), "operator", "snapshot", "inspect", file, "-o", "json")), &in); err != nil {
		t.Fatal(err)
	}
	if in.QueuedActions != 5 || in.RunningActions != 1 || in.ClusterID == "" || len(in.Tables) == 0 {
		t.Errorf("the backup has %+v", in)
	}
	old.kill(agent) // its supervisor goes on with the action
	for _, p := range old.cluster.Servers {
		old.kill(p)
	}

	fresh := newWorldIn(t, filepath.Join(old.dir, "fresh"), sturdy, devcluster.Config{Servers: 3})
	fresh.until("it is founded", func() bool {
		return fresh.status(fresh.cluster.Servers[0]).GetClusterId() != ""
	})
	killed := fresh.leader(nil)
	fresh.kill(killed)
	out := fresh.must(fresh.addrs(), "operator", "snapshot", "restore", file)
	fresh.start(killed)
	if !strings.Contains(out, in.ClusterID) {
		t.Errorf("restored: %s", out)
	}
	if _, _, _, code := fresh.rota(fresh.addrs(), "operator", "snapshot", "restore", file); code == 0 {
		t.Error("a backup was restored into a cluster in use")
	}
	fresh.sameHash()

	var gossip []string
	for _, p := range fresh.cluster.Servers {
		gossip = append(gossip, argOf(p, "--gossip"))
	}
	replaceArg(agent, "--join", strings.Join(gossip, ","))
	old.start(agent)
	fresh.until("it runs in the new cluster, and nowhere else", func() bool {
		now := old.sleepers("1")
		return len(now) == 1 && now[0] != was
	})
	number, err := strconv.ParseUint(strings.TrimSpace(id), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := fresh.api.Actions.GetAction(t.Context(), &rotav1.GetActionRequest{Id: number})
	if err != nil || resp.Action.Attempt != 2 {
		t.Errorf("action %d has had attempts %v: %v", number, resp.GetAction().GetAttempt(), err)
	}
	fresh.must(fresh.addrs(), "action", "cancel", strings.TrimSpace(id))
	fresh.until("all that waited has run", func() bool {
		s, err := fresh.api.Operator.GetStatus(t.Context(), &rotav1.GetStatusRequest{})
		return err == nil && s.QueuedActions == 0 && s.RunningActions == 0 && s.Origin.GetClusterId() == in.ClusterID
	})
}

// TestRecoverALostMajority: from one disk of three, by the commands of the runbook. The two
// that were given up come back with their disks, and change nothing any more.
func TestRecoverALostMajority(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sturdy, devcluster.Config{Servers: 3, Agents: 1})
	agent, left := w.cluster.Agents[0], w.cluster.Servers[0]
	w.must(w.addrs(), "run", "--", "true")
	before := w.status(left)
	recover := []string{"operator", "recover", "--data", filepath.Join(left.Dir, "data"), "--voters", left.Name + "=" + left.Addr}
	if _, stderr, _, code := w.rota(left.Addr, append(recover, "--yes")...); code == 0 || !strings.Contains(stderr.text.String(), "in use") {
		t.Fatalf("a running server was recovered, or said %s", &stderr.text)
	}
	for _, p := range w.cluster.Servers {
		w.kill(p)
	}
	for _, p := range w.cluster.Servers[1:] {
		if err := os.Rename(filepath.Join(p.Dir, "data"), filepath.Join(p.Dir, "old")); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if out, stderr, _, code := w.rota(left.Addr, recover...); code != 1 || !strings.Contains(stderr.text.String(), "known only to lost servers are gone") {
		t.Fatalf("without --yes: exit code %d: %s%s", code, out, &stderr.text)
	}
	w.must(left.Addr, append(recover, "--yes")...)
	w.start(left)
	w.until("it leads", func() bool {
		_, _, _, code := w.rota(left.Addr, "run", "--", "true")
		return code == 0
	})
	t.Logf("from the lost majority to the first new decision: %v", time.Since(began))
	after := w.status(left)
	if after.ClusterId == before.ClusterId || after.Origin.GetKind() != rotav1.StateOrigin_KIND_RECOVERED || after.AppliedIndex <= before.AppliedIndex {
		t.Errorf("the cluster was %v and is %v", before, after)
	}

	// Those that were lost come back with their disks: they are a majority of the old cluster.
	w.kill(agent)
	for _, p := range w.cluster.Servers[1:] {
		if err := os.Rename(filepath.Join(p.Dir, "old"), filepath.Join(p.Dir, "data")); err != nil {
			t.Fatal(err)
		}
		w.start(p)
	}
	w.until("the old majority has a leader", func() bool {
		s := w.status(w.cluster.Servers[1])
		return s != nil && s.LeaderId != "" && s.LeaderId != left.Name
	})
	w.must(left.Addr, "operator", "namespace", "create", "new")
	if s := w.status(left); s.ClusterId != after.ClusterId || s.LeaderId != left.Name {
		t.Errorf("the old cluster took the new one over: %v", s)
	}
	for _, p := range w.cluster.Servers[1:] {
		w.kill(p)
		if err := os.RemoveAll(filepath.Join(p.Dir, "data")); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range w.cluster.Servers[1:] {
		w.start(p)
		w.until(p.Name+" has joined", func() bool {
			_, _, _, code := w.rota(left.Addr, "operator", "raft", "join", p.Name, p.Addr)
			return code == 0
		})
		w.until(p.Name+" votes", func() bool {
			_, _, _, code := w.rota(left.Addr, "operator", "raft", "add-voter", p.Name, p.Addr)
			return code == 0
		})
	}
	w.sameHash()
}

// status is that of one server; nil if it does not answer.
func (w *world) status(p *devcluster.Process) *rotav1.GetStatusResponse {
	out, _, _, code := w.rota(p.Addr, "operator", "status", "-o", "json")
	s := &rotav1.GetStatusResponse{}
	if code != 0 || protojson.Unmarshal([]byte(out), s) != nil {
		return nil
	}
	return s
}
