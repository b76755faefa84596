package fsm

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// TestRandomCommands drives the machine with commands of every verb, sensible and
// not. story.apply checks all invariants after every entry, and that a replica
// that restarts from snapshots has the same hash.
func TestRandomCommands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStory(t)
		s.apply(t, fourQuotas(t)...)
		for range rapid.IntRange(1, 40).Draw(t, "entries") {
			s.now += rapid.Int64Range(-int64(time.Second), int64(20*time.Second)).Draw(t, "step")
			var commands []*logv1.Command
			for range rapid.IntRange(0, 4).Draw(t, "commands") {
				commands = append(commands, parseCommand(t, randomLine(t, s))...)
			}
			if rapid.IntRange(0, 50).Draw(t, "panic") == 0 {
				s.fail = func(x stage) {
					if x.pool == 1 || x.quota == 2 || x.migration%2 == 1 || x.rollout == 2 {
						panic("planted")
					}
				}
			}
			s.apply(t, commands...)
		}
	})
}

// fourQuotas are of all kinds, one of them with several keys.
func fourQuotas(t rapid.TB) (commands []*logv1.Command) {
	for _, line := range []string{
		"quota name=calls kind=concurrency limit=3 adaptive=yes", "quota name=tokens kind=sliding limit=6 window=10s",
		"quota name=search kind=fixed limit=2 window=7s", "quota name=pair kind=sliding limit=4 window=3s keys=3 adaptive=yes",
	} {
		commands = append(commands, parseCommand(t, line)...)
	}
	return commands
}

// randomLine draws one command of a transcript; IDs are near those that exist.
func randomLine(r *rapid.T, s *story) string {
	n := func(label string, most int) int { return rapid.IntRange(0, most).Draw(r, label) }
	m := s.state.Meta()
	node := fmt.Sprintf("n%d", 1+n("node", 2))
	action := n("action", int(m.LastAction)+1)
	switch n("verb", 52) {
	case 50, 51, 52:
		return gangLine(n)
	case 45, 46:
		return cmp.Or(rewardLine(n, s), "tick")
	case 21, 22, 23:
		return engineLine(n, s, node)
	case 27, 28, 29:
		return migrationLine(n, s, node)
	case 30, 31, 32, 33, 34, 35:
		return rolloutLine(n, s)
	case 36, 37, 38, 39, 40, 41:
		return workerLine(n, s)
	case 42, 43, 44:
		return accessLine(n)
	case 47, 48, 49:
		return poolLine(n, s)
	case 17, 18, 19, 20:
		return gpuLine(n)
	case 25, 26:
		return healthLine(n, s, node)
	case 0:
		return randomElastic(r)
	case 1:
		return fmt.Sprintf("submit n=%d cores=%d max=%d memory=%d attempts=%d", 1+n("n", 3), 1+n("cores", 4), 1+n("max", 6), 50*n("memory", 4), 1+n("attempts", 2))
	case 2:
		return fmt.Sprintf("submit traj=%d cores=%d memory=%d req=r%d expires=%ds", n("traj", int(m.LastTrajectory)+1), 1+n("cores", 2), 100*n("memory", 3), n("req", 5), n("expires", 200))
	case 3:
		return fmt.Sprintf("submit cores=%d timeout=%ds ns=%s", 1+n("cores", 3), n("timeout", 30), []string{"", "team", "nobody"}[n("ns", 2)])
	case 4:
		group := []string{"", " group=g label=zone", " group=h label=zone", " group=g label=rack", " group=g"}[n("group", 4)]
		return fmt.Sprintf("open memory=%d idle=%ds%s", 100*n("memory", 5), n("idle", 40), group)
	case 5:
		return fmt.Sprintf("close id=%d", n("traj", int(m.LastTrajectory)+1))
	case 6:
		inc := 0
		if row := s.state.NodeByName(node); row != nil {
			inc = int(row.Incarnation) * n("known", 1)
		}
		gpus := []string{"", "H100:8", "H100:4", "L4:3"}[n("gpus", 3)]
		labels := []string{"", "zone:a", "zone:b", "rack:" + node + ",zone:a"}[n("labels", 3)]
		pool := []string{"", "", "", "a", "b"}[n("pool", 4)]
		resizes := []string{"", "yes"}[n("resizes", 1)]
		cache := []string{"", "100", "100", "200"}[n("cache", 3)]
		return fmt.Sprintf("register node=%s pool=%s numa=%s memory=%d inc=%d net=%d gpus=%s labels=%s resizes=%s cache=%s", node, pool, []string{"2+2", "4", "1"}[n("numa", 2)], 500+500*n("memory", 1), inc, 400*n("net", 2), gpus, labels, resizes, cache)
	case 7, 8, 9:
		return liveReport(r, s, action)
	case 13, 14, 15:
		return quotaSubmission(n)
	case 16:
		return quotaLine(n)
	case 10:
		return fmt.Sprintf("cancel ids=%d", action)
	case 11:
		inc := n("inc", int(m.LastIncarnation))
		return fmt.Sprintf("expire node=%s inc=%d", node, inc)
	case 12:
		return fmt.Sprintf("drain node=%s%s", node, []string{"", " undo=yes"}[n("undo", 1)])
	}
	return []string{"tick", "remove node=" + node, "resume pool=default", "namespace name=team", fmt.Sprintf("delete-class name=c%d", n("class", 2)),
		"delete-pool name=" + []string{"default", "a", "b"}[n("deleted", 2)], "delete-namespace name=team"}[n("other", 6)]
}

