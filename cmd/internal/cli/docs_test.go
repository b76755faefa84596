package cli

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// commandsIn finds the command lines of rota in the code blocks of a document,
// and those between backticks in its text.
func commandsIn(text string) (blocks, inline []string) {
	parts := strings.Split(text, "```")
	for i, part := range parts {
		if i%2 == 0 {
			for _, m := range regexp.MustCompile("`((?:bin/)?rota [^`]+)`").FindAllStringSubmatch(part, -1) {
				inline = append(inline, strings.Join(strings.Fields(m[1]), " "))
			}
			continue
		}
		part = strings.ReplaceAll(part, "\\\n", " ")
		for _, line := range strings.Split(part, "\n") {
			line, _, _ = strings.Cut(line, "  #")
			for _, command := range regexp.MustCompile(`\||&&|\$\(`).Split(line, -1) {
				command = strings.TrimSpace(command)
				if strings.HasPrefix(command, "rota ") || strings.HasPrefix(command, "bin/rota ") {
					blocks = append(blocks, command)
				}
			}
		}
	}
	return blocks, inline
}

// shellWords are the words of a command line. What is quoted is one, or a part of one.
func shellWords(line string) (words []string) {
	for _, word := range regexp.MustCompile(`('[^']*'|"[^"]*"|[^\s'"])+`).FindAllString(line, -1) {
		words = append(words, strings.NewReplacer("'", "", `"`, "").Replace(word))
	}
	return words
}

// parses returns an error if the command line does not exist. Arguments are
// only checked if it is complete, as those of code blocks are.
func parses(line string, complete bool) error {
	a := &app{out: io.Discard, err: io.Discard}
	args := shellWords(line)[1:]
	for i, arg := range args {
		if strings.HasPrefix(arg, "$") { // the shell puts a number or a name there
			args[i] = "1"
		}
	}
	root := a.root()
	root.InitDefaultHelpCmd()
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	takesWords := strings.Contains(cmd.Use, " ")
	if cmd.HasSubCommands() && !takesWords && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return usageErrorf("unknown command %q", line)
	}
	if slices.Contains(rest, "--help") {
		return nil
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if !complete {
		return nil
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

func TestCommandsInDocumentsExist(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	count := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		blocks, inline := commandsIn(string(text))
		count += len(blocks) + len(inline)
		for i, line := range append(blocks, inline...) {
			if err := parses(line, i < len(blocks)); err != nil {
				t.Errorf("%s: %s: %v", filepath.Base(file), line, err)
			}
		}
	}
	if count < 20 {
		t.Errorf("only %d commands found in %d documents", count, len(files))
	}
}

// Commands that do not exist are found, so the test above can fail.
func TestCommandsThatDoNotExistAreFound(t *testing.T) {
	for _, line := range []string{
		"rota gone", "rota node gone", "rota node list --gone", "rota node drain", "rota operator raft join s1",
	} {
		if parses(line, true) == nil {
			t.Errorf("%q passes", line)
		}
	}
	blocks, inline := commandsIn("see `rota node list`\n```\nid=$(rota trajectory open | jq) && rota run -- a |b\nbin/rota server \\\n  --id s1  # first\n```\n")
	if got := strings.Join(blocks, ";"); got != "rota trajectory open;rota run -- a;bin/rota server    --id s1" {
		t.Errorf("blocks: %s", got)
	}
	if got := strings.Join(inline, ";"); got != "rota node list" {
		t.Errorf("inline: %s", got)
	}
}
