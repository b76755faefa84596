package dst

import (
	"fmt"

	"rota/agent/plan"
	logv1 "rota/api/gen/log/v1"
	peerv1 "rota/api/gen/peer/v1"
	"rota/fsm/state"
	"rota/internal/sim"
)

// hosts is how many machines trainers run on. Each has links of its own.
const hosts = 3

// How often a trainer asks whether it holds its group, and renews its lease.
const renewEvery = 1500 * millisecond

// How turns end, and what becomes of jobs.
const (
	yielded  = logv1.TurnEnd_TURN_END_YIELDED
	canceled = logv1.TurnEnd_TURN_END_CANCELED

	suspendJob  = logv1.JobChange_JOB_CHANGE_SUSPEND
	resumeJob   = logv1.JobChange_JOB_CHANGE_RESUME
	completeJob = logv1.JobChange_JOB_CHANGE_COMPLETE
	deleteJob   = logv1.JobChange_JOB_CHANGE_DELETE
)

// operation is one turn of each step of a job, as the trainer plans it.
type operation struct {
	deployment string
	kind       uint32
	exec       int64
	setUp      int64
	pause      int64 // until the next
}

// trainer is a client that trains: a process that holds its group itself, turn after
// turn, under a lease.
type trainer struct {
	client
	host  int
	luck  uint64
	clock *sim.Clock
	proc  *sim.Process
	life  int

	job        *logv1.SubmitJob
	operations []operation
	steps      uint64
	// polite: it yields when it is asked to.
	polite bool

	step   uint64
	next   int // operation
	asked  int // turns, for request IDs
	over   bool
	turn   uint64
	lease  plan.Lease
	holds  *hold
	result turnAnswer
}

// turnAnswer is what a server says of a turn.
type turnAnswer struct {
	ok      bool // else nothing may be assumed
	renewal peerv1.TurnRenewal
	row     state.Turn
	// settingUp: hooks still run.
	settingUp bool
}

func newTrainer(w *World, host int, luck uint64) *trainer {
	d := sim.Draws(luck).Of(1, 0)
	t := &trainer{host: host, luck: luck, clock: sim.NewClock(&w.loop, d.Between(-driftPPMMax, driftPPMMax))}
	t.client = client{w: w, id: clients + host, link: w.config.nodes + 1 + host}
	t.proc = sim.NewProcess(&w.loop, t.clock)
	t.polite = d.Chance(800_000)
	t.steps = uint64(d.Between(2, 10))
	t.plan(&d)
	return t
}

// plan draws what the job is, and what it does in each step.
func (t *trainer) plan(d *sim.Draw) {
	slot := t.w.config.settings.LedgerSlotNs
	t.job = &logv1.SubmitJob{
		Name: fmt.Sprintf("job-%d", d.N(40)), Nodes: d.Skewed(1, 6), SetUpNs: d.Skewed(0, 4*slot),
		Request: &logv1.Request{Id: fmt.Sprintf("job-%x", t.luck), Digest: t.luck},
	}
	names := d.Between(1, 3)
	at, cycle := int64(0), &logv1.Cycle{}
	for range d.Between(1, 4) {
		o := operation{
			deployment: fmt.Sprintf("d%d", d.N(names)), kind: uint32(d.Between(1, 7)),
			exec: d.Skewed(slot/2, 12*slot), pause: d.Skewed(0, 20*slot), setUp: t.job.SetUpNs,
		}
		t.operations = append(t.operations, o)
		cycle.Segments = append(cycle.Segments, &logv1.Segment{OffsetNs: at, LengthNs: o.exec + o.setUp, Nodes: d.Between(1, t.job.Nodes)})
		at += o.exec + o.setUp + o.pause + 2*slot
	}
	cycle.PeriodNs = at
	switch n := d.N(100); {
	case n < 20:
		t.job.Backfill = true
	case n < 60:
		t.job.Cycle = cycle
	}
	t.drawHooks(d)
}

// start begins to train.
func (t *trainer) start() {
	t.proc.Start()
	t.life++
	t.w.trainers = append(t.w.trainers, t)
	t.ask(&logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: t.job}}, triesMax, func(r *logv1.Result) {
		if r.Refusal != nil {
			t.end()
			return
		}
		t.step = 1
		t.acquire()
	})
}

