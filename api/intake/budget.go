package intake

import "sync/atomic"

// A request that takes at most smallBytes may use the whole budget. Larger ones
// leave a quarter of it.
const smallBytes = 256 << 10

// Budget is the memory that requests share, in bytes.
type Budget struct {
	total   int64
	used    atomic.Int64
	refused atomic.Int64
	blamed  atomic.Int64
	senders *senders
}

// NewBudget returns a budget of a number of bytes.
func NewBudget(bytes int64) *Budget {
	return &Budget{total: bytes, senders: newSenders(bytes / senderPart)}
}

// largest is what a request may hold while there is no other. What needs more is too large, and must
// not be told to come again.
func (b *Budget) largest() int64 { return max(b.total-b.total/4, min(smallBytes, b.total)) }

// Used returns the bytes that requests hold now.
func (b *Budget) Used() int64 { return b.used.Load() }

// Refused returns how many requests were refused because the budget was spent.
func (b *Budget) Refused() int64 { return b.refused.Load() }

// Blamed returns how many requests were refused because their senders had sent too much
// that had to be refused.
func (b *Budget) Blamed() int64 { return b.blamed.Load() }

// share is what one request holds of a budget. It is used by one goroutine at a
// time.
type share struct {
	budget *Budget
	held   int64
	// max is the most that the request may hold.
	max int64
	// sender is who sent it, empty if that does not matter. It is charged for what goes
	// beyond a small request, and is to blame unless the request turns out to be blameless.
	sender    string
	charged   int64
	blameless bool
	// turnedAway: it is refused for what its sender sent before.
	turnedAway bool
}

// take adds n bytes to the share, or says why it cannot.
func (s *share) take(n int64) error {
	if s.held+n > s.max {
		return tooCostly(s.held+n, s.max)
	}
	if err := s.charge(s.held + n - smallBytes); err != nil {
		return err
	}
	limit := s.budget.total
	if s.held+n > smallBytes {
		limit -= limit / 4
	}
	if s.budget.used.Add(n) > limit {
		s.budget.used.Add(-n)
		return s.overloaded()
	}
	s.held += n
	return nil
}

// give returns n bytes of the share.
func (s *share) give(n int64) {
	s.held -= n
	s.budget.used.Add(-n)
}

// charge has the sender charged for n bytes in all, or says why it cannot be.
func (s *share) charge(n int64) error {
	if s.sender == "" || n <= s.charged {
		return nil
	}
	switch s.budget.senders.take(s.sender, n-s.charged, s.max) {
	case noRoom:
		return s.overloaded()
	case toBlame:
		s.budget.blamed.Add(1)
		s.blameless, s.turnedAway = true, true
		return blamed(s.sender)
	}
	s.charged = n
	return nil
}

// overloaded counts a request that finds no room, for which its sender is not to blame.
func (s *share) overloaded() error {
	s.budget.refused.Add(1)
	s.blameless = true
	return overloaded()
}

// end returns all of the share.
func (s *share) end() {
	s.give(s.held)
	if s.charged > 0 {
		s.budget.senders.end(s.sender, s.charged, !s.blameless)
		s.charged = 0
	}
}
