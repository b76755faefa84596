package plan

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
)

// Terms of the registration in these tests. The lease is held for 4.5 s after a renewal
// was sent.
const (
	leaseNS  = 6 * second
	marginNS = 1500 * millisecond
)

// node is a plan with a clock that stands still unless it is moved. What the plan
// decides is done at once, except what a test looks at.
type node struct {
	*Plan
	now int64
	// done are the steps that settle has not answered.
	done []Step
	// cut: no renewal is answered.
	cut bool
	// answer is what a registration is answered with, if it has an incarnation.
	answer Terms
}

// newNode is registered in incarnation 7 at index 100, and armed.
func newNode() *node {
	n := &node{Plan: New(0, nil), now: 1}
	n.Connected(nil, nil, true, n.now)
	n.settle()
	return n
}

// settle does what does not concern a single attempt, until there is nothing left of it.
// It collects the rest.
func (n *node) settle() {
	for {
		steps, _ := n.Next(n.now)
		if len(steps) == 0 {
			return
		}
		for _, step := range steps {
			n.do(step)
		}
	}
}

func (n *node) do(step Step) {
	switch step := step.(type) {
	case Register:
		terms := n.answer
		if terms.Incarnation == 0 {
			terms = Terms{Incarnation: max(step.Incarnation, 7), Index: 100, LeaseNS: leaseNS, MarginNS: marginNS}
		}
		n.Registered(terms)
	case Journal:
		n.Journaled()
		n.done = append(n.done, step)
	case Arm:
		n.Armed(step.Connection, step.Deadline)
	case Renew:
		if !n.cut {
			n.Renewed(step.Number, n.now, false, n.now)
		}
	default:
		n.done = append(n.done, step)
	}
}

// take returns the steps of a kind that were collected, and forgets them.
func take[S Step](n *node) (found []S) {
	var rest []Step
	for _, step := range n.done {
		if s, ok := step.(S); ok {
			found = append(found, s)
		} else {
			rest = append(rest, step)
		}
	}
	n.done = rest
	return found
}

func k(action uint64) Key { return Key{Action: action, Attempt: 1, Incarnation: 7} }

// whole is a desired state of incarnation 7; negative IDs are to stop.
func whole(index uint64, actions ...int) Desired {
	d := Desired{Incarnation: 7, Index: index}
	for _, id := range actions {
		d.Assignments = append(d.Assignments, Assignment{Key: k(uint64(max(id, -id))), Stop: id < 0})
	}
	return d
}

// changes is what has changed in the desired state since another index.
func changes(since, index uint64, gone []uint64, actions ...int) Desired {
	d := whole(index, actions...)
	d.Since = since
	for _, id := range gone {
		d.Gone = append(d.Gone, k(id))
	}
	return d
}

// startAll starts what is due.
func startAll(n *node) {
	n.settle()
	for _, s := range take[Start](n) {
		n.Started(s.Connection, s.Key, OK, "", n.now)
	}
}

// phases shows the attempts.
func phases(n *node) string {
	m := map[uint64]string{}
	names := []string{"wanted", "accepted", "starting", "running", "ended", "reported"}
	n.table.each(func(a *attempt) {
		if m[a.key.Action] = names[a.phase]; a.kill != 0 {
			m[a.key.Action] += "!"
		}
	})
	return fmt.Sprint(m) // maps are printed in the order of keys
}

func see(d Desired) func(*node) { return func(n *node) { n.Desire(d) } }
func exited(id uint64) func(*node) {
	return func(n *node) { n.Exited(Exit{Key: k(id), Reason: ReasonExited}) }
}

// ack confirms reports with an index; 0: they are not confirmed.
func ack(index uint64) func(*node) {
	return func(n *node) {
		n.settle()
		for _, r := range take[Report](n) {
			for _, exit := range r.Exits {
				if index != 0 {
					n.Reported([]Key{exit.Key}, index)
				}
			}
			n.ReportsDone()
		}
	}
}

