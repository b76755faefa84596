package netns

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/internal/need"
	"rota/jepsen/cluster"
)

// script appends "beat ATTEMPT NODE UPTIME" fifty times a second. One echo is
// one write, so lines are whole and in the order in which they were written.
const script = `while read up idle </proc/uptime; do
echo "beat $ROTA_TOKEN_ATTEMPT $ROTA_NODE $up" >>"$WITNESS"
sleep 0.02
done`

// beat is a line of the witness file.
type beat struct {
	attempt int
	node    string
	uptime  float64 // of the machine, in seconds: CLOCK_BOOTTIME
}

// cut separates an agent from the servers and returns what ends that.
type cut func(w *world, agent *cluster.Member) (mend func())

// isolate cuts some members off from all others.
func (w *world) isolate(some ...*cluster.Member) (mend func()) {
	w.Helper()
	w.must(w.Net.Isolate(some, w.others(some...)))
	return func() { w.must(w.Net.Heal()) }
}

// withTheLeader cuts the agent off together with the leader. Both still hear each
// other, but that one leads no more and must not renew the lease.
func withTheLeader(w *world, agent *cluster.Member) func() {
	leader := w.leader()
	mend := w.isolate(leader, agent)
	return func() {
		w.otherLeads(leader)
		mend()
	}
}

// TestPartition has what no scenario of rota-jepsen has; those cut agents off in
// every other way.
func TestPartition(t *testing.T) {
	need.Netns(t)
	need.Tool(t, "ip", "nft", "sh", "sleep")
	w := newWorld(t)
	if !t.Run("cut off together with the leader", func(t *testing.T) { w.of(t).moves(withTheLeader) }) {
		return // the next one would only see what this one left
	}
	t.Run("joined again before the lease ends", func(t *testing.T) { w.of(t).stays() })
}

// of is the same world for a subtest.
func (w *world) of(t *testing.T) *world {
	sub := *w
	sub.T = t
	return &sub
}

// moves: work of an agent that is cut off is dead before it begins elsewhere.
func (w *world) moves(c cut) {
	w.Helper()
	a := w.begin()
	before := w.dropped()
	mend := c(w, a.agent)
	since := uptime(w.T)
	w.until("the action runs on another node", func() bool { return len(a.beats(2)) > 0 })
	if w.dropped() == before {
		w.Error("no packet was lost: nothing was tried")
	}
	mend()
	w.allUp()
	w.until("the second attempt goes on", func() bool { return len(a.beats(2)) > 20 })
	a.cancel()

	first, second := a.beats(1), a.beats(2)
	last, next := first[len(first)-1], second[0]
	if last.uptime <= since {
		w.Errorf("the first attempt ended at %.2f, and was cut off only at %.2f: nothing was tried", last.uptime, since)
	}
	if last.node == next.node || last.node != a.agent.Name {
		w.Errorf("the first attempt ran on %s and the second on %s, and %s was cut off", last.node, next.node, a.agent.Name)
	}
	if !a.inOrder() || last.uptime >= next.uptime {
		w.Errorf("the first attempt was alive at %.2f, and the second began at %.2f", last.uptime, next.uptime)
	}
	w.Logf("silent %.2f s after the cut, begun again %.2f s later", last.uptime-since, next.uptime-last.uptime)
}

// dropped is how many packets have been lost.
func (w *world) dropped() uint64 {
	w.Helper()
	packets, err := w.Net.Dropped()
	w.must(err)
	return packets
}

