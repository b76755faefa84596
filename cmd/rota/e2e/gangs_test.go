package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// gangScript is what the members of a gang do: they meet, which takes all of them, and then one may
// fail while the others stay.
const gangScript = `echo "start $GANG $ROTA_FENCING_TOKEN" >>"$E2E_WORLD/witness"
python3 -B "$MEET" || exit 9
echo "end $GANG $ROTA_FENCING_TOKEN" >>"$E2E_WORLD/witness"
if [ "$FAILS" = "$ROTA_GANG_RANK" ]; then exit 3; fi
if [ -n "$HOLD" ]; then flock -s "$E2E_WORLD/gate" true; fi`

// meetProgram is the example of a gang that is in the repository.
func (w *world) meetProgram() string {
	w.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "..", "api", "python", "examples", "gang.py"))
	if err != nil {
		w.Fatal(err)
	}
	return path
}

// member is one of the gang of a number.
func (w *world) member(gang int, cores uint32, env ...string) *rotav1.ActionSpec {
	vars := map[string]string{"E2E_WORLD": w.dir, "GANG": fmt.Sprint(gang), "MEET": w.meetProgram()}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	return &rotav1.ActionSpec{
		Command:   &rotav1.Command{Argv: []string{"sh", "-c", gangScript}, Env: vars},
		Resources: &rotav1.Resources{Cores: proto.Uint32(cores)},
	}
}

// submits submits actions.
func (w *world) submits(specs ...*rotav1.ActionSpec) []uint64 {
	w.Helper()
	ids, err := w.api.Submit(w.Context(), specs...)
	if err != nil {
		w.Fatal(err)
	}
	return ids
}

// met waits until so many members of a gang have met.
func (w *world) met(gang, members int) {
	w.Helper()
	w.until(fmt.Sprintf("%d members of gang %d have met", members, gang), func() bool {
		n := 0
		for _, d := range w.deeds() {
			if d.what == "end" && d.submission == gang {
				n++
			}
		}
		return n >= members
	})
}

// endAs waits until actions have ended, and checks in which states and why.
func (w *world) endAs(ids []uint64, want ...rotav1.EndReason) (ended []*rotav1.Action) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 2*patience)
	defer cancel()
	for i, id := range ids {
		a, err := w.api.Wait(ctx, id)
		if err != nil {
			w.Fatal(err)
		}
		ended = append(ended, a)
		if reason := a.GetResult().GetReason(); reason != want[i] {
			w.Errorf("rank %d ended as %v, %v: %s; want %v", i, a.State, reason, a.GetResult().GetMessage(), want[i])
		}
	}
	return ended
}

// gone waits until no process of a gang is left.
func (w *world) gone(gang int) {
	w.Helper()
	w.until(fmt.Sprintf("nothing of gang %d is left", gang), func() bool {
		return len(processes(w.marker(), fmt.Sprintf("GANG=%d", gang))) == 0
	})
}

const (
	exited    = rotav1.EndReason_END_REASON_EXITED
	gangEnded = rotav1.EndReason_END_REASON_GANG_ENDED
	canceled  = rotav1.EndReason_END_REASON_CANCELED
)

// TestGangs: gangs of all clients on two nodes of four cores each.
func TestGangs(t *testing.T) {
	need.Tool(t, "sh", "flock", "python3")
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 3, Agents: 2})
	open := w.prepare()
	for _, c := range []struct {
		name string
		run  func(*world)
	}{
		{"all start at once or none", allAtOnce},
		{"one fails", oneMemberFails},
		{"one is canceled", oneMemberIsCanceled},
		{"Ctrl-C", interruptedGang},
		{"each on a node of its own", gangIsSpread},
		{"Python", pythonGang},
		{"as documented", documentedGang},
		{"an agent is killed and comes back", func(w *world) { gangOutlivesAgent(w, open) }},
	} {
		if !t.Run(c.name, func(t *testing.T) { v := *w; v.T = t; c.run(&v) }) {
			return
		}
	}
	w.sameHash()
}

