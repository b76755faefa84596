package e2b

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	rotav1 "rota/api/gen/rota/v1"
)

// baseTemplate is what SDKs ask for if they are not told otherwise.
const baseTemplate = "base"

// templateLabel is the label of a trajectory that names its template.
const templateLabel = "e2b/template"

// isOwn reports whether a label is no metadata of a program.
func isOwn(label string) bool { return label == templateLabel || label == resumeLabel }

// Defaults of a template.
const (
	memoryDefault = 512 << 20
	coresDefault  = 1
)

// ErrTemplates: a file of templates cannot be used.
var ErrTemplates = errors.New("the templates of E2B cannot be used")

// template is what a sandbox is made of.
type template struct {
	// Pool of the sandbox; empty: "default".
	Pool string `json:"pool"`
	// MemoryBytes is kept for the sandbox.
	MemoryBytes uint64 `json:"memory_bytes"`
	// Cores is the fewest that each process has, MaxCores the most that it may get.
	Cores    uint32 `json:"cores"`
	MaxCores uint32 `json:"max_cores"`
}

// Templates are the templates by name.
type Templates map[string]template

// DefaultTemplates is one, "base": the pool "default", 512 MiB, and one core for each process.
func DefaultTemplates() Templates {
	t := template{}
	t.complete()
	return Templates{baseTemplate: t}
}

// ReadTemplates reads a file in JSON that has an object for each template, such as
//
//	{"base": {}, "big": {"pool": "builds", "memory_bytes": 8589934592, "cores": 1, "max_cores": 8}}
func ReadTemplates(path string) (Templates, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Join(ErrTemplates, err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var all Templates
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrTemplates, path, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: %s has something after the object", ErrTemplates, path)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: %s has none: name at least %q", ErrTemplates, path, baseTemplate)
	}
	for name, t := range all {
		t.complete()
		if t.MaxCores < t.Cores {
			return nil, fmt.Errorf("%w: template %q has max_cores %d and cores %d: it needs at least as many", ErrTemplates, name, t.MaxCores, t.Cores)
		}
		all[name] = t
	}
	return all, nil
}

// complete sets what a template does not say.
func (t *template) complete() {
	if t.MemoryBytes == 0 {
		t.MemoryBytes = memoryDefault
	}
	if t.Cores == 0 {
		t.Cores = coresDefault
	}
	if t.MaxCores == 0 {
		t.MaxCores = t.Cores
	}
}

// of returns the template of a trajectory. One that was opened otherwise, or whose template is
// gone, has the cores of the default.
func (all Templates) of(t *rotav1.Trajectory) template {
	if found, ok := all[t.GetLabels()[templateLabel]]; ok {
		return found
	}
	return template{Cores: coresDefault, MaxCores: coresDefault}
}
