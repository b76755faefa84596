package workload

import (
	"context"
	"strings"

	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
	"rota/jepsen/workload/witness"
)

// This file has every call as it is recorded.

// submit submits what was submitted never before, or not for the first time.
func (w *worker) submit(ctx context.Context, q *request) history.Op {
	op := history.Op{Verb: history.Submit, RequestID: q.message.RequestId, Retry: q.retry}
	op = w.call(ctx, op, func(ctx context.Context, c *conn, op *history.Op) error {
		resp, err := c.actions.SubmitActions(ctx, q.message)
		op.IDs, op.Replayed = resp.GetIds(), resp.GetReplayed()
		return err
	})
	w.env.known.add(op.IDs)
	return op
}

// get reads an action, linearizably or from the server's own state.
func (w *worker) get(ctx context.Context, id uint64, stale bool) history.Op {
	verb := history.Get
	if stale {
		verb = history.GetStale
	}
	return w.call(ctx, history.Op{Verb: verb, Target: id}, func(ctx context.Context, c *conn, op *history.Op) error {
		resp, err := c.actions.GetAction(ctx, &rotav1.GetActionRequest{Id: id, AllowStale: stale})
		if err == nil {
			op.State, op.Attempt, op.Revision = actionState(resp.Action.State), resp.Action.Attempt, resp.Revision
		}
		return err
	})
}

func (w *worker) cancel(ctx context.Context, id uint64) history.Op {
	return w.call(ctx, history.Op{Verb: history.Cancel, Target: id}, func(ctx context.Context, c *conn, _ *history.Op) error {
		_, err := c.actions.CancelActions(ctx, &rotav1.CancelActionsRequest{Ids: []uint64{id}})
		return err
	})
}

// list reads the first actions that are live.
func (w *worker) list(ctx context.Context) history.Op {
	return w.call(ctx, history.Op{Verb: history.List}, func(ctx context.Context, c *conn, op *history.Op) error {
		resp, err := c.actions.ListActions(ctx, &rotav1.ListActionsRequest{PageSize: 100, States: liveStates})
		for _, a := range resp.GetActions() {
			op.IDs = append(op.IDs, a.Id)
		}
		op.Revision, op.More = resp.GetRevision(), resp.GetNextPageToken() != ""
		return err
	})
}

var liveStates = []rotav1.ActionState{rotav1.ActionState_ACTION_STATE_QUEUED, rotav1.ActionState_ACTION_STATE_RUNNING}

// status reads what the server believes, which may be old.
func (w *worker) status(ctx context.Context) history.Op {
	return w.call(ctx, history.Op{Verb: history.Status}, func(ctx context.Context, c *conn, op *history.Op) error {
		resp, err := c.operator.GetStatus(ctx, &rotav1.GetStatusRequest{})
		op.Revision = resp.GetRevision()
		return err
	})
}

func (w *worker) drain(ctx context.Context, node string, draining bool) history.Op {
	op := history.Op{Verb: history.Drain, Node: node, Draining: draining}
	return w.call(ctx, op, func(ctx context.Context, c *conn, _ *history.Op) error {
		_, err := c.nodes.DrainNode(ctx, &rotav1.DrainNodeRequest{Name: node, Resume: !draining})
		return err
	})
}

func (w *worker) getNode(ctx context.Context, node string) history.Op {
	return w.call(ctx, history.Op{Verb: history.GetNode, Node: node}, func(ctx context.Context, c *conn, op *history.Op) error {
		resp, err := c.nodes.GetNode(ctx, &rotav1.GetNodeRequest{Name: node})
		if err == nil {
			n := resp.Node
			op.Draining, op.Incarnation, op.State = n.Draining, n.Incarnation, plain(n.State.String(), "NODE_STATE_")
		}
		return err
	})
}

func (w *worker) openTrajectory(ctx context.Context, q *rotav1.OpenTrajectoryRequest) history.Op {
	op := history.Op{Verb: history.OpenTrajectory, RequestID: q.RequestId}
	return w.call(ctx, op, func(ctx context.Context, c *conn, op *history.Op) error {
		resp, err := c.trajectories.OpenTrajectory(ctx, q)
		if err == nil {
			op.IDs, op.Replayed = []uint64{resp.Trajectory.Id}, resp.Replayed
			op.State, op.Node = trajectoryState(resp.Trajectory), resp.Trajectory.Node
		}
		return err
	})
}

func (w *worker) closeTrajectory(ctx context.Context, id uint64) history.Op {
	return w.call(ctx, history.Op{Verb: history.CloseTrajectory, Target: id}, func(ctx context.Context, c *conn, op *history.Op) error {
		resp, err := c.trajectories.CloseTrajectory(ctx, &rotav1.CloseTrajectoryRequest{Id: id})
		if err == nil {
			op.State = trajectoryState(resp.Trajectory)
		}
		return err
	})
}

func (w *worker) getTrajectory(ctx context.Context, id uint64) history.Op {
	return w.call(ctx, history.Op{Verb: history.GetTrajectory, Target: id}, func(ctx context.Context, c *conn, op *history.Op) error {
		resp, err := c.trajectories.GetTrajectory(ctx, &rotav1.GetTrajectoryRequest{Id: id})
		if err == nil {
			op.State, op.Node = trajectoryState(resp.Trajectory), resp.Trajectory.Node
		}
		return err
	})
}

