package workload

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
)

// nodeGroups are what jobs take turns on. Every job finds room on any of them. The last one has
// GPUs, see groups.
var nodeGroups = []*rotav1.CreateNodeGroupRequest{
	{Name: "trainers-1", Nodes: 4},
	{Name: "trainers-2", Nodes: 4},
	{Name: "trainers-3", Nodes: 4},
}

// groups are the node groups of a run. The members of the last one are half of the GPUs of one node,
// or of two if there are more than three: turns and actions share them, and actions find others besides.
func (env *Env) groups() []*rotav1.CreateNodeGroupRequest {
	all := slices.Clone(nodeGroups)
	shared := proto.CloneOf(all[len(all)-1])
	nodes := env.Nodes[:min(2, len(env.Nodes)/2)]
	if env.GPUs < int(2*shared.Nodes) || len(nodes) == 0 {
		return all
	}
	of := int(shared.Nodes) / len(nodes) // members of each node
	gpus := env.GPUs / 2 / of
	for _, node := range nodes {
		for i := range of {
			shared.Members = append(shared.Members, &rotav1.GroupMember{Node: node, FirstGpu: uint32(env.GPUs/2 + i*gpus), Gpus: uint32(gpus)})
		}
	}
	all[len(all)-1] = shared
	return all
}

// trainings are all jobs that there may be. Some say what their cycle is, one has it
// learned and so wants a group for itself, one takes what is left over.
var trainings = []*rotav1.SubmitJobRequest{
	{Name: "train-1", Nodes: 4, Cycle: newCycle(2*time.Second, segment(0, 500*time.Millisecond, 4)), SetUp: durationpb.New(50 * time.Millisecond)},
	{Name: "train-2", Nodes: 2, Cycle: newCycle(time.Second, segment(0, 200*time.Millisecond, 2))},
	{Name: "train-3", Nodes: 4, Cycle: newCycle(2*time.Second, segment(0, 300*time.Millisecond, 4), segment(time.Second, 200*time.Millisecond, 2))},
	{Name: "train-4", Nodes: 3, Cycle: newCycle(4*time.Second, segment(0, 800*time.Millisecond, 3))},
	{Name: "learning", Nodes: 2},
	{Name: "leftover", Nodes: 4, Backfill: true},
}

// stepTime is how long a step of every training takes: all trainers of a job agree
// about it without a word.
const stepTime = 2 * time.Second

func newCycle(period time.Duration, segments ...*rotav1.Segment) *rotav1.Cycle {
	return &rotav1.Cycle{Period: durationpb.New(period), Segments: segments}
}

func segment(offset, length time.Duration, nodes uint32) *rotav1.Segment {
	return &rotav1.Segment{Offset: durationpb.New(offset), Length: durationpb.New(length), Nodes: nodes}
}

// jobs has trainers hold turns of jobs, and operators change these jobs meanwhile.
func jobs(ctx context.Context, env *Env, rate float64) error {
	if len(env.Servers) == 0 {
		return errNoServers
	}
	conns, http := env.connect()
	defer http.CloseIdleConnections()
	trainers, err := env.newTrainers(conns)
	if err != nil {
		return err
	}
	var training sync.WaitGroup
	for _, t := range trainers {
		training.Go(func() { t.train(ctx) })
	}
	begun := new(atomic.Int64)
	err = env.work(ctx, rate, func(w *worker) func(context.Context) {
		return (&jobOperator{worker: w, begun: begun, last: map[string]*rotav1.SubmitJobRequest{}}).step
	})
	training.Wait()
	return err
}

// jobOperator makes groups and jobs, and changes jobs.
type jobOperator struct {
	*worker
	groups int           // made
	begun  *atomic.Int64 // jobs that all operators have submitted, so that each is there soon
	last   map[string]*rotav1.SubmitJobRequest
}

func (o *jobOperator) step(ctx context.Context) {
	for ; o.groups < len(nodeGroups); o.groups++ {
		if op := o.createGroup(ctx, o.env.groups()[o.groups]); op.Outcome != history.OK && op.Error != "NODE_GROUP_EXISTS" {
			return
		}
	}
	o.roam()
	if i := int(o.begun.Add(1)) - 1; i < len(trainings) {
		o.submitNew(ctx, trainings[i])
		return
	}
	t := trainings[o.rand.IntN(len(trainings))]
	switch dice := o.rand.IntN(100); {
	case dice < 40:
		o.getJob(ctx, t.Name)
	case dice < 60:
		o.changeJob(ctx, t.Name, history.Resume)
	case dice < 64:
		o.changeJob(ctx, t.Name, history.Suspend)
	case dice < 66:
		o.changeJob(ctx, t.Name, history.Complete)
	case dice < 75:
		o.changeJob(ctx, t.Name, history.Delete)
	case dice < 82 && o.last[t.Name] != nil:
		o.submitJob(ctx, o.last[t.Name])
	default:
		o.submitNew(ctx, t)
	}
}

// submitNew submits a job with a request of its own.
func (o *jobOperator) submitNew(ctx context.Context, t *rotav1.SubmitJobRequest) {
	o.last[t.Name] = o.newTraining(ctx, t)
	o.submitJob(ctx, o.last[t.Name])
}

// newTraining is a submission of one of the trainings.
func (w *worker) newTraining(ctx context.Context, t *rotav1.SubmitJobRequest) *rotav1.SubmitJobRequest {
	return &rotav1.SubmitJobRequest{
		Name: t.Name, Nodes: t.Nodes, Cycle: t.Cycle, SetUp: t.SetUp, Backfill: t.Backfill,
		RequestId: w.requestID(), ExpireTime: w.env.clock.expiry(ctx, w),
	}
}