// fence tells that the cluster has given the incarnation up, as of an index.
func fence(index uint64) func(*node) {
	return see(Desired{Incarnation: 7, Index: index, Fenced: true})
}

// expire lets the lease end.
func expire(n *node) {
	n.cut = true
	n.now += leaseNS - marginNS
	n.settle()
}

func TestDesiredStates(t *testing.T) {
	of6 := whole(500, 1)
	of6.Incarnation = 6
	for name, c := range map[string]struct {
		steps []func(*node)
		want  string
	}{
		"a grant":                                {[]func(*node){see(whole(101, 1)), startAll}, "map[1:running]"},
		"the same twice":                         {[]func(*node){see(whole(101, 1)), startAll, see(whole(101, 1)), startAll}, "map[1:running]"},
		"from before the registration":           {[]func(*node){see(whole(99, 1)), startAll}, "map[]"},
		"of the registration":                    {[]func(*node){see(whole(100, 1)), startAll}, "map[1:running]"},
		"an older one does not kill":             {[]func(*node){see(whole(102, 1, 2)), startAll, see(whole(101, 1))}, "map[1:running 2:running]"},
		"an older one does not start":            {[]func(*node){see(whole(102)), see(whole(101, 1)), startAll}, "map[]"},
		"no longer desired":                      {[]func(*node){see(whole(101, 1, 2)), startAll, see(whole(102, 2))}, "map[1:running! 2:running]"},
		"no longer desired before it started":    {[]func(*node){see(whole(101, 1)), see(whole(102)), startAll}, "map[]"},
		"to stop":                                {[]func(*node){see(whole(101, 1)), startAll, see(whole(102, -1))}, "map[1:running!]"},
		"to stop before it started":              {[]func(*node){see(whole(101, 1)), see(whole(102, -1)), startAll}, "map[1:ended]"},
		"to stop before it was heard of":         {[]func(*node){see(whole(101, -1)), startAll}, "map[1:ended]"},
		"stopped once is stopped":                {[]func(*node){see(whole(101, -1)), see(whole(102, 1)), startAll}, "map[1:ended]"},
		"ended, still desired":                   {[]func(*node){see(whole(101, 1)), startAll, exited(1), see(whole(102, 1)), startAll}, "map[1:ended]"},
		"ended, the cluster knows":               {[]func(*node){see(whole(101, 1)), startAll, exited(1), see(whole(102))}, "map[]"},
		"reported, an older state still has it":  {[]func(*node){see(whole(101, 1)), startAll, exited(1), ack(110), see(whole(105, 1)), startAll}, "map[1:reported]"},
		"reported and gone":                      {[]func(*node){see(whole(101, 1)), startAll, exited(1), ack(110), see(whole(105))}, "map[]"},
		"reported, but a newer state has it":     {[]func(*node){see(whole(101, 1)), startAll, exited(1), ack(110), see(whole(110, 1)), startAll}, "map[1:ended]"},
		"a report that was not confirmed":        {[]func(*node){see(whole(101, 1)), startAll, exited(1), ack(0)}, "map[1:ended]"},
		"an end that is told twice":              {[]func(*node){see(whole(101, 1)), startAll, exited(1), ack(110), exited(1)}, "map[1:reported]"},
		"fenced by an older state":               {[]func(*node){see(whole(101, 1)), startAll, fence(100)}, "map[1:running]"},
		"fenced":                                 {[]func(*node){see(whole(101, 1)), startAll, fence(102)}, "map[1:running!]"},
		"an end of something unknown":            {[]func(*node){exited(9)}, "map[]"},
		"a state of another incarnation":         {[]func(*node){see(of6), startAll}, "map[]"},
		"the lease ends":                         {[]func(*node){see(whole(101, 1, 2)), startAll, see(whole(102, 1, 2, 3)), expire, startAll}, "map[1:running! 2:running!]"},
		"the lease ends, then a late stream":     {[]func(*node){see(whole(101, 4)), startAll, expire, see(whole(102, 1, 4)), startAll}, "map[4:running!]"},
		"without a token":                        {[]func(*node){see(Desired{Incarnation: 7, Index: 101, Assignments: []Assignment{{}}}), startAll}, "map[]"},
		"no longer desired while it is handed":   {[]func(*node){see(whole(101, 1)), (*node).settle, see(whole(102)), startAll}, "map[1:running!]"},
		"the lease ends while it is handed over": {[]func(*node){see(whole(101, 1)), (*node).settle, expire}, "map[1:starting!]"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			for _, step := range c.steps {
				step(n)
			}
			if got := phases(n); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestChangesOfTheDesiredState(t *testing.T) {
	n := newNode()
	step := func(d Desired, gap bool, want string) {
		t.Helper()
		if got := n.Desire(d); got != gap {
			t.Errorf("desired state %v: gap %v, want %v", d, got, gap)
		}
		startAll(n)
		if got := phases(n); got != want {
			t.Errorf("after %v: %s, want %s", d, got, want)
		}
	}
	step(whole(101, 1, 2), false, "map[1:running 2:running]")
	step(changes(101, 102, nil, 3), false, "map[1:running 2:running 3:running]")
	step(changes(102, 103, nil), false, "map[1:running 2:running 3:running]")
	step(changes(103, 104, []uint64{2}, -1), false, "map[1:running! 2:running! 3:running]")
	// One is missing: what is not named need not be what was before.
	step(changes(105, 106, []uint64{3}, 4), true, "map[1:running! 2:running! 3:running]")
	step(changes(104, 103, []uint64{3}), false, "map[1:running! 2:running! 3:running]") // late
	step(whole(106, -1, 4), false, "map[1:running! 2:running! 3:running! 4:running]")
	step(changes(106, 107, []uint64{9}), false, "map[1:running! 2:running! 3:running! 4:running]")
	step(Desired{Incarnation: 7, Index: 108, Since: 107, Fenced: true}, false, "map[1:running! 2:running! 3:running! 4:running!]")
}

// TestASecondAttemptWaitsForTheEndOfTheFirst, also if there were others in between.
func TestASecondAttemptWaitsForTheEndOfTheFirst(t *testing.T) {
	n := newNode()
	d := whole(101)
	add := func(attempt uint32) {
		d.Assignments = append(d.Assignments, Assignment{Key: Key{Action: 1, Attempt: attempt, Incarnation: 7}})
		n.Desire(d)
	}
	refused := func(attempt uint32) bool { return n.table.byKey[Key{1, attempt, 7}].refusal != nil }
	add(1)
	add(2)
	add(3)
	if refused(1) || !refused(2) || !refused(3) {
		t.Errorf("refused: %v, %v, %v; want the second and the third", refused(1), refused(2), refused(3))
	}
	startAll(n)
	n.Exited(Exit{Key: k(1), Reason: ReasonExited})
	if add(4); refused(4) {
		t.Error("refused after the first has ended")
	}
	n.table.each(n.table.remove)
	if n.table.compact(); len(n.table.byAction) != 0 || len(n.table.attempts) != 0 {
		t.Errorf("%d actions are left of an empty table", len(n.table.byAction))
	}
}

func TestNothingIsAcceptedOrStartedWithoutALease(t *testing.T) {
	n := newNode()
	expire(n) // registered again, and no renewal was answered since
	d := whole(101, 1)
	d.Assignments = append(d.Assignments, Assignment{Key: k(2), Refused: "no such command"})
	n.Desire(d)
	startAll(n)
	if got := phases(n); got != "map[1:wanted 2:ended]" {
		t.Errorf("%s without a lease, want only what is refused to end", got)
	}
	n.NotRenewed(n.session.renewal, n.now)
	n.cut = false
	startAll(n)
	if got := phases(n); got != "map[1:running 2:ended]" {
		t.Errorf("%s with a lease", got)
	}
}

// TestTheLeaseEndsBetweenJournalAndStart: what was accepted meanwhile never starts.
func TestTheLeaseEndsBetweenJournalAndStart(t *testing.T) {
	n := newNode()
	n.Desire(whole(101, 1))
	n.Next(n.now) // the write of the journal
	n.cut = true
	n.now += leaseNS - marginNS
	n.Journaled()
	n.settle()
	if starts := take[Start](n); len(starts) != 0 {
		t.Errorf("started %v after the lease", starts)
	}
}

func TestAnswersOfStart(t *testing.T) {
	for name, c := range map[string]struct {
		answer Answer
		want   string
		armed  bool
		later  string // when a tenth of a second has passed
	}{
		"started":                {OK, "map[1:running]", true, "map[1:running]"},
		"the deadline passed":    {Disarmed, "map[1:accepted]", false, "map[1:accepted]"},
		"too many":               {Full, "map[1:accepted]", true, "map[1:starting]"},
		"cannot be described":    {Impossible, "map[1:ended]", true, "map[1:ended]"},
		"nobody knows, so asked": {Unknown, "map[1:running]", true, "map[1:running]"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			n.Desire(whole(101, 1))
			n.settle()
			n.Started(n.link.connection, k(1), c.answer, "so it was", n.now)
			if got := phases(n); got != c.want || n.ready(n.now) != c.armed {
				t.Errorf("%s armed %v, want %s %v", got, n.ready(n.now), c.want, c.armed)
			}
			n.now += startAgain
			if n.settle(); phases(n) != c.later {
				t.Errorf("later %s, want %s", phases(n), c.later)
			}
		})
	}
}

// An answer that never came is settled by a list made afterwards.
func TestAnUnansweredStartIsSettledByAList(t *testing.T) {
	for name, c := range map[string]struct {
		running []Running
		want    string
	}{"it runs": {[]Running{{Key: k(1)}}, "map[1:running]"}, "it does not": {nil, "map[1:ended]"}} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			n.Desire(whole(101, 1))
			n.settle()
			n.Started(n.link.connection, k(1), Unknown, "lost", n.now)
			n.settle()
			lists := take[List](n)
			if len(lists) != 1 {
				t.Fatalf("%d lists were asked for", len(lists))
			}
			n.Listed(lists[0].Connection, c.running, nil, n.now)
			if got := phases(n); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// What was started on a connection may have died with it before its answer is read.
func TestAStartThatWasAnsweredOnAnEarlierConnectionIsLookedFor(t *testing.T) {
	n := newNode()
	n.Desire(whole(101, 1))
	n.settle()
	s := take[Start](n)[0]
	n.Disconnected()
	n.Connected(nil, nil, true, n.now)
	n.settle()
	n.Started(s.Connection, s.Key, OK, "", n.now)
	n.settle()
	lists := take[List](n)
	if len(lists) != 1 {
		t.Fatalf("%d lists were asked for", len(lists))
	}
	n.Listed(lists[0].Connection, nil, nil, n.now)
	if got := phases(n); got != "map[1:ended]" {
		t.Errorf("%s, want it ended", got)
	}
}

// pass lets time pass, a second at a time.
func (n *node) pass(d int64) {
	for end := n.now + d; n.now < end; {
		n.now += second
		n.settle()
	}
}

// TestAListOfAnOlderConnectionSaysNothing of what was started since.
func TestAListOfAnOlderConnectionSaysNothing(t *testing.T) {
	n := newNode()
	n.pass(auditEvery)
	old := take[List](n)[0]
	n.Disconnected()
	n.Connected(nil, nil, true, n.now)
	n.Desire(whole(101, 1))
	startAll(n)
	n.pass(auditEvery)
	n.Listed(old.Connection, nil, nil, n.now)
	if got := phases(n); got != "map[1:running]" {
		t.Errorf("%s, want it to run", got)
	}
}

func TestWhatIsFoundAfterARestart(t *testing.T) {
	n := &node{Plan: New(7, []Accepted{{Key: k(1)}, {Key: k(2)}, {Key: k(3), Reported: true}, {Key: k(4)}, {Key: k(5), Rebooted: true}}), now: 1}
	n.Connected([]Running{{Key: k(1)}, {Key: k(9)}}, []Exit{{Key: k(2), Reason: ReasonExited}, {Key: k(3), Reason: ReasonExited}, {Key: k(8)}}, true, n.now)
	n.settle()
	if got, want := phases(n), "map[1:running 2:ended 3:reported 4:ended 5:ended 9:running!]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if kills := take[Kill](n); len(kills) != 1 || kills[0].Key != k(9) {
		t.Errorf("killed %v, want only what the journal does not know", kills)
	}
	if forgets := take[Forget](n); len(forgets) != 1 || !reflect.DeepEqual(forgets[0].Keys, []Key{k(3), k(8)}) {
		t.Errorf("forgot %v, want what was dealt with", forgets)
	}
	reasons := map[uint64]Reason{}
	for _, r := range take[Report](n) {
		for _, exit := range r.Exits {
			reasons[exit.Key.Action] = exit.Reason
		}
	}
	if want := map[uint64]Reason{2: ReasonExited, 4: ReasonSupervisorLost, 5: ReasonNodeLost}; !reflect.DeepEqual(reasons, want) {
		t.Errorf("reported %v, want %v", reasons, want)
	}
}

// TestAnOlderIncarnationIsKilledBeforeANewOneBegins, and the journal holds the new one
// before anything of it is started.
func TestAnOlderIncarnationIsKilledBeforeANewOneBegins(t *testing.T) {
	n := &node{Plan: New(6, []Accepted{{Key: Key{1, 1, 6}}}), now: 1}
	n.Connected([]Running{{Key: Key{1, 1, 6}}}, nil, true, n.now)
	n.settle()
	if kills := take[Kill](n); len(kills) != 1 || len(take[Open](n))+len(take[Journal](n)) != 0 {
		t.Errorf("kills %v, and the new incarnation begins at once", kills)
	}
	n.Exited(Exit{Key: Key{1, 1, 6}, Reason: ReasonNodeLost})
	n.settle()
	if j := take[Journal](n); len(j) == 0 || j[0].Incarnation != 7 || len(take[Open](n)) != 1 {
		t.Errorf("written %v, want incarnation 7, and then it begins", j)
	}
}

// TestALateForgetDoesNotUndoAnAcceptance: an attempt is given up while it is entered into
// the journal, and comes back with the next session of the same incarnation, before that
// write has ended or after.
func TestALateForgetDoesNotUndoAnAcceptance(t *testing.T) {
	for name, early := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			var writing *Journal // it ends when it is said
			known := map[Key]bool{}
			round := func() {
				steps, _ := n.Next(n.now)
				for _, s := range steps {
					j, ok := s.(Journal)
					if !ok {
						n.do(s)
						continue
					}
					if writing != nil {
						t.Errorf("%v is written while %v is", j, *writing)
					}
					writing = &j
				}
			}
			written := func() {
				for _, key := range writing.Forget {
					delete(known, key)
				}
				for _, key := range writing.Accept {
					known[key] = true
				}
				writing = nil
				n.Journaled()
			}
			n.Desire(whole(101, 1))
			round()
			n.cut = true
			n.now += leaseNS - marginNS
			round() // the lease ends: registered again
			round()
			if !early {
				written()
				round() // it may be forgotten
			}
			n.cut = false
			n.NotRenewed(n.session.renewal, n.now)
			round()
			n.Desire(whole(102, 1))
			for i := range 12 {
				if round(); i%4 == 3 && writing != nil {
					written()
				}
			}
			if starts := take[Start](n); len(starts) != 1 || !known[k(1)] {
				t.Errorf("started %v, and the journal knows %v", starts, known)
			}
		})
	}
}

