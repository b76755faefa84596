package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// reserved runs actions without rota: a trajectory holds one core from its first
// moment to its last. One is the least it can hold, which is kind to this way:
// more cores each would leave fewer trajectories at a time.
type reserved struct {
	env []string
	dir string
	// cores holds the free ones. A channel serves who waits in order of arrival.
	cores chan int
}

func newReserved(cpus []int, env []string, dir string) *reserved {
	r := &reserved{env: env, dir: dir, cores: make(chan int, len(cpus))}
	for _, cpu := range cpus {
		r.cores <- cpu
	}
	return r
}

func (r *reserved) open(ctx context.Context, _ trajectory) (actFunc, func(), error) {
	began := time.Now()
	var core int
	select {
	case core = <-r.cores:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	// The wait for the core is what the first action queued for.
	queue := time.Since(began)
	act := func(ctx context.Context, t turn) (sample, error) {
		s, err := r.act(ctx, core, t)
		s.queue = queue
		s.act += queue
		queue = 0
		return s, err
	}
	return act, func() { r.cores <- core }, nil
}

func (r *reserved) act(ctx context.Context, core int, t turn) (sample, error) {
	began := time.Now()
	argv := make([]string, len(t.argv))
	for i, arg := range t.argv {
		argv[i] = strings.ReplaceAll(arg, "{{cores}}", "1")
	}
	dir, err := os.MkdirTemp(r.dir, "work-")
	if err != nil {
		return sample{}, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `exec "$@"`, "sh"}, argv...)...)
	cmd.Env, cmd.Dir = r.env, dir
	if err := startPinned(cmd, core); err != nil {
		return sample{}, fmt.Errorf("start %s: %w", argv[0], err)
	}
	started := time.Now()
	err = cmd.Wait()
	if ctx.Err() != nil {
		return sample{}, ctx.Err()
	}
	return sample{succeeded: err == nil, act: time.Since(began), exec: time.Since(started)}, nil
}

// startPinned starts a command that may run on one CPU only. A child inherits
// the affinity of the thread that forks it, and of that alone; the thread is
// thrown away afterwards, since its goroutine ends without unlocking it.
func startPinned(cmd *exec.Cmd, cpu int) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		var set unix.CPUSet
		set.Set(cpu)
		err := unix.SchedSetaffinity(0, &set)
		if err == nil {
			err = cmd.Start()
		}
		result <- err
	}()
	return <-result
}

// usableCPUs are the CPUs that this process may run on.
func usableCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read CPU affinity: %w", err)
	}
	var cpus []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}
