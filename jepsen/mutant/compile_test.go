package mutant

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestMutantsCompile: a mutant that cannot be built hunts nothing. Their packages are checked as the
// compiler does, without the time that builds take.
func TestMutantsCompile(t *testing.T) {
	c := &compiler{fset: token.NewFileSet(), files: map[string]*ast.File{}}
	c.packages = listPackages(t)
	c.imports = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(c.packages[path].Export)
	})
	for _, m := range All() {
		if err := c.check(&m); err != nil {
			t.Errorf("mutant %s: %v", m.Name, err)
		}
	}
	unknown := Mutant{Edits: []Edit{{"api/client/turn.go", "if !resp.Replayed {", "if h.unknown {"}}}
	if err := c.check(&unknown); err == nil {
		t.Error("a mutant that uses what is not there compiles")
	}
}

// listed is a package as the go command lists it.
type listed struct {
	ImportPath, Export string
	GoFiles            []string
}

// listPackages lists the packages that mutants edit and all that these import.
func listPackages(t *testing.T) map[string]listed {
	t.Helper()
	edited := map[string]bool{}
	for _, m := range All() {
		for _, e := range m.Edits {
			edited["./"+filepath.Dir(e.File)] = true
		}
	}
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Export,GoFiles"}, slices.Sorted(maps.Keys(edited))...)...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.Bytes())
	}
	packages := map[string]listed{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
}

// compiler checks the types of packages with edits in them.
type compiler struct {
	fset     *token.FileSet
	packages map[string]listed
	imports  types.Importer
	// files are those without edits, and without what functions do.
	files map[string]*ast.File
}

func (c *compiler) check(m *Mutant) error {
	sources, err := m.sources(root)
	if err != nil {
		return err
	}
	edited := map[string]bool{}
	for file := range sources {
		edited["rota/"+filepath.Dir(file)] = true
	}
	for path := range edited {
		if err := c.checkPackage(path, sources); err != nil {
			return err
		}
	}
	return nil
}

// checkPackage returns what is wrong in the files with edits. Of the others it reads what they declare: to
// check all functions each time would take a minute.
func (c *compiler) checkPackage(path string, sources map[string]string) error {
	var files []*ast.File
	for _, name := range c.packages[path].GoFiles {
		f, err := c.parse(filepath.Join(path[len("rota/"):], name), sources)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	var wrong []error
	config := types.Config{Importer: c.imports, Error: func(err error) {
		if _, edited := sources[c.fset.Position(err.(types.Error).Pos).Filename]; edited {
			wrong = append(wrong, err)
		}
	}}
	_, _ = config.Check(path, c.fset, files, nil)
	return errors.Join(wrong...)
}

func (c *compiler) parse(file string, sources map[string]string) (*ast.File, error) {
	if text, ok := sources[file]; ok {
		return parser.ParseFile(c.fset, file, text, parser.SkipObjectResolution)
	}
	if f := c.files[file]; f != nil {
		return f, nil
	}
	f, err := parser.ParseFile(c.fset, filepath.Join(root, file), nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range f.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
	c.files[file] = f
	return f, nil
}
