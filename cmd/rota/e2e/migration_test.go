package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
)

// kvValue is how large each value of a cache is, kvRate how many bytes a second agents copy.
const (
	kvValue = 128 << 10
	kvRate  = 768 << 10
)

// kvAsk sends one command to the cache of a node and returns the bulk string of the answer; nil
// if there is none.
func kvAsk(socket string, words ...[]byte) ([]byte, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	request := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, word := range words {
		request = append(fmt.Appendf(request, "$%d\r\n", len(word)), word...)
		request = append(request, "\r\n"...)
	}
	if _, err := c.Write(request); err != nil {
		return nil, err
	}
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	switch {
	case err != nil:
		return nil, err
	case line[0] == '+' || line == "$-1\r\n":
		return nil, nil
	}
	var n int
	if _, err := fmt.Sscanf(line, "$%d\r\n", &n); err != nil {
		return nil, errors.New(line)
	}
	value := make([]byte, n)
	_, err = io.ReadFull(r, value)
	return value, err
}

// kvCaches are two nodes with caches, and what was put into that of the first, by key.
type kvCaches struct {
	*world
	dir    string
	values map[string][]byte
}

func (k *kvCaches) socket(node string) string { return filepath.Join(k.dir, node) }

// put stores so many random values of a trajectory at the first node.
func (k *kvCaches) put(trajectory uint64, n int) {
	k.Helper()
	source := rand.NewChaCha8([32]byte{byte(trajectory)})
	for i := range n {
		key, value := fmt.Sprintf("model@1@0@%d@trajectory%%%d", i, trajectory), make([]byte, kvValue)
		_, _ = source.Read(value)
		k.until("node-1 stores a value", func() bool {
			_, err := kvAsk(k.socket("node-1"), []byte("SET"), []byte(key), value)
			return err == nil
		})
		k.values[key] = value
	}
}

// copied returns how many of the values of a trajectory the second node has, and fails if one is
// another than the first has.
func (k *kvCaches) copied(trajectory uint64, n int) (found int) {
	k.Helper()
	for i := range n {
		key := fmt.Sprintf("model@1@0@%d@trajectory%%%d", i, trajectory)
		value, err := kvAsk(k.socket("node-2"), []byte("GET"), []byte(key))
		if err == nil && value != nil && !bytes.Equal(value, k.values[key]) {
			k.Fatalf("%s is another value at node-2", key)
		}
		if value != nil {
			found++
		}
	}
	return found
}

// arrives waits until the second node has a value of a trajectory.
func (k *kvCaches) arrives(trajectory uint64, n int) {
	k.Helper()
	next := 0
	k.until("some of it is there", func() bool {
		next++
		value, err := kvAsk(k.socket("node-2"), []byte("GET"), fmt.Appendf(nil, "model@1@0@%d@trajectory%%%d", next%n, trajectory))
		return err == nil && value != nil
	})
}

// gap opens a trajectory with an action that runs for as long as the test, and returns both.
func (k *kvCaches) gap() (trajectory, action uint64) {
	k.Helper()
	t, err := k.api.OpenTrajectory(k.Context(), &rotav1.OpenTrajectoryRequest{})
	if err != nil {
		k.Fatal(err)
	}
	ids, err := k.api.Submit(k.Context(), &rotav1.ActionSpec{TrajectoryId: t.Id, Command: command("sleep", "600")})
	if err != nil {
		k.Fatal(err)
	}
	return t.Id, ids[0]
}

func (k *kvCaches) migrate(trajectory uint64) (id uint64) {
	k.Helper()
	k.until("the migration is accepted", func() bool {
		var err error
		id, err = k.api.RequestMigration(k.Context(), &rotav1.RequestMigrationRequest{Source: "node-1", Target: "node-2", TrajectoryId: trajectory})
		return err == nil
	})
	return id
}

func (k *kvCaches) is(id uint64, state rotav1.MigrationState) (m *rotav1.Migration) {
	k.Helper()
	k.until(fmt.Sprintf("migration %d is %v", id, state), func() bool {
		resp, err := k.api.Migrations.GetMigration(k.Context(), &rotav1.GetMigrationRequest{Id: id})
		if err == nil {
			m = resp.Migration
		}
		return err == nil && m.State == state
	})
	return m
}

// TestKVCachesMigrate: a KV cache is copied in a tool gap, though the target's agent is killed
// meanwhile. Another is abandoned when the gap ends.
func TestKVCachesMigrate(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "rota-*") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 2, AgentArgs: []string{
		"--kv-memory", "64MiB", "--kv-listen", "unix:" + filepath.Join(dir, "{{name}}"), "--kv-migration-rate", fmt.Sprint(kvRate),
	}})
	k := &kvCaches{world: w, dir: dir, values: map[string][]byte{}}
	const few, many = 8, 48 // 1 MiB, and 6 MiB: eight seconds

	trajectory, action := k.gap()
	k.put(trajectory, few)
	id := k.migrate(trajectory)
	k.is(id, rotav1.MigrationState_MIGRATION_STATE_RUNNING)
	k.arrives(trajectory, few)
	target := w.cluster.Agents[1]
	w.kill(target)
	w.start(target)
	m := k.is(id, rotav1.MigrationState_MIGRATION_STATE_DONE)
	if got := k.copied(trajectory, few); got != few || m.Progress.TotalBytes != few*kvValue || m.Progress.MovedBytes+m.Progress.PresentBytes != few*kvValue {
		t.Errorf("%d of %d values were copied: %v", got, few, m.Progress)
	}
	again := k.is(k.migrate(trajectory), rotav1.MigrationState_MIGRATION_STATE_DONE)
	if again.Progress.MovedBytes != 0 || again.Progress.PresentBytes != few*kvValue {
		t.Errorf("copied again: %v", again.Progress)
	}
	if _, err := w.api.Cancel(t.Context(), action); err != nil {
		t.Fatal(err)
	}

	trajectory, action = k.gap()
	k.put(trajectory, many)
	id = k.migrate(trajectory)
	k.arrives(trajectory, many)
	if _, err := w.api.Cancel(t.Context(), action); err != nil {
		t.Fatal(err)
	}
	m = k.is(id, rotav1.MigrationState_MIGRATION_STATE_ABANDONED)
	if m.Reason != rotav1.MigrationReason_MIGRATION_REASON_GAP_ENDED {
		t.Errorf("abandoned: %v", m)
	}
	waits := k.migrate(trajectory)
	if m := k.is(waits, rotav1.MigrationState_MIGRATION_STATE_QUEUED); m.Wait.GetObstacle() != rotav1.MigrationObstacle_MIGRATION_OBSTACLE_NO_GAP {
		t.Errorf("without an action it waits for %v", m.Wait)
	}
	copied := k.copied(trajectory, many)
	w.until("the target has stopped", func() bool {
		before := copied
		time.Sleep(time.Second) // at the rate, six values
		copied = k.copied(trajectory, many)
		return copied == before
	})
	if copied == many {
		t.Error("the target has not stopped before all was there")
	}
}
