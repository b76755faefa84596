package history

import (
	"slices"
	"sync"
	"time"
)

// Recorder collects the record of a run while it happens. All of its methods may
// be called at the same time.
type Recorder struct {
	began time.Time

	mu     sync.Mutex
	record Record
}

// NewRecorder begins a record: its clock starts now. What is known about the run
// beforehand, such as its scenario and seed, is given in about.
func NewRecorder(about Record) *Recorder { return &Recorder{began: time.Now(), record: about} }

// Now is the time since the run began, in nanoseconds of a monotonic clock.
func (r *Recorder) Now() int64 { return int64(time.Since(r.began)) }

// Call is a call that is under way. Who made it fills in what it has brought and
// ends it; one that never ends has an unknown outcome.
type Call struct {
	Op

	recorder *Recorder
	at       int
}

// Begin records that a call is made now.
func (r *Recorder) Begin(op Op) *Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	op.Start, op.End, op.Outcome = r.Now(), 0, Unknown
	r.record.Ops = append(r.record.Ops, op)
	return &Call{Op: op, recorder: r, at: len(r.record.Ops) - 1}
}

// Finish records that the call has ended now, with this outcome.
func (c *Call) Finish(outcome Outcome) {
	r := c.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	c.End, c.Outcome = r.Now(), outcome
	r.record.Ops[c.at] = c.Op
}

// AddWatch adds events in the order in which one watcher received them.
func (r *Recorder) AddWatch(events ...WatchEvent) {
	r.Update(func(rec *Record) { rec.Watch = append(rec.Watch, events...) })
}

// AddWatchNote adds where a watcher stands, in the order in which it came there.
func (r *Recorder) AddWatchNote(n WatchNote) {
	r.Update(func(rec *Record) { rec.WatchNotes = append(rec.WatchNotes, n) })
}

// AddSample adds what a server said about itself.
func (r *Recorder) AddSample(s Sample) {
	r.Update(func(rec *Record) { rec.Samples = append(rec.Samples, s) })
}

// AddHolding adds a turn that was held.
func (r *Recorder) AddHolding(h Holding) {
	r.Update(func(rec *Record) { rec.Holdings = append(rec.Holdings, h) })
}

// AddFault adds a fault that has happened, or was tried in vain.
func (r *Recorder) AddFault(f Fault) {
	r.Update(func(rec *Record) { rec.Faults = append(rec.Faults, f) })
}

// AddMember adds a change of the voters that was asked for.
func (r *Recorder) AddMember(m Member) {
	r.Update(func(rec *Record) { rec.Members = append(rec.Members, m) })
}

// Update changes the record in any other way. The function must be short, since
// everybody waits for it, and must leave Ops alone.
func (r *Recorder) Update(change func(*Record)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.record)
}

// Record returns what has been recorded so far, as a copy that does not change
// any more. Calls that are under way have an unknown outcome and end now.
func (r *Recorder) Record() *Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, now := r.record, r.Now()
	rec.Ops = slices.Clone(rec.Ops)
	for i := range rec.Ops {
		if rec.Ops[i].End == 0 {
			rec.Ops[i].End = now
		}
	}
	rec.Executions, rec.Watch = slices.Clone(rec.Executions), slices.Clone(rec.Watch)
	rec.WatchNotes = slices.Clone(rec.WatchNotes)
	rec.Servings = slices.Clone(rec.Servings)
	rec.Holdings, rec.Turns = slices.Clone(rec.Holdings), slices.Clone(rec.Turns)
	rec.Samples, rec.Faults = slices.Clone(rec.Samples), slices.Clone(rec.Faults)
	rec.Turnarounds, rec.Ends = slices.Clone(rec.Turnarounds), slices.Clone(rec.Ends)
	rec.Members, rec.Logs = slices.Clone(rec.Members), slices.Clone(rec.Logs)
	return &rec
}
