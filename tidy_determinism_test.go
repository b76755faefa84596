package rota_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// replicated are the folders whose code decides on every replica, and so must
// decide the same on each. What an agent decides, and the rules by which servers replicate,
// must be the same in each simulation.
var replicated = []string{"fsm=", "fsm/state", "sched", "agent/plan", "server/entry", "server/quorum"}

// bannedImports maps packages that replicated code must not import to the
// reason. One that ends in "/" stands for everything below it.
var bannedImports = map[string]string{
	"time":         "time comes in the command; durations are int64 nanoseconds",
	"math/rand":    "replicas would draw different numbers",
	"math/rand/v2": "replicas would draw different numbers",
	"crypto/rand":  "replicas would draw different numbers",
	"hash/maphash": "its seed differs from process to process",
	"maps":         "its iterators have no order",
	"reflect":      "what it shows of maps has no order",
	"unsafe":       "addresses differ from replica to replica",
	"os":           "a decision must not depend on the machine it is taken on",
	"os/":          "a decision must not depend on the machine it is taken on",
	"net":          "a decision must not depend on the machine it is taken on",
	"net/":         "a decision must not depend on the machine it is taken on",
	"syscall":      "a decision must not depend on the machine it is taken on",
	"runtime":      "a decision must not depend on the machine it is taken on",
	"runtime/":     "a decision must not depend on the machine it is taken on",
	"context":      "a decision is never canceled",
	"sync":         "decisions run on one goroutine; only the shim around them locks",
	"sync/":        "decisions run on one goroutine; only the shim around them locks",
}

// exemptions are the files that may do some of what is banned, and why.
var exemptions = map[string]struct {
	rules []string
	why   string
}{
	"fsm/machine.go": {
		rules: []string{"import context", "import sync", "chan", "select", "receive"},
		why:   "the shim around the state machine: it lets readers wait for an index, and decides nothing",
	},
	"agent/plan/key.go": {
		rules: []string{"import time"},
		why:   "an end says how long the attempt ran; nothing is decided by that",
	},
}

// integerLimit are the constants that replicated code may take from math.
var integerLimit = regexp.MustCompile(`^(Max|Min)U?[Ii]nt(8|16|32|64)?$`)

// determinism finds in a type-checked package what could make replicas differ.
func determinism(files []file, info *types.Info) (findings []string) {
	for _, f := range files {
		seen := make(map[string]bool) // one finding a line is enough
		add := func(pos token.Pos, rule, why string) {
			line := f.fset.Position(pos).Line
			key := fmt.Sprint(line, rule)
			if seen[key] || slices.Contains(exemptions[f.path].rules, rule) {
				return
			}
			seen[key] = true
			findings = append(findings, fmt.Sprintf("%s:%d: %s: %s", f.path, line, rule, why))
		}
		for _, spec := range f.syntax.Imports {
			name := strings.Trim(spec.Path.Value, `"`)
			if why := bannedImport(name); why != "" {
				add(spec.Pos(), "import "+name, why)
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			checkNode(n, info, add)
			return true
		})
	}
	return findings
}

func bannedImport(name string) string {
	for banned, why := range bannedImports {
		if name == banned || strings.HasSuffix(banned, "/") && strings.HasPrefix(name, banned) {
			return why
		}
	}
	return ""
}

// checkNode looks at one node of the syntax, with its type.
func checkNode(n ast.Node, info *types.Info, add func(pos token.Pos, rule, why string)) {
	switch n := n.(type) {
	case *ast.GoStmt:
		add(n.Pos(), "go", "goroutines run in an order that differs from replica to replica")
	case *ast.SelectStmt:
		add(n.Pos(), "select", "it picks a ready case at random")
	case *ast.ChanType:
		add(n.Pos(), "chan", "decisions run on one goroutine")
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			add(n.Pos(), "receive", "decisions run on one goroutine")
		}
	case *ast.SendStmt:
		add(n.Pos(), "send", "decisions run on one goroutine")
	case *ast.RangeStmt:
		if tv, ok := info.Types[n.X]; ok && isMap(tv.Type) {
			add(n.Pos(), "range over a map", "its order differs from replica to replica: keep a sorted table beside it")
		}
	case *ast.SelectorExpr:
		if id, ok := n.X.(*ast.Ident); ok {
			if pkg, ok := info.Uses[id].(*types.PkgName); ok && pkg.Imported().Path() == "math" && !integerLimit.MatchString(n.Sel.Name) {
				add(n.Pos(), "math."+n.Sel.Name, "only limits of integers are needed from math; see math/bits for products")
			}
		}
	}
	if e, ok := n.(ast.Expr); ok && isFloat(info.Types[e].Type) || isFloatLiteral(n) {
		add(n.Pos(), "floating point", "Go may fuse multiply and add: ratios are parts per million, products math/bits")
	}
}

func isMap(t types.Type) bool {
	_, ok := t.Underlying().(*types.Map)
	return ok
}

