package tensor

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"golang.org/x/sys/unix"
)

// putShard commits a shard of a tensor of uint16 whose elements are their positions.
func putShard(t testing.TB, s *Store, k Key, global []uint64, part box) {
	t.Helper()
	c, err := s.Create(k, []Tensor{{Name: "w", DType: "uint16", Shape: part.shape, Global: global, Offset: part.offset}})
	must(t, err)
	g := c.segments[0]
	mem, err := unix.Mmap(int(g.file.Fd()), 0, int(g.bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	fill(mem, global, part)
	must(t, unix.Munmap(mem))
	_, err = c.Commit()
	must(t, err)
}

// fill writes the elements of a part one by one, each by its coordinates.
func fill(mem []byte, global []uint64, part box) {
	at := make([]uint64, len(global))
	for i := range count(part.shape) {
		rest, number, stride := i, uint64(0), uint64(1)
		for d := len(global) - 1; d >= 0; d-- {
			at[d] = part.offset[d] + rest%part.shape[d]
			rest /= part.shape[d]
		}
		for d := len(global) - 1; d >= 0; d-- {
			number += at[d] * stride
			stride *= global[d]
		}
		binary.LittleEndian.PutUint16(mem[2*i:], uint16(number))
	}
}

func count(shape []uint64) uint64 {
	n := uint64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// wantSlice compares a slice with what its elements have to be.
func wantSlice(t testing.TB, s *Store, global []uint64, part box) {
	t.Helper()
	slab, err := s.Read(Slice{Deployment: "a", Version: 1, Name: "w", Offset: part.offset, Shape: part.shape})
	must(t, err)
	defer slab.Close()
	want := make([]byte, 2*count(part.shape))
	fill(want, global, part)
	if !slices.Equal(slab.segment.mem[:len(want)], want) {
		t.Fatalf("slice %v of %v is %v, want %v", part, global, slab.segment.mem[:min(64, len(want))], want[:min(64, len(want))])
	}
}

// cuts are all ways to cut n elements into runs.
func cuts(n uint64) (all [][]uint64) {
	for mask := range uint64(1) << (n - 1) {
		ends := []uint64{0}
		for i := uint64(1); i < n; i++ {
			if mask>>(i-1)&1 == 1 {
				ends = append(ends, i)
			}
		}
		all = append(all, append(ends, n))
	}
	return all
}

// grids are all ways to cut a tensor by planes: the shards of each.
func grids(global []uint64) (all [][]box) {
	all = [][]box{{{}}}
	for _, n := range global {
		var next [][]box
		for _, grid := range all {
			for _, ends := range cuts(n) {
				var finer []box
				for _, b := range grid {
					for i := range len(ends) - 1 {
						finer = append(finer, box{append(slices.Clone(b.offset), ends[i]), append(slices.Clone(b.shape), ends[i+1]-ends[i])})
					}
				}
				next = append(next, finer)
			}
		}
		all = next
	}
	return all
}

// parts are all boxes within a shape, also empty ones.
func parts(global []uint64) []box {
	all := []box{{}}
	for _, n := range global {
		var next []box
		for _, b := range all {
			for from := range n + 1 {
				for size := range n - from + 1 {
					next = append(next, box{append(slices.Clone(b.offset), from), append(slices.Clone(b.shape), size)})
				}
			}
		}
		all = next
	}
	return all
}

// Every slice of every layout, against element by element.
func TestEveryLayoutOfSmallTensors(t *testing.T) {
	t.Parallel()
	read := 0
	for _, global := range [][]uint64{{}, {5}, {3, 3}, {2, 2, 2}} {
		for _, grid := range grids(global) {
			s, err := Open(Options{MemoryBytes: 1 << 20})
			must(t, err)
			for rank, part := range grid {
				putShard(t, s, Key{"a", 1, uint32(rank)}, global, part)
			}
			for _, part := range parts(global) {
				wantSlice(t, s, global, part)
				read++
			}
			must(t, s.Close())
		}
	}
	if read < 1000 {
		t.Errorf("only %d slices", read)
	}
}

// Shards of any number of blocks, that overlap as replicas do, from memory and from disk.
func TestSlicesOfLargeShards(t *testing.T) {
	t.Parallel()
	base := scratch(t)
	s := open(t, roomy(base))
	global := []uint64{700, 3001} // each half has several blocks, and rows cross their ends
	whole := box{[]uint64{0, 0}, global}
	putShard(t, s, Key{"a", 1, 0}, global, box{[]uint64{0, 0}, []uint64{700, 1800}})
	putShard(t, s, Key{"a", 1, 1}, global, box{[]uint64{0, 1500}, []uint64{700, 1501}})
	offload(t, s, Key{"a", 1, 1})
	wantSlice(t, s, global, whole)
	rapid.Check(t, func(rt *rapid.T) {
		row, column := rapid.Uint64Range(0, 699).Draw(rt, "row"), rapid.Uint64Range(0, 3000).Draw(rt, "column")
		wantSlice(t, s, global, box{[]uint64{row, column}, []uint64{
			rapid.Uint64Range(0, min(5, 700-row)).Draw(rt, "rows"), rapid.Uint64Range(0, 3001-column).Draw(rt, "columns"),
		}})
	})
}

func TestSlicesThatCannotBeHad(t *testing.T) {
	s := open(t, roomy(scratch(t)))
	global := []uint64{4, 4}
	putShard(t, s, Key{"a", 1, 0}, global, box{[]uint64{0, 0}, []uint64{4, 2}})
	read := func(w Slice) error {
		w.Deployment = "a"
		slab, err := s.Read(w)
		if err == nil {
			slab.Close()
		}
		return err
	}
	must(t, read(Slice{Version: 1, Name: "w", Offset: []uint64{1, 0}, Shape: []uint64{2, 2}}))
	wantError(t, read(Slice{Version: 1, Name: "w"}), ErrHole)
	wantError(t, read(Slice{Version: 2, Name: "w"}), ErrNotFound)
	wantError(t, read(Slice{Version: 1, Name: "x"}), ErrNotFound)
	for _, w := range []Slice{
		{Offset: []uint64{0}, Shape: []uint64{1}}, {Offset: []uint64{0, 0}}, {Offset: []uint64{3, 0}, Shape: []uint64{2, 1}},
		{Offset: []uint64{1<<64 - 1, 0}, Shape: []uint64{1, 1}},
	} {
		w.Version, w.Name = 1, "w"
		wantError(t, read(w), ErrInvalid)
	}
	putShard(t, s, Key{"a", 1, 1}, []uint64{4, 5}, box{[]uint64{0, 2}, []uint64{4, 3}})
	wantError(t, read(Slice{Version: 1, Name: "w"}), ErrInvalid) // shards of different wholes
	if n := s.Stat().MemoryBytes; n != 2*4096 {
		t.Errorf("%d bytes of memory stay", n)
	}
}

// Boxes without another one are what is left of it, each element once.
func TestBoxesWithoutOthers(t *testing.T) {
	global := []uint64{3, 3}
	all := parts(global)
	for _, a := range all {
		for _, b := range all {
			part := a.intersect(b)
			if a.empty() || part.empty() {
				continue
			}
			seen := map[string]int{}
			for _, r := range append(a.without(part), part) {
				for i := range r.shape[0] {
					for j := range r.shape[1] {
						seen[fmt.Sprint(r.offset[0]+i, r.offset[1]+j)]++
					}
				}
			}
			if uint64(len(seen)) != count(a.shape) {
				t.Fatalf("%v without %v has %d elements", a, b, len(seen))
			}
			for at, n := range seen {
				if n != 1 {
					t.Fatalf("%v without %v has %s %d times", a, b, at, n)
				}
			}
		}
	}
}
