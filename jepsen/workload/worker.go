package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"rota/api/client"
	"rota/jepsen/history"
)

// callTimeout is how long one call may take unless the Env says otherwise: far
// longer than one that meets no fault, far shorter than any fault.
const callTimeout = 1500 * time.Millisecond

// Bounds of the number of workers of a workload, and how many calls a second
// one worker is good for while a cluster is busy.
const (
	workersMin, workersMax = 3, 32
	workerRate             = 15
)

var errNoServers = errors.New("the workload has no servers: set Env.Servers")

// worker is one client of a workload. It makes one call after the other.
type worker struct {
	env    *Env
	client int
	rand   *rand.Rand
	conns  []*conn
	at     int // in conns: where the next call goes
	count  int // requests made
}

// work runs workers until ctx is done. Together they call step at a rate of so
// many a second, or less often if steps take too long. Each worker has a step of
// its own, which start makes.
func (env *Env) work(ctx context.Context, rate float64, start func(*worker) (step func(context.Context))) error {
	if len(env.Servers) == 0 {
		return errNoServers
	}
	conns, http := env.connect()
	defer http.CloseIdleConnections()
	n := min(max(int(rate/workerRate), workersMin), workersMax)
	interval := time.Duration(float64(n) / rate * float64(time.Second))
	var workers sync.WaitGroup
	for range n {
		w := env.newWorker(conns)
		workers.Go(func() { repeat(ctx, interval, w.rand, start(w)) })
	}
	workers.Wait()
	return nil
}

func (env *Env) newWorker(conns []*conn) *worker {
	client := int(env.clients.Add(1))
	source := rand.New(rand.NewPCG(env.Seed, uint64(client)))
	return &worker{env: env, client: client, rand: source, conns: conns, at: source.IntN(len(conns))}
}

// repeat calls step once in each interval, at first after a random part of it.
// Steps that are late are left out.
func repeat(ctx context.Context, interval time.Duration, source *rand.Rand, step func(context.Context)) {
	next := time.Now().Add(time.Duration(source.Int64N(int64(interval))))
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		step(ctx)
		next = next.Add(interval)
		if now := time.Now(); next.Before(now) {
			next = now.Add(time.Duration(source.Int64N(int64(interval)/4 + 1)))
		}
		timer.Reset(time.Until(next))
	}
}

// call makes one call to the current server and records it. do fills in what the
// answer says.
func (w *worker) call(ctx context.Context, op history.Op, do func(context.Context, *conn, *history.Op) error) history.Op {
	c := w.conns[w.at]
	op.Client, op.Server = w.client, c.id
	call := w.env.Record.Begin(op)
	ctx, cancel := context.WithTimeout(ctx, w.env.timeout())
	defer cancel()
	err := do(ctx, c, &call.Op)
	outcome, reason := judge(err)
	call.Error, call.Refused = reason, refusedByState(err)
	call.Finish(outcome)
	w.learn(c, outcome, err)
	return call.Op
}

// learn remembers which servers do not answer, and turns away from one that did
// not help.
func (w *worker) learn(c *conn, outcome history.Outcome, err error) {
	detail := client.Detail(err)
	switch silent := outcome == history.Unknown && detail == nil || neverSent(err); {
	case silent:
		c.trouble.Store(w.env.Record.Now())
		w.turn(w.at + 1)
	case outcome == history.Unknown || slices.Contains(leaderless, detail.GetReason()):
		w.turn(w.at + 1)
	default:
		c.trouble.Store(0)
	}
}

func (env *Env) timeout() time.Duration {
	if env.CallTimeout > 0 {
		return env.CallTimeout
	}
	return callTimeout
}

// roam turns to any server.
func (w *worker) roam() { w.turn(w.rand.IntN(len(w.conns))) }

// turn turns to a server, or mostly to one after it that answers, if there is
// any.
func (w *worker) turn(to int) {
	w.at = to % len(w.conns)
	if w.chance(5) {
		return
	}
	now := w.env.Record.Now()
	for i := range w.conns {
		if at := (to + i) % len(w.conns); !w.conns[at].troubled(now) {
			w.at = at
			return
		}
	}
}

// chance is true with a probability in percent.
func (w *worker) chance(percent int) bool { return w.rand.IntN(100) < percent }

// between is a random duration.
func (w *worker) between(from, to time.Duration) time.Duration {
	return from + time.Duration(w.rand.Int64N(int64(to-from)))
}

// requestID makes one that no other worker of this run makes.
func (w *worker) requestID() string {
	w.count++
	return fmt.Sprintf("c%d.%d", w.client, w.count)
}
