package failpoint

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// declared are the constants of names.go, by their Go names.
func declared(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]string)
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			names[spec.Names[0].Name] = value
		}
		return true
	})
	return names
}

// hits counts the calls of Hit in a file by the Go name of their failpoint, and
// those whose failpoint is no constant of this package as "".
func hits(t *testing.T, name string, src any, count map[string]int) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	of := func(e ast.Expr) string {
		if s, ok := e.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "failpoint" {
				return s.Sel.Name
			}
		}
		return ""
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && of(call.Fun) == "Hit" {
			count[of(call.Args[0])]++
		}
		return true
	})
}

// TestEveryFailpointIsAtOnePlace: one that is nowhere would never act, and one at
// two places would not say where it did.
func TestEveryFailpointIsAtOnePlace(t *testing.T) {
	count := make(map[string]int)
	for _, root := range []string{"../../server", "../../agent"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				hits(t, path, nil, count)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	names := declared(t)
	for name := range names {
		if count[name] != 1 {
			t.Errorf("%s is at %d places, want 1", name, count[name])
		}
		delete(count, name)
	}
	if len(count) > 0 {
		t.Errorf("hits that are none of names.go: %v", count)
	}

	planted := make(map[string]int)
	hits(t, "x.go", "package x\nfunc f() { failpoint.Hit(failpoint.LogCut); failpoint.Hit(failpoint.LogCut); failpoint.Hit(\"log-cut\") }", planted)
	if planted["LogCut"] != 2 || planted[""] != 1 {
		t.Errorf("counted %v in a file with two hits of one failpoint and one without", planted)
	}
}

func TestNamesAreAllThatAreDeclared(t *testing.T) {
	var want []string
	for _, name := range declared(t) {
		want = append(want, name)
	}
	got := slices.Clone(Names())
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("Names returns %v,\ndeclared are %v", got, want)
	}
	if len(slices.Compact(got)) != len(want) {
		t.Error("two failpoints have the same name")
	}
}

func TestOnlyWhatExistsIsArmed(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ name, action string }{
		{"elsewhere", "kill"}, {LogAppended, ""}, {LogAppended, "kill 2s"}, {LogAppended, "sleep"},
		{LogAppended, "sleep -1s"}, {LogAppended, "sleep soon"},
	} {
		if err := Arm(dir, c.name, c.action); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q at %q: %v", c.action, c.name, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if err := Arm(dir, LogAppended, "sleep 2s"); err != nil {
		t.Error(err)
	}
	if Acted(dir, LogAppended) {
		t.Error("acted before anybody came by")
	}
	if err := Disarm(dir, LogAppended); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
