package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/containerd/ttrpc"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	supervisorv1 "rota/api/gen/supervisor/v1"

	"rota/agent/plan"
)

// Options says which supervisor to use and how to start it if there is none.
type Options struct {
	SuperviseOptions
	// Executable is the binary whose "supervise" command is run; empty: this one.
	Executable string
	// Patience is how long a supervisor may leave a new agent without an answer before it is killed;
	// 0: DefaultPatience.
	Patience time.Duration
	Logger   hclog.Logger
}

// DefaultPatience is for a supervisor whose disk hangs for a while.
const DefaultPatience = 20 * time.Second

// Client is a Runtime in a supervisor process, over its socket. All methods may
// be called at the same time from many goroutines.
type Client struct {
	rpc     *ttrpc.Client
	stream  ttrpc.ClientStream // of ends
	log     hclog.Logger
	desc    Description
	session uint64

	queue *exitQueue
	exits chan plan.Exit
	done  chan struct{} // closed when the stream of ends has ended
	// over says, once done is closed, that the supervisor ended the stream.
	over bool
	// attached ends with Close.
	attached context.Context
	cancel   context.CancelFunc
}

var _ Runtime = (*Client)(nil)

func newClient(conn net.Conn, log hclog.Logger) *Client {
	c := &Client{
		rpc:   ttrpc.NewClient(conn),
		log:   log,
		queue: newExitQueue(),
		exits: make(chan plan.Exit),
		done:  make(chan struct{}),
	}
	c.attached, c.cancel = context.WithCancel(context.Background())
	return c
}

// attach makes this process the agent of the supervisor, and returns what that is.
func (c *Client) attach(ctx context.Context) (*supervisorv1.Supervisor, error) {
	defer context.AfterFunc(ctx, c.cancel)()
	var err error
	c.stream, err = c.open(c.attached, methodAttach, &supervisorv1.AttachRequest{Version: protocolVersion})
	if err != nil {
		return nil, fromWire(ctx, err)
	}
	first := new(supervisorv1.AttachResponse)
	if err := c.stream.RecvMsg(first); err != nil {
		return nil, fromWire(ctx, err)
	}
	self := first.GetSupervisor()
	if self == nil {
		return nil, fmt.Errorf("%w: it does not say what it is", ErrVersion)
	}
	c.session = self.GetSession()
	c.desc = Description{PID: int(self.GetPid()), Mode: self.GetMode(), NotEnforced: self.GetNotEnforced(), Resizes: self.GetResizes(), HidesDevices: self.GetHidesDevices()}
	go c.receive()
	go c.pump()
	return self, nil
}

// open begins a call that is answered with many messages.
func (c *Client) open(ctx context.Context, method string, req proto.Message) (ttrpc.ClientStream, error) {
	return c.rpc.NewStream(ctx, &ttrpc.StreamDesc{StreamingServer: true}, serviceName, method, req)
}

// call makes a call whose answer says nothing but that it was served.
func (c *Client) call(ctx context.Context, method string, req, resp proto.Message) error {
	return fromWire(ctx, c.rpc.Call(ctx, serviceName, method, req, resp))
}

// receive queues the ends that the supervisor sends.
func (c *Client) receive() {
	defer close(c.done)
	defer c.queue.close()
	for {
		page := new(supervisorv1.AttachResponse)
		if err := c.stream.RecvMsg(page); err != nil {
			c.over = errors.Is(err, io.EOF)
			c.log.Debug("supervisor connection ended", "error", err)
			return
		}
		c.queue.push(mapped(page.GetExits(), exitOf)...)
	}
}

// pump hands ends to the reader of Exits, at the reader's pace. The end of the
// connection is seen at once, however slow the reader is.
func (c *Client) pump() {
	defer close(c.exits)
	for page := c.queue.take(); len(page) > 0; page = c.queue.take() {
		for _, e := range page {
			select {
			case c.exits <- e:
			case <-c.attached.Done():
				return
			}
		}
	}
}

// Describe implements Runtime.
func (c *Client) Describe() Description { return c.desc }

// Exits implements Runtime.
func (c *Client) Exits() <-chan plan.Exit { return c.exits }

// Start implements Runtime. Errors: ErrDuplicate, ErrDeadlinePassed, ErrTooMany,
// ErrInvalidSpec, ErrStopping, ErrJournal: nothing was started; ErrLost and those
// of ctx: unknown.
func (c *Client) Start(ctx context.Context, spec Spec) error {
	if err := spec.validate(); err != nil {
		return err
	}
	req := &supervisorv1.StartRequest{Session: c.session, Spec: wireSpec(&spec)}
	if size := proto.Size(req); size > requestBytesMax {
		return fmt.Errorf("%w: arguments and environment have %d bytes, at most %d", ErrInvalidSpec, size, requestBytesMax)
	}
	return c.call(ctx, methodStart, req, new(supervisorv1.StartResponse))
}

// Resize implements Runtime.
func (c *Client) Resize(ctx context.Context, key plan.Key, cpus []int) error {
	req := &supervisorv1.ResizeRequest{Session: c.session, Key: wireKey(key), Cpus: wireCPUs(cpus)}
	return c.call(ctx, methodResize, req, new(supervisorv1.ResizeResponse))
}

