package tensor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/agent/internal/unixsocket"
)

const (
	// connectionsMax is how many workers are served at once.
	connectionsMax = 1024
	unixPrefix     = "unix:"
	acceptPause    = 100 * time.Millisecond
)

var errBusy = fmt.Errorf("%d workers are connected already; close connections that are not needed", connectionsMax)

// Listen listens on unix:/path, a socket that only its owner can use. It fails with
// ErrOptions, or as listening does.
func Listen(address string) (*net.UnixListener, error) {
	path, ok := strings.CutPrefix(address, unixPrefix)
	if !ok || path == "" {
		return nil, fmt.Errorf("%w: %q is no address for states; use unix:/path", ErrOptions, address)
	}
	l, err := unixsocket.Listen(path)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

// Server serves one store.
type Server struct {
	Store  *Store
	Logger hclog.Logger // nil: none

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// Serve answers until the context is done, and returns when the last operation has ended.
// Those that are under way then fail with ErrClosed. What the store still holds stays.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	if s.Logger == nil {
		s.Logger = hclog.NewNullLogger()
	}
	s.conns = map[net.Conn]bool{}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer s.closeAll()
	for {
		conn, err := l.AcceptUnix()
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			if err == nil {
				_ = conn.Close()
			}
			return cmp.Or(ctx.Err(), err)
		case err != nil: // out of file descriptors, most likely
			s.Logger.Warn("a worker could not be accepted", "error", err)
			time.Sleep(acceptPause)
		case !s.admit(conn):
			_ = writeMessage(conn, answer{Error: encodeError(errBusy)}, nil)
			_ = conn.Close()
		default:
			wg.Go(func() { s.serve(conn) })
		}
	}
}

func (s *Server) admit(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) >= connectionsMax {
		return false
	}
	s.conns[conn] = true
	return true
}

// closeAll makes operations fail at their next block, and ends the connections.
func (s *Server) closeAll() {
	s.Store.Interrupt()
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Close()
	}
}

// session is a connection with the states that it has created and not committed.
type session struct {
	store     *Store
	creations map[Key]*Creation
	onDevice  map[Key]*DeviceView // whose memory the worker may have opened
}

func (s *Server) serve(conn *net.UnixConn) {
	c := &session{s.Store, map[Key]*Creation{}, map[Key]*DeviceView{}}
	defer func() {
		_ = conn.Close()
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
		for _, creation := range c.creations { // the worker is gone
			creation.Abort()
		}
		for _, v := range c.onDevice {
			v.Close()
		}
	}()
	for {
		var req request
		err := readMessage(conn, &req)
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // the next message cannot be found
			_ = writeMessage(conn, answer{Error: encodeError(err)}, nil)
			return
		}
		a, files, done := c.do(&req)
		if a.Error != nil {
			s.Logger.Debug("a state operation failed", "op", req.Op, "key", req.Key, "error", a.Error.Message)
		}
		err = writeMessage(conn, a, files)
		done()
		if err != nil {
			return
		}
	}
}

