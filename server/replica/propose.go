package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/internal/failpoint"
	"rota/server/entry"
)

// retryPause is between attempts while a leader is named but cannot be reached.
const retryPause = 20 * time.Millisecond

// Propose commits commands, in order and in one entry, and returns a result for
// each. Any server may be asked. Errors: ErrNoLeader, ErrOverloaded, ErrTooLarge
// and ErrShutdown mean that nothing was sent; ErrUnknownOutcome that it may have
// been committed.
func (r *Replica) Propose(ctx context.Context, cmds ...*logv1.Command) ([]*logv1.Result, error) {
	if refused, err := r.premature(ctx, cmds); refused != nil || err != nil || len(cmds) == 0 {
		return refused, err
	}
	var results []*logv1.Result
	err := r.withLeader(ctx, func(lead *leadership, address string) (err error) {
		if lead != nil {
			results, err = r.enqueue(ctx, r.local, lead.term, cmds)
		} else {
			results, err = r.enqueue(ctx, r.remote, 0, cmds)
		}
		return err
	})
	return results, err
}

// premature refuses commands of a feature level that is not active yet, all of them if
// one is. Every server looks at its own commands: one that forwards them may be newer than
// the leader, which could not say what it does not know. One that has just started, or lags, learns
// first what is active.
func (r *Replica) premature(ctx context.Context, cmds []*logv1.Command) ([]*logv1.Result, error) {
	if r.beyondLevel(cmds) == nil {
		return nil, nil
	}
	index, err := r.ReadIndex(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.cfg.Machine.WaitApplied(ctx, index); err != nil {
		return nil, noLeader(err) // nothing was sent
	}
	return r.beyondLevel(cmds), nil
}

func (r *Replica) beyondLevel(cmds []*logv1.Command) []*logv1.Result {
	for _, c := range cmds {
		if refusal := fsm.Premature(c, r.cfg.Machine.Level); refusal != nil {
			return slices.Repeat([]*logv1.Result{refusal}, len(cmds))
		}
	}
	return nil
}

// ProposeLocal is Propose for a server that leads: it never forwards. ErrNotLeader
// means that nothing was proposed. If ctx is of a term (see InTerm), the commands
// are committed in that term or not at all.
func (r *Replica) ProposeLocal(ctx context.Context, cmds ...*logv1.Command) ([]*logv1.Result, error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	lead, err := r.leading(ctx)
	if err != nil {
		return nil, err
	}
	if term := termOf(ctx); term != 0 && term != lead.term {
		return nil, fmt.Errorf("%w in term %d any more", ErrNotLeader, term)
	}
	results, err := r.enqueue(ctx, r.local, lead.term, cmds)
	if errors.Is(err, ErrNoLeader) {
		err = fmt.Errorf("%w (%w)", ErrNotLeader, err)
	}
	return results, err
}

func (r *Replica) enqueue(ctx context.Context, q *queue, term uint64, cmds []*logv1.Command) ([]*logv1.Result, error) {
	p := newProposal(term, cmds)
	if p.Weight > r.cfg.EntryWeight || p.Bytes() > entryBytesHard {
		return nil, ErrTooLarge
	}
	if r.closing.Load() {
		return nil, ErrShutdown
	}
	if err := q.push(p); err != nil {
		return nil, err
	}
	return q.await(ctx, p, r.closed)
}

// entryBytesHard is the largest single proposal: a request is at most 4 MiB.
const entryBytesHard = 8 << 20

// withLeader calls try with this server's own leadership, or with the address of
// whoever leads, until it does not answer ErrNoLeader or the wait is over.
func (r *Replica) withLeader(ctx context.Context, try func(lead *leadership, address string) error) error {
	var deadline *time.Timer
	for {
		changed := r.changed.wait()
		err := ErrNoLeader
		known := false
		if lead := r.lead.Load(); lead != nil {
			known = true
			err = try(lead, "")
		} else if _, address := r.Leader(); address != "" && address != r.cfg.Address {
			known = true
			err = try(nil, address)
		}
		if !errors.Is(err, ErrNoLeader) || errors.Is(err, ErrShutdown) || ctx.Err() != nil {
			return err
		}
		if deadline == nil {
			deadline = time.NewTimer(r.cfg.LeaderWait)
			defer deadline.Stop()
		}
		if !r.awaitLeader(ctx, changed, deadline.C, known) {
			return err
		}
	}
}

// awaitLeader waits for a reason to try again.
func (r *Replica) awaitLeader(ctx context.Context, changed <-chan struct{}, deadline <-chan time.Time, known bool) bool {
	var pause <-chan time.Time
	if known {
		pause = time.After(retryPause)
	}
	select {
	case <-changed:
		return true
	case <-pause:
		return true
	case <-deadline:
	case <-ctx.Done():
	case <-r.closed:
	}
	return false
}

// leading returns this server's leadership, waiting for it to become ready if
// raft has elected this server already.
func (r *Replica) leading(ctx context.Context) (*leadership, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.LeaderWait)
	defer cancel()
	for {
		changed := r.changed.wait()
		if lead := r.lead.Load(); lead != nil {
			return lead, nil
		}
		if r.raft.State() != raft.Leader {
			return nil, ErrNotLeader
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrNotLeader, ctx.Err())
		case <-r.closed:
			return nil, ErrShutdown
		}
	}
}

