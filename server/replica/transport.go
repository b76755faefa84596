package replica

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// transport is raft's network transport with one way in. Embedding keeps the
// pre-vote RPC, without which raft would switch pre-vote off.
type transport struct {
	*raft.NetworkTransport
	address raft.ServerAddress
	rpcs    chan raft.RPC

	// gate is asked for each RPC; a non-nil answer is sent instead of handing
	// the RPC to raft.
	gate func(cmd any) any
	seen leaderCommit
	// FastHeartbeats of Config.
	fastHeartbeats bool

	stop chan struct{}
	done chan struct{}
	once sync.Once

	running atomic.Bool

	pipelines sync.Map // of *pipeline
}

// poolSize is how many idle connections to one peer are kept.
const poolSize = 3

// leaderCommit is the newest commit index that a leader sent, and its term.
type leaderCommit struct {
	mu sync.Mutex
	position
}

func (c *leaderCommit) note(term, index uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if term > c.term {
		c.position = position{index: 0, term: term}
	}
	if term == c.term && index > c.index {
		c.index = index
	}
}

func (c *leaderCommit) get() position {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.position
}

func newTransport(cfg *Config, stream raft.StreamLayer, gate func(any) any) *transport {
	t := &transport{
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: stream, MaxPool: poolSize, MaxRPCsInFlight: raft.DefaultMaxRPCsInFlight,
			Timeout: cfg.TransportTimeout, Logger: cfg.Logger.Named("raft-net"),
		}),
		address: raft.ServerAddress(cfg.Address),
		rpcs:    make(chan raft.RPC),
		gate:    gate,
		stop:    make(chan struct{}), done: make(chan struct{}),
		fastHeartbeats: cfg.unsafeFastHeartbeats,
	}
	return t
}

// run lets RPCs in. Until raft exists they wait, as they would for its main loop.
func (t *transport) run() {
	t.running.Store(true)
	go t.forward()
}

// SetHeartbeatHandler does nothing, so that heartbeats take the same way as
// every other RPC. On the fast path they would change raft's term and state
// under its running leader loop, and the next entry of the old leader would
// carry the new leader's term (hashicorp/raft issue 695).
func (t *transport) SetHeartbeatHandler(handler func(raft.RPC)) {
	if t.fastHeartbeats {
		t.NetworkTransport.SetHeartbeatHandler(handler)
	}
}

// LocalAddr implements raft.Transport: the address that others are told.
func (t *transport) LocalAddr() raft.ServerAddress { return t.address }

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC { return t.rpcs }

// Close implements raft.WithClose.
func (t *transport) Close() error {
	t.once.Do(func() {
		close(t.stop)
		if !t.running.Load() {
			close(t.done)
		}
	})
	t.closePipelines()
	err := t.NetworkTransport.Close()
	t.CloseStreams()
	<-t.done
	return err
}

func (t *transport) forward() {
	defer close(t.done)
	in := t.NetworkTransport.Consumer()
	for {
		select {
		case <-t.stop:
			return
		case rpc := <-in:
			switch resp := t.gate(rpc.Command).(type) {
			case nil:
			case error:
				rpc.Respond(nil, resp)
				continue
			default:
				rpc.Respond(resp, nil)
				continue
			}
			if a, ok := rpc.Command.(*raft.AppendEntriesRequest); ok {
				t.seen.note(a.Term, a.LeaderCommitIndex)
			}
			select {
			case t.rpcs <- rpc:
			case <-t.stop:
				return
			}
		}
	}
}

// inject makes raft stand for election at once, as if its leader had asked for
// it. Raft offers no call for that.
func (t *transport) inject(header raft.RPCHeader) {
	rpc := raft.RPC{Command: &raft.TimeoutNowRequest{RPCHeader: header}, RespChan: make(chan raft.RPCResponse, 1)}
	select {
	case t.rpcs <- rpc:
	case <-t.stop:
	}
}

// votesTries is one more than the connections that the pool may hold to one
// peer, all of which are broken if the peer was restarted.
const votesTries = poolSize + 1

// RequestVote implements raft.Transport. Raft asks once per election, and a
// pooled connection that broke long ago would cost a whole election time-out.
func (t *transport) RequestVote(id raft.ServerID, target raft.ServerAddress, req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return retryBroken(func() error { return t.NetworkTransport.RequestVote(id, target, req, resp) })
}

// RequestPreVote implements raft.WithPreVote.
func (t *transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return retryBroken(func() error { return t.NetworkTransport.RequestPreVote(id, target, req, resp) })
}

// retryBroken repeats an RPC that may be repeated while connections turn out to
// be broken. A time-out or a refusal is an answer.
func retryBroken(rpc func() error) (err error) {
	for range votesTries {
		err = rpc()
		var netErr net.Error
		if err == nil || errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &netErr) && netErr.Timeout() {
			return err
		}
	}
	return err
}

// refusal is the answer to an RPC that asks for a vote, and nil for others.
func refusal(cmd any, header raft.RPCHeader) any {
	switch req := cmd.(type) {
	case *raft.RequestVoteRequest:
		return &raft.RequestVoteResponse{RPCHeader: header, Term: req.Term}
	case *raft.RequestPreVoteRequest:
		return &raft.RequestPreVoteResponse{RPCHeader: header, Term: req.Term}
	case *raft.TimeoutNowRequest:
		return &raft.TimeoutNowResponse{RPCHeader: header}
	}
	return nil
}

// watchedStream tells when a connection that a peer opened ends. A leader keeps
// some open to every follower, and the kernel closes them when it dies.
type watchedStream struct {
	raft.StreamLayer
	closed func()
	// ours refuses the address of a server of another cluster.
	ours  func(address string) error
	conns connSet
}

// Dial asks first whether the server is of this cluster. One that was given up when a
// majority was lost may come back with its old disk and its old votes: it must not reach
// those that went on without it, nor they it.
func (s *watchedStream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	if err := s.ours(string(address)); err != nil {
		return nil, err
	}
	return s.StreamLayer.Dial(address, timeout)
}

func (s *watchedStream) Accept() (net.Conn, error) {
	conn, err := s.StreamLayer.Accept()
	if err != nil {
		return nil, err
	}
	w := &watchedConn{Conn: conn, stream: s}
	s.conns.add(w)
	return w, nil
}

// Close stops listening and ends what peers have opened: raft's transport would
// leave a handler waiting on each until the peer closes it.
func (s *watchedStream) Close() error {
	err := s.StreamLayer.Close()
	s.conns.closeAll()
	return err
}

type watchedConn struct {
	net.Conn
	stream *watchedStream
	ended  atomic.Bool
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.end()
	}
	return n, err
}

// Close also tells: whoever answers a peer that dies may fail in a write, and reads no more.
func (c *watchedConn) Close() error {
	c.end()
	c.stream.conns.remove(c)
	return c.Conn.Close()
}

func (c *watchedConn) end() {
	if c.ended.CompareAndSwap(false, true) {
		c.stream.closed()
	}
}

type connSet struct {
	mu     sync.Mutex
	conns  map[*watchedConn]struct{}
	closed bool
}

func (s *connSet) add(c *watchedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Conn.Close()
		return
	}
	if s.conns == nil {
		s.conns = make(map[*watchedConn]struct{})
	}
	s.conns[c] = struct{}{}
}

func (s *connSet) remove(c *watchedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

func (s *connSet) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.conns {
		_ = c.Conn.Close()
	}
}
