package plan

import (
	"flag"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestAnyHistory lets a cluster, a node and its agent do what they may, in any order:
// desired states change, repeat and come late, calls are lost with or without an effect,
// agents, supervisors and machines are started again, leases end. It checks what package
// plan promises at each step, and that all is told and forgotten in the end.
func TestAnyHistory(t *testing.T) {
	// Histories are short, and most of them do not get far.
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("2000"); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		for range rapid.IntRange(0, 8).Draw(t, "rounds before") {
			m.round()
			if m.lives {
				m.grant(t)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"grant":            m.grant,
			"stop":             m.stop,
			"resize":           m.resize,
			"resize more":      m.resize,
			"share":            m.share,
			"share and see":    func(t *rapid.T) { m.share(t); m.see(t); m.doSome(t) },
			"resize shared":    m.resizeShared,
			"resize and see":   func(t *rapid.T) { m.resize(t); m.see(t); m.doSome(t) },
			"cancel":           m.cancel,
			"see":              m.see,
			"grant and see":    func(t *rapid.T) { m.grant(t); m.see(t); m.doSome(t) },
			"do":               m.do,
			"do some":          m.doSome,
			"all goes well":    m.goesWell,
			"and on it goes":   m.goesWell,
			"fail":             m.fail,
			"exit":             m.exit,
			"engine moves":     m.engineMoves,
			"pass":             m.pass,
			"give up":          m.giveUp,
			"agent dies":       m.agentDies,
			"supervisor dies":  m.supervisorDies,
			"connection lost":  m.disconnect,
			"machine restarts": m.reboot,
			"journal damaged":  m.loseJournal,
		})
		m.heal()
	})
}

// assigned is an attempt that the cluster wants.
type assigned struct {
	key  Key
	stop bool
	cpus CPUs // the first one it keeps
	// shares: they are those of all that share.
	shares bool
	// engine that it needs; the zero value: none.
	engine Engine
	// gpus that it has to itself.
	gpus []int
}

// machine is a cluster and one node. The agent's plan is asked after everything that
// happens. What it decides waits in todo, to be done in any order.
type machine struct {
	t   *rapid.T
	now int64

	// The cluster.
	index, incarnation uint64
	lives              bool // the incarnation does
	heard              int64
	actions            uint64
	wants              []assigned
	reports            map[Key]Exit
	old                Desired // some earlier desired state

	// The disk.
	journaled uint64
	attempts  []Accepted

	// The supervisor.
	connected bool
	resizes   bool // all supervisors can
	runs      []Key
	widths    map[Key]CPUs
	shares    map[Key]bool // that the cluster has share CPUs
	ends      []Exit
	deadline  int64
	starts    map[Key]int

	// engine is how the only engine is. leaves: it is to give its memory back.
	engine EngineStatus
	leaves bool

	plan  *Plan
	again int64
	todo  []todo
}

// todo is a step that is under way.
type todo struct {
	step Step
	at   int64 // when it was decided
	// done: the supervisor has done it, and its answer is on the way.
	done   bool
	answer Answer
	runs   []Running
	ends   []Exit
}

// cpusOfMachine is how many CPUs the machine has.
const cpusOfMachine = 6

func newMachine(t *rapid.T) *machine {
	m := &machine{t: t, now: second, index: 100, reports: map[Key]Exit{}, starts: map[Key]int{}, widths: map[Key]CPUs{}, shares: map[Key]bool{}}
	m.resizes = rapid.IntRange(0, 4).Draw(t, "resizes") > 0
	m.boot()
	return m
}

// boot starts an agent.
func (m *machine) boot() {
	m.plan, m.connected, m.todo = New(m.journaled, m.attempts), true, nil
	m.tellEngine()
	m.plan.Connected(m.running(), m.ends, m.resizes, m.now)
	m.ask()
}

func (m *machine) tellEngine() {
	m.plan.EnginesAre(map[Engine]EngineStatus{judge: m.engine})
	m.plan.EnginesLeave(nil)
	if m.leaves {
		m.plan.EnginesLeave([]Engine{judge})
	}
}

