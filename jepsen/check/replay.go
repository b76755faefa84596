package check

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/jepsen/history"
	"rota/jepsen/late"
	"rota/jepsen/model"
)

// Of one replay: how often a second machine starts anew from a snapshot, and
// how often every invariant is verified, which visits everything.
const (
	restores = 4
	audits   = 16
)

// truth is what the committed log says when it is replayed from its first entry
// on, with nothing taken from the servers but the log.
type truth struct {
	entries  int // that were replayed
	complete bool
	// events of actions by revision, ascending.
	events   []history.WatchEvent
	ends     map[uint64]ending
	grants   map[token]grant
	accepted map[string][]acceptance // by request ID
	turns    map[uint64]turnGrant
	// engines are the declarations of each model's engine, in order. failing are those that have
	// failed at least once on a node.
	engines map[string][]declared
	failing map[engineOn]bool
	// lists are the first live actions, by the revision at which somebody listed them.
	lists    map[uint64][]uint64
	last     *state.State
	findings findings
	// late is what is wrong with how late turns were because of actions; empty: nothing.
	late string
}

// ending is how an action has ended.
type ending struct {
	state   string
	attempt uint32
}

// token names one attempt.
type token struct {
	action  uint64
	attempt uint32
}

// grant is what an attempt was given.
type grant struct {
	node        string
	incarnation uint64
	index       uint64 // of the entry that granted it
	ended       uint64 // of the entry by which it was over; 0: it never was
	gpus        []int
	model       string // that it needs on them
	// cores are those that it was granted at first. One that follows may have got others
	// later: any are those that it ever had.
	cores, any []int
	follows    bool
}

// acceptance is one submission, opening or acquiring as the log has it, times in log time.
type acceptance struct {
	index     uint64 // of the entry
	first     uint64 // ID
	count     uint32
	accepted  int64
	forgotten int64 // from then on the ID may be used anew
}

// dropped reports whether retention has dropped an action after its end.
func (t *truth) dropped(action uint64) bool {
	_, ended := t.ends[action]
	return t.complete && ended && t.last.Action(state.ActionID(action)) == nil
}

// reusable reports whether a request ID was accepted more than once, and each
// time only after it had expired.
func (t *truth) reusable(id string) bool {
	list := t.accepted[id]
	for i := 1; i < len(list); i++ {
		if list[i].accepted < list[i-1].forgotten {
			return false
		}
	}
	return len(list) > 1
}

// replay: the servers' own state machine, and a model of it that was written
// apart from it, agree at every entry; a machine that starts anew from snapshots
// follows; and the servers had the very state that the log gives.
func replay(e *evidence, f *findings) {
	t := e.truth()
	*f = t.findings
	f.checked = t.entries
}

// replayer walks through a log.
type replayer struct {
	*truth
	machine *fsm.Machine
	model   *model.Model // nil after it has disagreed
	watch   *late.Watch  // nil after it has found something
	// twin starts anew from the machine's snapshot at every entry of renew; nil
	// after it has differed.
	twin   *fsm.Machine
	lister *lister
	renew  []uint64
	// said are the hashes that servers claimed, by index.
	said map[uint64][]history.Sample
	// names of states, which would be formatted for each event otherwise.
	revision uint64
}

func replayLog(e *evidence) *truth {
	t := &truth{ends: map[uint64]ending{}, grants: map[token]grant{}, accepted: map[string][]acceptance{}, turns: map[uint64]turnGrant{}, engines: map[string][]declared{}, failing: map[engineOn]bool{}, lists: map[uint64][]uint64{}, last: state.New()}
	entries := e.committed()
	if len(entries) == 0 || entries[0].Index != 1 {
		return t // the log does not reach back to its beginning
	}
	r := &replayer{
		truth: t, machine: fsm.New(fsm.Options{}), twin: fsm.New(fsm.Options{}), model: model.New(), watch: late.New(),
		lister: newLister(e.Ops),
		renew:  someIndexes(uint64(e.Seed), len(entries)), said: saidHashes(e.Record),
	}
	t.complete = true
	for i, entry := range entries {
		if entry.Data == nil {
			continue
		}
		if !r.apply(entry) {
			t.complete = false
			break
		}
		if i%max(1, len(entries)/audits) == 0 || i == len(entries)-1 {
			r.audit(entry.Index)
		}
	}
	t.last = r.machine.Fork()
	return t
}

