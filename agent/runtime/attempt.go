package runtime

import (
	"fmt"
	"syscall"
	"time"

	"rota/internal/failpoint"
)

// attempt is one execution, from Start until it is forgotten.
type attempt struct {
	spec Spec
	kill chan killOrder // one; later orders change nothing
	// ended is nil while it runs. Guarded by the supervisor's mutex.
	ended *Exit
	// child is recorded where no cgroup holds the attempt. Guarded likewise.
	child *childRecord
}

// killOrder says why an attempt is ended from outside.
type killOrder struct {
	reason  Reason
	message string
}

func newAttempt(spec *Spec) *attempt {
	return &attempt{spec: *spec, kill: make(chan killOrder, 1)}
}

// order asks for the attempt's end. The first one counts.
func (a *attempt) order(o killOrder) {
	select {
	case a.kill <- o:
	default:
	}
}

// runner carries one attempt through its life, on a goroutine of its own.
type runner struct {
	sup    *supervisor
	a      *attempt
	box    box
	dir    string
	ownDir bool
	exit   Exit
}

// run returns the end of the attempt, once nothing of it is alive.
func (s *supervisor) run(a *attempt) Exit {
	r := &runner{sup: s, a: a, exit: Exit{Key: a.spec.Key}}
	defer r.cleanUp()
	failpoint.Hit(failpoint.StartJournaled)
	select {
	case o := <-a.kill: // before it began
		r.exit.Reason, r.exit.Message = o.reason, o.message
		return r.exit
	default:
	}
	c, err := r.start()
	if err != nil {
		r.exit.Reason, r.exit.Message = ReasonStartFailed, err.Error()
		s.output.end(a.spec.Key)
		return r.exit
	}
	order, e := r.wait(c)
	r.conclude(c, order, e)
	return r.exit
}

// start prepares everything and forks. Its error is a sentence for the user.
func (r *runner) start() (child, error) {
	spec, s := &r.a.spec, r.sup
	path, err := lookPath(spec.Argv[0], spec.Env)
	if err != nil {
		return child{}, err
	}
	if r.dir, r.ownDir, err = s.work.get(spec); err != nil {
		return child{}, err
	}
	out, err := s.output.open(spec.Key)
	if err != nil {
		return child{}, err
	}
	if r.box, err = s.confine.newBox(spec); err != nil {
		return child{}, err
	}
	c, err := s.spawner.start(r.command(path, out), r.box)
	if err != nil {
		return child{}, fmt.Errorf("start %s in %s%s: %w", path, r.dir, s.asUser(), err)
	}
	failpoint.Hit(failpoint.AttemptForked)
	s.started(spec.Key, c.pid)
	return c, nil
}

func (r *runner) command(path string, out *outputFiles) *command {
	spec, s := &r.a.spec, r.sup
	env := spec.Env
	if a, ok := s.confine.(*affinity); ok {
		env = append(env[:len(env):len(env)], a.mark(spec.Key))
	}
	sys := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if s.user != nil {
		sys.Credential = &syscall.Credential{Uid: s.user.uid, Gid: s.user.gid}
	}
	r.box.attr(sys)
	return &command{path: path, argv: spec.Argv, attr: &syscall.ProcAttr{
		Dir: r.dir, Env: env, Sys: sys,
		Files: []uintptr{s.devNull.Fd(), out.file[0].Fd(), out.file[1].Fd()},
	}}
}

// wait returns when the main process has ended and nothing is left of the
// attempt. order is nil if the main process ended by itself. Then what it left
// behind is killed: its CPUs go to somebody else.
func (r *runner) wait(c child) (order *killOrder, e childExit) {
	var timeout <-chan time.Time
	if d := r.a.spec.Timeout; d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		timeout = t.C
	}
	exited := false
	select {
	case e = <-c.exited:
		exited = true
	case o := <-r.a.kill:
		order = &o
	case <-timeout:
		order = &killOrder{ReasonTimeout, fmt.Sprintf("killed after its run timeout of %s", r.a.spec.Timeout)}
	}
	if !exited {
		r.box.kill()
	}
	warned := time.Now()
	for pause := 500 * time.Microsecond; !exited || !r.box.empty(); pause = backoff(pause) {
		r.box.kill()
		select {
		case e = <-c.exited:
			exited = true
		case <-time.After(pause):
		}
		if time.Since(warned) > 10*time.Second {
			warned = time.Now()
			r.sup.log.Warn("killed attempt does not end; a process may hang in the kernel", "attempt", r.a.spec.Key)
		}
	}
	return order, e
}

func (r *runner) conclude(c child, order *killOrder, e childExit) {
	x := &r.exit
	u := r.box.usage()
	x.CPU = max(u.cpu, time.Duration(e.rusage.Utime.Nano()+e.rusage.Stime.Nano()))
	x.MemoryPeak = u.memoryPeak
	if x.MemoryPeak == 0 {
		x.MemoryPeak = uint64(e.rusage.Maxrss) << 10 // of its largest process
	}
	x.Exec = e.at.Sub(c.at)
	x.Stdout, x.Stderr = r.sup.output.end(r.a.spec.Key)
	if e.status.Signaled() {
		x.Signal = int(e.status.Signal())
	} else {
		x.ExitCode = e.status.ExitStatus()
	}
	failed := x.Signal != 0 || x.ExitCode != 0
	switch {
	case order != nil:
		x.Reason, x.Message = order.reason, order.message
	case failed && u.oomKills > 0:
		x.Reason = ReasonOutOfMemory
		x.Message = fmt.Sprintf("exceeded its memory limit of %d bytes", r.a.spec.MemoryBytes)
	case x.Signal != 0:
		x.Reason = ReasonSignaled
		x.Message = fmt.Sprintf("ended by signal %d (%s)", x.Signal, e.status.Signal())
	default:
		x.Reason = ReasonExited
	}
}

// cleanUp gives back what the attempt held.
func (r *runner) cleanUp() {
	if r.box != nil {
		r.box.release()
	}
	if r.ownDir {
		r.sup.work.put(r.dir)
	}
}
