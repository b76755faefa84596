package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"rota/api/backoff"
	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/cmd/internal/spin"
	"rota/internal/process"
)

// EnginesOptions say which teachers are asked, and how often.
type EnginesOptions struct {
	Cluster ClusterOptions
	Rounds  int
	// Requests arrive in each round under each policy, at random and by the same draws.
	Requests int
	// Teachers are models that take a whole GPU each; GPUs are how many there are, simulated.
	Teachers, GPUs int
	// Load is the service that arrives, over what the GPUs can give.
	Load float64
	// Zipf is the exponent of popularity: teacher i is asked in proportion to 1/i^Zipf.
	Zipf float64
	// Service is how long a request takes on a whole GPU. Start and Wake are how long an engine
	// takes to load and to wake.
	Service, Start, Wake time.Duration
	Seed                 uint64
}

// EnginesResult compares engines that take turns on GPUs with engines that share them for ever.
// The engines are simulated: real processes and HTTP, but no GPU.
type EnginesResult struct {
	Simulated bool    `json:"simulated"`
	Rounds    int     `json:"rounds"`
	Requests  int     `json:"requests"`
	Teachers  int     `json:"teachers"`
	GPUs      int     `json:"gpus"`
	Load      float64 `json:"load"`
	ServiceMS float64 `json:"service_ms"`
	// Policies has turns and static; ratios are to turns in the same round.
	Policies []PolicyTimes `json:"policies"`
	// Of all engines, in all rounds and before.
	Starts   uint64 `json:"starts"`
	Wakes    uint64 `json:"wakes"`
	Sleeps   uint64 `json:"sleeps"`
	Failures uint64 `json:"failures"`
	// SetUpMS is how long it took to make an engine ready, as the cluster measured it.
	SetUpMS float64 `json:"set_up_ms"`
	// Predicted is what the simulator makes of the same requests.
	Predicted *Prediction `json:"predicted"`
	Noise     spin.Noise  `json:"noise"`
}

// gpuBytes is the memory of a simulated GPU. A teacher takes all of it.
const gpuBytes = 80 << 30

// request is one that arrives some time after the start of its round.
type request struct {
	after   time.Duration
	teacher int
}

// enginesPolicy is a way of serving the teachers, with what was measured under it.
type enginesPolicy struct {
	name string
	ask  func(ctx context.Context, teacher int) error

	mu     sync.Mutex
	took   []time.Duration
	rounds []float64 // means in milliseconds
}

// teachers is the measurement while it runs.
type teachers struct {
	o      EnginesOptions
	binary string
	dir    string
	h      *held
	// static are the engines that have a share of a GPU for ever; each serves one request at a
	// time, in the order in which they came.
	static []*process.Process
	turns  []chan struct{}
	meter  *spin.Meter

	mu sync.Mutex
	// served are the times of requests to static engines without their queue, as on a whole GPU.
	served []time.Duration
}

// Engines measures how long requests to simulated teachers take, of which there are more than
// GPUs: with rota, which puts engines to sleep and wakes them where they are needed, and with a
// static assignment. There, each teacher has a share of one GPU for ever, as a partition of the
// GPU would give it: a request takes as many times longer as teachers share the GPU. Requests
// queue at their teacher. Both are asked over HTTP. each is told of every turn.
func Engines(ctx context.Context, o EnginesOptions, each func(round int, policy string, meanMS float64)) (*EnginesResult, error) {
	b := &teachers{o: o, meter: spin.NewMeter()}
	defer b.stop()
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	policies := []*enginesPolicy{{name: "turns", ask: b.askRota}, {name: "static", ask: b.askStatic}}
	if err := b.warm(ctx, policies); err != nil {
		return nil, err
	}
	for round := range o.Rounds {
		requests := b.requests(round)
		for i := range policies {
			p := policies[(round+i)%len(policies)]
			b.meter.Sample()
			if err := p.turn(ctx, requests); err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			each(round, p.name, p.rounds[round])
		}
	}
	b.meter.Sample()
	return b.result(ctx, policies)
}

