package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/cmd/internal/spin"
)

// ElasticOptions say what parallel suites arrive, and how often all is measured.
type ElasticOptions struct {
	Cluster ClusterOptions
	Rounds  int
	// Suites arrive in each round under each policy, at random and by the same draws.
	Suites int
	// Load is the work that arrives, over what the cores can do.
	Load float64
	// Work is how long a suite takes with one core, on average (exponential). Serial is
	// the part of it that only one core can do.
	Work   time.Duration
	Serial float64
	// Widths are the fixed numbers of cores; powers of two up to the machine's if empty.
	Widths []int
	Seed   uint64
	// Command is run instead of the built-in suite; {{cores}} in it is the number of cores.
	Command []string
}

// ElasticResult compares ways of sharing cores among parallel suites. Times are in
// milliseconds.
type ElasticResult struct {
	Cores  int     `json:"cores"`
	Rounds int     `json:"rounds"`
	Suites int     `json:"suites"`
	Load   float64 `json:"load"`
	// WorkMS is how long a suite takes with one core, on average; GapMS is between arrivals.
	WorkMS   float64         `json:"work_ms"`
	GapMS    float64         `json:"gap_ms"`
	Policies []ElasticPolicy `json:"policies"`
	Noise    spin.Noise      `json:"noise"`
	Resize   ResizeCost      `json:"resize"`
}

// PolicyTimes is how long actions took under one policy.
type PolicyTimes struct {
	Policy string `json:"policy"`
	// Of all actions of all rounds, from arrival to the knowledge that it has ended.
	MeanMS float64 `json:"mean_ms"`
	P50MS  float64 `json:"p50_ms"`
	P99MS  float64 `json:"p99_ms"`
	// RoundsMS has the mean of each round.
	RoundsMS []float64 `json:"rounds_ms"`
	// Ratio is the mean of a round over that of the first policy in the same round.
	Ratio Spread `json:"ratio"`
}

// ElasticPolicy is how suites fared under one policy.
type ElasticPolicy struct {
	PolicyTimes

	// Resizes and Switches are means of a suite: how often its CPUs changed, and its
	// context switches. Zeros with a command, which does not count them.
	Resizes  float64 `json:"resizes_each"`
	Switches float64 `json:"switches_each"`
}

// Spread is the middle of several values, and their least and greatest.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spreadOf(values []float64) Spread {
	v := slices.Sorted(slices.Values(values))
	return Spread{(v[(len(v)-1)/2] + v[len(v)/2]) / 2, v[0], v[len(v)-1]}
}

// ErrNotResizable: the cores of what runs cannot be changed on this machine.
var ErrNotResizable = errors.New("the cores of running actions cannot be changed here; run it as root on a machine with a cpuset controller")

// elastic is the measurement while it runs.
type elastic struct {
	o        ElasticOptions
	h        *held
	pods     *pods
	binary   string
	dir      string
	cpus     []int
	unit     time.Duration // of work
	gap      time.Duration // between arrivals, on average
	meter    *spin.Meter
	policies []*policy
}

// Elastic measures how long parallel suites take that share this machine: resized by
// rota, with fixed widths, and in equal shares without rota. The policies take turns in
// each round, in an order that rotates. each is told of every turn.
func Elastic(ctx context.Context, o ElasticOptions, each func(round int, policy string, meanMS float64)) (*ElasticResult, error) {
	e := &elastic{o: o, meter: spin.NewMeter()}
	defer e.stop()
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	if err := e.findGap(ctx); err != nil {
		return nil, err
	}
	for round := range o.Rounds {
		arrivals := e.arrivals(round)
		for i := range e.policies {
			p := e.policies[(round+i)%len(e.policies)]
			e.meter.Sample()
			if err := e.turn(ctx, p, arrivals); err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			each(round, p.name, p.rounds[round])
		}
	}
	e.meter.Sample()
	r := e.result()
	var err error
	r.Resize, err = e.resizeCost(ctx)
	return r, err
}

