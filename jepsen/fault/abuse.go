package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rota/api/pki"
	"rota/jepsen/cluster"
	"rota/jepsen/history"
	"rota/jepsen/hostile"
)

// Names on the certificates of those who mean harm.
const (
	hostileClient = "mallory-client"
	hostileAgent  = "mallory"
)

// nodeLabel has another value on each node of a cluster under test.
const nodeLabel = "rack"

// abused are intruders at work.
type abused struct {
	w         *World
	intruders []*hostile.Intruder
	leader    *cluster.Member
	target    hostile.Target
	pids      map[string]int
	is        history.Abuse
}

// abuse lets a client, an agent and a command on each node do all the harm that they
// can think of.
func abuse(ctx context.Context, w *World) (*Injection, error) {
	a := &abused{w: w, pids: map[string]int{}}
	if w.Intruder == "" {
		return nil, errors.New("there is no intruder: the scenario needs one")
	}
	var err error
	if a.leader, err = w.Cluster.Leader(ctx); err != nil {
		return nil, err
	}
	a.aim()
	for _, m := range w.Cluster.Servers {
		a.pids[m.Name] = m.Pid()
	}
	a.is.Start = w.Record.Now()
	if a.is.Before, err = a.sample(ctx); err != nil {
		return nil, err
	}
	for role, as := range map[string]pki.Role{hostileClient: pki.RoleClient, hostileAgent: pki.RoleAgent} {
		target := a.target
		if target.Files, err = w.Cluster.Issue(as, role); err == nil {
			var i *hostile.Intruder
			i, err = hostile.Start(a.target.Program, string(as), target)
			a.intruders = append(a.intruders, i)
		}
		if err != nil {
			return nil, err
		}
	}
	return &Injection{Start: a.is.Start, Target: names(w.Cluster.Members()), End: a.end}, nil
}

// aim says what the intruders are told.
func (a *abused) aim() {
	t := &a.target
	t.Servers, t.Pool, t.Label, t.Victims = a.w.Cluster.Addrs(), a.w.Pool, nodeLabel, names(a.w.Cluster.Agents)
	for _, m := range a.w.Cluster.Members() {
		t.Gossip = append(t.Gossip, m.Gossip())
	}
	for _, m := range a.w.Cluster.Agents {
		runtime := filepath.Join(m.DataDir, "runtime")
		t.Forbidden = append(t.Forbidden, filepath.Join(runtime, "supervisor.journal.new"), filepath.Join(runtime, "output", "1000000.1.1.stdout", "x"))
	}
	t.Modes, a.is.Skipped = hostile.ModesFor(cluster.Controllers())
	t.Program = a.w.Intruder
}

// sample is what the leader of the beginning says of itself.
func (a *abused) sample(ctx context.Context) (history.Sample, error) {
	s, err := a.w.Cluster.Status(ctx, a.leader)
	return history.Sample{
		At: a.w.Record.Now(), Server: a.leader.Name, LeaderID: s.GetLeaderId(), Term: s.GetTerm(),
		Applied: s.GetAppliedIndex(), Commit: s.GetCommitIndex(),
	}, err
}

// end stops the intruders and records what they did.
func (a *abused) end(ctx context.Context) (proof string, err error) {
	a.is.End = a.w.Record.Now()
	var done hostile.Summary
	for _, i := range a.intruders {
		s, failed := i.Stop()
		err = errors.Join(err, failed)
		done.Add(s)
	}
	a.is.Tried, a.is.Achieved = done.Tried, slices.Concat(done.Achieved, a.made())
	after, failed := a.sample(ctx)
	if a.is.After = after; failed != nil {
		a.is.Achieved = append(a.is.Achieved, fmt.Sprintf("%s does not answer any more: %v", a.leader.Name, failed))
	}
	a.is.MemoryPeaks = make(map[string]uint64)
	for _, m := range a.w.Cluster.Servers {
		peak, failed := memoryPeak(m.Pid())
		if failed != nil || m.Pid() != a.pids[m.Name] {
			a.is.Achieved = append(a.is.Achieved, "the process of "+m.Name+" ended")
			continue
		}
		a.is.MemoryPeaks[m.Name] = peak
	}
	a.w.Record.Update(func(rec *history.Record) {
		if rec.Abuse != nil {
			a.is.QuietStart = rec.Abuse.QuietStart
		}
		rec.Abuse = &a.is
	})
	return a.proof(), err
}

// made are the paths in the folders of supervisors that are directories now.
func (a *abused) made() (all []string) {
	for _, path := range a.target.Forbidden {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			all = append(all, "a directory was made: "+path)
		}
	}
	return all
}

// proof counts what was tried; empty if some kind was not tried at all.
func (a *abused) proof() string {
	kinds := hostile.Kinds()
	for _, mode := range a.target.Modes {
		kinds = append(kinds, hostile.Command(mode))
	}
	for _, kind := range kinds {
		if a.is.Tried[kind] == 0 {
			return ""
		}
	}
	var counts []string
	for _, kind := range slices.Sorted(maps.Keys(a.is.Tried)) {
		counts = append(counts, fmt.Sprintf("%s %d", kind, a.is.Tried[kind]))
	}
	return strings.Join(slices.Concat(counts, a.is.Skipped), ", ")
}

// memoryPeak is the most memory that a process has had resident, in bytes.
func memoryPeak(pid int) (uint64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(raw), "VmHWM:")
	var kib uint64
	if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
		return 0, fmt.Errorf("read how much memory process %d has had: %w", pid, err)
	}
	return kib << 10, nil
}
