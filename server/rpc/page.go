package rpc

import (
	"context"
	"encoding/base64"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	"rota/api/rights"
	"rota/fsm/state"
)

// Sizes of pages.
const (
	pageSizeDefault = 100
	pageSizeMax     = 1000
	// pageBytesMax ends a page early: 1,000 large rows would be more than a server should keep for a
	// client that reads slowly. The row that passes it is the last one.
	pageBytesMax = 4 << 20
	// scanMax bounds the rows that one page looks at when few of them match.
	// Such a page is short, but has a token to go on.
	scanMax = 100_000
)

// tokenBytes: the last ID of the page and a checksum of it and the query.
const tokenBytes = 16

// page is where in a list to go on, and how far.
type page struct {
	after uint64 // ID
	size  int
	query uint64 // hash of what is listed
}

// newPage decodes the place to go on from. A token is good for the list it came
// from: changing the filter between pages would silently skip rows. It is
// guarded against mistakes, not malice: all it could be forged into is another
// place in the same list.
func newPage(size uint32, token string, query ...uint64) (page, *violation) {
	p := page{size: int(size), query: hash(query)}
	switch {
	case size == 0:
		p.size = pageSizeDefault
	case size > pageSizeMax:
		return p, wrong("page_size", "must be at most %d, is %d", pageSizeMax, size)
	}
	if token == "" {
		return p, nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) != tokenBytes {
		return p, wrong("page_token", "is not one that a list has returned")
	}
	p.after = binary.BigEndian.Uint64(raw)
	if binary.BigEndian.Uint64(raw[8:]) != hash([]uint64{p.query, p.after}) {
		return p, wrong("page_token", "is not from this list: repeat the first page with the new filter")
	}
	return p, nil
}

// token encodes the place after the last row that was looked at.
func (p page) token(last uint64) string {
	raw := binary.BigEndian.AppendUint64(make([]byte, 0, tokenBytes), last)
	raw = binary.BigEndian.AppendUint64(raw, hash([]uint64{p.query, last}))
	return base64.RawURLEncoding.EncodeToString(raw)
}

func hash(values []uint64) uint64 {
	raw := make([]byte, 0, 64)
	for _, v := range values {
		raw = binary.BigEndian.AppendUint64(raw, v)
	}
	return xxhash.Sum64(raw)
}

func hashText(s string) uint64 { return xxhash.Sum64String(s) }

// collector fills one page.
type collector struct {
	page    page
	rows    int
	bytes   int // of the rows
	scanned int
	last    uint64
	more    bool
}

// visit is called with each row in turn; take puts it on the page and returns it, or
// nil if it does not belong there. It returns whether to go on.
func (c *collector) visit(id uint64, take func() proto.Message) bool {
	if c.full() || c.scanned == scanMax {
		c.more = true
		return false
	}
	c.last = id
	c.scanned++
	if row := take(); row != nil {
		c.add(row)
	}
	return true
}

// appendRow puts a row on a page, and is for what collector.visit calls.
func appendRow[Row proto.Message](rows *[]Row, row Row) proto.Message {
	*rows = append(*rows, row)
	return row
}

// full reports whether no other row fits.
func (c *collector) full() bool { return c.rows == c.page.size || c.bytes >= pageBytesMax }

// add counts a row that is on the page.
func (c *collector) add(row proto.Message) {
	c.rows++
	c.bytes += proto.Size(row)
}

// nextToken is empty if the list ends with the page.
func (c *collector) nextToken() string {
	if !c.more {
		return ""
	}
	return c.page.token(c.last)
}

// readable returns in which namespaces the caller of a list may read a noun. The list skips the rows of
// others while it looks for rows. Left out of its answer only, they would take up its page, down to a
// page with nothing but a token.
func readable(ctx context.Context, st *state.State, noun string) func(state.NamespaceID) bool {
	c := callerOf(ctx)
	if c == nil || c.may.Allows(noun, rights.Read, "") {
		return func(state.NamespaceID) bool { return true }
	}
	known := map[state.NamespaceID]bool{}
	return func(id state.NamespaceID) bool {
		may, looked := known[id]
		if !looked {
			ns := st.Namespace(id)
			may = ns != nil && c.may.Allows(noun, rights.Read, ns.Name)
			known[id] = may
		}
		return may
	}
}