// Freeze implements Runtime.
func (c *Client) Freeze(ctx context.Context, key plan.Key, frozen bool) error {
	req := &supervisorv1.FreezeRequest{Session: c.session, Key: wireKey(key), Frozen: frozen}
	return c.call(ctx, methodFreeze, req, new(supervisorv1.FreezeResponse))
}

// Kill implements Runtime.
func (c *Client) Kill(ctx context.Context, key plan.Key, reason plan.Reason) error {
	req := &supervisorv1.KillRequest{Session: c.session, Key: wireKey(key), Reason: uint32(reason)}
	return c.call(ctx, methodKill, req, new(supervisorv1.KillResponse))
}

// List implements Runtime.
func (c *Client) List(ctx context.Context) (running []plan.Running, ended []plan.Exit, err error) {
	stream, err := c.open(ctx, methodList, &supervisorv1.ListRequest{Session: c.session})
	for err == nil {
		page := new(supervisorv1.ListResponse)
		if err = stream.RecvMsg(page); err == nil {
			running = append(running, runningOf(page)...)
			ended = append(ended, mapped(page.GetEnded(), exitOf)...)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, nil, fromWire(ctx, err)
	}
	return running, ended, nil
}

// forgetPage is how many keys one request, and one journal record, carries.
const forgetPage = 512

// Forget implements Runtime.
func (c *Client) Forget(ctx context.Context, keys []plan.Key) error {
	for len(keys) > 0 {
		n := min(len(keys), forgetPage)
		req := &supervisorv1.ForgetRequest{Session: c.session, Keys: mapped(keys[:n], wireKey)}
		if err := c.call(ctx, methodForget, req, new(supervisorv1.ForgetResponse)); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// KeepTrajectories implements Runtime.
func (c *Client) KeepTrajectories(ctx context.Context, open []uint64) error {
	req := &supervisorv1.KeepTrajectoriesRequest{Session: c.session, Open: open}
	return c.call(ctx, methodKeep, req, new(supervisorv1.KeepTrajectoriesResponse))
}

// MakeTrajectory implements Runtime.
func (c *Client) MakeTrajectory(ctx context.Context, trajectory uint64) (running int, err error) {
	req, resp := &supervisorv1.MakeTrajectoryRequest{Session: c.session, Trajectory: trajectory}, new(supervisorv1.MakeTrajectoryResponse)
	err = c.call(ctx, methodMake, req, resp)
	return int(resp.GetRunning()), err
}

// Measure implements Runtime.
func (c *Client) Measure(ctx context.Context, trajectory uint64) ([]Use, error) {
	resp := new(supervisorv1.MeasureResponse)
	err := c.call(ctx, methodMeasure, &supervisorv1.MeasureRequest{Session: c.session, Trajectory: trajectory}, resp)
	return mapped(resp.GetUses(), useOf), err
}

// WriteInput implements Runtime.
func (c *Client) WriteInput(ctx context.Context, key plan.Key, in Input) (InputState, error) {
	if err := in.validate(); err != nil {
		return InputState{}, err
	}
	resp := new(supervisorv1.WriteInputResponse)
	err := c.call(ctx, methodWriteInput, &supervisorv1.WriteInputRequest{
		Session: c.session, Key: wireKey(key), Writer: in.Writer, Offset: in.Offset, Data: in.Data, Eof: in.EOF, Wait: durationpb.New(in.Wait),
	}, resp)
	return InputState{Offset: resp.GetOffset(), Closed: resp.GetClosed()}, err
}

// Signal implements Runtime.
func (c *Client) Signal(ctx context.Context, key plan.Key, sig Signal) error {
	return c.call(ctx, methodSignal, &supervisorv1.SignalRequest{
		Session: c.session, Key: wireKey(key), Signal: uint32(sig.Number), All: sig.All, RequestId: sig.Request,
	}, new(supervisorv1.SignalResponse))
}

// ResizeTerminal implements Runtime.
func (c *Client) ResizeTerminal(ctx context.Context, key plan.Key, size Terminal) error {
	req := &supervisorv1.ResizeTerminalRequest{Session: c.session, Key: wireKey(key), Size: wireTerminal(&size)}
	return c.call(ctx, methodTerminal, req, new(supervisorv1.ResizeTerminalResponse))
}

// SetDeadline implements Runtime.
func (c *Client) SetDeadline(ctx context.Context, boottimeNS int64) error {
	req := &supervisorv1.SetDeadlineRequest{Session: c.session, BoottimeNs: boottimeNS}
	return c.call(ctx, methodSetDeadline, req, new(supervisorv1.SetDeadlineResponse))
}

// Stop implements Runtime. The supervisor may hang up as soon as it has answered, and
// ttrpc may then tell of that alone. So its end of the stream of ends is an answer, too.
func (c *Client) Stop(ctx context.Context) error {
	err := c.call(ctx, methodStop, &supervisorv1.StopRequest{Session: c.session}, new(supervisorv1.StopResponse))
	var refused *remote
	if err != nil && (errors.As(err, &refused) || !errors.Is(err, ErrLost)) {
		return err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.over {
		return nil
	}
	return err
}

// Close implements Runtime.
func (c *Client) Close() error {
	c.cancel()
	return c.rpc.Close()
}