// allAtOnce: a gang that needs all cores waits as a whole while one of them is taken, though three
// members would fit. It starts when that is free.
func allAtOnce(w *world) {
	holder := w.submits(&rotav1.ActionSpec{
		Command:   &rotav1.Command{Argv: []string{"flock", "-s", filepath.Join(w.dir, "gate"), "true"}, Env: map[string]string{"E2E_WORLD": w.dir}},
		Resources: &rotav1.Resources{Cores: proto.Uint32(1)},
	})
	done := make(chan string)
	go func() {
		out, stderr, _, code := w.rota(strings.Join(w.cluster.Addrs(), ","), "run", "--gang", "4", "--cores", "2", "--", "python3", "-B", w.meetProgram())
		done <- fmt.Sprintf("exit code %d\n%s%s", code, out, stderr.text.String())
	}()
	var members []*rotav1.Action
	queued := func() bool {
		members = slices.DeleteFunc(w.list(rotav1.ActionState_ACTION_STATE_QUEUED), func(a *rotav1.Action) bool { return a.Gang == 0 })
		return len(members) == 4
	}
	w.until("the gang waits", queued)
	w.end(&rotav1.ActionSpec{Command: command("true"), Resources: &rotav1.Resources{Cores: proto.Uint32(1)}})
	if !queued() {
		w.Errorf("members have started while another action holds a core: %v", members)
	}
	if _, err := w.api.Cancel(w.Context(), holder...); err != nil {
		w.Fatal(err)
	}
	text := <-done
	for _, want := range []string{"exit code 0\n", "0: rank 0 of 4: the ranks add up to 6\n", "3: rank 3 of 4: the ranks add up to 6\n"} {
		if !strings.Contains(text, want) {
			w.Errorf("%q is not in what rota says:\n%s", want, text)
		}
	}
	if out, _, _, _ := w.rota(w.cluster.Servers[0].Addr, "action", "get", fmt.Sprint(members[2].Id)); !strings.Contains(out, fmt.Sprintf("%d, rank 2 of 4", members[0].Id)) {
		w.Errorf("its rank is not in\n%s", out)
	}
	nodes := map[string]int{}
	for _, m := range members {
		nodes[w.action(m.Id).Node]++
	}
	if len(nodes) != 2 || nodes["node-1"] != 2 {
		w.Errorf("members by node: %v", nodes)
	}
}

// oneMemberFails: the others, on both nodes, are ended, and rota ends as the member did.
func oneMemberFails(w *world) {
	env := []string{"--env", "E2E_WORLD=" + w.dir, "--env", "GANG=2", "--env", "MEET=" + w.meetProgram(), "--env", "FAILS=1", "--env", "HOLD=1"}
	args := slices.Concat([]string{"run", "--gang", "6", "--cores", "1"}, env, []string{"--", "sh", "-c", gangScript})
	out, stderr, _, code := w.rota(w.cluster.Servers[1].Addr, args...)
	if code != 3 || !strings.Contains(out, "0: rank 0 of 6") {
		w.Errorf("exit code %d\n%s%s", code, out, &stderr.text)
	}
	w.gone(2)
}

// oneMemberIsCanceled ends all.
func oneMemberIsCanceled(w *world) {
	ids := w.submits(client.Gang(w.member(3, 1, "HOLD=1"), 5, false)...)
	w.met(3, 5)
	if _, err := w.api.Cancel(w.Context(), ids[3]); err != nil {
		w.Fatal(err)
	}
	ended := w.endAs(ids, gangEnded, gangEnded, gangEnded, canceled, gangEnded)
	if text := ended[0].GetResult().GetMessage(); !strings.Contains(text, fmt.Sprintf("action %d of its gang", ids[3])) {
		w.Errorf("rank 0 was ended because: %s", text)
	}
	w.gone(3)
}

// interruptedGang: Ctrl-C cancels all members.
func interruptedGang(w *world) {
	run := exec.Command(w.cluster.Servers[0].Binary, "--addr", strings.Join(w.cluster.Addrs(), ","), "run", "--gang", "3", "--cores", "1",
		"--env", "E2E_WORLD="+w.dir, "--env", "GANG=6", "--env", "MEET="+w.meetProgram(), "--env", "HOLD=1", "--", "sh", "-c", gangScript)
	var stderr strings.Builder
	run.Stderr = &stderr
	if err := run.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = run.Process.Kill() })
	w.met(6, 3)
	w.signal(run.Process.Pid, syscall.SIGINT)
	if err := run.Wait(); run.ProcessState.ExitCode() != 130 || !strings.Contains(stderr.String(), "interrupted: canceled gang") {
		w.Errorf("%v: %s", err, &stderr)
	}
	w.gone(6)
}

func gangIsSpread(w *world) {
	ids := w.submits(client.Gang(w.member(4, 1), 2, true)...)
	ended := w.endAs(ids, exited, exited)
	if ended[0].Node == ended[1].Node {
		w.Errorf("both were on %s", ended[0].Node)
	}
	_, err := w.api.Submit(w.Context(), client.Gang(w.member(5, 1), 3, true)...)
	if client.Detail(err).GetReason() != "UNSATISFIABLE" {
		w.Errorf("three on two nodes: %v", err)
	}
}

const pythonGangs = `
import json, sys, rota
client = rota.Client(*sys.argv[2:])
ids = client.submit(*rota.gang(rota.spec([sys.executable, "-B", sys.argv[1]], cores=1), 2, spread="node"))
ends = [client.wait(i, timeout_s=60) for i in ids]
print(json.dumps([[e.state, e.stdout] for e in ends]), len({e.node for e in ends}))
`

func pythonGang(w *world) {
	ctx, cancel := context.WithTimeout(w.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "python3", append([]string{"-B", "-c", pythonGangs, w.meetProgram()}, w.cluster.Addrs()...)...)
	cmd.Dir = filepath.Join("..", "..", "..", "api", "python")
	out, err := cmd.CombinedOutput()
	want := `[["SUCCEEDED", "rank 0 of 2: the ranks add up to 1\n"], ["SUCCEEDED", "rank 1 of 2: the ranks add up to 1\n"]] 2` + "\n"
	if err != nil || string(out) != want {
		w.Errorf("%v: %s", err, out)
	}
}