// stays: a short cut kills nothing.
func (w *world) stays() {
	w.Helper()
	a := w.begin()
	incarnation := w.node(a.agent.Name).Incarnation
	mend := w.isolate(a.agent)
	// A renewal, at every third of the lease, was sent at most so long before the
	// cut. So the work lives for lease - margin - lease/3 at least, of which the
	// last three seconds are for the renewal: the machine may be busy.
	time.Sleep(lease - margin - lease/3 - 3*time.Second)
	mend()
	mended := uptime(w.T)
	w.until("the action outlives what would have been its lease", func() bool {
		b := a.beats(1)
		return len(a.beats(2)) > 0 || b[len(b)-1].uptime > mended+(lease+margin).Seconds()
	})
	if n := w.node(a.agent.Name); len(a.beats(2)) > 0 || n.State != rotav1.NodeState_NODE_STATE_UP || n.Incarnation != incarnation {
		w.Errorf("the action was started again (%d beats), or the node given up: %v", len(a.beats(2)), n)
	}
	a.cancel()
}

// witness is an action that is seen to be alive.
type witness struct {
	w     *world
	id    uint64
	file  string
	agent *cluster.Member // that runs the first attempt
}

// begin submits an action and returns when it runs.
func (w *world) begin() *witness {
	w.Helper()
	// Both attempts work in the same directory. It is the only one below /tmp that they
	// see, and each has a user of its own.
	dir, err := os.MkdirTemp(w.dir, "witness-")
	w.must(err)
	w.must(os.Chmod(w.dir, 0o755))
	w.must(os.Chmod(dir, 0o777))
	a := &witness{w: w, file: filepath.Join(dir, "beats")}
	w.must(os.WriteFile(a.file, nil, 0o666))
	w.must(os.Chmod(a.file, 0o666)) // whatever the umask
	ids, err := w.api.Submit(w.Context(), &rotav1.ActionSpec{
		Command:    &rotav1.Command{Argv: []string{"sh", "-c", script}, Dir: dir, Env: map[string]string{"WITNESS": a.file}},
		LossPolicy: rotav1.LossPolicy_LOSS_POLICY_RETRY, MaxAttempts: 10,
	})
	if err != nil {
		w.Fatal(err)
	}
	a.id = ids[0]
	w.until("the action runs", func() bool { return len(a.beats(1)) > 20 })
	for _, m := range w.Agents {
		if m.Name == a.beats(1)[0].node {
			a.agent = m
		}
	}
	return a
}

// cancel ends the action.
func (a *witness) cancel() {
	a.w.Helper()
	ctx := a.w.Context()
	if _, err := a.w.api.Actions.CancelActions(ctx, &rotav1.CancelActionsRequest{Ids: []uint64{a.id}}); err != nil {
		a.w.Fatal(err)
	}
	if _, err := a.w.api.Wait(ctx, a.id); err != nil {
		a.w.Fatal(err)
	}
}

// all reads the witness file.
func (a *witness) all() (all []beat) {
	a.w.Helper()
	raw, err := os.ReadFile(a.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.w.Fatal(err)
	}
	whole := raw[:1+bytes.LastIndexByte(raw, '\n')] // the last line may still be being written
	for line := range strings.Lines(string(whole)) {
		f := strings.Fields(line)
		if len(f) != 4 || f[0] != "beat" {
			a.w.Fatalf("malformed line of the witness: %q", line)
		}
		attempt, err1 := strconv.Atoi(f[1])
		up, err2 := strconv.ParseFloat(f[3], 64)
		if err := errors.Join(err1, err2); err != nil {
			a.w.Fatalf("malformed line of the witness: %q: %v", line, err)
		}
		all = append(all, beat{attempt, f[2], up})
	}
	return all
}

// beats are those of one attempt.
func (a *witness) beats(attempt int) (of []beat) {
	a.w.Helper()
	for _, b := range a.all() {
		if b.attempt == attempt {
			of = append(of, b)
		}
	}
	return of
}

// inOrder reports whether no attempt was alive after a later one.
func (a *witness) inOrder() bool {
	a.w.Helper()
	newest := 0
	for _, b := range a.all() {
		if b.attempt < newest {
			return false
		}
		newest = b.attempt
	}
	return true
}

// uptime is the machine's, as the witnesses write it.
func uptime(t *testing.T) float64 {
	t.Helper()
	raw, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	up, err := strconv.ParseFloat(strings.Fields(string(raw))[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	return up
}
