package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/cmd/internal/rotatest"
)

// replayLog runs the command and returns what it prints and its error.
func (w *world) replayLog(dir string, args ...string) (string, string, error) {
	cmd := exec.CommandContext(w.Context(), rotatest.Binary(w.T), append([]string{"sim", "replay-log", dir}, args...)...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	return out.String(), errOut.String(), err
}

// rollouts has trajectories sleep and think by turns: each action holds a core.
func (w *world) rollouts(trajectories, turns int, action, think time.Duration) {
	var wg sync.WaitGroup
	for range trajectories {
		wg.Go(func() {
			t, err := w.api.OpenTrajectory(w.Context(), &rotav1.OpenTrajectoryRequest{MemoryBytes: 1 << 20})
			if err != nil {
				w.Error(err)
				return
			}
			for range turns {
				time.Sleep(think)
				spec := &rotav1.ActionSpec{TrajectoryId: t.Id, Class: "sleep", Command: &rotav1.Command{Argv: []string{"sleep", fmt.Sprint(action.Seconds())}}}
				ids, err := w.api.Submit(w.Context(), spec)
				if err == nil {
					_, err = w.api.Wait(w.Context(), ids[0])
				}
				if err != nil {
					w.Error(err)
					return
				}
			}
			if _, err := w.api.Trajectories.CloseTrajectory(w.Context(), &rotav1.CloseTrajectoryRequest{Id: t.Id}); err != nil {
				w.Error(err)
			}
		})
	}
	wg.Wait()
}

// content is a hash of each file of a folder.
func content(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		fmt.Fprintf(&all, "%s %x\n", path, sha256.Sum256(raw))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// replayed is the part of the output that the tests look at.
type replayed struct {
	Data struct {
		Actions, Trajectories int
		LeftOut               map[string]int `json:"left_out"`
		Whole                 bool           `json:"from_the_beginning"`
	}
	Happened, Present struct {
		Actions int
		ACT     float64 `json:"act_mean_ms"`
		Queue   float64 `json:"queue_mean_ms"`
	}
	WhatIf []struct {
		Policy string
		Result struct {
			ACT   float64 `json:"act_mean_ms"`
			Queue float64 `json:"queue_mean_ms"`
		}
	} `json:"what_if"`
}

// TestAClustersLogIsReplayed: twelve trajectories at a time share four cores, so they wait. The
// simulation of that is near what was measured, and with four times the nodes nothing waits.
func TestAClustersLogIsReplayed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1})
	data := w.past(func() {})
	before := content(t, data)
	r := w.replay(data, "--nodes", "4", "--policies", "rota,equal")
	if content(t, data) != before {
		t.Error("the data folder has changed")
	}
	if !r.Data.Whole {
		t.Errorf("from the beginning: %+v", r.Data)
	}
	if more := r.WhatIf[0]; more.Policy != "rota" || more.Result.Queue > r.Present.Queue/4 || more.Result.ACT > r.Present.ACT {
		t.Errorf("with four times the nodes: %+v, and without: %+v", more, r.Present)
	}
	table, _, err := w.replayLog(data)
	if err != nil || !strings.Contains(table, "rota, simulated") || strings.Contains(table, "what if") {
		t.Errorf("%v: %s", err, table)
	}
	w.damage(data)
	if _, text, err := w.replayLog(data); err == nil || !strings.Contains(text, "corrupt") || !strings.Contains(text, "take the folder of another server") {
		t.Errorf("of a damaged log: %v: %s", err, text)
	}
	if _, text, err := w.replayLog(filepath.Dir(data)); err == nil || !strings.Contains(text, "not the data folder of a server") {
		t.Errorf("of another folder: %v: %s", err, text)
	}
}

// TestALogBehindASnapshotIsReplayed: the snapshot knows the actions that ended before the log
// begins.
func TestALogBehindASnapshotIsReplayed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1, ServerArgs: []string{"--snapshot-threshold", "8", "--trailing-logs", "24"}})
	data := w.past(func() {
		if _, err := w.api.Operator.TakeSnapshot(t.Context(), &rotav1.TakeSnapshotRequest{}); err != nil {
			t.Error(err)
		}
	})
	if r := w.replay(data); r.Data.Whole {
		t.Errorf("from the beginning: %+v", r.Data)
	}
}

// past has a cluster work, cancels an action, stops the server and returns its data folder. It
// pauses twice.
func (w *world) past(pause func()) (data string) {
	for range 2 {
		w.rollouts(12, 3, 150*time.Millisecond, 100*time.Millisecond)
		pause()
	}
	held, err := w.api.Submit(w.Context(), &rotav1.ActionSpec{Command: &rotav1.Command{Argv: []string{"sleep", "60"}}})
	if err == nil {
		_, err = w.api.Actions.CancelActions(w.Context(), &rotav1.CancelActionsRequest{Ids: held})
	}
	if err == nil {
		_, err = w.api.Wait(w.Context(), held[0])
	}
	if err != nil {
		w.Fatal(err)
	}
	server := w.cluster.Servers[0]
	data = filepath.Join(server.Dir, "data")
	if _, text, err := w.replayLog(data); err == nil || !strings.Contains(text, "stop the server") {
		w.Errorf("of a server that runs: %v: %s", err, text)
	}
	server.Kill()
	return data
}

// replay replays a past and checks what was read of it, and that the simulation fits.
func (w *world) replay(data string, args ...string) (r replayed) {
	w.Helper()
	text, errText, err := w.replayLog(data, append(args, "-o", "json")...)
	if err != nil {
		w.Fatal(err, errText)
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		w.Fatal(err)
	}
	if r.Data.Actions != 72 || r.Data.Trajectories != 24 || r.Happened.Actions != 72 || r.Present.Actions != 72 ||
		r.Data.LeftOut["canceled, expired, lost or not started"] != 1 {
		w.Errorf("it has read %+v, %+v, %+v", r.Data, r.Happened, r.Present)
	}
	if off := r.Present.ACT / r.Happened.ACT; off < 0.5 || off > 2 || r.Happened.Queue < 5 {
		w.Errorf("the simulation has %g ms, and measured were %g, of which %g in the queue", r.Present.ACT, r.Happened.ACT, r.Happened.Queue)
	}
	return r
}

// damage changes a byte of each command in a log.
func (w *world) damage(data string) {
	files, err := filepath.Glob(filepath.Join(data, "wal", "*.wal"))
	if err != nil || len(files) == 0 {
		w.Fatal(err, files)
	}
	for _, path := range files {
		raw, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(raw, []byte("sleep")) {
			w.Fatalf("%s has no command: %v", path, err)
		}
		if err := os.WriteFile(path, bytes.ReplaceAll(raw, []byte("sleep"), []byte("sleeq")), 0o600); err != nil {
			w.Fatal(err)
		}
	}
}
