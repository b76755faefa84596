package dst

import (
	"slices"

	"rota/agent/plan"
	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/internal/sim"
)

// link is the way between one node and one server.
type link struct {
	up, down int      // how many faults cut it towards the server, and from it
	held     []func() // what waits for the cut to heal
	seq      uint64
}

// weather is what is wrong with all links.
type weather struct {
	lossPPM, dupPPM int64
	delayMax        int64
}

const (
	delayUsual = 2 * millisecond
	// dupLate is how late a second copy of a request may arrive: longer than all
	// leases and time-outs.
	dupLate = 60 * second
)

// network implements sim.Servers for one node, whose requests it carries.
type network struct {
	w    *World
	node int
}

var _ sim.Servers = network{}

func (n network) Count() int { return n.w.config.servers }

func (n network) link(server int) *link { return &n.w.links[n.node][server] }

func (n network) draw(server int) (*link, sim.Draw) {
	l := n.link(server)
	l.seq++ // two messages at the same time differ
	return l, n.w.draws.Of(luckLink+uint64(n.node)*luckLinkNth+uint64(server)*8+l.seq&7, n.w.loop.Now())
}

// send carries a request to a server.
func (n network) send(server int, deliver func(*member)) {
	l, d := n.draw(server)
	n.carry(l, l.up > 0, &d, func() {
		s := n.w.servers[server]
		s.proc.At(n.w.loop.Now(), func() { deliver(s) })
	})
	if d.Chance(n.w.weather.dupPPM) {
		n.w.loop.After(d.Skewed(millisecond, dupLate), func() {
			s := n.w.servers[server]
			s.proc.At(n.w.loop.Now(), func() { deliver(s) })
		})
	}
}

// answer carries an answer back. Whether the node still waits is its business.
func (n network) answer(server int, deliver func()) {
	l, d := n.draw(server)
	n.carry(l, l.down > 0, &d, deliver)
}

// carry loses, keeps back or delays a message.
func (n network) carry(l *link, cut bool, d *sim.Draw, deliver func()) {
	switch {
	case cut && d.Chance(300_000):
		l.held = append(l.held, deliver)
	case cut, d.Chance(n.w.weather.lossPPM):
		n.w.lost++
	default:
		n.w.loop.After(d.Skewed(millisecond/10, max(delayUsual, n.w.weather.delayMax)), deliver)
	}
}

// heal ends one cut of a link; what was held back arrives.
func (w *World) heal(l *link, up, down int) {
	l.up -= up
	l.down -= down
	if l.up > 0 || l.down > 0 {
		return
	}
	held := l.held
	l.held = nil
	for i, deliver := range held {
		w.loop.After(int64(i+1)*millisecond, deliver)
	}
}

// Register implements sim.Servers.
func (n network) Register(server int, c *logv1.RegisterNode, answer func(sim.Registration, bool)) {
	c.BandwidthBps += n.w.faster[n.node]
	n.send(server, func(s *member) {
		s.propose(&logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: c}}, func(r *logv1.Result, o outcome) {
			reg := sim.Registration{Lease: n.w.config.settings.LeaseNs, Margin: n.w.config.settings.LeaseMarginNs}
			ok := o == committed && r.Refusal == nil
			if ok {
				reg.Incarnation, reg.Index = r.Incarnation, r.Index
			}
			n.answer(server, func() { answer(reg, ok) })
		})
	})
}

// Renew implements sim.Servers.
func (n network) Renew(server int, node string, incarnation uint64, answer func(fenced, ok bool)) {
	n.send(server, func(s *member) {
		s.renew(node, incarnation, func(fenced, ok bool) {
			n.answer(server, func() { answer(fenced, ok) })
		})
	})
}

// Report implements sim.Servers.
func (n network) Report(server int, c *logv1.ReportAttempts, answer func(uint64, bool)) {
	n.send(server, func(s *member) {
		s.rep.View(func(st *state.State) { fsm.Suit(c, st.Meta().Level) })
		s.propose(&logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: c}}, func(r *logv1.Result, o outcome) {
			ok, index := o == committed && r.Refusal == nil, uint64(0)
			if ok {
				index = r.Index
			}
			n.answer(server, func() { answer(index, ok) })
		})
	})
}

