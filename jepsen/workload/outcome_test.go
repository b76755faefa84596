package workload

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
)

// detailed is an error as a server of rota sends it.
func detailed(code connect.Code, reason string) error {
	err := connect.NewError(code, errors.New(reason))
	detail, _ := connect.NewErrorDetail(&rotav1.ErrorDetail{Reason: reason, RetryDelay: durationpb.New(time.Second)})
	err.AddDetail(detail)
	return fmt.Errorf("wrapped: %w", err)
}

func TestOnlyWhatWasNotDoneCountsAsFailed(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	reset := &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	for _, c := range []struct {
		err     error
		outcome history.Outcome
		reason  string
	}{
		{nil, history.OK, ""},
		{detailed(connect.CodeUnavailable, "NO_LEADER"), history.Fail, "NO_LEADER"},
		{detailed(connect.CodeResourceExhausted, "QUEUE_FULL"), history.Fail, "QUEUE_FULL"},
		{detailed(connect.CodeResourceExhausted, "OVERLOADED"), history.Fail, "OVERLOADED"},
		{detailed(connect.CodeDeadlineExceeded, "REQUEST_EXPIRED"), history.Fail, "REQUEST_EXPIRED"},
		{detailed(connect.CodeInternal, "COMMAND_FAILED"), history.Fail, "COMMAND_FAILED"},
		{detailed(connect.CodeNotFound, "ACTION_NOT_FOUND"), history.Fail, "ACTION_NOT_FOUND"},
		{connect.NewError(connect.CodeUnavailable, dial), history.Fail, dial.Error()},

		{detailed(connect.CodeUnavailable, "UNKNOWN_OUTCOME"), history.Unknown, "UNKNOWN_OUTCOME"},
		{detailed(connect.CodeDeadlineExceeded, "TIMEOUT"), history.Unknown, "TIMEOUT"},
		{detailed(connect.CodeCanceled, "CANCELED"), history.Unknown, "CANCELED"},
		{detailed(connect.CodeInternal, "INTERNAL"), history.Unknown, "INTERNAL"},
		{detailed(connect.CodeUnavailable, "LEADER_UNREACHABLE"), history.Unknown, "LEADER_UNREACHABLE"},
		{detailed(connect.CodeUnavailable, "NEVER_HEARD_OF"), history.Unknown, "NEVER_HEARD_OF"},
		{connect.NewError(connect.CodeUnavailable, reset), history.Unknown, reset.Error()},
		{connect.NewError(connect.CodeResourceExhausted, errors.New("from a proxy")), history.Unknown, "from a proxy"},
		{connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded), history.Unknown, "deadline"},

		{detailed(connect.CodeNotFound, "TRAJECTORY_NOT_FOUND"), history.Fail, "TRAJECTORY_NOT_FOUND"},
		{detailed(connect.CodeNotFound, "NODE_NOT_FOUND"), history.Fail, "NODE_NOT_FOUND"},
	} {
		outcome, reason := judge(c.err)
		if outcome != c.outcome || !strings.Contains(reason, c.reason) {
			t.Errorf("%v is %s %q, want %s %q", c.err, outcome, reason, c.outcome, c.reason)
		}
	}
}

func TestOnlyTheStateRefuses(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{detailed(connect.CodeNotFound, "ACTION_NOT_FOUND"), true},
		{detailed(connect.CodeAlreadyExists, "JOB_EXISTS"), true},
		{detailed(connect.CodeFailedPrecondition, "ROLLOUT_CLOSED"), true},
		{detailed(connect.CodeUnavailable, "NO_LEADER"), false},
		{detailed(connect.CodeFailedPrecondition, "NOT_A_MEMBER"), false},
		{detailed(connect.CodeResourceExhausted, "OVERLOADED"), false},
		{connect.NewError(connect.CodeUnavailable, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), false},
		{connect.NewError(connect.CodeNotFound, errors.New("from a proxy")), false},
	} {
		if got := refusedByState(c.err); got != c.want {
			t.Errorf("%v: refused by the state %v, want %v", c.err, got, c.want)
		}
	}
}

// alone is an Env with servers and nothing else.
func alone(addrs ...string) *Env {
	env := &Env{Record: history.NewRecorder(history.Record{}), CallTimeout: 100 * time.Millisecond}
	for i, addr := range addrs {
		env.Servers = append(env.Servers, Server{ID: fmt.Sprintf("server-%d", i+1), Addr: addr})
	}
	return env
}

