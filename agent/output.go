package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/agent/plan"
	"rota/agent/tier/transfer"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/handshake"
	"rota/api/httpx"
	"rota/api/intake"
	"rota/api/pki"
	"rota/api/share"

	"rota/agent/runtime"
)

const (
	// requestBytesMax is the largest request that is read: which output, and from where.
	requestBytesMax = 64 << 10
	// decodingMax is what requests take in memory, all together, while they are decoded.
	decodingMax = 16 << 20
	// readersMax is how many streams of output are read at once, and attemptReadersMax how many of
	// one attempt. Each has open files, and looks for more as long as its client likes. Attempts share
	// them as package share says: the last quarter is for attempts whose output has no reader yet.
	readersMax        = 1024
	attemptReadersMax = 64
	// outputCloseMax is how long readers get to finish when the agent stops.
	outputCloseMax = time.Second
	// answerReadMax is how long a server may take to read the next part of an answer. It passes output
	// on to a client that has httpx.ReadMax for each part.
	answerReadMax = 4 * httpx.ReadMax
)

// listen opens the port of the agent. With TLS only servers get in, which read output, write input and work with files,
// agents, which pull KV caches, and clients: gateways call replicas of reward functions. Others are turned away before anything they send is decoded.
// Without TLS only this machine gets in.
func (a *agent) listen() (net.Listener, error) {
	l, err := net.Listen("tcp", a.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("output server: %w", err)
	}
	a.address = cmp.Or(a.cfg.Advertise, l.Addr().String())
	if !a.cfg.TLS.Enabled() {
		if err := pki.AllowPlaintext(l.Addr()); err != nil {
			l.Close()
			return nil, fmt.Errorf("%w: output server: %w", ErrConfig, err)
		}
		return l, nil
	}
	conf, err := pki.ServerConfig(a.cfg.TLS, pki.RoleServer, pki.RoleAgent, pki.RoleClient)
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("%w: output server: %w", ErrConfig, err)
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); ok && tcp.IP.IsUnspecified() && a.cfg.Advertise == "" {
		l.Close()
		return nil, fmt.Errorf("%w: output server listens on every interface; say which address servers are to use (Advertise)", ErrConfig)
	}
	conf.NextProtos = []string{"h2", "http/1.1"}
	return handshake.Listen(l, conf, a.log.Named("output")), nil
}

// serveOutput serves until the context is done.
func (a *agent) serveOutput(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	path, handler := rotav1connect.NewOutputServiceHandler(&outputService{
		dir: a.cfg.Process.Dir, incarnation: a.journal.Incarnation, stop: ctx, served: a.metrics.output,
		readers: share.New[plan.Key](readersMax),
	}, intake.ForHandler(), connect.WithReadMaxBytes(requestBytesMax))
	mux.Handle(path, onlyFor(intake.Handler(handler, intake.Limits{
		MessageBytes: requestBytesMax, Budget: intake.NewBudget(decodingMax),
	}), pki.RoleServer))
	files, fileHandler := newFileHandler(a)
	mux.Handle(files, onlyFor(fileHandler, pki.RoleServer))
	keyring, keyringHandler := newKeyringHandler(a.cfg.Keyring)
	mux.Handle(keyring, onlyFor(keyringHandler, pki.RoleServer))
	streams, streamHandler := newStreamHandler(a)
	mux.Handle(streams, onlyFor(streamHandler, pki.RoleServer))
	usage, usageHandler := newUsageHandler(a)
	mux.Handle(usage, onlyFor(usageHandler, pki.RoleServer))
	images, imageHandler := newImageHandler(ctx, a)
	mux.Handle(images, onlyFor(imageHandler, pki.RoleServer))
	mux.Handle(transfer.Path, onlyFor(a.source(), pki.RoleAgent))
	mux.Handle(httpx.ReplicaPath, onlyFor(newReplicaHandler(a), pki.RoleClient))
	srv := a.newServer(mux, a.log.Named("output"))
	stopped := context.AfterFunc(ctx, func() {
		limit, cancel := context.WithTimeout(context.Background(), outputCloseMax)
		defer cancel()
		if srv.Shutdown(limit) != nil {
			_ = srv.Close()
		}
	})
	defer stopped()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("output server: %w", err)
	}
	return ctx.Err()
}

// newServer makes a server that ends answers which are not read.
func (a *agent) newServer(h http.Handler, log hclog.Logger) *http.Server {
	complaints := &handshake.Complaints{Logger: log}
	srv := httpx.Patience{Max: answerReadMax, Over: func(r *http.Request) {
		a.metrics.unread.Inc()
		complaints.Unread(r)
	}}.NewServer(h)
	srv.ErrorLog = log.StandardLogger(nil)
	return srv
}

