package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// training is two jobs that share a group of nodes, and a witness.
type training struct {
	*world
	witness string
}

// What the jobs do: each step is a turn and then a rollout, which together take about
// a period.
const (
	trainingSlot    = 100 * time.Millisecond
	trainingPeriod  = 4 * time.Second
	trainingHeld    = 1500 * time.Millisecond // as declared
	trainingBurn    = time.Second
	trainingSetUp   = 100 * time.Millisecond
	trainingRollout = 2850 * time.Millisecond
	trainingGroup   = "trainers"
)

func newTraining(t *testing.T, l lease, config devcluster.Config) *training {
	t.Helper()
	need.Tool(t, "sh", "python3")
	config.Servers, config.ServerArgs = 3, []string{"--ledger-slot", trainingSlot.String()}
	w := newWorld(t, l, config)
	tr := &training{w, filepath.Join(w.dir, "turns")}
	if _, err := w.api.Ledger.CreateNodeGroup(t.Context(), &rotav1.CreateNodeGroupRequest{Name: trainingGroup, Nodes: 4}); err != nil {
		t.Fatal(err)
	}
	return tr
}

// submit submits a job, which is placed at once.
func (tr *training) submit(name string) {
	tr.Helper()
	resp, err := tr.api.Jobs.SubmitJob(tr.Context(), &rotav1.SubmitJobRequest{
		Name: name, Nodes: 4, RequestId: name,
		Cycle: &rotav1.Cycle{Period: durationpb.New(trainingPeriod), Segments: []*rotav1.Segment{
			{Length: durationpb.New(trainingHeld), Nodes: 4},
		}},
	})
	if err != nil || resp.Job.State != rotav1.JobState_JOB_STATE_RUNNING || resp.Job.Group != trainingGroup {
		tr.Fatalf("job %s is not placed: %v, %v", name, resp, err)
	}
}

// job asks for a job.
func (tr *training) job(name string) *rotav1.Job {
	tr.Helper()
	resp, err := tr.api.Jobs.GetJob(tr.Context(), &rotav1.GetJobRequest{Name: name})
	if err != nil {
		tr.Fatal(err)
	}
	return resp.Job
}

// turn is the one that was granted with a token.
func (tr *training) turn(token uint64) *rotav1.Turn {
	tr.Helper()
	resp, err := tr.api.Turns.ListTurns(tr.Context(), &rotav1.ListTurnsRequest{IncludeEnded: true})
	if err != nil {
		tr.Fatal(err)
	}
	for _, turn := range resp.Turns {
		if turn.Token == token {
			return turn
		}
	}
	tr.Fatalf("no turn has token %d: %v", token, resp.Turns)
	return nil
}

// process is a job that runs outside rota.
type process struct {
	*exec.Cmd
	name string
	out  bytes.Buffer
	done chan error
}

// begin starts a process in a group of its own, which ends with the test.
func (tr *training) begin(name, program string, args []string, env ...string) *process {
	tr.Helper()
	p := &process{Cmd: exec.CommandContext(tr.Context(), program, args...), name: name, done: make(chan error, 1)}
	p.Env = append(append(os.Environ(), "PYTHONPATH="+pythonPath(tr), "ROTA_ADDR="+strings.Join(tr.cluster.Addrs(), ",")), env...)
	p.Stdout, p.Stderr = &p.out, &p.out
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.Start(); err != nil {
		tr.Fatal(err)
	}
	go func() { p.done <- p.Wait() }()
	tr.Cleanup(func() { _ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL) })
	return p
}

func pythonPath(tr *training) string {
	tr.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "..", "api", "python"))
	if err != nil {
		tr.Fatal(err)
	}
	return path
}

// end waits for the end of a process, and returns how it ended and what it has written.
func (tr *training) end(p *process, within time.Duration) (out string, err error) {
	tr.Helper()
	select {
	case err := <-p.done:
		return p.out.String(), err
	case <-time.After(within):
		_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
		<-p.done
		tr.Fatalf("%s has not ended in %v; the witness has %+v; it wrote:\n%s", p.name, within, tr.phases(tr.witness), p.out.String())
		return "", nil
	}
}