// one makes one call at the first server.
func one(ctx context.Context, env *Env) history.Op {
	conns, http := env.connect()
	defer http.CloseIdleConnections()
	w := env.newWorker(conns)
	w.at = 0
	return w.status(ctx)
}

// What the network does is judged by what connect and net/http make of it, so
// this is tried on a real one.
func TestCallsThatMeetTheNetwork(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, in the kernel, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	cutting, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer cutting.Close()
	go func() {
		for {
			c, err := cutting.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 512))
			c.Close()
		}
	}()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()

	patient := func(addr string) *Env {
		env := alone(addr)
		env.CallTimeout = patience
		return env
	}
	if op := one(t.Context(), patient(closed.Addr().String())); op.Outcome != history.Fail {
		t.Errorf("nobody listens: %+v", op)
	}
	if op := one(t.Context(), patient(cutting.Addr().String())); op.Outcome != history.Unknown {
		t.Errorf("the connection is lost: %+v", op)
	}
	if op := one(t.Context(), alone(silent.Addr().String())); op.Outcome != history.Unknown || time.Duration(op.End-op.Start) > endMax {
		t.Errorf("no answer: %+v", op)
	}
}

// endMax is how long the end of a run may take; it would be a minute if one waited
// for a call.
const endMax = 20 * time.Second

// A run ends when it is told to, whatever its calls wait for, and those are
// recorded.
func TestTheEndOfARunWaitsForNobody(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() }) // after the parallel tests
	for _, workload := range All() {
		t.Run(workload.Name, func(t *testing.T) {
			t.Parallel()
			env := alone(silent.Addr().String(), silent.Addr().String())
			env.CallTimeout, env.HeldPool, env.Pool, env.Nodes, env.Cores, env.GPUs = time.Minute, "default", "work", []string{"n"}, 2, 2
			env.Witness = newWitness(t, env)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			begin := time.Now()
			if err := workload.Run(ctx, env, 100); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took > endMax {
				t.Errorf("it took %v to end", took)
			}
			for _, op := range env.Record.Record().Ops {
				if op.Outcome != history.Unknown || op.End < op.Start {
					t.Errorf("recorded: %+v", op)
				}
			}
		})
	}
}

// One server that does not answer must not take the load from the others.
func TestWorkersTurnAwayFromASilentServer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	quietly(t, func() error {
		calls := make(chan struct{}, 1000)
		env := alone(silent.Addr().String(), refuse(t, calls))
		env.CallTimeout = 500 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := reads(ctx, env, 100); err != nil {
			t.Fatal(err)
		}
		silence := 0
		for _, op := range env.Record.Record().Ops {
			if op.Server == "server-1" {
				silence++
			}
		}
		if n := len(calls); n < 80 || silence == 0 || silence > n/2 {
			return fmt.Errorf("%d calls in two seconds at the server that answers, %d at the other", n, silence)
		}
		return nil
	})
}

// quietly repeats a check of how much gets done, which a machine that is busy for
// a moment fails.
func quietly(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for range 5 {
		if err = check(); err == nil {
			return
		}
		t.Log(err)
	}
	t.Error(err)
}

// refuse is a server that refuses everything, and counts it.
func refuse(t *testing.T, calls chan<- struct{}) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls <- struct{}{}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		detail, _ := (&rotav1.ErrorDetail{Reason: "INVALID"}).MarshalVT()
		fmt.Fprintf(w, `{"code":"invalid_argument","details":[{"type":"rota.v1.ErrorDetail","value":%q}]}`, base64.RawStdEncoding.EncodeToString(detail))
	}), Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return l.Addr().String()
}

func TestARunPacesItself(t *testing.T) {
	quietly(t, func() error {
		calls := make(chan struct{}, 1000)
		env := alone(refuse(t, calls))
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := reads(ctx, env, 100); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		most := int(100 * took.Seconds())
		if n := len(calls); n < 50 || n > most+5 {
			return fmt.Errorf("%d calls in %v, want about 100 a second", n, took)
		}
		if n := len(env.Record.Record().Ops); n < 50 || n > most+10 {
			return fmt.Errorf("%d calls are recorded", n)
		}
		return nil
	})
}
