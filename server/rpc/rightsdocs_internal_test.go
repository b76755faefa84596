package rpc

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"rota/api/rights"
)

var inTicks = regexp.MustCompile("`([A-Za-z]+)`")

// rowsOf are the rows of the table of a document that has the header.
func rowsOf(t *testing.T, file, header string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", file))
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), header+"\n")
	if !found {
		t.Fatalf("%s has no table %q", file, header)
	}
	for i, line := range strings.Split(table, "\n") {
		if !strings.HasPrefix(line, "|") {
			return rows
		}
		if i > 0 { // the first is |---|
			rows = append(rows, strings.Split(strings.Trim(line, "| "), " | "))
		}
	}
	return rows
}

func namesIn(cell string) (all []string) {
	for _, m := range inTicks.FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	return all
}

// The documents say which calls only operators may make, and which nouns belong to a namespace.
func TestDocumentsHaveTheRightsOfTheCode(t *testing.T) {
	want, got := map[string][]string{}, map[string][]string{}
	for procedure, r := range requiredRights {
		if r.verb == rights.Operate || r.noun == rights.Access && !r.self {
			want[r.noun] = append(want[r.noun], path.Base(procedure))
		}
	}
	for _, row := range rowsOf(t, "operations.md", "| noun | for | calls |") {
		got[strings.Trim(row[0], "`")] = namesIn(row[2])
	}
	for noun, calls := range want {
		slices.Sort(calls)
		listed := slices.Sorted(slices.Values(got[noun]))
		if !slices.Equal(calls, listed) {
			t.Errorf("calls of %s that only operators may make are %v; docs/operations.md has %v", noun, calls, listed)
		}
		delete(got, noun)
	}
	if len(got) > 0 {
		t.Errorf("docs/operations.md has nouns of which everybody may make all calls: %v", got)
	}

	rows := rowsOf(t, "security.md", "| nouns | namespace |")
	if len(rows) != 2 {
		t.Fatalf("docs/security.md has %d rows of nouns", len(rows))
	}
	var named []string
	for i, row := range rows {
		for _, noun := range namesIn(row[0]) {
			named = append(named, noun)
			if namespaced, known := rights.OfNamespace(noun); !known || namespaced != (i == 0) {
				t.Errorf("docs/security.md: the noun %s is known: %v; belongs to a namespace: %v", noun, known, namespaced)
			}
		}
	}
	slices.Sort(named)
	if !slices.Equal(named, rights.Nouns()) {
		t.Errorf("docs/security.md has the nouns %v; there are %v", named, rights.Nouns())
	}
}
