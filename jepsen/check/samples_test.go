package check

import (
	"fmt"
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/jepsen/history"
)

// trainBeside has clients make two rollouts: one whose samples grow too old, and one whose samples
// do not. Each prompt has two samples, and each step gets one prompt. The log has the rollouts and
// their trajectories.
func (p *play) trainBeside() {
	r := p.rec
	now := int64(0)
	add := func(op history.Op) {
		now += second / 10
		op.Client, op.Start, op.End = 9, now, now+second/100
		if op.Outcome == "" {
			op.Outcome = history.OK
		}
		r.Ops = append(r.Ops, op)
	}
	for i, policy := range []string{"coder", "browser"} {
		age := []uint32{1, ageless}[i]
		rollout := p.commit(&logv1.Command{Verb: &logv1.Command_CreateRollout{CreateRollout: &logv1.CreateRollout{
			Request: &logv1.Request{Id: policy, Digest: 1}, Name: policy, Policy: policy, Groups: 3, SamplesPerGroup: 2, Staleness: age,
		}}}).FirstId
		add(history.Op{Verb: history.CreateRollout, RequestID: policy, Policy: policy, Need: 2, Staleness: age, IDs: []uint64{rollout}})
		for step := range uint64(3) {
			var batch []history.TrainSample
			for n := range uint64(2) {
				request := fmt.Sprint(policy, step, n)
				id := p.openMember(request, rollout, uint32(step))
				add(history.Op{Verb: history.OpenMember, RequestID: request, Target: rollout, Prompt: uint32(step), IDs: []uint64{id}, State: "PENDING"})
				generatedFor(add, policy, id, step)
				add(history.Op{Verb: history.PutSample, Target: id, Reward: float64(id), Outcome: history.Unknown})
				add(history.Op{Verb: history.PutSample, Target: id, Reward: float64(id), Accepted: true})
				batch = append(batch, history.TrainSample{Trajectory: id, Rollout: rollout, Prompt: uint32(step), Version: step, Reward: float64(id)})
			}
			add(history.Op{Verb: history.GetBatch, Policy: policy, Step: step + 1, Need: 1, Outcome: history.Unknown})
			add(history.Op{Verb: history.GetBatch, Policy: policy, Step: step + 1, Need: 1, Batch: batch})
			add(history.Op{Verb: history.GetBatch, Policy: policy, Step: step + 1, Need: 2, Batch: batch, Replayed: true})
			add(history.Op{Verb: history.PublishVersion, Policy: policy, Version: step + 1})
		}
	}
}

func (p *play) openMember(request string, rollout uint64, prompt uint32) (id uint64) {
	return p.commit(&logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{
		Request: &logv1.Request{Id: request, Digest: 1}, Name: request, Rollout: &logv1.RolloutMembership{RolloutId: rollout, Group: prompt},
	}}}).FirstId
}

// batchOf finds the first answer of a step of a policy.
func batchOf(t *testing.T, r *history.Record, policy string, step uint64) *history.Op {
	return pick(t, r.Ops, func(op *history.Op) bool {
		return op.Verb == history.GetBatch && op.Outcome == history.OK && op.Policy == policy && op.Step == step
	})
}

// without removes the answers of a step.
func without(r *history.Record, policy string, step uint64) {
	for i := range r.Ops {
		if op := &r.Ops[i]; op.Verb == history.GetBatch && op.Policy == policy && op.Step == step {
			op.Outcome, op.Batch = history.Fail, nil
		}
	}
}

// bothAnswers changes both answers of a step alike.
func bothAnswers(t *testing.T, r *history.Record, policy string, step uint64, change func([]history.TrainSample) []history.TrainSample) {
	batchOf(t, r, policy, step)
	for i := range r.Ops {
		if op := &r.Ops[i]; op.Verb == history.GetBatch && op.Outcome == history.OK && op.Policy == policy && op.Step == step {
			op.Batch = change(append([]history.TrainSample(nil), op.Batch...))
		}
	}
}

var brokenSamples = []caseOf{
	{"samples", "two batches for one step", "step 2 of coder was given two batches", func(t *testing.T, r *history.Record) {
		op := batchOf(t, r, "coder", 2)
		op.Batch = append([]history.TrainSample(nil), op.Batch...)
		op.Batch[0], op.Batch[1] = op.Batch[1], op.Batch[0]
	}},
	{"samples", "a sample for two steps", "was given twice", func(t *testing.T, r *history.Record) {
		first := batchOf(t, r, "browser", 1).Batch
		bothAnswers(t, r, "browser", 2, func([]history.TrainSample) []history.TrainSample { return first })
	}},
	{"samples", "a prompt for two steps", "prompt 0 of rollout 2 was given to two steps", func(t *testing.T, r *history.Record) {
		bothAnswers(t, r, "browser", 2, func(b []history.TrainSample) []history.TrainSample {
			b[0].Prompt = 0
			return b
		})
	}},
	{"samples", "a sample that nobody put", "as nobody put it", func(t *testing.T, r *history.Record) {
		bothAnswers(t, r, "coder", 3, func(b []history.TrainSample) []history.TrainSample {
			b[1].Reward++
			return b
		})
	}},
	{"samples", "a sample that was refused", "as nobody put it", func(t *testing.T, r *history.Record) {
		id := batchOf(t, r, "coder", 3).Batch[0].Trajectory
		for i := range r.Ops {
			if r.Ops[i].Verb == history.PutSample && r.Ops[i].Target == id {
				r.Ops[i].Outcome, r.Ops[i].Accepted = history.OK, false
			}
		}
	}},
	{"samples", "a sample of another prompt", "was given as one of prompt 7 of rollout 1", func(t *testing.T, r *history.Record) {
		bothAnswers(t, r, "coder", 1, func(b []history.TrainSample) []history.TrainSample {
			b[0].Prompt, b[1].Prompt = 7, 7
			return b
		})
	}},
	{"samples", "a sample that is too old", "began with version 0, which was too old for step 3", func(t *testing.T, r *history.Record) {
		bothAnswers(t, r, "coder", 3, func(b []history.TrainSample) []history.TrainSample {
			b[0].Version = 0
			return b
		})
	}},
	{"samples", "half of a prompt", "was given with 1 samples", func(t *testing.T, r *history.Record) {
		bothAnswers(t, r, "coder", 2, func(b []history.TrainSample) []history.TrainSample { return b[:1] })
	}},
	{"samples", "a step after the next", "step 1 of coder was answered after step 2", func(t *testing.T, r *history.Record) {
		again := *batchOf(t, r, "coder", 1)
		again.Start = batchOf(t, r, "coder", 2).End + 1
		again.End = again.Start + 1
		r.Ops = append(r.Ops, again)
	}},
	{"samples", "a group that is lost", "was accepted, its group was complete, and no step got it", func(t *testing.T, r *history.Record) {
		without(r, "browser", 3)
	}},
}

// unsuspiciousSamples look like violations and are none.
var unsuspiciousSamples = []caseOf{
	{"samples", "a group that grew too old", "", func(t *testing.T, r *history.Record) {
		batchOf(t, r, "coder", 3)
		without(r, "coder", 3)
	}},
	{"samples", "a version that was published while the step asked", "", func(t *testing.T, r *history.Record) {
		bothAnswers(t, r, "coder", 3, func(b []history.TrainSample) []history.TrainSample {
			b[0].Version = 0
			return b
		})
		op := pick(t, r.Ops, func(op *history.Op) bool {
			return op.Verb == history.PublishVersion && op.Policy == "coder" && op.Version == 2
		})
		op.End = batchOf(t, r, "coder", 3).End
	}},
}
