package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/cmd/internal/rotatest"
	"rota/internal/need"
)

// TestServersComeBackFromDisk: the state is in memory only, so a server that has
// no snapshot replays its log from the first entry on, and one that has goes on
// from there. Both come to the state of those that were never stopped.
func TestServersComeBackFromDisk(t *testing.T) {
	need.Tool(t, "sh", "flock")
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 3, Agents: 1})
	l := newLoad(w)
	l.start(2)
	w.live()
	replayed := w.follower()
	w.kill(replayed)
	l.progress(10) // what it has to get from the others
	for _, p := range w.cluster.Servers {
		if list := snapshots(p); len(list) > 0 {
			t.Fatalf("%s has snapshots %v, so this would be no replay from zero", p.Name, list)
		}
	}
	w.start(replayed)
	w.sameHash()

	w.takeSnapshot(replayed)
	if len(snapshots(replayed)) == 0 {
		t.Fatal("there is no snapshot")
	}
	l.progress(10)
	w.kill(replayed)
	w.start(replayed)
	w.sameHash()

	o, before := l.settle(), w.list()
	for _, p := range w.cluster.Servers {
		w.kill(p)
	}
	for _, p := range w.cluster.Servers {
		w.start(p)
	}
	o.check()
	after := w.list()
	if !slices.EqualFunc(before, after, func(a, b *rotav1.Action) bool { return proto.Equal(a, b) }) {
		t.Errorf("before all servers were killed there were\n%v\nand after\n%v", before, after)
	}
}

// TestAnEmptyServerJoins: the log has been cut behind a snapshot, so all that an
// added server can get of the past is that snapshot.
func TestAnEmptyServerJoins(t *testing.T) {
	need.Tool(t, "sh", "flock")
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{
		// The log keeps thrice the threshold.
		Servers: 1, Agents: 1, ServerArgs: []string{"--snapshot-threshold", "10"},
	})
	l := newLoad(w)
	l.start(2)
	w.live()
	l.progress(40)
	w.takeSnapshot(w.cluster.Servers[0])

	joiner := w.emptyServer("server-2")
	w.start(joiner)
	w.addPeer(joiner, false)
	w.sameHash()
	if raw, err := os.ReadFile(joiner.LogPath()); err != nil || !strings.Contains(string(raw), "Installed remote snapshot") {
		t.Errorf("no snapshot was transferred (%v)", err)
	}
	w.addPeer(joiner, true)
	w.transfer(joiner)
	l.progress(10)
	l.settle().check()
}

// TestAnIdleClusterAfterAChangeOfMembers: nothing follows the change in the log. Each
// server can take a snapshot all the same, and none seems to be behind for ever.
func TestAnIdleClusterAfterAChangeOfMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 1})
	w.end(&rotav1.ActionSpec{Command: command("true"), QueueTimeout: durationpb.New(1)})
	joiner := w.emptyServer("server-2")
	w.start(joiner)
	w.addPeer(joiner, false)
	w.until("the new server has applied all that is committed", func() bool {
		api, err := client.New(client.Config{Addrs: []string{joiner.Addr}})
		if err != nil {
			w.Fatal(err)
		}
		defer api.Close()
		s, err := api.Operator.GetStatus(w.Context(), &rotav1.GetStatusRequest{})
		return err == nil && s.AppliedIndex > 0 && s.AppliedIndex == s.CommitIndex
	})
	w.takeSnapshot(w.cluster.Servers[0])
	w.takeSnapshot(joiner)
	if len(snapshots(w.cluster.Servers[0])) == 0 || len(snapshots(joiner)) == 0 {
		t.Error("a server has no snapshot")
	}
}

// TestTimesAfterAnOutageAreThoseOfTheWall: log time has stood still meanwhile.
func TestTimesAfterAnOutageAreThoseOfTheWall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 1})
	submit := func() (id uint64, shown, now time.Time) {
		ids, err := w.api.Submit(w.Context(), &rotav1.ActionSpec{Command: command("true")})
		if err != nil {
			t.Fatal(err)
		}
		return ids[0], w.submitTime(ids[0]), time.Now()
	}
	first, before, _ := submit()
	w.kill(w.cluster.Servers[0])
	time.Sleep(2500 * time.Millisecond) // more than the times may be off
	w.start(w.cluster.Servers[0])
	_, shown, now := submit()
	if off := now.Sub(shown); off < -1500*time.Millisecond || off > 1500*time.Millisecond {
		t.Errorf("submitted at %v, shown as %v", now, shown)
	}
	if again := w.submitTime(first); !again.Equal(before) {
		t.Errorf("what was shown as %v is shown as %v", before, again)
	}
}