// someIndexes draws where the twin starts anew.
func someIndexes(seed uint64, n int) (indexes []uint64) {
	draw := rand.New(rand.NewPCG(seed, 0))
	for range restores {
		indexes = append(indexes, 1+draw.Uint64N(uint64(n)))
	}
	slices.Sort(indexes)
	return indexes
}

func saidHashes(r *history.Record) map[uint64][]history.Sample {
	said := make(map[uint64][]history.Sample)
	for _, s := range slices.Concat(r.Samples, r.Hashes) {
		if s.HashIndex != 0 && s.Hash != "" {
			said[s.HashIndex] = append(said[s.HashIndex], s)
		}
	}
	return said
}

// apply takes the next entry and reports whether the machine can go on.
func (r *replayer) apply(entry history.Entry) bool {
	var decoded logv1.Entry
	if err := decoded.UnmarshalVT(entry.Data); err != nil {
		r.findings.add(nil, "entry %d of the log cannot be decoded: %v", entry.Index, err)
		return false
	}
	results, err := r.machine.ApplyData(entry.Index, entry.Term, entry.Data)
	if err != nil {
		r.findings.add(nil, "the state machine stops: %v", err)
		return false
	}
	r.entries++
	r.machine.View(func(s *state.State) {
		if r.model != nil {
			if err := r.model.Step(entry.Index, entry.Term, &decoded, results, s); err != nil {
				r.findings.add(nil, "the model disagrees: %v", err)
				r.model = nil
			}
		}
		r.learnLate(entry.Index, s)
		r.learnEvents(entry.Index, s)
		r.learnEngines(entry.Index, decoded.Commands, results)
		r.learnRequests(entry.Index, decoded.Commands, results, s)
	})
	_, hash := r.machine.Hash()
	r.followTwin(entry, hash)
	r.compareHashes(entry.Index, hash)
	return true
}

// learnEvents notes what happened to actions and turns, what was granted, and what is live.
func (r *replayer) learnEvents(index uint64, s *state.State) {
	newest := s.Meta().Revision
	for r.revision++; r.revision <= newest; r.revision++ {
		e, ok := s.Event(r.revision)
		if ok && e.Kind == state.EventTurn {
			r.learnTurn(s, state.TurnID(e.Subject))
		}
		if !ok || e.Kind != state.EventAction {
			continue
		}
		r.lister.learn(s, e)
		name := stateName(e.State)
		r.events = append(r.events, history.WatchEvent{Revision: e.Revision, Action: e.Subject, State: name, Attempt: e.Attempt})
		if state.ActionState(e.State).Final() {
			r.ends[e.Subject] = ending{name, e.Attempt}
		}
		key := token{e.Subject, e.Attempt}
		if state.ActionState(e.State) == state.ActionRunning {
			r.learnGrant(index, s, s.Attempt(e.Node, state.ActionID(e.Subject)), key)
		} else if g, granted := r.grants[key]; granted && g.ended == 0 {
			g.ended = index
			r.grants[key] = g
		}
	}
	r.revision = newest
	if ids, wanted := r.lister.list(newest); wanted && r.lists[newest] == nil {
		r.lists[newest] = ids
	}
	r.learnResizes(s)
}

// learnLate notes the first turn that was late as it must not be.
func (r *replayer) learnLate(index uint64, s *state.State) {
	if r.watch == nil {
		return
	}
	if err := r.watch.Step(s); err != nil {
		r.late, r.watch = fmt.Sprintf("at entry %d: %v", index, err), nil
	}
}

// learnGrant notes what an attempt was granted, which may be over already.
func (r *replayer) learnGrant(index uint64, s *state.State, a *state.Attempt, key token) {
	if a == nil || a.Number != key.attempt {
		return
	}
	g := grant{node: s.Node(a.Node).Name, incarnation: a.Incarnation, index: index, cores: numbers(a.Cores), follows: a.Least > 0}
	g.any = g.cores
	for _, gpu := range a.Chunk.GPUs().Slice() {
		g.gpus = append(g.gpus, int(gpu))
	}
	if action := s.Action(a.Action); action != nil && action.GPUs() != nil {
		g.model = action.GPUs().Model
	}
	r.grants[key] = g
}

