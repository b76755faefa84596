package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// JobID names a job. 0 is none.
type JobID uint64

// GroupID names a group. 0 is none.
type GroupID uint64

// Group is a row: nodes that are held together, by one job at a time.
type Group struct {
	ID     GroupID
	Nodes  int64
	Period int64 // of all members; 0 if there are none
}

// Resident is a row: a job on a group, and since when its cycle repeats.
type Resident struct {
	Job   JobID
	Group GroupID
	Cycle Cycle
	// Dedicated is a job whose cycle is not known. It has its group for itself.
	Dedicated bool
	// Anchor is the slot at which a cycle of it starts: the one that runs, or the
	// first. Nothing before it is reserved.
	Anchor int64
	// Index is which of the cycles in the period of the group that is.
	Index int64
	// Began is the slot from which Waited counts: for how many slots the job was
	// ready for a cycle whose turn had not come. It is the slowdown it is charged.
	Began, Waited int64
}

// starts returns where cycle k after the anchor starts, and base what its index is
// counted from.
func (r *Resident) starts(period, k int64) int64 {
	n := cycles(period, r.Cycle.Period)
	return r.base(period) + begins(period, r.Index+k, n)
}

func (r *Resident) base(period int64) int64 {
	return r.Anchor - begins(period, r.Index, cycles(period, r.Cycle.Period))
}

// each visits what is reserved for a job from one slot until another, neighbours as
// one.
func (r *Resident) each(period, from, to int64, visit func(start, end, nodes int64)) {
	from = max(from, r.Anchor)
	n, base := cycles(period, r.Cycle.Period), r.base(period)
	k := max(r.Index, (from-base)/period*n+(from-base)%period*n/period)
	start, end, nodes := from, from, int64(0)
	for ; ; k++ {
		begin := base + begins(period, k, n)
		if begin >= to {
			break
		}
		for _, s := range r.Cycle.Segments {
			a, b := max(begin+s.Offset, from), min(begin+s.End(), to)
			switch {
			case a >= b:
			case a == end && s.Nodes == nodes:
				end = b
			default:
				if start < end {
					visit(start, end, nodes)
				}
				start, end, nodes = a, b, s.Nodes
			}
		}
	}
	if start < end {
		visit(start, end, nodes)
	}
}

// Ledger is what is reserved of a set of groups. Its rows are Groups and Residents;
// all else is derived from them (Build).
type Ledger struct {
	config Config
	ring   ring // how many nodes are free, of all groups; its tree is made when it is asked
	total  int64
	groups []*group         // by ID
	jobs   map[JobID]*group // where each is
	spare  circle           // for trying out
}

type group struct {
	Group
	members []Resident // by job
	circle  circle
}

// New makes a ledger without groups, with a window that starts at a slot.
func New(c Config, head int64) (*Ledger, error) { return Build(c, head, nil, nil) }

// Build makes the ledger that these rows are of. Groups and residents may come in
// any order.
func Build(c Config, head int64, groups []Group, residents []Resident) (*Ledger, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if head < 0 {
		return nil, fmt.Errorf("the window starts at slot %d, and must not start before 0", head)
	}
	l := &Ledger{config: c, jobs: make(map[JobID]*group)}
	l.ring = ring{n: c.Slots, head: head}
	for _, row := range groups {
		period := row.Period
		if err := l.insert(row); err != nil {
			return nil, err
		}
		l.find(row.ID).Period = period
	}
	for _, r := range residents {
		if err := l.load(r); err != nil {
			return nil, err
		}
	}
	for _, g := range l.groups {
		slices.SortFunc(g.members, byJob)
		if len(g.members) > 0 && !g.circle.layOut(g.Period, g.members) {
			return nil, fmt.Errorf("two jobs have group %d at once", g.ID)
		}
	}
	return l, nil
}

func byJob(a, b Resident) int { return cmp.Compare(a.Job, b.Job) }

// load puts a row where it belongs, and derives nothing.
func (l *Ledger) load(r Resident) error {
	g := l.find(r.Group)
	if g == nil {
		return fmt.Errorf("job %d is on group %d, which does not exist", r.Job, r.Group)
	}
	if l.jobs[r.Job] != nil {
		return fmt.Errorf("job %d is there twice", r.Job)
	}
	if err := l.suits(g, &r, g.Period); err != nil {
		return err
	}
	g.members = append(g.members, r)
	l.jobs[r.Job] = g
	return nil
}

// suits says why a row cannot be one of a group with this period.
func (l *Ledger) suits(g *group, r *Resident, period int64) error {
	if err := r.Cycle.Validate(l.config.Slots); err != nil {
		return err
	}
	n := int64(0)
	if period >= 1 && period <= l.config.Slots {
		n = cycles(period, r.Cycle.Period)
	}
	switch {
	case r.Job == 0:
		return errors.New("job 0 is no job")
	case r.Cycle.Width() > g.Nodes:
		return fmt.Errorf("job %d needs %d nodes, and group %d has %d", r.Job, r.Cycle.Width(), g.ID, g.Nodes)
	case n < 1:
		return fmt.Errorf("no cycle of job %d, of %d slots, is done in the %d of group %d", r.Job, r.Cycle.Period, period, g.ID)
	case r.Index < 0 || r.Index >= n:
		return fmt.Errorf("job %d is at cycle %d of %d", r.Job, r.Index, n)
	case r.Anchor < 0 || r.Anchor > l.ring.end()+l.ring.n:
		return fmt.Errorf("job %d is to start at slot %d, and the window ends at %d", r.Job, r.Anchor, l.ring.end())
	}
	return nil
}