// ReportFrozen implements sim.Servers.
func (n network) ReportFrozen(server int, c *logv1.ReportFrozen, answer func(bool)) {
	n.send(server, func(s *member) {
		s.propose(&logv1.Command{Verb: &logv1.Command_ReportFrozen{ReportFrozen: c}}, func(r *logv1.Result, o outcome) {
			n.answer(server, func() { answer(o == committed && r.Refusal == nil) })
		})
	})
}

// Watch implements sim.Servers.
func (n network) Watch(server int, node string, incarnation, minIndex uint64, deliver func(plan.Desired), end func()) (cancel func()) {
	st := &stream{net: n, number: server, node: node, incarnation: incarnation, minIndex: minIndex, deliver: deliver, end: end}
	n.send(server, func(s *member) {
		if !st.canceled && st.s == nil {
			st.open(s)
		}
	})
	return st.cancel
}

// stream is one agent's stream of desired states at a server.
type stream struct {
	net                   network
	s                     *member
	number                int
	node                  string
	id                    state.NodeID
	incarnation, minIndex uint64
	deliver               func(plan.Desired)
	end                   func()
	waits, marked, dead   bool
	canceled              bool
	last                  int64 // when the newest message arrives: they stay in order
}

func (st *stream) open(s *member) {
	st.s, st.waits = s, true
	s.rep.View(func(v *state.State) {
		if n := v.NodeByName(st.node); n != nil {
			st.id = n.ID
		}
	})
	s.streams = append(s.streams, st)
	st.caughtUp()
	if st.waits {
		s.proc.After(watchPatience, func() {
			if st.waits {
				st.close()
			}
		})
	}
}

// caughtUp begins to send once the server has seen what the agent has.
func (st *stream) caughtUp() {
	if !st.waits || st.s.rep.Applied() < st.minIndex {
		return
	}
	st.waits = false
	st.s.rep.View(func(v *state.State) {
		if n := v.NodeByName(st.node); n != nil {
			st.id = n.ID
		}
	})
	st.mark()
	st.keepAlive()
}

func (st *stream) keepAlive() {
	st.s.proc.After(keepAlive, func() {
		if !st.dead {
			st.mark()
			st.keepAlive()
		}
	})
}

// mark has the desired state sent, as it is in a moment.
func (st *stream) mark() {
	if st.marked || st.waits || st.dead {
		return
	}
	st.marked = true
	st.s.proc.After(100_000, func() {
		st.marked = false
		if !st.dead {
			st.send()
		}
	})
}

func (st *stream) send() {
	var d plan.Desired
	st.s.rep.View(func(v *state.State) { d = sim.DesiredOf(v, st.node, st.incarnation) })
	l, draw := st.net.draw(st.number)
	if l.down > 0 || draw.Chance(st.net.w.weather.lossPPM/10) {
		st.dead = true // nothing of this connection arrives any more
		st.leave()
		return
	}
	now := st.net.w.loop.Now()
	st.last = max(st.last+1, now+draw.Skewed(millisecond/10, max(delayUsual, st.net.w.weather.delayMax)))
	st.net.w.loop.At(st.last, func() {
		if !st.canceled {
			st.deliver(d)
		}
	})
	if d.Fenced {
		st.close()
	}
}

// close ends the stream from the server's side.
func (st *stream) close() {
	st.leave()
	st.sever()
}

// sever tells the agent that the connection is gone, if it can be reached.
func (st *stream) sever() {
	st.dead, st.waits = true, false
	if l := st.net.link(st.number); l.down == 0 {
		st.net.w.loop.At(max(st.last, st.net.w.loop.Now())+millisecond, func() {
			if !st.canceled {
				st.end()
			}
		})
	}
}

func (st *stream) leave() {
	if st.s != nil {
		st.s.streams = slices.DeleteFunc(slices.Clone(st.s.streams), func(x *stream) bool { return x == st })
	}
}

// cancel ends the stream from the agent's side.
func (st *stream) cancel() {
	st.canceled, st.dead, st.waits = true, true, false
	st.leave()
}