// TestWhatIsWantedAgainIsNotForgotten: an attempt leaves before it was started and comes back, while the
// supervisor is away.
func TestWhatIsWantedAgainIsNotForgotten(t *testing.T) {
	n := newNode()
	n.Desire(whole(101, 1))
	n.Desire(whole(102))
	n.Desire(whole(103, 1))
	if slices.Contains(n.link.forget, k(1)) {
		t.Errorf("to be forgotten: %v", n.link.forget)
	}
}

func TestWhatTheSupervisorAndTheJournalMayForget(t *testing.T) {
	n := newNode()
	n.Desire(whole(101, 1))
	startAll(n)
	take[Journal](n)
	n.Exited(Exit{Key: k(1), Reason: ReasonExited})
	n.settle()
	if len(take[Journal](n))+len(take[Forget](n)) != 0 {
		t.Error("something is forgotten before the report was confirmed")
	}
	n.Reported([]Key{k(1)}, 110)
	steps, _ := n.Next(n.now)
	if len(steps) != 1 || !reflect.DeepEqual(steps[0], Step(Journal{Reported: []Key{k(1)}})) {
		t.Errorf("after the report: %v", steps)
	}
	n.Journaled()
	if steps, _ = n.Next(n.now); len(steps) != 1 || !reflect.DeepEqual(steps[0], Step(Forget{[]Key{k(1)}})) {
		t.Errorf("after it was journaled: %v", steps)
	}
	n.Desire(whole(110))
	n.settle()
	if j := take[Journal](n); len(j) != 1 || !reflect.DeepEqual(j[0].Forget, []Key{k(1)}) || !n.Idle() {
		t.Errorf("after the cluster has forgotten: %v", j)
	}
}

