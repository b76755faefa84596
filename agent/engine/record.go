package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	rotav1 "rota/api/gen/rota/v1"

	"rota/agent/engine/chunks"
	frame "rota/agent/internal/record"
	"rota/agent/plan"
)

// recordMagic begins the file of a record: then comes one frame of package record, with JSON.
const recordMagic = "rotaeng\x01"

// left is how an engine was left.
type left string

const (
	leftBusy   left = "busy" // something was being done to it
	leftAwake  left = "awake"
	leftAsleep left = "asleep"
)

// entry is one engine that exists, or is about to.
type entry struct {
	Runs chunks.Want
	Key  plan.Key
	Port int
	Spec []byte // rota.v1.EngineSpec
	Left left
}

// record is the file that says which engines there are.
type record struct{ path string }

// read returns what the record has; nothing if there is none. ErrDamaged: it cannot be read.
func (r record) read() ([]entry, error) {
	data, err := os.ReadFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("engines: %w", err)
	}
	entries, err := decodeRecord(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, r.path, err)
	}
	return entries, nil
}

// ErrDamaged means that the record of engines was damaged after it was written.
var ErrDamaged = errors.New("engines: damaged record")

func decodeRecord(data []byte) ([]entry, error) {
	if len(data) < len(recordMagic) || string(data[:len(recordMagic)]) != recordMagic {
		return nil, errors.New("not a record of engines")
	}
	data = data[len(recordMagic):]
	payload, n, err := frame.Cut(data)
	switch {
	case err != nil:
		return nil, err
	case n == 0 || n != len(data):
		return nil, errors.New("it is not one whole frame")
	}
	var entries []entry
	if err := json.Unmarshal(payload, &entries); err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.Key.Engine() || new(rotav1.EngineSpec).UnmarshalVT(e.Spec) != nil {
			return nil, errors.New("malformed entry")
		}
	}
	return entries, nil
}

// errStale means that the record says what is not so any more, and could not be removed either.
var errStale = errors.New("an old record is left")

// write replaces the record, atomically. It need not outlive the machine: after a power loss no
// engine runs, so whatever the record says then is found to be gone, and a torn one is set aside.
// Waiting for the disk would take longer than many an engine takes to wake.
//
// A record that cannot be replaced, as on a full disk, is removed: an agent that finds none stops
// what runs, while one that finds an old one would take an engine for awake that sleeps.
func (r record) write(entries []entry) error {
	payload, err := json.Marshal(entries)
	if err != nil {
		return fmt.Errorf("engines: %w", err)
	}
	fresh := r.path + ".new"
	if err = os.WriteFile(fresh, frame.Append([]byte(recordMagic), payload), 0o600); err == nil {
		err = os.Rename(fresh, r.path)
	}
	if err == nil {
		return nil
	}
	_ = os.Remove(fresh)
	if stays := os.Remove(r.path); stays != nil && !errors.Is(stays, fs.ErrNotExist) {
		err = fmt.Errorf("%w (%w: %w)", err, errStale, stays)
	}
	return fmt.Errorf("engines: write the record: %w", err)
}
