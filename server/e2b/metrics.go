package e2b

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

const (
	// sampleInterval is the time over which the CPU use of a sample is measured.
	sampleInterval = 200 * time.Millisecond
	// clockError is by how many seconds the clock of a caller that asks for samples until now may differ.
	clockError = 10
)

// sample is what the processes of a sandbox use at one time.
type sample struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      uint32    `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"` // of the cores of one process, so several processes may use more than 100
	MemUsed       uint64    `json:"memUsed"`    // this and all below in bytes
	MemTotal      uint64    `json:"memTotal"`
	MemCache      uint64    `json:"memCache"`
	DiskUsed      uint64    `json:"diskUsed"`
	DiskTotal     uint64    `json:"diskTotal"`
}

// metrics answers the sample of this moment: rota keeps none of the past.
func (e *E2B) metrics(r *http.Request, a api) (int, any, error) {
	t, err := of(r, a)
	if err != nil {
		return 0, nil, err
	}
	start, err := unixOf(r, "start", 0)
	if err != nil {
		return 0, nil, err
	}
	end, err := unixOf(r, "end", math.MaxInt64)
	if err != nil {
		return 0, nil, err
	}
	if now := time.Now().Unix(); now < start-clockError || now-clockError > end {
		return http.StatusOK, []sample{}, nil
	}
	u, err := a.usage.GetTrajectoryUsage(r.Context(), &rotav1.GetTrajectoryUsageRequest{TrajectoryId: t.Id, Interval: durationpb.New(sampleInterval)})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, []sample{newSample(u, t, e.opts.Templates.of(t))}, nil
}

// unixOf is a time of the query, in seconds since 1970.
func unixOf(r *http.Request, name string, otherwise int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, invalid("%s must be a time in seconds since 1970", name)
	}
	return n, nil
}

// newSample adds up what the processes of a sandbox use.
func newSample(u *rotav1.GetTrajectoryUsageResponse, t *rotav1.Trajectory, of template) sample {
	s := sample{
		Timestamp: u.Time.AsTime(), TimestampUnix: u.Time.GetSeconds(), CPUCount: of.MaxCores, MemTotal: t.MemoryBytes,
		DiskUsed: u.DiskBytes - min(u.DiskBytes, u.DiskFreeBytes), DiskTotal: u.DiskBytes,
	}
	cores := 0.0
	for _, used := range u.Actions {
		cores += used.Cores
		s.MemUsed += used.MemoryBytes
		s.MemCache += used.CacheBytes
	}
	s.CPUUsedPct = math.Round(1e4*cores/float64(max(1, of.MaxCores))) / 100
	return s
}
