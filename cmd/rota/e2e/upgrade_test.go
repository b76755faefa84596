package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/fsm/state"
	"rota/internal/need"
	"rota/jepsen/cluster"
)

// nextRelease is what the build with -tags nextlevel calls itself. It has a feature level
// more: a table, a field of the row of the cluster, and a verb.
const nextRelease = "9.9.9-next"

// buildNext builds the next release.
func buildNext(t *testing.T) string {
	t.Helper()
	binary, err := cluster.Build(t.Context(), t.TempDir(), cluster.BuildOptions{
		Name: "rota-next", Tags: []string{"nextlevel"}, LDFlags: "-X rota/cmd/internal/cli.Version=" + nextRelease,
	})
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// TestUpgrade takes clusters under load to the next release, back, and there again, in
// every order of their servers, then raises the level. Until then nothing of the new level
// may be used, and any server may go back; afterwards none can.
func TestUpgrade(t *testing.T) {
	need.Tool(t, "sh", "flock")
	t.Parallel()
	next := buildNext(t)
	for name, orders := range map[string][3][3]int{
		"servers 1 2 3, 3 2 1, 2 1 3": {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}},
		"servers 1 3 2, 3 1 2, 2 3 1": {{0, 2, 1}, {2, 0, 1}, {1, 2, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upgrade(t, next, orders)
		})
	}
}

func upgrade(t *testing.T, next string, orders [3][3]int) {
	t.Helper()
	w := newWorld(t, patient, devcluster.Config{Servers: 3, Agents: 1, ServerArgs: []string{"--snapshot-threshold", "100"}})
	l := newLoad(w)
	l.start(2)
	w.live()
	old := w.cluster.Servers[0].Binary
	for i, to := range []string{next, old, next} {
		for n, server := range orders[i] {
			w.restartWith(w.cluster.Servers[server], to)
			l.progress(5)
			if n == 0 {
				w.notYet()
			}
		}
	}
	w.refuses(w.putNote(w.cluster.Servers[0], "early", "x"), "LEVEL_NOT_ACTIVE")

	if err := w.raiseLevel(0); err != nil {
		t.Fatal(err)
	}
	w.raised(l, old, next)
	l.settle().check()
}

// raised is what holds from the committed barrier on.
func (w *world) raised(l *load, old, next string) {
	w.Helper()
	for i, p := range w.cluster.Servers {
		w.until("the new verb is carried out", func() bool { return w.putNote(p, fmt.Sprint("note-", i), p.Name) == nil })
	}
	w.takeSnapshot(w.cluster.Servers[0])
	victim := w.follower()
	w.beyond(victim, old)
	l.progress(10)
	w.restartWith(victim, next)
	w.kill(w.leader(nil))
	w.leader(nil)
	for _, p := range w.cluster.Servers {
		if p.Pid() == 0 {
			w.start(p)
		}
	}
	l.progress(10)
	want := map[string]string{"note-0": "server-1", "note-1": "server-2", "note-2": "server-3"}
	for _, p := range w.cluster.Servers {
		w.until(p.Name+" has all notes", func() bool { return fmt.Sprint(w.notes(p)) == fmt.Sprint(want) })
	}
}

// restartWith restarts a server in good order with a build, and waits until it is back
// and somebody leads.
func (w *world) restartWith(p *devcluster.Process, binary string) {
	w.Helper()
	p.Stop(patience)
	p.Binary = binary
	w.start(p)
	w.until(p.Name+" has caught up", func() bool {
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		c, err := client.New(client.Config{Addrs: []string{p.Addr}})
		if err != nil {
			return false
		}
		defer c.Close()
		s, err := c.Operator.GetStatus(ctx, &rotav1.GetStatusRequest{})
		return err == nil && s.LeaderId != "" && s.AppliedIndex > 0 && s.AppliedIndex == s.CommitIndex
	})
}

// notYet: while the builds differ, the level of the newer one cannot be raised, and what
// belongs to it is refused, wherever one asks.
func (w *world) notYet() {
	w.Helper()
	err := w.raiseLevel(uint32(state.LevelMax) + 1)
	if got := client.Detail(err).GetReason(); got != "LEVEL_UNSUPPORTED" {
		w.Errorf("one server of three supports the next level, raising it: %v", err)
	}
	for _, p := range w.cluster.Servers {
		if filepath.Base(p.Binary) == "rota-next" {
			w.refuses(w.putNote(p, "early", "x"), "LEVEL_NOT_ACTIVE")
		}
	}
}

func (w *world) refuses(err error, reason string) {
	w.Helper()
	if err == nil || !strings.Contains(err.Error(), reason) {
		w.Errorf("got %v, want a refusal with %s", err, reason)
	}
}

func (w *world) raiseLevel(level uint32) error {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	_, err := w.api.Operator.RaiseLevel(ctx, &rotav1.RaiseLevelRequest{Level: level})
	return err
}

// beyond starts a server with a build that does not know the active level: it ends, and
// says which release it needs.
func (w *world) beyond(p *devcluster.Process, old string) {
	w.Helper()
	p.Stop(patience)
	p.Binary = old
	if err := os.Truncate(p.LogPath(), 0); err != nil {
		w.Fatal(err)
	}
	w.start(p)
	select {
	case <-p.Done():
	case <-time.After(patience):
		w.Fatalf("%s goes on under a level that it does not know", p.Name)
	}
	log, err := os.ReadFile(p.LogPath())
	if err != nil || !strings.Contains(string(log), "upgrade this server to "+nextRelease) {
		w.Errorf("%s does not say which release it needs: %v\n%s", p.Name, err, log)
	}
}

// putNote uses the verb of the next level.
func (w *world) putNote(p *devcluster.Process, name, text string) error {
	resp, err := http.PostForm("http://"+p.Addr+"/next/notes", url.Values{"name": {name}, "text": {text}})
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s %w", resp.Status, body, err)
	}
	return nil
}

// notes returns what a server has of the next level's table.
func (w *world) notes(p *devcluster.Process) map[string]string {
	resp, err := http.Get("http://" + p.Addr + "/next/notes")
	if err != nil {
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	var notes map[string]string
	if err := json.NewDecoder(resp.Body).Decode(&notes); err != nil {
		return nil
	}
	return notes
}
