package check

import (
	"maps"
	"slices"

	"rota/jepsen/history"
)

// samples: a step of training gets the same batch whenever it asks. A sample is given to one
// step, as it was put, together with the others of its group and no more than complete it. When
// its step first asked, not more versions had been published since it began than its rollout
// allows. Steps are in order. A group of which enough samples were accepted, and which cannot
// grow too old, is given to a step by the end.
func samples(e *evidence, f *findings) {
	t := trainingOf(e.Ops)
	for _, b := range t.batches {
		f.checked++
		t.sameAgain(b, f)
		for _, s := range b[0].Batch {
			t.asItWasPut(s, b, f)
			t.fresh(s, b, f)
		}
		t.whole(b, f)
	}
	t.once(f)
	t.inOrder(f)
	if e.Healing.Settled != 0 {
		t.nothingLost(f)
	}
}

// training is all that clients know of rollouts and their samples.
type training struct {
	// batches are the answers of each step, those of one step in the order of their starts.
	batches [][]history.Op
	// asked is when the first call for the step of a policy began.
	asked map[step]int64
	// rollouts are by ID, members by trajectory.
	rollouts  map[uint64]history.Op
	members   map[uint64]history.Op
	puts      map[uint64][]history.Op
	published map[string][]history.Op
}

type step struct {
	policy string
	number uint64
}

// prompt is a group of a rollout.
type prompt struct {
	rollout uint64
	number  uint32
}

func trainingOf(ops []history.Op) *training {
	t := &training{
		asked: map[step]int64{}, rollouts: map[uint64]history.Op{}, members: map[uint64]history.Op{},
		puts: map[uint64][]history.Op{}, published: map[string][]history.Op{},
	}
	answered := map[step][]history.Op{}
	for _, op := range ops {
		switch at := (step{op.Policy, op.Step}); op.Verb {
		case history.GetBatch:
			if first, ok := t.asked[at]; !ok || op.Start < first {
				t.asked[at] = op.Start
			}
			if op.Outcome == history.OK {
				answered[at] = append(answered[at], op)
			}
		case history.CreateRollout:
			if op.Outcome == history.OK {
				t.rollouts[op.IDs[0]] = op
			}
		case history.OpenMember:
			if op.Outcome == history.OK {
				t.members[op.IDs[0]] = op
			}
		case history.PutSample:
			t.puts[op.Target] = append(t.puts[op.Target], op)
		case history.PublishVersion:
			t.published[op.Policy] = append(t.published[op.Policy], op)
		}
	}
	for _, list := range answered {
		slices.SortStableFunc(list, func(a, b history.Op) int { return int(a.Start - b.Start) })
		t.batches = append(t.batches, list)
	}
	slices.SortFunc(t.batches, func(a, b []history.Op) int { return int(a[0].Start - b[0].Start) })
	return t
}

func (t *training) sameAgain(answers []history.Op, f *findings) {
	for _, again := range answers[1:] {
		if !slices.Equal(again.Batch, answers[0].Batch) {
			f.add(describeOps(answers[0], again), "step %d of %s was given two batches", again.Step, again.Policy)
		}
	}
}

// asItWasPut: somebody put this sample, of this member, and was not refused every time.
func (t *training) asItWasPut(s history.TrainSample, answers []history.Op, f *findings) {
	member, known := t.members[s.Trajectory]
	if known && (member.Target != s.Rollout || member.Prompt != s.Prompt) {
		f.add(describeOps(member, answers[0]), "the sample of trajectory %d was given as one of prompt %d of rollout %d", s.Trajectory, s.Prompt, s.Rollout)
	}
	put := slices.ContainsFunc(t.puts[s.Trajectory], func(op history.Op) bool {
		may := op.Outcome == history.Unknown || op.Outcome == history.OK && op.Accepted
		return may && op.Reward == s.Reward && op.Start <= answers[0].End
	})
	if !put {
		f.add(append(describeOps(t.puts[s.Trajectory]...), describeOp(answers[0])), "the sample of trajectory %d was given as nobody put it", s.Trajectory)
	}
}