func TestAKillIsRepeated(t *testing.T) {
	n := newNode()
	n.Desire(whole(101, 1))
	startAll(n)
	n.Desire(whole(102))
	for _, step := range []struct {
		after int64
		kills int
	}{{0, 1}, {1, 0}, {killAgain, 1}} {
		n.now += step.after
		n.settle()
		if kills := take[Kill](n); len(kills) != step.kills {
			t.Errorf("%d ns later: %d kills, want %d", step.after, len(kills), step.kills)
		}
	}
}

func TestAReportIsBounded(t *testing.T) {
	n := newNode()
	d := whole(101)
	for id := range uint64(ReportsMax + 300) {
		d.Assignments = append(d.Assignments, Assignment{Key: k(id + 1)})
	}
	n.Desire(d)
	startAll(n)
	for id := range uint64(ReportsMax + 300) {
		e := Exit{Key: k(id + 1), Reason: ReasonExited}
		if id < 300 {
			e.Stdout = make([]byte, ReportTailsMax)
		}
		n.Exited(e)
	}
	n.settle()
	var sizes []int
	for r := take[Report](n); len(r) > 0; r = take[Report](n) {
		keys := make([]Key, 0, len(r[0].Exits))
		for _, exit := range r[0].Exits {
			keys = append(keys, exit.Key)
		}
		sizes = append(sizes, len(keys))
		n.Reported(keys, 110)
		n.ReportsDone()
		n.settle()
	}
	if want := []int{ReportBytesMax / (ReportTailsMax + reportOverhead), ReportsMax}; len(sizes) != 3 || sizes[0] != want[0] || sizes[1] > want[1] {
		t.Errorf("reports of %v ends, want the first of %d, and none of more than %d", sizes, want[0], want[1])
	}
}