func (w *worker) createQuota(ctx context.Context, q *rotav1.CreateQuotaRequest) history.Op {
	op := history.Op{Verb: history.CreateQuota, Quota: q.Name, Limit: q.Limit, Keys: q.Keys, WindowNS: int64(q.Window.AsDuration())}
	return w.call(ctx, op, func(ctx context.Context, c *conn, _ *history.Op) error {
		_, err := c.quotas.CreateQuota(ctx, q)
		return err
	})
}

func (w *worker) updateQuota(ctx context.Context, q *rotav1.UpdateQuotaRequest) history.Op {
	op := history.Op{Verb: history.UpdateQuota, Quota: q.Name, Limit: q.Limit, Keys: q.Keys}
	return w.call(ctx, op, func(ctx context.Context, c *conn, _ *history.Op) error {
		_, err := c.quotas.UpdateQuota(ctx, q)
		return err
	})
}

func (w *worker) deleteQuota(ctx context.Context, name string) history.Op {
	return w.call(ctx, history.Op{Verb: history.DeleteQuota, Quota: name}, func(ctx context.Context, c *conn, _ *history.Op) error {
		_, err := c.quotas.DeleteQuota(ctx, &rotav1.DeleteQuotaRequest{Name: name})
		return err
	})
}

func (w *worker) getQuota(ctx context.Context, name string) history.Op {
	return w.call(ctx, history.Op{Verb: history.GetQuota, Quota: name}, func(ctx context.Context, c *conn, op *history.Op) error {
		resp, err := c.quotas.GetQuota(ctx, &rotav1.GetQuotaRequest{Name: name})
		if err == nil {
			op.Limit, op.Keys = resp.Quota.Limit, resp.Quota.Keys
		}
		return err
	})
}

func (w *worker) registerEngine(ctx context.Context, spec *rotav1.EngineSpec) history.Op {
	op := history.Op{Verb: history.RegisterEngine, Model: spec.Model, Declaration: witness.DeclarationOf(spec.Command)}
	return w.call(ctx, op, func(ctx context.Context, c *conn, _ *history.Op) error {
		_, err := c.engines.RegisterEngine(ctx, &rotav1.RegisterEngineRequest{Engine: spec})
		return err
	})
}

func (w *worker) removeEngine(ctx context.Context, model string) history.Op {
	return w.call(ctx, history.Op{Verb: history.RemoveEngine, Model: model}, func(ctx context.Context, c *conn, _ *history.Op) error {
		_, err := c.engines.RemoveEngine(ctx, &rotav1.RemoveEngineRequest{Model: model})
		return err
	})
}

func (w *worker) createGroup(ctx context.Context, q *rotav1.CreateNodeGroupRequest) history.Op {
	return w.call(ctx, history.Op{Verb: history.CreateGroup, Group: q.Name}, func(ctx context.Context, c *conn, _ *history.Op) error {
		_, err := c.ledger.CreateNodeGroup(ctx, q)
		return err
	})
}

func (w *worker) submitJob(ctx context.Context, q *rotav1.SubmitJobRequest) history.Op {
	op := history.Op{Verb: history.SubmitJob, RequestID: q.RequestId, Job: q.Name}
	return w.call(ctx, op, func(ctx context.Context, c *conn, op *history.Op) error {
		resp, err := c.jobs.SubmitJob(ctx, q)
		op.Replayed = resp.GetReplayed()
		return err
	})
}

func (w *worker) changeJob(ctx context.Context, name, change string) history.Op {
	return w.call(ctx, history.Op{Verb: history.ChangeJob, Job: name, Change: change}, func(ctx context.Context, c *conn, _ *history.Op) (err error) {
		switch change {
		case history.Suspend:
			_, err = c.jobs.SuspendJob(ctx, &rotav1.SuspendJobRequest{Name: name})
		case history.Resume:
			_, err = c.jobs.ResumeJob(ctx, &rotav1.ResumeJobRequest{Name: name})
		case history.Complete:
			_, err = c.jobs.CompleteJob(ctx, &rotav1.CompleteJobRequest{Name: name})
		default:
			_, err = c.jobs.DeleteJob(ctx, &rotav1.DeleteJobRequest{Name: name})
		}
		return err
	})
}

func (w *worker) getJob(ctx context.Context, name string) history.Op {
	return w.call(ctx, history.Op{Verb: history.GetJob, Job: name}, func(ctx context.Context, c *conn, op *history.Op) error {
		resp, err := c.jobs.GetJob(ctx, &rotav1.GetJobRequest{Name: name})
		if err == nil {
			op.State, op.Deleting = plain(resp.Job.State.String(), "JOB_STATE_"), resp.Job.Deleting
		}
		return err
	})
}

func (w *worker) acquire(ctx context.Context, q *rotav1.AcquireTurnRequest) history.Op {
	op := history.Op{Verb: history.Acquire, RequestID: q.RequestId, Deployment: q.Deployment}
	return w.call(ctx, op, func(ctx context.Context, c *conn, op *history.Op) error {
		resp, err := c.turns.AcquireTurn(ctx, q)
		if err == nil {
			op.IDs, op.Replayed, op.State = []uint64{resp.Turn.Id}, resp.Replayed, turnState(resp.Turn)
		}
		return err
	})
}

func turnState(t *rotav1.Turn) string { return plain(t.State.String(), "TURN_STATE_") }

func actionState(s rotav1.ActionState) string { return plain(s.String(), "ACTION_STATE_") }

func trajectoryState(t *rotav1.Trajectory) string {
	return plain(t.State.String(), "TRAJECTORY_STATE_")
}

// plain is the name of an enum's value without what all of them begin with.
func plain(name, prefix string) string { return strings.TrimPrefix(name, prefix) }
