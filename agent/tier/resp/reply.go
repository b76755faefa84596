package resp

import (
	"strconv"
	"strings"
)

func appendNumber(b []byte, kind byte, n int64) []byte {
	return strconv.AppendInt(append(b, kind), n, 10)
}

func (c *conn) line(kind byte, n int64) {
	c.out = append(appendNumber(c.out, kind, n), '\r', '\n')
}

func (c *conn) status(s string) { c.out = append(append(append(c.out, '+'), s...), '\r', '\n') }
func (c *conn) number(n int64)  { c.line(':', n) }
func (c *conn) array(n int)     { c.line('*', int64(n)) }

// fail answers with an error, which is one line.
func (c *conn) fail(s string) {
	s = strings.Map(func(r rune) rune {
		if r == '\r' || r == '\n' {
			return ' '
		}
		return r
	}, s)
	c.out = append(append(append(c.out, '-'), s...), '\r', '\n')
}

func (c *conn) bulk(s string) {
	c.line('$', int64(len(s)))
	c.out = append(append(c.out, s...), '\r', '\n')
	c.bound()
}

func (c *conn) null() {
	if c.resp3 {
		c.out = append(c.out, "_\r\n"...)
		return
	}
	c.out = append(c.out, "$-1\r\n"...)
}

// pairs begins n pairs: a map in RESP3, an array of twice as many before.
func (c *conn) pairs(n int) {
	if c.resp3 {
		c.line('%', int64(n))
		return
	}
	c.array(2 * n)
}
