package degrees

import "rota/sched/place/partition"

// Spread returns lengths of n trajectories of which only the mean is known, in tokens, the longest
// first. They are what the longest, the second longest, ... of n draws of an exponential
// distribution are expected to be: the k-th is the mean times 1/k + ... + 1/n. So a step of which
// nothing was learned is taken to have a long tail, as rollouts have. It returns nil for no
// trajectories. A mean is taken to be from 1 to partition.LengthMax.
func Spread(n int, mean int64) []int64 {
	const unit = 1 << 16
	if n < 1 {
		return nil
	}
	lengths, sum := make([]int64, n), int64(0)
	mean = min(max(mean, 1), partition.LengthMax)
	for k := n; k >= 1; k-- {
		sum += mean * unit / int64(k)
		lengths[k-1] = min(max(sum/unit, 1), partition.LengthMax)
	}
	return lengths
}