// do executes a request. done is to be called when the descriptors have been sent.
func (c *session) do(req *request) (a answer, files []*os.File, done func()) {
	done = func() {}
	var err error
	switch req.Op {
	case "create":
		a, files, err = c.create(req)
	case "commit":
		a, err = c.commit(req.Key)
	case "abort":
		err = c.abort(req.Key)
	case "open":
		var v *View
		if v, err = c.store.View(req.Key); err == nil {
			a, files = describe(v.state, v.segments)
			done = v.Close
		}
	case "read":
		a, files, done, err = c.read(req.Slice)
	case "offload":
		a.Moved, err = pointer(c.store.Offload(req.Key))
	case "restore":
		err = c.store.Restore(req.Key)
	case "to_device":
		err = c.store.ToDevice(req.Key, req.Keep)
	case "to_host":
		err = c.store.ToHost(req.Key, req.Keep, !req.Unverified)
	case "open_device":
		a, err = c.openDevice(req.Key)
	case "close_device":
		err = c.closeDevice(req.Key)
	case "checkpoint":
		a.Moved, err = pointer(c.store.Checkpoint(req.Key, req.Dir))
	case "load":
		to := req.To
		if to == (Key{}) {
			to = req.Key
		}
		a.Info, err = pointer(c.store.Load(req.Dir, req.Key, to))
	case "copy":
		a.Info, err = pointer(c.store.Copy(req.Key, req.To))
	case "drop":
		err = c.store.Drop(req.Key)
	case "info":
		a.Info, err = pointer(c.store.Info(req.Key))
	case "list":
		a.States = c.store.List(req.Deployment)
	case "stat":
		a.Stat, err = pointer(c.store.Stat(), nil)
	default:
		err = fmt.Errorf("%w: there is no operation %q; is the client newer than the agent?", ErrInvalid, req.Op)
	}
	if err != nil {
		a = answer{Error: encodeError(err)}
	}
	return a, files, done
}

func pointer[T any](v T, err error) (*T, error) { return &v, err }

func (c *session) create(req *request) (answer, []*os.File, error) {
	creation, err := c.store.Create(req.Key, req.Tensors)
	if err != nil {
		return answer{}, nil, err
	}
	c.creations[req.Key] = creation
	a, files := describe(creation.state, creation.segments)
	return a, files, nil
}

func (c *session) own(k Key) (*Creation, error) {
	if creation := c.creations[k]; creation != nil {
		return creation, nil
	}
	return nil, fmt.Errorf("%w: this connection has not created %s", ErrNotFound, k)
}

func (c *session) commit(k Key) (a answer, err error) {
	creation, err := c.own(k)
	if err != nil {
		return a, err
	}
	if a.Info, err = pointer(creation.Commit()); err == nil {
		delete(c.creations, k)
	}
	return a, err
}

func (c *session) abort(k Key) error {
	creation, err := c.own(k)
	if err == nil {
		delete(c.creations, k)
		creation.Abort()
	}
	return err
}

// openDevice passes handles of a state on the device, and holds its memory until closeDevice,
// or until the worker is gone.
func (c *session) openDevice(k Key) (a answer, err error) {
	if c.onDevice[k] != nil {
		return a, fmt.Errorf("%w: this connection has opened %s on the device already", ErrExists, k)
	}
	v, err := c.store.DeviceView(k)
	if err != nil {
		return a, err
	}
	c.onDevice[k] = v
	a, _ = describe(v.state, nil)
	a.Handles, a.GPU = v.Handles, c.store.device.UUID()
	return a, nil
}

func (c *session) closeDevice(k Key) error {
	v := c.onDevice[k]
	if v == nil {
		return fmt.Errorf("%w: this connection has not opened %s on the device", ErrNotFound, k)
	}
	delete(c.onDevice, k)
	v.Close()
	return nil
}

func (c *session) read(want *Slice) (a answer, files []*os.File, done func(), err error) {
	if want == nil {
		return a, nil, func() {}, fmt.Errorf("%w: no slice is given", ErrInvalid)
	}
	slab, err := c.store.Read(*want)
	if err != nil {
		return a, nil, func() {}, err
	}
	a.Tensors = []WireTensor{{Tensor: slab.Tensor, Bytes: slab.bytes()}}
	a.Sizes = []uint64{slab.segment.bytes}
	return a, []*os.File{slab.segment.file}, slab.Close, nil
}

// describe says where the tensors of a state are in its memfds.
func describe(st *state, segments []*segment) (a answer, files []*os.File) {
	for _, t := range st.tensors {
		a.Tensors = append(a.Tensors, WireTensor{t.Tensor, t.group, t.at, t.bytes()})
	}
	for _, g := range segments {
		a.Sizes = append(a.Sizes, g.bytes)
		files = append(files, g.file)
	}
	return a, files
}