// start starts the cluster and the supervisor for equal shares.
func (e *elastic) start(ctx context.Context) (err error) {
	if e.binary, err = devcluster.Binary(e.o.Cluster.Binary); err != nil {
		return err
	}
	if e.unit, err = UnitTime(ctx, e.binary); err != nil {
		return err
	}
	if e.h, err = startCluster(ctx, e.o.Cluster, 1); err != nil {
		return err
	}
	resp, err := e.h.api.Nodes.ListNodes(ctx, &rotav1.ListNodesRequest{})
	if err != nil {
		return err
	}
	node := resp.Nodes[0]
	for _, cpu := range node.FreeCpus {
		e.cpus = append(e.cpus, int(cpu))
	}
	if !node.Resizes || len(e.cpus) < 2 {
		return fmt.Errorf("%w; this one has %d cores, and its agent says: %s", ErrNotResizable, len(e.cpus), node.Runtime)
	}
	for _, width := range e.o.Widths {
		if width < 1 || width > len(e.cpus) {
			return fmt.Errorf("a fixed width of %d cores: this machine has %d, so give widths from 1 to that", width, len(e.cpus))
		}
	}
	if e.dir, err = os.MkdirTemp(e.o.Cluster.Dir, "rota-bench-"); err != nil {
		return err
	}
	e.policies = e.allPolicies()
	e.pods, err = startPods(ctx, e.binary, filepath.Join(e.dir, "supervisor"))
	return err
}

func (e *elastic) stop() {
	if e.pods != nil {
		e.pods.stop()
	}
	if e.h != nil {
		e.h.stop()
	}
	if e.dir != "" {
		os.RemoveAll(e.dir)
	}
}

// findGap sets the time between arrivals. How much work a command is, a run with one
// core says, after another that fills its caches.
func (e *elastic) findGap(ctx context.Context) error {
	if len(e.o.Command) > 0 {
		for range 2 {
			began := time.Now()
			if _, err := e.runFixed(ctx, 1, arrival{}); err != nil {
				return err
			}
			e.o.Work = time.Since(began)
		}
	}
	e.gap = time.Duration(float64(e.o.Work) / (e.o.Load * float64(len(e.cpus))))
	return nil
}

// arrival is a suite that arrives some time after the start of its round.
type arrival struct {
	after            time.Duration
	serial, parallel int // units of work
}

// arrivals draws those of a round.
func (e *elastic) arrivals(round int) []arrival {
	rng := rand.New(rand.NewPCG(e.o.Seed, uint64(round)))
	list, at := make([]arrival, e.o.Suites), time.Duration(0)
	for i := range list {
		at += time.Duration(rng.ExpFloat64() * float64(e.gap))
		units := rng.ExpFloat64() * float64(e.o.Work) / float64(e.unit)
		serial := int(math.Round(e.o.Serial * units))
		list[i] = arrival{at, serial, max(1, int(math.Round(units))-serial)}
	}
	return list
}

// command is what runs a suite.
type command struct {
	argv []string
	env  map[string]string
	dir  string
}

// commandOf returns the command of a suite. cores is how many it uses, or {{cores}}, which
// an agent replaces.
func (e *elastic) commandOf(a arrival, cores string) command {
	if len(e.o.Command) > 0 {
		return ownCommand(e.o.Command, cores)
	}
	return e.builtIn(a, cores)
}

func (e *elastic) builtIn(a arrival, cores string) command {
	return command{argv: []string{e.binary, "bench", "suite", "--workers", cores,
		"--serial", strconv.Itoa(a.serial), "--parallel", strconv.Itoa(a.parallel)}}
}

func (e *elastic) result() *ElasticResult {
	r := &ElasticResult{Cores: len(e.cpus), Rounds: e.o.Rounds, Suites: e.o.Suites, Load: e.o.Load,
		WorkMS: ms(e.o.Work), GapMS: ms(e.gap), Noise: e.meter.Noise()}
	for _, p := range e.policies {
		r.Policies = append(r.Policies, p.result(e.policies[0].rounds))
	}
	return r
}