// learnResizes notes which other cores attempts have got.
func (r *replayer) learnResizes(s *state.State) {
	s.Nodes(0, func(n *state.Node) bool {
		if !n.Resizes {
			return true
		}
		s.Attempts(n.ID, func(a *state.Attempt) bool {
			key := token{uint64(a.Action), a.Number}
			if g := r.grants[key]; a.ResizedAt == s.Meta().Now {
				g.any = slices.Compact(slices.Sorted(slices.Values(slices.Concat(g.any, numbers(a.Cores)))))
				r.grants[key] = g
			}
			return true
		})
		return true
	})
}

func numbers(set state.CoreSet) (cores []int) {
	for _, core := range set.Slice() {
		cores = append(cores, int(core))
	}
	return cores
}

// actionStates are the names of states as the record has them.
var actionStates = func() (names []string) {
	for i := range len(rotav1.ActionState_name) {
		names = append(names, rotav1.ActionState(i).String()[len("ACTION_STATE_"):])
	}
	return names
}()

func turnStateName(s state.TurnState) string {
	return rotav1.TurnState(s).String()[len("TURN_STATE_"):]
}

func stateName(s uint8) string {
	if int(s) < len(actionStates) {
		return actionStates[s]
	}
	return fmt.Sprint("state ", s)
}

// learnRequests notes which requests were accepted, and what they got.
func (r *replayer) learnRequests(index uint64, commands []*logv1.Command, results []*logv1.Result, s *state.State) {
	for i, c := range commands {
		q := cmp.Or(c.GetSubmitActions().GetRequest(), c.GetOpenTrajectory().GetRequest(), c.GetCreateRollout().GetRequest(), c.GetAcquireTurn().GetRequest())
		if q.GetId() == "" || i >= len(results) || results[i].Refusal != nil || results[i].Replayed {
			continue
		}
		a := acceptance{index: index, first: results[i].FirstId, count: results[i].Count, accepted: s.Meta().Now, forgotten: q.ExpireNs}
		if a.forgotten == 0 {
			a.forgotten = a.accepted + requestKept
		}
		r.accepted[q.Id] = append(r.accepted[q.Id], a)
	}
}

// requestKept is how long a request ID without an expiry is remembered, in
// nanoseconds of log time.
const requestKept = 10 * 60 * 1_000_000_000

// followTwin has the second machine apply the entry, and now and then start anew
// from a snapshot of the first.
func (r *replayer) followTwin(entry history.Entry, hash uint64) {
	if r.twin == nil {
		return
	}
	if _, err := r.twin.ApplyData(entry.Index, entry.Term, entry.Data); err != nil {
		r.findings.add(nil, "a machine that was restored from a snapshot stops: %v", err)
		r.twin = nil
		return
	}
	if _, got := r.twin.Hash(); got != hash {
		r.findings.add(nil, "at entry %d a machine that was restored from a snapshot has the hash %016x, without that it is %016x", entry.Index, got, hash)
		r.twin = nil
		return
	}
	if len(r.renew) == 0 || entry.Index < r.renew[0] {
		return
	}
	for len(r.renew) > 0 && entry.Index >= r.renew[0] {
		r.renew = r.renew[1:]
	}
	if err := r.renewTwin(); err != nil {
		r.findings.add(nil, "a snapshot at entry %d: %v", entry.Index, err)
		r.twin = nil
	}
}

func (r *replayer) renewTwin() error {
	var b bytes.Buffer
	if err := r.machine.Fork().Save(&b); err != nil {
		return err
	}
	r.twin = fsm.New(fsm.Options{})
	return r.twin.Restore(io.NopCloser(&b))
}

// compareHashes holds what servers said of their state against this one.
func (r *replayer) compareHashes(index, hash uint64) {
	for _, s := range r.said[index] {
		if want := fmt.Sprintf("%016x", hash); s.Hash != want {
			r.findings.add([]string{describeSample(s)}, "the log gives the hash %s at entry %d, %s had %s", want, index, s.Server, s.Hash)
		}
	}
}

// audit verifies every invariant of the state, and the whole model.
func (r *replayer) audit(index uint64) {
	r.machine.View(func(s *state.State) {
		if err := s.Check(); err != nil {
			r.findings.add(nil, "at entry %d an invariant is broken: %v", index, err)
		}
		if r.model == nil {
			return
		}
		if err := r.model.Compare(s); err != nil {
			r.findings.add(nil, "at entry %d the model disagrees: %v", index, err)
			r.model = nil
		}
	})
}
