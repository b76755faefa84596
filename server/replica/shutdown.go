package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// Shutdown stops the replica. What was accepted is finished first; a leader then
// hands over to another voter, as its last act: raft can be left refusing every
// entry after a transfer. ctx bounds the graceful part.
func (r *Replica) Shutdown(ctx context.Context) error {
	var err error
	r.once.Do(func() { err = r.shutdown(ctx) })
	return err
}

func (r *Replica) shutdown(ctx context.Context) error {
	r.closing.Store(true)
	r.drain(ctx)
	r.handOver(ctx)
	return r.stop(ctx)
}

// stop ends everything without further courtesy.
func (r *Replica) stop(ctx context.Context) error {
	close(r.closed)
	r.changed.fire()
	r.raft.DeregisterObserver(r.observer)
	errTrans := r.trans.Close()
	if err := r.await(ctx, func() error { return r.raft.Shutdown().Error() }); err != nil {
		// Raft is stuck, most likely in the disk. What it uses stays open.
		return fmt.Errorf("shut down raft: %w", err)
	}
	r.wg.Wait()
	r.store.logs.closed.Store(true)
	errStore := r.store.close()
	r.guard.close()
	if err := errors.Join(errTrans, errStore); err != nil {
		return fmt.Errorf("shut down replica: %w", err)
	}
	return nil
}

// handOver gives the leadership to another voter and waits until it is known.
func (r *Replica) handOver(ctx context.Context) {
	if r.raft.State() != raft.Leader || len(r.otherVoters()) == 0 || r.guard.err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*r.cfg.ElectionTimeout)
	defer cancel()
	if err := r.transfer(ctx, ""); err != nil {
		r.logger.Warn("could not hand over the leadership", "error", err)
		return
	}
	for {
		changed := r.changed.wait()
		if _, address := r.Leader(); address != "" && address != r.cfg.Address {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// drainPause is between looks at whether the queues are empty.
const drainPause = time.Millisecond

// drain waits until nothing is queued or in flight.
func (r *Replica) drain(ctx context.Context) {
	for !r.local.idle() || !r.remote.idle() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(drainPause):
		}
	}
}
