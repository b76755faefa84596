package tier

import (
	"fmt"
	"testing"
	"time"
)

// Keys of one value age each for itself: of a trajectory that is over, the keys go, though others
// with the same value are in use.
func TestKeysOfOneValueAge(t *testing.T) {
	dir := t.TempDir()
	s := open(t, small(dir))
	const keys, recent = 1000, 40
	for i := range keys {
		set(t, s, fmt.Sprint("value", i), fmt.Append(nil, i))
		set(t, s, fmt.Sprint("metadata", i), []byte("equal"))
		wantValue(t, s, "metadata0", []byte("equal")) // used, and so it stays
	}
	check := func() {
		t.Helper()
		wantValue(t, s, "metadata0", []byte("equal"))
		wantValue(t, s, "metadata1", nil)
		wantValue(t, s, "value0", nil)
		for i := keys - recent; i < keys; i++ {
			wantValue(t, s, fmt.Sprint("value", i), fmt.Append(nil, i))
			wantValue(t, s, fmt.Sprint("metadata", i), []byte("equal"))
		}
	}
	check()
	if st := s.Stat(); st.Evicted == 0 {
		t.Errorf("%+v", st)
	}
	must(t, s.Close())
	s = open(t, small(dir))
	check()
	set(t, s, "old", []byte("old"))
	flush(t, s)
	for i := range 10 {
		set(t, s, fmt.Sprint("new", i), []byte("equal"))
	}
	flush(t, s)
	must(t, s.Close())
	s = open(t, small(dir))
	s.mu.Lock()
	var order []string
	for age := s.index.aged.Front(); age != nil && len(order) < 11; age = age.Next() {
		order = append(order, age.Value.(*entry).key)
	}
	s.mu.Unlock()
	if len(order) < 11 || order[0] != "new9" || order[9] != "new0" || order[10] != "old" {
		t.Errorf("the next store has the keys in the order %q", order)
	}
}

// A key that has just expired takes its block with it, though it is set to the same value.
func TestAnEqualValueUnderAKeyThatHasExpired(t *testing.T) {
	o := small(t.TempDir())
	clock := newClock()
	o.Now = clock.Now
	s := open(t, o)
	_, err := setUntil(s, "key", text(1, 5000), clock.Now().Add(time.Second), Always)
	must(t, err)
	clock.advance(2 * time.Second)
	set(t, s, "key", text(1, 5000))
	set(t, s, "other", text(1, 5000))
	wantValue(t, s, "key", text(1, 5000))
	if st := s.Stat(); st.UniqueBytes != 5000 || st.LogicalBytes != 10_000 || st.MemoryItems != 1 {
		t.Errorf("%+v", st)
	}
}
