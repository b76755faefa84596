package model

import (
	"strings"
	"testing"

	"rota/fsm"
)

// TestPlantedPanics: the model expects what was planted to be refused or halted, and nothing else.
func TestPlantedPanics(t *testing.T) {
	pool := func(d fsm.Decision) bool { return d.Pool == 1 }
	command := func(d fsm.Decision) bool { return d.Command == 0 }
	nothing := func(fsm.Decision) bool { return false }
	for _, c := range []struct {
		name    string
		panics  func(fsm.Decision) bool
		planted Planted
		wants   string // empty: the model agrees
	}{
		{"a pool", pool, Planted{Command: -1, Pool: 1}, ""},
		{"a command", command, Planted{Command: 0}, ""},
		{"a pool that did not panic", nothing, Planted{Command: -1, Pool: 1}, "pool default is halted: \"\", must be halted: true"},
		{"a pool that was not planted", pool, Planted{Command: -1, Quota: 1}, "pool default is halted: \"planted\", must be halted: false"},
		{"a command that did not panic", nothing, Planted{Command: 0}, "accepted, must be refused with [COMMAND_FAILED]"},
		{"a command that was not planted", command, Planted{Command: 1}, "refused with COMMAND_FAILED"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 0, nil)
			w.must(t, one[0])
			w.must(t, quotaOf(2))
			w.machine.PlantPanics(func(d fsm.Decision) {
				if c.panics(d) {
					panic(PlantedMessage)
				}
			})
			w.model.Planted = func(uint64) []Planted { return []Planted{c.planted} }
			entry, results, err := w.real(submitOf(cores(1)))
			if err != nil {
				t.Fatal(err)
			}
			err = w.model.Step(w.index, 0, entry, results, w.s)
			if c.wants == "" && err != nil || c.wants != "" && (err == nil || !strings.Contains(err.Error(), c.wants)) {
				t.Errorf("the model says %v, want %q", err, c.wants)
			}
		})
	}
}
