package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
	"rota/jepsen/workload/witness"
)

// Bounds of one worker.
const (
	// liveMax is how many actions it has in the cluster before it waits for one to
	// end, so that a fault leaves no mountain of work behind.
	liveMax = 16
	// recentMax is how many requests it may repeat.
	recentMax = 16
	// attemptsMax of an action that may be repeated: more than faults can use up.
	attemptsMax = 100
)

var errNoWitness = errors.New("the workload has no witness: set Env.Witness, Env.Pool and Env.Cores")

// request is one submission, to be sent once or several times.
type request struct {
	message *rotav1.SubmitActionsRequest
	retry   bool
}

// job is what an action asks for and does.
type job struct {
	class     string
	profile   *rotav1.Profile
	resources *rotav1.Resources
	work      witness.Work
}

// submitter submits what agents execute.
type submitter struct {
	*worker
	// several is how often, in percent, a submission has several actions.
	several int
	next    func() job
	live    []uint64   // accepted and not seen to have ended, oldest first
	recent  []*request // with an unknown outcome, or accepted
}

func submissions(ctx context.Context, env *Env, rate float64) error {
	if env.Witness == nil || env.Cores == 0 {
		return errNoWitness
	}
	return env.work(ctx, rate, func(w *worker) func(context.Context) {
		return (&submitter{worker: w, several: 20, next: w.newJob}).step
	})
}

func (s *submitter) step(ctx context.Context) {
	if s.chance(2) {
		s.roam()
	}
	switch dice := s.rand.IntN(100); {
	case dice < 10 && len(s.recent) > 0:
		s.accepted(s.submit(ctx, s.recent[s.rand.IntN(len(s.recent))]))
	case dice < 16 && len(s.live) > 0:
		s.cancel(ctx, s.live[s.rand.IntN(len(s.live))])
	case len(s.live) >= liveMax:
		s.look(ctx)
	default:
		s.fresh(ctx, s.newRequest(ctx, 0, s.several, s.next))
	}
}

// fresh submits something new.
func (s *submitter) fresh(ctx context.Context, q *request) {
	op := s.submit(ctx, q)
	s.accepted(op)
	if op.Outcome != history.Fail {
		s.recent = append(s.recent, q)
		s.recent = s.recent[max(0, len(s.recent)-recentMax):]
	}
}

func (s *submitter) accepted(op history.Op) {
	for _, id := range op.IDs {
		if !slices.Contains(s.live, id) && !op.Replayed {
			s.live = append(s.live, id)
		}
	}
}

// look sees whether the oldest action has ended, else has the next one be the
// oldest.
func (s *submitter) look(ctx context.Context) {
	id := s.live[0]
	op := s.get(ctx, id, false)
	s.live = s.live[1:]
	ended := op.Outcome == history.OK && op.State != "QUEUED" && op.State != "RUNNING"
	if !ended && op.Error != "ACTION_NOT_FOUND" {
		s.live = append(s.live, id)
	}
}

// newRequest makes a submission of one job or a few, in a trajectory or in none.
func (w *worker) newRequest(ctx context.Context, trajectory uint64, several int, next func() job) *request {
	q := &request{retry: w.chance(50), message: &rotav1.SubmitActionsRequest{
		RequestId: w.requestID(), ExpireTime: w.env.clock.expiry(ctx, w),
	}}
	n := 1
	if w.chance(several) {
		n += w.rand.IntN(3)
	}
	for i := range n {
		q.message.Actions = append(q.message.Actions, w.newAction(q, i, trajectory, next()))
	}
	return q
}

func (w *worker) newAction(q *request, number int, trajectory uint64, j job) *rotav1.ActionSpec {
	spec := &rotav1.ActionSpec{
		Name:         fmt.Sprintf("%s/%d", q.message.RequestId, number),
		TrajectoryId: trajectory,
		Command:      w.env.Witness.Command(q.message.RequestId, j.asked(), j.work),
		Resources:    j.resources,
		Class:        j.class,
		Profile:      j.profile,
	}
	if trajectory == 0 {
		spec.Pool = w.env.Pool
	}
	if q.retry {
		spec.LossPolicy, spec.MaxAttempts = rotav1.LossPolicy_LOSS_POLICY_RETRY, attemptsMax
	}
	return spec
}

// asked is what the action may be given, and whose engine it calls.
func (j job) asked() history.Asked {
	a := asked(j.resources)
	if j.work.Calls {
		a.Model = j.resources.GetGpus().GetModel()
	}
	return a
}

// asked is what resources allow an attempt to be given.
func asked(r *rotav1.Resources) (a history.Asked) {
	for _, n := range r.AllowedCores {
		a.Cores = append(a.Cores, int(n))
	}
	if len(a.Cores) == 0 {
		for n := r.GetCores(); n <= max(r.GetCores(), r.MaxCores); n++ {
			a.Cores = append(a.Cores, int(n))
		}
	}
	for _, n := range r.GetGpus().GetGpus() {
		a.GPUs = append(a.GPUs, int(n))
	}
	for _, q := range r.Quotas {
		a.Quotas = append(a.Quotas, history.Use{Quota: q.Quota, Units: q.Units})
	}
	return a
}

// classes is how many there are, of 0 to all of their work in parallel.
const classes = 3

// newJob is for cores. Some are of a class: what these take is learned, and
// decides how wide the next ones are.
func (w *worker) newJob() job {
	j := job{resources: w.newResources(), work: w.newWork()}
	if class := w.rand.IntN(classes); w.chance(40) {
		const all = 80 * time.Millisecond
		j.class = fmt.Sprintf("work-%d", class)
		j.work.Parallel = all * time.Duration(class) / (classes - 1)
		j.work.For = 5*time.Millisecond + all - j.work.Parallel
	}
	return j
}

// newResources asks for one core, for several, for as many as there are, or for a
// power of two.
func (w *worker) newResources() *rotav1.Resources {
	r := &rotav1.Resources{}
	if w.chance(25) {
		for n := 1; n <= w.env.Cores; n *= 2 {
			r.AllowedCores = append(r.AllowedCores, uint32(n))
		}
		return r
	}
	r.Cores = proto.Uint32(1)
	if w.chance(30) {
		r.Cores = proto.Uint32(uint32(1 + w.rand.IntN(w.env.Cores)))
	}
	if w.chance(30) {
		r.MaxCores = uint32(w.env.Cores)
	}
	return r
}

// newWork is mostly short. Some is long enough for a fault to meet it.
func (w *worker) newWork() witness.Work {
	var work witness.Work
	switch dice := w.rand.IntN(100); {
	case dice < 85:
		work.For = w.between(2*time.Millisecond, 60*time.Millisecond)
		work.Spin = w.chance(15)
	case dice < 100-cmp.Or(w.env.LongPerCent, 2):
		work.For = w.between(200*time.Millisecond, time.Second)
	default:
		work.For = w.between(time.Second, 6*time.Second)
	}
	if w.chance(8) {
		work.Child = w.between(100*time.Millisecond, 10*time.Second)
	}
	return work
}
