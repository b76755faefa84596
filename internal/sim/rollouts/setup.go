package rollouts

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrSetup: a setting of a simulation is not what it may be.
var ErrSetup = errors.New("rollouts")

// Setup is what a comparison simulates.
type Setup struct {
	// Task is a synthetic task's name. It is not read if there is a Pool.
	Task string
	// Pool are trajectories of a trace, sorted by output, that steps are drawn from.
	Pool []Trajectory
	// Model is one of ModelNames.
	Model string
	// Workers is the number of workers of the baselines, each with the model's degree of
	// parallelism. All policies have the same GPUs.
	Workers int64
	// Batch is the number of trajectories of a step for each worker, Group the samples of a prompt.
	Batch, Group int64
	// Slots is how many requests an engine runs at once.
	Slots int64
	// Skew is the spread of lengths, in percent of the task's: 0 makes all lengths equal.
	Skew int64
	// Siblings is the correlation of lengths in a prompt group, in percent.
	Siblings int64
	// Steps is how many steps follow each other. The predictor learns from each.
	Steps int64
	// Transfer is 1 if engines can copy KV caches to each other, and 0 if a prefix is computed
	// again instead.
	Transfer int64
	// Degree is the degree of parallelism of the baselines' workers; 0: the model's.
	Degree int64
	// Redundant is how many trajectories a group has beyond those that complete it. When it is
	// complete, the others are aborted (RollArt §6).
	Redundant int64
	// Slow and Stopped are the percentages of environments that are slow (fail-slow), and that
	// stop during a tool call (fail-stop). See faults.go.
	Slow, Stopped int64
	Seed          uint64
}

// Default is the setting of Heddle §7 on an eighth of its GPUs: a batch of 100 for each worker, 16
// samples of a prompt.
func Default() Setup {
	return Setup{
		Task: "coding", Model: "14b", Workers: 8, Batch: 96, Group: 16, Slots: 256, Skew: 100,
		Siblings: 50, Steps: 3, Transfer: 1, Seed: 1,
	}
}

// setting is a number of a setup that flags and sweeps set.
type setting struct {
	name        string
	least, most int64
	help        string
	of          func(s *Setup) *int64
}

var settings = []setting{
	{"batch", 1, 4096, "trajectories of a step for each worker", func(s *Setup) *int64 { return &s.Batch }},
	{"workers", 1, 256, "workers of the baselines; other policies divide the same GPUs", func(s *Setup) *int64 { return &s.Workers }},
	{"skew", 0, 300, "spread of lengths, in percent of the task's; 0: all equal", func(s *Setup) *int64 { return &s.Skew }},
	{"siblings", 0, 100, "correlation of lengths within a prompt group, in percent", func(s *Setup) *int64 { return &s.Siblings }},
	{"group", 1, 1024, "samples of a prompt", func(s *Setup) *int64 { return &s.Group }},
	{"slots", 1, 4096, "requests that an engine runs at once", func(s *Setup) *int64 { return &s.Slots }},
	{"steps", 1, 64, "steps; the predictor learns from each, and figures are those of the last", func(s *Setup) *int64 { return &s.Steps }},
	{"degree", 0, degreesMax, "degree of parallelism of the baselines' workers, a power of two; 0: as in Heddle §7", func(s *Setup) *int64 { return &s.Degree }},
	{"redundant", 0, 64, "trajectories of a group beyond those that complete it; when it is complete, the others are aborted", func(s *Setup) *int64 { return &s.Redundant }},
	{"slow", 0, 100, "percentage of environments in which tools take ten times as long", func(s *Setup) *int64 { return &s.Slow }},
	{"stopped", 0, 100, "percentage of environments that stop during a tool call, and are replaced after two minutes", func(s *Setup) *int64 { return &s.Stopped }},
	{"transfer", 0, 1, "1: engines can copy KV caches to each other; 0: prefixes are computed again", func(s *Setup) *int64 { return &s.Transfer }},
}

// SettingNames lists what Set accepts, but for task and model.
func SettingNames() []string {
	out := make([]string, len(settings))
	for i := range settings {
		out[i] = settings[i].name
	}
	return out
}

// SettingHelp says what a setting is, with its default.
func SettingHelp(name string) (help string, value int64) {
	d := Default()
	for i := range settings {
		if settings[i].name == name {
			return settings[i].help, *settings[i].of(&d)
		}
	}
	return "", 0
}

// Set changes a setting by its name: one of SettingNames, task or model.
func (s *Setup) Set(name, value string) error {
	switch name {
	case "task":
		if _, err := taskOf(value); err != nil {
			return err
		}
		s.Task = value
		return nil
	case "model":
		if _, err := modelOf(value); err != nil {
			return err
		}
		s.Model = value
		return nil
	}
	i := slices.IndexFunc(settings, func(t setting) bool { return t.name == name })
	if i < 0 {
		return fmt.Errorf("%w: there is no setting %q; there are task, model, %s", ErrSetup, name, strings.Join(SettingNames(), ", "))
	}
	v, err := strconv.ParseInt(value, 10, 64)
	if err != nil || v < settings[i].least || v > settings[i].most {
		return fmt.Errorf("%w: %s must be a whole number from %d to %d, not %q", ErrSetup, name, settings[i].least, settings[i].most, value)
	}
	*settings[i].of(s) = v
	return nil
}

// trajectoriesMax bounds a step: Heddle places 6,400 trajectories.
const trajectoriesMax = 65_536

// Check says what is wrong with a setup.
func (s *Setup) Check() error {
	for i := range settings {
		if v := *settings[i].of(s); v < settings[i].least || v > settings[i].most {
			return fmt.Errorf("%w: %s must be from %d to %d, not %d", ErrSetup, settings[i].name, settings[i].least, settings[i].most, v)
		}
	}
	if _, err := modelOf(s.Model); err != nil {
		return err
	}
	if s.Pool == nil {
		if _, err := taskOf(s.Task); err != nil {
			return err
		}
	}
	switch n, gpus := s.Batch*s.Workers, s.gpus(); {
	case s.Degree > 0 && (s.Degree&(s.Degree-1) != 0 || gpus%s.Degree != 0):
		return fmt.Errorf("%w: degree %d is not a power of two that divides the %d GPUs", ErrSetup, s.Degree, gpus)
	case n < s.Group:
		return fmt.Errorf("%w: batch %d x %d workers is less than a group of %d samples", ErrSetup, s.Batch, s.Workers, s.Group)
	case n > trajectoriesMax:
		return fmt.Errorf("%w: batch %d x %d workers is above %d trajectories", ErrSetup, s.Batch, s.Workers, trajectoriesMax)
	}
	return nil
}

// gpus is how many GPUs each policy has.
func (s *Setup) gpus() int64 {
	m, err := modelOf(s.Model)
	if err != nil {
		return 0 // Check refuses it
	}
	return s.Workers * m.degree
}

// trajectories is how many of a step count: whole groups.
func (s *Setup) trajectories() int64 { return s.Batch * s.Workers / s.Group * s.Group }

// step draws the trajectories of a step, from 0.
func (s *Setup) step(n int64) []Trajectory {
	if s.Pool != nil {
		return s.faulty(resampled(s.Pool, s, n), n)
	}
	t, err := taskOf(s.Task)
	if err != nil {
		return nil // Check refuses it
	}
	return s.faulty(synthetic(t, s, n), n)
}
