package state

import "fmt"

// checkEngines: they are bounded, each generation was handed out once, and what was measured
// can have been.
func (s *State) checkEngines() (err error) {
	generations := map[uint64]bool{} // for look-up only, never ranged over
	s.Engines(func(e *Engine) bool {
		switch {
		case e.Model == "" || len(e.Spec) > EngineSpecBytesMax:
			err = fmt.Errorf("the engine of model %q is declared with %d bytes", e.Model, len(e.Spec))
		case e.Generation == 0 || e.Generation > s.meta.LastGeneration || generations[e.Generation]:
			err = fmt.Errorf("the engine of model %q has generation %d, which another has, or the last is %d", e.Model, e.Generation, s.meta.LastGeneration)
		case (e.SetUps == 0) != (e.SetUpNS == 0) || e.SetUpNS < 0 || e.SetUpNS > SetUpMax:
			err = fmt.Errorf("the engine of model %q takes %d ns to set up in the mean of %d", e.Model, e.SetUpNS, e.SetUps)
		}
		generations[e.Generation] = true
		return err == nil
	})
	if n := s.EngineCount(); err == nil && n > EnginesMax {
		err = fmt.Errorf("there are %d engines", n)
	}
	return err
}

// checkNodeEngines: only nodes that are up have said something, of chunks that they have, once of
// each model on each, in order.
func (s *State) checkNodeEngines() (err error) {
	s.AllNodeEngines(func(r *NodeEngines) bool { err = s.checkInstances(r); return err == nil })
	return err
}

func (s *State) checkInstances(r *NodeEngines) error {
	n := s.Node(r.Node)
	if n == nil || n.State != NodeUp || len(r.Instances) == 0 || len(r.Instances) > NodeEnginesMax {
		return fmt.Errorf("%d engines are known of node %d, which is not up, or they are too many", len(r.Instances), r.Node)
	}
	for i := range r.Instances {
		e := &r.Instances[i]
		switch {
		case e.Model == "" || !e.Chunk.Aligned(n.GPUs.Count):
			return fmt.Errorf("node %s: the engine of model %q is on chunk %+v of %d GPUs", n.Name, e.Model, e.Chunk, n.GPUs.Count)
		case e.State < EngineWaiting || e.State > EngineFailed || len(e.Message) > EngineMessageBytesMax:
			return fmt.Errorf("node %s: the engine of model %q is in state %d with a message of %d bytes", n.Name, e.Model, e.State, len(e.Message))
		case i > 0 && r.Instances[i-1].Compare(e) >= 0:
			return fmt.Errorf("node %s: engines are not in order: %q on %+v after %q on %+v", n.Name, e.Model, e.Chunk, r.Instances[i-1].Model, r.Instances[i-1].Chunk)
		}
	}
	return nil
}

// checkLevels: there is nothing in the tables of a level that was not raised yet.
func (s *State) checkLevels() error {
	for i := range tables {
		if t := &tables[i]; t.since > LevelMin && s.meta.Level < t.since && t.rows(db(s)) > 0 {
			return fmt.Errorf("table %d has rows from level %d on, and level %d is active", t.id, t.since, s.meta.Level)
		}
	}
	return nil
}
