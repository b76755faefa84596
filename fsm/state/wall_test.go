package state

import (
	"reflect"
	"slices"
	"testing"
)

const testSecond = int64(1_000_000_000)

func TestTimesThatWereShownDoNotMove(t *testing.T) {
	var m Meta
	type shown struct{ log, wall int64 }
	var all []shown
	// Log time and wall time of entries, in seconds. The clock drifts, the leader is away
	// for a minute, the next one's clock is two seconds behind, and one does not know.
	for _, e := range [][2]int64{{1000, 1000}, {1100, 1100}, {1200, 1202}, {1201, 1261}, {1201, 1262}, {1300, 1360}, {1400, 0}, {1500, 1558}, {1490, 1559}} {
		m.Advance(e[0]*testSecond, e[1]*testSecond)
		if off := m.Wall.Wall(m.Now) - e[1]*testSecond; e[1] != 0 && e[0] != 1490 && (off < -testSecond || off > testSecond) {
			t.Errorf("at log time %d it is %d, and shown as %d", e[0], e[1], m.Wall.Wall(m.Now)/testSecond)
		}
		all = append(all, shown{m.Now, m.Wall.Wall(m.Now)})
		for _, s := range all {
			if now := m.Wall.Wall(s.log); now != s.wall {
				t.Errorf("after entry %v log time %d is shown as %d, and was as %d", e, s.log/testSecond, now/testSecond, s.wall/testSecond)
			}
		}
	}
	if want := (WallMarks{{1200 * testSecond, 2 * testSecond}, {1201 * testSecond, 60 * testSecond}, {1500 * testSecond, 58 * testSecond}}); !slices.Equal(m.Wall, want) {
		t.Errorf("marks are %v, want %v", m.Wall, want)
	}
}

func TestMarksAreBoundedAndShared(t *testing.T) {
	var m Meta
	for i := range int64(3 * wallMarksMax) {
		before := m
		kept := slices.Clone(m.Wall)
		m.Advance(1000+i, 1000+i+i*10*testSecond)
		if !slices.Equal(before.Wall, kept) {
			t.Fatal("the marks of an older state were changed")
		}
		if len(m.Wall) > wallMarksMax {
			t.Fatalf("%d marks", len(m.Wall))
		}
	}
	if w := m.Wall.Wall(1000); w != 1000 {
		t.Errorf("what was before all marks is shown as %d", w)
	}
	if !slices.IsSortedFunc(m.Wall, func(a, b WallMark) int { return int(a.At - b.At) }) {
		t.Errorf("marks are not in order: %v", m.Wall)
	}
	if last := m.Wall[len(m.Wall)-1]; last.AheadNS != (3*wallMarksMax-1)*10*testSecond {
		t.Errorf("the newest mark is %v", last)
	}
}

// What knows of no wall time is encoded as it was before there were marks.
func TestMetaIsEncodedWithMarksOnlyIfItHasSome(t *testing.T) {
	plain := &Meta{ClusterID: "c", Now: 5}
	var c codec
	c.row(plain)
	marked := *plain
	marked.Wall = WallMarks{{1, -2}, {3, 4}}
	var with codec
	with.row(&marked)
	if len(with.buf) <= len(c.buf) || !slices.Equal(with.buf[:len(c.buf)], c.buf) {
		t.Error("marks do not trail")
	}
	for want, buf := range map[*Meta][]byte{plain: c.buf, &marked: with.buf} {
		var got Meta
		d := codec{buf: slices.Clone(buf), decoding: true}
		if got.code(&d); d.err != nil || len(d.buf) > 0 || !reflect.DeepEqual(&got, want) {
			t.Errorf("decoded %+v, %v, want %+v", got, d.err, want)
		}
	}
}
