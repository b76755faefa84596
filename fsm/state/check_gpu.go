package state

import (
	"fmt"
	"slices"
)

// checkGpuClasses: they are numbered without gaps, and found by their names.
func (s *State) checkGpuClasses() (err error) {
	next := GPUClassID(1)
	s.GPUClasses(func(c *GPUClass) bool {
		if c.ID != next || s.GPUClassByName(c.Name) != c {
			err = fmt.Errorf("GPU class %d is called %q, which is another's name, or %d is missing", c.ID, c.Name, next)
		}
		if c.Age > 0 && s.Meta().Level < LevelResizing {
			err = fmt.Errorf("GPU class %q has an age of %d us, and the feature level is %d", c.Name, c.Age, s.Meta().Level)
		}
		next++
		return err == nil
	})
	return err
}

// checkGPUs: each GPU of a node is free or held by exactly one attempt, in an
// aligned chunk; all bandwidth that is not free is held.
func (s *State) checkGPUs(n *Node) (err error) {
	g, held, bandwidth := n.GPUs, GPUSet(0), uint64(0)
	if (g.Class == 0) != (g == GPUs{}) || g.Class != 0 && (s.GPUClass(g.Class) == nil || g.Count == 0 || g.Memory == 0) {
		return fmt.Errorf("node %s: GPUs %+v are of no class, or none", n.Name, g)
	}
	s.Attempts(n.ID, func(a *Attempt) bool {
		bandwidth += a.Bandwidth
		if a.Chunk == (Chunk{}) {
			return true
		}
		switch {
		case !a.Chunk.Aligned(g.Count):
			err = fmt.Errorf("node %s: action %d holds chunk %+v of %d GPUs", n.Name, a.Action, a.Chunk, g.Count)
		case a.Chunk.GPUs()&held != 0:
			err = fmt.Errorf("node %s: action %d holds GPUs that another holds", n.Name, a.Action)
		}
		held |= a.Chunk.GPUs()
		return err == nil
	})
	switch {
	case err != nil:
		return err
	case held&n.Withheld != 0:
		return fmt.Errorf("node %s: actions hold GPUs %v, which a turn has", n.Name, (held & n.Withheld).Slice())
	case g.Free != n.InUse()&^held&^n.Withheld:
		return fmt.Errorf("node %s: GPUs %v are free, %v held, %v withheld and %v out of use of %d", n.Name, g.Free.Slice(), held.Slice(), n.Withheld.Slice(), n.OutOfUse().Slice(), g.Count)
	case n.FreeBandwidth+bandwidth != n.Bandwidth:
		return fmt.Errorf("node %s: %d bit/s free and %d held of %d", n.Name, n.FreeBandwidth, bandwidth, n.Bandwidth)
	}
	return nil
}

// checkResidency: what is resident is on a node that is up, on aligned chunks,
// once, in order, and fits into the memory of each GPU.
func (s *State) checkResidency() (err error) {
	db(s).residency.scan(0, func(r *Residency) bool { err = s.checkResidents(r); return err == nil })
	return err
}

func (s *State) checkResidents(r *Residency) error {
	n := s.Node(r.Node)
	if n == nil || n.State != NodeUp || len(r.Models) == 0 {
		return fmt.Errorf("%d models are resident on node %d, which is not up", len(r.Models), r.Node)
	}
	var used [GPUsPerNodeMax]uint64
	for i := range r.Models {
		m := &r.Models[i]
		again := slices.ContainsFunc(r.Models[:i], func(o Resident) bool { return o.Same(m) })
		switch {
		case m.Model == "" || m.Bytes == 0 || !m.Chunk.Aligned(n.GPUs.Count) || again:
			return fmt.Errorf("node %s: model %q of %d bytes is resident on chunk %+v of %d GPUs, again: %v", n.Name, m.Model, m.Bytes, m.Chunk, n.GPUs.Count, again)
		case i > 0 && r.Models[i-1].Compare(m) >= 0:
			return fmt.Errorf("node %s: resident models are not in order: %+v after %+v", n.Name, *m, r.Models[i-1])
		}
		for _, gpu := range m.Chunk.GPUs().Slice() {
			if used[gpu] += m.Bytes; used[gpu] > n.GPUs.Memory {
				return fmt.Errorf("node %s: models of %d bytes are resident on GPU %d, which has %d", n.Name, used[gpu], gpu, n.GPUs.Memory)
			}
		}
	}
	if err := s.checkWorths(n, r.Models); err != nil {
		return err
	}
	return s.checkModelsInUse(n, r.Models)
}

// checkWorths: a model that was used since models have a worth is worth a set-up for each of its
// uses, beyond an age that its class had.
func (s *State) checkWorths(n *Node, models []Resident) error {
	class := s.GPUClass(n.GPUs.Class)
	for i := range models {
		m := &models[i]
		least := Resident{Uses: m.Uses}.Valued(0, 1).Worth
		most := Resident{Uses: m.Uses}.Valued(class.Age, SetUpMax).Worth
		switch {
		case m.Uses == 0 && m.Worth == 0:
		case s.Meta().Level < LevelResizing:
			return fmt.Errorf("node %s: model %q has %d uses and a worth of %d us, and the feature level is %d", n.Name, m.Model, m.Uses, m.Worth, s.Meta().Level)
		case m.Uses == 0 || m.Uses > UsesMax || m.Worth < least || m.Worth > most:
			return fmt.Errorf("node %s: model %q has %d uses and a worth of %d us, must be 1 to %d and %d to %d us", n.Name, m.Model, m.Uses, m.Worth, UsesMax, least, most)
		}
	}
	return nil
}

// checkModelsInUse: the model of what runs is resident on its chunk.
func (s *State) checkModelsInUse(n *Node, models []Resident) (err error) {
	s.Attempts(n.ID, func(t *Attempt) bool {
		if g := s.Action(t.Action).Needs.gpus(); g != nil && g.Model != "" {
			use := Resident{Model: g.Model, Chunk: t.Chunk}
			if !slices.ContainsFunc(models, func(m Resident) bool { return m.Same(&use) }) {
				err = fmt.Errorf("node %s: model %q of action %d is not resident on chunk %+v", n.Name, g.Model, t.Action, t.Chunk)
			}
		}
		return err == nil
	})
	return err
}
