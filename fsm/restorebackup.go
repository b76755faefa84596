package fsm

import (
	"cmp"
	"fmt"
	"io"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// RestoreBackup is state.RestoreForeign, and also checks what only the scheduler and the commands know of
// rows: that each demand and the ledger can be decided about, and that the actions of reward functions
// and of worker pools can be queued. The same rules hold for a check here: see there.
func RestoreBackup(r io.Reader) (s *state.State, err error) {
	if s, err = state.RestoreForeign(r); err != nil {
		return nil, err
	}
	defer func() {
		if cause := recover(); cause != nil {
			s, err = nil, fmt.Errorf("%w: its rows cannot be checked: %v", state.ErrSnapshotCorrupt, cause)
		}
	}()
	if err := cmp.Or(checkLedger(&s.Meta().Settings), sched.CheckForeign(s), checkTemplates(s)); err != nil {
		return nil, fmt.Errorf("%w: %w", state.ErrSnapshotCorrupt, err)
	}
	return s, nil
}

// checkTemplates checks the actions that reward functions and worker pools queue for themselves.
func checkTemplates(s *state.State) (err error) {
	s.Rewards("", func(r *state.Reward) bool {
		if err = new(logv1.Action).UnmarshalVT(r.Action); err != nil {
			err = fmt.Errorf("the action of reward function %s cannot be decoded: %w", r.Name, err)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	s.WorkerPools(func(p *state.WorkerPool) bool {
		a := &logv1.Action{}
		if err = a.UnmarshalVT(p.Start); err != nil || a.Needs.GetGpus() == nil {
			err = fmt.Errorf("the action of worker pool %s cannot be decoded, or asks for no GPUs: %v", p.Name, err)
		}
		return err == nil
	})
	return err
}
