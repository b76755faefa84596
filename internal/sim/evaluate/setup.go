package evaluate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rota/internal/sim/workload"
)

// Latency is what a decision costs outside the scheduler, in nanoseconds.
type Latency struct {
	// Commit is from a proposal to its result, Dispatch from a grant to the start
	// of the process on its node.
	Commit, Dispatch int64
	// Resize is for how long an action does not get on when it is given other cores, beside
	// Dispatch, which passes before.
	Resize int64
	// Open is how long the sandbox of a trajectory takes to open after the trajectory got its node. Actions
	// on cores wait for it. Pods have a start of their own in the workload.
	Open int64
}

// DefaultLatency is that of docs/benchmarks.md: two commits of 1.3 ms each, and
// with them 5.3 ms from end to end beside what the command takes. Of a resize it is the whole call
// of the agent to its supervisor. That is a bound: threads that keep their CPUs go on meanwhile.
// Open is not measured. It is the mean start of the pods of workload coding, so that an
// environment costs no policy less than it costs pods.
var DefaultLatency = Latency{Commit: 1_300_000, Dispatch: 2_700_000, Resize: 1_900_000, Open: 2_360_000_000}

// Setup says what is run. Its zero value with a workload's name is that workload
// as its file has it.
type Setup struct {
	Workload  string
	Seed      uint64
	Latency   Latency
	Overrides []workload.Override
	// Sessions are replayed instead of the workload's own turns, if there are any.
	Sessions []workload.Session
	Replay   workload.Replay
	// Estimates: the state machine is asked of each action that is submitted when it starts.
	Estimates bool
	told
	// sets are what Set has changed, in this order.
	sets []setting
}

type setting struct {
	name  string
	value int64
}

func (s setting) String() string {
	if words := settings[s.name].words; words != nil {
		return words[s.value]
	}
	return strconv.FormatInt(s.value, 10)
}

// settings are what Set knows, beside figures of the workload.
var settings = map[string]struct {
	least, most int64
	apply       func(s *Setup, p *workload.Params, v int64)
	words       []string // for the values, if they are no numbers
}{
	"batch": {least: 1, most: 1 << 24, apply: func(_ *Setup, p *workload.Params, v int64) { p.SetBatch(v) }},
	"steps": {least: 1, most: 1 << 16, apply: func(_ *Setup, p *workload.Params, v int64) { p.SetSteps(v) }},
	"nodes": {least: 1, most: 10_000, apply: func(_ *Setup, p *workload.Params, v int64) {
		c := &p.Cluster
		if c.CPUNodes.Value > 0 {
			p.SetCPUs(v, int64(c.CoresPerNode.Value))
		}
		if c.GPUNodes.Value > 0 {
			p.SetGPUs(v, int64(c.GPUsPerNode.Value))
		}
	}},
	"cores":      {least: 2, most: 512, apply: func(_ *Setup, p *workload.Params, v int64) { p.SetCPUs(int64(p.Cluster.CPUNodes.Value), v) }},
	"gpus":       {least: 1, most: 8, apply: func(_ *Setup, p *workload.Params, v int64) { p.SetGPUs(int64(p.Cluster.GPUNodes.Value), v) }},
	"tool-width": {least: 1, most: 512, apply: func(_ *Setup, p *workload.Params, v int64) { p.SetToolWidth(v) }},
	"serial":     {least: 0, most: 1_000_000, apply: func(_ *Setup, p *workload.Params, v int64) { p.SetSerial(v) }},
	"seed":       {least: 0, most: 1 << 62, apply: func(s *Setup, _ *workload.Params, v int64) { s.Seed = uint64(v) }},
	// What is known of how long actions take: what their clients say, what their classes
	// learn by size or not, or nothing.
	"known": {words: []string{"profiles", "sizes", "classes", "nothing"}, apply: func(s *Setup, p *workload.Params, v int64) {
		if v > 0 {
			p.Unprofile()
		}
		s.sized, s.classless = v == 1, v == 3
	}},
	"objective": {words: []string{"mean", "step"}, apply: func(s *Setup, _ *workload.Params, v int64) { s.step = v == 1 }},
}

