package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"rota/api/backoff"
	"rota/jepsen/cluster"
	"rota/jepsen/disk"
	"rota/jepsen/history"
	"rota/jepsen/proxy"
)

// Fault is one way to break a cluster.
type Fault struct {
	Name  string
	About string // one line
	// Hold is how long it should last to matter. A scenario may stretch it.
	Hold Hold
	// Begin breaks the cluster.
	Begin func(context.Context, *World) (*Injection, error)
}

// Hold is how long a fault lasts.
type Hold int

// Holds.
const (
	Briefly      Hold = iota // a second: what matters is what happens at its edges
	PastLease                // until every lease that can have been lost is lost
	AtOnce                   // the fault is over when Begin returns
	ForMeasuring             // long enough for a percentile
)

// measured is how long a fault lasts under which something is measured.
const measured = 30 * time.Second

// For is the length of a hold in a cluster.
func (h Hold) For(c *cluster.Config) time.Duration {
	switch h {
	case PastLease:
		return c.Lease + c.Margin + time.Second
	case AtOnce:
		return 0
	case ForMeasuring:
		return measured
	}
	return time.Second
}

// Injection is a fault that has begun.
type Injection struct {
	// Start is the moment that counts, 0: when Begin was called.
	Start  int64
	Target []string
	Detail string
	// Window is the failpoint at which a process died.
	Window string
	// LeaderKilled: what follows is a failover.
	LeaderKilled bool
	// End undoes the fault and says how it is known that it happened. It must be
	// called even if the run is being broken off.
	End func(context.Context) (proof string, err error)
}

// World is what faults are done to.
type World struct {
	Cluster *cluster.Cluster
	Config  cluster.Config      // of Cluster
	Disks   map[string]*disk.FS // of members, by name, where the scenario has them
	Proxy   *proxy.Proxy        // nil where the scenario has none
	Record  *history.Recorder
	Rand    *rand.Rand
	// Pool is that of the agents.
	Pool string
	// Intruder is the program of those who mean harm; empty: there are none.
	Intruder string
	// OtherBinary is a build of rota that does not run, for rolling restarts;
	// empty: there is none.
	OtherBinary string
	// Rotten are servers whose files were damaged. What is left of their logs may be
	// unreadable.
	Rotten map[string]bool
	// Dir is for what faults need to keep.
	Dir string
}

// Inject begins a fault, holds it, ends it and records it. The error says why
// the cluster could not be broken or mended as planned; that the fault had no
// effect is no error but in the record.
func Inject(ctx context.Context, w *World, f Fault, hold time.Duration) error {
	began := w.Record.Now()
	inj, err := f.Begin(ctx, w)
	if err != nil {
		w.Record.AddFault(history.Fault{Name: f.Name, Start: began, End: w.Record.Now(), Detail: err.Error()})
		return fmt.Errorf("fault %s: %w", f.Name, err)
	}
	if inj.Start == 0 {
		inj.Start = began
	}
	_ = backoff.Sleep(ctx, hold)
	// What is broken is mended even if the run is being broken off.
	mend, cancel := context.WithTimeout(context.WithoutCancel(ctx), mendMax)
	defer cancel()
	proof, err := inj.End(mend)
	entry := history.Fault{
		Name: f.Name, Target: inj.Target, Start: inj.Start, End: w.Record.Now(),
		Happened: proof, Detail: inj.Detail, Window: inj.Window, LeaderKilled: inj.LeaderKilled,
	}
	if err != nil {
		entry.Detail = errors.Join(errors.New(entry.Detail), err).Error()
		err = fmt.Errorf("end of fault %s: %w", f.Name, err)
	}
	w.Record.AddFault(entry)
	return err
}

// mendMax is the longest that the end of a fault may take.
const mendMax = 60 * time.Second

// until repeats a check until it holds, for at most so long.
func until(ctx context.Context, most time.Duration, check func() bool) bool {
	for deadline := time.Now().Add(most); ; _ = backoff.Sleep(ctx, 20*time.Millisecond) {
		if check() {
			return true
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return false
		}
	}
}

// pick is a random one.
func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// names of members.
func names(members []*cluster.Member) (all []string) {
	for _, m := range members {
		all = append(all, m.Name)
	}
	return all
}

// others are all but one.
func others(members []*cluster.Member, but *cluster.Member) (rest []*cluster.Member) {
	for _, m := range members {
		if m != but {
			rest = append(rest, m)
		}
	}
	return rest
}

// shuffled is a copy in random order.
func shuffled[T any](r *rand.Rand, from []T) []T {
	all := append([]T(nil), from...)
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}
