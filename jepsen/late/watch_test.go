package late

import (
	"strings"
	"testing"

	"rota/fsm/state"
)

const second = int64(1_000_000_000)

// moment is what a test says of the state after an entry, at so many seconds. A group of four GPUs is
// reserved from 100 s on for 20 s of each 100 s.
type moment struct {
	at int64
	// started is when the action on the group's GPUs started; 0: none runs there.
	started int64
	// takes is how long the client says that the action takes, in seconds.
	takes int64
	// unplaced: the job has no reservation. dedicated: it has the group to itself.
	unplaced, dedicated bool
	// turn: a turn of the job waits. dueSince is since when the group says that it waits for actions.
	turn               bool
	dueSince           int64
	overruns, lateness int64 // that the group counts, in seconds
}

func (m moment) state() *state.State {
	s := state.New()
	s.SetMeta(state.Meta{
		ClusterID: "test", Settings: state.Settings{LedgerSlotNS: second}.WithDefaults(), Now: m.at * second,
		LastAction: 9, LastNode: 1, LastPool: 1, LastNamespace: 1, LastGroup: 1, LastJob: 1, LastTurn: 9,
	})
	s.PutNamespace(&state.Namespace{ID: 1, Name: "default"})
	s.PutPool(&state.Pool{ID: 1, Name: "default"})
	s.PutGPUClass(&state.GPUClass{ID: 1, Name: "H100"})
	s.PutNode(&state.Node{ID: 1, Name: "n1", Pool: 1, State: state.NodeUp, GPUs: state.GPUs{Class: 1, Count: 4, Free: state.AllGPUs(4)}})
	g := &state.NodeGroup{ID: 1, Name: "g", Nodes: 1, Period: 100}
	g.Members = state.Members{List: []state.Member{{Node: "n1"}}, Overruns: uint64(m.overruns), LateNS: m.lateness * second}
	if m.dueSince > 0 {
		g.Members.Waits, g.Members.WaitsSince = state.DueWaits, m.dueSince*second
	}
	s.PutNodeGroup(g)
	cycle := state.Cycle{Period: 100, Segments: []state.Segment{{Length: 20, Nodes: 1}}}
	s.PutJob(&state.Job{ID: 1, Namespace: 1, Name: "j", State: state.JobRunning, Nodes: 1, Group: 1, Cycle: cycle, Deployments: []state.Deployment{{Name: "actor"}}})
	switch {
	case m.dedicated:
		s.PutReservation(&state.Reservation{Job: 1, Group: 1, Dedicated: true})
	case !m.unplaced:
		s.PutReservation(&state.Reservation{Job: 1, Group: 1, Cycle: cycle, Anchor: 100, Began: 100})
	}
	if m.turn {
		s.PutTurn(&state.Turn{ID: 1, Deployment: (&state.Job{ID: 1}).Deployment(0), State: state.TurnWaiting})
	}
	if m.started > 0 {
		needs := &state.Needs{GPUs: &state.GPUDemand{Degrees: []uint32{1}, SetUpNS: second}}
		needs.Profile = &state.Profile{SingleNS: (m.takes - 1) * second, Serial: true}
		s.PutAction(&state.Action{ID: 1, Namespace: 1, Pool: 1, State: state.ActionRunning, Node: 1, Attempt: 1, AttemptsMax: 1, Needs: needs})
		s.PutAttempt(&state.Attempt{Node: 1, Action: 1, Number: 1, StartedAt: m.started * second, Chunk: state.Chunk{Units: 1}})
	}
	return s
}

func TestLateTurns(t *testing.T) {
	idle := moment{at: 40}
	starts := moment{at: 50, started: 50, takes: 40}
	goesOn := moment{at: 90, started: 50, takes: 40, turn: true}
	overran := moment{at: 105, started: 50, takes: 40, turn: true, overruns: 1, dueSince: 105}
	for name, c := range map[string]struct {
		moments []moment
		want    string // empty: all is well
	}{
		"an action that ends in time":    {[]moment{idle, starts, {at: 99}, {at: 100, turn: true}}, ""},
		"an action that may end late":    {[]moment{idle, {at: 50, started: 50, takes: 60}}, "reserved for job 1 from 100000000000"},
		"an action in a reservation":     {[]moment{{at: 101}, {at: 102, started: 102, takes: 2}}, "reserved for job 1 from 100000000000"},
		"an action in a job's own group": {[]moment{{at: 40, dedicated: true}, {at: 50, started: 50, takes: 1, dedicated: true}}, "which a job has to itself"},
		"the same, placed meanwhile":     {[]moment{{at: 40, unplaced: true}, {at: 50, started: 50, takes: 1, dedicated: true}}, ""},
		"a reservation made meanwhile":   {[]moment{{at: 40, unplaced: true}, {at: 50, started: 50, takes: 60}}, ""},
		"an overrun that is counted":     {[]moment{idle, starts, goesOn, overran, {at: 110, overruns: 1, lateness: 5}}, ""},
		"an overrun that is not counted": {[]moment{idle, starts, goesOn, {at: 105, started: 50, takes: 40, turn: true, dueSince: 105}}, "counts 0 more overruns"},
		"an overrun that was none":       {[]moment{idle, starts, {at: 90, started: 50, takes: 40, overruns: 1}}, "none of its reservations has begun"},
		"a wait that is forgotten":       {[]moment{idle, starts, goesOn, overran, {at: 110, overruns: 1}}, "counts 0 ns for which turns were late because of actions, must be 5000000000"},
		"a wait that is not noticed": {[]moment{idle, starts, goesOn, {at: 105, started: 50, takes: 40, turn: true, overruns: 1},
			{at: 110, started: 50, takes: 40, turn: true, overruns: 1}}, "must be 5000000000"},
		"a wait that was none": {[]moment{idle, starts, {at: 99, lateness: 3}}, "must be 0 to 0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := New()
			for i, m := range c.moments {
				err := w.Step(m.state())
				last := i == len(c.moments)-1
				switch {
				case err != nil && (!last || c.want == "" || !strings.Contains(err.Error(), c.want)):
					t.Fatalf("at %d s: %v", m.at, err)
				case err == nil && last && c.want != "":
					t.Fatalf("nothing was found, want: %s", c.want)
				}
			}
		})
	}
}