// known reports whether what is free of each slot has been computed.
func (l *Ledger) known() bool { return l.ring.size > 0 }

// window returns the ring with what is free of each slot.
func (l *Ledger) window() *ring {
	if !l.known() {
		l.derive()
	}
	return &l.ring
}

// derive computes what is free of all slots of the window at once.
func (l *Ledger) derive() {
	if !l.known() {
		l.ring.tree = newTree(make([]int32, l.ring.n))
	}
	n := l.ring.n
	change := make([]int32, n+1)
	for _, g := range l.groups {
		for i := range g.members {
			g.members[i].each(g.Period, l.ring.head, l.ring.end(), func(start, end, nodes int64) {
				change[start-l.ring.head] -= int32(nodes)
				change[end-l.ring.head] += int32(nodes)
			})
		}
	}
	values := make([]int32, n)
	free := int32(l.total)
	for i := range n {
		free += change[i]
		values[(l.ring.head+i)%n] = free
	}
	l.ring.fill(values)
}

// Rows returns all rows, groups by ID and residents by job.
func (l *Ledger) Rows() (groups []Group, residents []Resident) {
	for _, g := range l.groups {
		groups = append(groups, g.Group)
		residents = append(residents, g.members...)
	}
	slices.SortFunc(residents, byJob)
	return groups, residents
}

// Config returns the configuration.
func (l *Ledger) Config() Config { return l.config }

// Window returns the slots that the ledger shows.
func (l *Ledger) Window() (from, to int64) { return l.ring.head, l.ring.end() }

// Nodes returns how many nodes all groups have.
func (l *Ledger) Nodes() int64 { return l.total }

// Free returns the least number of nodes that are free from one slot until another,
// as far as they are in the window.
func (l *Ledger) Free(from, to int64) int64 { return min(l.total, int64(l.window().min(from, to))) }

// FirstBelow returns the first slot from one until another with fewer free nodes.
func (l *Ledger) FirstBelow(from, to, nodes int64) (int64, bool) {
	return l.window().firstBelow(from, to, int32(nodes))
}

// Resident returns the row of a job.
func (l *Ledger) Resident(job JobID) (Resident, bool) {
	g := l.jobs[job]
	if g == nil {
		return Resident{}, false
	}
	return g.members[g.index(job)], true
}

// Holder returns for whom a group is reserved at a slot, and until when.
func (l *Ledger) Holder(id GroupID, t int64) (job JobID, until int64, ok bool) {
	g := l.find(id)
	if g == nil {
		return 0, 0, false
	}
	i, left, ok := g.circle.at(t)
	if !ok || g.members[i.member].Anchor > t {
		return 0, 0, false
	}
	return g.members[i.member].Job, t + left, true
}

// Reserved is one segment of one cycle: the job has the group from Start until End.
type Reserved struct {
	Job               JobID
	Start, End, Nodes int64
}

// Reserved returns what is reserved of a group from one slot until another, in the
// order of time. Segments that begin before or end behind are whole.
func (l *Ledger) Reserved(id GroupID, from, to int64) (list []Reserved) {
	g := l.find(id)
	if g == nil {
		return nil
	}
	for i := range g.members {
		r := &g.members[i]
		n, base := cycles(g.Period, r.Cycle.Period), r.base(g.Period)
		// A cycle before may still last, but none that began a period earlier.
		first := (max(from, r.Anchor) - base) / g.Period * n
		for k := max(r.Index, first-n); ; k++ {
			begin := base + begins(g.Period, k, n)
			if begin >= to {
				break
			}
			for _, s := range r.Cycle.Segments {
				if a, b := begin+s.Offset, begin+s.End(); b > from && a < to {
					list = append(list, Reserved{r.Job, a, b, s.Nodes})
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b Reserved) int { return cmp.Compare(a.Start, b.Start) })
	return list
}

// Members returns a group and who is on it, by job.
func (l *Ledger) Members(id GroupID) (Group, []Resident) {
	g := l.find(id)
	if g == nil {
		return Group{}, nil
	}
	return g.Group, g.members
}

// NextFree returns the first slot, at t or after, from which a group is free for so
// long: where work without a reservation fits.
func (l *Ledger) NextFree(id GroupID, t, length int64) (int64, bool) {
	g := l.find(id)
	if g == nil || length < 1 {
		return 0, false
	}
	if len(g.members) == 0 {
		return t, true
	}
	if length > g.Period {
		return 0, false
	}
	once := Cycle{g.Period, []Segment{{0, length, 1}}}
	shift, _, ok := g.circle.earliest(once, 0, t, 0, g.Period)
	return t + shift, ok
}

func (g *group) index(job JobID) int {
	i, _ := slices.BinarySearchFunc(g.members, job, func(r Resident, job JobID) int { return cmp.Compare(r.Job, job) })
	return i
}

func (g *group) dedicated() bool { return len(g.members) == 1 && g.members[0].Dedicated }

// find returns a group, or nil.
func (l *Ledger) find(id GroupID) *group {
	i, ok := l.search(id)
	if !ok {
		return nil
	}
	return l.groups[i]
}

func (l *Ledger) search(id GroupID) (int, bool) {
	return slices.BinarySearchFunc(l.groups, id, func(g *group, id GroupID) int { return cmp.Compare(g.ID, id) })
}
