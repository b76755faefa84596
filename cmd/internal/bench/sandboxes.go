package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"rota/agent/runtime/container"
	"rota/api/backoff"
	"rota/cmd/internal/devcluster"
	"rota/cmd/internal/spin"
)

// SandboxPart is a part of the measurement of sandboxes.
type SandboxPart string

// The parts, in the order in which they are measured.
const (
	SandboxActions SandboxPart = "actions"
	SandboxBusy    SandboxPart = "busy"
	SandboxOpening SandboxPart = "opening"
	SandboxFirst   SandboxPart = "first"
	SandboxIdle    SandboxPart = "idle"
)

// SandboxParts are all parts.
func SandboxParts() []SandboxPart {
	return []SandboxPart{SandboxActions, SandboxBusy, SandboxOpening, SandboxFirst, SandboxIdle}
}

// SandboxesOptions say what to measure of sandboxes, and beside what.
type SandboxesOptions struct {
	Cluster ClusterOptions
	// Containerd and Docker are sockets. Without Docker, nothing is compared with it.
	Containerd, Docker string
	// Ctr is the program ctr; empty: nothing is compared with it.
	Ctr string
	// Init is rota-init; that beside rota if empty.
	Init  string
	Parts []SandboxPart
	// Rounds are measured of each part but idle.
	Rounds int
	// Actions run in an open sandbox in a round, one after the other.
	Actions int
	// Busy sandboxes run actions at the same time, Opening are opened in a round, and Idle are open
	// and do nothing for IdleFor.
	Busy, Opening, Idle int
	IdleFor             time.Duration
	// Think passes from the opening of a trajectory to its first action, in the part of first actions.
	Think time.Duration
}

// SandboxFigure is one way of a part. Times are in milliseconds.
type SandboxFigure struct {
	Part SandboxPart `json:"part"`
	// Way is container or directory (of a trajectory), docker or ctr.
	Way string `json:"way"`
	// Sandboxes are used at the same time, or are opened in a round.
	Sandboxes int `json:"sandboxes"`
	// Of one action, or one opening.
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	MaxMS float64 `json:"max_ms"`
	// RoundMS is how long a round took, as the median of all.
	RoundMS float64 `json:"round_ms"`
	// Ratio is what one action takes (its median in a round; of openings, the whole round), over that
	// of the container in the same round: above 1, rota is faster.
	Ratio Spread `json:"ratio"`
}

// SandboxesResult is what sandboxes cost, beside others in the same run.
type SandboxesResult struct {
	Rounds  int             `json:"rounds"`
	Cores   int             `json:"cores"`
	Figures []SandboxFigure `json:"figures"`
	Idle    *IdleSandboxes  `json:"idle,omitempty"`
	// LoadAverage of the machine when the measurement began, over the last minute.
	LoadAverage float64    `json:"load_average"`
	Noise       spin.Noise `json:"noise"`
}

// sandboxCores is how many cores an agent declares that is to run more actions at once than the
// machine has cores.
const sandboxCores = 64

// sandboxes is the measurement while it runs.
type sandboxes struct {
	o          SandboxesOptions
	dir        string
	archive    string
	containerd *container.Containerd
	docker     *docker
	h          *held
	cleanup    []func()
	opened     int
	cpus       int
	node       *sandboxWay
	meter      *spin.Meter
	each       func(part SandboxPart, round int, way string, p50MS float64)
}

// Sandboxes measures actions in open sandboxes, openings, and idle sandboxes. The ways take turns in
// each round, in an order that rotates. The round before the first is not measured.
func Sandboxes(ctx context.Context, o SandboxesOptions, each func(part SandboxPart, round int, way string, p50MS float64)) (*SandboxesResult, error) {
	s := &sandboxes{o: o, cpus: runtime.NumCPU(), meter: spin.NewMeter(), each: each}
	defer s.stop()
	r := &SandboxesResult{Rounds: o.Rounds, Cores: s.cpus, LoadAverage: loadAverage()}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	for _, part := range SandboxParts() {
		if !slices.Contains(o.Parts, part) {
			continue
		}
		if err := s.part(ctx, part, r); err != nil {
			return nil, fmt.Errorf("%s: %w", part, err)
		}
	}
	s.meter.Sample()
	r.Noise = s.meter.Noise()
	return r, nil
}

