package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"rota/internal/failpoint"
	"rota/jepsen/cluster"
	"rota/jepsen/history"
)

// Some windows are rare, and some members idle. crashMax is how long to wait for somebody to come by
// an armed window before more windows are armed, armedMore how many more these are, and
// crashTries how many members are tried.
const (
	crashMax   = 2 * time.Second
	armedMore  = 5
	crashTries = 6
)

// crashPoint kills a process inside a window that is narrower than an fsync.
// Which windows are come by depends on the load and on what else has just
// happened, so several are armed, and the first one that acts counts.
func crashPoint(ctx context.Context, w *World) (*Injection, error) {
	var hit string
	var at *cluster.Member
	for tries := 0; hit == "" && tries < crashTries && ctx.Err() == nil; tries++ {
		at = pick(w.Rand, w.Cluster.Members())
		var err error
		if hit, err = comeBy(ctx, at.FailpointDir(), w.windows(at)); err != nil {
			return nil, err
		}
	}
	if hit == "" {
		return nil, errors.New("nobody came by a failpoint: is the load on, and the binary built with -tags faults?")
	}
	inj := &Injection{Target: []string{at.Name}, Window: hit}
	inj.End = func(ctx context.Context) (string, error) {
		// It may have been the supervisor that died, which its agent starts again.
		until(ctx, time.Second, func() bool { return !at.Alive() })
		proof := fmt.Sprintf("killed at %s", hit)
		if at.Alive() {
			return proof, nil
		}
		how, err := exits(ctx, []*cluster.Member{at})
		return proof + ", " + how, errors.Join(err, at.Start())
	}
	return inj, nil
}

// windows are those of a member and of its supervisor, in random order, but those first at which
// fewest processes have died in this run.
func (w *World) windows(m *cluster.Member) []string {
	names := failpoint.AgentNames()
	if slices.Contains(w.Cluster.Servers, m) {
		names = failpoint.ServerNames()
	}
	hits := make(map[string]int)
	w.Record.Update(func(rec *history.Record) {
		for _, f := range rec.Faults {
			hits[f.Window]++
		}
	})
	names = shuffled(w.Rand, names)
	slices.SortStableFunc(names, func(a, b string) int { return hits[a] - hits[b] })
	return names
}

// comeBy arms the first windows, and then more and more, until a process dies at one. It returns
// that one; empty: none did.
func comeBy(ctx context.Context, dir string, names []string) (hit string, err error) {
	for from := 0; from < len(names) && hit == "" && ctx.Err() == nil; from += armedMore {
		armed := names[:min(from+armedMore, len(names))]
		for _, name := range armed[from:] {
			if err := failpoint.Arm(dir, name, "kill"); err != nil {
				return "", err
			}
		}
		until(ctx, crashMax, func() bool {
			for _, name := range armed {
				if failpoint.Acted(dir, name) {
					hit = name
				}
			}
			return hit != ""
		})
	}
	for _, name := range names {
		err = errors.Join(err, failpoint.Disarm(dir, name))
	}
	return hit, err
}
