package dst

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/internal/sim"
)

// gangsPerHour is how often a client submits gangs.
const gangsPerHour = 240

// gangs are submissions of gangs. Some come close together, so that gangs wait for each other.
func (p *Plan) gangs(c config) {
	d := sim.Draws(c.seed).Of(luckPlan, 11)
	for range max(1, p.Length*gangsPerHour/3/hour) {
		at := d.N(p.Length)
		for range d.Between(1, 5) {
			p.add(Event{At: at, Kind: Gang, On: int(d.N(clients)), Luck: d.Uint64()})
			at += d.Skewed(0, 5*second)
		}
	}
}

// submitGangs submits a gang or two, and now and then single actions beside them. Some have one of
// their members canceled later.
func (c *client) submitGangs(e Event) {
	d := sim.Draws(e.Luck).Of(8, 0)
	v := &logv1.SubmitActions{Request: c.request(&d, e)}
	if c.w.config.seed%2 == 0 && d.Chance(200_000) {
		v.Namespace = "team"
	}
	for range d.Skewed(1, 3) {
		if d.Chance(150_000) {
			v.Actions = append(v.Actions, c.w.config.newAction(&d, 0))
		}
		v.Actions = append(v.Actions, c.w.config.newGang(&d)...)
	}
	c.do(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: v}}, triesMax, func(r *logv1.Result) {
		if r.Refusal != nil {
			return
		}
		c.actions = recent(c.actions, r.FirstId+uint64(d.N(int64(r.Count))))
		c.acked = append(c.acked, r.FirstId, uint64(r.Count))
		if d.Chance(200_000) {
			id := r.FirstId + uint64(d.N(int64(r.Count)))
			c.w.loop.After(d.Skewed(0, 40*second), func() { c.cancel(id) })
		}
	})
}

// newGang makes up a gang: copies of one action that differ in how long they run and how they end.
// A few ask for more than the nodes have together, or cannot be a gang.
func (c *config) newGang(d *sim.Draw) (members []*logv1.Action) {
	pool := c.pool(d)
	node := int(d.N(int64(c.nodes)))
	one := &logv1.Action{Pool: pool, AttemptsMax: 1, GangSize: uint32(d.Skewed(1, 6)), GangSpread: d.Chance(300_000)}
	if one.GangSpread {
		one.GangSize = uint32(d.Between(1, int64(c.nodes)))
	}
	one.CoresMin = uint32(d.Skewed(1, min(3, c.widest(pool))))
	one.MemoryBytes = uint64(d.Between(0, 6)) << 20
	if d.Chance(300_000) {
		one.QueueTimeoutNs = d.Between(1, 60) * second
	}
	if b := c.bandwidth[node]; b > 0 && d.Chance(200_000) {
		one.Needs = &logv1.Needs{BandwidthBps: uint64(d.Skewed(1, int64(b)))}
	}
	if g := c.gpus[node]; g != nil && c.pools[node] == pool && d.Chance(500_000) {
		one.Needs = &logv1.Needs{Gpus: newGPUDemand(d, g)}
		one.Needs.Gpus.Degrees = one.Needs.Gpus.Degrees[:1]
		one.CoresMin = uint32(d.Between(0, 1))
	}
	one.CoresMax = one.CoresMin
	for range one.GangSize {
		a := proto.CloneOf(one)
		a.Spec = newSpec(d)
		members = append(members, a)
	}
	if last := members[len(members)-1]; d.Chance(30_000) {
		switch d.N(4) {
		case 0:
			last.AttemptsMax = 2
		case 1:
			last.CoresMax++
		case 2:
			last.MemoryBytes++ // and there is another
		default:
			last.GangSize++
		}
	}
	return members
}

// gangSeen is a gang that has started.
type gangSeen struct {
	nodes  []state.NodeID // of its members, by rank
	spread bool
	ended  bool
}

// gangsOf looks at the events of an entry: the members of a gang start all in one entry, those of one
// that is spread on nodes of their own, and only once.
func (w *witness) gangsOf(s *state.State, since uint64) error {
	var started []state.ActionID
	for rev := since + 1; rev <= s.Meta().Revision; rev++ {
		e, ok := s.Event(rev)
		a := s.Action(state.ActionID(e.Subject))
		if !ok || e.Kind != state.EventAction || a == nil || a.Gang == 0 {
			continue
		}
		switch now := state.ActionState(e.State); {
		case now == state.ActionRunning:
			g := w.gangs[a.Gang]
			if len(started) == 0 || started[len(started)-1] != a.Gang {
				if started = append(started, a.Gang); g != nil {
					return fmt.Errorf("gang %d starts a second time, with action %d", a.Gang, a.ID)
				}
				g = &gangSeen{spread: a.GangSpread}
				w.gangs[a.Gang] = g
			}
			if rank := int(a.ID - a.Gang); rank != len(g.nodes) {
				return fmt.Errorf("action %d of gang %d, whose rank is %d, starts after %d others", a.ID, a.Gang, rank, len(g.nodes))
			}
			if g.spread && slices.Contains(g.nodes, e.Node) {
				return fmt.Errorf("gang %d is spread, and action %d starts on a node that another one has", a.Gang, a.ID)
			}
			g.nodes = append(g.nodes, e.Node)
		case now.Final() && now != state.ActionSucceeded:
			if g := w.gangs[a.Gang]; g != nil && !g.ended {
				g.ended = true
				w.gangsEnded++
			}
		}
	}
	for _, first := range started {
		if n, size := len(w.gangs[first].nodes), int(s.Action(first).GangSize); n != size {
			return fmt.Errorf("%d of the %d actions of gang %d start", n, size, first)
		}
	}
	return nil
}
