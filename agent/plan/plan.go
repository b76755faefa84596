package plan

// Plan is what one agent knows and what it decides. Its methods must not be called
// at the same time. Times are nanoseconds of the node's own clock.
type Plan struct {
	session session
	link    link
	desk    desk
	table   table
	// engines are those of the node, as far as they are known.
	engines map[Engine]EngineStatus
	// leavers are those that should not be ready and may hold memory of their GPUs.
	leavers []Engine
	// enginesDie: some must end, whoever uses them, and may not have yet.
	enginesDie bool
	// removed are the models whose engine is not declared any more.
	removed map[string]bool
	// queue are steps that were decided between two calls of Next.
	queue []Step
	// again is when Next has to be called again.
	again int64
}

// Accepted is an attempt that the journal of an earlier agent holds.
type Accepted struct {
	Key Key
	// Reported says that a server has confirmed the report of its end.
	Reported bool
	// Rebooted says that the machine was started anew since it was accepted.
	Rebooted bool
}

// New returns the plan of an agent that starts, with what its journal holds.
func New(incarnation uint64, attempts []Accepted) *Plan {
	p := &Plan{table: newTable()}
	p.session.journaled, p.table.incarnation = incarnation, incarnation
	for _, acc := range attempts {
		a := &attempt{key: acc.Key, phase: running, rebooted: acc.Rebooted}
		if acc.Reported {
			a.phase = reported
		}
		p.table.add(a)
	}
	return p
}

// never is when something is due that is not due.
const never = 1<<63 - 1

// Next returns the steps that are due now, and the time at which to call it again. It
// has to be called again also after anything that the plan is told.
func (p *Plan) Next(now int64) (steps []Step, again int64) {
	p.again = never
	p.advance(now)
	p.renew(now)
	p.serveLink(now)
	p.write(now)
	p.freeze(now)
	p.resize(now)
	p.start(now)
	p.abandon()
	p.kill(now)
	p.report()
	p.table.compact()
	steps, p.queue = p.queue, nil
	return steps, p.again
}

// add decides a step.
func (p *Plan) add(s Step) { p.queue = append(p.queue, s) }

// callAt makes sure that Next is called again at the given time.
func (p *Plan) callAt(at int64) { p.again = min(p.again, at) }

// note is for the log.
func (p *Plan) note(k Key, text string) { p.add(Note{k, text}) }

// ready says that attempts may be started: the node is registered, the lease is held,
// and the supervisor will enforce its end.
func (p *Plan) ready(now int64) bool {
	return p.session.stage == open && p.session.lease.Held(now) != 0 && p.link.connected && now < p.link.armed
}

// Idle says that no attempt is known.
func (p *Plan) Idle() bool { return len(p.table.byKey) == 0 }

// Incarnation is the one whose attempts are run and reported; 0: none.
func (p *Plan) Incarnation() uint64 { return p.table.incarnation }

// Knows says whether the plan has an attempt, so that its work need not be told again.
func (p *Plan) Knows(k Key) bool { return p.table.byKey[k] != nil }

// Runs returns the key of an attempt of the current incarnation whose processes may exist.
func (p *Plan) Runs(action uint64, attempt uint32) (Key, bool) {
	for _, a := range p.table.byAction[action] {
		if a.key.Attempt == attempt && a.key.Incarnation == p.table.incarnation && a.phase.live() {
			return a.key, true
		}
	}
	return Key{}, false
}