// onlyFor lets some roles in; without TLS there are none.
func onlyFor(next http.Handler, roles ...pki.Role) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil {
			if got, err := pki.PeerRole(r.TLS); err != nil || !slices.Contains(roles, got) {
				http.Error(w, fmt.Sprintf("this is for certificates with the role %q", roles), http.StatusForbidden)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// outputService reads the files that attempts write into.
type outputService struct {
	dir         string          // the supervisor's
	incarnation func() uint64   // of the node, now
	stop        context.Context // done when the agent stops
	served      prometheus.Counter
	readers     *share.Slots[plan.Key]
}

// ReadOutput implements rotav1connect.OutputServiceHandler.
func (s *outputService) ReadOutput(ctx context.Context, req *rotav1.ReadOutputRequest,
	stream *connect.ServerStream[rotav1.ReadOutputResponse],
) error {
	if req.GetActionId() == 0 || req.GetAttempt() == 0 || max(req.GetStdoutOffset(), req.GetStderrOffset()) > math.MaxInt64 {
		return refuse(connect.CodeInvalidArgument, "INVALID", "name an action and an attempt, and offsets below 2^63")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.stop, cancel)()
	key, ok := s.find(req.GetActionId(), req.GetAttempt())
	if !ok {
		return noOutput(req)
	}
	leave, ok := s.readers.TakeUpTo(key, attemptReadersMax)
	if !ok {
		return refuse(connect.CodeResourceExhausted, "AGENT_BUSY", "too many clients read output of this attempt, or of this node, at once; try again")
	}
	defer leave()
	out, err := runtime.OpenOutput(s.dir, key, int64(req.GetStdoutOffset()), int64(req.GetStderrOffset()))
	if errors.Is(err, runtime.ErrNoOutput) {
		return noOutput(req)
	}
	if err != nil {
		return connect.NewError(connect.CodeInternal, err)
	}
	defer out.Close()
	if err := withTimes(out, req); err != nil {
		return err
	}
	for {
		chunk, err := out.Next(ctx, req.GetFollow())
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case s.stop.Err() != nil:
			return refuse(connect.CodeUnavailable, "AGENT_STOPPING", "the agent is stopping; read on from the same offsets when it is back")
		case err != nil:
			return err
		}
		s.served.Add(float64(len(chunk.Data)))
		msg := &rotav1.OutputChunk{Stream: rotav1.OutputStream(chunk.Stream), Data: chunk.Data, Offset: uint64(chunk.Offset)}
		if !chunk.At.IsZero() {
			msg.Time = timestamppb.New(chunk.At)
		}
		if err := stream.Send(&rotav1.ReadOutputResponse{Chunk: msg}); err != nil {
			return err
		}
	}
}

// withTimes begins at the time that is asked for, and has pieces say theirs.
func withTimes(out *runtime.Output, req *rotav1.ReadOutputRequest) (err error) {
	switch {
	case req.GetSince() != nil:
		err = out.Since(req.GetSince().AsTime())
	case req.GetTimes():
		err = out.WithTimes()
	}
	switch {
	case errors.Is(err, runtime.ErrNoTimes):
		return refuse(connect.CodeFailedPrecondition, "OUTPUT_HAS_NO_TIMES",
			"an earlier release kept the output of this attempt, without times: read it without since and times")
	case err != nil:
		return connect.NewError(connect.CodeInternal, err)
	}
	return nil
}

// find returns the newest token of the attempt that there is output of.
// Readers do not know the incarnation; it is the current one as a rule, and
// otherwise the newest that has left output behind.
func (s *outputService) find(action uint64, attempt uint32) (key plan.Key, ok bool) {
	key = plan.Key{Action: action, Attempt: attempt, Incarnation: s.incarnation()}
	path := runtime.OutputPath(s.dir, key, runtime.Stdout)
	if exists(path) {
		return key, true
	}
	prefix, suffix, _ := strings.Cut(filepath.Base(path), key.String())
	prefix += fmt.Sprintf("%d.%d.", action, attempt)
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return key, false
	}
	key.Incarnation = 0
	for _, e := range entries {
		rest, match := strings.CutPrefix(e.Name(), prefix)
		incarnation, err := strconv.ParseUint(strings.TrimSuffix(rest, suffix), 10, 64)
		if match && err == nil && incarnation > key.Incarnation {
			key.Incarnation, ok = incarnation, true
		}
	}
	return key, ok
}

func noOutput(req *rotav1.ReadOutputRequest) error {
	return refuse(connect.CodeNotFound, "OUTPUT_NOT_FOUND", fmt.Sprintf(
		"this node has no output of attempt %d of action %d: it has not started yet, or its output was dropped to make room",
		req.GetAttempt(), req.GetActionId()))
}

// refuse makes an error with the detail that programs look at.
func refuse(code connect.Code, reason, message string) error {
	e := connect.NewError(code, errors.New(message))
	if detail, err := connect.NewErrorDetail(&rotav1.ErrorDetail{Reason: reason, Message: message, Code: uint32(code)}); err == nil {
		e.AddDetail(detail)
	}
	return e
}

// knownError is an error that has a code and a reason of its own where it is told.
type knownError struct {
	err    error
	code   connect.Code
	reason string
}

// toldError is what a caller is told of an error: the first of those known that it is.
func toldError(known []knownError, err error) error {
	if err == nil {
		return nil
	}
	for _, k := range known {
		if errors.Is(err, k.err) {
			return refuse(k.code, k.reason, err.Error())
		}
	}
	return connect.NewError(connect.CodeInternal, err)
}
