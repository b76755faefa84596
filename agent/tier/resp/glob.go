package resp

import "strings"

// patternMax is the longest pattern in bytes; a longer one matches nothing.
const patternMax = 1 << 10

// byteSet is a set of bytes.
type byteSet [4]uint64

func (s *byteSet) add(low, high byte) {
	for c := int(low); c <= int(high); c++ {
		s[c/64] |= 1 << (c % 64)
	}
}

func (s *byteSet) has(c byte) bool { return s[c/64]&(1<<(c%64)) != 0 }

// pattern is a pattern of Redis, ready to be compared: * and ?, [abc], [^a], [a-z], and \ before what
// stands for itself. Each element is what one byte may be, or nil for any bytes.
type pattern []*byteSet

// compile reads a pattern; nothing matches one that is nil.
func compile(text string) pattern {
	if len(text) > patternMax {
		return nil
	}
	p := pattern{}
	for len(text) > 0 {
		if text[0] == '*' {
			if len(p) == 0 || p[len(p)-1] != nil {
				p = append(p, nil)
			}
			text = text[1:]
			continue
		}
		one, n := compileOne(text)
		p, text = append(p, one), text[n:]
	}
	return p
}

// compileOne reads what stands for one byte, and returns how much of the text that is.
func compileOne(text string) (*byteSet, int) {
	s := new(byteSet)
	switch {
	case text[0] == '?':
		s.add(0, 255)
		return s, 1
	case text[0] == '[':
		end := strings.IndexByte(text, ']')
		if end < 0 {
			return s, len(text) // nothing is in a class without end
		}
		s.addClass(text[1:end])
		return s, end + 1
	case text[0] == '\\' && len(text) > 1:
		s.add(text[1], text[1])
		return s, 2
	}
	s.add(text[0], text[0])
	return s, 1
}

func (s *byteSet) addClass(class string) {
	rest, negated := strings.CutPrefix(class, "^")
	for len(rest) > 0 {
		low, high, n := rest[0], rest[0], 1
		if len(rest) > 2 && rest[1] == '-' {
			high, n = rest[2], 3
		}
		s.add(low, high)
		rest = rest[n:]
	}
	if negated {
		for i := range s {
			s[i] = ^s[i]
		}
	}
}

// match says whether a key matches, byte by byte, and how many comparisons that took. There may be
// as many as the product of both lengths.
func (p pattern) match(key string) (matches bool, steps int) {
	if p == nil {
		return false, 1
	}
	// After a mismatch, the last star takes one byte more.
	at, star, from := 0, -1, 0
	for i := 0; i < len(key); steps++ {
		switch {
		case at < len(p) && p[at] == nil:
			star, from = at, i
			at++
		case at < len(p) && p[at].has(key[i]):
			at++
			i++
		case star < 0:
			return false, steps + 1
		default:
			from++
			at, i = star+1, from
		}
	}
	for at < len(p) && p[at] == nil {
		at++
	}
	return at == len(p), steps + 1
}

// glob says whether a key matches a pattern.
func glob(text, key string) bool {
	matches, _ := compile(text).match(key)
	return matches
}
