package tier

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"
	"golang.org/x/sys/unix"

	"rota/agent/internal/directio"
)

// pageBytes is what buffers, offsets and sizes of direct I/O are multiples of.
const pageBytes = directio.PageBytes

// padded is the size of a buffer for n bytes.
func padded(n int) int { return directio.Padded(n) }

// extent is a run of pages.
type extent struct{ size, offset int }

func smallerExtent(a, b extent) bool {
	return a.size < b.size || a.size == b.size && a.offset < b.offset
}

// arena gives out page runs of one mapping, the smallest free one that fits.
type arena struct {
	mu       sync.Mutex
	mem      []byte
	byOffset *btree.Map[int, int]  // free runs: offset to size, in bytes
	bySize   *btree.BTreeG[extent] // the same
	used     int                   // bytes
}

func newArena(bytes int) (*arena, error) {
	mem, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of memory: %w", bytes, err)
	}
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // fewer page faults, where the kernel has them
	a := &arena{mem: mem, byOffset: &btree.Map[int, int]{},
		bySize: btree.NewBTreeGOptions(smallerExtent, btree.Options{NoLocks: true})}
	a.insert(0, bytes)
	return a, nil
}

func (a *arena) insert(offset, size int) {
	a.byOffset.Set(offset, size)
	a.bySize.Set(extent{size, offset})
}

func (a *arena) remove(offset, size int) {
	a.byOffset.Delete(offset)
	a.bySize.Delete(extent{size, offset})
}

// value returns a buffer for n bytes, or nil if no free run is long enough.
func (a *arena) value(n int) *Value {
	need := padded(n)
	a.mu.Lock()
	defer a.mu.Unlock()
	var found extent
	a.bySize.Ascend(extent{size: need}, func(e extent) bool { found = e; return false })
	if found.size == 0 {
		return nil
	}
	a.remove(found.offset, found.size)
	if found.size > need {
		a.insert(found.offset+need, found.size-need)
	}
	a.used += need
	v := &Value{arena: a, offset: found.offset, size: n}
	v.refs.Store(1)
	return v
}

// free gives a run back and joins it with free neighbours.
func (a *arena) free(offset, size int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= size
	if next, ok := a.byOffset.Get(offset + size); ok {
		a.remove(offset+size, next)
		size += next
	}
	a.byOffset.Descend(offset, func(before, n int) bool {
		if before+n == offset {
			a.remove(before, n)
			offset, size = before, size+n
		}
		return false
	})
	a.insert(offset, size)
}

// freeBefore is how many bytes before an offset are free.
func (a *arena) freeBefore(offset int) (free int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byOffset.Descend(offset-1, func(start, n int) bool {
		if start+n == offset {
			free = n
		}
		return false
	})
	return free
}

// freeAfter is how many bytes from an offset on are free.
func (a *arena) freeAfter(offset int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	free, _ := a.byOffset.Get(offset)
	return free
}

func (a *arena) usedBytes() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}

// close unmaps the memory, unless a value is still in use somewhere.
func (a *arena) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used == 0 && a.mem != nil {
		_ = unix.Munmap(a.mem)
		a.mem = nil
	}
}

// Value is the bytes of a value in the memory of a store. Whoever gets one releases it.
type Value struct {
	arena  *arena
	offset int
	size   int
	refs   atomic.Int32
}

// Bytes are the bytes of the value. They may be written until the value is given to Set,
// and read until it is released.
func (v *Value) Bytes() []byte { return v.arena.mem[v.offset : v.offset+v.size : v.offset+v.size] }

// pages are the pages that the value is in.
func (v *Value) pages() []byte {
	n := padded(v.size)
	return v.arena.mem[v.offset : v.offset+n : v.offset+n]
}

// Release gives the value up. Its bytes may not be touched any more.
func (v *Value) Release() {
	switch n := v.refs.Add(-1); {
	case n == 0:
		v.arena.free(v.offset, padded(v.size))
	case n < 0:
		panic("tier: a value was released twice")
	}
}

// Retain lets another caller use the value, who releases it too.
func (v *Value) Retain() *Value { return v.retain() }

func (v *Value) retain() *Value {
	v.refs.Add(1)
	return v
}

// Shrink cuts a value that nobody else has yet to its first n bytes, and gives the pages
// behind them back.
func (v *Value) Shrink(n int) {
	had, has := padded(v.size), padded(n)
	v.size = n
	if has < had {
		v.arena.free(v.offset+has, had-has)
	}
}
