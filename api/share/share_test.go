package share

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestRoom(t *testing.T) {
	for _, c := range []struct {
		name            string
		max, total, own int
		want            bool
	}{
		{"nothing is held", 8, 0, 0, true},
		{"alone, below half", 8, 3, 3, true},
		{"alone, at half", 8, 4, 4, false},
		{"a newcomer beside half", 8, 4, 0, true},
		{"as much as is free", 8, 6, 2, false},
		{"the last one goes to a newcomer", 8, 7, 0, true},
		{"but to no key that has one", 8, 7, 1, false},
		{"full", 8, 8, 0, false},
		{"above the maximum, which was lowered", 8, 11, 0, false},
		{"no things at all", 0, 0, 0, false},
	} {
		if got := Room(c.max, c.total, c.own); got != c.want {
			t.Errorf("%s: Room(%d, %d, %d) = %v, want %v", c.name, c.max, c.total, c.own, got, c.want)
		}
	}
}

// takeAll takes slots for a key until it is refused.
func takeAll[K comparable](s *Slots[K], k K) (releases []func()) {
	for {
		release, ok := s.Take(k)
		if !ok {
			return releases
		}
		releases = append(releases, release)
	}
}

func TestOneKeyAloneGetsLessThanAll(t *testing.T) {
	for _, c := range []struct{ max, want int }{{1, 1}, {2, 1}, {3, 2}, {4, 2}, {64, 24}, {1024, 384}} {
		if got := len(takeAll(New[string](c.max), "a")); got != c.want {
			t.Errorf("of %d slots, a key that is alone gets %d, want %d", c.max, got, c.want)
		}
	}
}

func TestNewcomersFindRoomBesideGreedyKeys(t *testing.T) {
	const slots = 1024
	s := New[int](slots)
	for k := range slots/firstsPart + 1 {
		if len(takeAll(s, k)) == 0 {
			t.Fatalf("key %d got nothing", k)
		}
	}
}

func TestTakeUpToBoundsAKey(t *testing.T) {
	s := New[string](100)
	for range 3 {
		if _, ok := s.TakeUpTo("a", 3); !ok {
			t.Fatal("refused below its bound")
		}
	}
	if _, ok := s.TakeUpTo("a", 3); ok {
		t.Fatal("a fourth slot")
	}
	if _, ok := s.TakeUpTo("b", 3); !ok {
		t.Fatal("the bound of one key refuses another")
	}
}

func TestReleaseTwiceReleasesOnce(t *testing.T) {
	s := New[string](8)
	releases := takeAll(s, "a")
	releases[0]()
	releases[0]()
	if got := len(takeAll(s, "a")); got != 1 {
		t.Fatalf("%d slots are free after one was released twice, want 1", got)
	}
}

func TestConcurrentUseReturnsEverySlot(t *testing.T) {
	s := New[int](16)
	var wg sync.WaitGroup
	for k := range 8 {
		wg.Go(func() {
			for range 100 {
				for _, release := range takeAll(s, k) {
					release()
				}
			}
		})
	}
	wg.Wait()
	if s.total != 0 || len(s.held) != 0 {
		t.Fatalf("%d slots of %d keys are still held", s.total, len(s.held))
	}
}

// TestWhatIsFreeAfterAnyHistory tests what Room promises.
func TestWhatIsFreeAfterAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 64).Draw(t, "max")
		held, total := map[int]int{}, 0
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				k := rapid.IntRange(0, 7).Draw(t, "key")
				for range rapid.IntRange(1, limit).Draw(t, "times") {
					if Room(limit, total, held[k]) {
						held[k]++
						total++
					}
				}
			},
			"return": func(t *rapid.T) {
				k := rapid.IntRange(0, 7).Draw(t, "key")
				n := rapid.IntRange(0, held[k]).Draw(t, "n")
				total -= n
				if held[k] -= n; held[k] == 0 {
					delete(held, k)
				}
			},
			"": func(t *rapid.T) {
				if free := limit - total; free < limit>>len(held) {
					t.Fatalf("%d of %d are free while %d keys hold some", free, limit, len(held))
				}
			},
		})
	})
}

// TestNewcomersFindRoomAfterAnyHistory tests what Slots promises, and that it keeps only keys in use.
func TestNewcomersFindRoomAfterAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 64).Draw(t, "max")
		s, held := New[int](limit), map[int][]func(){}
		newcomer := -1
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				k := rapid.IntRange(0, 20).Draw(t, "key")
				for range rapid.IntRange(1, limit).Draw(t, "times") {
					if release, ok := s.Take(k); ok {
						held[k] = append(held[k], release)
					}
				}
			},
			"release": func(t *rapid.T) {
				k := rapid.IntRange(0, 20).Draw(t, "key")
				for range rapid.IntRange(0, len(held[k])).Draw(t, "times") {
					last := len(held[k]) - 1
					held[k][last]()
					held[k] = held[k][:last]
				}
				if len(held[k]) == 0 {
					delete(held, k)
				}
			},
			"": func(t *rapid.T) {
				total := 0
				for _, releases := range held {
					total += len(releases)
				}
				if s.total != total || len(s.held) != len(held) || total > limit {
					t.Fatalf("%d slots of %d keys are held, want %d of %d", s.total, len(s.held), total, len(held))
				}
				if len(held) > limit/firstsPart {
					return
				}
				release, ok := s.Take(newcomer)
				if !ok {
					t.Fatalf("a newcomer is refused beside %d keys, which hold %d of %d", len(held), total, limit)
				}
				release()
			},
		})
	})
}
