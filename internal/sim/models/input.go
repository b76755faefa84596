package models

import (
	"errors"
	"fmt"
	"math/bits"

	"rota/internal/sim"
	"rota/internal/sim/workload"
)

// Model is a model as requests need it.
type Model struct {
	GPUs   uint32
	Milli  int64 // of the memory of each GPU
	LoadNS int64
}

// Input is models and, by their index, the requests for them in their order.
type Input struct {
	Name     string
	Models   []Model
	Requests []int
}

const (
	milli  = 1000
	second = 1_000_000_000
	// Of the generated input.
	generatedModels   = 48
	generatedRequests = 6000
	phase             = 500 // requests after which other models are popular
)

// ErrInput: requests cannot be made of what was given.
var ErrInput = errors.New("requests for models")

// FromTrace makes an input of a trace of pods and one of loads.
func FromTrace(pods []workload.Pod, loads []int64) (*Input, error) {
	in := &Input{Name: "trace"}
	known := make(map[workload.Pod]int)
	for _, p := range pods {
		if p.GPUs == 0 {
			continue
		}
		if p.GPUs > 8 || p.GPUMilli < 1 || p.GPUMilli > milli {
			return nil, fmt.Errorf("%w: a pod has %d GPUs and %d thousandths of each; use a trace with 1 to 8 GPUs and 1 to 1000 thousandths", ErrInput, p.GPUs, p.GPUMilli)
		}
		p.MemoryMiB = int64(bits.Len64(uint64(p.MemoryMiB)))
		i, found := known[p]
		if !found {
			i = len(in.Models)
			if i == len(loads) {
				return nil, fmt.Errorf("%w: there are more models than the %d load times; use a longer trace of loads", ErrInput, len(loads))
			}
			known[p] = i
			in.Models = append(in.Models, Model{GPUs: 1 << bits.Len64(uint64(p.GPUs-1)), Milli: p.GPUMilli, LoadNS: loads[i]})
		}
		in.Requests = append(in.Requests, i)
	}
	if len(in.Requests) == 0 {
		return nil, fmt.Errorf("%w: no pod has a GPU; use another trace", ErrInput)
	}
	return in, nil
}

// Generate makes an input without traces. The same seed gives the same.
func Generate(seed uint64) *Input {
	in := &Input{Name: "generated"}
	draw := sim.Draws(seed).Of(1, 0)
	for range generatedModels {
		m := Model{GPUs: []uint32{1, 1, 1, 1, 1, 1, 2, 4}[draw.N(8)], Milli: []int64{1000, 1000, 500, 300}[draw.N(4)]}
		if m.LoadNS = draw.Between(2*second, 4*second); draw.Chance(600_000) { // from a slower store
			m.LoadNS = draw.Between(20*second, 45*second)
		}
		in.Models = append(in.Models, m)
	}
	for r := range generatedRequests {
		rank := zipf(&draw)
		in.Requests = append(in.Requests, int((int64(rank)+int64(r/phase)*5)%generatedModels))
	}
	return in
}

// zipf draws a rank: the k-th, from 0 on, with a weight of 1/(k+1).
func zipf(draw *sim.Draw) int {
	const one = 1 << 20
	sum := int64(0)
	for k := range int64(generatedModels) {
		sum += one / (k + 1)
	}
	at := draw.N(sum)
	for k := range int64(generatedModels) {
		if at -= one / (k + 1); at < 0 {
			return int(k)
		}
	}
	return generatedModels - 1
}

// Uniform returns the input with requests for models that are all as popular.
func (in *Input) Uniform(seed uint64) *Input {
	out := &Input{Name: in.Name, Models: in.Models}
	draw := sim.Draws(seed).Of(2, 0)
	for range in.Requests {
		out.Requests = append(out.Requests, int(draw.N(int64(len(in.Models)))))
	}
	return out
}

// Equal returns the input with models that all take the mean of their load times.
func (in *Input) Equal() *Input {
	out := &Input{Name: in.Name, Requests: in.Requests}
	sum := int64(0)
	for _, m := range in.Models {
		sum += m.LoadNS
	}
	for _, m := range in.Models {
		m.LoadNS = sum / int64(len(in.Models))
		out.Models = append(out.Models, m)
	}
	return out
}

// First returns the input with its first requests only.
func (in *Input) First(requests int) *Input {
	out := *in
	out.Requests = in.Requests[:min(requests, len(in.Requests))]
	return &out
}
