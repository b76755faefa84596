package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"rota/jepsen/cluster"
	"rota/jepsen/disk"
)

// powerLoss cuts the power of all servers at once: what no fsync had made
// durable is gone.
func powerLoss(ctx context.Context, w *World) (*Injection, error) {
	return losePower(ctx, w, false, w.Rand.IntN(fsyncsPast), w.Cluster.Servers...)
}

// tornPowerLoss is a power loss that leaves any part of what was not durable.
func tornPowerLoss(ctx context.Context, w *World) (*Injection, error) {
	return losePower(ctx, w, true, w.Rand.IntN(fsyncsPast), w.Cluster.Servers...)
}

// lyingFsync has the disk of one server claim once that data is durable, and
// cuts its power before the next fsync makes up for it.
func lyingFsync(ctx context.Context, w *World) (*Injection, error) {
	m, d := anyDisk(w)
	if d == nil {
		return nil, errNoDisk(m)
	}
	before := d.Counters().LiedFsyncs
	d.Lie(1)
	inj, err := losePower(ctx, w, false, 1, m)
	if err == nil && d.Counters().LiedFsyncs == before {
		_, err = inj.End(ctx)
		return nil, errors.Join(fmt.Errorf("%s did not call fsync in %v", m.Name, unsyncedMax), err)
	}
	return inj, err
}

const (
	// unsyncedMax is how long a server may take to use its disk.
	unsyncedMax = 10 * time.Second
	// othersMax is how long the others may take once one server waits.
	othersMax = 200 * time.Millisecond
	// fsyncsPast is below how many fsyncs still pass before a power loss, so that
	// it comes between any two steps.
	fsyncsPast = 6
)

// losePower kills servers and cuts the power of their disks at a moment at which
// they are about to call fsync: then there is something to lose.
func losePower(ctx context.Context, w *World, tear bool, after int, servers ...*cluster.Member) (*Injection, error) {
	var release []func()
	for _, m := range servers {
		d := w.Disks[m.Name]
		if d == nil {
			return nil, errNoDisk(m)
		}
		release = append(release, d.HangAfter(after, disk.Fsync))
	}
	waits := func(m *cluster.Member) bool { return w.Disks[m.Name].Counters().Hanging > 0 }
	until(ctx, unsyncedMax, func() bool { return slices.ContainsFunc(servers, waits) })
	// Without a majority the others may have nothing more to write.
	until(ctx, othersMax, func() bool {
		return !slices.ContainsFunc(servers, func(m *cluster.Member) bool { return !waits(m) })
	})
	start := w.Record.Now()
	for _, m := range servers {
		m.Signal(syscall.SIGKILL)
	}
	lost, changes, err := loseAll(w, tear, servers)
	for _, r := range release {
		r()
	}
	together(servers, func(m *cluster.Member) { m.Kill() })
	if err != nil {
		return nil, errors.Join(err, startAll(servers))
	}
	return &Injection{Start: start, Target: names(servers), End: func(ctx context.Context) (string, error) {
		how, err := exits(ctx, servers)
		if err := errors.Join(err, startAll(servers)); err != nil || changes == 0 {
			return "", err
		}
		return how + "; " + lost, nil
	}}, nil
}

// loseAll takes from the disks what was not durable, and says what it was.
func loseAll(w *World, tear bool, servers []*cluster.Member) (lost string, changes int, err error) {
	var all []string
	for _, m := range servers {
		loss, err := w.Disks[m.Name].PowerLoss(w.Rand.Uint64(), tear)
		if err != nil {
			return "", 0, fmt.Errorf("power loss of %s: %w", m.Name, err)
		}
		changes += loss.Changes
		all = append(all, fmt.Sprintf("%s: %v", m.Name, loss))
	}
	return strings.Join(all, "; "), changes, nil
}

// failingWrite makes a write of one server fail.
func failingWrite(_ context.Context, w *World) (*Injection, error) {
	return failing(w, disk.Write, func(c disk.Counters) int { return c.FailedWrites })
}