// randomElastic submits actions of which something is known, or will be.
func randomElastic(r *rapid.T) string {
	n := func(label string, most int) int { return rapid.IntRange(0, most).Draw(r, label) }
	line := fmt.Sprintf("submit n=%d attempts=%d fixed=%s", 1+n("n", 4), 1+n("attempts", 1), []string{"", "", "yes"}[n("fixed", 2)])
	line += []string{fmt.Sprintf(" cores=%d max=%d", 1+n("cores", 1), 1+n("max", 4)), " set=1,2,4", " set=1,3", " set=2"}[n("degrees", 3)]
	line += []string{"", " class=c0", " class=c1", " class=c2"}[n("class", 3)]
	line += []string{"", fmt.Sprintf(" single=%ds", n("single", 20))}[n("duration", 1)]
	return line + []string{"", " serial=0", " serial=300000", " points=2:900000,4:600000", " points=2:400000"}[n("curve", 4)]
}

// gpuLine draws a submission for GPUs, or of something that needs bandwidth.
func gpuLine(n func(string, int) int) string {
	line := fmt.Sprintf("submit n=%d cores=%d memory=%d net=%d", 1+n("n", 3), n("cores", 2), 100*n("memory", 3), 100*n("net", 4))
	if n("gpus", 5) == 0 {
		return line
	}
	line += fmt.Sprintf(" gpus=%s gpuclass=%s gpumem=%d", []string{"1", "2", "1,2,4,8", "4", "8", "2,4"}[n("degrees", 5)], []string{"", "H100", "L4"}[n("class", 2)], 20*n("gpumem", 4))
	if n("model", 2) > 0 {
		line += fmt.Sprintf(" model=%s setup=%ds", []string{"a", "b", "c"}[n("name", 2)], n("setup", 4)*n("said", 1))
	}
	if n("known", 1) == 1 {
		line += fmt.Sprintf(" single=%ds serial=%d", 1+n("takes", 20), 100_000*n("serial", 6))
	}
	return line + []string{"", " class=c0", " class=c3"}[n("class", 2)]
}

// engineLine draws what an operator does to engines, or what a node says of them: mostly of a
// model that is resident there.
func engineLine(n func(string, int) int, s *story, node string) string {
	model := []string{"a", "b", "c"}[n("name", 2)]
	switch n("change", 6) {
	case 0:
		return fmt.Sprintf("engine model=%s spec=%s", model, []string{"x", "y", ""}[n("spec", 2)])
	case 1:
		return "remove-engine model=" + model
	}
	chunk, inc := state.Chunk{First: uint32(n("first", 8)), Units: uint32(n("units", 3))}, uint64(n("inc", int(s.state.Meta().LastIncarnation)))
	if row := s.state.NodeByName(node); row != nil && n("known", 4) > 0 {
		inc = row.Incarnation
		if there := s.state.ModelsOn(row.ID); len(there) > 0 {
			m := there[n("resident", len(there)-1)]
			chunk, model = m.Chunk, m.Model
		}
	}
	said := []string{"waiting", "starting", "ready", "ready", "failed", "failed", "asleep", "unknown"}[n("state", 7)]
	return fmt.Sprintf("engine-report node=%s inc=%d model=%s gpus=%d+%d state=%s gen=%d starts=%d setup=%ds gone=%s", node, inc, model, chunk.First, chunk.Units,
		said, n("gen", 3), n("starts", 2), n("setup", 9), []string{"", "", "", "yes"}[n("gone", 3)])
}

