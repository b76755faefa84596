package container

import (
	"slices"
	"testing"
)

func TestWhichImagesAreRemoved(t *testing.T) {
	image := func(name, used string, parts ...string) *storedImage {
		i := &storedImage{name: name, parts: map[string]uint64{name: 1}}
		if used != "" {
			i.used = "2026-01-0" + used + "T00:00:00Z"
		}
		for _, p := range parts {
			i.parts[p] = 100
		}
		return i
	}
	busy := image("busy", "1", "a")
	busy.inUse = true
	unknown := image("unknown", "", "e")
	odd := image("odd", "", "f")
	odd.used = "yesterday"
	all := []*storedImage{image("new", "4", "b", "c"), image("old", "2", "b"), busy, image("older", "2", "a", "d"), unknown, odd}
	if got := bytesOf(all); got != 606 {
		t.Errorf("they take %d bytes", got)
	}
	for _, c := range []struct {
		less  uint64
		want  []string
		frees uint64
	}{
		{1, []string{"odd"}, 101},
		{101, []string{"odd"}, 101},
		{102, []string{"odd", "old"}, 102}, // "old" frees its name, as "new" has its layer
		{103, []string{"odd", "old", "older"}, 203},
		{204, []string{"odd", "old", "older", "new"}, 404},
		{1 << 40, []string{"odd", "old", "older", "new"}, 404},
	} {
		var got []string
		frees := uint64(0)
		for _, v := range choose(all, c.less) {
			got = append(got, v.name)
			frees += v.frees
		}
		if !slices.Equal(got, c.want) || frees != c.frees {
			t.Errorf("%d bytes less: %q free %d, want %q and %d", c.less, got, frees, c.want, c.frees)
		}
	}
}

func TestWhichImagesAreInUse(t *testing.T) {
	parents := map[string]string{
		"base": "", "base-2": "base", "derived": "base-2", "other": "", "idle": "", // layers
		"root": "derived", "sandbox": "root", // a snapshot of a sandbox, and one that begins with it
		"unpacked": "other", "stranger": "",
	}
	all := []*storedImage{
		{name: "base", chain: "base-2"}, {name: "derived", chain: "derived"}, {name: "same", chain: "derived"},
		{name: "other", chain: "other"}, {name: "idle", chain: "idle"}, {name: "packed", chain: "nothing"},
	}
	markUsed(all, parents)
	for _, i := range all {
		want := i.name == "derived" || i.name == "same" || i.name == "other"
		if i.inUse != want {
			t.Errorf("%s is in use: %v", i.name, i.inUse)
		}
	}
}