// start gives the image to all that are compared.
func (s *sandboxes) start(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp(s.o.Cluster.Dir, "rota-bench-"); err != nil {
		return err
	}
	s.cleanup = append(s.cleanup, func() { os.RemoveAll(s.dir) }, removeNodeCgroups)
	if s.archive, err = writeSandboxImage(s.dir); err != nil {
		return err
	}
	if s.containerd, err = container.Connect(ctx, s.o.Containerd); err != nil {
		return err
	}
	s.cleanup = append(s.cleanup, func() { s.containerd.Close() })
	archive, err := os.Open(s.archive)
	if err != nil {
		return err
	}
	defer archive.Close()
	if _, err := s.containerd.Import(ctx, archive, sandboxImage); err != nil {
		return err
	}
	if s.o.Docker != "" {
		s.docker = newDocker(s.o.Docker)
		if err := s.docker.load(ctx, s.archive); err != nil {
			return err
		}
		s.cleanup = append(s.cleanup, func() {
			_ = s.docker.unload(context.WithoutCancel(ctx), sandboxImage) // what is left of it is a few MiB
			s.docker.close()
		})
	}
	if s.o.Ctr == "" {
		return nil
	}
	remove, err := importCtr(ctx, s.o.Ctr, s.o.Containerd, s.archive)
	if err == nil {
		s.cleanup = append(s.cleanup, remove)
	}
	return err
}

func (s *sandboxes) stop() {
	s.stopCluster()
	for _, f := range slices.Backward(s.cleanup) {
		f()
	}
}

func (s *sandboxes) stopCluster() {
	if s.h != nil {
		s.h.stop()
		s.h = nil
	}
}

// programs are rota and rota-init.
func (s *sandboxes) programs() (binary, program string, err error) {
	binary, err = devcluster.Binary(s.o.Cluster.Binary)
	if program = s.o.Init; program == "" {
		program = filepath.Join(filepath.Dir(binary), "rota-init")
	}
	return binary, program, err
}

// startCluster starts one whose agent runs containers.
func (s *sandboxes) startCluster(ctx context.Context, agentArgs ...string) error {
	s.stopCluster()
	_, program, err := s.programs()
	if err != nil {
		return err
	}
	o := s.o.Cluster
	o.AgentArgs = append([]string{"--containerd", s.o.Containerd, "--rota-init", program}, agentArgs...)
	s.h, err = startCluster(ctx, o, 1)
	return err
}

func (s *sandboxes) part(ctx context.Context, part SandboxPart, r *SandboxesResult) error {
	var agentArgs []string
	if part != SandboxActions { // otherwise actions wait for cores
		agentArgs = []string{"--cores", strconv.Itoa(sandboxCores), "--oversubscribe"}
	}
	if err := s.startCluster(ctx, agentArgs...); err != nil {
		return err
	}
	ways, err := s.ways(ctx, part)
	if err != nil {
		return err
	}
	if part == SandboxIdle {
		idle, err := s.idle(ctx, ways[0])
		r.Idle = idle
		return err
	}
	var figures []SandboxFigure
	switch part {
	case SandboxOpening:
		figures, err = s.rounds(ctx, part, s.o.Opening, ways, s.openAll)
	case SandboxFirst:
		figures, err = s.rounds(ctx, part, s.o.Opening, ways, s.firstActions)
	case SandboxBusy:
		figures, err = s.running(ctx, part, s.o.Busy, ways)
	default:
		figures, err = s.running(ctx, part, 1, ways)
	}
	r.Figures = append(r.Figures, figures...)
	return err
}

// ways are what is compared in a part; that of containers is the first.
func (s *sandboxes) ways(ctx context.Context, part SandboxPart) ([]*sandboxWay, error) {
	ways := []*sandboxWay{rotaWay(s.h.api, s.containerd, sandboxImage)}
	if part == SandboxIdle || part == SandboxFirst {
		return ways, nil
	}
	if part != SandboxOpening {
		ways = append(ways, rotaWay(s.h.api, s.containerd, ""))
		if s.node == nil {
			binary, program, err := s.programs()
			if err != nil {
				return nil, err
			}
			if s.node, err = s.nodeWay(ctx, binary, program); err != nil {
				return nil, err
			}
		}
		ways = append(ways, s.node)
	}
	if s.docker != nil {
		ways = append(ways, dockerWay(s.docker))
	}
	if part == SandboxOpening && s.o.Ctr != "" {
		ways = append(ways, ctrWay(s.o.Ctr, s.o.Containerd))
	}
	return ways, nil
}

// running measures actions in n open sandboxes of each way.
func (s *sandboxes) running(ctx context.Context, part SandboxPart, n int, ways []*sandboxWay) (_ []SandboxFigure, err error) {
	open := map[*sandboxWay][]*sandbox{}
	defer func() {
		for _, way := range slices.Backward(ways) { // containers wait until all sandboxes are gone
			err = errors.Join(err, closeAll(ctx, way, open[way]))
		}
	}()
	for _, way := range ways {
		for range n {
			one, openErr := way.open(ctx, s.name())
			if one != nil {
				open[way] = append(open[way], one)
			}
			if openErr != nil {
				return nil, fmt.Errorf("%s: %w", way.name, openErr)
			}
		}
	}
	return s.rounds(ctx, part, n, ways, func(ctx context.Context, way *sandboxWay, _ int) ([]time.Duration, time.Duration, error) {
		began := time.Now()
		took, err := each(len(open[way]), len(open[way]), func(i int) ([]time.Duration, error) { return s.runIn(ctx, open[way][i]) })
		return took, time.Since(began), err
	})
}

