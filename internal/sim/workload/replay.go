package workload

import (
	"errors"
	"fmt"
)

// Replay says how the sessions of a trace become trajectories.
type Replay struct {
	// SharePPM is the part of a gap that a tool has worked; the rest is waiting
	// for people and permissions, and becomes thinking.
	SharePPM int64
	// CapNS is the longest gap that counts; what is above belongs to people and is
	// left out. 0: all of it counts.
	CapNS int64
	// Width is how many cores a tool keeps busy; 0 means 1.
	Width int64
	// Class is that of the tools; "tool" if empty.
	Class string
}

// Replay makes a batch of trajectories of the first task whose turns are those
// of sessions: the first trajectory has those of the first session, and so on,
// from the beginning again when they are used up. Starts, memory and rewards
// are those that the generator draws.
//
// A gap counts from the end of the turn before, also where the trace counts
// from an earlier one because it does not know that turn's end. Only after a
// turn that used a tool is it a tool's; turns that ended otherwise waited for
// a person, and the wait is left out.
func (g *Generator) Replay(sessions []Session, o Replay) ([]Trajectory, error) {
	if len(sessions) == 0 {
		return nil, fmt.Errorf("%w: no sessions", ErrTrace)
	}
	o.Width = max(1, o.Width)
	if o.Class == "" {
		o.Class = "tool"
	}
	if o.SharePPM < 0 || o.SharePPM > million || o.CapNS < 0 || o.Width > unitsMax {
		return nil, errors.New("replay: the share is not between 0 and 1000000 ppm, or the cap or the width is out of bounds")
	}
	k := &g.tasks[0]
	cost := []Cost{{Resource: "cpu", Min: o.Width, Max: o.Width}}
	out := make([]Trajectory, int(k.Batch.Value*k.Steps.Value))
	for i := range out {
		step, number := i/int(k.Batch.Value), i%int(k.Batch.Value)
		t := &out[i]
		g.begin(t, 0, step, number)
		left := o.turns(t, sessions[number%len(sessions)].Turns, step, number, cost)
		if len(k.Rewards) == 0 {
			continue
		}
		reward, _ := g.reward(0, step, number)
		reward.Key = key(0, step, number, len(t.Turns))
		t.Turns = append(t.Turns, Turn{left, reward})
	}
	return out, nil
}

// turns adds the tools of a session and returns the thinking after the last.
func (o *Replay) turns(t *Trajectory, session []SessionTurn, step, number int, cost []Cost) (think int64) {
	for i := range session {
		think += session[i].Generate
		if i+1 == len(session) || session[i].Stop != "tool_use" {
			continue
		}
		gap := session[i].gapAfter(&session[i+1])
		if o.CapNS > 0 {
			gap = min(gap, o.CapNS)
		}
		work := mulDiv(gap, o.SharePPM, million)
		if work > 0 && len(t.Turns) < turnsMax-1 {
			t.Turns = append(t.Turns, Turn{think, Action{
				Key: key(0, step, number, len(t.Turns)), Class: o.Class, Cost: cost, Single: work * o.Width,
			}})
			think = 0
		}
		think += gap - work
	}
	return think
}

// gapAfter is the time between two turns.
func (t *SessionTurn) gapAfter(next *SessionTurn) int64 {
	return max(0, min(next.Gap, next.Start-t.Start-t.Generate))
}
