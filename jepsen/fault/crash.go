package fault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rota/internal/failpoint"
	"rota/jepsen/cluster"
)

// crashMax is how long to wait for somebody to come by a failpoint. Half of the windows are of the
// other kind of member, and some of the others are rare, so there are many tries: with five, two of
// three runs of crash-points were void.
const (
	crashMax   = 3 * time.Second
	crashTries = 15
)

// crashPoint kills a process inside a window that is narrower than an fsync.
// Which windows are come by depends on the load and on what else has just
// happened, so several are armed, and the first one that acts counts.
func crashPoint(ctx context.Context, w *World) (*Injection, error) {
	inj := &Injection{}
	var hit string
	var at *cluster.Member
	for tries := 0; hit == "" && tries < crashTries && ctx.Err() == nil; tries++ {
		at = pick(w.Rand, w.Cluster.Members())
		dir, armed := at.FailpointDir(), shuffled(w.Rand, failpoint.Names())[:5]
		for _, name := range armed {
			if err := failpoint.Arm(dir, name, "kill"); err != nil {
				return nil, err
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
		for _, name := range armed {
			if err := failpoint.Disarm(dir, name); err != nil {
				return nil, err
			}
		}
	}
	if hit == "" {
		return nil, errors.New("nobody came by a failpoint: is the load on, and the binary built with -tags faults?")
	}
	inj.Target = []string{at.Name}
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
