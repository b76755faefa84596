package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Figure is a value with where it is from: a section of the paper, a trace, what
// it is derived from, or why it is assumed.
type Figure[T any] struct {
	Value  T      `json:"value"`
	Source string `json:"source"`
}

// sourceSweep marks figures that a sweep has set.
const sourceSweep = "set by the sweep"

// Set puts a value in the place of the file's.
func (f *Figure[T]) Set(v T) { f.Value, f.Source = v, sourceSweep }

// Params are the parameters of one workload, as its file has them. Times are
// nanoseconds, sizes bytes.
type Params struct {
	Name      string     `json:"name"`
	About     string     `json:"about"`
	Cluster   Cluster    `json:"cluster"`
	Tasks     []Task     `json:"tasks"`
	Services  []Service  `json:"services"`
	Providers []Provider `json:"providers"`
	Baseline  Baseline   `json:"baseline"`
}

// Cluster is what there is outside the training cluster.
type Cluster struct {
	CPUNodes     Figure[Quantity] `json:"cpu_nodes"`
	CoresPerNode Figure[Quantity] `json:"cores_per_node"`
	NUMAPerNode  Figure[Quantity] `json:"numa_per_node"`
	NodeMemory   Figure[Quantity] `json:"node_memory"`
	GPUNodes     Figure[Quantity] `json:"gpu_nodes"`
	GPUsPerNode  Figure[Quantity] `json:"gpus_per_node"`
	// GPUMemory is that of one GPU, HostMemory that of a GPU node.
	GPUMemory  Figure[Quantity] `json:"gpu_memory"`
	HostMemory Figure[Quantity] `json:"host_memory"`
	// Own are the CPU nodes of a real cluster, in the place of CPUNodes alike.
	Own []Node `json:"-"`
}

// Node is a machine with cores.
type Node struct {
	NUMA    []int64 // cores of each NUMA node
	Memory  int64
	Resizes bool // its agent can change the cores of what runs
}

// Cores returns how many cores the node has.
func (n *Node) Cores() (all int64) {
	for _, cores := range n.NUMA {
		all += cores
	}
	return all
}

// Nodes returns the CPU nodes.
func (c *Cluster) Nodes() []Node {
	if c.Own != nil {
		return c.Own
	}
	each := int64(c.CoresPerNode.Value / c.NUMAPerNode.Value)
	numa := slices.Repeat([]int64{each}, int(c.NUMAPerNode.Value))
	return slices.Repeat([]Node{{numa, int64(c.NodeMemory.Value), true}}, int(c.CPUNodes.Value))
}

// Cores returns how many cores all CPU nodes have.
func (c *Cluster) Cores() (all int64) {
	for _, n := range c.Nodes() {
		all += n.Cores()
	}
	return all
}

// Task is one RL task: trajectories that think and use tools by turns, think
// once more and end with a reward.
type Task struct {
	Name string `json:"name"`
	// Batch is the number of trajectories of an RL step, Steps the number of
	// those; Train passes between the end of one and the beginning of the next.
	Batch Figure[Quantity] `json:"batch"`
	Steps Figure[Quantity] `json:"steps"`
	Train Figure[Quantity] `json:"train"`
	// Group is how many trajectories share a prompt, and so the base of what
	// their reward takes.
	Group Figure[Quantity] `json:"group"`
	// Start is when a trajectory begins, after its step; Memory what it holds for
	// life, Turns how often it uses a tool.
	Start  Figure[Dist] `json:"start"`
	Memory Figure[Dist] `json:"memory"`
	Turns  Figure[Dist] `json:"turns"`
	// Think is what the language model takes before an action, times ThinkPPM.
	Think    Figure[Dist]     `json:"think"`
	ThinkPPM Figure[Quantity] `json:"think_ppm"`
	Tools    []Spec           `json:"tools"`
	Rewards  []Spec           `json:"rewards"`
}

