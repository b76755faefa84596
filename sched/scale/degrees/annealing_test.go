package degrees_test

import (
	"math"
	"math/rand/v2"
	"slices"
)

// annealing is Heddle's sort-initialised simulated annealing (Algorithm 2), the baseline.
type annealing struct {
	lengths []int64
	gpus    []int     // degrees to choose from
	cost    [][]int64 // for each of them, the time for a token by size of the group
	budget  int
	random  *rand.Rand
	cooling float64
}

// best anneals from the temperature of the first allocation to a thousandth of it.
func (s *annealing) best() int64 {
	now := s.first()
	time := s.time(now)
	best := time
	for temperature := float64(time); temperature > float64(best)/1000; temperature *= s.cooling {
		other := s.perturb(now)
		if len(other) == 0 {
			continue
		}
		change := s.time(other) - time
		if change < 0 || s.random.Float64() < math.Exp(-float64(change)/temperature) {
			now, time = other, time+change
		}
		best = min(best, time)
	}
	return best
}

// first is a random allocation of the budget, degrees falling.
func (s *annealing) first() []int {
	var now []int
	for left := s.budget; ; {
		fits := s.fitting(left)
		if len(fits) == 0 {
			return sorted(now)
		}
		d := fits[s.random.IntN(len(fits))]
		now, left = append(now, d), left-s.gpus[d]
	}
}

func (s *annealing) fitting(left int) (fits []int) {
	for d, gpus := range s.gpus {
		if gpus <= left {
			fits = append(fits, d)
		}
	}
	return fits
}

// perturb redistributes GPUs between two workers, splits one or merges two.
func (s *annealing) perturb(now []int) []int {
	next := slices.Clone(now)
	i, j := s.random.IntN(len(next)), s.random.IntN(len(next))
	a, b := next[i], next[j]
	switch s.random.IntN(3) {
	case 0: // one up, one down
		if i != j && a+1 < len(s.gpus) && b > 0 {
			next[i], next[j] = a+1, b-1
		}
	case 1:
		if a > 0 {
			next[i] = a - 1
			next = append(next, a-1)
		}
	case 2:
		if i != j && a == b && a+1 < len(s.gpus) {
			next[i] = a + 1
			next = slices.Delete(next, j, j+1)
		}
	}
	sum := 0
	for _, d := range next {
		sum += s.gpus[d]
	}
	if sum > s.budget {
		return nil
	}
	return sorted(next)
}

func sorted(degrees []int) []int {
	slices.SortFunc(degrees, func(a, b int) int { return b - a })
	return degrees
}

func (s *annealing) time(now []int) int64 {
	var cost [][]int64
	for _, d := range now {
		cost = append(cost, s.cost[d])
	}
	return literalDP(s.lengths, cost)
}

// literalDP is Heddle's dynamic programme (formula 3), workers in the given order.
func literalDP(lengths []int64, cost [][]int64) int64 {
	n := len(lengths)
	dp := make([]int64, n+1)
	for i := 1; i <= n; i++ {
		dp[i] = cost[0][i] * lengths[0]
	}
	for _, times := range cost[1:] {
		row := make([]int64, n+1)
		for i := 1; i <= n; i++ {
			row[i] = dp[i]
			for j := 0; j < i; j++ {
				row[i] = min(row[i], max(dp[j], times[i-j]*lengths[j]))
			}
		}
		dp = row
	}
	return dp[n]
}
