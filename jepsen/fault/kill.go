package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"rota/jepsen/cluster"
)

// killLeader kills the server that leads. It comes back when another one does.
func killLeader(ctx context.Context, w *World) (*Injection, error) {
	leader, err := w.Cluster.Leader(ctx)
	if err != nil {
		return nil, err
	}
	start := w.Record.Now()
	leader.Kill()
	return &Injection{
		Start: start, Target: []string{leader.Name}, LeaderKilled: true,
		End: func(ctx context.Context) (string, error) {
			how, err := leader.WaitExit(ctx)
			if err != nil {
				return "", err
			}
			next, err := w.Cluster.LeaderOtherThan(ctx, leader)
			if err != nil {
				return "", errors.Join(err, leader.Start())
			}
			return fmt.Sprintf("%s: %s, then %s led", leader.Name, how, next.Name), leader.Start()
		},
	}, nil
}

// killServer kills any server.
func killServer(_ context.Context, w *World) (*Injection, error) {
	return kill(w, pick(w.Rand, w.Cluster.Servers)), nil
}

// killAllServers kills all servers at the same moment.
func killAllServers(_ context.Context, w *World) (*Injection, error) {
	return kill(w, w.Cluster.Servers...), nil
}

// killAgent kills an agent. What it runs stays with its supervisor.
func killAgent(_ context.Context, w *World) (*Injection, error) {
	return kill(w, pick(w.Rand, w.Cluster.Agents)), nil
}

// killGateway kills a gateway. Clients go to another one.
func killGateway(_ context.Context, w *World) (*Injection, error) {
	if len(w.Cluster.Gateways) == 0 {
		return nil, errNoStudio
	}
	return kill(w, pick(w.Rand, w.Cluster.Gateways)), nil
}

// killWorker kills an engine in the middle of its answers. It comes back with the weights that it
// has had.
func killWorker(_ context.Context, w *World) (*Injection, error) {
	if len(w.Cluster.Generators) == 0 {
		return nil, errNoStudio
	}
	return kill(w, pick(w.Rand, w.Cluster.Generators)), nil
}

var errNoStudio = errors.New("the cluster has no gateways and no workers: set Scenario.Gateways")

// kill ends members with SIGKILL until the end of the fault.
func kill(w *World, members ...*cluster.Member) *Injection {
	start := w.Record.Now()
	together(members, func(m *cluster.Member) { m.Kill() })
	return &Injection{
		Start: start, Target: names(members),
		End: func(ctx context.Context) (string, error) {
			how, err := exits(ctx, members)
			return how, errors.Join(err, startAll(members))
		},
	}
}

// together does something with all members at the same time.
func together(members []*cluster.Member, do func(*cluster.Member)) {
	var wg sync.WaitGroup
	for _, m := range members {
		wg.Go(func() { do(m) })
	}
	wg.Wait()
}

// exits says how members ended.
func exits(ctx context.Context, members []*cluster.Member) (string, error) {
	var all []string
	for _, m := range members {
		how, err := m.WaitExit(ctx)
		if err != nil {
			return "", err
		}
		all = append(all, m.Name+": "+how)
	}
	return strings.Join(all, ", "), nil
}

// startAll starts those that do not run.
func startAll(members []*cluster.Member) error {
	var errs []error
	for _, m := range members {
		if !m.Alive() {
			errs = append(errs, m.Start())
		}
	}
	return errors.Join(errs...)
}

// killSupervisor kills what an agent's attempts are children of. The agent
// starts another one.
func killSupervisor(ctx context.Context, w *World) (*Injection, error) {
	agent := pick(w.Rand, w.Cluster.Agents)
	pid, err := supervisorOf(ctx, agent)
	if err != nil {
		return nil, err
	}
	start := w.Record.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("kill the supervisor of %s: %w", agent.Name, err)
	}
	return &Injection{Start: start, Target: []string{agent.Name}, End: func(ctx context.Context) (string, error) {
		return newSupervisor(ctx, agent, pid)
	}}, nil
}

// killNode kills an agent together with its supervisor, as when a machine runs
// out of memory. Only the supervisor's children are left.
func killNode(ctx context.Context, w *World) (*Injection, error) {
	agent := pick(w.Rand, w.Cluster.Agents)
	pid, err := supervisorOf(ctx, agent)
	if err != nil {
		return nil, err
	}
	start := w.Record.Now()
	agent.Signal(syscall.SIGKILL)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("kill the supervisor of %s: %w", agent.Name, err)
	}
	return &Injection{Start: start, Target: []string{agent.Name}, End: func(ctx context.Context) (string, error) {
		how, err := exits(ctx, []*cluster.Member{agent})
		if err := errors.Join(err, agent.Start()); err != nil {
			return "", err
		}
		proof, err := newSupervisor(ctx, agent, pid)
		return how + ", " + proof, err
	}}, nil
}

// killEngine kills an engine, on any node that has one.
func killEngine(ctx context.Context, w *World) (*Injection, error) {
	var agent *cluster.Member
	var engines []int
	until(ctx, comesBack, func() bool {
		agent = pick(w.Rand, w.Cluster.Agents)
		engines = agent.Waiting(engineVariable)
		return len(engines) > 0
	})
	if len(engines) == 0 {
		return nil, fmt.Errorf("no agent has an engine: is there the workload engines?")
	}
	pid, start := pick(w.Rand, engines), w.Record.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return nil, fmt.Errorf("kill an engine of %s: %w", agent.Name, err)
	} else if err != nil {
		return killEngine(ctx, w) // its agent was faster
	}
	return &Injection{Start: start, Target: []string{agent.Name}, End: func(ctx context.Context) (string, error) {
		if !until(ctx, comesBack, func() bool { return !slices.Contains(agent.Waiting(engineVariable), pid) }) {
			return "", fmt.Errorf("engine %d of %s is still there", pid, agent.Name)
		}
		return fmt.Sprintf("engine %d is gone, one of %d", pid, len(engines)), nil
	}}, nil
}

// engineVariable begins the environment variable that only engines have.
const engineVariable = "WITNESS_DECLARATION="

// comesBack is how long a process may take to be there again.
const comesBack = 15 * time.Second

// supervisorOf waits for the supervisor of an agent.
func supervisorOf(ctx context.Context, agent *cluster.Member) (pid int, err error) {
	if !until(ctx, comesBack, func() bool { pid = agent.Supervisor(); return pid != 0 }) {
		return 0, fmt.Errorf("%s has no supervisor", agent.Name)
	}
	return pid, nil
}

// newSupervisor waits for one that is not the old one.
func newSupervisor(ctx context.Context, agent *cluster.Member, old int) (string, error) {
	var pid int
	if !until(ctx, comesBack, func() bool { pid = agent.Supervisor(); return pid != 0 && pid != old }) {
		return "", fmt.Errorf("%s has not started another supervisor in %v", agent.Name, comesBack)
	}
	return fmt.Sprintf("supervisor %d is gone, and %d took its place", old, pid), nil
}
