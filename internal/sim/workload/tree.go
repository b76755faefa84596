package workload

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

//go:embed params/*.json
var files embed.FS

// Names returns the workloads that come with this package.
func Names() []string {
	entries, err := fs.ReadDir(files, "params")
	if err != nil {
		panic(err) // it is compiled in
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".json"))
	}
	return names
}

// embedded returns the file of a workload as a tree.
func embedded(name string) (map[string]any, error) {
	text, err := files.ReadFile("params/" + name + ".json")
	if err != nil {
		return nil, fmt.Errorf("%w: there is no workload %q, only %s", ErrParams, name, strings.Join(Names(), ", "))
	}
	return parseTree(text)
}

// parseTree reads a file and puts the lists of those that it includes before
// its own.
func parseTree(text []byte) (map[string]any, error) {
	tree := make(map[string]any)
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	if err := in.Decode(&tree); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrParams, err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: there is something after the end of the object", ErrParams)
	}
	include, _ := tree["include"].([]any)
	delete(tree, "include")
	for i := len(include) - 1; i >= 0; i-- {
		name, _ := include[i].(string)
		part, err := embedded(name)
		if err != nil {
			return nil, err
		}
		for _, list := range []string{"tasks", "services", "providers"} {
			of, _ := part[list].([]any)
			own, _ := tree[list].([]any)
			tree[list] = slices.Concat(of, own)
		}
	}
	return tree, nil
}

// Override puts a value in the place of a file's. The path names the figure with
// dots; elements of a list go by their name or class or by their index, as in
// "tasks.coding.rewards.pytest.serial_ppm". The value is JSON, or else taken as
// a string.
type Override struct {
	Path, Value string
}

func (o Override) apply(tree map[string]any) error {
	at := any(tree)
	for _, step := range strings.Split(o.Path, ".") {
		next, ok := child(at, step)
		if !ok {
			return fmt.Errorf("%w: %q: there is no %q", ErrParams, o.Path, step)
		}
		at = next
	}
	figure, ok := at.(map[string]any)
	if !ok || figure["source"] == nil {
		return fmt.Errorf("%w: %q is not a figure", ErrParams, o.Path)
	}
	in := json.NewDecoder(strings.NewReader(o.Value))
	in.UseNumber()
	var value any
	if err := in.Decode(&value); err != nil || in.More() {
		value = o.Value
	}
	figure["value"], figure["source"] = value, sourceSweep
	return nil
}

func child(at any, step string) (any, bool) {
	switch at := at.(type) {
	case map[string]any:
		next, ok := at[step]
		return next, ok
	case []any:
		for i, e := range at {
			if label(e, i) == step || strconv.Itoa(i) == step {
				return e, true
			}
		}
	}
	return nil, false
}

// label is how an element of a list is called.
func label(e any, i int) string {
	if e, ok := e.(map[string]any); ok {
		for _, key := range []string{"name", "class"} {
			if name, ok := e[key].(string); ok {
				return name
			}
		}
	}
	return strconv.Itoa(i)
}

// Row is one figure of a workload.
type Row struct {
	Path, Value, Source string
}

// Figures returns all figures of a workload with their sources, in the order of
// their paths.
func Figures(name string) ([]Row, error) {
	tree, err := embedded(name)
	if err != nil {
		return nil, err
	}
	return figures(tree)
}

// sources are how a source begins.
var sources = []string{"paper ", "trace ", "derived from ", "assumed because ", "RollArt ", "Heddle ", "Kubernetes ", "kubernetes/", "GPT-OSS ", sourceSweep}

// figures walks a tree. Numbers and truths that are not part of a figure with
// a source are an error.
func figures(tree map[string]any) (rows []Row, err error) {
	var walk func(path string, at any)
	fail := func(format string, args ...any) {
		if err == nil {
			err = fmt.Errorf("%w: %s", ErrParams, fmt.Sprintf(format, args...))
		}
	}
	walk = func(path string, at any) {
		switch at := at.(type) {
		case map[string]any:
			if value, ok := at["value"]; ok {
				source, _ := at["source"].(string)
				if !slices.ContainsFunc(sources, func(s string) bool { return strings.HasPrefix(source, s) }) {
					fail("%s has no source that begins with %q", path, sources)
				}
				text, _ := json.Marshal(value)
				rows = append(rows, Row{path, string(text), source})
				return
			}
			keys := make([]string, 0, len(at))
			for key := range at {
				keys = append(keys, key)
			}
			slices.Sort(keys)
			for _, key := range keys {
				walk(strings.TrimPrefix(path+"."+key, "."), at[key])
			}
		case []any:
			for i, e := range at {
				walk(path+"."+label(e, i), e)
			}
		case json.Number, bool:
			fail("%s is a number without a source", path)
		}
	}
	walk("", tree)
	return rows, err
}
