package gpuhealth

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestXIDs: those of applications change nothing, and critical ones stay.
func TestXIDs(t *testing.T) {
	j := New(2, ClearAfter)
	for _, xid := range []uint64{13, 31, 43, 45, 63, 94, 154, 9999} {
		if j.Happened(0, 0, xid) || len(j.Sick()) > 0 {
			t.Errorf("XID %d makes a GPU sick: %v", xid, j.Sick())
		}
	}
	if !j.Happened(second, 1, 79) {
		t.Error("XID 79 is not new")
	}
	if j.Happened(2*second, 1, 79) {
		t.Error("XID 79 again within a second is another event")
	}
	j.Read(3600*second, 1)
	want := []Sick{{1, "XID 79 (fallen off the bus)"}}
	if got := j.Sick(); !reflect.DeepEqual(got, want) {
		t.Errorf("an hour later %v, want %v", got, want)
	}
	j.Happened(3600*second, 1, 79)
	if got := j.Sick(); len(got) != 1 || got[0].Reason != "XID 79 (fallen off the bus), 2 times" {
		t.Errorf("a second event says %v", got)
	}
	next := New(2, ClearAfter)
	next.Remember(j.Events())
	if got := next.Sick(); !reflect.DeepEqual(got, j.Sick()) {
		t.Errorf("the next process says %v, want %v", got, j.Sick())
	}
	smaller := New(1, ClearAfter)
	if smaller.Remember(j.Events()); len(smaller.Sick()) > 0 {
		t.Errorf("GPU 1 of 1 is sick: %v", smaller.Sick())
	}
}

// TestConditions is a table of what is seen each second, '.' nothing and 'x' the condition, and
// when the GPU is sick.
func TestConditions(t *testing.T) {
	for name, c := range map[string]struct {
		condition  Condition
		clear      int
		seen, sick string
	}{
		"at once":                         {Lost, 3, "..x....", "..111.."},
		"comes back before it is gone":    {Lost, 3, "x..x...", "11111100"[:7]},
		"a link is trained anew":          {LinkDown, 60, "xxxxx.....", "0000000000"},
		"a link that stays down":          {LinkDown, 2, "xxxxxxxxxxxx...", "000000000011100"[:15]},
		"a link that flaps counts as one": {LinkDown, 3, "x.x.x.x.x.x.x", "0000000000111"},
	} {
		j, got := New(1, int64(c.clear)*second), ""
		for i, s := range c.seen {
			var holding []Condition
			if s == 'x' {
				holding = append(holding, c.condition)
			}
			j.Read(int64(i)*second, 0, holding...)
			got += map[bool]string{false: "0", true: "1"}[len(j.Sick()) > 0]
		}
		if want := strings.ReplaceAll(c.sick, ".", "0"); got != want {
			t.Errorf("%s: sick %s, want %s", name, got, want)
		}
	}
}

// TestNoFlapping: whatever is read, a GPU that becomes well has shown nothing for as long as it
// has to, and one that shows something that counts at once is sick.
func TestNoFlapping(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		j, now, last, was := New(1, ClearAfter), int64(0), -ClearAfter, false
		for range rapid.IntRange(1, 80).Draw(r, "readings") {
			now += rapid.Int64Range(1, 30).Draw(r, "s") * second
			bad := rapid.IntRange(0, 3).Draw(r, "bad") == 0
			if j.Read(now, 0); bad {
				j.Read(now, 0, RemapPending)
				last = now
			}
			is := len(j.Sick()) > 0
			if bad && !is || was && !is && now-last < ClearAfter || !was && is && !bad {
				r.Fatalf("at %d: sick %v, before %v, seen now %v, seen last at %d", now, is, was, bad, last)
			}
			was = is
		}
	})
}

// TestReasons are together, and no longer than the cluster takes.
func TestReasons(t *testing.T) {
	j := New(1, ClearAfter)
	j.Read(0, 0, Uncorrected, RemapFailed)
	j.Happened(0, 0, 95)
	if got, want := j.Sick()[0].Reason, "XID 95 (uncontained ECC error), row remapping failed, uncorrected ECC errors"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	j.Read(0, 0, Stated(strings.Repeat("ä", 500)), Stated("another"), Stated("one more"))
	if got := j.Sick()[0].Reason; len(got) > reasonMax || !strings.HasSuffix(got, "...") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

func TestParseStated(t *testing.T) {
	got, err := ParseStated("# sick\n\n3 XID 79\n 0  fan \n3 ECC\n1\n", 4)
	want := map[int][]Condition{3: {"XID 79", "ECC"}, 0: {"fan"}, 1: {statedOtherwise}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"4 XID 79", "-1 x", "all", "1,2 fan", "3XID"} {
		if got, err := ParseStated(bad, 4); !errors.Is(err, ErrStated) {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
}
