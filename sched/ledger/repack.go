package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Move takes a job from one group to another. It was planned on a ledger that has
// gone on since, so it says what must still be so (Apply).
type Move struct {
	Job      JobID
	From, To GroupID
	// Was is the period that To had when this move was planned, after those before
	// it: 0 if it had no jobs.
	Was int64
	// Period is what To gets.
	Period int64
	// CostMax is the most that equation 1 may come to.
	CostMax int64
	// Transfer is for how many slots the job's state is on its way. It starts no
	// cycle before.
	Transfer int64
}

// RepackRequest says what a repacking is for.
type RepackRequest struct {
	// Empty is how many groups without jobs there should be: for jobs whose cycle is
	// not known, or to be given back.
	Empty int
	// Transfer returns for how many slots the state of a job would be on its way; less
	// than 0 if it cannot be moved.
	Transfer func(job JobID, from, to GroupID) int64
	// MovesMax bounds the plan.
	MovesMax int
	// Policy ranks the groups that jobs are moved to.
	Policy Policy
	// Promise is of a group that jobs are not moved to.
	Promise Promise
}

// Plan is a list of moves, to be done one after the other.
type Plan struct {
	Moves []Move
	// Gain is what they are worth in node-slots of one horizon, and Spent what the
	// transfers take: nodes of both groups, for as long as they last.
	Gain, Spent int64
}

// errNotWorth is a trial that would cost more than it gains.
var errNotWorth = errors.New("it is not worth it")

// Repack plans which jobs go elsewhere. It empties the groups that take least to be
// emptied until there are as many as requested, and takes jobs away from where
// they are slowed down to where they are less so. What moves spend must be less than
// what they gain in one horizon.
//
// It works on a ledger of its own, made of these rows.
func Repack(c Config, head int64, groups []Group, reservations []Reservation, w RepackRequest) (Plan, error) {
	l, err := Build(c, head, groups, reservations)
	if err != nil {
		return Plan{}, err
	}
	p := planner{Ledger: l, RepackRequest: w}
	empty := 0
	for _, g := range l.groups {
		if len(g.members) == 0 {
			empty++
		}
	}
	for _, id := range l.lightest() {
		if empty >= w.Empty {
			break
		}
		if p.worth(func() (int64, error) { return p.clear(id) }) {
			empty++
		}
	}
	for _, job := range l.slowest() {
		p.worth(func() (int64, error) { return 0, p.move(job, false) })
	}
	return p.plan, nil
}

type planner struct {
	*Ledger
	RepackRequest
	plan Plan
}

// worth tries some moves that gain something together. If they cannot be done or
// spend more than they gain, all is as it was.
func (p *planner) worth(try func() (gain int64, err error)) bool {
	before := p.plan
	groups, reservations := p.Rows()
	gain, err := try()
	p.plan.Gain += gain
	switch {
	case len(p.plan.Moves) == len(before.Moves):
		return false
	case err == nil && p.plan.Gain-before.Gain > p.plan.Spent-before.Spent:
		return true
	}
	p.plan = before
	p.Ledger, _ = Build(p.config, p.head, groups, reservations) // they were valid
	return false
}

// lightest returns the groups that share, those first that are held least.
func (l *Ledger) lightest() (ids []GroupID) {
	var groups []*group
	for _, g := range l.groups {
		if len(g.members) > 0 && !g.dedicated() {
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(ppm(a.circle.held(), a.Period), ppm(b.circle.held(), b.Period)), cmp.Compare(a.ID, b.ID))
	})
	for _, g := range groups {
		ids = append(ids, g.ID)
	}
	return ids
}

// slowest returns the jobs that are slowed down, those first that are most.
func (l *Ledger) slowest() (jobs []JobID) {
	_, rows := l.Rows()
	slices.SortFunc(rows, func(a, b Reservation) int {
		return cmp.Or(cmp.Compare(l.slowdown(&b), l.slowdown(&a)), cmp.Compare(a.Job, b.Job))
	})
	for i := range rows {
		if l.slowdown(&rows[i]) > 0 {
			jobs = append(jobs, rows[i].Job)
		}
	}
	return jobs
}

// slowdown returns by how much a job's cycles are longer than they need be: by its
// group's period, or by what it has waited for so far if that is more.
func (l *Ledger) slowdown(r *Reservation) int64 {
	if r.Dedicated {
		return 0
	}
	waited := mulDivUp(r.Waited, million, max(l.head-r.Began, waitCycles*r.Cycle.Period))
	return max(waited, stretch(l.find(r.Group).Period, r.Cycle.Period))
}