// SettingNames are those that Set knows, beside figures.
func SettingNames() []string {
	return []string{"batch", "steps", "nodes", "cores", "gpus", "tool-width", "serial", "seed", "known", "objective"}
}

// SettingWords are the values of a setting that is no number; nil if it is one.
func SettingWords(name string) []string { return settings[name].words }

// Set changes one thing by its name, or a figure of the workload by its path. A
// setup that it was copied from stays as it is.
func (s *Setup) Set(name, value string) error {
	known, ok := settings[name]
	if !ok {
		if !strings.Contains(name, ".") {
			return fmt.Errorf("%w: there is no setting %q, only %s, and paths of figures such as tasks.coding.think_ppm", workload.ErrParams, name, strings.Join(SettingNames(), ", "))
		}
		s.Overrides = append(slices.Clip(s.Overrides), workload.Override{Path: name, Value: value})
		return nil
	}
	if known.words != nil {
		v := slices.Index(known.words, value)
		if v < 0 {
			return fmt.Errorf("%w: %s is %q, not one of %s", workload.ErrParams, name, value, strings.Join(known.words, ", "))
		}
		s.sets = append(slices.Clip(s.sets), setting{name, int64(v)})
		return nil
	}
	v, err := strconv.ParseInt(value, 10, 64)
	if err != nil || v < known.least || v > known.most {
		return fmt.Errorf("%w: %s is %q, not a whole number from %d to %d", workload.ErrParams, name, value, known.least, known.most)
	}
	s.sets = append(slices.Clip(s.sets), setting{name, v})
	return nil
}

// Input is a workload that is ready to run, any number of times and by several
// policies at once.
type Input struct {
	Seed    uint64
	Latency Latency
	// Progress is called whenever a trajectory is over.
	Progress func()
	// Log is told each entry of the state machine.
	Log func(index uint64, data []byte)
	// Estimates: the state machine is asked of each action that is submitted when it starts.
	Estimates bool

	told
	generator *workload.Generator
	replayed  []workload.Trajectory // nil unless a trace is
	first     []int                 // index of each task's first trajectory
}

// Input makes the workload.
func (s Setup) Input() (*Input, error) {
	p, err := workload.Load(s.Workload, s.Overrides...)
	if err != nil {
		return nil, err
	}
	for _, set := range s.sets {
		settings[set.name].apply(&s, p, set.value)
	}
	g, err := workload.New(p, s.Seed)
	if err != nil {
		return nil, err
	}
	in := &Input{Seed: s.Seed, Latency: s.Latency, Estimates: s.Estimates, generator: g, told: s.told}
	at := 0
	for i := range p.Tasks {
		in.first = append(in.first, at)
		at += int(p.Tasks[i].Batch.Value * p.Tasks[i].Steps.Value)
	}
	if s.Sessions == nil {
		return in, nil
	}
	if len(p.Tasks) > 1 || p.Cluster.CPUNodes.Value == 0 {
		return nil, errors.New("a trace replaces the tools of a workload that has one task and CPUs: take coding")
	}
	in.replayed, err = g.Replay(s.Sessions, s.Replay)
	return in, err
}

// Params are the parameters that the input was made with.
func (in *Input) Params() *workload.Params { return in.generator.Params() }

// Trajectories returns how many there are.
func (in *Input) Trajectories() int { return in.generator.Len() }

// fill sets what a rollout does.
func (in *Input) fill(r *rollout, step, number int) {
	i := in.first[r.task] + step*int(in.Params().Tasks[r.task].Batch.Value) + number
	if in.replayed != nil {
		r.Trajectory = in.replayed[i]
		return
	}
	in.generator.Fill(&r.Trajectory, i)
}

func (in *Input) progressed() {
	if in.Progress != nil {
		in.Progress()
	}
}
