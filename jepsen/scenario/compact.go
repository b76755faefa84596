package scenario

import (
	"context"
	"errors"
	"strings"
	"time"

	"rota/api/backoff"
)

// compactEvery is how often every server is asked for a snapshot: by itself it
// looks less often than a run lasts.
const compactEvery = 2 * time.Second

// compact has all servers write snapshots and drop what they hold, until ctx is
// done. One that is away or has nothing new answers with an error, which is well.
func (r *run) compact(ctx context.Context) {
	for backoff.Sleep(ctx, compactEvery) == nil {
		for _, m := range r.world.Cluster.Servers {
			_ = r.world.Cluster.TakeSnapshot(ctx, m)
		}
	}
}

// installed is what a server logs when it has taken over a leader's snapshot.
const installed = "Installed remote snapshot"

// provesCompaction says whether a server was really sent a snapshot.
func (r *run) provesCompaction() error {
	for _, m := range r.world.Cluster.Servers {
		if text, err := m.Log(); err == nil && strings.Contains(text, installed) {
			return nil
		}
	}
	return errors.New("no server was sent a snapshot, which is what this scenario is for")
}