// failingFsync makes an fsync of one server fail once; the next ones succeed,
// although what the first one was to write is not durable.
func failingFsync(_ context.Context, w *World) (*Injection, error) {
	return failing(w, disk.Fsync, func(c disk.Counters) int { return c.FailedFsyncs })
}

func failing(w *World, op disk.Op, count func(disk.Counters) int) (*Injection, error) {
	m, d := anyDisk(w)
	return breakDisk(w, m, d, func() { d.Fail(op, 1) }, func(before, after disk.Counters) string {
		return plural(count(after)-count(before), fmt.Sprintf("%s of %s failed", op, m.Name))
	})
}

// hangingDisk lets nothing of the leader reach its disk until the end of the
// fault.
func hangingDisk(ctx context.Context, w *World) (*Injection, error) {
	m, err := w.Cluster.Leader(ctx)
	if err != nil {
		return nil, err
	}
	d := w.Disks[m.Name]
	inj, err := breakDisk(w, m, d, func() { d.Hang(disk.Write, disk.Fsync) }, func(before, after disk.Counters) string {
		return plural(after.HungWrites+after.HungFsyncs-before.HungWrites-before.HungFsyncs, "operations of "+m.Name+" hung")
	})
	if err != nil {
		return nil, err
	}
	mend := inj.End
	inj.End = func(ctx context.Context) (string, error) {
		next, err := w.Cluster.LeaderOtherThan(ctx, m)
		proof, mended := mend(ctx)
		if err := errors.Join(err, mended); err != nil || proof == "" {
			return "", err
		}
		return proof + ", and " + next.Name + " led", nil
	}
	return inj, nil
}

// fullDisk leaves one server no space. Its log has room of its own for a while: if
// that lasts for as long as the fault, the server is asked for a snapshot.
func fullDisk(_ context.Context, w *World) (*Injection, error) {
	m, d := anyDisk(w)
	refused := func(before, after disk.Counters) string {
		return plural(after.RefusedWrites-before.RefusedWrites, "writes of "+m.Name+" were refused")
	}
	i, err := breakDisk(w, m, d, func() { d.Full(0) }, refused)
	if err != nil {
		return nil, err
	}
	before, end := d.Counters(), i.End
	i.End = func(ctx context.Context) (string, error) {
		if refused(before, d.Counters()) == "" {
			_ = w.Cluster.TakeSnapshot(ctx, m) // it is to fail
		}
		return end(ctx)
	}
	return i, nil
}

func anyDisk(w *World) (*cluster.Member, *disk.FS) {
	m := pick(w.Rand, w.Cluster.Servers)
	return m, w.Disks[m.Name]
}

// breakDisk breaks the disk of a server until the end of the fault. The server
// may stop by itself then, and is started again.
func breakDisk(w *World, m *cluster.Member, d *disk.FS, deed func(), proof func(before, after disk.Counters) string) (*Injection, error) {
	if d == nil {
		return nil, errNoDisk(m)
	}
	before := d.Counters()
	deed()
	return &Injection{Target: []string{m.Name}, End: func(ctx context.Context) (string, error) {
		until(ctx, unsyncedMax, func() bool { return proof(before, d.Counters()) != "" })
		how := proof(before, d.Counters())
		d.Heal()
		// A server that stops because of its disk does so at once.
		until(ctx, time.Second, func() bool { return !m.Alive() })
		if m.Alive() {
			return how, nil
		}
		exit, err := exits(ctx, []*cluster.Member{m})
		if how != "" {
			how += ", " + exit
		}
		return how, errors.Join(err, m.Start())
	}}, nil
}

func errNoDisk(m *cluster.Member) error {
	return fmt.Errorf("%s has no disk that could be broken: the scenario needs them", m.Name)
}

// plural is "3 things", empty for none.
func plural(n int, things string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s", n, things)
}
