package state

import (
	"cmp"

	"github.com/tidwall/btree"
)

// set is a sorted set, and dict a sorted map. States that were copied from each other share them: the
// first write of each gives it one of its own. So a copy of a state costs little, and an entry pays for
// the tables and indexes that it changes and for no others.
//
// Neither may be copied but with its state: the copy would not be told that it is shared.
type (
	set[T any] struct {
		tree   *btree.BTreeG[T]
		shared bool
	}
	dict[K cmp.Ordered, V any] struct {
		tree   *btree.Map[K, V]
		shared bool
	}
)

func newSet[T any](less func(a, b T) bool) set[T] {
	return set[T]{tree: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

func newDict[K cmp.Ordered, V any]() dict[K, V] { return dict[K, V]{tree: new(btree.Map[K, V])} }

// own gives s a tree of its own. The copy is made of a copy of the root, as Copy writes to what it copies
// from, which others may be reading.
func (s *set[T]) own() {
	if s.shared {
		root := *s.tree
		s.tree, s.shared = root.Copy(), false
	}
}

func (d *dict[K, V]) own() {
	if d.shared {
		root := *d.tree
		d.tree, d.shared = root.Copy(), false
	}
}

// Set puts an item into s, in place of an equal one.
func (s *set[T]) Set(item T) {
	s.own()
	s.tree.Set(item)
}

// Delete takes an item out of s, if it is there.
func (s *set[T]) Delete(item T) {
	s.own()
	s.tree.Delete(item)
}

// Set stores a value, and returns the one that it replaces.
func (d *dict[K, V]) Set(k K, v V) (old V, replaced bool) {
	d.own()
	return d.tree.Set(k, v)
}

// Delete removes a value, and returns it.
func (d *dict[K, V]) Delete(k K) (old V, deleted bool) {
	d.own()
	return d.tree.Delete(k)
}

// What only reads goes to the tree. It must not be kept until after a write.

func (s *set[T]) Len() int                               { return s.tree.Len() }
func (s *set[T]) Get(item T) (T, bool)                   { return s.tree.Get(item) }
func (s *set[T]) GetAt(i int) (T, bool)                  { return s.tree.GetAt(i) }
func (s *set[T]) Min() (T, bool)                         { return s.tree.Min() }
func (s *set[T]) Scan(fn func(T) bool)                   { s.tree.Scan(fn) }
func (s *set[T]) Ascend(first T, fn func(T) bool)        { s.tree.Ascend(first, fn) }
func (s *set[T]) Descend(last T, fn func(T) bool)        { s.tree.Descend(last, fn) }
func (d *dict[K, V]) Len() int                           { return d.tree.Len() }
func (d *dict[K, V]) Get(k K) (V, bool)                  { return d.tree.Get(k) }
func (d *dict[K, V]) GetAt(i int) (K, V, bool)           { return d.tree.GetAt(i) }
func (d *dict[K, V]) Min() (K, V, bool)                  { return d.tree.Min() }
func (d *dict[K, V]) Keys() []K                          { return d.tree.Keys() }
func (d *dict[K, V]) Scan(fn func(K, V) bool)            { d.tree.Scan(fn) }
func (d *dict[K, V]) Ascend(first K, fn func(K, V) bool) { d.tree.Ascend(first, fn) }
func (d *dict[K, V]) Descend(last K, fn func(K, V) bool) { d.tree.Descend(last, fn) }
