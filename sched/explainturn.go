package sched

import (
	"fmt"

	"rota/fsm/state"
)

// ExplainTurn says in one sentence what a turn waits for that has not been granted;
// empty if it does not wait.
func ExplainTurn(v *state.State, t *state.Turn) string {
	id, _ := t.Deployment.Job()
	j := v.Job(id)
	if t.State != state.TurnWaiting || j == nil {
		return ""
	}
	g := v.NodeGroup(j.Group)
	if g == nil {
		return explainUnplaced(v, j)
	}
	if g.Halted != "" {
		return fmt.Sprintf("waits for an operator: node group %s is halted; rota node-group list has the reason", g.Name)
	}
	if before := turnBefore(v, t, g); before != nil {
		return fmt.Sprintf("waits for turn %d of the same job, which comes before it%s", before.ID, others(v, g, t))
	}
	switch holder := v.Turn(g.Turn); {
	case holder != nil && holder.Stop:
		return fmt.Sprintf("waits for node group %s, which turn %d was asked to give back%s", g.Name, holder.ID, others(v, g, t))
	case holder != nil:
		return fmt.Sprintf("waits for node group %s, which turn %d of job %s has%s", g.Name, holder.ID, holderJob(v, holder, j.Namespace), others(v, g, t))
	case g.ContextSwitch != nil:
		return fmt.Sprintf("waits for node group %s, where hooks of an ended turn (token %d) still run%s", g.Name, g.ContextSwitch.Token, others(v, g, t))
	}
	switch {
	case j.Nodes > g.Remaining():
		return fmt.Sprintf("waits for members of node group %s: its job needs %d, and %d of %d are there%s", g.Name, j.Nodes, g.Remaining(), g.Nodes, others(v, g, t))
	case g.Members.Waits != state.NobodyWaits:
		return fmt.Sprintf("waits for actions that run on members of node group %s to end%s", g.Name, others(v, g, t))
	}
	return fmt.Sprintf("waits for its time on node group %s, which is reserved for another job before the turn would end%s", g.Name, others(v, g, t))
}

func explainUnplaced(v *state.State, j *state.Job) string {
	switch {
	case j.State == state.JobSuspended:
		return fmt.Sprintf("waits until job %s, which is suspended, is resumed", j.Name)
	case v.Meta().PlacementHalted != "":
		return fmt.Sprintf("waits for an operator: placement is halted (%s)", v.Meta().PlacementHalted)
	case j.Message != "":
		return fmt.Sprintf("waits for a node group for job %s: %s", j.Name, j.Message)
	}
	return fmt.Sprintf("waits for a node group for job %s", j.Name)
}

// turnBefore is a turn of the same job that has to end first: one on another group, or an
// older one of the same deployment.
func turnBefore(v *state.State, t *state.Turn, g *state.NodeGroup) (before *state.Turn) {
	id, _ := t.Deployment.Job()
	v.JobTurns(id, func(o *state.Turn) bool {
		elsewhere := o.State == state.TurnHeld && o.ID != g.Turn
		if elsewhere || o.ID < t.ID && o.Deployment == t.Deployment {
			before = o
		}
		return before == nil
	})
	return before
}

// holderJob names the job of a turn to somebody of a namespace. Names of other namespaces are not
// told.
func holderJob(v *state.State, t *state.Turn, to state.NamespaceID) string {
	id, _ := t.Deployment.Job()
	switch j := v.Job(id); {
	case j == nil:
		return "(deleted)"
	case j.Namespace != to:
		return "(of another namespace)"
	default:
		return j.Name
	}
}

// others says how many other turns wait for a group.
func others(v *state.State, g *state.NodeGroup, t *state.Turn) string {
	n := 0
	v.GroupJobs(g.ID, func(j *state.Job) bool {
		v.JobTurns(j.ID, func(o *state.Turn) bool {
			if o.State == state.TurnWaiting && o.ID != t.ID {
				n++
			}
			return n < aheadCounted
		})
		return n < aheadCounted
	})
	switch n {
	case 0:
		return ""
	case 1:
		return "; 1 other turn waits for it"
	case aheadCounted:
		return fmt.Sprintf("; at least %d other turns wait for it", aheadCounted)
	}
	return fmt.Sprintf("; %d other turns wait for it", n)
}