// runIn runs actions one after the other.
func (s *sandboxes) runIn(ctx context.Context, one *sandbox) (took []time.Duration, err error) {
	for range s.o.Actions {
		began := time.Now()
		if err := one.run(ctx); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// turnOf is what one way does in a round; it returns how long each took, and all together.
type turnOf func(ctx context.Context, way *sandboxWay, n int) ([]time.Duration, time.Duration, error)

// rounds lets the ways take turns.
func (s *sandboxes) rounds(ctx context.Context, part SandboxPart, n int, ways []*sandboxWay, turn turnOf) ([]SandboxFigure, error) {
	all, medians, wholes := map[string][]time.Duration{}, map[string][]float64{}, map[string][]float64{}
	for round := -1; round < s.o.Rounds; round++ {
		for i := range ways {
			way := ways[(i+round+1)%len(ways)]
			s.meter.Sample()
			took, whole, err := turn(ctx, way, n)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", way.name, err)
			}
			if round < 0 {
				continue
			}
			all[way.name] = append(all[way.name], took...)
			p50, _, _ := quantiles(took)
			medians[way.name], wholes[way.name] = append(medians[way.name], p50), append(wholes[way.name], ms(whole))
			s.each(part, round, way.name, p50)
		}
	}
	compared := medians
	if part == SandboxOpening {
		compared = wholes
	}
	var figures []SandboxFigure
	for _, way := range ways {
		f := SandboxFigure{Part: part, Way: way.name, Sandboxes: n, RoundMS: spreadOf(wholes[way.name]).Median}
		f.P50MS, f.P99MS, f.MaxMS = quantiles(all[way.name])
		f.Ratio = ratioOf(compared[way.name], compared[ways[0].name])
		figures = append(figures, f)
	}
	return figures, nil
}

// ratioOf divides what belongs together, and sums up.
func ratioOf(values, by []float64) Spread {
	ratios := make([]float64, len(values))
	for i := range values {
		ratios[i] = values[i] / by[i]
	}
	return spreadOf(ratios)
}

// openAll opens sandboxes, those of rota at once and others one after the other, and closes them.
func (s *sandboxes) openAll(ctx context.Context, way *sandboxWay, n int) ([]time.Duration, time.Duration, error) {
	atOnce := 1
	if way.closed != nil {
		atOnce = n
	}
	list, names := make([]*sandbox, n), make([]string, n)
	for i := range names {
		names[i] = s.name()
	}
	began := time.Now()
	took, err := each(n, atOnce, func(i int) (_ []time.Duration, err error) {
		from := time.Now()
		list[i], err = way.open(ctx, names[i])
		return []time.Duration{time.Since(from)}, err
	})
	whole := time.Since(began)
	return took, whole, errors.Join(err, closeAll(ctx, way, list))
}

// firstActions opens trajectories at once, lets each think, and measures its first action.
func (s *sandboxes) firstActions(ctx context.Context, way *sandboxWay, n int) ([]time.Duration, time.Duration, error) {
	list, names := make([]*sandbox, n), make([]string, n)
	for i := range names {
		names[i] = s.name()
	}
	began := time.Now()
	took, err := each(n, n, func(i int) (_ []time.Duration, err error) {
		if list[i], err = way.place(ctx, names[i]); err != nil {
			return nil, err
		}
		if err := backoff.Sleep(ctx, s.o.Think); err != nil {
			return nil, err
		}
		from := time.Now()
		err = list[i].run(ctx)
		return []time.Duration{time.Since(from)}, err
	})
	whole := time.Since(began) - s.o.Think
	return took, whole, errors.Join(err, closeAll(ctx, way, list))
}

// closeAll closes sandboxes, nil ones excepted, and waits until they have left the machine.
func closeAll(ctx context.Context, way *sandboxWay, list []*sandbox) error {
	list = slices.DeleteFunc(list, func(one *sandbox) bool { return one == nil })
	_, err := each(len(list), 4, func(i int) ([]time.Duration, error) { return nil, list[i].close(ctx) })
	if err == nil && way.closed != nil {
		err = way.closed(ctx)
	}
	return err
}

// each calls for 0 to n-1, some at once, and returns what all calls return.
func each(n, atOnce int, do func(i int) ([]time.Duration, error)) (all []time.Duration, err error) {
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		next int
	)
	worker := func() {
		for {
			mu.Lock()
			i := next
			next++
			mu.Unlock()
			if i >= n {
				return
			}
			took, failed := do(i)
			mu.Lock()
			all, err = append(all, took...), errors.Join(err, failed)
			mu.Unlock()
		}
	}
	for range min(n, atOnce) {
		wg.Go(worker)
	}
	wg.Wait()
	return all, err
}

// name is that of another sandbox of this run.
func (s *sandboxes) name() string {
	s.opened++
	return fmt.Sprintf("rota-bench-%d-%d", os.Getpid(), s.opened)
}