// ask has a command committed, and forgets what is answered to an earlier life.
func (t *trainer) ask(c *logv1.Command, tries int, done func(*logv1.Result)) {
	life, answered := t.life, false
	t.do(c, tries, func(r *logv1.Result) {
		if t.life == life && !answered {
			answered = true
			done(r)
		}
	})
}

func (t *trainer) draw(what uint64) sim.Draw {
	return sim.Draws(t.luck).Of(8+what, int64(t.life)<<32|int64(t.asked))
}

// acquire asks for the next turn.
func (t *trainer) acquire() {
	if t.over || t.turn != 0 || !t.proc.Runs() {
		return
	}
	if t.next == len(t.operations) {
		t.next = 0
		t.step++
	}
	if t.step > t.steps {
		t.finishJob()
		return
	}
	t.asked++
	d, o, life, asked := t.draw(0), t.operations[t.next], t.life, t.asked
	v := &logv1.AcquireTurn{
		Job: t.job.Name, Deployment: o.deployment, Operation: o.kind, Step: t.step, Preemptible: d.Chance(600_000),
		Request: &logv1.Request{Id: fmt.Sprintf("turn-%x-%d-%d", t.luck, t.life, t.asked), Digest: t.luck},
	}
	if d.Chance(700_000) {
		v.ExpectNs = o.exec
	}
	if d.Chance(300_000) {
		v.SetUpNs = o.setUp
	}
	if d.Chance(300_000) {
		v.LimitNs = o.exec + d.Skewed(0, 30*second)
	}
	if d.Chance(200_000) {
		v.Step = 0
	}
	if d.Chance(50_000) {
		v.Request = nil // an answer that is lost leaves a turn that nobody renews
	}
	t.ask(&logv1.Command{Verb: &logv1.Command_AcquireTurn{AcquireTurn: v}}, triesMax, func(r *logv1.Result) {
		if r.Refusal != nil {
			t.end()
			return
		}
		t.w.acked = append(t.w.acked, r.FirstId)
		if t.asked == asked {
			t.begin(r.FirstId)
		}
	})
	if v.Request == nil {
		t.proc.After(20*second, func() {
			if t.life == life && t.asked == asked && t.turn == 0 {
				t.goOn(second)
			}
		})
	}
}

// begin renews a turn until it is over.
func (t *trainer) begin(id uint64) {
	s := t.w.config.settings
	t.turn, t.result = id, turnAnswer{}
	t.lease.Begin(s.LeaseNs, s.LeaseMarginNs)
	d := t.draw(1)
	if d.Chance(100_000) {
		t.proc.After(d.Skewed(second, 60*second), func() { t.giveUp(id) })
	}
	t.renew(id)
}

// renew asks for the state of a turn, again and again.
func (t *trainer) renew(id uint64) {
	if t.turn != id || t.over {
		return
	}
	net := network{t.w, t.link}
	t.server = (t.server + 1) % t.w.config.servers
	server, sent, token, life := t.server, t.clock.Now(), t.result.row.Token, t.life
	net.send(server, func(s *member) {
		s.renewTurn(id, token, func(a turnAnswer) {
			net.answer(server, func() {
				if t.life == life && t.turn == id && t.proc.Runs() && a.ok {
					t.learnTurn(id, sent, a)
				}
			})
		})
	})
	t.proc.After(renewEvery, func() { t.renew(id) })
}

// learnTurn is what an answer to a renewal says, which was sent at a time.
func (t *trainer) learnTurn(id uint64, sent int64, a turnAnswer) {
	switch {
	case a.renewal == peerv1.TurnRenewal_TURN_RENEWAL_FENCED:
		t.lose()
		return
	case a.renewal == peerv1.TurnRenewal_TURN_RENEWAL_STOPPED && t.polite && t.holds != nil:
		t.yield()
		return
	case a.renewal != peerv1.TurnRenewal_TURN_RENEWAL_RENEWED:
		return
	}
	t.lease.Extend(sent, t.clock.Now())
	t.result = a
	if t.lease.Held(t.clock.Now()) == 0 {
		t.lose()
		return
	}
	t.watchLease(id)
	switch {
	case a.row.State == state.TurnHeld && !a.settingUp && t.holds == nil:
		t.hold(a.row)
	case a.row.Stop && t.polite && t.holds != nil:
		t.yield()
	}
}

// watchLease stops what runs when the lease is over.
func (t *trainer) watchLease(id uint64) {
	deadline := t.lease.Held(t.clock.Now())
	t.proc.After(deadline-t.clock.Now()-millisecond, func() {
		if t.turn == id && t.lease.Held(t.clock.Now()) <= deadline {
			t.lose()
		}
	})
}

