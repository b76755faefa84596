package scale

import (
	"math"
	"slices"
)

// CandidatesMax bounds how many demands are arranged together.
const CandidatesMax = 512

// never is the cost of what is infeasible. No sum of durations reaches it, and a
// duration can be added to it.
const never = 1 << 62

// Arranger divides units among demands so that the sum of their durations is
// least (Algorithm 3, read as "at most U units"). It answers for all demands
// first and then, one Evict after the other, for each prefix of them.
//
// It is reused: after the first few calls it allocates nothing.
type Arranger struct {
	demands []Demand
	unknown int64 // stands for unknown durations
	cost    int64
	choice  []int32 // which of its degrees each demand of the prefix gets
	current []int64 // how long it takes with it

	convex  bool // handed out unit by unit
	margins margins
	table   table
}

// OnLine arranges demands on free units of which any are as good as others. It
// keeps the demands until the next call.
func (a *Arranger) OnLine(free int, demands []Demand, unknown int64) {
	demands = a.start(demands, unknown)
	n, convex := 0, true
	least := 0
	for n < len(demands) && least+int(demands[n].dops.least) <= free {
		least += int(demands[n].dops.least)
		convex = convex && demands[n].convex
		n++
	}
	a.demands, a.convex = demands[:n], convex
	if convex {
		a.handOut(free - least)
		return
	}
	a.table.fillLine(free, a.demands, unknown)
	a.trace()
}

// On arranges demands on what is free in a topology.
func (a *Arranger) On(op Operator, demands []Demand, unknown int64) {
	a.demands, a.convex = a.start(demands, unknown), false
	a.table.fill(op, a.demands, unknown)
	n := len(a.demands)
	for a.table.cost(n) >= never {
		n-- // no demands at all are feasible: that costs 0
	}
	a.demands = a.demands[:n]
	a.trace()
}

func (a *Arranger) start(demands []Demand, unknown int64) []Demand {
	if len(demands) > CandidatesMax {
		demands = demands[:CandidatesMax]
	}
	a.unknown, a.cost = unknown, 0
	a.choice, a.current = a.choice[:0], a.current[:0]
	return demands
}

// Len returns how many demands the arrangement is for: at first as many as fit
// together with their least degrees.
func (a *Arranger) Len() int { return len(a.demands) }

// Cost returns the sum of their durations.
func (a *Arranger) Cost() int64 { return a.cost }

// DoP returns how many units the i-th of them gets.
func (a *Arranger) DoP(i int) int32 { return a.demands[i].dops.At(int(a.choice[i])) }

// Duration returns how long the i-th of them takes.
func (a *Arranger) Duration(i int) int64 { return a.current[i] }

// Evict takes the last demand out and arranges the others again.
func (a *Arranger) Evict() {
	last := len(a.demands) - 1
	freed := a.DoP(last)
	a.cost -= a.current[last]
	a.demands = a.demands[:last]
	a.choice, a.current = a.choice[:last], a.current[:last]
	if a.convex {
		a.spend(int(freed))
		return
	}
	a.trace()
}

// trace reads the arrangement out of the table.
func (a *Arranger) trace() {
	n := len(a.demands)
	a.cost = a.table.cost(n)
	a.choice = slices.Grow(a.choice[:0], n)[:n]
	a.current = slices.Grow(a.current[:0], n)[:n]
	at := a.table.column(n)
	for t := n; t > 0; t-- {
		d := &a.demands[t-1]
		i := 0
		i, at = a.table.back(t, at, d, a.unknown)
		a.choice[t-1], a.current[t-1] = int32(i), d.duration(i, a.unknown)
	}
}

// handOut gives every demand its least degree and hands out the rest unit by
// unit, each to the demand that it saves the most time (marginal allocation). For
// convex durations that is optimal: nobody's later unit saves more than an
// earlier one, so the units that save most can be had in that order.
func (a *Arranger) handOut(slack int) {
	n := len(a.demands)
	a.choice, a.current = slices.Grow(a.choice, n), slices.Grow(a.current, n)
	a.margins.reset(n)
	for i := range a.demands {
		d := &a.demands[i]
		ns := d.duration(0, a.unknown)
		a.cost += ns
		a.choice, a.current = append(a.choice, 0), append(a.current, ns)
		if g := a.gain(i); g > 0 {
			a.margins.heap = append(a.margins.heap, margin{g, int32(i)})
		}
	}
	a.margins.init()
	a.margins.slack = slack
	a.spend(0)
}

