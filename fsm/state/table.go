package state

import (
	"cmp"

	"github.com/cespare/xxhash/v2"
)

// rowOf is a pointer to a row that describes its own encoding.
type rowOf[R any] interface {
	*R
	code(*codec)
}

// cell is a row with the hash of its encoding, kept so that replacing a row
// encodes only the new one.
type cell[R any] struct {
	row  *R
	hash uint64
}

// table is a copy-on-write map of rows. It knows its part of the state hash:
// the sum of the hashes of its rows, which no order of writes can change.
type table[K cmp.Ordered, R any, P rowOf[R]] struct {
	id   byte
	rows dict[K, cell[R]]
	hash uint64
}

func newTable[K cmp.Ordered, R any, P rowOf[R]](id byte) table[K, R, P] {
	return table[K, R, P]{id: id, rows: newDict[K, cell[R]]()}
}

func (t *table[K, R, P]) get(k K) *R {
	c, _ := t.rows.Get(k)
	return c.row
}

// put stores a row, which must not be changed any more, and returns the one it
// replaces.
func (t *table[K, R, P]) put(c *codec, k K, r *R) *R {
	h := hashRow(c, t.id, P(r))
	old, _ := t.rows.Set(k, cell[R]{r, h})
	t.hash += h - old.hash
	return old.row
}

func (t *table[K, R, P]) delete(k K) *R {
	old, _ := t.rows.Delete(k)
	t.hash -= old.hash
	return old.row
}

// scan visits the rows with keys from first on until fn returns false.
func (t *table[K, R, P]) scan(first K, fn func(*R) bool) {
	t.rows.Ascend(first, func(_ K, c cell[R]) bool { return fn(c.row) })
}

// scanDown visits the rows with keys up to last, the greatest first, until fn returns false.
func (t *table[K, R, P]) scanDown(last K, fn func(*R) bool) {
	t.rows.Descend(last, func(_ K, c cell[R]) bool { return fn(c.row) })
}

// hashRow hashes a row together with the number of its table. The codec is the
// state's own, so that nothing is allocated.
func hashRow(c *codec, table byte, r coder) uint64 {
	c.buf = append(c.buf[:0], table)
	c.row(r)
	return xxhash.Sum64(c.buf)
}
