package share

import "sync"

// Room reports whether a key that holds own of max things may hold another one, when all keys
// together hold total, own among them: own must be below what is free.
//
// While n keys hold things, at least ⌊max/2ⁿ⌋ are free. So a key that holds nothing finds room as
// long as 2ⁿ <= max for the n keys that hold some. Fewer keys than that never fill everything up.
//
// Proof, by induction on n. With n = 0, all are free. With n >= 1, leave out of the history
// what other keys than these n did: every total becomes smaller, so every step that Room allowed is
// still allowed. Let k be the key that took last, and let r be what is free or k's at that moment.
// Without k the history is one of n-1 keys, so r >= ⌊max/2ⁿ⁻¹⌋. Just before, k's own was below what
// was free. So now own <= free+1, and own+free = r, which gives free >= ⌊r/2⌋ >= ⌊max/2ⁿ⌋.
// Since then, things were only returned.
func Room(max, total, own int) bool { return own < max-total }

// firstsPart is the part of all slots that is only for keys without one: a quarter.
const firstsPart = 4

// Slots are a bounded number of equal things, such as places for calls under way. Its methods may be
// called concurrently.
//
// A quarter of the slots, F = ⌊max/4⌋, is only for keys that hold none; Room divides the rest. So a
// key that holds none gets a slot as long as at most F other keys hold some, however many those
// ask for. A key that is alone gets ⌈(max-F)/2⌉, and max = 1 is a single slot for any key.
//
// Proof. Consider the last time at which a key took a slot beside one it had. Room then required that
// total < max-F-own with own >= 1, so total was at most max-F-1 just after. Since then, keys took
// only first slots, so each of the n keys that hold some has added at most one: total <= max-F-1+n.
// With n <= F that is below max. If no key ever had a second slot, then total = n <= F, and F < max.
type Slots[K comparable] struct {
	max int

	mu    sync.Mutex
	total int
	held  map[K]int // no zeros
}

// New makes max slots, all of them free. It panics if max is not positive.
func New[K comparable](max int) *Slots[K] {
	if max <= 0 {
		panic("share: no slots")
	}
	return &Slots[K]{max: max, held: map[K]int{}}
}

// Take takes a slot for k, if k may have another one. The caller calls release once it is done with
// it; further calls of release do nothing. Without ok, release is nil.
func (s *Slots[K]) Take(k K) (release func(), ok bool) { return s.TakeUpTo(k, s.max) }

// TakeUpTo is Take, except that k never holds more than most slots through it.
func (s *Slots[K]) TakeUpTo(k K, most int) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, limit := s.held[k], s.max
	if own > 0 {
		limit -= s.max / firstsPart
	}
	if own >= most || !Room(limit, s.total, own) {
		return nil, false
	}
	s.held[k]++
	s.total++
	return sync.OnceFunc(func() { s.release(k) }), true
}

func (s *Slots[K]) release(k K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.held[k]--; s.held[k] == 0 {
		delete(s.held, k)
	}
}
