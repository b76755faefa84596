package replica

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"rota/internal/failpoint"
	"rota/server/entry"
)

// leadership is one term of this server as a leader that is ready: its own
// no-op is committed and everything before it applied, so its state holds all
// that was acknowledged by its predecessors.
type leadership struct {
	term   uint64
	stamp  *entry.Stamp
	began  time.Time
	verify *verifier
	ctx    context.Context
}

// followLeadership turns raft's notifications into leaderships.
func (r *Replica) followLeadership() {
	end := func() {}
	defer func() { end() }()
	for {
		select {
		case <-r.closed:
			r.endLeadership()
			return
		case up := <-r.notify:
			end()
			r.endLeadership()
			if up {
				ctx, cancel := context.WithCancel(context.Background())
				end = cancel
				r.goFunc(func() { r.establish(ctx) })
			} else {
				r.trans.closePipelines()
			}
		case <-r.observed:
		}
		r.changed.fire()
	}
}

// Bounds of the pause between looks at whether the no-op is committed. Raft does
// not tell; it is a matter of milliseconds once per election.
const (
	establishPauseMin = 200 * time.Microsecond
	establishPauseMax = 10 * time.Millisecond
	// establishRetry is the pause after an error.
	establishRetry = 100 * time.Millisecond
)

// establish waits until the leader is ready and makes it known.
func (r *Replica) establish(ctx context.Context) {
	pause := establishPauseMin
	var noop position
	for {
		noop = r.store.logs.newestNoop()
		if noop.term == r.raft.CurrentTerm() && r.raft.CommitIndex() >= noop.index && r.raft.State() == raft.Leader {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, establishPauseMax)
	}
	failpoint.Hit(failpoint.ElectionWon)
	if !r.applyBefore(ctx, noop.index) {
		return
	}
	lead := &leadership{
		term:  noop.term,
		stamp: entry.NewStamp(noop.term, r.cfg.Machine.Now()),
		began: r.cfg.Now(),
		ctx:   ctx,
	}
	lead.verify = newVerifier(r, lead)
	r.beginLeadership(lead)
}

// applyBefore waits until everything up to index is applied. It goes on after an error while its
// context lives: no other server replaces a leader that is never ready.
func (r *Replica) applyBefore(ctx context.Context, index uint64) bool {
	for {
		command, err := r.commandAt(index)
		if err == nil {
			err = r.cfg.Machine.WaitApplied(ctx, command)
		}
		if err == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(establishRetry):
		}
		r.logger.Warn("this leader is not ready yet, and tries again", "error", err)
	}
}

func (r *Replica) beginLeadership(lead *leadership) {
	r.leadMu.Lock()
	defer r.leadMu.Unlock()
	if lead.ctx.Err() != nil {
		return // lost meanwhile
	}
	r.wedge.reset() // what was refused in an earlier term says nothing about this one
	r.lead.Store(lead)
	r.logger.Info("leading", "term", lead.term)
	r.tellLeader(lead.term)
	r.changed.fire()
}

func (r *Replica) endLeadership() {
	r.leadMu.Lock()
	defer r.leadMu.Unlock()
	if r.lead.Swap(nil) != nil {
		r.tellLeader(0)
	}
}

// tellLeader leaves only the newest state in the channel.
func (r *Replica) tellLeader(term uint64) {
	for {
		select {
		case r.leaderCh <- term:
			return
		default:
		}
		select {
		case <-r.leaderCh:
		default:
		}
	}
}

// commandAt returns the index of the newest command at or below index. Only
// commands reach the state machine, so that is what a reader can wait for.
func (r *Replica) commandAt(index uint64) (uint64, error) {
	for ; index > 0; index-- {
		var e raft.Log
		err := r.store.logs.GetLog(index, &e)
		if err == raft.ErrLogNotFound {
			snap, err := r.store.snaps.newest()
			return min(snap.index, index), err
		}
		if err != nil {
			return 0, err
		}
		if e.Type == raft.LogCommand {
			return index, nil
		}
	}
	return 0, nil
}

// Leader returns the leader's ID and address, empty if none is known.
func (r *Replica) Leader() (id, address string) {
	a, i := r.raft.LeaderWithID()
	return string(i), string(a)
}

// IsLeader says whether this server leads and is ready.
func (r *Replica) IsLeader() bool { return r.lead.Load() != nil }

// LeaderCh tells when this server starts and stops to lead: the term, once its own
// no-op of that term is applied, and 0. Only the newest change waits in the channel,
// so a term may follow another, or 0 another 0. One reader.
func (r *Replica) LeaderCh() <-chan uint64 { return r.leaderCh }

// termKey is the key of the term in a context.
type termKey struct{}

// InTerm returns a context for what a leader does in one term. What it decides by
// what it alone knows, such as how long a node has been silent, holds in that term
// only: another leader may have learned more since.
func InTerm(ctx context.Context, term uint64) context.Context {
	return context.WithValue(ctx, termKey{}, term)
}

// termOf returns the term of a context, 0 if it has none.
func termOf(ctx context.Context) uint64 {
	term, _ := ctx.Value(termKey{}).(uint64)
	return term
}
