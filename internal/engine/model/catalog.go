package model

import (
	"fmt"
	"strings"
)

// weights is a model. Qwen3's sizes are public (config.json of each model); the size in bytes is
// RollArt's Table 3, which gives it in units of 2^30 bytes and two decimals.
type weights struct {
	name                             string
	parameters                       int64 // in millions
	sizeMiB                          int64
	layers, hidden, heads, headBytes int64 // heads are those of keys and values
	width                            int64 // heads of queries times their size
	updateNS                         int64 // over RDMA: RollArt's Table 3
}

// The parameters are those of the models' cards: 8.2, 14.8 and 32.8 billion.
var catalogWeights = []weights{
	{"qwen3-8b", 8200, 15626, 36, 4096, 8, 256, 4096, 5_466_000_000},
	{"qwen3-14b", 14800, 28170, 40, 5120, 8, 256, 5120, 5_817_000_000},
	{"qwen3-32b", 32800, 62484, 64, 5120, 8, 256, 8192, 9_442_000_000},
}

// gpu is a kind of hardware: RollArt's Table 2. Its TFLOPS are those of dense BF16.
type gpu struct {
	name                       string
	gflops                     int64 // of 10^9 a second
	memoryGB, readGBs, linkGBs int64
}

var catalogGPUs = []gpu{
	{"h800", 989_500, 80, 3350, 400},
	{"h20", 148_000, 96, 4000, 900},
}

// Estimates, which neither paper gives. They are of the size that public measurements of vLLM and
// SGLang on Hopper GPUs show.
const (
	// computePercent of the TFLOPS are reached by large matrix products, readPercent of the
	// memory's bandwidth by a step that decodes.
	computePercent, readPercent = 50, 80
	// overheadPS is the time of a step that is spent on the host: 2 ms.
	overheadPS = 2_000_000_000
	// reducePS is the latency of an all-reduce in a node, of which a layer needs two: 12 us.
	reducePS = 12_000_000
	// usedPercent of the memory is for weights and KV cache (vLLM's default), and reservedGB
	// of it for activations.
	usedPercent, reservedGB = 90, 4
	// transferNS is the set-up of a transfer of a prefix: Heddle's Table 1 has 0.12 to 0.35 s
	// for a migration in all. transferBytes is 80 % of its 400 Gb/s network.
	transferNS, transferBytes = 100_000_000, 40_000_000_000
	// hostBytes is the bandwidth between GPU and host memory, for sleep and wake: PCIe 5.0 x16.
	hostBytes = 50_000_000_000
)

const source = "estimate: a roofline over Qwen3's public sizes and RollArt's Table 2 (FLOPS, memory, NVLink), at 50 % of the FLOPS and 80 % of the bandwidth, with 2 ms of host time a step; " +
	"weights' sizes and times of updates: RollArt's Table 3 (RDMA); migration: Heddle's Table 1 and network"

var catalogDegrees = []int64{1, 2, 4, 8}

// catalogBatches are where the time of a step is computed.
var catalogBatches = []int64{1, 4, 16, 32, 64, 128, 256, 512}

// Profiles are those that come with rota, by model, hardware and degree. All are estimates: see
// Source of each.
func Profiles() (all []*Profile) {
	for _, w := range catalogWeights {
		for _, g := range catalogGPUs {
			for _, degree := range catalogDegrees {
				all = append(all, estimate(w, g, degree))
			}
		}
	}
	return all
}

// Find returns the profile of a name.
func Find(name string) (*Profile, error) {
	var names []string
	for _, p := range Profiles() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return nil, fmt.Errorf("%w: there is none with the name %q; use one of %s", ErrProfile, name, strings.Join(names, ", "))
}

// estimate computes a profile. The work is divided by the degree, the latency of all-reduces is not.
func estimate(w weights, g gpu, degree int64) *Profile {
	bytes := w.sizeMiB << 20
	kvBytes := 2 * w.layers * w.heads * w.headBytes
	p := &Profile{
		Name: fmt.Sprintf("%s-%s-tp%d", w.name, g.name, degree), Model: w.name, Hardware: g.name, Degree: int(degree),
		KVReadPS: g.readPS(kvBytes, degree),
		// Two operations for each parameter, and four for each pair and element of the width.
		PrefillTokenPS: g.computePS(2*w.parameters*1_000_000, degree) + w.reduceBytesPS(g, degree),
		PrefillPairPS:  g.computePS(4*w.layers*w.width, degree),
		KVTokens:       (degree*(g.memoryGB*usedPercent/100-reservedGB)*1_000_000_000 - bytes) / kvBytes,
		KVBytes:        kvBytes, TransferNS: transferNS, TransferBytesPerSecond: transferBytes,
		SleepNS: bytes / (hostBytes / 1_000_000_000) / degree, WakeNS: bytes / (hostBytes / 1_000_000_000) / degree,
		UpdateNS: w.updateNS, Source: source,
	}
	for _, batch := range catalogBatches {
		work := max(g.readPS(bytes, degree), batch*g.computePS(2*w.parameters*1_000_000, degree))
		p.Batch = append(p.Batch, Point{batch, overheadPS + work + w.reducesPS(g, batch, degree)})
	}
	return p
}

// readPS is how long it takes to read bytes that are divided over GPUs.
func (g gpu) readPS(bytes, degree int64) int64 {
	return bytes * psPerNS / (g.readGBs * readPercent / 100 * degree)
}

// computePS is how long operations take that are divided over GPUs.
func (g gpu) computePS(operations, degree int64) int64 {
	return operations * psPerNS / (g.gflops * computePercent / 100 * degree)
}

// reducesPS is the all-reduces of a step: two for each layer.
func (w weights) reducesPS(g gpu, batch, degree int64) int64 {
	if degree == 1 {
		return 0
	}
	return 2*w.layers*reducePS + batch*w.reduceBytesPS(g, degree)
}

// reduceBytesPS is the transfer of one token's activations in all of a step's all-reduces: each
// GPU sends and gets 2 (degree-1)/degree times their bytes.
func (w weights) reduceBytesPS(g gpu, degree int64) int64 {
	bytes := 2 * w.layers * w.hidden * 2 * 2 * (degree - 1) / degree
	return bytes * psPerNS / (g.linkGBs * readPercent / 100)
}