// hold begins to use the group: for about as long as was said, sometimes longer.
func (t *trainer) hold(row state.Turn) {
	o := t.operations[t.next]
	d := t.draw(2)
	takes := o.exec * d.Between(80, 110) / 100
	if d.Chance(100_000) {
		takes = o.exec*d.Between(1, 5) + d.Skewed(0, 60*second)
	}
	if row.SetUp && row.ReadyAt == 0 {
		takes += o.setUp
	}
	if !t.polite && row.LimitNS > 0 && d.Chance(100_000) {
		takes = 100 * hour // it hangs: only its lease ends that
	}
	t.holds = &hold{trainer: t.luck, group: row.Group, deployment: row.Deployment, turn: row.ID, token: row.Token}
	t.holds.gpus = t.w.gpusOfTurn(row)
	t.w.trace("trainer %x begins to hold group %d: turn %d, token %d", t.luck, row.Group, row.ID, row.Token)
	t.w.witness.holds(t.holds)
	life := t.life
	t.proc.After(takes, func() {
		if t.life == life && t.holds != nil && t.turn == uint64(row.ID) {
			t.yield()
		}
	})
}

// leave ends what the trainer does with its group.
func (t *trainer) leave() {
	if t.holds != nil {
		t.w.trace("trainer %x holds group %d no more: turn %d", t.luck, t.holds.group, t.holds.turn)
		t.w.witness.leaves(t.holds)
		t.holds = nil
	}
}

// yield gives the group back, and goes on.
func (t *trainer) yield() {
	v := &logv1.EndTurn{TurnId: t.turn, Token: t.holds.token, Reason: yielded}
	if d := t.draw(3); t.result.row.SetUp && d.Chance(700_000) {
		v.SetUpNs = t.operations[t.next].setUp
	}
	t.leave()
	t.turn = 0
	pause := t.operations[t.next].pause
	t.next++
	life := t.life
	goOn := func() {
		if life == t.life && t.turn == 0 {
			life = -1
			t.goOn(pause)
		}
	}
	t.ask(&logv1.Command{Verb: &logv1.Command_EndTurn{EndTurn: v}}, triesMax, func(*logv1.Result) { goOn() })
	t.proc.After(30*second, goOn)
}

// lose is the end of a turn that was given up: the step is done again, or the one
// before.
func (t *trainer) lose() {
	t.leave()
	t.turn = 0
	d := t.draw(4)
	t.next = 0
	if t.step > 1 && d.Chance(500_000) {
		t.step--
	}
	t.goOn(second)
}

// giveUp cancels a turn that has waited for long. It may have been granted meanwhile.
func (t *trainer) giveUp(id uint64) {
	if t.turn != id || t.holds != nil {
		return
	}
	v := &logv1.EndTurn{TurnId: id, Token: t.result.row.Token, Reason: canceled}
	t.ask(&logv1.Command{Verb: &logv1.Command_EndTurn{EndTurn: v}}, 2, ignore)
}

func (t *trainer) goOn(after int64) {
	t.proc.After(after, t.acquire)
}

// finishJob is the end of the training.
func (t *trainer) finishJob() {
	d := t.draw(5)
	if d.Chance(800_000) {
		change := completeJob
		if d.Chance(500_000) {
			change = deleteJob
		}
		t.changeJob(t.job.Name, change, triesMax)
	}
	t.end()
}

// end leaves the job to itself.
func (t *trainer) end() {
	t.leave()
	t.over = true
}

// kill is the sudden end of the process. It comes back and trains on from a step
// before, or never does.
func (t *trainer) kill(after int64) {
	t.leave()
	t.proc.Kill()
	t.life++
	t.turn = 0
	d := t.draw(6)
	if t.step == 0 || d.Chance(300_000) {
		t.over = true
		return
	}
	t.step, t.next = uint64(d.Between(1, int64(t.step))), 0
	t.w.undoAfter(after, func() {
		t.proc.Start()
		t.acquire()
	})
}

// changeJob has a job suspended, resumed, completed or deleted.
func (c *client) changeJob(name string, change logv1.JobChange, tries int) {
	c.do(&logv1.Command{Verb: &logv1.Command_ChangeJob{ChangeJob: &logv1.ChangeJob{Name: name, Change: change}}}, tries, ignore)
}
