package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"

	peerv1 "rota/api/gen/peer/v1"
	"rota/internal/failpoint"
	"rota/server/quorum"
)

// ReadIndex returns an index such that a read of a state machine that has
// applied it is linearizable. Any server may be asked. ErrNoLeader: try again.
func (r *Replica) ReadIndex(ctx context.Context) (uint64, error) {
	var index uint64
	err := r.withLeader(ctx, func(lead *leadership, address string) (err error) {
		if lead != nil {
			index, err = r.readLead(ctx, lead)
		} else {
			index, err = r.readers.read(ctx, r.closed)
		}
		if errors.Is(err, ErrNotLeader) {
			err = noLeader(err)
		}
		return err
	})
	return index, err
}

// ReadIndexLocal is ReadIndex for a server that leads; ErrNotLeader otherwise.
func (r *Replica) ReadIndexLocal(ctx context.Context) (uint64, error) {
	lead, err := r.leading(ctx)
	if err != nil {
		return 0, err
	}
	return r.readLead(ctx, lead)
}

// readLead captures what is committed and then has the leadership confirmed.
// The leader is ready, so what its predecessors committed is below that index.
func (r *Replica) readLead(ctx context.Context, lead *leadership) (uint64, error) {
	index, err := r.commandAt(r.raft.CommitIndex())
	if err != nil {
		return 0, err
	}
	failpoint.Hit(failpoint.ReadIndexTaken)
	return lead.verify.verify(ctx, index)
}

// VerifyLeader returns nil if a majority confirmed this server's leadership in
// answer to messages sent after the call. ErrNotLeader if it does not lead.
func (r *Replica) VerifyLeader(ctx context.Context) error {
	lead, err := r.leading(ctx)
	if err != nil {
		return err
	}
	_, err = lead.verify.verify(ctx, 0)
	return err
}

// readQueue is the readers of package quorum, for readers on many goroutines.
type readQueue struct {
	ready chan struct{}

	mu    sync.Mutex
	rules quorum.Readers[chan readAnswer]
}

type readAnswer struct {
	index uint64
	err   error
}

func newReadQueue() *readQueue { return &readQueue{ready: make(chan struct{}, 1)} }

func (q *readQueue) read(ctx context.Context, closed <-chan struct{}) (uint64, error) {
	answer := make(chan readAnswer, 1)
	q.mu.Lock()
	q.rules.Join(answer)
	q.mu.Unlock()
	q.signal()
	select {
	case a := <-answer:
		return a.index, a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-closed:
		return 0, ErrShutdown
	}
}

func (q *readQueue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (q *readQueue) call() []chan readAnswer {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.rules.Call()
}

func (q *readQueue) returned() {
	q.mu.Lock()
	q.rules.Returned()
	q.mu.Unlock()
	q.signal()
}

func (r *Replica) readLoop() {
	for {
		select {
		case <-r.readers.ready:
		case <-r.closed:
			return
		}
		readers := r.readers.call()
		if len(readers) == 0 {
			continue
		}
		r.goFunc(func() {
			defer r.readers.returned()
			index, err := r.forwardRead()
			for _, answer := range readers {
				answer <- readAnswer{index, err}
			}
		})
	}
}

func (r *Replica) forwardRead() (uint64, error) {
	client, address, err := r.leaderClient()
	if err != nil {
		return 0, err
	}
	ctx, cancel := r.forwardContext(address, 0)
	defer cancel()
	resp, err := client.ReadIndex(ctx, &peerv1.ReadIndexRequest{})
	if err != nil {
		// A read has no outcome to be unknown.
		return 0, noLeader(fmt.Errorf("read index from the leader: %w", err))
	}
	return resp.Index, nil
}