// Spec is a class of actions.
type Spec struct {
	Class string `json:"class"`
	// Weight is how often the class is chosen among those beside it.
	Weight Figure[Quantity] `json:"weight"`
	// Resource is the key resource: "cpu", "gpu" or "quota:" and a provider.
	Resource string        `json:"resource"`
	Units    Figure[Units] `json:"units"`
	// Also is what the action needs besides.
	Also *Figure[[]Need] `json:"also"`
	// Duration is at one unit. Noise is what an action takes of it, in parts per
	// million; without it there is none. A profiled class knows the duration
	// before noise. A client knows the size of an action, such as a number of tests, if
	// there is Size: that many millionths of the milliseconds before noise.
	Duration Figure[Dist]  `json:"duration"`
	Noise    *Figure[Dist] `json:"noise_ppm"`
	Size     *Figure[Dist] `json:"size_ppm"`
	Profiled *Figure[bool] `json:"profiled"`
	// SerialPPM or RatioPPM is the curve of an elastic action: a serial fraction,
	// or pairs of units and E(units).
	SerialPPM *Figure[Dist]       `json:"serial_ppm"`
	RatioPPM  *Figure[[][2]int64] `json:"ratio_ppm"`
	// Service is the model that answers; with Variants each is one of its own.
	Service  string             `json:"service"`
	Variants *Figure[[]Variant] `json:"variants"`
}

// Units are those that a class can use: a range, or a set.
type Units struct {
	Min int64   `json:"min"`
	Max int64   `json:"max"`
	Set []int64 `json:"set"`
}

// Need is a fixed amount of a resource.
type Need struct {
	Resource string `json:"resource"`
	Units    int64  `json:"units"`
}

// Variant is one of several models that a class stands for: the class becomes
// "class:name", the service is the name. DurationPPM and ThinkPPM scale what the
// class and its task say.
type Variant struct {
	Name        string `json:"name"`
	Weight      int64  `json:"weight"`
	DurationPPM int64  `json:"duration_ppm"`
	ThinkPPM    int64  `json:"think_ppm"`
}

// Service is a family of models of the same size that GPUs serve.
type Service struct {
	Names   []string         `json:"names"`
	Weights Figure[Quantity] `json:"weights"`
	// Restoring takes RestoreFixed and the weights at RestoreRate bytes a second
	// to each of the GPUs.
	RestoreFixed Figure[Quantity] `json:"restore_fixed"`
	RestoreRate  Figure[Quantity] `json:"restore_rate"`
	// ColdLoad is what loading takes that finds nothing in CPU memory.
	ColdLoad Figure[Dist] `json:"cold_load"`
}

// Restore returns how long restoring a model on so many GPUs takes.
func (s *Service) Restore(gpus int64) int64 {
	rate := int64(s.RestoreRate.Value) * gpus
	return int64(s.RestoreFixed.Value) + mulDiv(int64(s.Weights.Value), 1_000_000_000, rate)
}

// Provider is an external API with a quota.
type Provider struct {
	Name string `json:"name"`
	// Limit is per key: so many calls at once, or so many in each Window if that
	// is not 0.
	Limit  Figure[Quantity] `json:"limit"`
	Window Figure[Quantity] `json:"window"`
	Keys   Figure[Quantity] `json:"keys"`
	// ErrorPPM of the calls within the limit fail. Of those beyond, a part is
	// refused after OverrunLatency; the others hang.
	ErrorPPM        Figure[Quantity] `json:"error_ppm"`
	OverrunErrorPPM Figure[Quantity] `json:"overrun_error_ppm"`
	OverrunLatency  Figure[Dist]     `json:"overrun_latency"`
}

// Baseline is what the paper compares with, as far as this workload has it.
type Baseline struct {
	Pods        *Pods                `json:"pods"`
	FixedDoP    *Figure[[]int64]     `json:"fixed_dop"`
	RewardUnits *Figure[Quantity]    `json:"reward_units"`
	Static      []StaticService      `json:"static"`
	Calls       *UncontrolledCalling `json:"calls"`
}

// Pods is one pod per trajectory. Rate is how many the control plane creates
// a second.
type Pods struct {
	RequestMilli Figure[Quantity] `json:"request_milli"`
	LimitMilli   Figure[Quantity] `json:"limit_milli"`
	Start        Figure[Dist]     `json:"start"`
	Rate         Figure[Quantity] `json:"rate"`
}

// StaticService is models that keep their GPUs for ever.
type StaticService struct {
	Names    []string         `json:"names"`
	Units    Figure[Quantity] `json:"units"`
	Replicas Figure[Quantity] `json:"replicas"`
}

// UncontrolledCalling is calls that nobody holds back. Backoff is the pause
// before the first retry, doubled for each further one.
type UncontrolledCalling struct {
	Retries Figure[Quantity] `json:"retries"`
	Timeout Figure[Quantity] `json:"timeout"`
	Backoff Figure[Quantity] `json:"backoff"`
}