// start starts the cluster, and the engines of the static assignment.
func (b *teachers) start(ctx context.Context) (err error) {
	if b.binary, err = devcluster.Binary(b.o.Cluster.Binary); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp(b.o.Cluster.Dir, "rota-bench-"); err != nil {
		return err
	}
	o := b.o.Cluster
	o.AgentArgs = append([]string{"--simulated-gpus", fmt.Sprintf("%dxH100:80GiB", b.o.GPUs),
		"--engines-asleep-max", strconv.Itoa(b.o.Teachers * b.o.GPUs)}, o.AgentArgs...)
	if b.h, err = startCluster(ctx, o, 1); err != nil {
		return err
	}
	for t := range b.o.Teachers {
		if err := b.register(ctx, t); err != nil {
			return err
		}
	}
	ports, err := devcluster.FreePorts(b.o.Teachers)
	if err != nil {
		return err
	}
	for t, port := range ports {
		name, addr := "static-"+teacher(t), "127.0.0.1:"+strconv.Itoa(port)
		service := b.o.Service * time.Duration(b.sharers(t))
		p := devcluster.NewProcess(name, addr, b.dir, b.binary,
			"engine", "simulate", "--listen="+addr, "--model="+teacher(t), "--step="+service.String(), "--tokens=1")
		if err := p.Start(); err != nil {
			return err
		}
		b.static, b.turns = append(b.static, p), append(b.turns, make(chan struct{}, 1))
	}
	return nil
}

func teacher(t int) string { return "teacher-" + strconv.Itoa(t+1) }

// home is the GPU that a teacher has a share of in the static assignment. Teachers are dealt out
// by popularity; those that are left over share the GPUs of less popular ones.
func (b *teachers) home(t int) int {
	if even := b.o.Teachers / b.o.GPUs * b.o.GPUs; t >= even {
		return b.o.GPUs - 1 - (t - even)
	}
	return t % b.o.GPUs
}

// sharers is how many teachers share the GPU of a teacher in the static assignment.
func (b *teachers) sharers(t int) (n int) {
	for other := range b.o.Teachers {
		if b.home(other) == b.home(t) {
			n++
		}
	}
	return n
}

func (b *teachers) stop() {
	for _, p := range b.static {
		p.Kill()
	}
	if b.h != nil {
		b.h.stop()
	}
	if b.dir != "" {
		os.RemoveAll(b.dir)
	}
}

// register declares the engine of a teacher.
func (b *teachers) register(ctx context.Context, t int) error {
	_, err := b.h.api.Engines.RegisterEngine(ctx, &rotav1.RegisterEngineRequest{Engine: &rotav1.EngineSpec{
		Model: teacher(t), Driver: rotav1.EngineDriver_ENGINE_DRIVER_VLLM,
		Command: &rotav1.Command{Argv: []string{b.binary, "engine", "simulate", "--listen=127.0.0.1:{{port}}", "--model=" + teacher(t),
			"--devices={{devices}}", "--account=" + b.dir, fmt.Sprintf("--memory=%d", uint64(gpuBytes)), fmt.Sprintf("--capacity=%d", uint64(gpuBytes)),
			"--load=" + b.o.Start.String(), "--wake=" + b.o.Wake.String(), "--step=" + b.o.Service.String(), "--tokens=1"}},
	}})
	return err
}

// askRota asks a teacher as an action of the cluster, which is a call to its engine.
func (b *teachers) askRota(ctx context.Context, t int) error {
	_, err := runAction(ctx, b.h.api, &rotav1.ActionSpec{
		Name: teacher(t), Http: &rotav1.HttpCall{Url: "{{engine}}/v1/completions", Body: []byte("{}")},
		Resources: &rotav1.Resources{Cores: proto.Uint32(0), Gpus: &rotav1.GpuDemand{
			Gpus: []uint32{1}, MemoryBytes: gpuBytes, Model: teacher(t),
		}},
	})
	return err
}