// shellJob is a job as a script: rota runs its workers.
const shellJob = `set -e
for step in $(seq "$STEPS"); do
  "$ROTA" turn run --deployment "$JOB/actor" --step "$step" --operation forward-backward --expect "$BURN" -- "$WORKER"
  sleep "$ROLLOUT"
done`

// shell starts a job that is a script.
func (tr *training) shell(job string, steps int, burn time.Duration) *process {
	tr.Helper()
	self, err := os.Executable()
	if err != nil {
		tr.Fatal(err)
	}
	return tr.begin(job, "sh", []string{"-c", shellJob},
		"ROTA="+tr.cluster.Servers[0].Binary, "WORKER="+self, workerEnv+"=1", "WITNESS="+tr.witness,
		"JOB="+job, "STEPS="+strconv.Itoa(steps), "BURN="+burn.String(), "ROLLOUT="+inSeconds(trainingRollout))
}

// python starts a job that is a Python program.
func (tr *training) python(job string, steps int, burn time.Duration) *process {
	tr.Helper()
	return tr.begin(job, "python3", []string{"-B", filepath.Join("testdata", "turns.py"),
		strings.Join(tr.cluster.Addrs(), ","), tr.witness, job, strconv.Itoa(steps),
		inSeconds(burn), inSeconds(trainingRollout), inSeconds(trainingSetUp)})
}

func inSeconds(d time.Duration) string { return fmt.Sprintf("%g", d.Seconds()) }

// holder waits until somebody holds the group.
func (tr *training) holder(job string, afterTurns int) (now phase) {
	tr.Helper()
	tr.until("somebody holds the group", func() bool {
		phases := tr.phases(tr.witness)
		if len(phases) <= afterTurns {
			return false
		}
		now = phases[len(phases)-1]
		return now.end == 0 && (job == "" || now.job == job)
	})
	return now
}

// TestTwoJobsTakeTurns: a script and a Python program share a group, and the leader is
// killed while one of them holds it.
func TestTwoJobsTakeTurns(t *testing.T) {
	t.Parallel()
	const steps = 7
	tr := newTraining(t, patient, devcluster.Config{})
	jobs := []string{"job-a", "job-b"}
	for _, job := range jobs {
		tr.submit(job)
	}
	period := tr.reserved(len(jobs))
	running := []*process{tr.shell(jobs[0], steps, trainingBurn), tr.python(jobs[1], steps, trainingBurn)}

	holder := tr.holder("", 4)
	leader := tr.leader(nil)
	killed := monotonic()
	tr.kill(leader)
	tr.leader(leader)
	tr.start(leader)
	for _, p := range running {
		if out, err := tr.end(p, 2*time.Minute); err != nil {
			t.Errorf("%s: %v\n%s", p.name, err, out)
		}
	}

	phases := tr.phases(tr.witness)
	tr.oneAtATime(phases, 0)
	if !during(phases, killed) {
		t.Errorf("the leader was killed when nobody held the group, not even %+v", holder)
	}
	for i, job := range jobs {
		of := tr.inOrder(phases, job, steps)
		predicted := time.Duration(steps-1)*period + trainingBurn
		if i == 1 {
			predicted += trainingSetUp
		}
		took := time.Duration(of[steps-1].end - of[0].start)
		t.Logf("%s held the group from, to (s): %s; the leader was killed at %.2f", job, spans(of, phases[0].start), time.Duration(killed-phases[0].start).Seconds())
		t.Logf("%s took %v for %d steps; the ledger says %v: %+.1f %%", job, took.Round(time.Millisecond), steps, predicted, 100*(took.Seconds()/predicted.Seconds()-1))
		if row := tr.job(job); row.FinishedCycles != steps-1 || row.LiveTurns != 0 {
			t.Errorf("rota has counted %d cycles of %s, want %d, and %d turns live", row.FinishedCycles, job, steps-1, row.LiveTurns)
		}
	}
	if learned := tr.job(jobs[1]).Deployments[0].SetUp.AsDuration(); learned < trainingSetUp {
		t.Errorf("rota believes that setting %s up takes %v, it takes %v", jobs[1], learned, trainingSetUp)
	}
}

