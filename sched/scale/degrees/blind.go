package degrees

import "rota/sched/place/partition"

// Doubt is the percentage by which predictions of lengths are doubted where nothing else is known of
// them: half. Workers of unequal degrees are good only if the long trajectories are known.
const Doubt = 50

// deals is how many placements without knowledge are averaged.
const deals = 4

// blind is when workers have drained on average if trajectories are placed without knowledge of their
// lengths: as the greedy placement does if all have the mean length, and in an order that has
// nothing to do with length.
func (s *chooser) blind(of []int) (int64, error) {
	n := len(s.t.Lengths)
	equal := partition.Trajectories{Lengths: make([]int64, n)}
	mean := int64(0)
	for _, length := range s.t.Lengths {
		mean += min(length, partition.LengthMax)
	}
	for i := range equal.Lengths {
		equal.Lengths[i] = mean / int64(n)
	}
	if s.t.Contexts != nil {
		equal.Contexts, mean = make([]int64, n), 0
		for _, context := range s.t.Contexts {
			mean += min(context, partition.LengthMax)
		}
		for i := range equal.Contexts {
			equal.Contexts[i] = mean / int64(n)
		}
	}
	workers := s.these(of)
	dealt, _, err := s.planner.Greedy(equal, workers)
	if err != nil {
		return 0, err
	}
	sum, placed, stride := int64(0), make([]int, n), coprime(n)
	for deal := range deals {
		for i, worker := range dealt {
			placed[(i*stride+deal*n/deals)%n] = worker
		}
		ns, err := s.planner.DrainNS(s.t, workers, placed)
		if err != nil {
			return 0, err
		}
		sum += ns / deals
	}
	return sum, nil
}

// coprime is a number of about 0.618 n that has no divisor in common with n, so that its multiples
// are a permutation that spreads neighbours.
func coprime(n int) int {
	for stride := n * 618 / 1000; stride > 1; stride-- {
		a, b := n, stride
		for b > 0 {
			a, b = b, a%b
		}
		if a == 1 {
			return stride
		}
	}
	return 1
}
