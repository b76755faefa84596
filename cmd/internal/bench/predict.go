package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"rota/internal/sim/evaluate"
	"rota/internal/sim/workload"
)

// Prediction is what the simulator makes of the same requests: the same arrivals, and the times
// of requests and set-ups that were measured. All of it is simulated.
type Prediction struct {
	Simulated bool `json:"simulated"`
	// ServiceMS and SetUpMS are those that it was given.
	ServiceMS float64 `json:"service_ms"`
	SetUpMS   float64 `json:"set_up_ms"`
	TurnsMS   float64 `json:"turns_ms"`
	StaticMS  float64 `json:"static_ms"`
	// Ratio is that of static to turns in the same round.
	Ratio Spread `json:"ratio"`
	// Off is how much larger the measured ratio is, as a part of the predicted one: the
	// medians. Negative: it is smaller.
	Off float64 `json:"off"`
}

// predict runs the rounds through the simulator, with a warm-up before them as in the
// measurement. service is the time of a request on a whole GPU, setUp that of a context switch.
func (b *teachers) predict(ctx context.Context, service, setUp time.Duration) (*Prediction, error) {
	latency := evaluate.DefaultLatency
	turns, err := evaluate.Given(b.simulated(setUp), b.trajectories(func(int) time.Duration { return service }), latency, true)
	if err != nil {
		return nil, err
	}
	shared := func(t int) time.Duration { return service * time.Duration(b.sharers(t)) }
	static, err := evaluate.Given(b.simulated(setUp), b.trajectories(shared), latency, true)
	if err != nil {
		return nil, err
	}
	results, err := evaluate.RunAll(ctx, []*evaluate.Input{turns, static}, []string{"rota", "static"}, 2)
	if err != nil {
		return nil, fmt.Errorf("simulate the requests: %w", err)
	}
	p := &Prediction{Simulated: true, ServiceMS: ms(service), SetUpMS: ms(setUp)}
	ratios := make([]float64, b.o.Rounds)
	for round := range ratios {
		class := roundClass(round)
		t, s := float64(results[0].Classes[class].ACTMean), float64(results[1].Classes[class].ACTMean)
		ratios[round] = s / t
		p.TurnsMS += t / float64(b.o.Rounds)
		p.StaticMS += s / float64(b.o.Rounds)
	}
	p.Ratio = spreadOf(ratios)
	return p, nil
}

// roundClass tells the requests of a round apart. Actions do not name it: nothing is learned.
func roundClass(round int) string { return "round-" + strconv.Itoa(round) }

// trajectories are the requests of a warm-up and then of all rounds. A round begins when those of
// the one before have long been answered.
func (b *teachers) trajectories(service func(teacher int) time.Duration) (list []workload.Trajectory) {
	cost := []workload.Cost{{Resource: "gpu", Min: 1, Max: 1}}
	begin := time.Duration(0)
	for i := range b.o.Rounds + 1 {
		round := i - 1
		if i == 0 {
			round = b.o.Rounds // the warm-up's
		}
		requests, busy := b.requests(round), time.Duration(0)
		for _, r := range requests {
			took := service(r.teacher)
			busy += took
			list = append(list, workload.Trajectory{
				Task: "requests", Number: len(list), Start: int64(begin + r.after), Alone: true,
				Turns: []workload.Turn{{Action: workload.Action{
					Key: workload.Key{At: int64(len(list))}, Class: roundClass(round), Cost: cost, Single: int64(took), Service: teacher(r.teacher),
				}}},
			})
		}
		begin += requests[len(requests)-1].after + busy + time.Minute
	}
	return list
}

// simulated are the parameters of a node with the GPUs, and of teachers that take a whole GPU
// each.
func (b *teachers) simulated(setUp time.Duration) *workload.Params {
	p := &workload.Params{Name: "engines", Tasks: []workload.Task{{Name: "requests"}}}
	c, task := &p.Cluster, &p.Tasks[0]
	c.CoresPerNode.Value, c.NUMAPerNode.Value = 1, 1
	c.GPUNodes.Value, c.GPUsPerNode.Value = 1, workload.Quantity(b.o.GPUs)
	c.GPUMemory.Value, c.HostMemory.Value = gpuBytes, gpuBytes
	task.Batch.Value = workload.Quantity((b.o.Rounds + 1) * b.o.Requests)
	task.Steps.Value, task.Group.Value = 1, 1
	s := workload.Service{}
	static := workload.StaticService{}
	for t := range b.o.Teachers {
		s.Names = append(s.Names, teacher(t))
	}
	s.RestoreFixed.Value, s.RestoreRate.Value = workload.Quantity(setUp), 1
	static.Names, static.Units.Value, static.Replicas.Value = s.Names, 1, 1
	p.Services, p.Baseline.Static = []workload.Service{s}, []workload.StaticService{static}
	return p
}
