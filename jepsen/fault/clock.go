package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"rota/jepsen/cluster"
)

// drift has the clocks of agents run slow and those of servers fast, so that a
// server thinks that a lease is over before its holder does. Together that stays
// within the margin, which is what the margin is for.
func drift(_ context.Context, w *World) (*Injection, error) {
	// Half of the margin, shared by both sides.
	ppm := int64(w.Config.Margin) * 1_000_000 / int64(w.Config.Lease) / 4
	return clocks(w, w.Cluster.Members(), func(m *cluster.Member) (int64, time.Duration) {
		if m.Kind == cluster.Agent {
			return -ppm, 0
		}
		return ppm, 0
	})
}

// serverJump has the clock of the leader jump ahead, within the margin.
func serverJump(ctx context.Context, w *World) (*Injection, error) {
	leader, err := w.Cluster.Leader(ctx)
	if err != nil {
		return nil, err
	}
	return clocks(w, []*cluster.Member{leader}, func(*cluster.Member) (int64, time.Duration) { return 0, w.Config.Margin / 2 })
}

// agentJump has the clock of an agent jump ahead by more than its lease, as when
// its machine has slept: it must give up what it runs.
func agentJump(_ context.Context, w *World) (*Injection, error) {
	agent := pick(w.Rand, w.Cluster.Agents)
	return clocks(w, []*cluster.Member{agent}, func(*cluster.Member) (int64, time.Duration) { return 0, w.Config.Lease + time.Second })
}

// clocks changes speed and time of clocks. The true speed comes back with the
// end of the fault; a clock that is ahead stays ahead, as none goes back.
func clocks(w *World, members []*cluster.Member, change func(*cluster.Member) (ratePPM int64, jump time.Duration)) (*Injection, error) {
	ahead := map[string]time.Duration{}
	for _, m := range members {
		if m.Clock == nil {
			return nil, fmt.Errorf("%s has no clock that could be changed: the scenario needs a fault build", m.Name)
		}
		ahead[m.Name] = m.Clock.Ahead()
		if err := m.Clock.Set(change(m)); err != nil {
			return nil, err
		}
	}
	return &Injection{Target: names(members), End: func(context.Context) (string, error) {
		proof, errs := "", []error(nil)
		for _, m := range members {
			errs = append(errs, m.Clock.Set(0, 0))
			if !follows(m) {
				return "", errors.Join(append(errs, fmt.Errorf("%s does not follow the clock that was made for it: build it with -tags faults", m.Name))...)
			}
			if proof != "" {
				proof += ", "
			}
			proof += fmt.Sprintf("clock of %s off by %v", m.Name, (m.Clock.Ahead() - ahead[m.Name]).Round(time.Millisecond))
		}
		return proof, errors.Join(errs...)
	}}, nil
}

// follows reports whether a process has the file of its clock mapped.
func follows(m *cluster.Member) bool {
	maps, err := os.ReadFile("/proc/" + strconv.Itoa(m.Pid()) + "/maps")
	return err == nil && bytes.Contains(maps, []byte(filepath.Join(m.Dir, "clock")))
}