// fresh: the versions that were published for certain before the step first asked allow it.
func (t *training) fresh(s history.TrainSample, answers []history.Op, f *findings) {
	first := answers[0]
	rollout, known := t.rollouts[s.Rollout]
	if !known {
		return
	}
	asked := t.asked[step{first.Policy, first.Step}]
	for _, op := range t.published[first.Policy] {
		if op.Outcome == history.OK && op.End < asked && s.Version+uint64(rollout.Staleness) < op.Version {
			f.add(describeOps(rollout, op, first), "the sample of trajectory %d began with version %d, which was too old for step %d", s.Trajectory, s.Version, first.Step)
			return
		}
	}
}

// whole: each group of a batch is there with as many samples as complete it.
func (t *training) whole(answers []history.Op, f *findings) {
	sizes := map[prompt]uint32{}
	for _, s := range answers[0].Batch {
		sizes[prompt{s.Rollout, s.Prompt}]++
	}
	for p, n := range sizes {
		if rollout, known := t.rollouts[p.rollout]; known && n != rollout.Need {
			f.add(describeOps(rollout, answers[0]), "prompt %d of rollout %d was given with %d samples", p.number, p.rollout, n)
		}
	}
}

// once: no sample and no group is given to two steps.
func (t *training) once(f *findings) {
	samples, prompts := map[uint64]history.Op{}, map[prompt]history.Op{}
	for _, answers := range t.batches {
		op := answers[0]
		here := map[prompt]bool{}
		for _, s := range op.Batch {
			if other, twice := samples[s.Trajectory]; twice {
				f.add(describeOps(other, op), "the sample of trajectory %d was given twice", s.Trajectory)
			}
			samples[s.Trajectory] = op
			p := prompt{s.Rollout, s.Prompt}
			if other, twice := prompts[p]; twice && !here[p] {
				f.add(describeOps(other, op), "prompt %d of rollout %d was given to two steps", s.Prompt, s.Rollout)
			}
			prompts[p], here[p] = op, true
		}
	}
}

// inOrder: nobody gets the batch of a step after the next one was given.
func (t *training) inOrder(f *findings) {
	newest := map[string]history.Op{}
	var all []history.Op
	for _, answers := range t.batches {
		all = append(all, answers...)
	}
	ends := slices.Clone(all)
	slices.SortStableFunc(ends, func(a, b history.Op) int { return int(a.End - b.End) })
	slices.SortStableFunc(all, func(a, b history.Op) int { return int(a.Start - b.Start) })
	for _, op := range all {
		for len(ends) > 0 && ends[0].End < op.Start {
			if ends[0].Step > newest[ends[0].Policy].Step {
				newest[ends[0].Policy] = ends[0]
			}
			ends = ends[1:]
		}
		if newest[op.Policy].Step > op.Step {
			f.add(describeOps(newest[op.Policy], op), "step %d of %s was answered after step %d", op.Step, op.Policy, newest[op.Policy].Step)
		}
	}
}

// nothingLost: what nobody could take away was given to a step.
func (t *training) nothingLost(f *findings) {
	given := map[uint64]bool{}
	for _, answers := range t.batches {
		for _, s := range answers[0].Batch {
			given[s.Trajectory] = true
		}
	}
	accepted := map[prompt][]history.Op{}
	for _, trajectory := range slices.Sorted(maps.Keys(t.puts)) {
		member, known := t.members[trajectory]
		i := slices.IndexFunc(t.puts[trajectory], func(op history.Op) bool { return op.Outcome == history.OK && op.Accepted })
		if known && i >= 0 {
			p := prompt{member.Target, member.Prompt}
			accepted[p] = append(accepted[p], t.puts[trajectory][i])
		}
	}
	for p, puts := range accepted {
		rollout, known := t.rollouts[p.rollout]
		if !known || len(puts) < int(rollout.Need) || rollout.Staleness < ageless {
			continue
		}
		for _, op := range puts {
			if f.checked++; !given[op.Target] {
				f.add(describeOps(rollout, op), "the sample of trajectory %d was accepted, its group was complete, and no step got it", op.Target)
			}
		}
	}
}

// ageless is a staleness that no run reaches.
const ageless = 1_000_000
