package workload

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"rota/fsm/state"
)

// Bounds of a workload. They keep a trajectory's number, its step and its turn
// in one 64-bit key, and sums of durations in 63 bits.
const (
	batchMax = 1 << 24
	stepsMax = 1 << 16
	turnsMax = 1 << 12
	unitsMax = 1 << 20
	// durationMax is 30 days.
	durationMax = 30 * 24 * 3600 * 1_000_000_000
)

func mulDiv(a, b, c int64) int64 {
	return int64(state.MulDiv(uint64(a), uint64(b), uint64(c)))
}

// check finds what would make the workload meaningless.
func (p *Params) check() error {
	if len(p.Tasks) == 0 {
		return errors.New("there is no task")
	}
	if err := p.Cluster.check(); err != nil {
		return err
	}
	for i := range p.Services {
		if s := &p.Services[i]; len(s.Names) == 0 || s.RestoreRate.Value <= 0 || s.RestoreRate.Value > 1<<42 {
			return fmt.Errorf("services.%d: no names, or a restore_rate that is not positive", i)
		}
	}
	for i := range p.Providers {
		if err := p.Providers[i].check(); err != nil {
			return fmt.Errorf("providers.%s: %w", p.Providers[i].Name, err)
		}
	}
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if slices.ContainsFunc(p.Tasks[:i], func(other Task) bool { return other.Name == t.Name }) {
			return fmt.Errorf("two tasks are called %q", t.Name)
		}
		if err := p.checkTask(t); err != nil {
			return fmt.Errorf("tasks.%s: %w", t.Name, err)
		}
	}
	return nil
}

func (c *Cluster) check() error {
	if c.CoresPerNode.Value == 0 || c.NUMAPerNode.Value == 0 || c.CoresPerNode.Value%c.NUMAPerNode.Value != 0 {
		return errors.New("cluster: cores_per_node is not a multiple of numa_per_node")
	}
	for _, n := range []Quantity{c.CPUNodes.Value, c.CoresPerNode.Value, c.GPUNodes.Value, c.GPUsPerNode.Value} {
		if n > unitsMax {
			return fmt.Errorf("cluster: %d of something is above %d", n, unitsMax)
		}
	}
	return nil
}

func (v *Provider) check() error {
	switch {
	case v.Limit.Value == 0 || v.Limit.Value > unitsMax, v.Keys.Value == 0 || v.Keys.Value > unitsMax:
		return errors.New("limit and keys are at least 1")
	case v.ErrorPPM.Value > million || v.OverrunErrorPPM.Value > million:
		return errors.New("a share is above 1000000 ppm")
	case v.OverrunLatency.Value.Max() > durationMax || v.Window.Value > durationMax:
		return errors.New("a time is above 30 days")
	}
	return nil
}

func (p *Params) checkTask(t *Task) error {
	switch {
	case t.Batch.Value == 0 || t.Batch.Value > batchMax:
		return fmt.Errorf("batch is not between 1 and %d", batchMax)
	case t.Steps.Value == 0 || t.Steps.Value > stepsMax:
		return fmt.Errorf("steps is not between 1 and %d", stepsMax)
	case t.Group.Value == 0:
		return errors.New("group is 0")
	case t.Turns.Value.Max() > turnsMax:
		return fmt.Errorf("turns is above %d", turnsMax)
	case t.Start.Value.Max() > durationMax || t.Think.Value.Max() > durationMax || t.Train.Value > durationMax:
		return errors.New("a time is above 30 days")
	case t.ThinkPPM.Value > 1000*million:
		return errors.New("think_ppm is above a thousand times")
	case t.Turns.Value.Max() > 0 && len(t.Tools) == 0:
		return errors.New("it has turns, but no tools")
	}
	for _, list := range [][]Spec{t.Tools, t.Rewards} {
		var weight Quantity
		for i := range list {
			weight += list[i].Weight.Value
			if err := p.checkSpec(&list[i]); err != nil {
				return fmt.Errorf("%s: %w", list[i].Class, err)
			}
		}
		if len(list) > 0 && weight == 0 {
			return errors.New("all weights are 0")
		}
	}
	return nil
}

func (p *Params) checkSpec(s *Spec) error {
	u := &s.Units.Value
	if u.Set != nil {
		if len(u.Set) == 0 || u.Min+u.Max != 0 && (u.Min != u.Set[0] || u.Max != u.Set[len(u.Set)-1]) {
			return errors.New("units are a range or a set")
		}
		u.Min, u.Max = u.Set[0], u.Set[len(u.Set)-1]
	}
	if u.Min < 1 || u.Max < u.Min || u.Max > unitsMax {
		return fmt.Errorf("units %d to %d are no range of positive numbers", u.Min, u.Max)
	}
	for i := 1; i < len(u.Set); i++ {
		if u.Set[i] <= u.Set[i-1] {
			return errors.New("units: the set is not ascending")
		}
	}
	switch {
	case s.SerialPPM != nil && s.RatioPPM != nil:
		return errors.New("serial_ppm and ratio_ppm are two curves")
	case u.Min < u.Max && s.SerialPPM == nil && s.RatioPPM == nil:
		return errors.New("it is elastic, but has no curve")
	case s.SerialPPM != nil && s.SerialPPM.Value.Max() > million:
		return errors.New("serial_ppm is above 1000000")
	case s.Noise != nil && s.Noise.Value.Max() > 1000*million:
		return errors.New("noise_ppm is above a thousand times")
	case s.Size != nil && s.Size.Value.Max() > 1000*million:
		return errors.New("size_ppm is above a thousand times")
	case s.Duration.Value.Max() > durationMax:
		return errors.New("duration is above 30 days")
	case s.Weight.Value > million:
		return errors.New("weight is above 1000000")
	}
	if s.RatioPPM != nil {
		if err := ratioCheck(s.RatioPPM.Value); err != nil {
			return err
		}
	}
	return p.checkNeeds(s)
}

func (p *Params) checkNeeds(s *Spec) error {
	needs := []Need{{s.Resource, 1}}
	if s.Also != nil {
		needs = append(needs, s.Also.Value...)
	}
	for _, n := range needs {
		provider, quota := strings.CutPrefix(n.Resource, "quota:")
		switch {
		case quota && p.Provider(provider) == nil:
			return fmt.Errorf("there is no provider %q", provider)
		case !quota && n.Resource != "cpu" && n.Resource != "gpu":
			return fmt.Errorf("resource %q is not cpu, gpu or quota:PROVIDER", n.Resource)
		case n.Units < 1 || n.Units > unitsMax:
			return fmt.Errorf("%d units of %s", n.Units, n.Resource)
		}
	}
	if s.Variants == nil {
		if s.Service != "" && p.Service(s.Service) == nil {
			return fmt.Errorf("there is no service %q", s.Service)
		}
		return nil
	}
	var weight int64
	for _, v := range s.Variants.Value {
		if p.Service(v.Name) == nil {
			return fmt.Errorf("variants: there is no service %q", v.Name)
		}
		if v.Weight < 0 || v.Weight > million || v.DurationPPM <= 0 || v.DurationPPM > 1000*million || v.ThinkPPM <= 0 || v.ThinkPPM > 1000*million {
			return fmt.Errorf("variants: %s: a weight or a scale is out of bounds", v.Name)
		}
		weight += v.Weight
	}
	if weight == 0 {
		return errors.New("variants: all weights are 0")
	}
	return nil
}
