package workload

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
	"rota/jepsen/workload/witness"
)

// served are the models that engines serve. No two of the larger ones fit on a GPU of 80 GiB, so
// that engines have to leave for others.
var served = []struct {
	model       string
	memoryBytes uint64 // of each GPU; 0: all
	driver      rotav1.EngineDriver
	degrees     []uint32
	// misdeeds are what some declarations of the engine do wrong, beside nothing. All are about
	// falling asleep and waking: an engine that never starts would only be in the way.
	misdeeds []string
}{
	{"judge", 50 << 30, rotav1.EngineDriver_ENGINE_DRIVER_VLLM, []uint32{1, 2}, []string{"early-200", "hang-sleep", "fail-sleep", "garbage", "huge", "oom-wake", "crash-wake", "hang-wake"}},
	{"rules", 45 << 30, rotav1.EngineDriver_ENGINE_DRIVER_PROCESS, []uint32{1}, nil},
	// Of these two drivers the answer to a call to sleep is believed, so it must not come early.
	{"scorer", 30 << 30, rotav1.EngineDriver_ENGINE_DRIVER_HTTP, []uint32{2}, []string{"fail-sleep", "crash-wake"}},
	{"teller", 0, rotav1.EngineDriver_ENGINE_DRIVER_SGLANG, []uint32{1, 2}, []string{"hang-sleep", "oom-wake"}},
}

const (
	// engineLoadMax is how long an engine loads at most after its start.
	engineLoadMax = 80 * time.Millisecond
	// engineCallTimeout is short, so that a run sees the end of many calls that hang.
	engineCallTimeout = time.Second
	// engineStartTimeout is long enough for a start on a busy machine.
	engineStartTimeout = 20 * time.Second
	// fixPause is how long the engine of a model is missing after it was removed.
	fixPause = 2 * time.Second
)

// engines has agents start, wake, put to sleep, replace and stop engines, by actions that call
// them and by operators that change and remove their declarations.
func engines(ctx context.Context, env *Env, rate float64) error {
	if env.Witness == nil || env.Witness.Engine == "" {
		return errNoWitness
	}
	if env.GPUs == 0 {
		return errNoGPUs
	}
	env.serves.Store(true)
	return env.work(ctx, rate, func(w *worker) func(context.Context) {
		o := &engineOperator{submitter: submitter{worker: w, several: 30}, removed: map[int]time.Time{}}
		o.next = w.newCall
		for i := range served {
			o.removed[i] = time.Time{} // until it was declared
		}
		return o.step
	})
}

// engineOperator submits actions that call engines, and declares and removes engines.
type engineOperator struct {
	submitter
	removed map[int]time.Time // since when, as far as this one has done it
}

func (o *engineOperator) step(ctx context.Context) {
	for i, since := range o.removed {
		if time.Since(since) > fixPause {
			if op := o.registerEngine(ctx, o.newEngine(i, true)); op.Outcome == history.OK {
				delete(o.removed, i)
			}
			return
		}
	}
	switch dice := o.rand.IntN(100); {
	case dice < 6:
		o.roam()
		o.registerEngine(ctx, o.newEngine(o.rand.IntN(len(served)), true))
	case dice < 8:
		i := o.rand.IntN(len(served))
		o.removeEngine(ctx, served[i].model)
		o.removed[i] = time.Now()
	default:
		o.submitter.step(ctx)
	}
}

