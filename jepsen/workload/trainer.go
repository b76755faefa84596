package workload

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/backoff"
	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
)

const (
	// trainersOfRun is how many trainers there are: with fewer, groups would seldom be
	// contended for.
	trainersOfRun = 8
	// lookEvery is how often a holder looks whether it still holds its group.
	lookEvery = 10 * time.Millisecond
	// stalledFor is how long a look may be late. A process that stands still for longer
	// cannot be fenced from inside, as the documents say, so that it takes the group for
	// its own proves nothing.
	stalledFor = 500 * time.Millisecond
	// acquireTries is how often a turn is asked for that was not answered.
	acquireTries = 4
)

var (
	errDied    = errors.New("the trainer died")
	errFailed  = errors.New("the work failed")
	errStalled = errors.New("the machine stood still")
)

// trainer holds turns, one after the other, through the client library: it waits,
// renews and gives up as programs do. What it records is what it believed, so it is the
// witness of its turns.
type trainer struct {
	*worker
	api  *client.Client
	line *line
}

func (env *Env) newTrainers(conns []*conn) (all []*trainer, err error) {
	var addrs []string
	for _, s := range env.Servers {
		addrs = append(addrs, s.Addr)
	}
	for range trainersOfRun {
		l := env.newLine()
		api, err := client.New(client.Config{Addrs: addrs, TLS: env.TLS, HTTP: l})
		if err != nil {
			return nil, err
		}
		all = append(all, &trainer{env.newWorker(conns), api, l})
	}
	return all, nil
}

// train takes one turn after the other until ctx is done.
func (t *trainer) train(ctx context.Context) {
	defer t.api.Close()
	for ctx.Err() == nil {
		t.roam()
		if q := t.newTurn(ctx); t.acquired(ctx, q) {
			t.take(ctx, q)
		}
		_ = backoff.Sleep(ctx, t.between(100*time.Millisecond, 600*time.Millisecond))
	}
}

// newTurn is a turn of any job. Several trainers ask for turns of the same deployment.
func (t *trainer) newTurn(ctx context.Context) *rotav1.AcquireTurnRequest {
	job, deployment := trainings[t.rand.IntN(len(trainings))].Name, "actor"
	if t.chance(40) {
		deployment = "critic"
	}
	expect := t.between(50*time.Millisecond, 400*time.Millisecond)
	q := &rotav1.AcquireTurnRequest{
		RequestId: t.requestID(), ExpireTime: t.env.clock.expiry(ctx, t.worker),
		Deployment: job + "/" + deployment, Operation: rotav1.Operation_OPERATION_FORWARD_BACKWARD,
		Step: uint64(t.env.Record.Now()/int64(stepTime)) + 1, Expect: durationpb.New(expect), Preemptible: t.chance(50),
	}
	if t.chance(30) {
		q.Limit = durationpb.New(expect + 200*time.Millisecond)
	}
	return q
}

// acquired asks for a turn, at several servers if need be and sometimes although it was
// answered, and reports whether it was accepted.
func (t *trainer) acquired(ctx context.Context, q *rotav1.AcquireTurnRequest) bool {
	for range acquireTries {
		op := t.acquire(ctx, q)
		if op.Outcome == history.OK && t.chance(20) {
			t.roam()
			t.acquire(ctx, q)
		}
		switch {
		case op.Outcome == history.OK:
			return true
		case op.Error == "JOB_NOT_FOUND":
			t.submitTraining(ctx, q.Deployment)
			return false
		case op.Outcome == history.Fail && !slices.Contains(leaderless, op.Error), ctx.Err() != nil:
			return false
		}
		_ = backoff.Sleep(ctx, 50*time.Millisecond)
	}
	return false
}

// submitTraining submits the job of a deployment, which has gone.
func (t *trainer) submitTraining(ctx context.Context, deployment string) {
	for _, q := range trainings {
		if strings.HasPrefix(deployment, q.Name+"/") {
			t.submitJob(ctx, t.newTraining(ctx, q))
		}
	}
}

