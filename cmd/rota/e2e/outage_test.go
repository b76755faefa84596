package e2e

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rota/cmd/internal/devcluster"
	"rota/cmd/internal/rotatest"
	"rota/internal/need"
)

// lines collects what a process writes, with the time of each line's arrival.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	at   map[string]time.Time
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(string(p)) {
		if _, seen := l.at[line]; !seen {
			l.at[line] = time.Now()
		}
	}
	return l.text.Write(p)
}

// rota runs a command against some servers. It returns what it wrote, and how soon.
func (w *world) rota(addrs string, args ...string) (stdout string, stderr *lines, begin time.Time, code int) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, rotatest.Binary(w.T), append([]string{"--addr", addrs}, args...)...)
	stderr = &lines{at: map[string]time.Time{}}
	cmd.Stderr = stderr
	begin = time.Now()
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.Error(err)
	}
	return string(out), stderr, begin, cmd.ProcessState.ExitCode()
}

// TestAnOutageSaysWhoIsMissing: with two of three servers gone, every command says so at
// once and fails with that sentence, whichever address comes first, and what one server
// knows can still be looked at.
func TestAnOutageSaysWhoIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 3, Agents: 1})
	alive := w.cluster.Servers[2]
	missing := w.cluster.Servers[:2]
	all := strings.Join(w.cluster.Addrs(), ",")

	// A command that is not repeated passes a dead server by.
	w.kill(missing[0])
	if out, stderr, _, code := w.rota(all, "operator", "raft", "transfer-leader"); code != 0 || !strings.HasPrefix(out, "leader") {
		t.Errorf("transfer-leader: exit code %d: %s%s", code, out, &stderr.text)
	}
	w.kill(missing[1])
	w.until("the last server has lost its leader", func() bool {
		out, _, _, _ := w.rota(alive.Addr, "operator", "status")
		return strings.Contains(out, "leader        none")
	})

	var commands sync.WaitGroup
	for _, args := range [][]string{
		{"action", "list"}, {"run", "--", "true"}, {"run", "--detach", "--", "true"}, {"operator", "raft", "remove-peer", "server-1"},
	} {
		commands.Go(func() { w.saysNoQuorum(all, args) })
	}
	commands.Wait()

	for _, args := range [][]string{{"node", "list"}, {"operator", "raft", "list-peers"}, {"operator", "pool", "list"}} {
		out, stderr, _, code := w.rota(all, append(args, "--stale")...)
		if code != 0 || strings.Count(out, "\n") < 2 {
			t.Errorf("%q --stale: exit code %d, %s%s", args, code, out, &stderr.text)
		}
		if args[1] == "raft" && strings.Count(out, " no\n") != 2 {
			t.Errorf("who answers: %s", out)
		}
	}

	// When they are back, a command that waits goes on.
	w.start(missing[0])
	if out, stderr, _, code := w.rota(all, "run", "--request-timeout", patience.String(), "--", "echo", "back"); code != 0 || out != "back\n" {
		t.Errorf("afterwards: exit code %d, %s%s", code, out, &stderr.text)
	}
}

// saysNoQuorum runs a command that needs a quorum of three servers, of which one is left.
func (w *world) saysNoQuorum(addrs string, args []string) {
	const why = "no quorum: 1 of 3 voters answers; server-1 and server-2 do not"
	_, stderr, begin, code := w.rota(addrs, append(args, "--request-timeout", "6s")...)
	text := stderr.text.String()
	if code == 0 || strings.Count(text, why) != 2 || strings.Contains(text, "refused") || strings.Contains(text, "outcome") {
		w.Errorf("%q: exit code %d, %s", args, code, text)
	}
	for line, at := range stderr.at {
		if strings.Contains(line, "trying again") && at.Sub(begin) > 4*time.Second {
			w.Errorf("%q: said after %v: %s", args, at.Sub(begin), line)
		}
	}
}

// TestARemovedServerSaysSo, at once.
func TestARemovedServerSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 3})
	gone := w.follower()
	if _, stderr, _, code := w.rota(w.leader(nil).Addr, "operator", "raft", "remove-peer", gone.Name); code != 0 {
		t.Fatal(stderr.text.String())
	}
	w.until("it has lost its leader", func() bool {
		out, _, _, _ := w.rota(gone.Addr, "operator", "status")
		return strings.Contains(out, "leader        none")
	})
	_, stderr, begin, code := w.rota(gone.Addr, "action", "list")
	if text := stderr.text.String(); code != 4 || !strings.Contains(text, gone.Name+" is not a member of the cluster, since it was removed") {
		t.Errorf("exit code %d, %s", code, text)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if _, stderr, _, code := w.rota(gone.Addr+","+w.leader(nil).Addr, "action", "list"); code != 0 {
		t.Errorf("with another address: exit code %d, %s", code, &stderr.text)
	}
}

// TestStreamsBeginAtAServerThatIsThere: output is whole and a backup is made although the first address of the list is dead.
func TestStreamsBeginAtAServerThatIsThere(t *testing.T) {
	need.Tool(t, "seq")
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1})
	id := strings.TrimSpace(w.must(w.addrs(), "run", "--detach", "--", "seq", "2000"))
	w.must(w.addrs(), "action", "wait", id)
	dead := "127.0.0.1:1," + w.addrs()
	for _, args := range [][]string{{"logs", id}, {"logs", id, "--tail", "1999"}, {"attach", id, "--tail", "1999"}} {
		if out := w.must(dead, args...); !strings.Contains(out, "2\n3\n") || !strings.HasSuffix(out, "\n2000\n") {
			t.Errorf("%q printed %d bytes", args, len(out))
		}
	}
	w.must(dead, "operator", "snapshot", "save", filepath.Join(w.dir, "rota.backup"))
}
