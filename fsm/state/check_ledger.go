package state

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// checkNodeGroups: a group is held by a turn that knows, no two by the same, and is
// reserved for one job at a time (over-commitment), by whatever is in the reservations.
func (s *State) checkNodeGroups() (err error) {
	reservations := make(map[GroupID][]*Reservation)
	s.Reservations(func(r *Reservation) bool {
		reservations[r.Group] = append(reservations[r.Group], r)
		return true
	})
	s.NodeGroups(func(g *NodeGroup) bool {
		t := s.Turn(g.Turn)
		switch {
		case g.ID > s.meta.LastGroup || s.NodeGroupByName(g.Name) != g || g.Nodes < 1:
			err = fmt.Errorf("group %d is called %q, which is another's name, has %d nodes, or is beyond the last ID %d", g.ID, g.Name, g.Nodes, s.meta.LastGroup)
		case g.Turn != 0 && (t == nil || t.State != TurnHeld || t.Group != g.ID):
			err = fmt.Errorf("group %s is held by turn %d, which does not know", g.Name, g.Turn)
		case g.Turn != 0 && g.Resident != t.Deployment:
			err = fmt.Errorf("group %s is held by turn %d and another deployment is resident", g.Name, g.Turn)
		case g.ContextSwitch != nil && (len(g.ContextSwitch.Hooks) == 0 || g.ContextSwitch.Token > s.meta.LastToken || g.Turn != 0 && t.Token != g.ContextSwitch.Token):
			err = fmt.Errorf("group %s has a context switch of %d hooks for token %d, which is not its turn %d's or beyond the last", g.Name, len(g.ContextSwitch.Hooks), g.ContextSwitch.Token, g.Turn)
		case (g.Period == 0) != (len(reservations[g.ID]) == 0):
			err = fmt.Errorf("group %s has a period of %d and %d reservations", g.Name, g.Period, len(reservations[g.ID]))
		default:
			err = errors.Join(checkGroupReservations(g, reservations[g.ID]), s.checkHookRuns(g), s.checkMembers(g))
		}
		return err == nil
	})
	return err
}

// checkHookRuns: hooks run one after the other while none has failed, and one that has
// not ended has an action that has not.
func (s *State) checkHookRuns(g *NodeGroup) error {
	if g.ContextSwitch == nil {
		return nil
	}
	runs := g.ContextSwitch.Runs
	if len(runs) > len(g.ContextSwitch.Hooks) {
		return fmt.Errorf("group %s has run %d of %d hooks", g.Name, len(runs), len(g.ContextSwitch.Hooks))
	}
	for i, run := range runs {
		last := i == len(runs)-1
		switch a := s.Action(run.Action); {
		case run.Action == 0 || run.Action > s.meta.LastAction || !last && run.State != ActionSucceeded:
			return fmt.Errorf("hook %d of group %s ran as action %d to state %d, and another followed or there is no such action", i+1, g.Name, run.Action, run.State)
		case run.State == 0 && (a == nil || a.State.Final()), run.State != 0 && a != nil && a.State != run.State:
			return fmt.Errorf("hook %d of group %s is in state %d, its action %d is not", i+1, g.Name, run.State, run.Action)
		}
	}
	return nil
}

// checkGroupReservations lays all members out over one period of the group: no slot may be
// taken twice.
func checkGroupReservations(g *NodeGroup, reservations []*Reservation) error {
	type span struct {
		from, to int64
		job      JobID
	}
	var spans []span
	for _, r := range reservations {
		if r.Dedicated && len(reservations) > 1 {
			return fmt.Errorf("group %s is dedicated to job %d and has %d reservations", g.Name, r.Job, len(reservations))
		}
		n := g.Period / max(1, r.Cycle.Period)
		if n < 1 || n > 1<<20 || r.Index < 0 || r.Index >= n {
			return fmt.Errorf("job %d does %d cycles in the period of group %s and is at number %d", r.Job, n, g.Name, r.Index)
		}
		for k := range n {
			from := r.Anchor - g.Period*r.Index/n + g.Period*k/n
			for _, c := range r.Cycle.Segments {
				if c.Nodes > g.Nodes || c.Length < 1 {
					return fmt.Errorf("job %d needs %d nodes for %d slots, group %s has %d nodes", r.Job, c.Nodes, c.Length, g.Name, g.Nodes)
				}
				at := ((from+c.Offset)%g.Period + g.Period) % g.Period
				spans = append(spans, span{at, at + c.Length, r.Job})
			}
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.job, b.job)) })
	for i, a := range spans {
		b := spans[(i+1)%len(spans)]
		if i+1 == len(spans) {
			b.from += g.Period
		}
		if a.to > b.from {
			return fmt.Errorf("group %s is reserved for jobs %d and %d at slot %d of its period", g.Name, a.job, b.job, b.from)
		}
	}
	return nil
}