// take waits for a turn that was accepted, and holds it.
func (t *trainer) take(ctx context.Context, q *rotav1.AcquireTurnRequest) {
	f := t.newFate()
	patient, cancel := context.WithCancel(ctx)
	defer cancel()
	giveUp := time.AfterFunc(t.between(3*time.Second, 8*time.Second), cancel)
	defer giveUp.Stop()
	defer t.line.mend()
	if f.diesWaiting > 0 {
		defer time.AfterFunc(f.diesWaiting, func() {
			t.line.cut()
			cancel()
		}).Stop()
	}
	h := history.Holding{Client: t.client, Deployment: q.Deployment}
	var lacks lacks
	err := t.api.HoldTurn(patient, q, func(working context.Context, turn *rotav1.Turn) error {
		giveUp.Stop()
		lacks.told(t.env.Record.Now(), turn.Degraded)
		return t.hold(working, patient, turn, &h, f)
	}, client.OnDegraded(func(text string) { lacks.told(t.env.Record.Now(), text) }))
	if h.Start > 0 {
		h.Yielded, h.Lacks = err == nil, lacks.list()
		t.env.Record.AddHolding(h)
	}
}

// lacks are what a holder was told of members that its group lacks.
type lacks struct {
	mu  sync.Mutex
	all []history.Lack
}

func (l *lacks) told(at int64, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if text != "" || len(l.all) > 0 {
		l.all = append(l.all, history.Lack{At: at, Text: text})
	}
}

func (l *lacks) list() []history.Lack {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// fate is what becomes of a turn.
type fate struct {
	takes       time.Duration
	diesWaiting time.Duration // 0: it does not
	dies        time.Duration // so long after it began to hold; 0: it does not
	cut         time.Duration // so long after it began nothing gets through any more
	cutFor      time.Duration
	deaf        bool // it does not stop when it is asked to
	fails       bool
}

func (t *trainer) newFate() fate {
	f := fate{takes: t.between(50*time.Millisecond, 450*time.Millisecond), deaf: t.chance(15), fails: t.chance(8)}
	if t.chance(12) { // longer than it said
		f.takes = t.between(500*time.Millisecond, 4*time.Second)
	}
	switch dice := t.rand.IntN(100); {
	case dice < 4:
		f.diesWaiting = t.between(10*time.Millisecond, 500*time.Millisecond)
	case dice < 10:
		f.dies = t.between(10*time.Millisecond, 300*time.Millisecond)
	case dice < 24:
		f.cut, f.cutFor, f.takes = t.between(lookEvery, 100*time.Millisecond), t.between(2*time.Second, 6*time.Second), 6*time.Second
	}
	return f
}

// hold uses the group until the work is done or it must not go on, and notes until when
// it took the group for its own.
func (t *trainer) hold(working, patient context.Context, turn *rotav1.Turn, h *history.Holding, f fate) error {
	h.Turn, h.Token, h.Group = turn.Id, turn.Token, turn.Group
	over := working.Done()
	if f.deaf {
		over = client.HoldOf(working).Lost()
	}
	if f.cut > 0 {
		defer time.AfterFunc(f.cut, t.line.cut).Stop()
		defer time.AfterFunc(f.cut+f.cutFor, t.line.mend).Stop()
	}
	began := time.Now()
	for last := began; ; {
		time.Sleep(lookEvery)
		now, at := time.Now(), t.env.Record.Now()
		select {
		case <-over:
			return context.Cause(working)
		case <-patient.Done(): // also the end of the run
			return context.Cause(patient)
		default:
		}
		if now.Sub(last) > stalledFor {
			return errStalled
		}
		if h.Start == 0 {
			h.Start = at
		}
		h.End, last = at, now
		switch held := now.Sub(began); {
		case f.dies > 0 && held > f.dies:
			t.line.cut()
			return errDied
		case held > f.takes:
			return t.finish(working, turn, f)
		}
	}
}

// finish says how the work went.
func (t *trainer) finish(working context.Context, turn *rotav1.Turn, f fate) error {
	if turn.SetUpNeeded && t.chance(70) {
		client.HoldOf(working).SetUpTook(lookEvery)
	}
	if f.fails {
		return errFailed
	}
	return nil
}
