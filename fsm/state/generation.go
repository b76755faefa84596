package state

const (
	// HardwaresMax bounds the kinds of hardware that a trajectory prefers.
	HardwaresMax = 8
	// GenerationWaitNSMax is for how long a trajectory waits for a worker before it goes ahead of
	// those that are predicted to generate more: nothing starves.
	GenerationWaitNSMax = 60 * 1_000_000_000
	// GenerationPriorityMax is the highest priority.
	GenerationPriorityMax = 1_000_000
	// ServiceTokensMax bounds the tokens that a predictor service may predict.
	ServiceTokensMax = 1 << 24
	// ServiceTurnsMax bounds the turns that it may predict.
	ServiceTurnsMax = 1 << 16
)

// PlacementCause is why a trajectory went to a worker.
type PlacementCause uint8

// Causes of placements.
const (
	// PlacedOpened: it had none, as it was opened or resumed.
	PlacedOpened PlacementCause = 1 + iota
	// PlacedFailed, PlacedDrained, PlacedStale, PlacedRemoved, PlacedChanged: its worker failed,
	// drains, missed a version, was removed, or was registered again for less or for another
	// policy.
	PlacedFailed
	PlacedDrained
	PlacedStale
	PlacedRemoved
	PlacedChanged
	// PlacedByPlan: a plan of the leader moved it.
	PlacedByPlan

	placementCauses
)

// Generation is what a trajectory generates, and where: its second home beside its environment.
// It ends with the trajectory, and is kept as long.
type Generation struct {
	Trajectory        TrajectoryID
	Policy, TaskClass string
	Hardware          []string // the best first
	// Worker is the name of the worker; empty: it waits for one. When it has ended, it is where
	// it was.
	Worker                string
	Suspended, Generating bool
	// Priority is from 0 to GenerationPriorityMax; the highest goes first.
	Priority uint32
	// Predicted is how many tokens it is predicted to generate yet, FirstPredicted what that was
	// before its first turn.
	Predicted, FirstPredicted uint64
	// Prefill is how many tokens of prompts it is predicted to have computed yet, if its worker
	// has its KV cache.
	Prefill uint64
	// Trace has the tokens and turns so far.
	Trace              LengthTrace
	GenerateNS, ToolNS int64
	// Moves counts how often it went to another worker than Last, where it was before.
	Moves uint32
	Last  string
	// Since is the log time from which it is at its worker, or waits for one or for its node.
	Since int64
	Ended bool // with its trajectory
	// Cause is why it went to its worker, or why it left the one before. Choice is what was known
	// when its worker was chosen.
	Cause  PlacementCause
	Choice PlacementChoice
	// Service is what the predictor service said, if Predicted is its prediction.
	Service ServicePrediction
}

// ServicePrediction is what a predictor service said of a trajectory after its last turn. It is of
// zeros if the service said nothing.
type ServicePrediction struct {
	Said bool
	// Own is how many tokens rota itself predicted.
	Own uint64
	// P50 and P90 are tokens that are not exceeded in so many percent of the cases.
	P50, P90 uint64
	Turns    uint32
}

// sound reports whether the prediction can be one of a service.
func (p *ServicePrediction) sound() bool {
	if !p.Said {
		return *p == ServicePrediction{}
	}
	return p.P50 <= p.P90 && p.P90 <= ServiceTokensMax && p.Turns <= ServiceTurnsMax
}

// PlacementChoice is what was compared when a worker was chosen.
type PlacementChoice struct {
	// Candidates is among how many workers it was chosen.
	Candidates uint32
	// WorkNS is the predicted time of all work of the worker, that of the trajectory included, in
	// nanoseconds; NextNS that of the next best, 0 if there was none.
	WorkNS, NextNS int64
	// Preferred is which of the kinds of hardware it is, from 1 on; 0: none of them, or the
	// trajectory prefers none.
	Preferred uint8
	// By says how the kind of hardware was chosen.
	By HardwareChoice
	// PrefillPercent is the part of the trajectory's own time on the worker that prompts take.
	PrefillPercent uint8
}

