package quorum

import "slices"

// Ticket numbers the questions of one leadership, from 1 on.
type Ticket uint64

// Leadership gathers the proof that a server still leads in its term. A caller asks; the
// question gets a ticket; the leader sends each voter a message; a voter that knows no
// later term answers. The answer counts for the tickets that were drawn before its message
// was sent, and for no later one.
type Leadership[C any] struct {
	drawn   Ticket
	waiting []question[C] // by ticket
	// acked is the newest ticket that each voter has confirmed.
	acked map[string]Ticket
}

type question[C any] struct {
	ticket Ticket
	Answer[C]
}

// Answer is for one caller: a majority has confirmed that the server led after the caller
// asked.
type Answer[C any] struct {
	Caller C
	// Index is the commit index when the caller asked. A state that has applied it
	// contains everything that was acknowledged before the question.
	Index uint64
}

// Voters are the members that count, as the newest configuration has them.
type Voters struct {
	// Self: this server has a vote. It confirms itself.
	Self   bool
	Others []string
}

// majority is how many of the others make a majority, together with this server if it has
// a vote.
func (v Voters) majority() int {
	if v.Self {
		return (len(v.Others) + 1) / 2
	}
	return len(v.Others)/2 + 1
}

// Ask puts the question of a caller. The server leads at this moment, as far as it knows,
// and commit is its commit index.
func (l *Leadership[C]) Ask(caller C, commit uint64) {
	l.drawn++
	l.waiting = append(l.waiting, question[C]{l.drawn, Answer[C]{caller, commit}})
}

// Send returns the ticket of a message to a voter that leaves now; false if no question
// waits for this voter.
func (l *Leadership[C]) Send(to string) (Ticket, bool) {
	return l.drawn, len(l.waiting) > 0 && l.acked[to] < l.drawn
}

// Confirm notes that a voter answered a message with the ticket of Send, and knew no later
// term. Confirmed says which questions that settles.
func (l *Leadership[C]) Confirm(from string, sent Ticket) {
	if l.acked == nil {
		l.acked = make(map[string]Ticket)
	}
	l.acked[from] = max(l.acked[from], sent)
}

// Confirmed returns the answers that a majority of the voters confirms, and forgets the
// questions. The voters may have changed since a question was put: those of now count, and
// a server that is the only one left needs no answer.
func (l *Leadership[C]) Confirmed(voters Voters) (answers []Answer[C]) {
	upTo := l.confirmed(voters)
	n := 0
	for ; n < len(l.waiting) && l.waiting[n].ticket <= upTo; n++ {
		answers = append(answers, l.waiting[n].Answer)
	}
	clear(l.waiting[:n])
	l.waiting = l.waiting[n:]
	return answers
}

// confirmed is the newest ticket that a majority confirms.
func (l *Leadership[C]) confirmed(voters Voters) Ticket {
	need := voters.majority()
	if need == 0 {
		return l.drawn
	}
	if need > len(voters.Others) {
		return 0
	}
	acked := make([]Ticket, len(voters.Others))
	for i, id := range voters.Others {
		acked[i] = l.acked[id]
	}
	slices.Sort(acked)
	return acked[len(acked)-need]
}

// Lost returns everybody who waits: a voter knows a later term, or the leadership is over.
func (l *Leadership[C]) Lost() (callers []C) {
	for _, q := range l.waiting {
		callers = append(callers, q.Caller)
	}
	l.waiting = nil
	return callers
}
