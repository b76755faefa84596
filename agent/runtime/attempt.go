package runtime

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"rota/agent/plan"
	"rota/agent/runtime/container/initcall"
	"rota/internal/failpoint"
)

// attempt is one execution, from Start until it is forgotten.
type attempt struct {
	spec   Spec
	ending *ending
	// ended is nil while it runs. Guarded by the supervisor's mutex.
	ended *plan.Exit
	// child is recorded where no cgroup holds the attempt. Guarded likewise.
	child *childRecord
	// cpus are those that it has, box is where it is; nil before and after. Guarded
	// likewise.
	cpus []int
	box  box
	// reach is how clients reach it while it runs; nil before and after. Guarded likewise.
	reach *reach
	// coresDir has the file that says which CPUs it has, in the data directory; empty: none.
	// Guarded likewise.
	coresDir string
	// frozen: its processes are stopped. freezing: they are about to be. Guarded likewise.
	frozen, freezing bool
	clock            runClock
}

func newAttempt(spec *Spec) *attempt {
	return &attempt{spec: *spec, cpus: spec.CPUs, ending: newEnding()}
}

// runner carries one attempt through its life, on a goroutine of its own.
type runner struct {
	sup    *supervisor
	a      *attempt
	box    box
	cell   *cell // nil: none
	owner  owner
	owned  bool // owner is to be given back
	dir    string
	ownDir string // to be given back; empty: none
	// coresDir is the path of attempt.coresDir; empty: its cores do not change.
	coresDir string
	// inSandbox is the process that a sandbox has started; nil: none.
	inSandbox *initcall.Process
	// throttleDir has the files in which it may say what became of its quotas; empty: it uses no
	// quotas.
	throttleDir string
	stdio       *stdio // nil: not made
	// forking is closed when its turn to be forked has come.
	forking chan struct{}
	exit    plan.Exit
}

// run returns the end of the attempt, once nothing of it is alive.
func (s *supervisor) run(a *attempt) plan.Exit {
	r := &runner{sup: s, a: a, forking: make(chan struct{}), exit: plan.Exit{Key: a.spec.Key}}
	defer r.cleanUp()
	failpoint.Hit(failpoint.StartJournaled)
	if o := a.ending.ordered(); o != nil { // before it began
		r.exit.Reason, r.exit.Message = o.reason, o.message
		return r.exit
	}
	c, err := r.start()
	if err != nil {
		o := a.ending.ordered()
		if o == nil {
			o = &killOrder{plan.ReasonStartFailed, err.Error()}
		}
		r.exit.Reason, r.exit.Message = o.reason, o.message
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
	if spec.Sandbox != nil {
		return r.startInSandbox(spec.Sandbox)
	}
	var err error
	if r.owner, err = s.isolation.owners.take(spec); err != nil {
		return child{}, err
	}
	r.owned = true
	var path string
	if err = r.owner.as(func() (err error) { path, err = lookPath(spec.Argv[0], spec.Env); return err }); err != nil {
		return child{}, err
	}
	if r.dir, r.ownDir, err = s.work.get(spec, r.owner); err != nil {
		return child{}, err
	}
	out, err := s.output.open(spec.Key, r.owner.user)
	if err != nil {
		return child{}, err
	}
	if r.stdio, err = newStdio(spec, s.devNull, out, r.owner.user); err != nil {
		return child{}, err
	}
	if s.isolation.cells != nil {
		if r.cell, err = s.isolation.cells.take(r.a.ending.killed); err != nil {
			return child{}, err
		}
	}
	if r.box, err = s.confine.newBox(spec); err != nil {
		return child{}, err
	}
	if r.coresDir, err = s.boxed(r.a, r.box); err != nil {
		return child{}, err
	}
	if spec.Throttles {
		if r.throttleDir, err = s.throttles.make(spec.Key, r.owner.user); err != nil {
			return child{}, err
		}
	}
	c, err := r.fork(r.command(path))
	if err != nil {
		return child{}, fmt.Errorf("start %s in %s%s: %w", path, r.dir, asUser(r.owner.user), err)
	}
	failpoint.Hit(failpoint.AttemptForked)
	r.stdio.forked()
	s.started(spec.Key, c.pid)
	s.reachable(r.a, &reach{group: func(sig syscall.Signal) error { return s.spawner.signalGroup(c.pid, sig) }, box: r.box, stdio: r.stdio})
	if err := r.box.arm(); err != nil {
		r.a.ending.order(killOrder{plan.ReasonStartFailed, err.Error()})
	}
	return c, nil
}

func (r *runner) command(path string) *command {
	spec, s := &r.a.spec, r.sup
	env := slices.Concat(spec.Env, s.confine.environ(spec.Key))
	if r.owner.home != "" {
		env = homeEnv(env, r.owner.home)
	}
	if r.coresDir != "" {
		env = append(env, coresVariable+"="+filepath.Join(r.coresDir, coresFile))
	}
	if r.throttleDir != "" {
		env = append(env, throttleVariable+"="+filepath.Join(r.throttleDir, throttleFile), usageVariable+"="+filepath.Join(r.throttleDir, usageFile))
	}
	if r.owner.user != nil {
		env = nameUser(env)
	}
	sys := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if r.cell != nil {
		// The first process of the cell asks for it. The parent of this one is not in
		// the cell, which Go would take for its death.
		sys.Pdeathsig = 0
	}
	if u := r.owner.user; u != nil {
		sys.Credential = &syscall.Credential{Uid: u.uid, Gid: u.gid, Groups: r.owner.groups}
	}
	r.stdio.attr(sys)
	r.box.attr(sys)
	return &command{path: path, argv: spec.Argv, enter: r.enterCell, leave: r.leaveCell, attr: &syscall.ProcAttr{
		Dir: r.dir, Env: env, Sys: sys,
		Files: r.stdio.files(),
	}}
}

// homeEnv names the directory of a trajectory. It is the home of the attempt, too, unless the
// attempt says another.
func homeEnv(env []string, home string) []string {
	if !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") }) {
		env = append(env, "HOME="+home)
	}
	return append(env, trajectoryVariable+"="+home)
}

