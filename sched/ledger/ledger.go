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

// Reservation is a row: a job on a group, and since when its cycle repeats.
type Reservation struct {
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
func (r *Reservation) starts(period, k int64) int64 {
	n := cycles(period, r.Cycle.Period)
	return r.base(period) + begins(period, r.Index+k, n)
}

func (r *Reservation) base(period int64) int64 {
	return r.Anchor - begins(period, r.Index, cycles(period, r.Cycle.Period))
}

// Ledger is what is reserved of a set of groups. Its rows are Groups and Reservations;
// all else is derived from them (Build).
type Ledger struct {
	config Config
	head   int64            // the slot at which the window starts
	total  int64            // nodes of all groups
	groups []*group         // by ID
	jobs   map[JobID]*group // where each is
	spare  circle           // for trying out
}

type group struct {
	Group
	members []Reservation // by job
	circle  circle
}

// Build makes the ledger that these rows are of, with a window that starts at a slot.
// Groups and reservations may come in any order.
func Build(c Config, head int64, groups []Group, reservations []Reservation) (*Ledger, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if head < 0 {
		return nil, fmt.Errorf("the window starts at slot %d, and must not start before 0", head)
	}
	l := &Ledger{config: c, head: head, jobs: make(map[JobID]*group)}
	for _, row := range groups {
		if err := l.insert(row); err != nil {
			return nil, err
		}
	}
	for _, r := range reservations {
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

func byJob(a, b Reservation) int { return cmp.Compare(a.Job, b.Job) }

// insert adds the row of a group.
func (l *Ledger) insert(row Group) error {
	i, ok := l.search(row.ID)
	switch {
	case ok:
		return fmt.Errorf("group %d is there already", row.ID)
	case row.ID == 0:
		return errors.New("group 0 is no group")
	case row.Nodes < 1 || row.Nodes > NodesMax-l.total:
		return fmt.Errorf("group %d has %d nodes, and may have 1 to %d", row.ID, row.Nodes, NodesMax-l.total)
	}
	l.groups = slices.Insert(l.groups, i, &group{Group: row})
	l.total += row.Nodes
	return nil
}

// load puts a row where it belongs, and derives nothing.
func (l *Ledger) load(r Reservation) error {
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
func (l *Ledger) suits(g *group, r *Reservation, period int64) error {
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
	case r.Anchor < 0 || r.Anchor > l.anchorMax():
		return fmt.Errorf("job %d is to start at slot %d, and the window ends at %d", r.Job, r.Anchor, l.end())
	}
	return nil
}

// Rows returns all rows, groups by ID and reservations by job.
func (l *Ledger) Rows() (groups []Group, reservations []Reservation) {
	for _, g := range l.groups {
		groups = append(groups, g.Group)
		reservations = append(reservations, g.members...)
	}
	slices.SortFunc(reservations, byJob)
	return groups, reservations
}

// Config returns the configuration.
func (l *Ledger) Config() Config { return l.config }

// Window returns the slots that the ledger shows.
func (l *Ledger) Window() (from, to int64) { return l.head, l.end() }

func (l *Ledger) end() int64 { return l.head + l.config.Slots }

// anchorMax is the last slot at which a reservation may start.
func (l *Ledger) anchorMax() int64 { return l.end() + l.config.Slots }

// Reservation returns the row of a job.
func (l *Ledger) Reservation(job JobID) (Reservation, bool) {
	g := l.jobs[job]
	if g == nil {
		return Reservation{}, false
	}
	return g.members[g.index(job)], true
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
func (l *Ledger) Members(id GroupID) (Group, []Reservation) {
	g := l.find(id)
	if g == nil {
		return Group{}, nil
	}
	return g.Group, g.members
}

func (g *group) index(job JobID) int {
	i, _ := slices.BinarySearchFunc(g.members, job, func(r Reservation, job JobID) int { return cmp.Compare(r.Job, job) })
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
