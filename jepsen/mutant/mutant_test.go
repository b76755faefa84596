package mutant

import (
	"errors"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// TestEditsFit: a mutant that does not fit the sources hunts nothing.
func TestEditsFit(t *testing.T) {
	names := map[string]bool{}
	for _, m := range All() {
		if names[m.Name] {
			t.Errorf("two mutants are called %s", m.Name)
		}
		names[m.Name] = true
		if m.Bug == "" || len(m.Edits) == 0 || !slices.Contains([]string{Simulation, Processes, Tests}, m.Hunt.Engine) {
			t.Errorf("mutant %s lacks a description, an edit or an engine", m.Name)
		}
		sources := map[string]string{}
		for _, e := range m.Edits {
			if err := e.apply(root, sources); err != nil {
				t.Errorf("mutant %s: %v", m.Name, err)
			}
		}
		for file, text := range sources {
			if _, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution); err != nil {
				t.Errorf("mutant %s: %v", m.Name, err)
			}
		}
	}
	if len(names) < 20 {
		t.Errorf("there are %d mutants, too few to believe in", len(names))
	}
}

// TestTestsExist: a hunt by a test that is not there hunts nothing.
func TestTestsExist(t *testing.T) {
	for _, m := range All() {
		if m.Hunt.Engine != Tests {
			continue
		}
		dir := filepath.Join(root, m.Hunt.Args[0])
		name, story, isStory := strings.Cut(m.Hunt.Args[1], "/")
		if isStory {
			if _, err := os.Stat(filepath.Join(dir, "testdata", story+".txt")); err != nil {
				t.Errorf("mutant %s is hunted by a story that is not there: %v", m.Name, err)
			}
		}
		if !declares(t, dir, "func "+name+"(") {
			t.Errorf("mutant %s is hunted by %s, which is not in %s", m.Name, name, dir)
		}
	}
}

// declares reports whether a test file of a package has the text.
func declares(t *testing.T, dir, text string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		source, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(source), text) {
			return true
		}
	}
	return false
}

func TestAStaleEditIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("package a\n\nvar x, y = 1, 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, old := range []string{"z", "1"} {
		m := Mutant{Name: "test", Edits: []Edit{{"a.go", old, "2"}}}
		if _, err := m.Overlay(dir, t.TempDir()); !errors.Is(err, ErrStale) {
			t.Errorf("replacing %q: %v, want ErrStale", old, err)
		}
	}
}

// Why a program panicked is in front of its traces.
func TestLastLines(t *testing.T) {
	for said, want := range map[string]string{
		"one\ntwo\nthree\nfour\n":                                     "two | three | four",
		"one\npanic: lost\n\ngoroutine 1:\nf()\n":                     "panic: lost |  | goroutine 1: | f()",
		"fatal error: out of memory\n" + strings.Repeat("f()\n", 100): "fatal error: out of memory" + strings.Repeat(" | f()", 19),
	} {
		if got := lastLines(said); got != want {
			t.Errorf("of %.60q it says %q, want %q", said, got, want)
		}
	}
}
