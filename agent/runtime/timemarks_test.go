package runtime

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// However long an attempt writes, its marks are bounded, and what they say of a byte is no earlier
// than it was written and no later than two marks after.
func TestMarksOfOutputAreBoundedAndNeverTooEarly(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		path := filepath.Join(dir, "times")
		_ = os.Remove(path)
		times := outputTimes{path: path}
		now, sizes := int64(1_000_000), [2]int64{}
		var written [2][]timeMark // what was there, and when
		for range rapid.SampledFrom([]int{3, 50, 3 * timeMarksMax}).Draw(rt, "sweeps") {
			now += sweepEvery.Milliseconds()
			i := now / 250 % 2
			sizes[i] += 1 + now%7
			written[i] = append(written[i], timeMark{Stdout + Stream(i), sizes[i], now})
			if err := times.note(Stdout+Stream(i), sizes[i], time.UnixMilli(now), time.UnixMilli(now)); err != nil {
				rt.Fatal(err)
			}
		}
		if st, err := os.Stat(path); err != nil || st.Size() > timeMarkBytes*timeMarksMax {
			rt.Fatalf("the file: %v, %v", st, err)
		}
		x := timeIndex{path: path}
		if err := x.refresh(); err != nil {
			rt.Fatal(err)
		}
		for i := range 2 {
			for _, w := range written[i] {
				mark, ok := x.of(i, w.size-1)
				if ok && (mark.at < w.at || mark.at > w.at+2*max(times.every, 2*sweepEvery.Milliseconds())) {
					rt.Fatalf("byte %d was written at %d, the mark says %d", w.size-1, w.at, mark.at)
				}
				if from := x.since(i, w.at); from > w.size-1 {
					rt.Fatalf("since %d begins at %d, and byte %d was written then", w.at, from, w.size-1)
				}
			}
		}
	})
}

// The times of a file are its command's to change.
func TestMarksDoNotBelieveTheFile(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	for said, want := range map[int64]int64{0: 999_500, 999_900: 999_900, 2_000_000: 1_000_000} {
		times := outputTimes{path: filepath.Join(t.TempDir(), "times")}
		if err := times.note(Stdout, 1, time.UnixMilli(said), now); err != nil || times.last[0].at != want {
			t.Errorf("the file says %d, the mark %d, want %d; %v", said, times.last[0].at, want, err)
		}
	}
}

func FuzzDecodeMarks(f *testing.F) {
	f.Add(appendMark(appendMark(nil, timeMark{Stdout, 5, 7}), timeMark{Stderr, 1, 9}))
	f.Fuzz(func(t *testing.T, b []byte) {
		x := timeIndex{marks: decodeMarks(b)}
		for i := range 2 {
			for n, m := range x.marks[i] {
				if n > 0 && (m.size <= x.marks[i][n-1].size || m.at < x.marks[i][n-1].at) || m.size <= 0 {
					t.Fatalf("mark %d is %v after %v", n, m, x.marks[i])
				}
			}
			if at := x.since(i, math.MaxInt64); at < 0 {
				t.Fatalf("begins at %d", at)
			}
		}
	})
}
