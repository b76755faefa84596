package dst

import (
	"slices"
	"strings"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/sim"
	"rota/fsm/state"
	"rota/sched"
	"rota/sched/schedtest"
)

// versionsMax is the newest version of the scheduler that a build may know here.
// Those beyond the one of package sched are of schedtest: legal, and different.
const versionsMax = sched.Version + 3

// askAgain is when an operator repeats a request that had no effect.
const askAgain = 10 * second

// newSchedulers returns all versions, each of which checks that it is asked for
// decisions only while it is active.
func (w *World) newSchedulers() []sched.Scheduler {
	all := schedtest.Versions(versionsMax)
	for i, decide := range all {
		version := uint32(i + 1)
		all[i] = func(view *state.State, i state.Instance) sched.Decider {
			if active := view.Meta().SchedulerVersion; active != version {
				w.fail("scheduler", "version %d decides while version %d is active", version, active)
			}
			return decide(view, i)
		}
	}
	return all
}

// schedulers are what the build of a server knows.
func (s *member) schedulers() []sched.Scheduler {
	if s.w.flaws.OwnVersion {
		return slices.Repeat(schedtest.Versions(s.build)[s.build-1:], int(s.build))
	}
	return s.w.schedulers[:s.build]
}

// stops is when a replica does not go on. Its build may not know the version of
// the scheduler that it has come to: then it waits for an upgrade.
func (s *member) stops(err error, wanted uint32) {
	if s.build >= wanted || !strings.Contains(err.Error(), "upgrade this server") {
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

// wanted returns the version of the scheduler that an entry activates, 0 if none.
func (w *World) wanted(e sim.Entry) (version uint32) {
	var entry logv1.Entry
	if err := entry.UnmarshalVT(e.Data); err != nil {
		w.fail("encoding", "entry %d cannot be decoded: %v", e.Index, err)
	}
	for _, c := range entry.Commands {
		version = max(version, c.GetBootstrap().GetSchedulerVersion(), c.GetActivateScheduler().GetVersion())
	}
	return version
}

// upgrade is one step of a rolling upgrade: an operator has a server restarted
// with a newer build, as soon as the others can do without it.
func (w *World) upgrade(s *member, version uint32, down int64) {
	switch {
	case s.build >= version:
	case s.proc.Runs() && !w.spare():
		w.loop.After(askAgain, func() { w.upgrade(s, version, down) })
	default:
		w.upgrades++
		s.install(version, down)
	}
}

// install gives a server another build and has it restarted with that, unless it
// is down anyway and will be.
func (s *member) install(build uint32, down int64) {
	s.w.trace("server %d: from a build that knows scheduler version %d to one that knows %d", s.id, s.build, build)
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
	if build == 1 || !w.spare() {
		return false
	}
	s.install(build-1, second)
	w.undoAfter(second+e.For, func() { w.upgrade(s, build, second) })
	return true
}

// activateEarly commits the next version although not every server knows it, as
// if nobody had been asked. A majority has to be left.
func (w *World) activateEarly() bool {
	s, next := w.leading(), w.audit.version+1
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
	w.trace("scheduler version %d is activated, and %d servers are away or do not know it", next, away)
	s.proposeVersion(next)
	return true
}

func (s *member) proposeVersion(version uint32) {
	s.propose(&logv1.Command{Verb: &logv1.Command_ActivateScheduler{
		ActivateScheduler: &logv1.ActivateScheduler{Version: version},
	}}, func(*logv1.Result, outcome) {})
}

// activate is ActivateScheduler of server/rpc: the leader asks every server what
// it knows, and proposes the version if all have answered that they know it.
func (s *member) activate(version uint32) {
	switch {
	case !s.leads && (s.knows < 0 || s.knows == s.id):
		return
	case !s.leads:
		leader := s.w.servers[s.knows]
		s.hop(leader, func() {
			if leader.leads {
				leader.activate(version)
			}
		})
		return
	}
	agreed := 0
	for _, other := range s.w.servers {
		s.hop(other, func() {
			if other.build < version {
				return
			}
			other.hop(s, func() {
				if agreed++; agreed == len(s.w.servers) {
					s.proposeVersion(version)
				}
			})
		})
	}
}

// activate is an operator who wants a version to be active, again and again.
func (c *client) activate(version uint32, tries int) {
	if c.w.audit.version >= version && version > 0 || tries == 0 {
		return
	}
	c.server = (c.server + 1) % c.w.config.servers
	network{c.w, c.w.config.nodes}.send(c.server, func(s *member) { s.activate(version) })
	c.w.loop.After(askAgain, func() { c.activate(version, tries-1) })
}

// upgradeAll is the end of all upgrades: every server runs the newest build.
func (w *World) upgradeAll() {
	for _, s := range w.servers {
		if s.build < versionsMax {
			s.install(versionsMax, 0)
		}
	}
	for _, u := range w.undos {
		u.do()
	}
}
