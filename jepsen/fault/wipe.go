package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"rota/api/backoff"
	"rota/jepsen/cluster"
)

// aloneFor is how long a server that is behind and one with an empty disk have to
// elect a leader that they must not elect: several election time-outs.
const aloneFor = 3 * time.Second

// wipeWhileCut empties the disk of a server that had acknowledged what a third one,
// cut off, never received. Then the two of them are the majority that is there. Only
// the killed leader still has the entries between, so no leader may come before it
// is back.
func wipeWhileCut(ctx context.Context, w *World) (*Injection, error) {
	leader, err := w.Cluster.Leader(ctx)
	if err != nil {
		return nil, err
	}
	voters, err := w.Cluster.Voters(ctx, leader)
	if err != nil {
		return nil, err
	}
	rest := shuffled(w.Rand, others(voters, leader))
	if len(rest) != 2 {
		return nil, fmt.Errorf("there are %d voters: this fault is one of three", len(voters))
	}
	behind, wiped := rest[0], rest[1]
	behindAlone := []*cluster.Member{behind}
	inj, err := partition(w, []string{leader.Name, wiped.Name, behind.Name}, apart(behindAlone, others(w.Cluster.Servers, behind))...)
	if err != nil {
		return nil, err
	}
	mend := inj.End
	inj.End = func(ctx context.Context) (string, error) {
		lacks, err := lag(ctx, w, leader, behind)
		if err == nil {
			err = w.loseDisk(wiped, leader)
		}
		packets, errMend := mend(ctx)
		if err = errors.Join(err, errMend); err != nil {
			return "", errors.Join(err, startAll(w.Cluster.Servers))
		}
		quarantined := w.alone(ctx, wiped)
		if err := leader.Start(); err != nil || packets == "" || lacks == 0 || !quarantined {
			return "", err
		}
		return fmt.Sprintf("%s; %s lacked %d entries when %s lost its disk and %s was killed", packets, behind.Name, lacks, wiped.Name, leader.Name), nil
	}
	return inj, nil
}

// lag is how many entries the leader has committed that another server lacks.
func lag(ctx context.Context, w *World, leader, behind *cluster.Member) (entries uint64, err error) {
	has, err := w.Cluster.Status(ctx, behind)
	if err != nil {
		return 0, err
	}
	of, err := w.Cluster.Status(ctx, leader)
	if err != nil {
		return 0, err
	}
	return of.CommitIndex - min(of.CommitIndex, has.CommitIndex), nil
}

// loseDisk kills a server and the leader at the same time, and starts the server again
// with an empty disk: as half of all operators do, with the list of the first voters
// that it was given long ago.
func (w *World) loseDisk(m, leader *cluster.Member) error {
	together([]*cluster.Member{m, leader}, func(m *cluster.Member) { m.Kill() })
	told := slices.Clone(m.Args)
	if err := m.Wipe(); err != nil {
		return err
	}
	if w.Rand.IntN(2) == 0 {
		m.Args = told
	}
	return m.Start()
}

// alone waits while the leader is away, and reports whether the server with the empty
// disk was seen in quarantine.
func (w *World) alone(ctx context.Context, wiped *cluster.Member) (quarantined bool) {
	for until := time.Now().Add(aloneFor); time.Now().Before(until); _ = backoff.Sleep(ctx, 100*time.Millisecond) {
		status, err := w.Cluster.Status(ctx, wiped)
		quarantined = quarantined || err == nil && status.Quarantined
	}
	return quarantined
}
