package mutant

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Mutant is a planted bug.
type Mutant struct {
	Name string
	// Bug says in one sentence what is wrong with it.
	Bug   string
	Edits []Edit
	Hunt  Hunt
}

// Edit replaces one piece of a file. Old must occur exactly once.
type Edit struct {
	File     string // relative to the root of the repository
	Old, New string
}

// Hunt is how a mutant should be caught.
type Hunt struct {
	// Engine is "dst", "run" or "test".
	Engine string
	// Args follow the engine on the command line of rota-jepsen: the scenario,
	// and what it is told. For tests: the package and the test.
	Args []string
	// Within is how long the hunt may take, its builds excepted. If zero: 100 seeds for the
	// simulation, and 3 min for the others.
	Within time.Duration
	// Tries is how often it is tried at most; 0: as often as there is time.
	Tries int
	// By are the checkers of runs that are to notice the bug; none: whatever does. An alarm of
	// another checker is no catch: a busy machine may have caused it.
	By []string
}

// by returns the hunt with the checkers that are to notice the bug.
func (h Hunt) by(checkers ...string) Hunt {
	h.By = checkers
	return h
}

// Engines of hunts.
const (
	Simulation = "dst"
	Processes  = "run"
	// Tests hunts what takes a crash at one moment and then an election at
	// another: the staged test of that very case.
	Tests = "test"
)

// ErrStale means that an edit does not fit the sources any more.
var ErrStale = errors.New("the edit does not fit the sources any more: write it anew, or drop the mutant if the bug has become impossible")

// All returns all mutants, in the order of the layers of the product.
func All() []Mutant {
	var all []Mutant
	for _, layer := range [][]Mutant{stateMachine, resizing, sharedCores, pauses, snapshots, quotas, shares, gangs, estimates, gpus, gpuHealth, engines, migrations, rollouts, rewards, workers, lengths, jobs, members, leases, access, servers, agents} {
		all = append(all, layer...)
	}
	return all
}

// Overlay writes the mutated files to dir and returns the file that tells the
// go command to use them.
func (m *Mutant) Overlay(root, dir string) (string, error) {
	sources, err := m.sources(root)
	if err != nil {
		return "", fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	replace := map[string]string{}
	for file, text := range sources {
		copied := filepath.Join(dir, strconv.Itoa(len(replace))+"_"+filepath.Base(file))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = copied
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}

// sources returns the mutated files by name.
func (m *Mutant) sources(root string) (map[string]string, error) {
	sources := map[string]string{}
	for _, e := range m.Edits {
		if err := e.apply(root, sources); err != nil {
			return nil, err
		}
	}
	return sources, nil
}

// apply edits a file in sources, which it is read into at its first edit.
func (e Edit) apply(root string, sources map[string]string) error {
	text, known := sources[e.File]
	if !known {
		raw, err := os.ReadFile(filepath.Join(root, e.File))
		if err != nil {
			return err
		}
		text = string(raw)
	}
	if n := strings.Count(text, e.Old); n != 1 {
		return fmt.Errorf("%s holds the text to replace %d times, not once: %w", e.File, n, ErrStale)
	}
	sources[e.File] = strings.Replace(text, e.Old, e.New, 1)
	return nil
}
