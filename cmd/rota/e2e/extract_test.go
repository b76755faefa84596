package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
	"rota/server/replica"
)

// TestExtract makes a backup of the disk of a stopped server: the log behind its snapshot is in it.
func TestExtract(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 1})
	server := w.cluster.Servers[0]
	data, file := filepath.Join(server.Dir, "data"), filepath.Join(w.dir, "disk.backup")
	extract := []string{"operator", "snapshot", "extract", "--data", data, file}
	for range 2 { // without an action, there may be nothing yet of which to take a snapshot
		w.must(w.addrs(), "run", "--detach", "--", "true")
		w.takeSnapshot(server)
	}
	for range 3 {
		w.must(w.addrs(), "run", "--detach", "--", "true")
	}
	if _, stderr, _, code := w.rota("", extract...); code != 1 || !strings.Contains(stderr.text.String(), "a server runs on "+data) {
		t.Errorf("of a server that runs: exit code %d: %s", code, &stderr.text)
	}
	was := w.status(server)
	w.kill(server)
	w.must("", extract...)
	if in := w.inspect(file); in.QueuedActions != 5 || in.ClusterID != was.ClusterId || in.Index < was.AppliedIndex || in.Term < was.Term {
		t.Errorf("extracted: %+v of %v", in, was)
	}
	w.must("", append(extract, "--snapshot-only")...)
	if in := w.inspect(file); in.QueuedActions != 2 || in.Index >= was.AppliedIndex {
		t.Errorf("extracted from the snapshot alone: %+v of %v", in, was)
	}
	snapshots, err := replica.ReadSnapshots(data)
	if err != nil || len(snapshots) != 2 {
		t.Fatalf("snapshots %v: %v", snapshots, err)
	}
	if err := os.WriteFile(snapshots[1].Path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.must("", extract...)
	if in := w.inspect(file); in.QueuedActions != 5 || in.Index < was.AppliedIndex {
		t.Errorf("extracted from the older snapshot: %+v of %v", in, was)
	}
	if _, stderr, _, code := w.rota("", "operator", "snapshot", "extract", "--data", w.dir, file); code != 1 || !strings.Contains(stderr.text.String(), "is not the data folder of a server") {
		t.Errorf("of another folder: exit code %d: %s", code, &stderr.text)
	}
}

// inspected is what a backup has.
type inspected struct {
	ClusterID     string
	QueuedActions int
	Index, Term   uint64
	FeatureLevel  uint32
}

func (w *world) inspect(file string) (in inspected) {
	w.Helper()
	if err := json.Unmarshal([]byte(w.must("", "operator", "snapshot", "inspect", file, "-o", "json")), &in); err != nil {
		w.Fatal(err)
	}
	return in
}

// unpack unpacks the data folder of a server that a build of commit 95d24ce left. Its cluster had two cores, quota api, job-a and
// job-b on group train, and 14 queued actions, of which two were lost when the agent was stopped. Then all servers were told to
// write a snapshot, and stopped. Before that, the one of "behind" got another action.
func (w *world) unpack(name string) (data string) {
	w.Helper()
	dir := filepath.Join(w.dir, name)
	archive := filepath.Join("testdata", "beforelevels", name+".tgz")
	if out, err := exec.CommandContext(w.Context(), "sh", "-c", `mkdir -p "$1" && tar -C "$1" -xzf "$2"`, "sh", dir, archive).CombinedOutput(); err != nil {
		w.Fatalf("unpack %s: %v: %s", archive, err, out)
	}
	return filepath.Join(dir, "data")
}

// TestClustersFromBeforeFeatureLevelsMove into a new cluster by a backup of one disk, with what waits in them; their groups get
// members there.
func TestClustersFromBeforeFeatureLevelsMove(t *testing.T) {
	need.Tool(t, "sh", "tar", "gzip")
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 3, Agents: 1, AgentArgs: []string{"--simulated-gpus", "2xH100:80GiB"}})
	file := filepath.Join(w.dir, "old.backup")
	behind := []string{"operator", "snapshot", "extract", "--data", w.unpack("behind"), file}
	if _, stderr, _, code := w.rota("", behind...); code != 1 || !strings.Contains(stderr.text.String(), "it has 1 command of a build from before feature levels behind the newest snapshot") {
		t.Errorf("with a command behind the snapshot: exit code %d: %s", code, &stderr.text)
	}
	w.must("", append(behind, "--snapshot-only")...)
	if in := w.inspect(file); in.QueuedActions != 14 {
		t.Errorf("extracted from the snapshot alone: %+v", in)
	}
	w.must("", "operator", "snapshot", "extract", "--data", w.unpack("snapshot"), file)
	if in := w.inspect(file); in.QueuedActions != 14 || in.FeatureLevel != 2 {
		t.Fatalf("extracted: %+v", in)
	}
	w.up(w.cluster.Agents[0], 0)
	w.must(w.addrs(), "operator", "snapshot", "restore", file)
	for _, id := range []string{"2", "3"} { // they sleep for minutes
		w.must(w.addrs(), "action", "cancel", id)
	}
	w.until("all that waited has ended", func() bool {
		s, err := w.api.Operator.GetStatus(t.Context(), &rotav1.GetStatusRequest{})
		return err == nil && s.QueuedActions == 0 && s.RunningActions == 0 && s.Origin.GetKind() == rotav1.StateOrigin_KIND_RESTORED
	})
	for id := uint64(4); id <= 15; id++ {
		if a := w.action(id); a.State != rotav1.ActionState_ACTION_STATE_SUCCEEDED || a.Attempt != 1 {
			t.Errorf("action %d: %v", id, a)
		}
	}
	agent := w.cluster.Agents[0].Name
	w.must(w.addrs(), "node-group", "set-members", "train", "--member", agent+":0", "--member", agent+":1")
	if out := w.must(w.addrs(), "turn", "run", "--deployment", "job-a/actor", "--", "sh", "-c", "echo $ROTA_TURN_GROUP"); !strings.Contains(out, "train") {
		t.Errorf("a turn of job-a: %q", out)
	}
	w.sameHash()
}
