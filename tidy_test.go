// Package rota_test holds the rules of this repository that a compiler does not
// know: who may import whom, what replicated code may not do, how long a
// function may be. Each rule is tried on something that breaks it, so that none
// can pass by checking nothing.
package rota_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	// functionLinesMax is a screen and a bit, from "func" to the closing brace.
	functionLinesMax = 80
	// fileLinesMax is the most one story takes.
	fileLinesMax = 700
)

// longFunctions may be longer than functionLinesMax, by exactly this many
// lines. The list only ever shrinks: shorten a function and lower its number.
var longFunctions = map[string]int{}

// file is a Go file of the repository.
type file struct {
	path   string // slash-separated, relative to the root
	syntax *ast.File
	fset   *token.FileSet
	lines  int
}

func (f file) dir() string { return path.Dir(f.path) }
func (f file) test() bool  { return strings.HasSuffix(f.path, "_test.go") }

// compiled reports whether a build without tags has the file.
func (f file) compiled(t *testing.T) bool {
	t.Helper()
	in, err := build.Default.MatchFile(f.dir(), path.Base(f.path))
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func (f file) generated() bool { return ast.IsGenerated(f.syntax) }

// parse reads one Go file; src may hold its text.
func parse(t *testing.T, name string, src any) file {
	t.Helper()
	return parseInto(t, token.NewFileSet(), name, src)
}

func parseInto(t *testing.T, fset *token.FileSet, name string, src any) file {
	t.Helper()
	if src == nil {
		text, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		src = text
	}
	syntax, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file{path: name, syntax: syntax, fset: fset, lines: fset.File(syntax.FileStart).LineCount()}
}

// walk calls visit for every file of the repository with its path.
func walk(t *testing.T, visit func(name string)) {
	t.Helper()
	ignored := []string{".git", "bin", "store", "node_modules"}
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(ignored, entry.Name()):
			return filepath.SkipDir
		case entry.Type().IsRegular():
			visit(filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// parsed keeps what goFiles has read, as most tests ask for it.
var parsed []file

// goFiles are all Go files but those of testdata folders.
func goFiles(t *testing.T) []file {
	t.Helper()
	if parsed != nil {
		return parsed
	}
	var files []file
	walk(t, func(name string) {
		if strings.HasSuffix(name, ".go") && !strings.Contains(name, "testdata/") {
			files = append(files, parse(t, name, nil))
		}
	})
	if len(files) < 50 {
		t.Fatalf("only %d Go files found: is this the root of the repository?", len(files))
	}
	parsed = files
	return files
}

// report fails the test once for each finding.
func report(t *testing.T, findings []string) {
	t.Helper()
	for _, f := range findings {
		t.Error(f)
	}
}

// expect tries a rule on something that breaks it.
func expect(t *testing.T, findings []string, wants ...string) {
	t.Helper()
	if len(findings) != len(wants) {
		t.Errorf("findings %q, want %d", findings, len(wants))
		return
	}
	for i, want := range wants {
		if !strings.Contains(findings[i], want) {
			t.Errorf("finding %q does not say %q", findings[i], want)
		}
	}
}

// functionLengths finds functions above their limit, and entries of the list
// that are no longer needed.
func functionLengths(files []file, allowed map[string]int) (findings []string) {
	used := make(map[string]bool)
	for _, f := range files {
		for _, decl := range f.syntax.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || f.generated() {
				continue
			}
			name := f.path + ":" + functionName(fn)
			lines := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1
			limit := max(functionLinesMax, allowed[name])
			used[name] = true
			switch {
			case lines > limit:
				findings = append(findings, fmt.Sprintf("%s has %d lines, at most %d are allowed: split it by what it does", name, lines, limit))
			case allowed[name] > 0 && lines < allowed[name]:
				findings = append(findings, fmt.Sprintf("%s has %d lines: lower it in longFunctions, or remove it from there", name, lines))
			}
		}
	}
	for name := range allowed {
		if !used[name] {
			findings = append(findings, name+" does not exist: remove it from longFunctions")
		}
	}
	return findings
}

func functionName(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	recv := fn.Recv.List[0].Type
	if star, ok := recv.(*ast.StarExpr); ok {
		recv = star.X
	}
	if generic, ok := recv.(*ast.IndexExpr); ok {
		recv = generic.X
	}
	if id, ok := recv.(*ast.Ident); ok {
		return id.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}

func TestFunctionsFitOnAScreen(t *testing.T) {
	report(t, functionLengths(goFiles(t), longFunctions))

	long := parse(t, "x/long.go", "package x\nfunc (r *T[K]) F() {"+strings.Repeat("\n", functionLinesMax)+"}\n")
	expect(t, functionLengths([]file{long}, nil), "x/long.go:T.F has 81 lines")
	expect(t, functionLengths([]file{long}, map[string]int{"x/long.go:T.F": 81}))
	expect(t, functionLengths([]file{long}, map[string]int{"x/long.go:T.F": 90}), "lower it")
	expect(t, functionLengths(nil, map[string]int{"x/gone.go:F": 90}), "does not exist")
}

func fileLengths(files []file) (findings []string) {
	for _, f := range files {
		if f.lines > fileLinesMax && !f.generated() {
			findings = append(findings, fmt.Sprintf("%s has %d lines, at most %d are allowed: split it by concept", f.path, f.lines, fileLinesMax))
		}
	}
	return findings
}

func TestFilesTellOneStory(t *testing.T) {
	report(t, fileLengths(goFiles(t)))

	filler := strings.Repeat("\n", fileLinesMax)
	expect(t, fileLengths([]file{
		parse(t, "x/long.go", "package x\n"+filler),
		parse(t, "x/gen.go", "// Code generated by x. DO NOT EDIT.\n\npackage x\n"+filler),
	}), "x/long.go has")
}

// packageDocs finds packages whose doc.go does not explain them.
func packageDocs(files []file) (findings []string) {
	documented := make(map[string]bool)
	var dirs []string
	for _, f := range files {
		if f.test() || f.generated() {
			continue
		}
		if !slices.Contains(dirs, f.dir()) {
			dirs = append(dirs, f.dir())
		}
		if path.Base(f.path) == "doc.go" {
			documented[f.dir()] = strings.HasPrefix(f.syntax.Doc.Text(), "Package "+f.syntax.Name.Name+" ")
		}
		// A command explains itself where it starts.
		if f.syntax.Name.Name == "main" && f.syntax.Doc != nil {
			documented[f.dir()] = true
		}
	}
	for _, dir := range dirs {
		if !documented[dir] {
			findings = append(findings, dir+" has no doc.go that says \"// Package ... \", what it is for and why it is so")
		}
	}
	return findings
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	report(t, packageDocs(goFiles(t)))

	expect(t, packageDocs([]file{
		parse(t, "a/a.go", "package a\n"),
		parse(t, "b/doc.go", "package b\n"),
		parse(t, "c/doc.go", "// Package c is explained.\npackage c\n"),
		parse(t, "d/d_test.go", "package d\n"),
		parse(t, "e/main.go", "// Command e is explained.\npackage main\n"),
		parse(t, "f/main.go", "package main\n"),
	}), "a has no doc.go", "b has no doc.go", "f has no doc.go")
}

// foreign matches paths that exist on one machine only. The pattern does not
// match itself.
var foreign = regexp.MustCompile(`(^|[\s"'(=:])/(work/(main|shared)|home/\w)|\bshared/\w+\.md`)

// sandboxHome is on no machine of ours: programs for E2B find their files there.
const sandboxHome = "/home/user"

func foreignPaths(name string, text []byte) (findings []string) {
	if bytes.IndexByte(text, 0) >= 0 {
		return nil // not a text
	}
	for i, line := range bytes.Split(text, []byte("\n")) {
		if !bytes.Contains(line, []byte("/")) {
			continue
		}
		if hit := foreign.Find(bytes.ReplaceAll(line, []byte(sandboxHome), nil)); hit != nil {
			findings = append(findings, fmt.Sprintf("%s:%d: %q is not part of this repository", name, i+1, hit))
		}
	}
	return findings
}

func TestNothingRefersToTheMachineItWasWrittenOn(t *testing.T) {
	walk(t, func(name string) {
		text, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		report(t, foreignPaths(name, text))
	})

	expect(t, foreignPaths("x", []byte("see /wor"+"k/main/x\nfine: a/work/main\nsee shar"+"ed/design.md\n/hom"+"e/me/x")),
		"x:1", "x:3", "x:4")
}