// newEngine declares the engine of one of the served models in a new way. Half of those that may
// misbehave do.
func (w *worker) newEngine(i int, mayMisbehave bool) *rotav1.EngineSpec {
	m := served[i]
	flags := []string{"--load", w.between(0, engineLoadMax).String(), "--wake", w.between(0, engineLoadMax/2).String()}
	if mayMisbehave && len(m.misdeeds) > 0 && w.chance(50) {
		flags = append(flags, "--misbehave", m.misdeeds[w.rand.IntN(len(m.misdeeds))])
	}
	spec := &rotav1.EngineSpec{
		Model: m.model, Driver: m.driver, Command: w.env.Witness.Serve(m.model, w.requestID(), m.memoryBytes, flags...),
		StartTimeout: durationpb.New(engineStartTimeout), CallTimeout: durationpb.New(engineCallTimeout),
	}
	switch m.driver {
	case rotav1.EngineDriver_ENGINE_DRIVER_SGLANG:
		spec.Command.Argv = append(spec.Command.Argv, "--dialect", "sglang", "--enable-weights-cpu-backup")
	case rotav1.EngineDriver_ENGINE_DRIVER_VLLM:
		spec.SleepLevel = uint32(1 + w.rand.IntN(2))
	case rotav1.EngineDriver_ENGINE_DRIVER_HTTP:
		spec.Sleep = &rotav1.EngineCall{Path: "/sleep?level=1"}
		spec.Wake = &rotav1.EngineCall{Path: "/wake_up"}
	}
	return spec
}

// newCall calls the engine of a model, which the servers place.
func (w *worker) newCall() job {
	m := served[w.rand.IntN(len(served))]
	return job{
		class: "calls-" + m.model,
		resources: &rotav1.Resources{Cores: proto.Uint32(0), Gpus: &rotav1.GpuDemand{
			Gpus: []uint32{m.degrees[w.rand.IntN(len(m.degrees))]}, MemoryBytes: m.memoryBytes, Model: m.model,
		}},
		work: witness.Work{Calls: true, For: w.between(5*time.Millisecond, 150*time.Millisecond)},
	}
}

// engines are brought to what the state wants. All get a declaration that does nothing wrong,
// so that failures of before do not count any more; then each model that is resident on a
// chunk has an engine there that is awake, and no other engine is.
func (s *settler) engines(ctx context.Context) (left []string, err error) {
	if !s.env.serves.Load() {
		return nil, nil
	}
	for i := len(s.declared); i < len(served); i++ {
		spec := s.newEngine(i, false)
		if op := s.registerEngine(ctx, spec); op.Outcome != history.OK {
			s.roam()
			return []string{fmt.Sprintf("the engine of model %s is not declared anew: %s", spec.Model, op.Error)}, nil
		}
		s.declared = append(s.declared, witness.DeclarationOf(spec.Command))
	}
	wanted := map[string]bool{}
	for _, name := range s.env.Nodes {
		got, err := s.api.Nodes.GetNode(ctx, &rotav1.GetNodeRequest{Name: name})
		if err != nil {
			return nil, err
		}
		for _, m := range got.Node.ResidentModels {
			for i, declaration := range s.declared {
				if served[i].model == m.Model {
					wanted[place(name, m.Model, declaration, m.Chunk.First, m.Chunk.Gpus)] = true
				}
			}
		}
	}
	for _, x := range s.env.Witness.AliveEngines() {
		if !x.Awake {
			continue
		}
		at := place(x.Node, x.Model, x.Declaration, uint32(x.GPUs[0]), uint32(len(x.GPUs)))
		if !wanted[at] {
			left = append(left, "an engine is awake that nobody wants: "+at)
		}
		delete(wanted, at)
	}
	for at := range wanted {
		left = append(left, "there should be an engine awake: "+at)
	}
	return left, nil
}

// place names an engine on a chunk.
func place(node, model, declaration string, first, gpus uint32) string {
	return fmt.Sprintf("%s of declaration %s on GPUs %d+%d of %s", model, declaration, first, gpus, node)
}

// noEngines removes all engines, and returns which processes of them are left.
func (s *settler) noEngines(ctx context.Context) (left []string, err error) {
	if !s.env.serves.Load() {
		return nil, nil
	}
	for len(s.declared) > 0 {
		op := s.removeEngine(ctx, served[len(s.declared)-1].model)
		if op.Outcome != history.OK && op.Error != "ENGINE_NOT_FOUND" {
			s.roam()
			return []string{fmt.Sprintf("the engine of model %s is not removed: %s", op.Model, op.Error)}, nil
		}
		s.declared = s.declared[:len(s.declared)-1]
	}
	for _, x := range s.env.Witness.AliveEngines() {
		if !x.Awake {
			left = append(left, fmt.Sprintf("an engine of model %s is alive on %s, and has no declaration", x.Model, x.Node))
		}
	}
	return left, nil
}
