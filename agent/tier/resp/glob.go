package resp

import "strings"

// patternMax is the longest pattern in bytes; a longer one matches nothing.
const patternMax = 1 << 10

// glob says whether a key matches a pattern of Redis, byte by byte: * and ?, [abc],
// [^a], [a-z], and \ before what stands for itself.
func glob(pattern, key string) bool {
	if len(pattern) > patternMax {
		return false
	}
	// After a mismatch, the last star takes one byte more.
	p, star, from := 0, -1, 0
	for i := 0; i < len(key); {
		if p < len(pattern) && pattern[p] == '*' {
			star, from = p, i
			p++
			continue
		}
		if n := matchOne(pattern[p:], key[i]); n > 0 {
			p += n
			i++
			continue
		}
		if star < 0 {
			return false
		}
		from++
		p, i = star+1, from
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// matchOne returns how much of the pattern one byte matches; 0 for nothing.
func matchOne(pattern string, c byte) int {
	switch {
	case pattern == "":
		return 0
	case pattern[0] == '?':
		return 1
	case pattern[0] == '[':
		end := strings.IndexByte(pattern, ']')
		if end < 0 || !inClass(pattern[1:end], c) {
			return 0
		}
		return end + 1
	case pattern[0] == '\\' && len(pattern) > 1:
		if pattern[1] != c {
			return 0
		}
		return 2
	case pattern[0] != c:
		return 0
	}
	return 1
}

func inClass(class string, c byte) bool {
	rest, negated := strings.CutPrefix(class, "^")
	for len(rest) > 0 {
		low, high, n := rest[0], rest[0], 1
		if len(rest) > 2 && rest[1] == '-' {
			high, n = rest[2], 3
		}
		if low <= c && c <= high {
			return !negated
		}
		rest = rest[n:]
	}
	return negated
}
