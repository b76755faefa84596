package turns

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/internal/sim"
)

// worker is a training job that is under way.
type worker struct {
	m         *machine
	model     *Model
	name      string
	turns     int   // of a step: one, which has all operations, or three
	lead      int64 // how much earlier than it is needed the group is asked for
	draws     sim.Draws
	luck      uint64 // what phases are drawn by
	jitterPPM int64
	steps     int64 // to be done
	done      func()
	each      func(step int64) // called when one begins, and at the end
	moved     func() bool      // at the end of a step: it is to go on elsewhere

	step      int64 // under way, from 1
	turn      state.TurnID
	operation int
	phase     [4]int64 // how long each takes this time
	trained   bool
	fresh     bool  // nothing of it has been on the group
	ready     int64 // when the rollout before ends, and the synchronization may start
}

// Phases of a step: the operations in the order in which they run, and the rollout.
const (
	syncWeight = iota
	logProb
	updateActor
	rollout
)

// begin starts a job's first step. Steps that were done elsewhere are not repeated.
func (w *worker) begin() {
	w.ready = max(w.ready, w.m.loop.Now())
	w.fresh = true
	w.next()
}

// next begins a step, which asks for the group.
func (w *worker) next() {
	w.step++
	w.operation, w.trained = 0, false
	d := w.draws.Of(w.luck, w.step)
	for i, ns := range []int64{w.model.SyncNS, w.model.LogProbNS, w.model.UpdateNS, w.model.RolloutNS()} {
		w.phase[i] = ns + ns/million*d.Between(-w.jitterPPM, w.jitterPPM)
	}
	w.ask()
}

// withdraw takes back a step that waits for its group and has not begun, and reports
// whether there was one. The job can begin it elsewhere.
func (w *worker) withdraw() (waits bool) {
	w.m.fsm.View(func(s *state.State) {
		t := s.Turn(w.turn)
		waits = t != nil && t.State == state.TurnWaiting && w.operation == syncWeight
	})
	if waits {
		delete(w.m.turns, w.turn)
		w.step--
	}
	return waits
}

// ask asks for a turn for the next operation.
func (w *worker) ask() {
	expect := []int64{w.model.SyncNS, w.model.LogProbNS, w.model.UpdateNS}[w.operation]
	if w.turns == 1 {
		expect = w.model.HeldNS()
	}
	if w.operation == syncWeight {
		expect += max(0, w.ready-w.m.loop.Now()-w.m.serial())
	}
	setUp := w.m.serial()
	if w.fresh {
		setUp = w.m.setUp.NS
	}
	w.m.acquire(w, &logv1.AcquireTurn{
		Job: w.name, Deployment: "actor", Operation: uint32(w.operation + 1), Step: uint64(w.step),
		ExpectNs: expect, SetUpNs: setUp,
	})
}

// serial is the set-up that a group cannot do anything else in.
func (m *machine) serial() int64 {
	if m.setUp.Overlapped {
		return 0
	}
	return m.setUp.NS
}

// granted runs an operation: it is set up, waits for what it needs, and yields.
func (w *worker) granted(t *state.Turn, setUp int64) {
	w.fresh = false
	end := w.m.loop.Now() + setUp
	if w.operation == syncWeight {
		end = max(end, w.ready) + w.phase[syncWeight]
		w.synchronized(end)
	} else {
		end += w.phase[w.operation]
	}
	if w.turns == 1 {
		end += w.phase[logProb] + w.phase[updateActor]
	}
	w.m.loop.At(end, func() { w.yielded(t, setUp) })
}

// synchronized begins the next rollout when the weights are there. The next step asks
// for its group before the rollout is over, by what the set-up may take.
func (w *worker) synchronized(at int64) {
	w.ready = at + w.phase[rollout]
	w.m.loop.At(max(at, w.ready-w.lead), func() { w.over() })
}

// yielded gives the group back, and goes on with the next operation.
func (w *worker) yielded(t *state.Turn, setUp int64) {
	w.m.yield(t, min(setUp, w.m.serial()))
	if w.operation++; w.operation < w.turns {
		w.ask()
		return
	}
	w.over()
}

// over is called when the update has ended and when the next step may ask for its
// group: the second time, the step is over.
func (w *worker) over() {
	if !w.trained {
		w.trained = true
		return
	}
	if w.each != nil {
		w.each(w.step)
	}
	switch {
	case w.step >= w.steps:
		w.m.loop.At(w.ready, w.done)
	case w.moved != nil && w.moved():
	default:
		w.next()
	}
}

// cycle is what the job tells the cluster of itself.
func (w *worker) cycle() *logv1.Cycle {
	return &logv1.Cycle{PeriodNs: w.model.CycleNS, Segments: []*logv1.Segment{
		{LengthNs: w.lead + w.model.HeldNS(), Nodes: w.model.Nodes()},
	}}
}

// job is what a worker is submitted as.
func (w *worker) job() *logv1.SubmitJob {
	return &logv1.SubmitJob{Name: w.name, Nodes: w.model.Nodes(), Cycle: w.cycle(), SetUpNs: w.m.serial()}
}
