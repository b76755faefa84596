package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"rota/jepsen/cluster"
	"rota/jepsen/disk"
)

// powerLoss cuts the power of all servers at once: what no fsync had made
// durable is gone.
func powerLoss(ctx context.Context, w *World) (*Injection, error) {
	return losePower(ctx, w, false, w.Cluster.Servers...)
}

// tornPowerLoss is a power loss that leaves any part of what was not durable.
func tornPowerLoss(ctx context.Context, w *World) (*Injection, error) {
	return losePower(ctx, w, true, w.Cluster.Servers...)
}

// unsyncedMax is how long it may take until the power fails at a moment at which
// there is something to lose.
const unsyncedMax = 10 * time.Second

func losePower(ctx context.Context, w *World, tear bool, servers ...*cluster.Member) (*Injection, error) {
	inj := kill(w, servers...)
	var proof []string
	changes := 0
	for _, m := range servers {
		loss, err := w.Disks[m.Name].PowerLoss(w.Rand.Uint64(), tear)
		if err != nil {
			_, mend := inj.End(ctx)
			return nil, errors.Join(fmt.Errorf("power loss of %s: %w", m.Name, err), mend)
		}
		changes += loss.Changes + loss.Names
		proof = append(proof, fmt.Sprintf("%s: %v", m.Name, loss))
	}
	restart := inj.End
	inj.End = func(ctx context.Context) (string, error) {
		how, err := restart(ctx)
		if err != nil {
			return "", err
		}
		return how + "; " + strings.Join(proof, "; "), nil
	}
	inj.Detail = fmt.Sprintf("%d un-synced changes met it", changes)
	return inj, nil
}

// lyingFsync has the disk of one server claim that data is durable, and then
// cuts its power.
func lyingFsync(ctx context.Context, w *World) (*Injection, error) {
	m, d := anyDisk(w)
	before := d.Counters().LiedFsyncs
	d.Lie(1)
	// The next fsync of the same file would make up for the lie.
	for deadline := time.Now().Add(unsyncedMax); d.Counters().LiedFsyncs == before; time.Sleep(50 * time.Microsecond) {
		if time.Now().After(deadline) || ctx.Err() != nil {
			d.Heal()
			return nil, fmt.Errorf("%s did not call fsync in %v", m.Name, unsyncedMax)
		}
	}
	inj, err := losePower(ctx, w, false, m)
	if err != nil {
		return nil, err
	}
	inj.Detail = "an fsync had lied; " + inj.Detail
	return inj, nil
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

// fullDisk leaves one server no space.
func fullDisk(_ context.Context, w *World) (*Injection, error) {
	m, d := anyDisk(w)
	return breakDisk(w, m, d, func() { d.Full(0) }, func(before, after disk.Counters) string {
		return plural(after.RefusedWrites-before.RefusedWrites, "writes of "+m.Name+" were refused")
	})
}

func anyDisk(w *World) (*cluster.Member, *disk.FS) {
	m := pick(w.Rand, w.Cluster.Servers)
	return m, w.Disks[m.Name]
}

// breakDisk breaks the disk of a server until the end of the fault. The server
// may stop by itself then, and is started again.
func breakDisk(w *World, m *cluster.Member, d *disk.FS, deed func(), proof func(before, after disk.Counters) string) (*Injection, error) {
	if d == nil {
		return nil, fmt.Errorf("%s has no disk that could be broken", m.Name)
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

// plural is "3 things", empty for none.
func plural(n int, things string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s", n, things)
}