// engineMoves makes the engine ready, failed or neither, and has it leave or not.
func (m *machine) engineMoves(t *rapid.T) {
	tries := m.engine.Tries
	m.engine = rapid.SampledFrom([]EngineStatus{
		{Tries: tries, FailedTry: m.engine.FailedTry}, {Tries: tries, URL: "http://here"},
		{Tries: tries + 1, Failed: "it crashes", FailedTry: tries}, {Tries: tries, Failed: "it crashes", FailedTry: tries},
	}).Draw(t, "engine")
	m.leaves = rapid.Bool().Draw(t, "leaves")
	m.tellEngine()
	m.askSoon(t)
}

// running is what the supervisor says of what it runs.
func (m *machine) running() (out []Running) {
	for _, k := range m.runs {
		out = append(out, Running{Key: k, CPUs: m.widths[k]})
	}
	return out
}

// ask has the plan decide, and checks that it may decide so.
func (m *machine) ask() {
	steps, again := m.plan.Next(m.now)
	if m.again = again; again <= m.now {
		m.t.Fatalf("to be asked again at %d, and it is %d", again, m.now)
	}
	for _, step := range steps {
		m.todo = append(m.todo, todo{step: step, at: m.now})
		s, ok := step.(Start)
		if ok && m.plan.session.lease.Held(m.now) == 0 {
			m.t.Fatalf("%v starts without a lease", s.Key)
		}
		if ok && m.plan.table.byKey[s.Key].engine == judge && (m.engine.URL == "" || s.EngineURL != m.engine.URL || !m.plan.UsesEngine(judge)) {
			m.t.Fatalf("%v starts with the engine %+v: %+v", s.Key, m.engine, s)
		}
		if ok && m.leaves && m.plan.table.byKey[s.Key].engine == (Engine{}) && len(m.plan.table.byKey[s.Key].gpus) > 0 {
			m.t.Fatalf("%v starts while the engine has its GPU", s.Key)
		}
	}
	m.knowsWhatRuns()
	if l := &m.plan.session.lease; l.Expired(m.now) && l.deadline != 0 {
		m.plan.table.each(func(a *attempt) {
			if a.phase.live() && a.kill == 0 {
				m.t.Fatalf("%v is not killed though the lease is over", a.key)
			}
		})
	}
}

// knowsWhatRuns checks that the plan takes nothing for running that does not run, unless it is
// about to ask.
func (m *machine) knowsWhatRuns() {
	if l := m.plan.link; !l.connected || l.auditDue || l.listing {
		return
	}
	m.plan.table.each(func(a *attempt) {
		if a.phase == running && !slices.Contains(m.runs, a.key) {
			m.t.Fatalf("%v is thought to run, does not, and nothing will tell soon", a.key)
		}
	})
}

// askSoon asks now, or with the next thing that happens.
func (m *machine) askSoon(t *rapid.T) {
	if rapid.Bool().Draw(t, "ask now") {
		m.ask()
	}
}

// assign puts an attempt into the desired state.
func (m *machine) assign(k Key, cpus CPUs) {
	m.index++
	m.wants = append(m.wants, assigned{key: k, cpus: cpus})
}

