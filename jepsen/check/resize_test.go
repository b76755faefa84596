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
		{"one after the other", []use{{one, 10, 40}, {two, 50, 90}}, ""},
		{"given up and got back", []use{{one, 10, 40}, {two, 50, 60}, {one, 61, 90}}, ""},
		{"seen twice by the same", []use{{one, 10, 40}, {one, 30, 60}}, ""},
		{"before it was given up", []use{{one, 10, 60}, {two, 50, 90}}, "core 1 of n1 has two users"},
		{"long after it began", []use{{one, 10, 1000}, {two, 20, 30}, {two, 990, 2000}}, "core 1 of n1 has two users"},
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
