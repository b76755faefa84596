package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/agent/runtime/container"
)

// wayNode is what an agent does on its node for an action: no cluster, no journal.
const wayNode = "node"

// nodeCgroup is where the cgroups of these sandboxes are.
const nodeCgroup = "rota-bench/sandboxes"

// nodeWay opens sandboxes with a manager and a supervisor of its own, as an agent does, and starts
// commands in them on other CPUs each time.
func (s *sandboxes) nodeWay(ctx context.Context, binary, program string) (*sandboxWay, error) {
	dir := filepath.Join(s.dir, "supervisor")
	p, err := startPods(ctx, binary, dir)
	if err != nil {
		return nil, err
	}
	s.cleanup = append(s.cleanup, p.stop)
	m, err := container.NewManager(container.Options{
		Containerd: s.containerd, Dir: filepath.Join(dir, runtime.SandboxesName), Init: program, Cgroup: nodeCgroup, Logger: hclog.NewNullLogger(),
	})
	if err != nil {
		return nil, err
	}
	var last atomic.Uint64
	return &sandboxWay{
		name:   wayNode,
		closed: func(ctx context.Context) error { return m.Keep(ctx, func() []uint64 { return nil }) },
		open: func(ctx context.Context, _ string) (*sandbox, error) {
			trajectory := last.Add(1)
			if _, err := p.client.MakeTrajectory(ctx, trajectory); err != nil {
				return nil, err
			}
			sb, err := m.Open(ctx, container.Spec{Trajectory: trajectory, Image: sandboxImage, Home: runtime.TrajectoryDir(dir, trajectory)})
			if err != nil {
				return nil, err
			}
			spec := runtime.Spec{Trajectory: trajectory, Argv: []string{noop}, Env: sb.Env,
				Sandbox: &runtime.Sandbox{SocketDir: sb.SocketDir, Cgroup: sb.Cgroup, User: sb.User, Dir: sb.Dir}}
			cpu := 0
			return &sandbox{
				run: func(ctx context.Context) error {
					cpu = 1 - cpu
					spec.CPUs = []int{cpu % max(1, s.cpus)}
					return p.runSpec(ctx, spec)
				},
				close: func(context.Context) error { return nil }, // with all others
			}, nil
		},
	}, nil
}

// runSpec runs a command to its end, which is to be success.
func (p *pods) runSpec(ctx context.Context, spec runtime.Spec) error {
	key, ended := p.next()
	spec.Key = key
	if err := p.client.Start(ctx, spec); err != nil {
		return err
	}
	select {
	case e := <-ended:
		p.mu.Lock()
		delete(p.ending, key)
		p.mu.Unlock()
		if e.Reason != plan.ReasonExited || e.ExitCode != 0 {
			return fmt.Errorf("%s ended with reason %d and exit code %d: %s%s", spec.Argv[0], e.Reason, e.ExitCode, e.Message, e.Stderr)
		}
		return p.client.Forget(ctx, []plan.Key{key})
	case <-ctx.Done():
		return ctx.Err()
	}
}

// removeNodeCgroups removes the parents of the cgroups of closed sandboxes.
func removeNodeCgroups() {
	for _, path := range []string{nodeCgroup, filepath.Dir(nodeCgroup)} {
		dirs, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", "*", path)) // the pattern is right
		for _, dir := range append(dirs, filepath.Join("/sys/fs/cgroup", path)) {
			_ = os.Remove(dir) // most are not there
		}
	}
}