// ErrParams: parameters are not such as a workload can have.
var ErrParams = errors.New("workload parameters")

// Load returns the parameters of a workload that comes with this package, with
// what is overridden in it.
func Load(name string, overrides ...Override) (*Params, error) {
	tree, err := embedded(name)
	if err != nil {
		return nil, err
	}
	return decode(tree, overrides)
}

func decode(tree map[string]any, overrides []Override) (*Params, error) {
	for _, o := range overrides {
		if err := o.apply(tree); err != nil {
			return nil, err
		}
	}
	if _, err := figures(tree); err != nil {
		return nil, err
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrParams, err)
	}
	var p Params
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&p); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrParams, err)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrParams, err)
	}
	return &p, nil
}

// SetBatch sets the batch size of each task.
func (p *Params) SetBatch(n int64) {
	for i := range p.Tasks {
		p.Tasks[i].Batch.Set(Quantity(n))
	}
}

// SetSteps sets the number of RL steps of each task.
func (p *Params) SetSteps(n int64) {
	for i := range p.Tasks {
		p.Tasks[i].Steps.Set(Quantity(n))
	}
}

// SetCPUs sets the CPU nodes and the cores of each.
func (p *Params) SetCPUs(nodes, cores int64) {
	p.Cluster.CPUNodes.Set(Quantity(nodes))
	p.Cluster.CoresPerNode.Set(Quantity(cores))
}

// SetGPUs sets the GPU nodes and the GPUs of each.
func (p *Params) SetGPUs(nodes, gpus int64) {
	p.Cluster.GPUNodes.Set(Quantity(nodes))
	p.Cluster.GPUsPerNode.Set(Quantity(gpus))
}

// SetToolWidth has each tool call on CPUs keep n cores busy for as long as it
// kept one busy before: a wider tool is more work, not the same work in less
// time.
func (p *Params) SetToolWidth(n int64) {
	p.eachSpec(func(s *Spec, tool bool) {
		if !tool || s.Resource != "cpu" {
			return
		}
		before := s.Units.Value.Min
		s.Units.Set(Units{Min: n, Max: n})
		s.Duration.Set(s.Duration.Value.Scaled(n, before, quantityMax))
	})
}

// SetSerial sets the mean of the serial fraction of all elastic actions that
// have one, and scales the spread with it.
func (p *Params) SetSerial(ppm int64) {
	p.eachSpec(func(s *Spec, _ bool) {
		if s.SerialPPM == nil {
			return
		}
		f := Figure[Dist]{Value: Fixed(ppm), Source: sourceSweep}
		if mean := s.SerialPPM.Value.Mean(); mean > 0 {
			f.Value = s.SerialPPM.Value.Scaled(ppm, mean, million)
		}
		s.SerialPPM = &f
	})
}

// Unprofile has clients know nothing of how long actions take.
func (p *Params) Unprofile() {
	p.eachSpec(func(s *Spec, _ bool) {
		if s.Profiled != nil {
			s.Profiled = &Figure[bool]{Source: sourceSweep}
		}
	})
}

func (p *Params) eachSpec(visit func(s *Spec, tool bool)) {
	for i := range p.Tasks {
		t := &p.Tasks[i]
		for j := range t.Tools {
			visit(&t.Tools[j], true)
		}
		for j := range t.Rewards {
			visit(&t.Rewards[j], false)
		}
	}
}

// Task returns the task of a name, nil if there is none.
func (p *Params) Task(name string) *Task {
	if i := slices.IndexFunc(p.Tasks, func(t Task) bool { return t.Name == name }); i >= 0 {
		return &p.Tasks[i]
	}
	return nil
}

// Service returns the family of models that one belongs to, nil if there is
// none.
func (p *Params) Service(model string) *Service {
	if i := slices.IndexFunc(p.Services, func(s Service) bool { return slices.Contains(s.Names, model) }); i >= 0 {
		return &p.Services[i]
	}
	return nil
}

// Provider returns the provider of a name, nil if there is none.
func (p *Params) Provider(name string) *Provider {
	if i := slices.IndexFunc(p.Providers, func(v Provider) bool { return v.Name == name }); i >= 0 {
		return &p.Providers[i]
	}
	return nil
}
