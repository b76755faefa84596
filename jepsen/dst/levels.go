package dst

import (
	"errors"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/internal/sim"
	"rota/sched"
	"rota/sched/schedtest"
)

// levelMax is the newest feature level that a build may know here. The schedulers of those
// beyond state.LevelMax are of schedtest: legal, and different.
const levelMax = state.LevelMax + 3

// askAgain is when an operator repeats a request that had no effect.
const askAgain = 10 * second

// newDeciders returns the schedulers of all levels, each of which checks that it is asked
// for decisions only while its level is active.
func (w *World) newDeciders() []sched.Scheduler {
	all := schedtest.Deciders(levelMax)
	for i, decide := range all {
		level := state.LevelMin + state.Level(i)
		all[i] = func(view *state.State, i state.Queue) sched.Decider {
			if active := view.Meta().Level; active != level {
				w.fail("scheduler", "that of level %d decides while level %d is active", level, active)
			}
			return decide(view, i)
		}
	}
	return all
}

// deciders are what the build of a server knows.
func (s *member) deciders() []sched.Scheduler {
	if s.w.flaws.OwnLevel {
		known := schedtest.Deciders(s.build)
		return slices.Repeat(known[len(known)-1:], len(known))
	}
	return s.w.deciders[:s.build-state.LevelMin+1]
}

// stops is when a replica does not go on. Its build may not know the level of
// the scheduler that it has come to: then it waits for an upgrade.
func (s *member) stops(err error, wanted state.Level) {
	if beyond := (*state.Beyond)(nil); s.build >= wanted || !errors.As(err, &beyond) {
		s.broken = err
		s.w.fail("audit", "server %d stops: %v", s.id, err)
		return
	}
	s.w.trace("server %d stops: %v", s.id, err)
	s.w.stops++
	s.leave()
	s.outdated = true
}

// leave ends a server's process. If it led, another one is elected.
func (s *member) leave() {
	w := s.w
	if w.leader == s.id {
		d := s.draw(5)
		w.depose(0)
		w.undoAfter(d.Between(300*millisecond, 3*second), func() { w.electAnother(s.id, d.Uint64()) })
	}
	s.crash()
}

// wanted returns the feature level that an entry activates, 0 if none.
func (w *World) wanted(e sim.Entry) (level state.Level) {
	var entry logv1.Entry
	if err := entry.UnmarshalVT(e.Data); err != nil {
		w.fail("encoding", "entry %d cannot be decoded: %v", e.Index, err)
	}
	for _, c := range entry.Commands {
		level = max(level, state.Level(c.GetBootstrap().GetLevel()), state.Level(c.GetRaiseLevel().GetLevel()))
	}
	return level
}

// upgrade is one step of a rolling upgrade: an operator has a server restarted
// with a newer build, as soon as the others can do without it.
func (w *World) upgrade(s *member, level state.Level, down int64) {
	switch {
	case s.build >= level:
	case s.proc.Runs() && !w.spare():
		w.loop.After(askAgain, func() { w.upgrade(s, level, down) })
	default:
		w.upgrades++
		s.install(level, down)
	}
}

// install gives a server another build and has it restarted with that, unless it
// is down anyway and will be.
func (s *member) install(build state.Level, down int64) {
	s.w.trace("server %d: from a build that knows feature level %d to one that knows %d", s.id, s.build, build)
	s.build = build
	if s.proc.Alive() {
		s.leave()
	} else if !s.outdated {
		return
	}
	s.outdated = false
	s.w.undoAfter(down, s.restart)
}

// rollBack has a server run the build before its own for a while.
func (w *World) rollBack(s *member, e Event) bool {
	build := s.build
	if build == state.LevelMin || !w.spare() {
		return false
	}
	s.install(build-1, second)
	w.undoAfter(second+e.For, func() { w.upgrade(s, build, second) })
	return true
}

// activateEarly commits the next level although not every server knows it, as
// if nobody had been asked. A majority has to be left.
func (w *World) activateEarly() bool {
	s, next := w.leading(), w.audit.level+1
	if s == nil || s.build < next {
		return false
	}
	away, ignorant := 0, false
	for _, other := range w.servers {
		ignorant = ignorant || other.build < next
		if !other.proc.Runs() || other.build < next {
			away++
		}
	}
	if !ignorant || 2*away >= len(w.servers) {
		return false
	}
	w.trace("feature level %d is activated, and %d servers are away or do not know it", next, away)
	s.proposeLevel(next)
	return true
}

func (s *member) proposeLevel(level state.Level) {
	s.propose(&logv1.Command{Verb: &logv1.Command_RaiseLevel{
		RaiseLevel: &logv1.RaiseLevel{Level: uint32(level)},
	}}, func(*logv1.Result, outcome) {})
}

// activate is RaiseLevel of server/rpc: the leader asks every server what
// it knows, and proposes the level if all have answered that they know it.
func (s *member) activate(level state.Level) {
	switch {
	case !s.leads && (s.knows < 0 || s.knows == s.id):
		return
	case !s.leads:
		leader := s.w.servers[s.knows]
		s.hop(leader, func() {
			if leader.leads {
				leader.activate(level)
			}
		})
		return
	}
	agreed := 0
	for _, other := range s.w.servers {
		s.hop(other, func() {
			if other.build < level {
				return
			}
			other.hop(s, func() {
				if agreed++; agreed == len(s.w.servers) {
					s.proposeLevel(level)
				}
			})
		})
	}
}

// activate is an operator who wants a level to be active, again and again.
func (c *client) activate(level state.Level, tries int) {
	if c.w.audit.level >= level && level > 0 || tries == 0 {
		return
	}
	c.server = (c.server + 1) % c.w.config.servers
	network{c.w, c.w.config.nodes}.send(c.server, func(s *member) { s.activate(level) })
	c.w.loop.After(askAgain, func() { c.activate(level, tries-1) })
}

// upgradeAll is the end of all upgrades: every server runs the newest build.
func (w *World) upgradeAll() {
	for _, s := range w.servers {
		if s.build < levelMax {
			s.install(levelMax, 0)
		}
	}
	for _, u := range w.undos {
		u.do()
	}
}