// free are the CPUs that the cluster has given to nobody.
func (m *machine) free() (cpus CPUs) {
	for cpu := range cpusOfMachine {
		if !slices.ContainsFunc(m.wants, func(as assigned) bool { return slices.Contains(as.cpus, cpu) }) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// resize moves a CPU from one attempt to another, or gives or takes one. A list of the
// cluster is not changed, as an old desired state may have it.
func (m *machine) resize(t *rapid.T) {
	if !m.resizes {
		t.Skip()
	}
	m.wants = slices.Clone(m.wants)
	from, to := &m.wants[pick(t, m.wants)], &m.wants[pick(t, m.wants)]
	if from.shares || to.shares {
		t.Skip()
	}
	if n := len(from.cpus); n > 1 {
		from.cpus = slices.Delete(slices.Clone(from.cpus), n-1, n)
	}
	free := m.free()
	if len(to.cpus) > 0 && len(free) > 0 && rapid.IntRange(0, 3).Draw(t, "give") > 0 {
		to.cpus = append(slices.Clone(to.cpus), free[pick(t, free)])
	}
	m.index++
}

// sorted are the CPUs of an assignment as the plan is told them.
func sorted(cpus CPUs) CPUs { return slices.Sorted(slices.Values(cpus)) }

// exclusive checks that no CPU has two users.
func (m *machine) exclusive(k Key) {
	for other, cpus := range m.widths {
		for _, cpu := range m.widths[k] {
			if other != k && slices.Contains(cpus, cpu) && !(m.shares[k] && m.shares[other]) {
				m.t.Fatalf("%v has CPU %d, and %v has it too", k, cpu, other)
			}
		}
	}
}

// grant has another action run here, or an action for a second time.
func (m *machine) grant(t *rapid.T) {
	if !m.lives {
		t.Skip()
	}
	m.actions++
	var cpus CPUs
	if free := m.free(); len(free) > 0 {
		cpus = free[:rapid.IntRange(0, len(free)).Draw(t, "cpus")]
	}
	m.assign(Key{Action: m.actions, Attempt: 1, Incarnation: m.incarnation}, cpus)
	switch as := &m.wants[len(m.wants)-1]; rapid.IntRange(0, 3).Draw(t, "needs the engine") {
	case 0:
		as.engine, as.gpus = judge, []int{2, 3}
	case 1:
		as.gpus = []int{3}
	}
}

// pick draws one of a list.
func pick[T any](t *rapid.T, list []T) (i int) {
	if len(list) == 0 {
		t.Skip()
	}
	return rapid.IntRange(0, len(list)-1).Draw(t, "which")
}

// stop has an attempt stopped; cancel takes it out of the desired state at once.
func (m *machine) stop(t *rapid.T) {
	i := pick(t, m.wants)
	m.index++
	m.wants[i].stop = true
}

func (m *machine) cancel(t *rapid.T) {
	i := pick(t, m.wants)
	m.index++
	m.wants = slices.Delete(slices.Clone(m.wants), i, i+1)
}

// desired is the whole desired state.
func (m *machine) desired() Desired {
	d := Desired{Incarnation: m.incarnation, Fenced: !m.lives, Index: m.index}
	for _, as := range m.wants {
		d.Assignments = append(d.Assignments, Assignment{Key: as.key, Stop: as.stop, CPUs: sorted(as.cpus), Shares: as.shares, Engine: as.engine, GPUs: as.gpus})
	}
	return d
}

// see delivers the desired state, or an old one.
func (m *machine) see(t *rapid.T) {
	d := m.desired()
	if rapid.IntRange(0, 3).Draw(t, "old") == 0 {
		d = m.old
	}
	if rapid.IntRange(0, 2).Draw(t, "keep") == 0 {
		m.old = d
	}
	m.plan.Desire(d)
	m.askSoon(t)
}

// take takes a step that is under way.
func (m *machine) take(t *rapid.T) todo {
	i := pick(t, m.todo)
	d := m.todo[i]
	m.todo = slices.Delete(m.todo, i, i+1)
	return d
}

// do does a step and tells the plan. The answer of a supervisor may take a while.
func (m *machine) do(t *rapid.T) {
	d := m.take(t)
	switch d.step.(type) {
	case Start, Resize, Arm, List:
		if !d.done && rapid.Bool().Draw(t, "the answer takes a while") {
			m.order(&d)
			m.todo = append(m.todo, d)
			return
		}
	}
	m.perform(d)
	m.askSoon(t)
}

// doSome does some steps, in any order.
func (m *machine) doSome(t *rapid.T) {
	for range rapid.IntRange(1, 6).Draw(t, "steps") {
		if len(m.todo) > 0 {
			m.do(t)
		}
	}
}

// goesWell lets the node see the desired state and do what is due, once or more often.
func (m *machine) goesWell(t *rapid.T) {
	for range rapid.IntRange(1, 4).Draw(t, "rounds") {
		m.round()
	}
}

func (m *machine) round() {
	m.plan.Desire(m.desired())
	m.ask()
	todo := m.todo
	m.todo = nil
	for _, d := range todo {
		m.perform(d)
	}
	m.ask()
}

// fail loses a call, or only its answer.
func (m *machine) fail(t *rapid.T) {
	d := m.take(t)
	effect := rapid.Bool().Draw(t, "effect")
	switch s := d.step.(type) {
	case Register, Journal: // tried until they succeed
		m.perform(d)
	case Renew:
		if effect {
			m.renewed(s)
		}
		m.plan.NotRenewed(s.Number, m.now+leaseNS/200)
	case Report:
		if effect {
			m.reported(s)
		}
		m.plan.ReportsDone()
	case Start: // an error that says nothing
		if effect {
			m.order(&d)
		}
		m.plan.Started(s.Connection, s.Key, Unknown, "an error", m.now)
	case Resize:
		if effect {
			m.order(&d)
		}
		m.plan.Resized(s.Connection, s.Key, false, m.now)
	case Freeze:
		m.plan.Froze(s.Connection, s.Key, s.Frozen, false, m.now)
	case ReportFrozen:
		m.plan.FrozenReported(s.Attempts, false)
	case Arm, List: // an error of these ends the connection
		m.disconnect(t)
	}
	m.ask()
}

func (m *machine) perform(d todo) {
	switch s := d.step.(type) {
	case Register:
		m.register(s)
	case Journal:
		m.write(s)
		m.plan.Journaled()
	case Renew:
		m.plan.Renewed(s.Number, d.at, m.renewed(s), m.now)
	case Report:
		m.plan.Reported(keysOf(s.Exits), m.reported(s))
		m.plan.ReportsDone()
	default:
		m.order(&d)
		m.answer(d)
	}
}

// register answers with the incarnation that the node has, or with another one.
func (m *machine) register(s Register) {
	if s.Incarnation != m.incarnation || !m.lives || s.Incarnation == 0 {
		if len(m.runs) > 0 && s.Incarnation == 0 {
			m.t.Fatalf("registers as a node that holds nothing, and %v run", m.runs)
		}
		m.end()
		m.incarnation++
		m.lives = true
	}
	m.index++
	m.heard = m.now
	m.plan.Registered(Terms{Incarnation: m.incarnation, Index: m.index, LeaseNS: leaseNS, MarginNS: marginNS})
}

// end gives the incarnation up. Its attempts may run elsewhere from then on.
func (m *machine) end() {
	m.index++
	m.lives, m.wants = false, nil
}

// giveUp gives the node up when its lease is over by the cluster's count. Nothing may
// run then.
func (m *machine) giveUp(t *rapid.T) {
	if !m.lives {
		t.Skip()
	}
	m.until(max(m.now, m.heard+leaseNS+marginNS+1))
	for _, k := range m.runs {
		if k.Incarnation == m.incarnation {
			t.Fatalf("%v runs when its node is given up", k)
		}
	}
	m.end()
}

func (m *machine) renewed(s Renew) (fenced bool) {
	if s.Incarnation != m.incarnation || !m.lives {
		return true
	}
	m.heard = m.now
	return false
}

// reported takes ends in. What is reported must not run, now or later.
func (m *machine) reported(s Report) (index uint64) {
	m.index++
	for _, exit := range s.Exits {
		if slices.Contains(m.runs, exit.Key) {
			m.t.Fatalf("%v is reported as ended with %d, and runs", exit.Key, exit.Reason)
		}
		if exit.Key.Incarnation == m.incarnation && m.lives {
			m.reports[exit.Key] = exit
		}
		m.wants = slices.DeleteFunc(m.wants, func(as assigned) bool { return as.key == exit.Key })
	}
	return m.index
}

// write writes the journal.
func (m *machine) write(j Journal) {
	if j.Incarnation != 0 {
		m.journaled, m.attempts = j.Incarnation, nil
	}
	for i := range m.attempts {
		m.attempts[i].Reported = m.attempts[i].Reported || slices.Contains(j.Reported, m.attempts[i].Key)
	}
	m.attempts = slices.DeleteFunc(m.attempts, func(a Accepted) bool { return slices.Contains(j.Forget, a.Key) })
	for _, k := range j.Accept {
		m.attempts = append(m.attempts, Accepted{Key: k})
	}
}

// order has the supervisor do something, unless it has.
func (m *machine) order(d *todo) {
	if d.done {
		return
	}
	d.done = true
	switch s := d.step.(type) {
	case Start:
		d.answer = m.start(s)
	case Resize:
		if _, runs := m.widths[s.Key]; runs {
			m.widths[s.Key] = s.CPUs
			m.exclusive(s.Key)
		}
	case Kill:
		m.finish(s.Key, s.Reason)
	case Forget:
		m.ends = slices.DeleteFunc(m.ends, func(e Exit) bool { return slices.Contains(s.Keys, e.Key) })
	case Arm:
		m.deadline = s.Deadline
	case List:
		d.runs, d.ends = m.running(), slices.Clone(m.ends)
	}
}

// answer tells the plan what the supervisor answered.
func (m *machine) answer(d todo) {
	switch s := d.step.(type) {
	case Start:
		m.plan.Started(s.Connection, s.Key, d.answer, "", m.now)
	case Resize:
		m.plan.Resized(s.Connection, s.Key, true, m.now)
	case Freeze:
		m.plan.Froze(s.Connection, s.Key, s.Frozen, true, m.now)
	case ReportFrozen:
		m.plan.FrozenReported(s.Attempts, true)
	case Arm:
		m.plan.Armed(s.Connection, s.Deadline)
	case List:
		m.plan.Listed(s.Connection, d.runs, d.ends, m.now)
	}
}

// start starts an attempt, and checks that it may be started.
func (m *machine) start(s Start) Answer {
	k := s.Key
	if m.now >= m.deadline {
		return Disarmed
	}
	if m.starts[k]++; m.starts[k] > 1 {
		m.t.Fatalf("%v is started a second time", k)
	}
	if _, told := m.reports[k]; told {
		m.t.Fatalf("%v is started after its end was reported", k)
	}
	if m.journaled != k.Incarnation || !slices.ContainsFunc(m.attempts, func(a Accepted) bool { return a.Key == k }) {
		m.t.Fatalf("%v is started and not in the journal", k)
	}
	for _, other := range m.runs {
		if other.Action == k.Action || other.Incarnation != k.Incarnation {
			m.t.Fatalf("%v is started while %v runs", k, other)
		}
	}
	m.runs = append(m.runs, k)
	m.widths[k] = s.CPUs
	m.exclusive(k)
	return OK
}

// finish ends a running attempt. The agent hears of it if there is a connection.
func (m *machine) finish(k Key, reason Reason) {
	i := slices.Index(m.runs, k)
	if i < 0 {
		return
	}
	m.runs = slices.Delete(m.runs, i, i+1)
	delete(m.widths, k)
	e := Exit{Key: k, Reason: reason}
	m.ends = append(m.ends, e)
	if m.connected {
		m.plan.Exited(e)
	}
}

// exit lets an attempt end by itself.
func (m *machine) exit(t *rapid.T) {
	m.finish(m.runs[pick(t, m.runs)], ReasonExited)
	m.ask()
}

// pass lets time pass, with all that is due by itself.
func (m *machine) pass(t *rapid.T) {
	m.until(m.now + rapid.Int64Range(1, 2*leaseNS).Draw(t, "ns"))
}

func (m *machine) until(end int64) {
	for m.now < end {
		m.now = min(end, m.again)
		if m.deadline != 0 && m.deadline <= m.now {
			for _, k := range slices.Clone(m.runs) {
				m.finish(k, ReasonNodeLost)
			}
		}
		m.ask()
	}
}

// heal lets everything go well for a while. Then every attempt has ended, its end was
// reported, and nobody remembers it.
func (m *machine) heal() {
	m.engine, m.leaves = EngineStatus{URL: "http://here"}, false
	m.tellEngine()
	for range 10 {
		m.round()
		m.until(m.now + 2*resizeAgain)
	}
	for _, as := range m.wants {
		if cpus, runs := m.widths[as.key]; m.lives && runs && !as.stop && !slices.Equal(cpus, sorted(as.cpus)) {
			m.t.Fatalf("%v has the CPUs %v, and is to have %v", as.key, cpus, as.cpus)
		}
	}
	for range 200 {
		m.round()
		for _, k := range slices.Clone(m.runs) {
			m.finish(k, ReasonExited)
		}
		m.until(m.now + second/2)
	}
	if len(m.wants)+len(m.runs)+len(m.ends)+len(m.attempts) > 0 || !m.plan.Idle() {
		m.t.Fatalf("left over: wanted %v, running %v, ended %v, in the journal %v, in the plan %d",
			m.wants, m.runs, m.ends, m.attempts, len(m.plan.table.byKey))
	}
	for _, k := range slices.SortedFunc(maps.Keys(m.starts), compareKeys) {
		if m.starts[k] > 1 {
			m.t.Fatalf("%v was started %d times", k, m.starts[k])
		}
	}
}

func compareKeys(a, b Key) int { return int(a.Action) - int(b.Action) }

func keysOf(exits []Exit) (keys []Key) {
	for _, e := range exits {
		keys = append(keys, e.Key)
	}
	return keys
}
