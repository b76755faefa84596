package past

import (
	"fmt"
	"io"

	"rota/fsm"
	"rota/fsm/state"
	"rota/internal/sim"
	"rota/sched"
)

// Reader follows the log of a cluster.
type Reader struct {
	machine  *fsm.Machine
	past     Past
	running  map[state.ActionID]*use
	dirty    []state.NodeID // nodes on which attempts may have got other cores
	revision uint64
}

// use is the cores that an attempt has had, and for how long each number of them.
type use struct {
	held  []held
	units sim.Width // that it has
	since int64     // log time
}

type held struct {
	units sim.Width
	ns    int64
}

// until adds up what the attempt has had until a log time.
func (u *use) until(now int64) {
	passed := now - u.since
	u.since = now
	for i := range u.held {
		if u.held[i].units == u.units {
			u.held[i].ns += passed
			return
		}
	}
	u.held = append(u.held, held{u.units, passed})
}

// Past is what a cluster did, as far as its log and its snapshot know.
type Past struct {
	// Whole: it is known from the beginning of the cluster on.
	Whole bool

	began        int64 // log time of the beginning
	last         *state.State
	actions      []action
	trajectories map[state.TrajectoryID]*state.Trajectory
	nodes        map[string]*state.Node // the newest registration of each
	order        []string               // of nodes
}

// action is an action that has ended.
type action struct {
	state.Action        // without its spec and its output
	held         []held // nil: unknown
}

// NewReader returns a reader that begins with a snapshot, which it closes; nil: with an
// empty cluster.
func NewReader(snapshot io.ReadCloser) (*Reader, error) {
	r := &Reader{running: make(map[state.ActionID]*use), past: Past{
		Whole: snapshot == nil, trajectories: make(map[state.TrajectoryID]*state.Trajectory), nodes: make(map[string]*state.Node),
	}}
	r.machine = fsm.New(fsm.Options{OnEffects: r.effects})
	if snapshot == nil {
		return r, nil
	}
	if err := r.machine.Restore(snapshot); err != nil {
		return nil, err
	}
	r.machine.View(func(s *state.State) {
		r.revision = s.Meta().Revision
		r.past.began = s.Meta().Now
		s.Nodes(0, func(n *state.Node) bool {
			r.node(n)
			s.Attempts(n.ID, func(t *state.Attempt) bool {
				r.running[t.Action] = &use{units: sim.Width{Units: int64(sched.MeanWidth(t, s.Meta().Now))}, since: t.StartedAt}
				return true
			})
			return true
		})
		s.Trajectories(0, func(t *state.Trajectory) bool { r.past.trajectories[t.ID] = t; return true })
		s.Actions(0, func(a *state.Action) bool {
			if a.State.Final() {
				r.ended(a)
			}
			return true
		})
	})
	return r, nil
}

// Apply takes in the next entry of the log. An error says which entry it is about.
func (r *Reader) Apply(index, term uint64, data []byte) error {
	if _, err := r.machine.ApplyData(index, term, data); err != nil {
		return err
	}
	var err error
	r.machine.View(func(s *state.State) {
		r.resized(s)
		err = r.read(s)
	})
	return err
}

// effects notes on which nodes the desired state has changed.
func (r *Reader) effects(all []fsm.Effect) {
	for _, e := range all {
		if e.Kind == fsm.EffectNode {
			r.dirty = append(r.dirty, e.Node)
		}
	}
}

// resized notes the attempts that have got other cores.
func (r *Reader) resized(s *state.State) {
	for _, id := range r.dirty {
		s.Attempts(id, func(t *state.Attempt) bool {
			if u, has := r.running[t.Action], sim.WidthOf(s.Node(t.Node), t); u != nil && u.units != has {
				u.until(s.Meta().Now)
				u.units = has
			}
			return true
		})
	}
	r.dirty = r.dirty[:0]
}

// read looks at the events of an entry.
func (r *Reader) read(s *state.State) error {
	if r.past.began == 0 {
		r.past.began = s.Meta().Now
	}
	for r.revision < s.Meta().Revision {
		r.revision++
		e, ok := s.Event(r.revision)
		if !ok {
			return fmt.Errorf("entry %d has more events than the cluster keeps", s.Meta().Applied)
		}
		switch e.Kind {
		case state.EventAction:
			r.action(s, s.Action(state.ActionID(e.Subject)), state.ActionState(e.State))
		case state.EventTrajectory:
			if t := s.Trajectory(state.TrajectoryID(e.Subject)); t != nil {
				r.past.trajectories[t.ID] = t
			}
		case state.EventNode:
			if n := s.Node(state.NodeID(e.Subject)); n != nil {
				r.node(n)
			}
		}
	}
	return nil
}

func (r *Reader) node(n *state.Node) {
	if r.past.nodes[n.Name] == nil {
		r.past.order = append(r.past.order, n.Name)
	}
	r.past.nodes[n.Name] = n
}

// action follows an action to a state; nil if it is forgotten already.
func (r *Reader) action(s *state.State, a *state.Action, to state.ActionState) {
	if a == nil {
		return
	}
	if to.Final() {
		r.ended(a)
	} else if t := s.Attempt(a.Node, a.ID); to == state.ActionRunning && t != nil {
		r.running[a.ID] = &use{units: sim.WidthOf(s.Node(t.Node), t), since: t.StartedAt}
	}
}

// ended notes an action. What it was and what it printed is no matter here.
func (r *Reader) ended(a *state.Action) {
	e := action{Action: *a}
	if u := r.running[a.ID]; u != nil {
		u.until(a.EndedAt)
		e.held = u.held
		delete(r.running, a.ID)
	}
	if a.Result == nil {
		e.Result = &state.Result{}
	} else {
		e.Result = &state.Result{Reason: a.Result.Reason, ExitCode: a.Result.ExitCode, ExecNS: a.Result.ExecNS, CPUNS: a.Result.CPUNS}
	}
	e.Spec = nil
	r.past.actions = append(r.past.actions, e)
}

// Past returns what was read.
func (r *Reader) Past() *Past {
	p := r.past
	p.last = r.machine.Fork()
	return &p
}

// span returns when the past began and ended, in nanoseconds of wall time since the Unix
// epoch.
func (p *Past) span() (from, to int64) {
	m := p.last.Meta()
	from = p.began
	for i := range p.actions {
		from = min(from, p.actions[i].SubmittedAt)
	}
	return m.Wall.Wall(from), m.Wall.Wall(m.Now)
}
