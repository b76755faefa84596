package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"

	"rota/agent/engine"
	"rota/agent/engine/chunks"
	"rota/agent/plan"
	"rota/agent/runtime"
)

const (
	// engineReportsMax bounds the engines of one report.
	engineReportsMax = 256
	// engineMessageMax is how many bytes of its message a report has.
	engineMessageMax = 512
)

// openEngines restores the engines of an earlier run.
func (a *agent) openEngines() error {
	limits := chunks.Limits{AsleepMax: DefaultEnginesAsleepMax, AsleepBytesMax: a.cfg.EnginesAsleepBytes}
	if a.cfg.EnginesAsleepMax != nil {
		limits.AsleepMax = *a.cfg.EnginesAsleepMax
	}
	if limits.AsleepBytesMax == 0 {
		limits.AsleepBytesMax = a.inv.MemoryBytes / 2
	}
	if g := a.inv.GPUs; g != nil {
		limits.GPUs, limits.MemoryBytes = g.Count, g.MemoryBytes
	}
	var err error
	a.engines, err = engine.New(engine.Options{
		Record: filepath.Join(a.cfg.Dir, "engines.record"), Logger: a.log.Named("engines"),
		Runtime: a.driver.connection, Describe: func(l engine.Launch) (runtime.Spec, error) { return a.specs.engine(l) }, Tell: a.driver.tellEngines,
		GPUMemory: lessOwn(a.inv.GPUMemory(), a.stateBytes), GPUUsers: a.gpuUsers, WatchEvery: a.cfg.watchEnginesEvery,
	})
	if err != nil {
		return err
	}
	a.recorded = a.engines.Recorded()
	a.driver.engines, a.driver.engineURL, a.driver.engineLives = chunks.New(limits), a.engines.URL, a.engines.Lives
	a.driver.orphans = a.engines.Orphans
	a.driver.gpus = limits.GPUs
	return nil
}

// lessOwn takes what the state manager of this agent has of a GPU from what is in use: it has a
// limit of its own, and no engine will ever get it.
func lessOwn(read func(gpu int) (used, total uint64, err error), own func(gpu int) uint64) func(gpu int) (used, total uint64, err error) {
	if read == nil {
		return nil
	}
	return func(gpu int) (used, total uint64, err error) {
		used, total, err = read(gpu)
		return used - min(used, own(gpu)), total, err
	}
}

// stateBytes is what the state manager has of a GPU.
func (a *agent) stateBytes(gpu int) uint64 {
	if a.states == nil {
		return 0
	}
	return a.states.store.DeviceBytes(a.inv.GPUs.UUIDs[gpu])
}

// gpuUsers says which processes have memory of a GPU, as far as the driver tells.
func (a *agent) gpuUsers(gpu int) string {
	users, err := a.inv.GPUUsers(gpu)
	if err != nil {
		return ""
	}
	var words []string
	for _, u := range users {
		words = append(words, fmt.Sprintf("process %d (%d MiB)", u.PID, u.Bytes>>20))
	}
	return strings.Join(words, ", ")
}

// connection is the one in use; nil: there is none.
func (d *driver) connection() runtime.Runtime {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.conn
}

// tellEngines tells what happened to engines.
func (d *driver) tellEngines(f func(c *chunks.Chunks, now int64)) {
	d.tell(func(_ *plan.Plan, now int64) { f(d.engines, now) })
}

// nextEngines has engines begin what is due, and tells the plan which are ready, which leave and
// whether any must end: attempts start on the first only, and not where there are any of the second.
// The caller holds mu.
func (d *driver) nextEngines(now int64) (steps []chunks.Step, again int64) {
	steps, again = d.engines.Next(now, d.plan.Ready(now), d.plan.UsesEngine)
	list := d.engines.List()
	if !slices.Equal(list, d.engineList) {
		d.engineList = list
		close(d.enginesMoved)
		d.enginesMoved = make(chan struct{})
	}
	var statuses map[plan.Engine]plan.EngineStatus
	for _, s := range list {
		if statuses == nil {
			statuses = map[plan.Engine]plan.EngineStatus{}
		}
		status := plan.EngineStatus{Tries: s.Tries, FailedTry: s.FailedTry}
		switch s.State {
		case chunks.StateReady:
			status.URL = d.engineURL(s.Engine)
		case chunks.StateFailed:
			status.Failed = s.Message
		}
		statuses[s.Engine] = status
	}
	d.plan.EnginesAre(statuses)
	d.plan.EnginesLeave(d.leavers())
	d.plan.EnginesDie(d.engines.Dying(d.engineLives))
	return steps, again
}

// leavers are the engines that should not be ready and may hold memory of their GPUs. One that nobody
// knows may hold memory of any. The caller holds mu.
func (d *driver) leavers() (leavers []plan.Engine) {
	for _, s := range d.engineList {
		if d.engines.Leaves(s.Engine) {
			leavers = append(leavers, s.Engine)
		}
	}
	if d.orphans() {
		leavers = append(leavers, plan.Engine{GPUs: d.gpus})
	}
	return leavers
}

