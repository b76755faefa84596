package workload

import (
	"cmp"
	"slices"
)

// Summary is what a workload asks for, before anybody has scheduled it: nothing
// queues, and every elastic action gets the same width where it can. Times are
// nanoseconds.
type Summary struct {
	Trajectories, Actions int64
	// Think, Tool and Reward are per action, Turns per trajectory.
	Turns, Think, Tool, Reward Stats
	// Active is the share of a trajectory's life in which it has an action, in
	// parts per million; Life is from its start to its end.
	Active, Life Stats
	// ToolTotal and RewardTotal are sums over all actions.
	ToolTotal, RewardTotal int64
	Classes                []ClassStats
	// Busiest and Quietest are actions submitted in one Window of the first step,
	// of the windows from its first action to its last.
	Window, Busiest, Quietest int64
	// Peak is the most actions of each key resource that run at once in the first
	// step, largest first.
	Peak []Peak
}

// Stats describes numbers. The zero value is that of none.
type Stats struct {
	N, Mean, Min, P50, P90, P99, Max int64
}

// ClassStats is what a class takes at the width of the summary.
type ClassStats struct {
	Class string
	Stats
}

// Peak is the most units of a resource that are in use at once.
type Peak struct {
	Resource string
	Units    int64
}

// ActionMean returns the mean time of all actions.
func (s *Summary) ActionMean() int64 { return (s.ToolTotal + s.RewardTotal) / max(1, s.Actions) }

// RewardPPM returns the share of rewards in the time of all actions.
func (s *Summary) RewardPPM() int64 {
	return mulDiv(s.RewardTotal, million, max(1, s.ToolTotal+s.RewardTotal))
}

const summaryWindow = 10_000_000_000

// summarizer collects what a Summary is made of.
type summarizer struct {
	Summary
	turns, think, tool, reward, active, life []int64
	classes                                  map[string][]int64
	starts                                   []int64
	changes                                  map[string][]change
}

// change is units of a resource taken or given back.
type change struct{ at, units int64 }

// Summarize goes through all trajectories, with elastic actions at the largest
// allowed width that is not above width.
func Summarize(g *Generator, width int64) Summary {
	s := summarizer{classes: make(map[string][]int64), changes: make(map[string][]change)}
	var t Trajectory
	for i := range g.Len() {
		g.Fill(&t, i)
		s.add(&t, width)
	}
	return s.finish()
}

// SummarizeAll is Summarize for trajectories at hand.
func SummarizeAll(all []Trajectory, width int64) Summary {
	s := summarizer{classes: make(map[string][]int64), changes: make(map[string][]change)}
	for i := range all {
		s.add(&all[i], width)
	}
	return s.finish()
}

func (s *summarizer) add(t *Trajectory, width int64) {
	now, busy := t.Start, int64(0)
	for i := range t.Turns {
		a := &t.Turns[i].Action
		units := a.Widest(width)
		d := a.Duration(units)
		now += t.Turns[i].Think
		if t.Step == 0 {
			s.starts = append(s.starts, now)
			for j, c := range a.Cost {
				n := units
				if j > 0 {
					n = c.Min
				}
				s.changes[c.Resource] = append(s.changes[c.Resource], change{now, n}, change{now + d, -n})
			}
		}
		now += d
		busy += d
		s.think = append(s.think, t.Turns[i].Think)
		s.classes[a.Class] = append(s.classes[a.Class], d)
		if a.Kind == Reward {
			s.reward = append(s.reward, d)
			s.RewardTotal += d
		} else {
			s.tool = append(s.tool, d)
			s.ToolTotal += d
		}
	}
	s.Trajectories++
	s.Actions += int64(len(t.Turns))
	s.turns = append(s.turns, int64(len(t.Turns)))
	s.life = append(s.life, now-t.Start)
	if now > t.Start {
		s.active = append(s.active, mulDiv(busy, million, now-t.Start))
	}
}

func (s *summarizer) finish() Summary {
	s.Turns, s.Think, s.Tool, s.Reward = stats(s.turns), stats(s.think), stats(s.tool), stats(s.reward)
	s.Active, s.Life = stats(s.active), stats(s.life)
	for class, durations := range s.classes {
		s.Classes = append(s.Classes, ClassStats{class, stats(durations)})
	}
	slices.SortFunc(s.Classes, func(a, b ClassStats) int { return cmp.Compare(a.Class, b.Class) })
	s.bursts()
	for resource, changes := range s.changes {
		s.Peak = append(s.Peak, Peak{resource, peak(changes)})
	}
	slices.SortFunc(s.Peak, func(a, b Peak) int {
		return cmp.Or(cmp.Compare(b.Units, a.Units), cmp.Compare(a.Resource, b.Resource))
	})
	return s.Summary
}

// bursts counts what is submitted in each window.
func (s *summarizer) bursts() {
	s.Window = summaryWindow
	if len(s.starts) == 0 {
		return
	}
	slices.Sort(s.starts)
	first, last := s.starts[0]/summaryWindow, s.starts[len(s.starts)-1]/summaryWindow
	s.Quietest = int64(len(s.starts))
	at := 0
	for w := first; w <= last; w++ {
		n := int64(0)
		for at < len(s.starts) && s.starts[at]/summaryWindow == w {
			n++
			at++
		}
		s.Busiest, s.Quietest = max(s.Busiest, n), min(s.Quietest, n)
	}
}

// peak is the largest sum of changes, those that give back first.
func peak(changes []change) int64 {
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.units, b.units))
	})
	var held, most int64
	for _, c := range changes {
		held += c.units
		most = max(most, held)
	}
	return most
}

func stats(v []int64) Stats {
	if len(v) == 0 {
		return Stats{}
	}
	slices.Sort(v)
	var sum int64
	for _, x := range v {
		sum += x
	}
	n := int64(len(v))
	at := func(percent int64) int64 { return v[percent*(n-1)/100] }
	return Stats{N: n, Mean: sum / n, Min: v[0], P50: at(50), P90: at(90), P99: at(99), Max: v[n-1]}
}