// inflight is an entry that raft has been given.
type inflight struct {
	batch  batch
	began  time.Time
	future raft.ApplyFuture
	done   chan struct{} // closed when raft has answered
}

// proposeLoop makes entries of what waits. An entry is formed as late as
// possible: when raft's main loop is free to take it, that is when the entry
// before it is on this server's disk. Followers then write one entry while the
// leader writes the next.
func (r *Replica) proposeLoop() {
	flights := make(chan inflight, r.cfg.Pipeline)
	slots := make(chan struct{}, r.cfg.Pipeline)
	r.goFunc(func() { r.collect(flights, slots) })
	defer close(flights)
	for {
		select {
		case slots <- struct{}{}:
		case <-r.closed:
			return
		}
		b := r.local.next(r.closed)
		if b == nil {
			return
		}
		r.store.logs.clearStored()
		began := time.Now()
		future, err := r.apply(b)
		if err != nil {
			<-slots
			r.local.deliver(b, nil, err)
			continue
		}
		f := inflight{b, began, future, make(chan struct{})}
		flights <- f
		select {
		case <-r.store.logs.stored:
		case <-f.done:
		case <-r.closed:
			return
		}
	}
}

// apply encodes a batch and hands it to raft. An error means it was not sent.
// Raft may change its term before it takes the entry. The entry names the term in which
// it was stamped, and the state machine compares the two.
//
// The buffer is raft's from then on: it stays in the cache and in messages to
// slow followers, so it cannot come from a pool.
func (r *Replica) apply(b batch) (raft.ApplyFuture, error) {
	if err := r.guard.err(); err != nil {
		return nil, noLeader(err)
	}
	lead := r.lead.Load()
	if lead == nil || r.raft.CurrentTerm() != lead.term {
		return nil, ErrNoLeader
	}
	e := entry.Form(b, lead.stamp, r.moment(lead))
	if e == nil {
		return nil, ErrNoLeader
	}
	data, err := e.MarshalVT()
	if err != nil {
		return nil, fmt.Errorf("encode entry: %w", err)
	}
	if r.cfg.stamped != nil {
		r.cfg.stamped(e)
	}
	return r.raft.ApplyLog(raft.Log{Data: data}, 0), nil
}

func (r *Replica) moment(lead *leadership) entry.Moment {
	m := entry.Moment{Elapsed: int64(r.cfg.Now().Sub(lead.began)), Committed: r.cfg.Machine.Now()}
	if ns := time.Now().UnixNano(); ns > entry.WallFloor {
		m.Wall = ns
	}
	return m
}

// collect answers the callers, in order.
func (r *Replica) collect(flights <-chan inflight, slots <-chan struct{}) {
	for f := range flights {
		err := r.answer(f.future)
		if err == nil {
			r.cfg.Timings.Commit(time.Since(f.began))
			failpoint.Hit(failpoint.EntryApplied)
			r.announce(f.future.Index())
		}
		close(f.done)
		<-slots
		results, err := r.outcome(f, err)
		r.local.deliver(f.batch, results, err)
	}
}

// answer waits for raft. A raft that is shut down may never answer.
func (r *Replica) answer(future raft.ApplyFuture) error {
	answer := make(chan error, 1)
	go func() { answer <- future.Error() }()
	select {
	case err := <-answer:
		return err
	case <-r.closed:
	}
	select {
	case err := <-answer:
		return err
	default:
		return ErrShutdown
	}
}

// outcome says what raft's answer means for the callers.
func (r *Replica) outcome(f inflight, err error) ([]*logv1.Result, error) {
	if errors.Is(err, raft.ErrLeadershipTransferInProgress) {
		if age := r.wedge.refused(time.Now()); age > 2*r.cfg.ElectionTimeout && !r.closing.Load() {
			r.guard.fatal(fmt.Errorf("%w: entries refused for %v", ErrTransferWedged, age.Round(time.Millisecond)))
		}
	} else {
		r.wedge.reset()
	}
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return nil, noLeader(err) // raft refused before it appended
	case err != nil:
		return nil, unknown(err)
	}
	if err := r.guard.err(); err != nil {
		return nil, unknown(err)
	}
	n := f.batch.Len()
	switch resp := f.future.Response().(type) {
	case []*logv1.Result:
		if len(resp) == n && resp[0].Refusal.GetReason() == fsm.ReasonOtherTerm {
			return nil, noLeader(errors.New(resp[0].Refusal.Message)) // and so are all others of the entry
		}
		if len(resp) == n {
			return resp, nil
		}
		return nil, unknown(fmt.Errorf("%d results for %d commands", len(resp), n))
	case error:
		return nil, unknown(resp)
	default:
		return nil, unknown(fmt.Errorf("state machine answered %T", resp))
	}
}

// wedge notices a leadership transfer that raft never ends: such a server leads
// but refuses every entry (hashicorp/raft issue 696).
type wedge struct {
	mu    sync.Mutex
	since time.Time
}

// refused returns for how long raft has refused without a break.
func (w *wedge) refused(now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() {
		w.since = now
	}
	return now.Sub(w.since)
}

func (w *wedge) reset() {
	w.mu.Lock()
	w.since = time.Time{}
	w.mu.Unlock()
}
