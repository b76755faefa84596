package dst

import (
	"fmt"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/internal/sim"
)

// migrationsPerHour is how often clients ask for migrations, or cancel one.
const migrationsPerHour = 200

// migrations are what clients ask for. No bytes move in the simulation: a mover takes the time
// that a transfer would.
func (p *Plan) migrations(c config) {
	d := sim.Draws(c.seed).Of(luckPlan, 8)
	for range max(1, p.Length*migrationsPerHour/hour) {
		p.add(Event{At: d.N(p.Length), Kind: Migrate, On: int(d.N(clients)), Luck: d.Uint64()})
	}
}

// migrate asks for a migration between two nodes, mostly of a trajectory, or cancels one.
func (c *client) migrate(e Event) {
	d := sim.Draws(e.Luck).Of(2, 0)
	if d.Chance(100_000) {
		last := uint64(0)
		c.w.view(func(s *state.State) { last = uint64(s.Meta().LastMigration) })
		c.do(&logv1.Command{Verb: &logv1.Command_CancelMigration{CancelMigration: &logv1.CancelMigration{Id: last - min(last, uint64(d.N(6)))}}}, 1, ignore)
		return
	}
	from := int(d.N(int64(c.w.config.nodes)))
	v := &logv1.RequestMigration{
		Request: c.request(&d, e), Source: nodeName(from), Target: nodeName((from + 1 + int(d.N(int64(c.w.config.nodes)))) % c.w.config.nodes),
		Selector: []byte("simulated"), Length: uint64(d.Skewed(0, 100_000)),
		QueueTimeoutNs: d.Between(5, 120) * second, RunTimeoutNs: d.Between(5, 120) * second,
	}
	if d.Chance(700_000) && len(c.trajectories) > 0 {
		v.TrajectoryId = pick(&d, c.trajectories)
	}
	c.do(&logv1.Command{Verb: &logv1.Command_RequestMigration{RequestMigration: v}}, triesMax, ignore)
}

// mover is the part of a node's agent that pulls migrations: it looks every second at what the
// node should pull, as agents do that are told whenever something changes.
type mover struct {
	w      *World
	node   int
	client *client // with the links of the node
	pulls  uint64  // the migration that it pulls or has pulled, while the cluster wants that
}

func (w *World) startMover(node int) {
	m := &mover{w: w, node: node, client: &client{w: w, id: clients + node, link: node}}
	w.loop.After(int64(node+1)*250*millisecond, m.look)
}

func (m *mover) look() {
	m.w.loop.After(second, m.look)
	var wanted *state.Migration
	m.w.view(func(s *state.State) {
		n := s.NodeByName(nodeName(m.node))
		if n == nil || n.State != state.NodeUp || !m.w.nodes[m.node].AgentUp() {
			return
		}
		if r := s.RunningMigration(n.ID); r != nil && r.Target == n.ID {
			if wanted = r; m.pulls != uint64(r.ID) {
				m.w.witness.delivered(s, r)
			}
		}
	})
	switch {
	case wanted == nil:
		m.pulls = 0
	case m.pulls != uint64(wanted.ID):
		m.pulls = uint64(wanted.ID)
		d := m.w.draws.Of(luckNode+uint64(m.node)<<8+0xff, wanted.StartedAt)
		m.w.trace("%s pulls migration %d", nodeName(m.node), wanted.ID)
		m.w.loop.After(d.Skewed(100*millisecond, 60*second), func() { m.end(wanted, &d) })
	}
}

// end reports how a transfer ended, unless it was stopped. Now and then another has taken its
// place since, or the report is of an older incarnation.
func (m *mover) end(r *state.Migration, d *sim.Draw) {
	if m.pulls != uint64(r.ID) || !m.w.nodes[m.node].AgentUp() {
		return
	}
	total := uint64(d.Skewed(0, 1<<30))
	report := &logv1.MigrationReport{MigrationId: uint64(r.ID), Done: d.Chance(850_000), Values: total >> 20, TotalBytes: total, MovedBytes: total / 2, PresentBytes: total - total/2}
	if !report.Done {
		report.Message = "made up"
	}
	v := &logv1.ReportMigrations{Node: nodeName(m.node), Incarnation: r.TargetIncarnation, Reports: []*logv1.MigrationReport{report}}
	if d.Chance(50_000) {
		v.Incarnation--
	}
	m.report(v)
}

// report reports until the cluster has taken it: a decision that panics takes nothing.
func (m *mover) report(v *logv1.ReportMigrations) {
	m.client.do(&logv1.Command{Verb: &logv1.Command_ReportMigrations{ReportMigrations: v}}, triesMax, func(r *logv1.Result) {
		switch {
		case r.Refusal == nil:
		case r.Refusal.Reason == "COMMAND_FAILED":
			m.report(v)
		default:
			m.w.fail("migrations", "the report of migration %d is refused: %v", v.Reports[0].MigrationId, r.Refusal)
		}
	})
}

// delivered: a node is told to pull. It must be in a tool gap, and neither of its nodes may be in
// another transfer.
func (w *witness) delivered(s *state.State, m *state.Migration) {
	w.transfers++
	if t := s.Trajectory(m.Trajectory); m.Trajectory != 0 && (t == nil || len(s.LiveActions(m.Trajectory)) == 0) {
		w.fail("migration %d is told to a node outside a tool gap of trajectory %d", m.ID, m.Trajectory)
	}
	s.Migrations(0, func(o *state.Migration) bool {
		if o.ID != m.ID && o.State == state.MigrationRunning && (o.On(m.Source) || o.On(m.Target)) {
			w.fail("migration %d is told to a node while migration %d runs at one of its nodes", m.ID, o.ID)
		}
		return true
	})
}

// migrationsLeft says what has not ended; each has time limits.
func migrationsLeft(s *state.State) string {
	if n := s.MigrationCounts(); n.Queued+n.Running > 0 {
		return fmt.Sprintf("%d migrations are queued and %d run", n.Queued, n.Running)
	}
	return ""
}
