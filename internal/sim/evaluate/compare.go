package evaluate

import (
	"context"
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
	Resize       MS                `json:"resize_ms"`
	Open         MS                `json:"open_ms"`
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
		Seed: in.Seed, Commit: ms(in.Latency.Commit), Dispatch: ms(in.Latency.Dispatch), Resize: ms(in.Latency.Resize), Open: ms(in.Latency.Open),
		Set: make(map[string]string),
	}
	for i := range p.Tasks {
		out.Batch = append(out.Batch, int64(p.Tasks[i].Batch.Value))
		out.Steps = append(out.Steps, int64(p.Tasks[i].Steps.Value))
	}
	for _, o := range s.Overrides {
		out.Set[o.Path] = o.Value
	}
	for _, set := range s.sets {
		out.Set[set.name] = set.String()
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
	reports, err := compare(ctx, []Setup{s}, policies, workers, progress)
	if err != nil {
		return nil, err
	}
	return reports[0], nil
}

// Point is one value of a sweep with what was found there.
type Point struct {
	Value string
	*Report
}

// Sweep compares policies for each value of a setting or a figure.
func Sweep(ctx context.Context, s Setup, name string, values, policies []string, workers int, progress Progress) ([]Point, error) {
	setups := make([]Setup, len(values))
	for i, v := range values {
		setups[i] = s
		if err := setups[i].Set(name, v); err != nil {
			return nil, err
		}
	}
	reports, err := compare(ctx, setups, policies, workers, progress)
	if err != nil {
		return nil, err
	}
	points := make([]Point, len(values))
	for i, v := range values {
		points[i] = Point{v, reports[i]}
	}
	return points, nil
}

// job is one policy on one input, and where its result goes.
type job struct {
	in     *Input
	policy string
	report *Report
	result *Result
}

// compare is Compare for several setups.
func compare(ctx context.Context, setups []Setup, policies []string, workers int, progress Progress) (reports []*Report, err error) {
	var (
		jobs []*job
		over atomic.Int64
		all  int64
	)
	for i := range setups {
		in, err := setups[i].Input()
		if err != nil {
			return nil, err
		}
		r := &Report{
			Simulated: true, Workload: setups[i].Workload, Parameters: setups[i].parameters(in),
			Policies: make(map[string]*Result), Order: policies,
		}
		if policies == nil {
			r.Order = Policies(in.Params())
		}
		all += int64(in.Trajectories()) * int64(len(r.Order))
		if progress != nil {
			in.Progress = func() { progress(over.Add(1), all) }
		}
		for _, policy := range r.Order {
			jobs = append(jobs, &job{in: in, policy: policy, report: r})
		}
		reports = append(reports, r)
	}
	if err := runAll(ctx, jobs, workers); err != nil {
		return nil, err
	}
	for _, j := range jobs {
		if len(setups) > 1 {
			j.result.entries = nil // a sweep keeps no single actions
		}
		j.report.Policies[j.policy] = j.result
	}
	return reports, nil
}

// runAll does jobs, so many at a time, until one fails.
func runAll(ctx context.Context, jobs []*job, workers int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		next   = make(chan *job)
		wg     sync.WaitGroup
		once   sync.Once
		failed error
	)
	for range max(1, workers) {
		wg.Go(func() {
			for j := range next {
				var err error
				if j.result, err = Run(ctx, j.in, j.policy); err != nil {
					once.Do(func() { failed = err })
					cancel()
				}
			}
		})
	}
	for _, j := range jobs {
		next <- j
	}
	close(next)
	wg.Wait()
	return failed
}
