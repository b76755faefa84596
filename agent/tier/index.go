package tier

import (
	"container/list"
	"math/bits"
	"strings"

	"github.com/tidwall/btree"
)

// hash is the BLAKE3 hash of a value.
type hash [32]byte

// entry is a key. The entries of a block are a list.
type entry struct {
	key        string
	seq        uint64 // order of creation, for Scan
	expires    int64  // Unix time in ms; 0: never
	recorded   bool   // the manifest has it
	block      *block
	prev, next *entry
	age        *list.Element // in index.aged
}

// block is a value that is stored once. It is in memory, on disk or both, as long as an
// entry names it.
type block struct {
	hash    hash // once hashed, which it is before it comes to disk
	hashed  bool
	size    int
	sums    []uint32
	entries *entry // the first; nil: the block is gone
	used    uint64 // tick of the last use

	value *Value        // nil: not in memory
	queue *list.List    // in which it is while in memory: Store.clean or Store.dirty
	place *list.Element // in queue

	segment *segment // nil: not on disk
	offset  int64
	wrote   uint64        // tick when it came to disk
	rank    *list.Element // in Store.onDisk
	loading chan struct{} // closed when the read that is under way has ended
}

func (b *block) gone() bool { return b.entries == nil }

// inUse says whether a call uses the copy in memory, which then stays where it is.
func (b *block) inUse() bool { return b.value.refs.Load() > 1 }

const (
	// entryBytes is about what an entry and its block take of the heap, without the key.
	entryBytes = 400
	// tagBytes is about what a tag of an entry takes. Its text is part of the key.
	tagBytes = 80
)

// tagged is an entry under one of its tags.
type tagged struct {
	tag   string
	entry *entry
}

func beforeTagged(a, b tagged) bool {
	if order := strings.Compare(a.tag, b.tag); order != 0 {
		return order < 0
	}
	return a.entry.seq < b.entry.seq
}

// index finds entries by key, by tag, by age and by expiry. Its owner makes calls one at a time.
type index struct {
	byKey    map[string]*entry
	bySeq    *btree.Map[uint64, *entry]
	byExpiry *btree.BTreeG[*entry]
	byTag    *btree.BTreeG[tagged]
	aged     *list.List             // entries, last used first: those of one block do not age together
	blocks   map[fingerprint]*block // one of those that have it
	seq      uint64
	bytes    uint64 // of heap, estimated
	logical  uint64 // bytes of the values of all entries
	unique   uint64 // bytes of all blocks
}

func newIndex() index {
	return index{
		byKey: map[string]*entry{}, bySeq: &btree.Map[uint64, *entry]{}, aged: list.New(), blocks: map[fingerprint]*block{},
		byExpiry: btree.NewBTreeGOptions(func(a, b *entry) bool {
			return a.expires < b.expires || a.expires == b.expires && a.seq < b.seq
		}, btree.Options{NoLocks: true}),
		byTag: btree.NewBTreeGOptions(beforeTagged, btree.Options{NoLocks: true}),
	}
}

// fingerprint is what equal values have in common, and others only by chance.
type fingerprint struct {
	size int
	sum  uint32
}

func fingerprintOf(size int, sums []uint32) fingerprint {
	all := sums[0]
	for _, sum := range sums[1:] {
		all = bits.RotateLeft32(all, 5) ^ sum
	}
	return fingerprint{size, all}
}

// newBlock adds a block. Another one with its fingerprint stays the one that is found.
func (x *index) newBlock(size int, sums []uint32) *block {
	b := &block{size: size, sums: sums}
	if at := fingerprintOf(size, sums); x.blocks[at] == nil {
		x.blocks[at] = b
	}
	x.unique += uint64(size)
	return b
}

// dropBlock takes away a block without keys.
func (x *index) dropBlock(b *block) {
	if at := fingerprintOf(b.size, b.sums); x.blocks[at] == b {
		delete(x.blocks, at)
	}
	x.unique -= uint64(b.size)
}

// put makes a key name a block. What the key named before has to be unlinked.
func (x *index) put(e *entry, b *block) {
	e.block, e.prev, e.next = b, nil, b.entries
	if b.entries != nil {
		b.entries.prev = e
	}
	b.entries = e
	x.logical += uint64(b.size)
}

// unlink takes an entry off its block. The block may have no entry then.
func (x *index) unlink(e *entry) *block {
	b := e.block
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		b.entries = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	}
	e.block, e.prev, e.next = nil, nil, nil
	x.logical -= uint64(b.size)
	return b
}

func (x *index) add(key string) *entry {
	x.seq++
	e := &entry{key: key, seq: x.seq}
	x.byKey[key] = e
	x.bySeq.Set(e.seq, e)
	e.age = x.aged.PushFront(e)
	x.bytes += entryBytes + uint64(len(key))
	tagsOf(key, func(tag string) {
		x.byTag.Set(tagged{tag, e})
		x.bytes += tagBytes
	})
	return e
}

func (x *index) remove(e *entry) {
	x.setExpiry(e, 0)
	delete(x.byKey, e.key)
	x.bySeq.Delete(e.seq)
	x.aged.Remove(e.age)
	x.bytes -= entryBytes + uint64(len(e.key))
	tagsOf(e.key, func(tag string) {
		x.byTag.Delete(tagged{tag, e})
		x.bytes -= tagBytes
	})
}

func (x *index) setExpiry(e *entry, at int64) {
	if e.expires != 0 {
		x.byExpiry.Delete(e)
	}
	if e.expires = at; at != 0 {
		x.byExpiry.Set(e)
	}
}
