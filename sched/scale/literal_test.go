package scale

import (
	"container/heap"
	"math"
	"slices"
)

// literal is Algorithms 1 to 3 as they are printed, corrected where they could
// not run (see doc.go). It is the oracle of the real thing, and its baseline.
type literal struct {
	depth int
	// exact reads Algorithm 3 as printed: all of the units are to be allocated,
	// or as many as all candidates together can use. Otherwise it is "at most".
	exact bool
	// lookAhead bounds who is looked at behind the candidates, and has the tail
	// estimated; less than 0 all are looked at.
	lookAhead int
}

// decide is Algorithm 1 for one key resource, from line 5 on.
func (l literal) decide(g Input) []int32 {
	queue := slices.Clone(g.Queue)
	n, least := 0, 0
	for n < min(len(queue), g.Candidates) && least+int(queue[n].dops.least) <= g.Free {
		least += int(queue[n].dops.least)
		n++
	}
	if n == 0 {
		return nil
	}
	if reach := max(0, min(len(queue), g.Candidates)+l.lookAhead); l.lookAhead >= 0 && reach < len(queue) {
		queue = queue[:reach]
	}
	unknown := mean(queue)
	if l.lookAhead >= 0 {
		queue = queue[:min(len(queue), n+l.lookAhead)]
		g.Behind += len(g.Queue) - len(queue)
	}
	candidates := queue[:n]
	if !slices.ContainsFunc(candidates, func(d Demand) bool { return d.Elastic() }) {
		return leastOf(candidates)
	}
	selected := n
	obj, ks := l.objective(g, queue, n, unknown)
	for t := 1; t < n; t++ {
		newObj, newKs := l.objective(g, queue, n-t, unknown)
		if newObj >= obj {
			break
		}
		obj, ks, selected = newObj, newKs, n-t
	}
	if obj == math.MaxInt64 { // no prefix fits exactly: as for what is not scalable
		return leastOf(candidates)
	}
	return ks[:selected]
}

func leastOf(ds []Demand) (ks []int32) {
	for i := range ds {
		ks = append(ks, ds[i].dops.least)
	}
	return ks
}

// objective is getApproximatedObjective of Algorithm 2.
func (l literal) objective(g Input, queue []Demand, n int, unknown int64) (int64, []int32) {
	exact, ks := literalArrange(g.Free, queue[:n], l.exact, unknown)
	if exact == math.MaxInt64 {
		return exact, nil
	}
	h := &completions{}
	for _, end := range g.Running {
		heap.Push(h, max(end, 0))
	}
	for i := range n {
		heap.Push(h, durationOf(&queue[i], ks[i], unknown))
	}
	approx, next := l.estimate(h, queue[n:], unknown)
	if l.lookAhead >= 0 {
		m := int64(g.Behind)
		approx += m*next + m*(m-1)/2*unknown/int64(h.Len())
	}
	return exact + approx, ks
}

func durationOf(d *Demand, k int32, unknown int64) int64 {
	for i := range d.choices() {
		if d.dops.At(i) == k {
			return d.duration(i, unknown)
		}
	}
	panic("not an allowed degree")
}

// estimate is estimate of Algorithm 2. It also returns when one more would start.
func (l literal) estimate(h *completions, c []Demand, unknown int64) (obj, next int64) {
	if len(c) == 0 {
		return 0, (*h)[0]
	}
	obj = int64(math.MaxInt64)
	for d := 1; d <= l.depth && d <= c[0].choices(); d++ {
		tmp := &completions{}
		*tmp = slices.Clone(*h)
		ts := heap.Pop(tmp).(int64)
		end := ts + c[0].duration(d-1, unknown)
		tmpObj := end
		heap.Push(tmp, end)
		for i := 1; i < len(c); i++ {
			ts := heap.Pop(tmp).(int64)
			end := ts + c[i].duration(0, unknown)
			tmpObj += end
			heap.Push(tmp, end)
		}
		if tmpObj <= obj {
			obj, next = tmpObj, (*tmp)[0]
		}
	}
	return obj, next
}

// literalArrange is Algorithm 3 with its basic operator. Whether a cell can be
// reached is whether it is finite, which is what IsValid computes in exponential
// time: see TestIsValidIsWhatTheTableSays.
func literalArrange(units int, c []Demand, exact bool, unknown int64) (int64, []int32) {
	const inf = math.MaxInt64
	m, end := len(c), 0
	for i := range c {
		end += int(c[i].dops.At(c[i].choices() - 1))
	}
	n := min(units, end)
	if n < m {
		return inf, nil
	}
	dp, choice := make([][]int64, m+1), make([][]int32, m+1)
	for i := range dp {
		dp[i], choice[i] = slices.Repeat([]int64{inf}, n+1), make([]int32, n+1)
	}
	dp[0][0] = 0
	if !exact {
		clear(dp[0])
	}
	startPrev, start := 0, int(c[0].dops.least)
	for i := 1; i <= m; i++ {
		for j := start; j <= n; j++ {
			for k := range c[i-1].choices() {
				prev := j - int(c[i-1].dops.At(k))
				if prev < startPrev || dp[i-1][prev] == inf {
					continue
				}
				if v := dp[i-1][prev] + c[i-1].duration(k, unknown); v < dp[i][j] {
					dp[i][j], choice[i][j] = v, c[i-1].dops.At(k)
				}
			}
		}
		startPrev = start
		if i < m {
			start += int(c[i].dops.least)
		}
	}
	if dp[m][n] == inf {
		return inf, nil
	}
	ks, j := make([]int32, m), n
	for i := m; i > 0; i-- {
		ks[i-1] = choice[i][j]
		j -= int(ks[i-1])
	}
	return dp[m][n], ks
}

// isValid is IsValid of the basic operator as printed.
func isValid(r int, x []Demand) bool {
	if r < 0 {
		return false
	}
	if len(x) == 0 {
		return r == 0
	}
	for i := range x[0].choices() {
		u := int(x[0].dops.At(i))
		if u <= r && isValid(r-u, x[1:]) {
			return true
		}
	}
	return false
}

type completions []int64

func (h completions) Len() int           { return len(h) }
func (h completions) Less(i, j int) bool { return h[i] < h[j] }
func (h completions) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *completions) Push(x any)        { *h = append(*h, x.(int64)) }
func (h *completions) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
