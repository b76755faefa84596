package fault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rota/api/backoff"
	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/cluster"
	"rota/jepsen/disk"
)

func bitFlip(ctx context.Context, w *World) (*Injection, error) {
	return rot(ctx, w, disk.AnyByte, disk.FlipBit)
}

func bitFlipLog(ctx context.Context, w *World) (*Injection, error) {
	return rot(ctx, w, disk.LogBytes, disk.FlipBit)
}

func bitFlipMeta(ctx context.Context, w *World) (*Injection, error) {
	return rot(ctx, w, disk.Meta, disk.FlipBit)
}

func bitFlipMark(ctx context.Context, w *World) (*Injection, error) {
	return rot(ctx, w, disk.Mark, disk.FlipBit)
}

func bitFlipSnapshot(ctx context.Context, w *World) (*Injection, error) {
	return rot(ctx, w, disk.Snapshot, disk.FlipBit)
}

// truncation cuts one server's log, mark or snapshot short.
func truncation(ctx context.Context, w *World) (*Injection, error) {
	return rot(ctx, w, pick(w.Rand, []disk.Class{disk.LogBytes, disk.Mark, disk.Snapshot}), disk.Truncate)
}

// rotShows is how long a server may take to notice what is wrong with its files,
// or else to be back.
const rotShows = 15 * time.Second

// rot damages the files of one server while it is down. If the server does not
// notice, it is made the leader, so that whatever it has taken for good is used.
// In the end it gets an empty disk, as the next damage may hit another one, and
// together they would be no minority.
func rot(ctx context.Context, w *World, class disk.Class, damage func(dir string, class disk.Class, seed uint64) (disk.Rot, error)) (*Injection, error) {
	victim := pick(w.Rand, w.Cluster.Servers)
	if class == disk.Snapshot {
		if err := w.snapshot(ctx, victim); err != nil {
			return nil, err
		}
	}
	start := w.Record.Now()
	victim.Kill()
	what, err := damage(victim.DataDir, class, w.Rand.Uint64())
	if err := errors.Join(err, victim.Start()); err != nil {
		return nil, err
	}
	w.Rotten[victim.Name] = true
	return &Injection{Start: start, Target: []string{victim.Name}, End: func(ctx context.Context) (string, error) {
		noticed, err := w.livesWith(ctx, victim)
		if err := errors.Join(err, w.replace(ctx, victim)); err != nil {
			return "", err
		}
		delete(w.Rotten, victim.Name)
		return what.String() + ": " + noticed, nil
	}}, nil
}

// snapshot has a server write one, if it has none of what it knows.
func (w *World) snapshot(ctx context.Context, m *cluster.Member) error {
	api, err := w.Cluster.ClientTo(m)
	if err != nil {
		return err
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(ctx, comesBack)
	defer cancel()
	_, err = api.Operator.TakeSnapshot(ctx, &rotav1.TakeSnapshotRequest{})
	return err
}

// livesWith says what a server makes of its damaged files: it stops, it does not
// vote until it has caught up, or it goes on, and then has to lead.
func (w *World) livesWith(ctx context.Context, m *cluster.Member) (string, error) {
	quarantined, back := false, false
	until(ctx, rotShows, func() bool {
		status, err := w.Cluster.Status(ctx, m)
		quarantined = quarantined || err == nil && status.Quarantined
		back = err == nil && !status.Quarantined && status.LeaderId != ""
		return back || !m.Alive()
	})
	word := "it went on"
	if quarantined {
		word = "it was in quarantine until it had caught up"
	}
	if back && m.Alive() {
		word += w.lead(ctx, m)
	}
	switch {
	case !m.Alive():
		how, err := m.WaitExit(ctx)
		return fmt.Sprintf("it stopped with %s: %s", how, m.LogTail(1)), err
	case !back && quarantined:
		return "it stayed in quarantine", nil
	case !back:
		return "", fmt.Errorf("%s neither stopped nor came back in %v with damaged files", m.Name, rotShows)
	}
	return word, nil
}

// lead makes a server the leader for a moment.
func (w *World) lead(ctx context.Context, m *cluster.Member) string {
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	leader, err := w.Cluster.Leader(limited)
	if err == nil && leader != m {
		err = w.Cluster.Transfer(limited, m)
	}
	if err != nil {
		return ", and did not come to lead"
	}
	_ = backoff.Sleep(ctx, time.Second)
	return ", and led"
}
