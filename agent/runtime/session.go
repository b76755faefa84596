package runtime

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"rota/agent/plan"
)

// session is the connection of one agent. Only the newest one counts: an agent
// that was replaced loses its connection, and learns it by that.
type session struct {
	sup  *supervisor
	conn net.Conn

	mu     sync.Mutex
	cond   *sync.Cond
	queue  [][]byte // bounded by the attempts there can be
	closed bool     // nothing is queued any more
	wrote  chan struct{}
}

func (s *supervisor) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.log.Warn("accept", "error", err)
			time.Sleep(10 * time.Millisecond) // out of descriptors, say
			continue
		}
		ss := &session{sup: s, conn: conn, wrote: make(chan struct{})}
		ss.cond = sync.NewCond(&ss.mu)
		go ss.write()
		go ss.serve()
	}
}

// helloWithin is how long a connection may take to say who it is.
const helloWithin = 10 * time.Second

func (ss *session) serve() {
	r := bufio.NewReader(ss.conn)
	err := ss.greet(r)
	for err == nil {
		var f *frame
		if f, err = readFrame(r); err == nil {
			err = ss.handle(f)
		}
	}
	ss.sup.log.Info("agent connection ended", "error", err)
	ss.sup.detach(ss)
	ss.close()
	<-ss.wrote
	ss.conn.Close()
}

func (ss *session) greet(r *bufio.Reader) error {
	ss.conn.SetReadDeadline(time.Now().Add(helloWithin))
	defer ss.conn.SetReadDeadline(time.Time{})
	f, err := readFrame(r)
	if err != nil {
		return err
	}
	if f.Op != opHello || f.Hello == nil || f.Hello.Version != protocolVersion {
		err := fmt.Errorf("%w: supervisor %d speaks version %d; it ends with its last attempt",
			ErrVersion, os.Getpid(), protocolVersion)
		ss.send(&frame{ID: f.ID, Op: opReply, Error: toRemote(err)})
		return err
	}
	return ss.sup.attach(ss, f.ID)
}

// errReplaced ends the connection of an agent after whom another has come.
var errReplaced = errors.New("another agent has connected")

// handle answers one request. Requests are handled in the order they came, and
// none of an agent that was replaced: what it asked for last may be in a buffer
// still, while its successor has been told that it did not happen.
func (ss *session) handle(f *frame) error {
	ss.sup.serving.Lock()
	defer ss.sup.serving.Unlock()
	if !ss.sup.isCurrent(ss) {
		return errReplaced
	}
	reply := &frame{ID: f.ID, Op: opReply}
	var err error
	switch f.Op {
	case opStart:
		err = ss.sup.startAttempt(f.Spec)
	case opKill:
		for _, k := range f.Keys {
			err = errors.Join(err, ss.sup.killAttempt(k, f.Reason))
		}
	case opList:
		reply.Keys = ss.list(f.ID)
	case opForget:
		err = ss.sup.forget(f.Keys)
	case opDeadline:
		err = ss.sup.setDeadline(f.Deadline)
	case opStop:
		// After the answer: the supervisor may be gone before anything that follows.
		defer ss.sup.beginStop("told to stop by the agent")
	default:
		err = fmt.Errorf("unknown request %q", f.Op)
	}
	reply.Error = toRemote(err)
	ss.send(reply)
	return nil
}

func (ss *session) list(id uint64) []plan.Key {
	running, ended := ss.sup.list()
	for len(ended) > 0 {
		n := min(len(ended), listPage)
		ss.send(&frame{ID: id, Op: opMore, Exits: ended[:n]})
		ended = ended[n:]
	}
	return running
}

// send queues a frame. It never waits for the agent, which may be stopped.
func (ss *session) send(f *frame) {
	b, err := appendFrame(nil, f)
	if err != nil {
		ss.sup.log.Error("frame cannot be sent", "op", f.Op, "error", err)
		ss.conn.Close()
		return
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if !ss.closed {
		ss.queue = append(ss.queue, b)
		ss.cond.Signal()
	}
}

// write sends what is queued, all that has gathered at a time.
func (ss *session) write() {
	defer close(ss.wrote)
	for {
		ss.mu.Lock()
		for len(ss.queue) == 0 && !ss.closed {
			ss.cond.Wait()
		}
		queue := net.Buffers(ss.queue)
		ss.queue = nil
		ss.mu.Unlock()
		if len(queue) == 0 {
			return
		}
		if _, err := queue.WriteTo(ss.conn); err != nil {
			ss.close()
			ss.conn.Close()
			return
		}
	}
}

func (ss *session) close() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.closed = true
	ss.cond.Broadcast()
}

// finish sends what is queued, if the agent takes it soon, and hangs up.
func (ss *session) finish() {
	ss.conn.SetWriteDeadline(time.Now().Add(time.Second))
	ss.close()
	<-ss.wrote
	ss.conn.Close()
}
