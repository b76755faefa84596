package check

import (
	"strings"
	"testing"

	"rota/jepsen/history"
)

func TestCoresThatChange(t *testing.T) {
	one := history.Execution{Action: 1, Attempt: 1, Node: "n1", Start: 10, Cores: []int{0, 1}}
	two := history.Execution{Action: 2, Attempt: 1, Node: "n1", Start: 50, Cores: []int{1}}
	core := place{"n1", 1}
	for _, c := range []struct {
		name string
		uses []use
		want string
	}{
		{"one after the other", []use{{x: one, from: 10, until: 40, certain: 40, seen: true}, {x: two, from: 50, until: 90, certain: 90, seen: true}}, ""},
		{"given up and got back", []use{{x: one, from: 10, until: 40, certain: 40, seen: true}, {x: two, from: 50, until: 60, certain: 60, seen: true}, {x: one, from: 61, until: 90, certain: 90, seen: true}}, ""},
		{"seen twice by the same", []use{{x: one, from: 10, until: 40, certain: 40, seen: true}, {x: one, from: 30, until: 60, certain: 60, seen: true}}, ""},
		{"before it was given up", []use{{x: one, from: 10, until: 60, certain: 60, seen: true}, {x: two, from: 50, until: 90, certain: 90, seen: true}}, "core 1 of n1 has two users"},
		{"whose end was recorded late", []use{{x: two, from: 10, until: 80, certain: 40}, {x: one, from: 50, until: 90, certain: 90, seen: true}}, ""},
		{"whose end was recorded before the start", []use{{x: two, from: 10, until: 80, certain: 40}, {x: one, from: 50, until: 90, certain: 90}}, "core 1 of n1 has two users"},
		{"certainly alive", []use{{x: two, from: 10, until: 80, certain: 60}, {x: one, from: 50, until: 90, certain: 90, seen: true}}, "core 1 of n1 has two users"},
		{"long after it began", []use{{x: one, from: 10, until: 1000, certain: 1000, seen: true}, {x: two, from: 20, until: 30, certain: 30, seen: true}, {x: two, from: 990, until: 2000, certain: 2000, seen: true}}, "core 1 of n1 has two users"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var f findings
			oneUser("core", map[place][]use{core: c.uses}, &f)
			if found := described(f); (c.want == "") != (found == "") || !strings.Contains(found, c.want) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

func TestRunsOnWhatWasGranted(t *testing.T) {
	follows := grant{cores: []int{0}, any: []int{0, 1, 2}, follows: true}
	fixed := grant{cores: []int{0, 1}, any: []int{0, 1}}
	for _, c := range []struct {
		name string
		x    history.Execution
		g    grant
		want string
	}{
		{"as it was granted", history.Execution{Cores: []int{0, 1}}, fixed, ""},
		{"on another", history.Execution{Cores: []int{0}}, fixed, "and was granted"},
		{"as it was to have later", history.Execution{Cores: []int{0, 2}}, follows, ""},
		{"partly changed", history.Execution{Cores: []int{0}, Seen: []history.Seen{{Cores: []int{0, 1}}}}, follows, ""},
		{"on one that it never had", history.Execution{Cores: []int{0}, Seen: []history.Seen{{Cores: []int{0, 3}}}}, follows, "was granted none but"},
		{"on none", history.Execution{Cores: []int{0}, Seen: []history.Seen{{}}}, follows, "was granted none but"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var f findings
			ranWhereGranted(c.x, c.g, &f)
			if found := described(f); (c.want == "") != (found == "") || !strings.Contains(found, c.want) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

func described(f findings) string {
	var all []string
	for _, found := range f.kept {
		all = append(all, found.what)
	}
	return strings.Join(all, "; ")
}
