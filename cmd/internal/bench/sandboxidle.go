package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"rota/api/backoff"
)

// IdleSandboxes is what open sandboxes cost that run nothing. Memory is proportional: what processes
// share is divided among them (PSS, proc(5)).
type IdleSandboxes struct {
	Sandboxes int     `json:"sandboxes"`
	Seconds   float64 `json:"seconds"`
	// SandboxCPUMS is the CPU time, over all the seconds, of the processes of the sandboxes and of
	// those of containerd that watch them.
	SandboxCPUMS float64 `json:"sandbox_cpu_ms"`
	// ClusterCPUMS is that of servers, agent and supervisor, and ClusterCPUBeforeMS as long without
	// sandboxes.
	ClusterCPUMS       float64 `json:"cluster_cpu_ms"`
	ClusterCPUBeforeMS float64 `json:"cluster_cpu_before_ms"`
	// ProcessMiB is the memory of the first process of a sandbox.
	ProcessMiB float64 `json:"process_mib_each"`
	// WatcherMiB is the memory of the processes of containerd that watch sandboxes, and AgentMiB what
	// agent and supervisor have grown, both for each sandbox. Watchers counts those processes.
	Watchers   int     `json:"watchers"`
	WatcherMiB float64 `json:"watcher_mib_each"`
	AgentMiB   float64 `json:"agent_mib_each"`
	// BeyondMiB is all but ProcessMiB.
	BeyondMiB float64 `json:"beyond_process_mib_each"`
}

// usage is what some processes have used.
type usage struct {
	processes int
	cpu       time.Duration
	pss       uint64 // bytes
}

// idle opens sandboxes and measures what they cost while they do nothing.
func (s *sandboxes) idle(ctx context.Context, way *sandboxWay) (r *IdleSandboxes, err error) {
	cluster := func() (usage, error) { return usageOf(s.processes().cluster) }
	before, err := cluster()
	if err != nil {
		return nil, err
	}
	agentBefore, err := usageOf(s.processes().agent)
	if err != nil {
		return nil, err
	}
	if err := backoff.Sleep(ctx, s.o.IdleFor); err != nil {
		return nil, err
	}
	after, err := cluster()
	if err != nil {
		return nil, err
	}
	r = &IdleSandboxes{Sandboxes: s.o.Idle, Seconds: s.o.IdleFor.Seconds(), ClusterCPUBeforeMS: ms(after.cpu - before.cpu)}
	list := make([]*sandbox, s.o.Idle)
	defer func() { err = errors.Join(err, closeAll(ctx, way, list)) }()
	for i := range list {
		if list[i], err = way.open(ctx, s.name()); err != nil {
			return nil, err
		}
	}
	s.each(SandboxIdle, 0, way.name, 0)
	p := s.processes()
	if len(p.inits) < s.o.Idle {
		return nil, fmt.Errorf("%d sandboxes were opened, and %d of their processes are there", s.o.Idle, len(p.inits))
	}
	return r, s.measureIdle(ctx, r, p, agentBefore)
}

func (s *sandboxes) measureIdle(ctx context.Context, r *IdleSandboxes, p sandboxProcesses, agentBefore usage) error {
	groups := [][]int{p.inits, p.watchers, p.cluster, p.agent}
	var before, after [4]usage
	var err error
	for i, group := range groups {
		if before[i], err = usageOf(group); err != nil {
			return err
		}
	}
	if err := backoff.Sleep(ctx, s.o.IdleFor); err != nil {
		return err
	}
	for i, group := range groups {
		if after[i], err = usageOf(group); err != nil {
			return err
		}
	}
	n := float64(r.Sandboxes)
	each := func(bytes float64) float64 { return bytes / n / (1 << 20) }
	r.SandboxCPUMS = ms(after[0].cpu - before[0].cpu + after[1].cpu - before[1].cpu)
	r.ClusterCPUMS = ms(after[2].cpu - before[2].cpu)
	r.ProcessMiB, r.WatcherMiB, r.Watchers = each(float64(after[0].pss)), each(float64(after[1].pss)), len(p.watchers)
	r.AgentMiB = each(float64(after[3].pss) - float64(agentBefore.pss))
	r.BeyondMiB = r.WatcherMiB + r.AgentMiB
	return nil
}

// sandboxProcesses are process IDs by what they do.
type sandboxProcesses struct {
	inits, watchers, cluster, agent []int
}

// processes finds the processes of this cluster, and those of containerd that watch its sandboxes.
func (s *sandboxes) processes() (p sandboxProcesses) {
	commands, parents := map[int]string{}, map[int]int{}
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		text, readErr := os.ReadFile(name)
		if err != nil || readErr != nil {
			continue // it has ended
		}
		commands[pid] = strings.ReplaceAll(string(text), "\x00", " ")
		if fields, err := statFields(pid); err == nil {
			parents[pid], _ = strconv.Atoi(fields[1])
		}
	}
	watches := func(pid int) bool {
		return strings.Contains(commands[pid], "containerd-shim") && strings.Contains(commands[pid], " -namespace rota ") &&
			strings.Contains(commands[pid], s.o.Containerd)
	}
	dir := filepath.Dir(s.h.cluster.Agents[0].Dir)
	for pid, command := range commands {
		switch {
		case watches(pid):
			p.watchers = append(p.watchers, pid)
		case watches(parents[pid]):
			p.inits = append(p.inits, pid)
		case strings.Contains(command, s.h.cluster.Agents[0].Dir+"/"):
			p.agent, p.cluster = append(p.agent, pid), append(p.cluster, pid)
		case strings.Contains(command, dir+"/"):
			p.cluster = append(p.cluster, pid)
		}
	}
	return p
}

// statFields are those of /proc/PID/stat after the name, which may have spaces: the first is the state.
func statFields(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return nil, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	return fields, nil
}

// tick is what the kernel counts CPU time in.
const tick = 10 * time.Millisecond

// usageOf sums up. Processes that have ended count nothing.
func usageOf(pids []int) (u usage, err error) {
	for _, pid := range pids {
		fields, err := statFields(pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return u, err
		}
		user, _ := strconv.ParseInt(fields[11], 10, 64) // the kernel writes numbers
		system, _ := strconv.ParseInt(fields[12], 10, 64)
		u.cpu += time.Duration(user+system) * tick
		rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(rollup)) {
			if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
				kib, _ := strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
				u.pss += kib << 10
			}
		}
		u.processes++
	}
	return u, nil
}

// loadAverage is that of the last minute; 0 where it cannot be read.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	v, _ := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	return v
}