// clear plans to take all jobs away from a group, those first that are hard to place.
func (p *planner) clear(id GroupID) (gain int64, err error) {
	g := p.find(id)
	jobs := slices.Clone(g.members)
	slices.SortFunc(jobs, func(a, b Reservation) int {
		return cmp.Or(cmp.Compare(b.Cycle.Held(), a.Cycle.Held()), cmp.Compare(a.Job, b.Job))
	})
	if slices.ContainsFunc(jobs, func(r Reservation) bool { return p.moved(r.Job) }) {
		return 0, errNotWorth // no job is moved twice
	}
	for i := range jobs {
		if err := p.move(jobs[i].Job, true); err != nil {
			return 0, err
		}
	}
	return g.Nodes * p.config.Slots, nil
}

// moved reports whether the plan moves a job.
func (p *planner) moved(job JobID) bool {
	return slices.ContainsFunc(p.plan.Moves, func(m Move) bool { return m.Job == job })
}

// move plans to take a job elsewhere, and does so to the planner's ledger.
func (p *planner) move(job JobID, settled bool) error {
	r, ok := p.Reservation(job)
	if !ok || r.Dedicated || len(p.plan.Moves) >= p.MovesMax || p.moved(job) {
		return errNotWorth
	}
	slow := p.slowdown(&r)
	if err := p.Release(job); err != nil {
		return err
	}
	m, placement, err := p.target(&r, settled)
	if err == nil {
		err = p.Reserve(placement.Fit)
	}
	// A job without a place counts as a move, so that it is put back.
	p.plan.Moves = append(slices.Clip(p.plan.Moves), m)
	p.plan.Spent += m.Transfer * (p.find(r.Group).Nodes + placement.nodes(p.Ledger))
	p.plan.Gain += (slow - placement.StretchPPM) * r.Cycle.Width() * p.config.Slots / million
	return err
}

func (f *Placement) nodes(l *Ledger) int64 {
	if g := l.find(f.Group); g != nil {
		return g.Nodes
	}
	return 0
}

// target finds where a job goes, when its state has arrived.
func (p *planner) target(r *Reservation, settled bool) (Move, Placement, error) {
	request := Request{Job: r.Job, Cycle: r.Cycle, Ready: p.head, Policy: p.Policy, Not: r.Group, Settled: settled, Promise: p.Promise}
	placement, err := p.Place(request)
	if err != nil {
		return Move{}, placement, err
	}
	// How long the transfer takes depends on where it goes to.
	transfer := p.Transfer(r.Job, r.Group, placement.Group)
	if transfer < 0 || transfer > p.config.Slots {
		return Move{}, placement, errNotWorth
	}
	request.Only, request.Ready = placement.Group, request.Ready+transfer
	was := p.find(placement.Group).Period
	if placement, err = p.Place(request); err != nil {
		return Move{}, placement, err
	}
	m := Move{r.Job, r.Group, placement.Group, was, placement.Period, placement.Cost, transfer}
	// Until it is applied, the others move on: any turn of theirs is as good.
	m.CostMax += (p.config.EndWeight + p.config.StartWeight) * million
	return m, placement, nil
}

// Apply does a move if what it was planned upon is still so, and says why not
// otherwise. A refused move changes nothing.
func (l *Ledger) Apply(m Move) (Placement, error) {
	from, to := l.jobs[m.Job], l.find(m.To)
	switch {
	case from == nil || from.ID != m.From:
		return Placement{}, fmt.Errorf("job %d is no longer on group %d", m.Job, m.From)
	case to == nil:
		return Placement{}, fmt.Errorf("group %d no longer exists", m.To)
	case to.Period != m.Was:
		return Placement{}, fmt.Errorf("the period of group %d is %d, and was %d when the move was planned", m.To, to.Period, m.Was)
	case m.Transfer > l.config.Slots:
		return Placement{}, fmt.Errorf("a transfer of %d slots is longer than the horizon of %d", m.Transfer, l.config.Slots)
	}
	r := from.members[from.index(m.Job)]
	if r.Dedicated {
		return Placement{}, fmt.Errorf("the cycle of job %d is not known", m.Job)
	}
	placement, err := l.Place(Request{Job: m.Job, Cycle: r.Cycle, Ready: l.head + m.Transfer, Only: m.To, Not: m.From})
	switch {
	case err != nil:
		return Placement{}, err
	case placement.Period != m.Period:
		return Placement{}, fmt.Errorf("group %d would have a period of %d, and was to have %d", m.To, placement.Period, m.Period)
	case placement.Cost > m.CostMax:
		return Placement{}, fmt.Errorf("the move of job %d would cost %d ppm, and was to cost at most %d", m.Job, placement.Cost, m.CostMax)
	}
	if err := l.Release(m.Job); err != nil {
		return Placement{}, err
	}
	return placement, l.Reserve(placement.Fit)
}