// askStatic asks the engine that a teacher has for ever, after those that came before.
func (b *teachers) askStatic(ctx context.Context, t int) error {
	select {
	case b.turns[t] <- struct{}{}: // waiting senders are served in order
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	began := time.Now()
	defer func() { <-b.turns[t] }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+b.static[t].Addr+"/v1/completions", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", teacher(t), resp.Status)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.served = append(b.served, time.Since(began)/time.Duration(b.sharers(t)))
	return nil
}

// warm asks every teacher once under each policy, and has a round of requests, which are not
// measured: first starts are no part of a long run.
func (b *teachers) warm(ctx context.Context, policies []*enginesPolicy) error {
	warming, cancel := context.WithTimeout(ctx, readyTimeout+time.Duration(b.o.Teachers)*(b.o.Start+b.o.Service))
	defer cancel()
	for _, p := range policies {
		for t := range b.o.Teachers {
			if err := p.warm(warming, t); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		if err := p.turn(ctx, b.requests(b.o.Rounds)); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		p.took, p.rounds = nil, nil
	}
	b.served = nil
	return nil
}

// warm asks a teacher until it answers: its process may just have been started.
func (p *enginesPolicy) warm(ctx context.Context, t int) error {
	for {
		err := p.ask(ctx, t)
		if err == nil || backoff.Sleep(ctx, 50*time.Millisecond) != nil {
			return err
		}
	}
}

// requests draws those of a round.
func (b *teachers) requests(round int) []request {
	rng := rand.New(rand.NewPCG(b.o.Seed, uint64(round)))
	gap := float64(b.o.Service) / (b.o.Load * float64(b.o.GPUs))
	weights, sum := make([]float64, b.o.Teachers), 0.0
	for t := range weights {
		weights[t] = math.Pow(float64(t+1), -b.o.Zipf)
		sum += weights[t]
	}
	list, at := make([]request, b.o.Requests), time.Duration(0)
	for i := range list {
		at += time.Duration(rng.ExpFloat64() * gap)
		draw, t := rng.Float64()*sum, 0
		for t < len(weights)-1 && draw >= weights[t] {
			draw -= weights[t]
			t++
		}
		list[i] = request{at, t}
	}
	return list
}

// turn lets the requests of a round arrive under one policy, and waits for all of them.
func (p *enginesPolicy) turn(ctx context.Context, requests []request) error {
	afters := make([]time.Duration, len(requests))
	for i, r := range requests {
		afters[i] = r.after
	}
	first := len(p.took)
	err := arrive(ctx, afters, func(ctx context.Context, i int, arrived time.Time) error {
		if err := p.ask(ctx, requests[i].teacher); err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.took = append(p.took, time.Since(arrived))
		return nil
	})
	if err != nil {
		return err
	}
	p.rounds = append(p.rounds, meanMS(p.took[first:]))
	return nil
}

func (b *teachers) result(ctx context.Context, policies []*enginesPolicy) (*EnginesResult, error) {
	r := &EnginesResult{Simulated: true, Rounds: b.o.Rounds, Requests: b.o.Requests, Teachers: b.o.Teachers, GPUs: b.o.GPUs,
		Load: b.o.Load, ServiceMS: ms(b.o.Service), Noise: b.meter.Noise()}
	for _, p := range policies {
		r.Policies = append(r.Policies, timesOf(p.name, p.took, p.rounds, policies[0].rounds))
	}
	resp, err := b.h.api.Engines.ListEngines(ctx, &rotav1.ListEnginesRequest{})
	if err != nil {
		return nil, err
	}
	setUp, setUps := 0.0, 0.0
	for _, e := range resp.Engines {
		setUp += ms(e.SetUp.AsDuration()) * float64(e.SetUps)
		setUps += float64(e.SetUps)
		for _, i := range e.Instances {
			r.Starts += i.Starts
			r.Wakes += i.Wakes
			r.Sleeps += i.Sleeps
			r.Failures += i.Failures
		}
	}
	r.SetUpMS = setUp / max(setUps, 1)
	if r.Predicted, err = b.predict(ctx, duration(meanMS(b.served)), duration(r.SetUpMS)); err == nil {
		r.Predicted.Off = r.Policies[1].Ratio.Median/r.Predicted.Ratio.Median - 1
	}
	return r, err
}

// duration is that of so many milliseconds.
func duration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