// documentedGang runs the example of docs/concepts.md as it stands there.
func documentedGang(w *world) {
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		w.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "concepts.md"))
	if err != nil {
		w.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Gangs\n")
	_, block, _ := strings.Cut(section, "```sh\n")
	block, _, ok := strings.Cut(block, "```")
	_, shown, _ := strings.Cut(section, "```text\n")
	shown, _, shows := strings.Cut(shown, "```")
	if !ok || !shows || !strings.Contains(block, "gang.py") {
		w.Fatalf("docs/concepts.md has no example of a gang: %q", block)
	}
	bin := w.TempDir()
	if err := os.Symlink(w.cluster.Servers[0].Binary, filepath.Join(bin, "rota")); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-ec", block)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "ROTA_ADDR="+strings.Join(w.cluster.Addrs(), ","))
	out, err := cmd.Output()
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(got) // members write at the same time
	if want := strings.Split(strings.TrimSpace(shown), "\n"); err != nil || !slices.Equal(got, want) {
		w.Errorf("%v: it wrote %q, the document has %q", err, got, want)
	}
}

// gangOutlivesAgent: its members are adopted by the next agent, and the gang ends well.
func gangOutlivesAgent(w *world, open func()) {
	ids := w.submits(client.Gang(w.member(8, 1, "HOLD=1"), 2, true)...)
	w.met(8, 2)
	killAgent(w, w.cluster.Agents[0])
	open()
	for _, a := range w.endAs(ids, exited, exited) {
		if a.State != rotav1.ActionState_ACTION_STATE_SUCCEEDED || a.Attempt != 1 {
			w.Errorf("action %d: %v at attempt %d", a.Id, a.State, a.Attempt)
		}
	}
}

// TestAGangEndsWithTheNodeOfAMember: an agent is killed for longer than its lease. The member there is
// lost, and the other ones are ended.
func TestAGangEndsWithTheNodeOfAMember(t *testing.T) {
	need.Tool(t, "sh", "flock", "python3")
	t.Parallel()
	w := newWorld(t, short, devcluster.Config{Servers: 1, Agents: 2})
	w.prepare()
	ids := w.submits(client.Gang(w.member(1, 2, "HOLD=1"), 4, false)...)
	w.met(1, 4)
	victim := w.cluster.Agents[slices.IndexFunc(w.cluster.Agents, func(p *devcluster.Process) bool { return p.Name == w.action(ids[3]).Node })]
	killAgentForLong(w, victim)
	lost := rotav1.EndReason_END_REASON_NODE_LOST
	w.endAs(ids, gangEnded, gangEnded, lost, lost)
	w.gone(1)
}

// TestGangsStartWhileLeadersAreKilled: gangs are submitted one after the other, and leaders are killed
// as soon as one is acknowledged. Each gang meets, which takes all of its members, and each member runs once.
func TestGangsStartWhileLeadersAreKilled(t *testing.T) {
	need.Tool(t, "sh", "flock", "python3")
	t.Parallel()
	const submitters, kills = 2, 3
	w := newWorld(t, patient, devcluster.Config{Servers: 3, Agents: 2})
	w.prepare()
	quit, sizes := make(chan struct{}), make(chan map[int]int, submitters)
	for who := range submitters {
		go func() {
			mine := map[int]int{}
			defer func() { sizes <- mine }()
			for i := 0; ; i++ {
				select {
				case <-quit:
					return
				default:
				}
				number, size := 1+2*i+who, 2+i%3
				ids, err := w.api.Submit(w.Context(), client.Gang(w.member(number, 1), uint32(size), i%3 == 0)...)
				if err != nil {
					w.Errorf("gang %d: %v", number, err)
					return
				}
				mine[number] = size
				for _, id := range ids {
					if a, err := w.api.Wait(w.Context(), id); err != nil || a.State != rotav1.ActionState_ACTION_STATE_SUCCEEDED || a.Attempt != 1 {
						w.Errorf("gang %d: %v, %v", number, a, err)
					}
				}
			}
		}()
	}
	want := map[int]int{}
	for i := range kills {
		w.until("gangs have met", func() bool { return w.count("end") >= 6*(i+1) || w.Failed() })
		leader := w.leader(nil)
		ids := w.submits(client.Gang(w.member(-1-i, 1), 3, false)...) // they are granted, and the nodes hear of it now
		w.kill(leader)
		want[-1-i] = len(ids)
		w.leader(leader)
		w.start(leader)
		w.endAs(ids, exited, exited, exited)
	}
	close(quit)
	started := map[int]int{}
	for range submitters {
		for number, size := range <-sizes {
			want[number] = size
		}
	}
	for _, d := range w.deeds() {
		if d.what == "start" {
			started[d.submission]++
		}
	}
	for number, size := range want {
		if started[number] != size {
			t.Errorf("%d members of gang %d have started, it has %d", started[number], number, size)
		}
	}
	w.sameHash()
	t.Logf("%d gangs", len(want))
}