func (w *world) submitTime(id uint64) time.Time {
	w.Helper()
	resp, err := w.api.Actions.GetAction(w.Context(), &rotav1.GetActionRequest{Id: id})
	if err != nil {
		w.Fatal(err)
	}
	return resp.Action.SubmitTime.AsTime()
}

// live makes a state with something in every corner: what was canceled, failed
// or expired, trajectories open and closed, namespaces.
func (w *world) live() {
	w.Helper()
	ctx := w.Context()
	must := func(err error) {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
	}
	_, err := w.api.Operator.CreateNamespace(ctx, &rotav1.CreateNamespaceRequest{Name: "team-a"})
	must(err)
	for _, name := range []string{"open", "closed"} {
		tr, err := w.api.OpenTrajectory(ctx, &rotav1.OpenTrajectoryRequest{Name: name, MemoryBytes: 1 << 20})
		must(err)
		w.end(&rotav1.ActionSpec{TrajectoryId: tr.Id, Command: command("true")})
		if name == "closed" {
			_, err := w.api.CloseTrajectory(ctx, tr.Id)
			must(err)
		}
	}
	w.end(&rotav1.ActionSpec{Command: command("sh", "-c", "echo out; echo err >&2; exit 7")})
	w.end(&rotav1.ActionSpec{Command: command("/no/such/program")})
	stuck, err := w.api.Submit(ctx, &rotav1.ActionSpec{Command: command("sleep", "1000")})
	must(err)
	_, err = w.api.Actions.CancelActions(ctx, &rotav1.CancelActionsRequest{Ids: stuck})
	must(err)
	w.end(&rotav1.ActionSpec{
		Command: command("true"), Resources: &rotav1.Resources{Cores: proto.Uint32(4), MemoryBytes: 1 << 20}, QueueTimeout: durationpb.New(1),
	})
}

func command(argv ...string) *rotav1.Command { return &rotav1.Command{Argv: argv} }

// end runs an action to whatever end it comes to.
func (w *world) end(spec *rotav1.ActionSpec) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	ids, err := w.api.Submit(ctx, spec)
	if err == nil {
		_, err = w.api.Wait(ctx, ids[0])
	}
	if err != nil {
		w.Fatal(err)
	}
}

// emptyServer is a server that is no member yet and has nothing.
func (w *world) emptyServer(id string) *devcluster.Process {
	w.Helper()
	ports, err := devcluster.FreePorts(1)
	if err != nil {
		w.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
	dir := filepath.Join(w.dir, id)
	p := devcluster.NewProcess(id, addr, dir, rotatest.Binary(w), "server", "--id", id,
		"--data-dir", filepath.Join(dir, "data"), "--listen", addr, "--gossip", "")
	w.cluster.Servers = append(w.cluster.Servers, p)
	return p
}

func (w *world) addPeer(p *devcluster.Process, voter bool) {
	w.Helper()
	_, err := w.api.Operator.AddPeer(w.Context(), &rotav1.AddPeerRequest{Id: p.Name, Address: p.Addr, Voter: voter})
	if err != nil {
		w.Fatal(err)
	}
}

// transfer makes a server the leader.
func (w *world) transfer(p *devcluster.Process) {
	w.Helper()
	if _, err := w.api.Operator.TransferLeadership(w.Context(), &rotav1.TransferLeadershipRequest{Id: p.Name}); err != nil {
		w.Fatal(err)
	}
	w.until(p.Name+" leads", func() bool { return w.leader(nil) == p })
}

func (w *world) takeSnapshot(p *devcluster.Process) {
	w.Helper()
	api, err := client.New(client.Config{Addrs: []string{p.Addr}})
	if err != nil {
		w.Fatal(err)
	}
	defer api.Close()
	if _, err := api.Operator.TakeSnapshot(w.Context(), &rotav1.TakeSnapshotRequest{}); err != nil {
		w.Fatal(err)
	}
}

// snapshots are those on the disk of a server.
func snapshots(p *devcluster.Process) []string {
	list, err := filepath.Glob(filepath.Join(p.Dir, "data", "snapshots", "*", "state.bin"))
	if err != nil {
		panic(err) // only for a malformed pattern
	}
	return list
}
