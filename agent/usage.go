package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/intake"
)

const (
	// usageCallsMax is how many calls measure at once.
	usageCallsMax = 16
	// usageIntervalMax is the longest time between the two measurements of a call.
	usageIntervalMax = 10 * time.Second
)

// usageService measures what runs on this node for servers, which have checked who may know.
type usageService struct {
	dir   string // the supervisor's
	conn  func() runtime.Runtime
	calls chan struct{}
}

var _ rotav1connect.UsageServiceHandler = (*usageService)(nil)

// newUsageHandler serves what trajectories use.
func newUsageHandler(a *agent) (path string, h http.Handler) {
	s := &usageService{dir: a.cfg.Process.Dir, conn: a.driver.connection, calls: make(chan struct{}, usageCallsMax)}
	path, h = rotav1connect.NewUsageServiceHandler(s, codec.ForHandler(), intake.ForHandler(), connect.WithReadMaxBytes(requestBytesMax))
	return path, intake.Handler(h, intake.Limits{MessageBytes: requestBytesMax, Budget: intake.NewBudget(decodingMax)})
}

// usageErrors are what servers are told of errors of the supervisor.
var usageErrors = []knownError{
	{runtime.ErrVersion, connect.CodeFailedPrecondition, "SUPERVISOR_TOO_OLD"},
	{runtime.ErrLost, connect.CodeUnavailable, "AGENT_BUSY"},
	{runtime.ErrStopping, connect.CodeUnavailable, "AGENT_BUSY"},
	{errNothing, connect.CodeUnavailable, "AGENT_BUSY"},
}

// GetTrajectoryUsage implements rotav1connect.UsageServiceHandler.
func (s *usageService) GetTrajectoryUsage(ctx context.Context, req *rotav1.GetTrajectoryUsageRequest) (*rotav1.GetTrajectoryUsageResponse, error) {
	interval := req.GetInterval().AsDuration()
	switch {
	case req.GetTrajectoryId() == 0:
		return nil, refuse(connect.CodeInvalidArgument, "INVALID", "name a trajectory")
	case interval < 0 || interval > usageIntervalMax:
		return nil, refuse(connect.CodeInvalidArgument, "INVALID", fmt.Sprintf("interval is %v; it must be 0 to %v", interval, usageIntervalMax))
	}
	earlier, err := s.measure(ctx, req.GetTrajectoryId())
	if err != nil || interval == 0 {
		return earlier.answer(err)
	}
	select {
	case <-time.After(interval):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	now, err := s.measure(ctx, req.GetTrajectoryId())
	for i := range now.uses {
		now.uses[i].cores = float64(max(0, now.uses[i].CPU-earlier.cpu(now.uses[i].Key))) / float64(now.at.Sub(earlier.at))
	}
	return now.answer(err)
}

// measurement is what ran at a time.
type measurement struct {
	at   time.Time
	uses []use
	// disk is that of the directory of the trajectory.
	disk room
}

// use has the cores of an interval, too.
type use struct {
	runtime.Use
	cores float64
}

// measure asks the supervisor, for no more than some callers at once.
func (s *usageService) measure(ctx context.Context, trajectory uint64) (m measurement, err error) {
	select {
	case s.calls <- struct{}{}:
		defer func() { <-s.calls }()
	case <-ctx.Done():
		return m, ctx.Err()
	}
	conn := s.conn()
	if conn == nil {
		return m, refuse(connect.CodeUnavailable, "AGENT_BUSY", "the supervisor of the node is being started; try again")
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	uses, err := conn.Measure(ctx, trajectory)
	m.at = time.Now()
	for _, u := range uses {
		m.uses = append(m.uses, use{Use: u})
	}
	m.disk = s.disk(trajectory)
	return m, toldError(usageErrors, err)
}

// cpu is what an attempt had used; 0: it had not begun.
func (m measurement) cpu(key plan.Key) time.Duration {
	for _, u := range m.uses {
		if u.Key == key {
			return u.CPU
		}
	}
	return 0
}

// answer says what was measured.
func (m measurement) answer(err error) (*rotav1.GetTrajectoryUsageResponse, error) {
	if err != nil {
		return nil, err
	}
	resp := &rotav1.GetTrajectoryUsageResponse{Time: timestamppb.New(m.at), DiskBytes: m.disk.bytesAll, DiskFreeBytes: m.disk.bytes}
	for _, u := range m.uses {
		resp.Actions = append(resp.Actions, &rotav1.ActionUsage{
			ActionId: u.Key.Action, Attempt: u.Key.Attempt, Cores: u.cores, CpuTime: durationpb.New(u.CPU),
			MemoryBytes: u.Memory, MemoryPeakBytes: u.MemoryPeak, CacheBytes: u.Cache,
		})
	}
	return resp, nil
}

// disk is what the file system of a trajectory has; zero: it cannot be told. A trajectory without a
// directory will have it where the others are.
func (s *usageService) disk(trajectory uint64) room {
	r, err := readRoom(runtime.TrajectoryDir(s.dir, trajectory))
	if errors.Is(err, fs.ErrNotExist) {
		r, _ = readRoom(s.dir)
	}
	return r
}
