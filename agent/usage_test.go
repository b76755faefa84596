package agent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/agent/plan"
	"rota/agent/runtime"
	rotav1 "rota/api/gen/rota/v1"
)

// measured answers measurements, one after the other.
type measured struct {
	runtime.Runtime
	uses [][]runtime.Use
	err  error
}

func (m *measured) Measure(context.Context, uint64) (uses []runtime.Use, err error) {
	if m.err != nil {
		return nil, m.err
	}
	uses, m.uses = m.uses[0], m.uses[1:]
	return uses, nil
}

// TestCoresOfAnInterval are what an attempt used in it: one that was there, one that began, and one
// whose action runs again.
func TestCoresOfAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, again := plan.Key{Action: 3, Attempt: 1}, plan.Key{Action: 3, Attempt: 2}
		stays, begins := plan.Key{Action: 1, Attempt: 1}, plan.Key{Action: 2, Attempt: 1}
		m := &measured{uses: [][]runtime.Use{
			{{Key: stays, CPU: time.Second}, {Key: first, CPU: time.Hour}},
			{{Key: stays, CPU: 4 * time.Second, Memory: 5}, {Key: begins, CPU: time.Second}, {Key: again}},
		}}
		s := &usageService{dir: t.TempDir(), conn: func() runtime.Runtime { return m }, calls: make(chan struct{}, 1)}
		began := time.Now()
		resp, err := s.GetTrajectoryUsage(t.Context(), &rotav1.GetTrajectoryUsageRequest{TrajectoryId: 7, Interval: durationpb.New(2 * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		var cores []float64
		for _, a := range resp.Actions {
			cores = append(cores, a.Cores)
		}
		if len(cores) != 3 || cores[0] != 1.5 || cores[1] != 0.5 || cores[2] != 0 || resp.Actions[0].MemoryBytes != 5 {
			t.Errorf("it says %v", resp)
		}
		if resp.Time.AsTime().Sub(began) != 2*time.Second || resp.DiskBytes == 0 || resp.DiskFreeBytes > resp.DiskBytes {
			t.Errorf("it says %v, from %v on", resp, began)
		}
	})
}

// TestUsageIsRefused with the reason that clients know.
func TestUsageIsRefused(t *testing.T) {
	for _, x := range []struct {
		req    *rotav1.GetTrajectoryUsageRequest
		err    error
		code   connect.Code
		reason string
	}{
		{&rotav1.GetTrajectoryUsageRequest{}, nil, connect.CodeInvalidArgument, "INVALID"},
		{&rotav1.GetTrajectoryUsageRequest{TrajectoryId: 7, Interval: durationpb.New(11 * time.Second)}, nil, connect.CodeInvalidArgument, "INVALID"},
		{&rotav1.GetTrajectoryUsageRequest{TrajectoryId: 7, Interval: durationpb.New(-1)}, nil, connect.CodeInvalidArgument, "INVALID"},
		{&rotav1.GetTrajectoryUsageRequest{TrajectoryId: 7, Interval: durationpb.New(1)}, runtime.ErrVersion, connect.CodeFailedPrecondition, "SUPERVISOR_TOO_OLD"},
		{&rotav1.GetTrajectoryUsageRequest{TrajectoryId: 7}, runtime.ErrLost, connect.CodeUnavailable, "AGENT_BUSY"},
		{&rotav1.GetTrajectoryUsageRequest{TrajectoryId: 7}, errNothing, connect.CodeUnavailable, "AGENT_BUSY"},
	} {
		m := &measured{err: x.err}
		s := &usageService{dir: t.TempDir(), conn: func() runtime.Runtime { return m }, calls: make(chan struct{}, 1)}
		resp, err := s.GetTrajectoryUsage(t.Context(), x.req)
		if connect.CodeOf(err) != x.code || toldReason(err) != x.reason || resp != nil {
			t.Errorf("%v, %v: %v, %v", x.req, x.err, resp, err)
		}
	}
	s := &usageService{conn: func() runtime.Runtime { return nil }, calls: make(chan struct{}, 1)}
	if _, err := s.GetTrajectoryUsage(t.Context(), &rotav1.GetTrajectoryUsageRequest{TrajectoryId: 7}); toldReason(err) != "AGENT_BUSY" {
		t.Errorf("without a supervisor: %v", err)
	}
}

// toldReason is the reason that a caller is told.
func toldReason(err error) string {
	var e *connect.Error
	if !errors.As(err, &e) || len(e.Details()) == 0 {
		return ""
	}
	detail, _ := e.Details()[0].Value()
	return detail.(*rotav1.ErrorDetail).GetReason()
}
