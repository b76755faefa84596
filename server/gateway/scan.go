package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// errJSON means that a text is not the JSON object that it should be.
var errJSON = errors.New("not valid JSON")

// span is a part of a text, by offsets.
type span struct{ start, end int }

func (s span) of(b []byte) []byte { return b[s.start:s.end] }
func (s span) empty() bool        { return s.start == s.end }

// members iterates over the members of a JSON object without decoding their values. It checks
// strings and the nesting of brackets; what else is wrong inside a value is for its reader.
type members struct {
	b   []byte
	pos int
	// key is the name of the current member, without quotes and escapes.
	key []byte
	// val is its value.
	val span
	// member is all of it, from its key on, with the comma before it, if there is one.
	member span
	err    error
	began  bool
}

// object begins at the offset of a value. It finds nothing in a value that is not an object.
func object(b []byte, at int) members {
	m := members{b: b, pos: skipSpace(b, at)}
	if m.pos >= len(b) || b[m.pos] != '{' {
		m.err = fmt.Errorf("%w: an object is expected", errJSON)
	}
	m.pos++
	return m
}

// next moves to the next member. At the end pos is behind the closing bracket.
func (m *members) next() bool {
	if m.err != nil {
		return false
	}
	m.pos = skipSpace(m.b, m.pos)
	if m.pos >= len(m.b) {
		return m.fail("it ends too early")
	}
	first := !m.began
	m.began = true
	m.member.start = m.pos
	switch c := m.b[m.pos]; {
	case c == '}':
		m.pos++
		return false
	case c == ',' && !first:
		m.pos = skipSpace(m.b, m.pos+1)
	case !first:
		return m.fail("a comma is missing")
	}
	return m.readKey() && m.readValue()
}

func (m *members) readKey() bool {
	end, ok := skipString(m.b, m.pos)
	if !ok {
		return m.fail("the name of a member is expected")
	}
	m.key = m.b[m.pos+1 : end-1]
	if bytes.IndexByte(m.key, '\\') >= 0 {
		var plain string
		if json.Unmarshal(m.b[m.pos:end], &plain) != nil {
			return m.fail("the name of a member has a wrong escape")
		}
		m.key = []byte(plain)
	}
	m.pos = skipSpace(m.b, end)
	if m.pos >= len(m.b) || m.b[m.pos] != ':' {
		return m.fail("a colon is missing")
	}
	m.pos = skipSpace(m.b, m.pos+1)
	return true
}

func (m *members) readValue() bool {
	end, ok := skipValue(m.b, m.pos)
	if !ok {
		return m.fail("a value is expected")
	}
	m.val = span{m.pos, end}
	m.pos, m.member.end = end, end
	return true
}

func (m *members) fail(what string) bool {
	m.err = fmt.Errorf("%w: %s at byte %d", errJSON, what, m.pos)
	return false
}

// elements iterates over the elements of a JSON array.
type elements struct {
	b     []byte
	pos   int
	val   span
	began bool
	err   error
}

func array(b []byte, at int) elements {
	e := elements{b: b, pos: skipSpace(b, at)}
	if e.pos >= len(b) || b[e.pos] != '[' {
		e.err = fmt.Errorf("%w: an array is expected", errJSON)
	}
	e.pos++
	return e
}

func (e *elements) next() bool {
	if e.err != nil {
		return false
	}
	e.pos = skipSpace(e.b, e.pos)
	if e.pos < len(e.b) && e.b[e.pos] == ']' {
		e.pos++
		return false
	}
	if e.began {
		if e.pos >= len(e.b) || e.b[e.pos] != ',' {
			e.err = fmt.Errorf("%w: a comma is missing at byte %d", errJSON, e.pos)
			return false
		}
		e.pos = skipSpace(e.b, e.pos+1)
	}
	e.began = true
	end, ok := skipValue(e.b, e.pos)
	if !ok {
		e.err = fmt.Errorf("%w: a value is expected at byte %d", errJSON, e.pos)
		return false
	}
	e.val = span{e.pos, end}
	e.pos = end
	return true
}

func skipSpace(b []byte, at int) int {
	for at < len(b) && (b[at] == ' ' || b[at] == '\n' || b[at] == '\t' || b[at] == '\r') {
		at++
	}
	return at
}

// skipString returns the offset behind the string that begins at an offset.
func skipString(b []byte, at int) (int, bool) {
	if at >= len(b) || b[at] != '"' {
		return at, false
	}
	begin := at + 1
	for at = begin; ; at++ {
		i := bytes.IndexByte(b[at:], '"')
		if i < 0 {
			return len(b), false
		}
		at += i
		escapes := 0
		for at-escapes > begin && b[at-escapes-1] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return at + 1, true
		}
	}
}

// skipValue returns the offset behind the value that begins at an offset.
func skipValue(b []byte, at int) (end int, ok bool) {
	if at >= len(b) {
		return at, false
	}
	switch b[at] {
	case '"':
		return skipString(b, at)
	case '{', '[':
		return skipNested(b, at)
	}
	end = at
	for end < len(b) && literal(b[end]) {
		end++
	}
	return end, end > at
}

// literal reports whether a byte may be in a number, true, false or null. NaN and Infinity are
// what Python writes.
func literal(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '+' || c == '.'
}

// depthMax bounds how deep values are nested: the kinds of open brackets are bits.
const depthMax = 512

// skipNested skips an object or an array, with the brackets in it.
func skipNested(b []byte, at int) (int, bool) {
	var objects [depthMax / 64]uint64
	for depth := 0; at < len(b); at++ {
		switch c := b[at]; c {
		case '"':
			end, ok := skipString(b, at)
			if !ok {
				return end, false
			}
			at = end - 1
		case '{', '[':
			if depth == depthMax {
				return at, false
			}
			bit := uint64(1) << (depth % 64)
			objects[depth/64] &^= bit
			if c == '{' {
				objects[depth/64] |= bit
			}
			depth++
		case '}', ']':
			depth--
			if isObject := objects[depth/64]>>(depth%64)&1 == 1; isObject != (c == '}') {
				return at, false
			}
			if depth == 0 {
				return at + 1, true
			}
		}
	}
	return at, false
}

// isString reports whether a value is a string, and returns its inside, still escaped.
func isString(v []byte) (inside []byte, ok bool) {
	if len(v) < 2 || v[0] != '"' {
		return nil, false
	}
	return v[1 : len(v)-1], true
}

// isNull reports whether a value is null, or is not there at all.
func isNull(v []byte) bool { return len(v) == 0 || string(v) == "null" }

// unsigned reads a whole number that is not negative.
func unsigned(v []byte) (n uint64, ok bool) {
	if len(v) == 0 || len(v) > 18 {
		return 0, false
	}
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}

// edit replaces a part of a text.
type edit struct {
	at   span
	with []byte
}

// edited appends a text to dst with some of its parts replaced. Edits are in order and do not
// overlap.
func edited(dst, text []byte, edits []edit) []byte {
	at := 0
	for _, e := range edits {
		dst = append(dst, text[at:e.at.start]...)
		dst = append(dst, e.with...)
		at = e.at.end
	}
	return append(dst, text[at:]...)
}

// editedLen is how long the text becomes.
func editedLen(text []byte, edits []edit) int {
	n := len(text)
	for _, e := range edits {
		n += len(e.with) - (e.at.end - e.at.start)
	}
	return n
}
