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
}

// NewBudget returns a budget of a number of bytes.
func NewBudget(bytes int64) *Budget { return &Budget{total: bytes} }

// Used returns the bytes that requests hold now.
func (b *Budget) Used() int64 { return b.used.Load() }

// Refused returns how many requests were refused because the budget was spent.
func (b *Budget) Refused() int64 { return b.refused.Load() }

// share is what one request holds of a budget. It is used by one goroutine at a
// time.
type share struct {
	budget *Budget
	held   int64
	// max is the most that the request may hold.
	max int64
}

// take adds n bytes to the share, or says why it cannot.
func (s *share) take(n int64) error {
	if s.held+n > s.max {
		return tooCostly(s.held+n, s.max)
	}
	limit := s.budget.total
	if s.held+n > smallBytes {
		limit -= limit / 4
	}
	if s.budget.used.Add(n) > limit {
		s.budget.used.Add(-n)
		s.budget.refused.Add(1)
		return overloaded()
	}
	s.held += n
	return nil
}

// give returns n bytes of the share.
func (s *share) give(n int64) {
	s.held -= n
	s.budget.used.Add(-n)
}

// end returns all of the share.
func (s *share) end() { s.give(s.held) }
