package sim

import (
	"bytes"
	"fmt"
	"io"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/sched"
)

// Entry is one entry of the model log. Entries of Raft's own have no data.
type Entry struct {
	Index, Term uint64
	Data        []byte // an encoded logv1.Entry
}

// Log is what a majority has agreed on: committed entries, from index 1 on. The
// entries that are not yet decided are their leader's business.
type Log struct{ entries []Entry }

// Last returns the index of the newest entry, 0 if there is none.
func (l *Log) Last() uint64 { return uint64(len(l.entries)) }

// Commit appends an entry and returns it with its index.
func (l *Log) Commit(term uint64, data []byte) Entry {
	e := Entry{Index: l.Last() + 1, Term: term, Data: data}
	l.entries = append(l.entries, e)
	return e
}

// At returns a committed entry.
func (l *Log) At(index uint64) Entry { return l.entries[index-1] }

// ReplicaOptions say what a replica tells to whom.
type ReplicaOptions struct {
	Voters func() int
	// OnEffects is called after each entry.
	OnEffects func([]fsm.Effect)
	// Plant is called before each decision with the index of the entry, and may
	// panic.
	Plant func(index uint64, d fsm.Decision)
	// Deciders returns the schedulers of the feature levels that the replica's build
	// knows, and is asked whenever the replica starts; nil means those of package
	// sched.
	Deciders func() []sched.Scheduler
}

// Replica is the real state machine on the model log, with the newest snapshot
// that it has on its disk.
type Replica struct {
	opts     ReplicaOptions
	machine  *fsm.Machine
	applied  uint64
	snapshot Snapshot
}

// Snapshot is a saved state; Index 0 means that there is none.
type Snapshot struct {
	Index uint64
	Data  []byte
}

// NewReplica returns a replica that has applied nothing.
func NewReplica(o ReplicaOptions) *Replica {
	r := &Replica{opts: o}
	r.begin()
	return r
}

// begin gives the replica an empty machine.
func (r *Replica) begin() {
	o := fsm.Options{OnEffects: r.opts.OnEffects, Voters: r.opts.Voters}
	if r.opts.Deciders != nil {
		o.Deciders = r.opts.Deciders()
	}
	r.machine = fsm.New(o)
	if r.opts.Plant != nil {
		r.machine.PlantPanics(func(d fsm.Decision) { r.opts.Plant(r.applied+1, d) })
	}
	r.applied = 0
}

// Applied returns the index of the newest entry that was applied.
func (r *Replica) Applied() uint64 { return r.applied }

// View calls fn with the state, which fn must neither change nor keep.
func (r *Replica) View(fn func(*state.State)) { r.machine.View(fn) }

// Fork returns a copy of the state that stays as it is.
func (r *Replica) Fork() *state.State { return r.machine.Fork() }

// NextDue returns the log time at which a tick is due.
func (r *Replica) NextDue() (int64, bool) { return r.machine.NextDue() }

// Hash returns the hash of the state.
func (r *Replica) Hash() uint64 {
	_, hash := r.machine.Hash()
	return hash
}

// Apply applies the next entry. An error means that the replica has to stop.
func (r *Replica) Apply(e Entry) (results []*logv1.Result, err error) {
	if e.Index != r.applied+1 {
		return nil, fmt.Errorf("entry %d was handed to a replica that has applied %d", e.Index, r.applied)
	}
	if e.Data != nil {
		results, err = r.machine.ApplyData(e.Index, e.Term, e.Data)
	}
	if err == nil {
		r.applied = e.Index
	}
	return results, err
}

// Save makes a snapshot of the state as it is.
func (r *Replica) Save() (Snapshot, error) {
	var b bytes.Buffer
	if err := r.machine.Fork().Save(&b); err != nil {
		return Snapshot{}, fmt.Errorf("save snapshot at %d: %w", r.applied, err)
	}
	r.snapshot = Snapshot{Index: r.applied, Data: b.Bytes()}
	return r.snapshot, nil
}

// Install replaces the state by a snapshot, as of a leader that has compacted
// its log.
func (r *Replica) Install(s Snapshot) error {
	if err := r.machine.Restore(io.NopCloser(bytes.NewReader(s.Data))); err != nil {
		return fmt.Errorf("restore snapshot of %d: %w", s.Index, err)
	}
	r.applied, r.snapshot = s.Index, s
	return nil
}

// Restart loses what is in memory and goes back to the snapshot on disk, or to
// nothing. The log has to be applied again from there.
func (r *Replica) Restart() error {
	r.begin()
	if r.snapshot.Index == 0 {
		return nil
	}
	return r.Install(r.snapshot)
}

// Erase is Restart without a disk.
func (r *Replica) Erase() {
	r.snapshot = Snapshot{}
	r.begin()
}