// desireEngines tells which engines should be ready, and which models have none any more.
func (a *agent) desireEngines(p *plan.Plan, m *rotav1.WatchNodeResponse) {
	specs := map[plan.Engine]*rotav1.EngineSpec{}
	var wants []chunks.Want
	for _, d := range m.GetEngines() {
		e := plan.Engine{Model: d.GetSpec().GetModel(), First: int(d.GetChunk().GetFirst()), GPUs: int(d.GetChunk().GetGpus())}
		if specs[e] != nil {
			continue
		}
		specs[e] = d.GetSpec()
		wants = append(wants, chunks.Want{
			Engine: e, Version: chunks.Version{Generation: d.GetGeneration(), MemoryBytes: d.GetMemoryBytes()},
			Sleeps:      engine.Sleeps(d.GetSpec()),
			AsleepBytes: d.GetSpec().GetAsleepMemoryBytes(),
		})
	}
	removed := map[string]bool{}
	for _, model := range m.GetRemovedModels() {
		removed[model] = true
	}
	a.engines.Desire(specs)
	a.driver.engines.Desire(wants)
	a.driver.engines.Removed(removed)
	p.EnginesRemoved(removed)
}

// engineReporter remembers what the cluster knows of the engines.
type engineReporter struct {
	said map[plan.Engine]chunks.Status
	// setUp is the start or the wake of each engine whose duration was told.
	setUp map[plan.Engine]chunks.Counts
}

// reportEngines tells the cluster what becomes of the engines: everything as an incarnation
// begins, since what the cluster knows may be old, and then what changes.
func (a *agent) reportEngines(ctx context.Context, incarnation uint64) {
	r := engineReporter{said: map[plan.Engine]chunks.Status{}, setUp: map[plan.Engine]chunks.Counts{}}
	for _, e := range a.recorded {
		r.said[e] = chunks.Status{Engine: e}
	}
	pause := newRounds(20*time.Millisecond, time.Second)
	for {
		var changes []chunks.Status
		var moved <-chan struct{}
		heard := a.untilHeard(ctx, pause, func() (err error) {
			var list []chunks.Status
			list, moved = a.driver.listEngines()
			changes = r.changes(list)
			if changes = changes[:min(len(changes), engineReportsMax)]; len(changes) > 0 {
				err = a.sendEngines(ctx, incarnation, r.reports(changes))
			}
			return err
		}, func(err error) {
			a.log.Warn("the cluster does not know yet how the engines are; trying on", "error", err)
		})
		if !heard {
			return
		}
		if r.confirm(changes); len(changes) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-moved:
		}
	}
}

// listEngines are the engines that exist or should, and what is closed when one has another
// state.
func (d *driver) listEngines() ([]chunks.Status, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.engineList, d.enginesMoved
}

// changes is what the cluster does not know. State 0: the engine is gone.
func (r *engineReporter) changes(list []chunks.Status) (changes []chunks.Status) {
	exists := map[plan.Engine]bool{}
	for _, s := range list {
		exists[s.Engine] = true
		if r.said[s.Engine] != s {
			changes = append(changes, s)
		}
	}
	for e := range r.said {
		if !exists[e] {
			changes = append(changes, chunks.Status{Engine: e})
		}
	}
	slices.SortFunc(changes, func(a, b chunks.Status) int { return a.Engine.Compare(b.Engine) })
	return changes
}

func (r *engineReporter) confirm(changes []chunks.Status) {
	for _, s := range changes {
		if s.State == 0 {
			delete(r.said, s.Engine)
			continue
		}
		r.said[s.Engine] = s
		if s.State == chunks.StateReady {
			r.setUp[s.Engine] = s.Counts
		}
	}
}

func (r *engineReporter) reports(changes []chunks.Status) (reports []*rotav1.EngineReport) {
	for _, s := range changes {
		report := &rotav1.EngineReport{
			Model: s.Engine.Model, Generation: s.Generation,
			Chunk: &rotav1.GpuChunk{First: uint32(s.Engine.First), Gpus: uint32(s.Engine.GPUs)},
			State: rotav1.EngineState(s.State), Message: short(s.Message, engineMessageMax),
			Starts: s.Counts.Starts, Wakes: s.Counts.Wakes, Sleeps: s.Counts.Sleeps, Failures: s.Counts.Failures,
			Gone: s.State == 0,
		}
		told := r.setUp[s.Engine]
		if s.SetUpNS > 0 && (told.Starts != s.Counts.Starts || told.Wakes != s.Counts.Wakes) {
			report.SetUp = durationpb.New(time.Duration(s.SetUpNS))
		}
		reports = append(reports, report)
	}
	return reports
}

func (a *agent) sendEngines(ctx context.Context, incarnation uint64, reports []*rotav1.EngineReport) error {
	req := &rotav1.ReportEnginesRequest{Name: a.cfg.Name, Incarnation: incarnation, Reports: reports}
	_, err := call(ctx, a.servers, reportTimeout,
		func(ctx context.Context, c rotav1connect.AgentServiceClient) (*rotav1.ReportEnginesResponse, error) {
			return c.ReportEngines(ctx, req)
		})
	return err
}

// enginesOf are the runs and ends of engines, which are known by other keys than attempts.
func enginesOf(running []plan.Running, ended []plan.Exit) ([]plan.Running, []plan.Exit) {
	return slices.DeleteFunc(slices.Clone(running), func(r plan.Running) bool { return !r.Key.Engine() }),
		slices.DeleteFunc(slices.Clone(ended), func(e plan.Exit) bool { return !e.Key.Engine() })
}

// withoutEngines are the runs and ends of attempts.
func withoutEngines(running []plan.Running, ended []plan.Exit) ([]plan.Running, []plan.Exit) {
	return slices.DeleteFunc(slices.Clone(running), func(r plan.Running) bool { return r.Key.Engine() }),
		slices.DeleteFunc(slices.Clone(ended), func(e plan.Exit) bool { return e.Key.Engine() })
}