// reserved checks what the ledger has for the group, and returns its period.
func (tr *training) reserved(jobs int) time.Duration {
	tr.Helper()
	ledger, err := tr.api.Ledger.GetLedger(tr.Context(), &rotav1.GetLedgerRequest{Group: trainingGroup})
	if err != nil || len(ledger.Groups) != 1 {
		tr.Fatalf("%v, %v", ledger, err)
	}
	group := ledger.Groups[0]
	for i, r := range group.Intervals {
		if r.Start >= r.End || i > 0 && r.Start < group.Intervals[i-1].End {
			tr.Errorf("reservations %v", group.Intervals)
		}
	}
	period := group.Group.Period.AsDuration()
	if len(group.Intervals) < jobs || ledger.Slot.AsDuration() != trainingSlot || period < trainingPeriod {
		tr.Fatalf("%v", ledger)
	}
	return period
}

// during reports whether somebody held the group at a time.
func during(phases []phase, at int64) bool {
	for _, p := range phases {
		if p.start < at && at < p.end {
			return true
		}
	}
	return false
}

// spans are when phases began and ended, since a time.
func spans(phases []phase, since int64) string {
	var text strings.Builder
	for _, p := range phases {
		fmt.Fprintf(&text, " %.2f-%.2f", time.Duration(p.start-since).Seconds(), time.Duration(p.end-since).Seconds())
	}
	return text.String()
}

// TestAKilledHolderLosesItsTurn: nobody yields, so the lease has to run out. The next
// one gets the group only then.
func TestAKilledHolderLosesItsTurn(t *testing.T) {
	t.Parallel()
	tr := newTraining(t, short, devcluster.Config{})
	tr.submit("job-a")
	tr.submit("job-b")
	killed := tr.shell("job-a", 1, time.Hour)
	holder := tr.holder("job-a", 0)
	next := tr.python("job-b", 1, trainingBurn)
	at := monotonic()
	if err := syscall.Kill(-killed.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if out, err := tr.end(next, time.Minute); err != nil {
		t.Errorf("%s: %v\n%s", next.name, err, out)
	}
	phases := tr.phases(tr.witness)
	tr.oneAtATime(phases, at)
	if len(phases) != 2 || phases[0].token != holder.token || phases[0].end != 0 {
		t.Fatalf("the witness has %+v, and %+v was killed", phases, holder)
	}
	// The last renewal was sent before the kill, by at most a third of the lease.
	if waited := time.Duration(phases[1].start - at); waited < tr.lease.duration*2/3-time.Second/2 {
		t.Errorf("the group was given on %v after the holder was killed, with leases of %v", waited, tr.lease.duration)
	}
	if state := tr.turn(holder.token).GetState(); state != rotav1.TurnState_TURN_STATE_LOST {
		t.Errorf("the turn of the killed holder is %v", state)
	}
}

// TestAPausedHolderHearsThatItHasLost: its process stands still for longer than the
// lease and another has had the group, so it must not take its work to be done.
func TestAPausedHolderHearsThatItHasLost(t *testing.T) {
	t.Parallel()
	tr := newTraining(t, short, devcluster.Config{})
	tr.submit("job-a")
	tr.submit("job-b")
	paused := tr.python("job-b", 1, 5*time.Second)
	holder := tr.holder("job-b", 0)
	tr.signal(paused.Process.Pid, syscall.SIGSTOP)
	// It keeps the lock of its witness while it stands still. The other holds its turn
	// for longer than a lease.
	others := *tr
	others.witness += "-of-others"
	next := others.shell("job-a", 1, 2*tr.lease.duration)
	if out, err := others.end(next, time.Minute); err != nil {
		t.Errorf("%s: %v\n%s", next.name, err, out)
	}
	tr.signal(paused.Process.Pid, syscall.SIGCONT)
	if out, err := tr.end(paused, time.Minute); err == nil || !strings.Contains(out, "TurnLost") {
		t.Errorf("the holder of a lost turn ended as %v and wrote\n%s", err, out)
	}
	if of := tr.phases(tr.witness); len(of) != 1 || of[0].end != 0 {
		t.Errorf("its work was done, as it says: %+v", of)
	}
	if of := others.inOrder(others.phases(others.witness), "job-a", 1); of[0].token <= holder.token {
		t.Errorf("%+v has no larger token than %+v", of[0], holder)
	}
	if state := tr.turn(holder.token).GetState(); state != rotav1.TurnState_TURN_STATE_LOST {
		t.Errorf("the turn of the paused holder is %v", state)
	}
}
