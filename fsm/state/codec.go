package state

import (
	"encoding/binary"
	"errors"
)

// errTruncated is what decoding fails with when bytes end or are not canonical.
var errTruncated = errors.New("row is truncated or malformed")

// codec turns rows into bytes and back by one description of each row: the same
// code method is run in both directions, so that they cannot drift apart. The
// encoding is canonical: equal rows have equal bytes, which protobuf does not
// promise, and which the state hash needs.
type codec struct {
	buf      []byte // what was encoded, or what is left to decode
	decoding bool
	err      error
	// trailing: the row that is encoded has come to its trailing fields; up to kept they
	// say something.
	trailing bool
	kept     int
}

func (c *codec) fail() {
	c.buf, c.err = nil, errTruncated
}

func (c *codec) uvarint() uint64 {
	v, n := binary.Uvarint(c.buf)
	if n <= 0 || n > 1 && c.buf[n-1] == 0 { // the second is a longer form of a shorter one
		c.fail()
		return 0
	}
	c.buf = c.buf[n:]
	return v
}

// number codes any unsigned integer.
func number[T ~uint8 | ~uint32 | ~uint64](c *codec, v *T) {
	if !c.decoding {
		c.buf = binary.AppendUvarint(c.buf, uint64(*v))
		return
	}
	u := c.uvarint()
	if *v = T(u); uint64(*v) != u {
		c.fail()
	}
}

// signed codes any signed integer, zig-zag.
func signed[T ~int32 | ~int64](c *codec, v *T) {
	u := uint64(*v)<<1 ^ uint64(int64(*v)>>63)
	number(c, &u)
	if c.decoding {
		i := int64(u>>1) ^ -int64(u&1)
		if *v = T(i); int64(*v) != i {
			c.fail()
		}
	}
}

func (c *codec) flag(v *bool) {
	var u uint8
	if *v {
		u = 1
	}
	number(c, &u)
	if !c.decoding {
		return // a row that is encoded is not written to: others may read it
	}
	if *v = u == 1; u > 1 {
		c.fail()
	}
}

// row encodes a row behind what has been encoded.
func (c *codec) row(r coder) {
	c.trailing = false
	r.code(c)
	if c.trailing {
		c.buf = c.buf[:c.kept]
	}
}

// trailing codes a field that a later feature level has added to the end of a row.
// Trailing fields are encoded up to the last that is not zero, so a row that says
// nothing new has the encoding, and the hash, that it had before there was the field. Only
// a row of a table can have them, not what lies within a row.
func trailing[T comparable](c *codec, v *T, code func(*codec, *T)) {
	if c.trails() {
		var zero T
		code(c, v)
		c.trailed(*v != zero)
	}
}

// trailingList is trailing for a list.
func trailingList[T any](c *codec, v *[]T, code func(*codec, *T)) {
	if c.trails() {
		list(c, v, code)
		c.trailed(len(*v) > 0)
	}
}

// trails reports whether a trailing field is coded: always when encoding, as row cuts
// off what says nothing.
func (c *codec) trails() bool {
	if !c.decoding && !c.trailing {
		c.trailing, c.kept = true, len(c.buf)
	}
	return !c.decoding || len(c.buf) > 0
}

// trailed notes whether the trailing field that was coded is set. The last of those
// that were encoded is.
func (c *codec) trailed(set bool) {
	switch {
	case set:
		c.kept = len(c.buf)
	case c.decoding && len(c.buf) == 0:
		c.fail()
	}
}

func (c *codec) bytes(v *[]byte) {
	n := uint64(len(*v))
	number(c, &n)
	if !c.decoding {
		c.buf = append(c.buf, *v...)
		return
	}
	*v = append([]byte(nil), c.take(n)...)
}

func (c *codec) text(v *string) {
	n := uint64(len(*v))
	number(c, &n)
	if !c.decoding {
		c.buf = append(c.buf, *v...)
		return
	}
	*v = string(c.take(n))
}

func (c *codec) take(n uint64) []byte {
	if n > uint64(len(c.buf)) {
		c.fail()
		return nil
	}
	b := c.buf[:n]
	c.buf = c.buf[n:]
	return b
}

// list codes a slice by its length and then each element.
func list[T any](c *codec, v *[]T, code func(*codec, *T)) {
	n := uint64(len(*v))
	number(c, &n)
	if c.decoding {
		if n > uint64(len(c.buf)) { // every element takes a byte at least
			c.fail()
			return
		}
		*v = nil
		if n > 0 {
			*v = make([]T, n)
		}
	}
	for i := range *v {
		code(c, &(*v)[i])
	}
}

// optional codes a row that need not be there.
func optional[T any](c *codec, v **T, code func(*T, *codec)) {
	has := *v != nil
	c.flag(&has)
	if !has {
		return
	}
	if c.decoding {
		*v = new(T)
	}
	code(*v, c)
}

// cores codes a core set without its empty tail.
func (c *codec) cores(s *CoreSet) {
	n := uint64(len(s))
	for n > 0 && s[n-1] == 0 {
		n--
	}
	number(c, &n)
	if n > uint64(len(s)) {
		c.fail()
		return
	}
	for i := range s[:n] {
		c.word(&s[i])
	}
	if c.decoding && n > 0 && s[n-1] == 0 {
		c.fail()
	}
}

func (c *codec) word(v *uint64) {
	if !c.decoding {
		c.buf = binary.LittleEndian.AppendUint64(c.buf, *v)
		return
	}
	if b := c.take(8); b != nil {
		*v = binary.LittleEndian.Uint64(b)
	}
}