// nameUser names a user that no file of the machine may name: programs ask the
// environment first.
func nameUser(env []string) []string {
	for _, name := range []string{"USER=", "LOGNAME="} {
		if !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name) }) {
			env = append(env[:len(env):len(env)], name+"rota")
		}
	}
	return env
}

// enterCell moves the calling thread into the attempt's namespaces, unless the attempt was killed
// meanwhile: the way to the fork may take long, on a disk that hangs, and a lease may end by then.
func (r *runner) enterCell(path string) error {
	if r.a.ending.ordered() != nil {
		return errKilled
	}
	close(r.forking)
	if r.cell == nil {
		return nil
	}
	if err := r.cell.enter(); err != nil {
		return err
	}
	if r.owner.tmp == "" {
		return nil
	}
	return hideTmp(r.owner, []string{path, r.dir}, []string{r.ownDir, r.owner.home, r.coresDir, r.throttleDir})
}

func (r *runner) leaveCell() error {
	if r.cell == nil {
		return nil
	}
	return r.sup.isolation.cells.leave()
}

// empty reports whether nothing of the attempt is alive. Where no cgroup says it for
// sure, its namespaces do: they end with all that is inside. Of a process that was lost, the
// first one of its sandbox may still be about to fork it.
func (r *runner) empty(lost bool) bool {
	b, sure := r.box.(*cgroupBox)
	switch {
	case sure && lost:
		return b.empty() && b.seal()
	case sure || r.cell == nil:
		return r.box.empty()
	}
	r.cell.kill()
	return r.cell.dead(0)
}

// kill sends SIGKILL to everything inside once.
func (r *runner) kill() {
	if r.cell != nil {
		r.cell.kill()
	}
	r.box.kill()
}

