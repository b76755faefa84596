package state

import "fmt"

// checkWorkers: each has what was declared, its times go with its state, and it has no more
// trajectories than slots.
func (s *State) checkWorkers() (err error) {
	s.Workers("", func(w *Worker) bool { err = s.checkWorker(w); return err == nil })
	if n := s.WorkerCount(); err == nil && n > WorkersMax {
		err = fmt.Errorf("there are %d workers", n)
	}
	return err
}

func (s *State) checkWorker(w *Worker) error {
	stale := s.Stale(w)
	switch {
	case w.Name == "" || max(len(w.Name), len(w.Node), len(w.Hardware), len(w.Pool)) > WorkerNameBytesMax || len(w.URL) > WorkerURLBytesMax || len(w.Message) > WorkerMessageBytesMax:
		return fmt.Errorf("worker %q has texts that are too long, or no name", w.Name)
	case s.Policy(w.Policy) == nil:
		return fmt.Errorf("worker %s is of policy %q, which does not exist", w.Name, w.Policy)
	case len(w.Profile) == 0 || len(w.Profile) > WorkerPointsMax || w.Slots > WorkerSlotsMax || w.Degree == 0:
		return fmt.Errorf("worker %s has %d points, %d slots and %d GPUs", w.Name, len(w.Profile), w.Slots, w.Degree)
	case (w.RetryAt != 0) != (w.Message != "") || w.RetryAt != 0 && w.Failures == 0 && !w.Starting:
		return fmt.Errorf("worker %s is tried again at %d after %d failures, starting %v: %q", w.Name, w.RetryAt, w.Failures, w.Starting, w.Message)
	case stale != (w.LeaveAt != 0 || w.Overdue) || w.LeaveAt != 0 && w.Overdue:
		return fmt.Errorf("worker %s has version %d, stale %v, and its trajectories leave at %d, overdue %v", w.Name, w.Version, stale, w.LeaveAt, w.Overdue)
	case w.RegisteredAt > s.meta.Now:
		return fmt.Errorf("worker %s was registered at %d, and it is %d", w.Name, w.RegisteredAt, s.meta.Now)
	}
	for i, p := range w.Profile {
		if p.Batch == 0 || p.TokenNS <= 0 || i > 0 && p.Batch <= w.Profile[i-1].Batch {
			return fmt.Errorf("worker %s has profile %v", w.Name, w.Profile)
		}
	}
	if n := s.WorkerLoad(w.Name).Trajectories; n > w.SlotsOrMax() {
		return fmt.Errorf("worker %s has %d trajectories and %d slots", w.Name, n, w.SlotsOrMax())
	}
	return nil
}

// checkGenerations: a trajectory that goes on is at one worker at most, which is there and serves
// its policy; what workers have to do is the sum of theirs.
func (s *State) checkGenerations() (err error) {
	loads := map[string]WorkerLoad{} // for look-up only, never ranged over
	s.Generations(0, func(g *Generation) bool {
		if err = s.checkGeneration(g); err == nil && g.Worker != "" && !g.Ended {
			l := loads[g.Worker]
			l.Trajectories++
			if g.Generating {
				l.Generating++
			}
			l.Predicted += g.Predicted
			l.Prefill += g.Prefill
			loads[g.Worker] = l
		}
		return err == nil
	})
	s.Workers("", func(w *Worker) bool {
		if got := s.WorkerLoad(w.Name); err == nil && got != loads[w.Name] {
			err = fmt.Errorf("worker %s has to do %+v, rows say %+v", w.Name, got, loads[w.Name])
		}
		return err == nil
	})
	return err
}

func (s *State) checkGeneration(g *Generation) error {
	t := s.Trajectory(g.Trajectory)
	switch {
	case t == nil || (t.State >= TrajectoryClosing) != g.Ended:
		return fmt.Errorf("trajectory %d has ceased to generate: %v, and is there: %v", g.Trajectory, g.Ended, t != nil)
	case !g.Ended && s.Policy(g.Policy) == nil || len(g.TaskClass) > PolicyNameBytesMax || len(g.Hardware) > HardwaresMax:
		return fmt.Errorf("trajectory %d is of policy %q, which may not exist, and class %q, and prefers %q", g.Trajectory, g.Policy, g.TaskClass, g.Hardware)
	case g.Priority > GenerationPriorityMax || g.Cause == 0 || g.Cause >= placementCauses || g.Choice.By >= hardwareChoices || g.Choice.PrefillPercent > 100:
		return fmt.Errorf("trajectory %d has priority %d and cause %d", g.Trajectory, g.Priority, g.Cause)
	case g.Since > s.meta.Now || g.Ended && g.Generating || g.GenerateNS < 0 || g.ToolNS < 0:
		return fmt.Errorf("trajectory %d has times that cannot be: %+v", g.Trajectory, *g)
	}
	if !g.Service.sound() {
		return fmt.Errorf("of trajectory %d a predictor service cannot have said %+v", g.Trajectory, g.Service)
	}
	if err := g.Trace.Check(); err != nil {
		return fmt.Errorf("trajectory %d: %w", g.Trajectory, err)
	}
	if w := s.Worker(g.Worker); !g.Ended && g.Worker != "" && (w == nil || w.Policy != g.Policy || g.Last != g.Worker) {
		return fmt.Errorf("trajectory %d of policy %s is at worker %s, which is not there or not of it; it was at %s last", g.Trajectory, g.Policy, g.Worker, g.Last)
	}
	return nil
}
