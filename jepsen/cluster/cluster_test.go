package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/internal/failpoint"
	"rota/internal/need"
	"rota/jepsen/proxy"
	"rota/server/replica"
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
	need.Cgroup(t)
	for _, test := range []struct {
		confine string
		how     []string
	}{
		{"", []string{"cgroup.freeze", "freezer"}},
		{"cgroup-v1", []string{"freezer"}},
		{"affinity", []string{"SIGSTOP"}},
	} {
		t.Run(test.confine, func(t *testing.T) {
			config := Config{Servers: 1, Agents: 1, Lease: 20 * time.Second, Margin: time.Second}
			if test.confine == "cgroup-v1" && !slices.ContainsFunc(hierarchies(), hierarchy.freezes) {
				t.Skip("needs a freezer of cgroup v1: none is mounted")
			}
			if test.confine != "" {
				config.AgentArgs = []string{"--confine", test.confine}
			}
			newWorld(t, config).freezeAndThaw(test.how)
		})
	}
}

// freezeAndThaw pauses an attempt in one of the given ways.
func (w *world) freezeAndThaw(how []string) {
	w.Helper()
	agent := w.Agents[0]
	if _, err := agent.FreezeAttempts(); !errors.Is(err, ErrNoAttempts) {
		w.Errorf("freezing nothing: %v, want ErrNoAttempts", err)
	}
	w.submit("while :; do date +%N > beat; sleep 0.01; done")
	w.until("it runs", func() bool { return len(agent.Attempts()) > 1 })
	supervisor := agent.Supervisor()
	if supervisor == 0 || slices.Contains(agent.Attempts(), supervisor) || slices.Contains(agent.Attempts(), agent.Pid()) {
		w.Errorf("supervisor %d, agent %d, attempts %v", supervisor, agent.Pid(), agent.Attempts())
	}
	freeze, err := agent.FreezeAttempts()
	w.must(err)
	if !slices.Contains(how, freeze.How) || len(freeze.Processes) == 0 {
		w.Errorf("processes %v are frozen by %s, want one of %v", freeze.Processes, freeze.How, how)
	}
	before := ticks(w.T, agent.Attempts())
	time.Sleep(100 * time.Millisecond)
	if after := ticks(w.T, agent.Attempts()); !slices.Equal(before, after) {
		w.Errorf("frozen processes work: %v, then %v", before, after)
	}
	w.must(freeze.Thaw())
	w.until("it goes on", func() bool { return !slices.Equal(before, ticks(w.T, agent.Attempts())) })

	agent.Kill()
	if len(agent.Attempts()) == 0 || agent.Supervisor() != supervisor {
		w.Error("what an agent runs ended when it was killed")
	}
	_, err = agent.FreezeAttempts()
	w.must(err) // Stop ends also what is frozen
	w.must(w.Cluster.Stop())
	if left := append(agent.Attempts(), agent.Supervisor()); !slices.Equal(left, []int{0}) {
		w.Errorf("left over after the end: %v", left)
	}
	for _, parent := range cgroupParents() {
		if dir := filepath.Join(parent, run); exists(dir) {
			w.Errorf("left over after the end: %s", dir)
		}
	}
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
	if left, err := os.ReadDir(gone.DataDir); err != nil || len(left) > 0 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
	w.must(gone.Start())
	w.must(w.AddVoter(w.ctx, gone))
	w.healthy()
	w.voters("server-1", "server-2", "server-3", "server-4")

	// The logs tell the same story.
	if _, err := ReadLog(standby.DataDir); !errors.Is(err, replica.ErrInUse) {
		t.Errorf("log of a server that runs: %v, want ErrInUse", err)
	}
	w.must(w.Cluster.Stop())
	log, err := ReadLog(standby.DataDir)
	w.must(err)
	var sizes []int
	for _, e := range log.Entries {
		if e.Voters != nil && (len(sizes) == 0 || sizes[len(sizes)-1] != len(e.Voters)) {
			sizes = append(sizes, len(e.Voters))
		}
	}
	if want := []int{3, 4, 3, 4}; log.First != 1 || !slices.Equal(sizes, want) {
		t.Errorf("log of %s from %d with %v voters, want %v", log.Server, log.First, sizes, want)
	}
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

func TestBinariesAreReplacedOneByOne(t *testing.T) {
	w := newWorld(t, Config{Servers: 3})
	other, err := otherVersion()
	w.must(err)
	for _, m := range w.Servers {
		m.Stop(stopGrace)
		m.SetBinary(other)
		w.must(m.Start())
		w.healthy()
		status, err := w.Status(w.ctx, m)
		if w.must(err); status.Version != otherVersionName {
			t.Errorf("%s has version %s, want %s", m.Name, status.Version, otherVersionName)
		}
	}
}

// Servers are known to each other under other addresses, and their folders are
// elsewhere, as with proxies and with faulty disks.
func TestRoutesAndDisks(t *testing.T) {
	config := Config{Servers: 3, Agents: 1}
	p := proxy.New(addresses(&config), 1)
	t.Cleanup(func() { _ = p.Close() })
	config.Route = func(m *Member) (r Route, err error) {
		if r.API, err = p.TCP(m.Name, HubIP+":0", m.Addr); err == nil {
			r.Gossip, err = p.Both(m.Name, HubIP+":0", m.Gossip())
		}
		return r, err
	}
	disks, released := t.TempDir(), 0
	config.Disk = func(name, dir string) (string, func() error, error) {
		return filepath.Join(disks, name), func() error { released++; return nil }, nil
	}
	w := newWorld(t, config)
	for name, ip := range addresses(&config) {
		if m := w.Member(name); m == nil || m.IP != ip {
			t.Errorf("%s is at %v, want %s", name, m, ip)
		}
	}
	peers, err := w.api.Operator.ListPeers(w.ctx, &rotav1.ListPeersRequest{})
	w.must(err)
	for _, peer := range peers.Peers {
		m := w.Member(peer.Id)
		if peer.Address != m.Advertised || peer.Address == m.Addr {
			t.Errorf("%s is known as %s; its route is %s", peer.Id, peer.Address, m.Advertised)
		}
		if !exists(filepath.Join(disks, m.Name, "raft.db")) {
			t.Errorf("%s has no log in its disk", m.Name)
		}
	}
	// The proxy knows who talks to whom: loss between two is loss on its way.
	leader := w.leads()
	before := p.Counters()
	for _, m := range w.Servers {
		p.SetLoss(leader.Name, m.Name, proxy.LossAll)
	}
	if _, err := w.LeaderOtherThan(w.ctx, leader); err != nil {
		t.Error(err)
	}
	if after := p.Counters(); after == before {
		t.Errorf("nothing went through the proxy: %+v", after)
	}
	p.Heal()
	w.healthy()
	if w.must(w.Cluster.Stop()); released != 4 {
		t.Errorf("%d disks were released, want 4", released)
	}
}

func TestFaultBuildsObeyTheirFiles(t *testing.T) {
	w := newWorld(t, Config{Servers: 1, Agents: 1, Faults: true})
	server := w.Servers[0]
	const jump = time.Hour
	before, err := w.Status(w.ctx, server)
	w.must(err)
	w.must(server.Clock.Set(0, jump))
	// A server adds to the time of its newest entry what has passed since it applied it. An entry that
	// was made before the jump and applied after it hides the jump, until the next one is applied.
	w.must(until(w.ctx, func() error {
		after, err := w.Status(w.ctx, server)
		if by := after.GetLogTime().AsTime().Sub(before.LogTime.AsTime()); err == nil && (by < jump || by > jump+patience) {
			err = fmt.Errorf("log time went on by %v, want %v", by, jump)
		}
		return err
	}))
	w.must(failpoint.Arm(server.FailpointDir(), failpoint.EntryApplied, "kill"))
	submitted := make(chan error, 1)
	go func() {
		_, err := w.api.Submit(w.ctx, &rotav1.ActionSpec{Command: &rotav1.Command{Argv: []string{"true"}}})
		submitted <- err
	}()
	how, err := server.WaitExit(w.ctx)
	if w.must(err); how != "signal: killed" {
		t.Errorf("at the failpoint the server ended by %q", how)
	}
	if by := server.Clock.Ahead(); by < jump {
		t.Errorf("its clock is ahead by %v, want %v", by, jump)
	}
	w.must(server.Start())
	w.healthy()
	w.must(<-submitted) // again, with the same request ID
}

// addresses are the IP addresses of all members by name, as Start gives them out.
func addresses(c *Config) map[string]string {
	addrs := make(map[string]string)
	servers, agents := c.names()
	for i, name := range append(servers, agents...) {
		addrs[name] = hostIP(i)
	}
	return addrs
}