// wait returns when the main process has ended and nothing is left of the
// attempt. order is nil if the main process ended by itself. Then what it left
// behind is killed: its CPUs go to somebody else.
func (r *runner) wait(c child) (order *killOrder, e childExit) {
	timeout := r.a.clock.begin(r.a.spec.Timeout)
	exited := false
	// What was ordered during the fork may have ended it already.
	if order = r.a.ending.ordered(); order == nil {
		select {
		case e = <-c.exited:
			exited = true
		case <-r.a.ending.killed:
			order = r.a.ending.ordered()
		case <-timeout:
			order = &killOrder{plan.ReasonTimeout, fmt.Sprintf("killed after its run timeout of %s", r.a.spec.Timeout)}
		}
	}
	if !exited {
		r.kill()
	}
	killed, warned := time.Now(), time.Now()
	for pause := 500 * time.Microsecond; !exited || !r.empty(e.lost); pause = backoff(pause) {
		r.kill()
		select {
		case e = <-c.exited:
			exited = true
		case <-time.After(pause):
		}
		if !exited && r.inSandbox != nil && time.Since(killed) > sandboxGrace && r.box.empty() {
			exited, e = true, childExit{at: time.Now(), lost: true} // its sandbox does not say it
		}
		if time.Since(warned) > 10*time.Second {
			warned = time.Now()
			r.sup.log.Warn("killed attempt does not end; a process may hang in the kernel", "action", r.a.spec.Key.Action, "attempt", r.a.spec.Key.Attempt)
		}
	}
	if e.lost && order == nil {
		order = r.a.ending.ordered()
	}
	return order, e
}

func (r *runner) conclude(c child, order *killOrder, e childExit) {
	r.sup.unreachable(r.a)
	r.stdio.drain()
	x := &r.exit
	u := r.box.usage()
	x.CPU = max(u.cpu, time.Duration(e.rusage.Utime.Nano()+e.rusage.Stime.Nano()))
	x.MemoryPeak = u.memoryPeak
	if x.MemoryPeak == 0 {
		x.MemoryPeak = uint64(e.rusage.Maxrss) << 10 // of its largest process
	}
	x.Exec = max(0, e.at.Sub(c.at)-r.a.clock.frozenFor(e.at))
	x.Stdout, x.Stderr = r.sup.output.end(r.a.spec.Key)
	if r.throttleDir != "" {
		x.Throttled, x.RetryAfter = r.sup.throttles.read(r.a.spec.Key)
		x.Usage = r.sup.throttles.usage(r.a.spec.Key)
	}
	if e.status.Signaled() {
		x.Signal = int(e.status.Signal())
	} else {
		x.ExitCode = e.status.ExitStatus()
	}
	failed := x.Signal != 0 || x.ExitCode != 0
	switch {
	case order != nil:
		x.Reason, x.Message = order.reason, order.message
	case e.lost:
		x.Reason, x.Message = plan.ReasonSupervisorLost, "its sandbox ended while it ran; the next action starts the sandbox again, with its files"
	case failed && u.oomKills > 0:
		x.Reason = plan.ReasonOutOfMemory
		x.Message = "exceeded its memory limit of " + sizeText(r.a.spec.MemoryBytes)
	case x.Signal != 0:
		x.Reason = plan.ReasonSignaled
		x.Message = fmt.Sprintf("ended by signal %d (%s)", x.Signal, e.status.Signal())
	default:
		x.Reason = plan.ReasonExited
	}
}

// cleanUp gives back what the attempt held.
func (r *runner) cleanUp() {
	if r.inSandbox != nil {
		r.inSandbox.Close()
	}
	if r.stdio != nil {
		r.stdio.close()
	}
	if r.box != nil {
		r.sup.unboxed(r.a)
		r.box.release()
	}
	if r.cell != nil {
		r.sup.isolation.cells.give(r.cell)
	}
	if r.ownDir != "" {
		r.sup.work.remove(r.ownDir)
	}
	if r.coresDir != "" {
		r.sup.cores.removeDir(r.a.coresDir)
	}
	if r.throttleDir != "" {
		r.sup.throttles.remove(r.exit.Key)
	}
	if r.owned {
		r.sup.isolation.owners.give(r.owner)
	}
}

// sizeText writes bytes with the largest unit in which they are a whole number.
func sizeText(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; i < len(units)-1 && n >= 1<<10 && n%(1<<10) == 0; i++ {
		n >>= 10
	}
	return fmt.Sprintf("%d %s", n, units[i])
}