// TestAFrozenSupervisorIsKilled within the margin, while something must die, also if the agent has lost
// its connection.
func TestAFrozenSupervisorIsKilled(t *testing.T) {
	t.Run("connected", func(t *testing.T) { testFrozen(t, func(*node) {}) })
	t.Run("not connected", func(t *testing.T) { testFrozen(t, func(n *node) { n.Disconnected() }) })
}

func testFrozen(t *testing.T, before func(n *node)) {
	n := newNode()
	n.Desire(whole(101, 1))
	startAll(n)
	before(n)
	expire(n)
	end := n.now
	for len(take[CheckSupervisor](n)) == 0 {
		if n.now-end > marginNS {
			t.Fatal("nobody looks after the supervisor")
		}
		n.now += millisecond
		n.settle()
	}
	if got, want := n.now-end, marginNS/3; got != want {
		t.Errorf("looked after %d ns, want %d", got, want)
	}
}

// TestAChangedMachineIsEmptyBeforeItRegisters: the cluster gives what it ran to others at once.
func TestAChangedMachineIsEmptyBeforeItRegisters(t *testing.T) {
	n := &node{Plan: New(7, []Accepted{{Key: k(1)}}), now: 1}
	n.Changed()
	n.Connected([]Running{{Key: k(1)}}, nil, true, n.now)
	n.settle()
	if kills := take[Kill](n); len(kills) != 1 || n.session.stage != clearing {
		t.Errorf("kills %v, stage %v", kills, n.session.stage)
	}
	n.Exited(Exit{Key: k(1), Reason: ReasonNodeLost})
	n.settle()
	if n.session.stage != open {
		t.Errorf("not registered when all is dead: stage %v", n.session.stage)
	}
}

