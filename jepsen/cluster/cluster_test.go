package cluster

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestStartNeedsIsolation(t *testing.T) {
	before := run
	run = ""
	defer func() { run = before }()
	if _, err := Start(t.Context(), Config{Dir: t.TempDir()}); !errors.Is(err, ErrNotIsolated) {
		t.Errorf("error %v, want ErrNotIsolated", err)
	}
}

// One cluster shows all that can be done to its processes.
func TestMembersCanBeKilledAndComeBack(t *testing.T) {
	w := newWorld(t, Config{Servers: 3, Agents: 2, Lease: 5 * time.Second, Margin: time.Second})
	leader := w.leads()
	leader.Kill()
	how, err := leader.WaitExit(w.ctx)
	if w.must(err); how != "signal: killed" {
		t.Errorf("the leader ended by %q", how)
	}
	next, err := w.LeaderOtherThan(w.ctx, leader)
	if w.must(err); next == leader {
		t.Error("a server that was killed leads")
	}
	if err := leader.Wipe(); err != nil {
		t.Error(err)
	}
	if err := next.Wipe(); !errors.Is(err, ErrAlive) {
		t.Errorf("wiping a server that runs: %v, want ErrAlive", err)
	}
	w.must(leader.Start())
	w.healthy()

	if err := w.Transfer(w.ctx, leader); err != nil {
		t.Fatal(err)
	}
	if now := w.leads(); now != leader {
		t.Errorf("%s leads, want %s", now.Name, leader.Name)
	}
}

func TestAttemptsAreFoundAndFrozen(t *testing.T) {
	w := newWorld(t, Config{Servers: 1, Agents: 1, Lease: 20 * time.Second, Margin: time.Second})
	agent := w.Agents[0]
	if _, err := agent.FreezeAttempts(); !errors.Is(err, ErrNoAttempts) {
		t.Errorf("freezing nothing: %v, want ErrNoAttempts", err)
	}
	w.submit("while :; do date +%N > beat; sleep 0.01; done")
	w.until("it runs", func() bool { return len(agent.Attempts()) > 1 })
	supervisor := agent.Supervisor()
	if supervisor == 0 || slices.Contains(agent.Attempts(), supervisor) || slices.Contains(agent.Attempts(), agent.Pid()) {
		t.Errorf("supervisor %d, agent %d, attempts %v", supervisor, agent.Pid(), agent.Attempts())
	}
	freeze, err := agent.FreezeAttempts()
	w.must(err)
	t.Logf("%d processes are frozen by %s", len(freeze.Processes), freeze.How)
	before := ticks(t, agent.Attempts())
	time.Sleep(100 * time.Millisecond)
	if after := ticks(t, agent.Attempts()); !slices.Equal(before, after) {
		t.Errorf("frozen processes work: %v, then %v", before, after)
	}
	w.must(freeze.Thaw())
	w.until("it goes on", func() bool { return !slices.Equal(before, ticks(t, agent.Attempts())) })

	agent.Kill()
	if len(agent.Attempts()) == 0 || agent.Supervisor() != supervisor {
		t.Error("what an agent runs ended when it was killed")
	}
	_, err = agent.FreezeAttempts()
	w.must(err) // Stop ends also what is frozen
}

// ticks are the system calls and switches of processes, which show that they run.
func ticks(t *testing.T, pids []int) (list []string) {
	t.Helper()
	for _, pid := range pids {
		raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		_, switches, _ := strings.Cut(string(raw), "\nvoluntary_ctxt_switches:")
		list = append(list, strconv.Itoa(pid)+" "+strings.TrimSpace(switches))
	}
	return list
}

func TestVotersComeAndGo(t *testing.T) {
	w := newWorld(t, Config{Servers: 3, Standbys: 1})
	standby := w.Servers[3]
	w.must(w.AddVoter(w.ctx, standby))
	w.healthy()
	w.voters("server-1", "server-2", "server-3", "server-4")
	gone := w.leads()
	w.must(w.Remove(w.ctx, gone))
	if _, err := w.LeaderOtherThan(w.ctx, gone); err != nil {
		t.Fatal(err)
	}
	gone.Stop(stopGrace)
	w.must(gone.Wipe())
	w.must(gone.Start())
	w.must(w.AddVoter(w.ctx, gone))
	w.healthy()
	w.voters("server-1", "server-2", "server-3", "server-4")
}

// voters checks who has a vote.
func (w *world) voters(want ...string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	voters, err := w.Voters(ctx, w.leads())
	w.must(err)
	var names []string
	for _, m := range voters {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		w.Errorf("voters %v, want %v", names, want)
	}
}