// quotaSubmission draws actions that need quotas, with cores and without.
func quotaSubmission(n func(string, int) int) string {
	quotas := []string{"calls:%d", "tokens:%d", "calls:%d,search", "search,tokens:%d", "pair:%d", "calls,pair:%d,nobody"}[n("quotas", 5)]
	line := fmt.Sprintf("submit n=%d cores=%d attempts=%d quotas="+quotas, 1+n("n", 3), n("cores", 1), 1+n("attempts", 1), 1+n("units", 3))
	return line + []string{"", " traj=1", " traj=2", " memory=300", " timeout=7s", " class=c0", " max=4 class=c1"}[n("with", 6)]
}

// quotaLine draws what an operator does to quotas.
func quotaLine(n func(string, int) int) string {
	name := []string{"calls", "tokens", "search", "pair"}[n("name", 3)]
	switch n("change", 5) {
	case 0:
		return "delete-quota name=" + name
	case 1, 2:
		return fmt.Sprintf("update-quota name=%s limit=%d keys=%d resume=%s", name, n("limit", 5), n("keys", 3), []string{"", "yes"}[n("resume", 1)])
	case 3:
		return fmt.Sprintf("update-quota name=%s adaptive=%s", name, []string{"no", "yes"}[n("adaptive", 1)])
	}
	return fmt.Sprintf("quota name=%s kind=%s limit=%d window=%ds keys=%d adaptive=%s", name, []string{"concurrency", "fixed", "sliding"}[n("kind", 2)], 1+n("limit", 4), 5*n("window", 3), n("keys", 2), []string{"", "yes"}[n("adaptive", 1)])
}

// liveReport reports an attempt, mostly with the token it really has.
func liveReport(r *rapid.T, s *story, action int) string {
	a := s.state.Action(state.ActionID(action))
	node, inc, attempt := "n1", uint64(1), uint32(1)
	if a != nil && a.State == state.ActionRunning {
		t := s.state.Attempt(a.Node, a.ID)
		node, inc, attempt = s.nodeName(a.Node), t.Incarnation, t.Number
	}
	if rapid.IntRange(0, 9).Draw(r, "stale") == 0 {
		inc++
	}
	reason := rapid.SampledFrom([]string{"", "killed", "supervisor-lost"}).Draw(r, "reason")
	exec := rapid.IntRange(0, 5).Draw(r, "exec")
	throttle := rapid.SampledFrom([]string{"", "", " throttled=yes", " throttled=yes retry=3s"}).Draw(r, "throttle")
	usage := rapid.SampledFrom([]string{"", "", " usage=calls:0,tokens:9", " usage=calls:2,search:1,pair:1000000000,nothing:3", " usage=tokens:1,tokens:2"}).Draw(r, "usage")
	return fmt.Sprintf("report node=%s inc=%d action=%d attempt=%d exit=%d reason=%s exec=%ds%s%s", node, inc, action, attempt, rapid.IntRange(0, 1).Draw(r, "exit"), reason, exec, throttle, usage)
}