func TestQuitKillsEverything(t *testing.T) {
	n := newNode()
	n.Desire(whole(101, 1))
	startAll(n)
	n.Quit()
	n.settle()
	if kills := take[Kill](n); len(kills) != 1 || n.Dead() {
		t.Errorf("kills %v, dead %v", kills, n.Dead())
	}
	n.Exited(Exit{Key: k(1), Reason: ReasonNodeLost})
	n.settle()
	if !n.Dead() || len(take[Register](n)) != 0 {
		t.Error("not dead, or registered again")
	}
}

// TestAnotherClusterHasIndexesOfItsOwn: its log may be far shorter than that of the cluster
// which the node was in before.
func TestAnotherClusterHasIndexesOfItsOwn(t *testing.T) {
	n := newNode()
	n.Desire(Desired{Index: 5000, Incarnation: 7})
	n.settle()
	for _, c := range []struct {
		cluster     string
		incarnation uint64
		want        uint64
	}{{"", 8, 5000}, {"other", 9, 100}} {
		n.Desire(Desired{Index: 6000, Incarnation: n.table.incarnation, Fenced: true})
		n.table.index = 5000
		n.answer = Terms{Cluster: c.cluster, Incarnation: c.incarnation, Index: 100, LeaseNS: leaseNS, MarginNS: marginNS}
		n.settle()
		if got := n.SeenIndex(); got != c.want {
			t.Errorf("in cluster %q the newest index is %d, must be %d", c.cluster, got, c.want)
		}
	}
}

// TestAStartIsAbandoned: what must not go on does not wait until its start is answered, and ends for
// that reason.
func TestAStartIsAbandoned(t *testing.T) {
	n := newNode()
	n.Desire(whole(101, 1, 2))
	n.settle()
	if starts := take[Start](n); len(starts) != 2 {
		t.Fatalf("%v are started", starts)
	}
	n.Desire(whole(102, -1, 2))
	n.settle()
	if got := take[Abandon](n); !reflect.DeepEqual(got, []Abandon{{k(1)}}) {
		t.Errorf("%v is abandoned, want 1", got)
	}
	n.settle()
	if got := take[Abandon](n); len(got) > 0 {
		t.Errorf("%v is abandoned again", got)
	}
	n.Started(n.link.connection, k(1), Impossible, "broken off", n.now)
	n.Started(n.link.connection, k(2), Impossible, "no such program", n.now)
	n.settle()
	for _, r := range take[Report](n) {
		for _, e := range r.Exits {
			if want := map[uint64]Reason{1: ReasonCanceled, 2: ReasonStartFailed}[e.Key.Action]; e.Reason != want {
				t.Errorf("%v ended with %d, want %d", e.Key, e.Reason, want)
			}
		}
	}
}
