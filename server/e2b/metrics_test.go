package e2b

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
)

func (c *cluster) GetTrajectoryUsage(_ context.Context, req *rotav1.GetTrajectoryUsageRequest) (*rotav1.GetTrajectoryUsageResponse, error) {
	if req.TrajectoryId != 7 || req.Interval.AsDuration() == 0 {
		return nil, fmt.Errorf("asked for %v", req)
	}
	return &rotav1.GetTrajectoryUsageResponse{
		Time: timestamppb.New(time.Unix(1_800_000_000, 5e8)), DiskBytes: 1000, DiskFreeBytes: 400,
		Actions: []*rotav1.ActionUsage{{ActionId: 1, Cores: 0.5, MemoryBytes: 10, CacheBytes: 3}, {ActionId: 2, Cores: 0.123456, MemoryBytes: 20, CacheBytes: 4}},
	}, nil
}

// TestMetrics: the one sample of a sandbox is of this moment, and there is none of another time.
func TestMetrics(t *testing.T) {
	_, server, _ := world(t)
	now := time.Now().Unix()
	none, samples := "[]", `[{"timestamp":"2027-01-15T08:00:00.5Z","timestampUnix":1800000000,"cpuCount":1,"cpuUsedPct":62.35,`+
		`"memUsed":30,"memTotal":0,"memCache":7,"diskUsed":600,"diskTotal":1000}]`
	for _, x := range []struct{ path, want string }{
		{"/sandboxes/t7/metrics", samples},
		{"/v2/sandboxes/t7/metrics", samples},
		{fmt.Sprintf("/sandboxes/t7/metrics?start=%d&end=%d", now-60, now+60), samples},
		{fmt.Sprintf("/sandboxes/t7/metrics?start=%d&end=%d", now+1, now-1), samples},
		{fmt.Sprintf("/sandboxes/t7/metrics?start=%d", now+60), none},
		{fmt.Sprintf("/sandboxes/t7/metrics?end=%d", now-60), none},
	} {
		status, body, _ := call(t, "GET", server.URL+x.path, nil)
		if status != 200 || strings.TrimSpace(body) != x.want || !json.Valid([]byte(body)) {
			t.Errorf("%s: %d %s", x.path, status, body)
		}
	}
	for path, want := range map[string]int{"/sandboxes/t8/metrics": 404, "/sandboxes/t7/metrics?start=now": 400, "/sandboxes/t7/metrics?end=1.5": 400} {
		if status, body, _ := call(t, "GET", server.URL+path, nil); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}