// HardwareChoice is how a kind of hardware was chosen.
type HardwareChoice uint8

// Ways to choose hardware.
const (
	// HardwareAny: all workers that were compared are of one kind.
	HardwareAny HardwareChoice = iota
	// HardwareAsked: the trajectory prefers some kinds. HardwareRuled: its Affinity does.
	HardwareAsked
	HardwareRuled
	// HardwareMeasured: it suits what was measured of prompts and of what is generated.
	HardwareMeasured

	hardwareChoices
)

// PrefixTokens is how long the prefix is that a worker without its KV cache computes again.
func (r *Generation) PrefixTokens() uint64 { return max(r.Trace.PromptTokens, r.Trace.ContextTokens) }

// WaitsForWorker reports whether a trajectory is to be given a worker. One with memory gets its node first:
// if some had a worker and waited for memory while others had memory and waited for a worker, both would
// wait for ever.
func (s *State) WaitsForWorker(r *Generation) bool {
	return r.Worker == "" && !r.Suspended && !r.Ended && !s.Trajectory(r.Trajectory).WaitsForMemory()
}

func (r *Generation) code(c *codec) {
	number(c, &r.Trajectory)
	for _, text := range []*string{&r.Policy, &r.TaskClass, &r.Worker, &r.Last} {
		c.text(text)
	}
	list(c, &r.Hardware, (*codec).text)
	c.flag(&r.Suspended)
	c.flag(&r.Generating)
	c.flag(&r.Ended)
	for _, n := range []*uint32{&r.Priority, &r.Moves, &r.Choice.Candidates} {
		number(c, n)
	}
	for _, n := range []*uint64{&r.Predicted, &r.FirstPredicted} {
		number(c, n)
	}
	for _, n := range []*int64{&r.GenerateNS, &r.ToolNS, &r.Since, &r.Choice.WorkNS, &r.Choice.NextNS} {
		signed(c, n)
	}
	r.Trace.code(c)
	number(c, &r.Cause)
	number(c, &r.Choice.Preferred)
	number(c, &r.Prefill)
	number(c, &r.Choice.By)
	number(c, &r.Choice.PrefillPercent)
	c.flag(&r.Service.Said)
	for _, n := range []*uint64{&r.Service.Own, &r.Service.P50, &r.Service.P90} {
		number(c, n)
	}
	number(c, &r.Service.Turns)
}

type (
	workerGeneration struct {
		worker string
		id     TrajectoryID
	}
	// waitingGeneration is one without a worker: the longest first.
	waitingGeneration struct {
		policy    string
		predicted uint64
		id        TrajectoryID
	}
	// oldestGeneration is the same: the one first that waits for longest.
	oldestGeneration struct {
		policy string
		since  int64
		id     TrajectoryID
	}
)

func (a workerGeneration) less(b workerGeneration) bool {
	if a.worker != b.worker {
		return a.worker < b.worker
	}
	return a.id < b.id
}

func (a waitingGeneration) less(b waitingGeneration) bool {
	switch {
	case a.policy != b.policy:
		return a.policy < b.policy
	case a.predicted != b.predicted:
		return a.predicted > b.predicted
	}
	return a.id < b.id
}

func (a oldestGeneration) less(b oldestGeneration) bool {
	switch {
	case a.policy != b.policy:
		return a.policy < b.policy
	case a.since != b.since:
		return a.since < b.since
	}
	return a.id < b.id
}

// PutGeneration stores what a trajectory generates. It is stored again when the trajectory gets its node.
func (s *State) PutGeneration(r *Generation) {
	if old := db(s).generations.put(db(s).enc, r.Trajectory, r); old != nil {
		s.indexGeneration(old, false)
	}
	s.indexGeneration(r, true)
}

// DeleteGeneration forgets what a trajectory generated.
func (s *State) DeleteGeneration(id TrajectoryID) {
	if old := db(s).generations.delete(id); old != nil {
		s.indexGeneration(old, false)
	}
}

