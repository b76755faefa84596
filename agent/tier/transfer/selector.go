package transfer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"rota/agent/tier"
)

// SelectorBytesMax bounds a selector: the bytes of its tag, prefixes and keys together.
const SelectorBytesMax = 64 << 10

// ErrSelector means that a selector chooses nothing, or is too large.
var ErrSelector = errors.New("invalid selector of a migration")

// Selector says which values of a cache are moved: those whose key has the tag, begins with
// one of the prefixes, or is one of the keys.
type Selector struct {
	// Tag is NAME%VALUE: a segment of keys that LMCache has built (see tier.HasTag).
	Tag            string
	Prefixes, Keys []string
}

// Check fails with ErrSelector if the selector chooses nothing or has more than
// SelectorBytesMax bytes.
func (s Selector) Check() error {
	n := len(s.Tag)
	for _, part := range slices.Concat(s.Prefixes, s.Keys) {
		if part == "" {
			return fmt.Errorf("%w: an empty prefix or key; leave it out", ErrSelector)
		}
		if n += len(part); n > SelectorBytesMax {
			return fmt.Errorf("%w: it has more than %d bytes; use a tag or shorter prefixes", ErrSelector, SelectorBytesMax)
		}
	}
	switch {
	case n == 0:
		return fmt.Errorf("%w: it has no tag, no prefix and no key; give it one of them", ErrSelector)
	case n > SelectorBytesMax:
		return fmt.Errorf("%w: its tag has more than %d bytes", ErrSelector, SelectorBytesMax)
	case s.Tag != "" && !tier.IsTag(s.Tag):
		return fmt.Errorf("%w: tag %q is not NAME%%VALUE without '@'", ErrSelector, s.Tag)
	}
	return nil
}

func (s Selector) empty() bool { return s.Tag == "" && len(s.Prefixes)+len(s.Keys) == 0 }

// matcher is a selector that is asked often.
type matcher struct {
	Selector
	named map[string]bool
}

func newMatcher(s Selector) *matcher {
	s.Keys = slices.Compact(slices.Sorted(slices.Values(s.Keys)))
	m := &matcher{Selector: s, named: make(map[string]bool, len(s.Keys))}
	for _, key := range s.Keys {
		m.named[key] = true
	}
	return m
}

func (m *matcher) matches(key string) bool { return m.named[key] || m.matchesUnnamed(key) }

// matchesUnnamed says whether a key is chosen by more than its name.
func (m *matcher) matchesUnnamed(key string) bool {
	return m.Tag != "" && tier.HasTag(key, m.Tag) ||
		slices.ContainsFunc(m.Prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// namedFrom is the cursor from which on a listing has the keys that are named.
const namedFrom = math.MaxUint64 - SelectorBytesMax
