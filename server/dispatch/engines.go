package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// resident is a model on a chunk, and the engine that serves it. Rows never change, so they
// can be read after the view.
type resident struct {
	model  state.Resident
	engine *state.Engine
}

// enginesOn returns the residents of a node that have an engine, by chunk and model.
func enginesOn(st *state.State, n *state.Node) (all []resident) {
	for _, m := range st.ModelsOn(n.ID) {
		if e := st.Engine(m.Model); e != nil {
			all = append(all, resident{m, e})
		}
	}
	slices.SortFunc(all, func(a, b resident) int {
		return cmp.Or(cmp.Compare(a.model.Chunk.First, b.model.Chunk.First), cmp.Compare(a.model.Chunk.Units, b.model.Chunk.Units),
			strings.Compare(a.model.Model, b.model.Model))
	})
	return all
}

// removedOn returns the models without a declaration that a node has engines of, or attempts that
// were told to use them, in order.
func (s *stream) removedOn(st *state.State, n *state.Node) (models []string) {
	add := func(model string) {
		if model != "" && st.Engine(model) == nil {
			models = append(models, model)
		}
	}
	for _, e := range st.EnginesOn(n.ID) {
		add(e.Model)
	}
	for _, told := range s.sent {
		add(told.engine)
	}
	slices.Sort(models)
	return slices.Compact(models)
}

// engineOf is the model whose engine an action needs; empty if it needs none.
func engineOf(st *state.State, a *state.Action) string {
	if g := a.GPUs(); g != nil && st.Engine(g.Model) != nil {
		return g.Model
	}
	return ""
}

// desired makes engines into what the agent is told of them.
func (s *stream) desired(engines []resident) ([]*rotav1.DesiredEngine, error) {
	var all []*rotav1.DesiredEngine
	decoded := map[uint64]*rotav1.EngineSpec{}
	for _, r := range engines {
		spec := cmp.Or(decoded[r.engine.Generation], s.specs[r.engine.Generation])
		if spec == nil {
			spec = new(rotav1.EngineSpec)
			if err := spec.UnmarshalVT(r.engine.Spec); err != nil {
				return nil, fmt.Errorf("decode the engine of model %q: %w", r.engine.Model, err)
			}
		}
		decoded[r.engine.Generation] = spec
		all = append(all, &rotav1.DesiredEngine{
			Spec: spec, Generation: r.engine.Generation, MemoryBytes: r.model.Bytes,
			Chunk: &rotav1.GpuChunk{First: r.model.Chunk.First, Gpus: r.model.Chunk.Units},
		})
	}
	s.specs = decoded
	return all, nil
}
