package evaluate

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Report is what Compare found.
type Report struct {
	// Simulated is always true: nothing of this was measured on a real cluster.
	Simulated  bool               `json:"simulated"`
	Workload   string             `json:"workload"`
	Parameters Parameters         `json:"parameters"`
	Policies   map[string]*Result `json:"policies"`
	// Order is that of the policies.
	Order []string `json:"-"`
}

// Parameters are those that are most often changed, as they were.
type Parameters struct {
	Batch        []int64           `json:"batch"`
	Steps        []int64           `json:"steps"`
	CPUNodes     int64             `json:"cpu_nodes"`
	CoresPerNode int64             `json:"cores_per_node"`
	GPUNodes     int64             `json:"gpu_nodes"`
	GPUsPerNode  int64             `json:"gpus_per_node"`
	Seed         uint64            `json:"seed"`
	Commit       MS                `json:"commit_ms"`
	Dispatch     MS                `json:"dispatch_ms"`
	Set          map[string]string `json:"set,omitempty"`
	Trace        *TraceParameters  `json:"trace,omitempty"`
}

// TraceParameters say how a trace was replayed.
type TraceParameters struct {
	Sessions int   `json:"sessions"`
	SharePPM int64 `json:"tool_share_ppm"`
	Cap      MS    `json:"gap_cap_ms"`
}

// parameters returns those of an input that the setup made.
func (s *Setup) parameters(in *Input) Parameters {
	p := in.Params()
	c := &p.Cluster
	out := Parameters{
		CPUNodes: int64(c.CPUNodes.Value), CoresPerNode: int64(c.CoresPerNode.Value),
		GPUNodes: int64(c.GPUNodes.Value), GPUsPerNode: int64(c.GPUsPerNode.Value),
		Seed: in.Seed, Commit: ms(in.Latency.Commit), Dispatch: ms(in.Latency.Dispatch), Set: make(map[string]string),
	}
	for i := range p.Tasks {
		out.Batch = append(out.Batch, int64(p.Tasks[i].Batch.Value))
		out.Steps = append(out.Steps, int64(p.Tasks[i].Steps.Value))
	}
	for _, o := range s.Overrides {
		out.Set[o.Path] = o.Value
	}
	for _, set := range s.sets {
		out.Set[set.name] = fmt.Sprint(set.value)
	}
	if s.Sessions != nil {
		out.Trace = &TraceParameters{len(s.Sessions), s.Replay.SharePPM, ms(s.Replay.CapNS)}
	}
	return out
}

// Progress is told how many of how many trajectories are over, from several
// goroutines.
type Progress func(over, all int64)

// Compare runs policies on the same workload, as many at a time as there are
// workers; nil policies mean those that Policies names. What fails is in the
// error.
func Compare(ctx context.Context, s Setup, policies []string, workers int, progress Progress) (*Report, error) {
	in, err := s.Input()
	if err != nil {
		return nil, err
	}
	if policies == nil {
		policies = Policies(in.Params())
	}
	if progress != nil {
		var over atomic.Int64
		all := int64(in.Trajectories()) * int64(len(policies))
		in.Progress = func() { progress(over.Add(1), all) }
	}
	results, errs := make([]*Result, len(policies)), make([]error, len(policies))
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(1, workers))
	for i, name := range policies {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i], errs[i] = Run(ctx, in, name)
		})
	}
	wg.Wait()
	out := &Report{Simulated: true, Workload: s.Workload, Parameters: s.parameters(in), Policies: make(map[string]*Result), Order: policies}
	for i, name := range policies {
		if errs[i] != nil {
			return nil, errs[i]
		}
		out.Policies[name] = results[i]
	}
	return out, nil
}

// Point is one value of a sweep with what was found there.
type Point struct {
	Value string
	*Report
}

// Sweep compares policies for each value of a setting or a figure.
func Sweep(ctx context.Context, s Setup, name string, values, policies []string, workers int, progress Progress) ([]Point, error) {
	var out []Point
	for i, v := range values {
		at := s
		if err := at.Set(name, v); err != nil {
			return nil, err
		}
		part := progress
		if progress != nil {
			part = func(over, all int64) { progress(int64(i)*all+over, int64(len(values))*all) }
		}
		r, err := Compare(ctx, at, policies, workers, part)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", name, v, err)
		}
		for _, p := range r.Policies {
			p.entries = nil // a sweep keeps no single actions
		}
		out = append(out, Point{v, r})
	}
	return out, nil
}