// TestEqualDemandsStartInOrder: among actions that ask for the same, none starts
// before an older one, whatever else is in the queue.
func TestEqualDemandsStartInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStory(t)
		s.apply(t, parseCommand(t, "register node=n1 numa=3")...)
		s.apply(t, parseCommand(t, "register node=n2 numa=2")...)
		newest := map[uint32]state.ActionID{}
		seen := s.state.Meta().Revision
		for range rapid.IntRange(5, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "submit") {
				s.apply(t, parseCommand(t, fmt.Sprintf("submit cores=%d", rapid.IntRange(1, 3).Draw(t, "cores")))...)
			} else if id := anyRunning(t, s); id != 0 {
				a := s.state.Action(id)
				s.apply(t, parseCommand(t, fmt.Sprintf("report node=%s inc=%d action=%d", s.nodeName(a.Node), s.state.Node(a.Node).Incarnation, id))...)
			}
			for ; seen < s.state.Meta().Revision; seen++ {
				e, _ := s.state.Event(seen + 1)
				if e.Kind != state.EventAction || state.ActionState(e.State) != state.ActionRunning {
					continue
				}
				id := state.ActionID(e.Subject)
				cores := s.state.Action(id).CoresMin
				if id < newest[cores] {
					t.Fatalf("action %d started after action %d, which asks for the same and is younger", id, newest[cores])
				}
				newest[cores] = id
			}
		}
	})
}

func anyRunning(r *rapid.T, s *story) state.ActionID {
	var ids []state.ActionID
	s.state.Actions(0, func(a *state.Action) bool {
		if a.State == state.ActionRunning {
			ids = append(ids, a.ID)
		}
		return true
	})
	if len(ids) == 0 {
		return 0
	}
	return rapid.SampledFrom(ids).Draw(r, "running")
}

// TestNothingStarves: however many small actions come, a wide one starts after
// at most as many of them as may bypass it, once the older work has ended.
func TestNothingStarves(t *testing.T) {
	s := newStory(t)
	s.apply(t, parseCommand(t, "register node=n1 numa=4")...)
	s.apply(t, parseCommand(t, "submit cores=1")...)
	s.apply(t, parseCommand(t, "submit cores=4")...)
	wide := s.state.Action(2)
	bypassed := 0
	for s.state.Action(wide.ID).State == state.ActionQueued {
		if bypassed++; bypassed > 20 {
			t.Fatal("the wide action still waits after 20 rounds")
		}
		s.apply(t, parseCommand(t, "submit cores=1 n=2")...)
		// End the oldest running action.
		var oldest *state.Action
		s.state.Actions(0, func(a *state.Action) bool {
			if a.State == state.ActionRunning {
				oldest = a
			}
			return oldest == nil
		})
		s.apply(t, parseCommand(t, fmt.Sprintf("report node=n1 inc=1 action=%d", oldest.ID))...)
	}
}

// TestNoGPUsStarve: however many small actions come for the GPUs of a node, and for
// its cores, one that needs all of its GPUs starts after at most as many as may
// bypass it, once what runs has ended.
func TestNoGPUsStarve(t *testing.T) {
	for _, rival := range []string{"submit n=2 gpus=1", "submit n=2 cores=1", "submit n=2 gpus=1,2,4 single=9s serial=1000"} {
		s := newStory(t)
		s.apply(t, parseCommand(t, "register node=n1 numa=4 gpus=H100:8")...)
		s.apply(t, parseCommand(t, "submit n=3 cores=1 gpus=1")...)
		s.apply(t, parseCommand(t, "submit cores=4 gpus=8")...)
		for bypassed := 0; s.state.Action(4).State == state.ActionQueued; bypassed++ {
			if bypassed > 20 {
				t.Fatalf("%s: the wide action still waits after 20 rounds", rival)
			}
			s.apply(t, parseCommand(t, rival)...)
			var oldest *state.Action
			s.state.Actions(0, func(a *state.Action) bool {
				if a.State == state.ActionRunning {
					oldest = a
				}
				return oldest == nil
			})
			s.apply(t, parseCommand(t, fmt.Sprintf("report node=n1 inc=1 action=%d", oldest.ID))...)
		}
	}
}