func isFloat(t types.Type) bool {
	if t == nil {
		return false
	}
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&(types.IsFloat|types.IsComplex) != 0
}

// isFloatLiteral is also true for 1e9 where an integer is wanted: it is a step
// away from 1.5e9.
func isFloatLiteral(n ast.Node) bool {
	lit, ok := n.(*ast.BasicLit)
	return ok && (lit.Kind == token.FLOAT || lit.Kind == token.IMAG)
}

// exports finds the compiled form of everything that the packages import, and
// a few packages that the negative examples import.
func exports(t *testing.T) types.Importer {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-export", "-deps", "-json=ImportPath,Export",
		"./fsm/...", "./sched/...", "./agent/plan", "time", "math", "maps", "sync", "math/rand/v2", "os/exec")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	paths := make(map[string]string)
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		paths[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(name string) (io.ReadCloser, error) {
		if paths[name] == "" {
			return nil, fmt.Errorf("no export data for %s: does it compile?", name)
		}
		return os.Open(paths[name])
	})
}

// check type-checks the files of one package, which share a file set.
func check(t *testing.T, dir string, fset *token.FileSet, files []file, imp types.Importer) *types.Info {
	t.Helper()
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object)}
	var syntax []*ast.File
	for _, f := range files {
		syntax = append(syntax, f.syntax)
	}
	conf := types.Config{Importer: imp}
	if _, err := conf.Check("rota/"+dir, fset, syntax, info); err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	return info
}

func TestReplicatedCodeDecidesTheSameEverywhere(t *testing.T) {
	imp := exports(t)
	packages := make(map[string][]file)
	for _, f := range goFiles(t) {
		if !f.test() && f.compiled(t) && slices.ContainsFunc(replicated, func(folder string) bool { return within(f.dir(), folder) }) {
			packages[f.dir()] = append(packages[f.dir()], f)
		}
	}
	if len(packages) < 3 {
		t.Fatalf("only %d replicated packages found", len(packages))
	}
	for dir, files := range packages {
		fset, parsed := reparse(t, files)
		report(t, determinism(parsed, check(t, dir, fset, parsed, imp)))
	}
	for name, e := range exemptions {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("%s is exempt (%s) and does not exist: %v", name, e.why, err)
		}
	}
}

// reparse reads files again into one file set, as the type checker wants them.
func reparse(t *testing.T, files []file) (*token.FileSet, []file) {
	t.Helper()
	fset := token.NewFileSet()
	var parsed []file
	for _, f := range files {
		parsed = append(parsed, parseInto(t, fset, f.path, nil))
	}
	return fset, parsed
}

func TestWhatCouldMakeReplicasDifferIsFound(t *testing.T) {
	imp := exports(t)
	for _, c := range []struct {
		name, path, body string
		wants            []string
	}{
		{"a clock", "", "import \"time\"\nvar _ time.Duration", []string{"import time"}},
		{"chance", "", "import \"math/rand/v2\"\nvar _ = rand.Int()", []string{"import math/rand/v2"}},
		{"a process", "", "import \"os/exec\"\nvar _ *exec.Cmd", []string{"import os/exec"}},
		{"iterators of maps", "", "import \"maps\"\nfunc f(m map[int]int) { _ = maps.Keys(m) }", []string{"import maps"}},
		{"a lock", "", "import \"sync\"\nvar _ sync.Mutex", []string{"import sync"}},
		{"a lock in the shim", "fsm/machine.go", "import \"sync\"\nvar _ sync.Mutex\nfunc f(c chan int) {\nselect { case <-c: }\n}", nil},
		{"a map in the shim", "fsm/machine.go", "func f(m map[int]int) { for range m {} }", []string{"range over a map"}},
		{"a goroutine", "", "func f() { go f() }", []string{"go:"}},
		{"a channel", "", "func f(c chan int) {\nc <- 1\n<-c\nselect {}\n}", []string{"chan", "send", "receive", "select"}},
		{"a map", "", "type m map[string]int\nfunc f(x m) { for k := range x { _ = k } }", []string{"range over a map"}},
		{"a float type", "", "var x float64", []string{"floating point"}},
		{"a float literal", "", "var x = 1.5", []string{"floating point"}},
		{"a float for an integer", "", "const x int = 1e9", []string{"floating point"}},
		{"a float inside", "", "func f(a, b int) bool { return float32(a) < 2*float32(b) }", []string{"floating point"}},
		{"a hidden float", "", "import \"math\"\nvar x = math.Sqrt(2)", []string{"floating point", "math.Sqrt"}},
		{"nothing", "", "import \"math\"\nfunc f(x []int, m map[int]int) int64 { for range x {}; return math.MaxInt64 / int64(1+m[2]) }", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := c.path
			if name == "" {
				name = "sched/x.go"
			}
			fset := token.NewFileSet()
			files := []file{parseInto(t, fset, name, "package x\n"+c.body+"\n")}
			expect(t, determinism(files, check(t, "x", fset, files, imp)), c.wants...)
		})
	}
}