// gain returns how much time one more unit saves demand i.
func (a *Arranger) gain(i int) int64 {
	d, next := &a.demands[i], int(a.choice[i])+1
	if next >= d.choices() {
		return 0
	}
	return a.current[i] - d.ns[next]
}

// spend hands out what is left, with what was freed. Those that were evicted are
// still in the heap until they come to its top.
func (a *Arranger) spend(freed int) {
	m := &a.margins
	m.slack += freed
	for m.slack > 0 && len(m.heap) > 0 {
		top := m.heap[0]
		i := int(top.index)
		if i >= len(a.demands) {
			m.pop()
			continue
		}
		m.slack--
		a.choice[i]++
		a.current[i] -= top.gain
		a.cost -= top.gain
		if g := a.gain(i); g > 0 {
			m.heap[0].gain = g
			m.down(0)
		} else {
			m.pop()
		}
	}
}

// margin is how much time one more unit saves a demand.
type margin struct {
	gain  int64
	index int32
}

// before orders margins: what saves most, and of equals the oldest demand.
func (x margin) before(y margin) bool {
	return x.gain > y.gain || x.gain == y.gain && x.index < y.index
}

// margins is a heap of what the next unit would save each demand.
type margins struct {
	heap  []margin
	slack int // units not handed out
}

// reset makes room for so many demands.
func (m *margins) reset(n int) { m.heap, m.slack = slices.Grow(m.heap[:0], n), 0 }

func (m *margins) init() {
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
}

func (m *margins) pop() {
	last := len(m.heap) - 1
	m.heap[0] = m.heap[last]
	m.heap = m.heap[:last]
	m.down(0)
}

func (m *margins) down(i int) {
	h := m.heap
	if i >= len(h) {
		return
	}
	x := h[i]
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1].before(h[c]) {
			c++
		}
		if !h[c].before(x) {
			break
		}
		h[i] = h[c]
		i = c
	}
	h[i] = x
}

// table is the table of Algorithm 3: row t is for the first t demands.
//
// On a line, column s of row t is for s units beyond the least degrees of the
// first t, so every cell is feasible. On an operator, a column is a state.
type table struct {
	cells  []int64
	stride int
	onLine bool
	free   int
	least  []int32 // of the first t together, on a line

	full  int
	steps []int32 // by slot of degree and state: the state that is left
	slots []int32 // by degree: its slot in steps, plus one
}

func (t *table) row(i int) []int64 { return t.cells[i*t.stride : (i+1)*t.stride] }

// cost returns the optimum for the first n demands.
func (t *table) cost(n int) int64 { return t.row(n)[t.column(n)] }

// column returns the column of row n in which all that is free is to be had.
func (t *table) column(n int) int {
	if t.onLine {
		return t.free - int(t.least[n])
	}
	return t.full
}

func (t *table) size(rows, columns int) {
	t.stride = columns
	if need := rows * columns; cap(t.cells) < need {
		t.cells = make([]int64, need)
	} else {
		t.cells = t.cells[:need]
	}
}

// fillLine fills the table for demands that fit with their least degrees.
func (t *table) fillLine(free int, demands []Demand, unknown int64) {
	most := 0
	for i := range demands {
		d := &demands[i]
		most += int(d.dops.At(d.choices() - 1))
	}
	free = min(free, most)
	t.onLine, t.free = true, free
	t.size(len(demands)+1, free+1)
	t.least = append(t.least[:0], 0)
	clear(t.row(0))
	reach := 0 // more slack than this the first demands cannot use
	for i := range demands {
		d := &demands[i]
		least := t.least[i] + d.dops.least
		t.least = append(t.least, least)
		reach += int(d.dops.At(d.choices()-1) - d.dops.least)
		width := free - int(least) + 1
		prev, row := t.row(i)[:width], t.row(i + 1)[:width]
		used := min(width, reach+1)
		lineRow(row[:used], prev[:used], d, unknown)
		for s := used; s < width; s++ {
			row[s] = row[used-1]
		}
	}
}