// checkJobs: one that runs has a group and, unless it is backfill, a reservation there.
func (s *State) checkJobs() (err error) {
	s.Jobs(0, func(j *Job) bool {
		reservation := s.Reservation(j.ID)
		var turns uint32
		s.JobTurns(j.ID, func(*Turn) bool { turns++; return true })
		switch {
		case j.ID > s.meta.LastJob || s.JobByName(j.Namespace, j.Name) != j || s.Namespace(j.Namespace) == nil:
			err = fmt.Errorf("job %d is called %q, which is another's name, has no namespace or is beyond the last ID %d", j.ID, j.Name, s.meta.LastJob)
		case (j.State == JobRunning) != (j.Group != 0) || j.Group != 0 && s.NodeGroup(j.Group) == nil:
			err = fmt.Errorf("job %d in state %d is on group %d", j.ID, j.State, j.Group)
		case (reservation != nil) != (j.State == JobRunning && !j.Backfill):
			err = fmt.Errorf("job %d in state %d: it has a reservation: %v", j.ID, j.State, reservation != nil)
		case turns != j.Turns:
			err = fmt.Errorf("job %d has %d live turns, its row says %d", j.ID, turns, j.Turns)
		case j.Deleting && (j.State != JobCompleted || turns == 0):
			err = fmt.Errorf("job %d is being deleted in state %d, with %d turns", j.ID, j.State, turns)
		}
		return err == nil
	})
	return err
}

// checkReservations: each is of a job that is on the group.
func (s *State) checkReservations() (err error) {
	s.Reservations(func(r *Reservation) bool {
		if j := s.Job(r.Job); j == nil || j.Group != r.Group {
			err = fmt.Errorf("job %d has a reservation on group %d, and is not there", r.Job, r.Group)
		}
		return err == nil
	})
	return err
}

// checkTurns: those that hold a group are known to it, those of a deployment are in
// order, and tokens grow with grants.
func (s *State) checkTurns() (err error) {
	waits := make(map[DeploymentID]bool)
	s.Turns(0, func(t *Turn) bool {
		id, n := t.Deployment.Job()
		j, g := s.Job(id), s.NodeGroup(t.Group)
		switch {
		case t.ID > s.meta.LastTurn || t.Token > s.meta.LastToken:
			err = fmt.Errorf("turn %d with token %d is beyond the last, %d and %d", t.ID, t.Token, s.meta.LastTurn, s.meta.LastToken)
		case t.State.Live() && (j == nil || n >= len(j.Deployments)):
			err = fmt.Errorf("turn %d is of deployment %d of job %d, which does not exist", t.ID, n, id)
		case t.State == TurnHeld && (g == nil || g.Turn != t.ID):
			err = fmt.Errorf("turn %d holds group %d, which does not know", t.ID, t.Group)
		case (t.State == TurnWaiting || t.State == TurnCanceled && t.GrantedAt == 0) != (t.Token == 0) && t.State != TurnLost:
			err = fmt.Errorf("turn %d in state %d has token %d", t.ID, t.State, t.Token)
		case t.ReadyAt != 0 && (t.Token == 0 || t.ReadyAt < t.GrantedAt || s.SettingUp(t)):
			err = fmt.Errorf("turn %d in state %d was ready at %d, before it was granted or while hooks run", t.ID, t.State, t.ReadyAt)
		case t.State == TurnHeld && waits[t.Deployment]:
			err = fmt.Errorf("turn %d holds a group before an older one of its deployment", t.ID)
		}
		waits[t.Deployment] = waits[t.Deployment] || t.State == TurnWaiting
		return err == nil
	})
	return err
}