// TestWorkIsBounded: an entry that could start more than its budget leaves the
// rest to the next ones, and says that it is due at once.
func TestWorkIsBounded(t *testing.T) {
	s := newStory(t)
	s.model = nil // most entries are applied past it
	s.apply(t, parseCommand(t, "register node=n1 numa=2 memory=100000")...)
	const trajectories = workBudget + 100
	for range trajectories / 10 {
		var open []*logv1.Command
		for range 10 {
			open = append(open, parseCommand(t, "open idle=5s")...)
		}
		s.state, _, _ = apply(s.state.Copy, s.index, &logv1.Entry{TimeNs: s.now, Commands: open}, sched.Deciders(), nil)
	}
	s.twin = s.state.Copy()
	s.now = int64(10 * time.Second)
	s.apply(t)
	left := s.state.Counts().OpenTrajectories
	if due, ok := nextDue(s.state); left == 0 || !ok || due != s.now {
		t.Fatalf("after one entry %d trajectories are open and the next is due at %d, %v", left, due, ok)
	}
	for range 3 {
		s.apply(t)
	}
	if left := s.state.Counts().OpenTrajectories; left != 0 {
		t.Fatalf("%d trajectories are open after all ticks", left)
	}
}

// TestElasticActionsStart: however many come of whom it is known how long they
// take, and however many wait by choice, everything starts in the end; one that
// waits is bypassed no more than is allowed; and on a single node none starts
// before an older one that asks for no more, but for those that may be deferred.
func TestElasticActionsStart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStory(t)
		s.apply(t, parseCommand(t, "register node=n1 numa=4+4 resizes="+rapid.SampledFrom([]string{"", "yes"}).Draw(t, "resizes"))...)
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			s.now += rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "step")
			if rapid.Bool().Draw(t, "submit") {
				s.apply(t, parseCommand(t, randomElastic(t))...)
			} else if id := anyRunning(t, s); id != 0 {
				s.succeed(t, id)
			}
			s.inOrder(t)
		}
		for s.state.Counts().Queued > 0 {
			id := anyRunning(t, s)
			if id == 0 {
				t.Fatalf("%d actions wait, and nothing runs", s.state.Counts().Queued)
			}
			s.succeed(t, id)
			s.inOrder(t)
		}
	})
}

// succeed reports the end of an action that took a time of its width.
func (s *story) succeed(t *rapid.T, id state.ActionID) {
	a := s.state.Action(id)
	width := s.state.Attempt(a.Node, id).Cores.Len()
	exec := rapid.IntRange(1, 8).Draw(t, "exec")
	s.apply(t, parseCommand(t, fmt.Sprintf("report node=n1 inc=1 action=%d attempt=%d exec=%dms", id, a.Attempt, exec*8000/width))...)
}

// inOrder: of those that ask for the same or less, the oldest starts first. Passed by
// is only who is known to be faster with more cores, and waits for them less than a
// minute.
func (s *story) inOrder(t *rapid.T) {
	least := ^uint32(0) // that an older action waits for
	s.state.Actions(0, func(a *state.Action) bool {
		switch {
		case a.State == state.ActionQueued && s.informed(a) && s.now-a.SubmittedAt < int64(time.Minute):
		case a.State == state.ActionQueued:
			least = min(least, a.CoresMin)
		case a.State == state.ActionRunning && a.StartedAt == s.now && a.CoresMin >= least:
			t.Fatalf("action %d started before an older one that asks for no more", a.ID)
		}
		return true
	})
}

// informed: a client or a class says what more cores would bring.
func (s *story) informed(a *state.Action) bool {
	if c := s.state.Class(a.Class); c != nil && len(c.Seen) > 1 {
		return true
	}
	if a.Needs == nil || a.Needs.Profile == nil {
		return false
	}
	p := a.Needs.Profile
	return (p.Serial || len(p.Points) > 0) && (p.SingleNS > 0 || a.Class != 0)
}

// TestRandomGenerations drives workers and what trajectories generate, with little else around
// them, so that workers fill up, fail and come back while many wait.
func TestRandomGenerations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStory(t)
		n := func(label string, most int) int { return rapid.IntRange(0, most).Draw(t, label) }
		for range rapid.IntRange(1, 60).Draw(t, "entries") {
			s.now += rapid.Int64Range(-int64(time.Second), int64(20*time.Second)).Draw(t, "step")
			var commands []*logv1.Command
			for range rapid.IntRange(0, 5).Draw(t, "commands") {
				line := workerLine(n, s)
				if n("close", 9) == 0 {
					line = fmt.Sprintf("close id=%d", n("traj", int(s.state.Meta().LastTrajectory)+1))
				}
				commands = append(commands, parseCommand(t, line)...)
			}
			s.apply(t, commands...)
		}
	})
}
