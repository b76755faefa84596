package state

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

const sec int64 = 1_000_000_000

// Whatever providers say, a quota grants at least a unit and at most its limit, an unused key is
// good for any call, no pause is longer than the longest, and once calls succeed all of the limit
// comes back.
func TestPressureBounds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		q := &Quota{
			Name: "q", Limit: rapid.Uint32Range(1, 1_000_000_000).Draw(r, "limit"), Keys: 3, Uses: make([]KeyUse, 3), Adaptive: true,
			WindowNS: rapid.SampledFrom([]int64{0, sec, 24 * 3600 * sec}).Draw(r, "window"),
		}
		now := int64(0)
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			now += rapid.Int64Range(0, 100*sec).Draw(r, "passed")
			key, began := rapid.Uint32Range(0, 2).Draw(r, "key"), now-rapid.Int64Range(0, min(now, 50*sec)).Draw(r, "ran")
			if rapid.Bool().Draw(r, "refused") {
				q = q.Refused(key, began, now, rapid.Int64Range(0, 1<<62).Draw(r, "retry"))
			} else {
				q = q.Succeeded(key, rapid.Uint32Range(1, q.Limit).Draw(r, "units"), began, now)
			}
			checkPressed(r, q, now)
		}
		for step := 0; len(q.Pressures) > 0; step++ {
			if step > 1000 {
				r.Fatalf("a thousand rounds of success bring the limit back only to %+v", q.Pressures)
			}
			now += PauseNSMax
			for _, p := range slices.Clone(q.Pressures) {
				q = q.Succeeded(p.Key, q.Effective(p.Key), now, now)
			}
			checkPressed(r, q, now)
		}
		if q.AllEffective() != uint64(q.Limit)*3 {
			r.Errorf("nothing is pressed, and %d of %d may be in use", q.AllEffective(), q.Limit)
		}
	})
}

func checkPressed(r *rapid.T, q *Quota, now int64) {
	if err := q.checkPressures(); err != nil {
		r.Fatal(err)
	}
	for key := range q.Keys {
		if e := q.Effective(key); e < 1 || e > q.Limit {
			r.Fatalf("%d units of key %d may be in use, of %d", e, key, q.Limit)
		}
		until := q.PausedUntil(key)
		if until > now+PauseNSMax {
			r.Fatalf("key %d is paused for %d ns", key, until-now)
		}
		if free := q.Free(key, q.Limit, until); free != q.Limit {
			r.Fatalf("key %d is not used, and a call gets %d units of %d", key, free, q.Limit)
		}
		if until > now && (q.Free(key, 1, now) > 0 || q.WakeAt == 0 || q.WakeAt > until) {
			r.Fatalf("key %d is paused until %d, and %d units are free; the quota is looked at at %d", key, until, q.Free(key, 1, now), q.WakeAt)
		}
	}
}

// A burst of refusals counts once, however late the last of it ends; a refusal without a time
// doubles the pause.
func TestPressureOfABurst(t *testing.T) {
	q := &Quota{Name: "q", Limit: 100, Keys: 1, Uses: make([]KeyUse, 1), Adaptive: true}
	for at := range int64(50) {
		q = q.Refused(0, 0, at*sec, 0)
	}
	if q.Effective(0) != 50 || q.PausedUntil(0) != sec || q.Throttled != 50 {
		t.Errorf("after a burst: %+v", q)
	}
	for _, want := range []struct {
		limit uint32
		pause int64
	}{{25, 2}, {12, 4}, {6, 8}, {3, 16}, {1, 32}, {1, 64}, {1, 64}} {
		now := q.PausedUntil(0)
		q = q.Refused(0, now, now, 0)
		if q.Effective(0) != want.limit || q.PausedUntil(0) != now+want.pause*sec {
			t.Errorf("%d of 100 may be in use after a pause of %d, want %+v", q.Effective(0), q.PausedUntil(0)-now, want)
		}
	}
	q = q.Succeeded(0, 1, q.PausedUntil(0), q.PausedUntil(0))
	if now := q.PausedUntil(0); q.Refused(0, now, now, 0).PausedUntil(0) != now+sec {
		t.Error("a success did not shorten the next pause")
	}
}
