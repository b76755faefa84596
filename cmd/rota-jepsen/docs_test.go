package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"rota/jepsen/check"
	"rota/jepsen/mutant"
	"rota/jepsen/scenario"
)

// documents are those that speak of this command, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "jepsen/*.md"} {
		files, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			docs[file] = string(text)
		}
	}
	return docs
}

// commandRE finds command lines in code blocks and between backticks, without
// the comment behind them.
var commandRE = regexp.MustCompile("(?m)(?:^|`|go run \\./cmd/|bin/)(rota-jepsen(?: [^`#\n]+)?)")

// wrong says what is wrong with a command line, empty if nothing is.
func wrong(line string) string {
	cmd := root()
	cmd.SetOut(io.Discard)
	found, args, err := cmd.Find(strings.Fields(line)[1:])
	if err == nil {
		err = found.ParseFlags(args)
	}
	if err != nil {
		return err.Error()
	}
	switch args := found.Flags().Args(); found.Name() {
	case "run":
		for _, name := range args {
			if _, ok := scenario.Named(name); !ok && name != "ci" {
				return "there is no scenario " + name
			}
		}
	case "mutants":
		for _, name := range args {
			if !slices.ContainsFunc(mutant.All(), func(m mutant.Mutant) bool { return m.Name == name }) {
				return "there is no mutant " + name
			}
		}
	}
	return ""
}

func TestCommandsInDocumentsExist(t *testing.T) {
	count := 0
	for file, text := range documents(t) {
		for _, m := range commandRE.FindAllStringSubmatch(text, -1) {
			// A number or a name of the reader's own.
			line := regexp.MustCompile(` [NM]\b`).ReplaceAllString(m[1], " 1")
			if why := wrong(line); why != "" {
				t.Errorf("%s: %s: %s", file, m[1], why)
			}
			count++
		}
	}
	if count < 15 {
		t.Errorf("only %d commands found", count)
	}
	for _, line := range []string{
		"rota-jepsen gone", "rota-jepsen run gone", "rota-jepsen run --gone", "rota-jepsen mutants gone", "rota-jepsen dst --seed x",
	} {
		if wrong(line) == "" {
			t.Errorf("%q passes", line)
		}
	}
}

// TestScenariosAndCheckersAreDocumented, so that nobody has to guess what a run
// has shown.
func TestScenariosAndCheckersAreDocumented(t *testing.T) {
	text := documents(t)[filepath.Join("..", "..", "docs", "testing.md")]
	var names []string
	for _, s := range scenario.All() {
		names = append(names, s.Name)
	}
	for _, c := range check.All() {
		names = append(names, c.Name)
	}
	for _, name := range names {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/testing.md says nothing about %s", name)
		}
	}
}