func (s *State) indexGeneration(r *Generation, in bool) {
	x := &db(s).index
	if !r.Ended {
		by := 1
		if !in {
			by = -1
		}
		count(&x.policyGenerations, r.Policy, by)
	}
	switch {
	case r.Ended || r.Service.Said:
	case in:
		x.ownPredictions.Set(r.Trajectory, struct{}{})
	default:
		x.ownPredictions.Delete(r.Trajectory)
	}
	switch {
	case r.Ended:
	case r.Worker != "":
		include(&x.workerGenerations, workerGeneration{r.Worker, r.Trajectory}, in)
		s.countLoad(r, in)
	case !in || s.WaitsForWorker(r):
		include(&x.waitingGenerations, waitingGeneration{r.Policy, r.Predicted, r.Trajectory}, in)
		include(&x.oldestGenerations, oldestGeneration{r.Policy, r.Since, r.Trajectory}, in)
	}
}

// countLoad counts a trajectory for its worker.
func (s *State) countLoad(r *Generation, in bool) {
	loads := &db(s).index.workerLoads
	l, _ := loads.Get(r.Worker)
	by := uint32(1)
	if !in {
		by = ^uint32(0) // less one
	}
	l.Trajectories += by
	if r.Generating {
		l.Generating += by
	}
	l.Predicted += uint64(int64(int32(by))) * r.Predicted
	l.Prefill += uint64(int64(int32(by))) * r.Prefill
	if l == (WorkerLoad{}) {
		loads.Delete(r.Worker)
	} else {
		loads.Set(r.Worker, l)
	}
}

// Generation returns what a trajectory generates, nil if it has never been said to.
func (s *State) Generation(id TrajectoryID) *Generation { return db(s).generations.get(id) }

// Generations visits what trajectories with IDs greater than after generate, those that have
// ended included.
func (s *State) Generations(after TrajectoryID, fn func(*Generation) bool) {
	db(s).generations.scan(after+1, fn)
}

// GenerationCount returns how many rows there are, those of ended trajectories included.
func (s *State) GenerationCount() int { return db(s).generations.rows.Len() }

// GeneratingOf returns how many trajectories of a policy have not ended.
func (s *State) GeneratingOf(policy string) int {
	n, _ := db(s).index.policyGenerations.Get(policy)
	return n
}

// OwnPredictions visits the trajectories with IDs greater than after that have not ended and of which
// the predictor service has said nothing since their last turn.
func (s *State) OwnPredictions(after TrajectoryID, fn func(*Generation) bool) {
	db(s).index.ownPredictions.Ascend(after+1, func(id TrajectoryID, _ struct{}) bool {
		return fn(db(s).generations.get(id))
	})
}

// GenerationsAt visits the trajectories of a worker by ID.
func (s *State) GenerationsAt(worker string, fn func(*Generation) bool) {
	db(s).index.workerGenerations.Ascend(workerGeneration{worker, 0}, func(w workerGeneration) bool {
		return w.worker == worker && fn(db(s).generations.get(w.id))
	})
}

// NextWaiting returns the trajectory of a policy that is given a worker next: of those that have
// waited for GenerationWaitNSMax the first, else the one that is predicted to generate most. Nil
// if none waits.
func (s *State) NextWaiting(policy string) *Generation {
	x := &db(s).index
	var next TrajectoryID
	x.oldestGenerations.Ascend(oldestGeneration{policy: policy, since: -1 << 63}, func(o oldestGeneration) bool {
		if o.policy == policy && o.since+GenerationWaitNSMax <= s.meta.Now {
			next = o.id
		}
		return false
	})
	if next == 0 {
		x.waitingGenerations.Ascend(waitingGeneration{policy: policy, predicted: 1<<64 - 1}, func(w waitingGeneration) bool {
			if w.policy == policy {
				next = w.id
			}
			return false
		})
	}
	return s.Generation(next)
}

// WaitingGenerations returns how many trajectories wait for a worker.
func (s *State) WaitingGenerations() int { return db(s).index.waitingGenerations.Len() }
