package entry

import (
	"iter"

	logv1 "rota/api/gen/log/v1"
)

// Proposal is the commands of one caller. They stay together in one entry.
type Proposal[C any] struct {
	Caller   C
	Commands []*logv1.Command
	// Term is the leadership that accepted the commands, and the only one that may
	// commit them; 0 before they have reached a leader.
	Term uint64
	// Weight is what the commands cost to apply.
	Weight int

	bytes int
	state proposalState
	// submits: it only queues actions.
	submits bool
}

type proposalState uint8

const (
	waits proposalState = iota
	taken
	withdrawn
)

// Bytes that a proposal and a command cost beside their encoding.
const (
	proposalOverhead = 128
	commandOverhead  = 64
)

// NewProposal returns a proposal that waits nowhere yet.
func NewProposal[C any](caller C, term uint64, commands []*logv1.Command, weight int) *Proposal[C] {
	p := &Proposal[C]{Caller: caller, Commands: commands, Term: term, Weight: weight, bytes: proposalOverhead}
	p.submits = len(commands) > 0
	for _, c := range commands {
		p.bytes += c.SizeVT() + commandOverhead
		p.submits = p.submits && c.GetSubmitActions() != nil
	}
	return p
}

// Bytes is how much the proposal counts in a queue and in an entry.
func (p *Proposal[C]) Bytes() int { return p.bytes }

// Limits of a queue and of the entries that are taken from it.
type Limits struct {
	// QueueBytes bounds the proposals that wait.
	QueueBytes int
	// EntryBytes and EntryWeight bound one entry. A single proposal beyond them has an
	// entry of its own.
	EntryBytes, EntryWeight int
}

// Queue holds the proposals that wait for an entry, oldest first. Under overload there are more
// submissions than entries have room for. What frees cores must not wait behind them, so all
// other proposals go first. They leave a part of each entry to submissions that wait. If the oldest
// of these does not fit into that part, or is of an older term, it goes first in the next entry.
type Queue[C any] struct {
	limits Limits
	// submissions only queue actions; others are all the rest.
	submissions, others []*Proposal[C]
	bytes               int
	out                 int // batches taken and not settled
	// passedOver: the last entry had no room for the submissions that waited.
	passedOver bool
}

// submissionsPart of an entry is for submissions if some wait, and of the queue for all others: one part
// in four.
const submissionsPart = 4

// NewQueue returns an empty queue.
func NewQueue[C any](l Limits) *Queue[C] { return &Queue[C]{limits: l} }

// Push adds a proposal. It returns false if the queue is full: for submissions while the others have
// room still.
func (q *Queue[C]) Push(p *Proposal[C]) bool {
	most := q.limits.QueueBytes
	if p.submits {
		most -= most / submissionsPart
	}
	if q.bytes > 0 && q.bytes+p.bytes > most {
		return false
	}
	if p.submits {
		q.submissions = append(q.submissions, p)
	} else {
		q.others = append(q.others, p)
	}
	q.bytes += p.bytes
	return true
}

// Withdraw takes a proposal back. It returns false if an entry has it already.
func (q *Queue[C]) Withdraw(p *Proposal[C]) bool {
	if p.state != waits {
		return false
	}
	p.state = withdrawn
	return true
}

// Take returns the oldest proposals that fit into one entry and are of one term, at least
// one. It is empty only if no proposal waits. Settle ends the batch.
func (q *Queue[C]) Take() Batch[C] {
	f, waited := filling[C]{Limits: q.limits}, len(q.submissions)
	if q.passedOver {
		q.submissions = f.take(q.submissions)
	} else if waited > 0 {
		f.EntryBytes -= f.EntryBytes / submissionsPart
		f.EntryWeight -= f.EntryWeight / submissionsPart
	}
	q.others = f.take(q.others)
	f.EntryBytes, f.EntryWeight = q.limits.EntryBytes, q.limits.EntryWeight
	q.submissions = f.take(q.submissions)
	q.passedOver = waited > 0 && len(q.submissions) == waited
	q.bytes -= f.left
	if len(f.batch) > 0 {
		q.out++
	}
	return f.batch
}

// filling is an entry that is being filled.
type filling[C any] struct {
	Limits
	batch         Batch[C]
	bytes, weight int
	// left is how many bytes have left the queue, with proposals that were withdrawn.
	left int
}

// take moves proposals into the entry, oldest first, as long as they fit, and returns the rest.
func (f *filling[C]) take(waiting []*Proposal[C]) []*Proposal[C] {
	n := 0
	for _, p := range waiting {
		if len(f.batch) > 0 && (p.Term != f.batch[0].Term || f.bytes+p.bytes > f.EntryBytes || f.weight+p.Weight > f.EntryWeight) {
			break
		}
		n++
		f.left += p.bytes
		if p.state == withdrawn {
			continue
		}
		p.state = taken
		f.batch = append(f.batch, p)
		f.bytes += p.bytes
		f.weight += p.Weight
	}
	clear(waiting[:n])
	if waiting = waiting[n:]; len(waiting) == 0 {
		return nil
	}
	return waiting
}

// Settle notes that the callers of one batch are answered.
func (q *Queue[C]) Settle() { q.out-- }

// Bytes is how much waits.
func (q *Queue[C]) Bytes() int { return q.bytes }

// Idle reports whether nothing waits and every batch is settled.
func (q *Queue[C]) Idle() bool { return q.bytes == 0 && q.out == 0 }

// Batch is the proposals that share an entry.
type Batch[C any] []*Proposal[C]

// Commands returns the commands of all proposals, in order.
func (b Batch[C]) Commands() []*logv1.Command {
	if len(b) == 1 {
		return b[0].Commands
	}
	commands := make([]*logv1.Command, 0, b.Len())
	for _, p := range b {
		commands = append(commands, p.Commands...)
	}
	return commands
}

// Len is the number of commands in the batch.
func (b Batch[C]) Len() (n int) {
	for _, p := range b {
		n += len(p.Commands)
	}
	return n
}

// Answers gives each caller the results of its own commands. There is one result for each
// command of the batch, in order.
func (b Batch[C]) Answers(results []*logv1.Result) iter.Seq2[C, []*logv1.Result] {
	return func(yield func(C, []*logv1.Result) bool) {
		for _, p := range b {
			n := len(p.Commands)
			own := results[:n:n]
			results = results[n:]
			if !yield(p.Caller, own) {
				return
			}
		}
	}
}
