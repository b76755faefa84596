package tier

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// fill sets values of 64 KiB until the memory is full, and reads them in another order.
func fill(t *testing.T, s *Store, values int) {
	t.Helper()
	for i := range values {
		set(t, s, fmt.Sprint(i), text(i, 64<<10))
	}
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(values) {
		s.Get(fmt.Sprint(i)).Release()
	}
}

// A value that is larger than others takes about as many bytes from memory as it has: neighbours in
// memory were not used one after another.
func TestALargeValueTakesOneWindow(t *testing.T) {
	s := open(t, Options{MemoryBytes: 64 << 20})
	values := len(s.arena.mem) / (64 << 10)
	fill(t, s, values)
	v, err := s.NewValue(4 << 20)
	must(t, err)
	defer v.Release()
	if left := s.Len(); left < values-66 || s.Stat().MemoryBytes > uint64(len(s.arena.mem)) {
		t.Errorf("%d of %d values are left, want %d", left, values, values-64)
	}
}

// Of equal values, the one that was used least recently goes.
func TestTheOldestGoes(t *testing.T) {
	s := open(t, Options{MemoryBytes: 4 << 20})
	values := len(s.arena.mem) / (64 << 10)
	fill(t, s, values)
	for i := range values {
		oldest := s.clean.Back().Value.(*block).entries.key
		set(t, s, fmt.Sprint("new", i), text(values+i, 64<<10))
		if s.Len() != values || s.index.byKey[oldest] != nil {
			t.Fatalf("%d of %d values are left, and of these %v", s.Len(), values, s.index.byKey[oldest])
		}
	}
}

// Values that calls use stay, and the large one is put between them, or refused.
func TestALargeValueGoesBetweenThoseInUse(t *testing.T) {
	s := open(t, Options{MemoryBytes: 16 << 20})
	values := len(s.arena.mem) / (64 << 10)
	fill(t, s, values)
	var used []*Value
	for i := 0; i < values; i += 32 {
		used = append(used, s.Get(fmt.Sprint(i)))
	}
	v, err := s.NewValue(31 * 64 << 10)
	must(t, err)
	v.Release()
	if left := s.Len(); left != values-31 {
		t.Errorf("%d of %d values are left, want %d", left, values, values-31)
	}
	if _, err = s.NewValue(32 * 64 << 10); err != ErrFull {
		t.Errorf("%v, want %v", err, ErrFull)
	}
	if left := s.Len(); left != values-31 {
		t.Errorf("%d of %d values are left after a value that does not fit", left, values)
	}
	for i, v := range used {
		wantValue(t, s, fmt.Sprint(32*i), v.Bytes())
		v.Release()
	}
}

// What is in memory only is written before it makes room for a large value.
func TestALargeValueLosesNothing(t *testing.T) {
	o := small(t.TempDir())
	o.MemoryBytes, o.DiskBytes = 16<<20, 64<<20
	s := open(t, o)
	values := len(s.arena.mem) / (64 << 10)
	fill(t, s, values)
	began := time.Now()
	v, err := s.NewValue(4 << 20)
	must(t, err)
	v.Release()
	if s.Len() != values || s.Stat().Evicted != 0 {
		t.Errorf("%d of %d values are left: %+v", s.Len(), values, s.Stat())
	}
	if s.waiters != 0 {
		t.Errorf("%d still wait, after %v", s.waiters, time.Since(began))
	}
	for i := range values {
		wantValue(t, s, fmt.Sprint(i), text(i, 64<<10))
	}
}
