package partition_test

import (
	"math"
	"slices"
)

// An oracle knows nothing of curves, only times by hand: F(n)*tau of worker k is cost[k][n].

// literalDP is Heddle's dynamic programme (formula 3) as printed: trajectories sorted, the longest
// first, and workers in the given order. dp[i] after worker k is the least makespan of the first
// i trajectories on the first k workers.
func literalDP(lengths []int64, cost [][]int64) int64 {
	n := len(lengths)
	dp := make([]int64, n+1)
	for i := 1; i <= n; i++ {
		dp[i] = cost[0][i] * lengths[0]
	}
	for k := 1; k < len(cost); k++ {
		row := make([]int64, n+1)
		for i := 1; i <= n; i++ {
			row[i] = dp[i] // an empty group
			for j := 0; j < i; j++ {
				row[i] = min(row[i], max(dp[j], cost[k][i-j]*lengths[j]))
			}
		}
		dp = row
	}
	return dp[n]
}

// leastOfOrders is the literal programme over all orders of workers.
func leastOfOrders(lengths []int64, cost [][]int64) int64 {
	least := int64(math.MaxInt64)
	permute(slices.Clone(cost), 0, func(order [][]int64) { least = min(least, literalDP(lengths, order)) })
	return least
}

func permute[T any](s []T, from int, visit func([]T)) {
	if from == len(s) {
		visit(s)
		return
	}
	for i := from; i < len(s); i++ {
		s[from], s[i] = s[i], s[from]
		permute(s, from+1, visit)
		s[from], s[i] = s[i], s[from]
	}
}

// leastOfAll is the least makespan over every way to give trajectories to workers, runs or not.
// A worker's time for a token is cost[k][n] plus share[k] for each token of context.
func leastOfAll(lengths, contexts []int64, cost [][]int64, share []int64) int64 {
	least := int64(math.MaxInt64)
	of := make([]int, len(lengths))
	var give func(i int)
	give = func(i int) {
		if i == len(of) {
			least = min(least, makespanOf(of, lengths, contexts, cost, share))
			return
		}
		for k := range cost {
			of[i] = k
			give(i + 1)
		}
	}
	give(0)
	return least
}

// makespanOf is the makespan of a placement.
func makespanOf(of []int, lengths, contexts []int64, cost [][]int64, share []int64) (makespan int64) {
	for k := range cost {
		var size int
		var longest, context int64
		for i, worker := range of {
			if worker == k {
				size++
				longest = max(longest, lengths[i])
				if contexts != nil {
					context += contexts[i]
				}
			}
		}
		if size > 0 {
			makespan = max(makespan, longest*(cost[k][size]+share[k]*context))
		}
	}
	return makespan
}