// lineRow computes one row from the one before, both by slack: the least over all
// degrees of what the row before has for the slack that is left. Degrees are taken
// four at a time, as the row is then read and written a quarter as often.
func lineRow(row, prev []int64, d *Demand, unknown int64) {
	ns := d.duration(0, unknown)
	for s, v := range prev {
		row[s] = v + ns
	}
	var extras [4]int
	var durations [4]int64
	n := 0
	for i := 1; i < d.choices(); i++ {
		extra := int(d.dops.At(i) - d.dops.least)
		if extra >= len(row) {
			break
		}
		if d.ns[i] == ns {
			continue // no better than a smaller degree
		}
		ns = d.ns[i]
		extras[n], durations[n] = extra, ns
		if n++; n == len(extras) {
			relaxFour(row, prev, &extras, &durations)
			n = 0
		}
	}
	for i := range n {
		relax(row[extras[i]:], prev[:len(row)-extras[i]], durations[i])
	}
}

// relax lowers each cell to what the other row has there plus ns.
func relax(row, prev []int64, ns int64) {
	row = row[:len(prev)]
	for s, v := range prev {
		row[s] = min(row[s], v+ns)
	}
}

// relaxFour is relax for four ascending degrees beyond the least.
func relaxFour(row, prev []int64, extras *[4]int, ns *[4]int64) {
	last := extras[3]
	for i, e := range extras[:3] { // up to where all four fit
		relax(row[e:last], prev[:last-e], ns[i])
	}
	row = row[last:]
	a := prev[last-extras[0]:][:len(row)]
	b := prev[last-extras[1]:][:len(row)]
	c := prev[last-extras[2]:][:len(row)]
	d := prev[:len(row)]
	ns0, ns1, ns2, ns3 := ns[0], ns[1], ns[2], ns[3]
	for s, v := range row {
		row[s] = min(v, min(a[s]+ns0, b[s]+ns1), min(c[s]+ns2, d[s]+ns3))
	}
}

// fill fills the table for a topology.
func (t *table) fill(op Operator, demands []Demand, unknown int64) {
	states := op.States()
	t.onLine, t.full = false, op.Full()
	t.size(len(demands)+1, states+1) // the last column is for what is infeasible
	t.step(op, states, demands)
	clear(t.row(0))
	t.row(0)[states] = never
	for i := range demands {
		d := &demands[i]
		prev, row := t.row(i), t.row(i+1)
		for j := range row {
			row[j] = never
		}
		last := int64(math.MaxInt64)
		for c := range d.choices() {
			if ns := d.duration(c, unknown); ns < last {
				last = ns
				walk(row[:states], prev, t.left(d.dops.At(c)), ns)
			}
		}
	}
}

// walk lowers each cell to what the row before has for the state that is left.
func walk(row, prev []int64, left []int32, ns int64) {
	left = left[:len(row)]
	for j, p := range left {
		row[j] = min(row[j], prev[p]+ns)
	}
}

// left returns, by state, the state that is left when a degree is taken.
func (t *table) left(amount int32) []int32 {
	states := t.stride - 1
	slot := int(t.slots[amount]) - 1
	return t.steps[slot*states : (slot+1)*states]
}

// step asks the operator once for each state and degree.
func (t *table) step(op Operator, states int, demands []Demand) {
	clear(t.slots)
	t.steps = t.steps[:0]
	used := int32(0)
	for i := range demands {
		a := demands[i].dops
		for c := range demands[i].choices() {
			k := int(a.At(c))
			for len(t.slots) <= k {
				t.slots = append(t.slots, 0)
			}
			if t.slots[k] != 0 {
				continue
			}
			used++
			t.slots[k] = used
			for j := range states {
				p, ok := op.Prev(j, k)
				if !ok {
					p = states
				}
				t.steps = append(t.steps, int32(p))
			}
		}
	}
}

// back returns which degree the n-th demand gets in a cell of row n, the least of
// those that are optimal, and the column that is left of row n-1.
func (t *table) back(n, column int, d *Demand, unknown int64) (int, int) {
	want := t.row(n)[column]
	prev := t.row(n - 1)
	if t.onLine && d.dops.Contiguous() && len(d.ns) > 0 {
		for i, ns := range d.ns[:min(len(d.ns), column+1)] {
			if prev[column-i]+ns == want {
				return i, column - i
			}
		}
	}
	for i := range d.choices() {
		p := 0
		if t.onLine {
			p = column - int(d.dops.At(i)-d.dops.least)
		} else {
			p = int(t.left(d.dops.At(i))[column])
		}
		if prev[p]+d.duration(i, unknown) == want {
			return i, p
		}
	}
	panic("scale: a cell of the table comes from nowhere")
}
