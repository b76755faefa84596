package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"rota/agent/plan"
	"rota/agent/runtime/container/initcall"
)

// SandboxesName is the folder of open sandboxes in that of a supervisor.
const SandboxesName = "sandboxes"

var errNoCgroups = errors.New("commands in containers need cgroups, and this node has none")

// startInSandbox has rota-init fork the attempt into its cgroups. Its error is a sentence for the
// user.
func (r *runner) startInSandbox(sb *Sandbox) (child, error) {
	spec, s := &r.a.spec, r.sup
	var err error
	if r.owner, err = s.isolation.owners.take(spec); err != nil {
		return child{}, err
	}
	r.owned = true
	out, err := s.output.open(spec.Key, nil)
	if err != nil {
		return child{}, err
	}
	if r.stdio, err = newStdio(spec, s.devNull, out, nil); err != nil {
		return child{}, err
	}
	if r.box, err = s.confine.newBox(spec); err != nil {
		return child{}, err
	}
	b, ok := r.box.(*cgroupBox)
	if !ok {
		return child{}, errNoCgroups
	}
	if r.coresDir, err = s.boxed(r.a, b); err != nil {
		return child{}, err
	}
	files, closeFiles, err := b.files(sb.Cgroup)
	defer closeFiles()
	if err != nil {
		return child{}, err
	}
	for i, fd := range r.stdio.files() {
		files.Std[i] = int(fd)
	}
	dir := spec.Dir
	if dir == "" {
		dir = sb.Dir
	}
	ctx, cancel := r.a.ending.within(sandboxGrace)
	defer cancel()
	if r.a.ending.ordered() != nil {
		return child{}, errKilled
	}
	at := time.Now()
	p, err := initcall.Start(ctx, sb.SocketDir, initcall.Command{
		Argv: spec.Argv, Env: r.sandboxEnv(),
		Dir: dir, User: sb.User, CPUs: b.pinned,
		Terminal: r.stdio.terminal,
	}, files)
	exited := make(chan childExit, 1)
	if errors.Is(err, initcall.ErrGone) {
		// It may have started before the sandbox ended, or start yet, and what it started may run on
		// in the box.
		r.stdio.forked()
		exited <- childExit{at: time.Now(), lost: true}
		return child{at: at, exited: exited}, nil
	}
	if err != nil {
		return child{}, err
	}
	r.inSandbox = p
	r.stdio.forked()
	s.reachable(r.a, &reach{group: p.Signal, box: r.box, stdio: r.stdio})
	if err := b.arm(); err != nil {
		r.a.ending.order(killOrder{plan.ReasonStartFailed, err.Error()})
	}
	go func() { exited <- exitOfProcess(p) }()
	return child{at: at, exited: exited}, nil
}

// sandboxEnv is the environment of the attempt in its sandbox.
func (r *runner) sandboxEnv() []string {
	env := append(slices.Clone(r.a.spec.Env), trajectoryVariable+"="+initcall.Workspace)
	if r.coresDir != "" {
		env = append(env, coresVariable+"="+filepath.Join(initcall.Cores, filepath.Base(r.coresDir), coresFile))
	}
	return env
}

func exitOfProcess(p *initcall.Process) childExit {
	e, err := p.Wait()
	return childExit{
		status: e.Status, at: time.Now(), lost: err != nil,
		rusage: syscall.Rusage{Utime: syscall.NsecToTimeval(int64(e.User)), Stime: syscall.NsecToTimeval(int64(e.System)), Maxrss: e.MaxRSSKiB},
	}
}

// files opens that through which a sandbox, which is in a cgroup of its own, starts a process in
// the box.
func (b *cgroupBox) files(sandbox string) (f initcall.Files, done func(), err error) {
	var opened []*os.File
	done = func() {
		for _, file := range opened {
			_ = file.Close()
		}
	}
	open := func(dir string) int {
		file, openErr := os.OpenFile(filepath.Join(dir, "tasks"), os.O_WRONLY, 0)
		if openErr != nil {
			err = fmt.Errorf("open a cgroup for the sandbox: %w", openErr)
			return -1
		}
		opened = append(opened, file)
		return int(file.Fd())
	}
	f.V2 = b.cgroupFD
	for _, h := range b.all.v1 {
		f.Enter = append(f.Enter, open(b.dir(h)))
		f.Leave = append(f.Leave, open(filepath.Join(h.mount, sandbox)))
	}
	return f, done, err
}
