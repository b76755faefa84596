package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files of a stored record: one JSON document with what is short, and a file
// with one JSON object a line for everything else, so that ordinary tools can
// look through it.
const (
	recordFile     = "record.json"
	opsFile        = "ops.jsonl"
	executionsFile = "executions.jsonl"
	servingsFile   = "servings.jsonl"
	holdingsFile   = "holdings.jsonl"
	turnsFile      = "turns.jsonl"
	watchFile      = "watch.jsonl"
	watchNotesFile = "watch-notes.jsonl"
	samplesFile    = "samples.jsonl"
	finalFile      = "final.jsonl"
	ordinaryFile   = "turnarounds.jsonl"
	logPrefix      = "log-" // followed by the server and .jsonl; the first line is the Log
	linesSuffix    = ".jsonl"
)

// Save writes a record into a folder, which it makes.
func (rec *Record) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save record: %w", err)
	}
	text, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return fmt.Errorf("save record: %w", err)
	}
	errs := []error{
		os.WriteFile(filepath.Join(dir, recordFile), append(text, '\n'), 0o644),
		writeLines(dir, opsFile, rec.Ops),
		writeLines(dir, executionsFile, rec.Executions),
		writeLines(dir, servingsFile, rec.Servings),
		writeLines(dir, holdingsFile, rec.Holdings),
		writeLines(dir, turnsFile, rec.Turns),
		writeLines(dir, watchFile, rec.Watch),
		writeLines(dir, watchNotesFile, rec.WatchNotes),
		writeLines(dir, samplesFile, rec.Samples),
		writeLines(dir, finalFile, rec.Final),
		writeLines(dir, ordinaryFile, rec.Turnarounds),
	}
	for _, log := range rec.Logs {
		errs = append(errs, writeFile(dir, logPrefix+log.Server+linesSuffix, func(e *json.Encoder) error {
			return errors.Join(e.Encode(log), encodeAll(e, log.Entries))
		}))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("save record: %w", err)
	}
	return nil
}

// Load reads a record that was saved.
func Load(dir string) (*Record, error) {
	rec := &Record{}
	text, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return nil, fmt.Errorf("load record: %w", err)
	}
	err = errors.Join(
		json.Unmarshal(text, rec),
		readLines(dir, opsFile, &rec.Ops),
		readLines(dir, executionsFile, &rec.Executions),
		readLines(dir, servingsFile, &rec.Servings),
		readLines(dir, holdingsFile, &rec.Holdings),
		readLines(dir, turnsFile, &rec.Turns),
		readLines(dir, watchFile, &rec.Watch),
		readLines(dir, watchNotesFile, &rec.WatchNotes),
		readLines(dir, samplesFile, &rec.Samples),
		readLines(dir, finalFile, &rec.Final),
		readLines(dir, ordinaryFile, &rec.Turnarounds),
		readLogs(dir, &rec.Logs),
	)
	if err != nil {
		return nil, fmt.Errorf("load record: %w", err)
	}
	return rec, nil
}

func writeLines[T any](dir, name string, lines []T) error {
	return writeFile(dir, name, func(e *json.Encoder) error { return encodeAll(e, lines) })
}

func encodeAll[T any](e *json.Encoder, lines []T) error {
	for i := range lines {
		if err := e.Encode(&lines[i]); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(dir, name string, write func(*json.Encoder) error) error {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<16)
	if err := errors.Join(write(json.NewEncoder(w)), w.Flush(), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func readLines[T any](dir, name string, lines *[]T) error {
	return readFile(dir, name, func(d *json.Decoder) error { return decodeAll(d, lines) })
}

func decodeAll[T any](d *json.Decoder, lines *[]T) error {
	for {
		var line T
		if err := d.Decode(&line); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		*lines = append(*lines, line)
	}
}

func readFile(dir, name string, read func(*json.Decoder) error) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := read(json.NewDecoder(bufio.NewReaderSize(f, 1<<16))); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// readLogs reads the log of every server, in the order of their names.
func readLogs(dir string, logs *[]Log) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), logPrefix) || !strings.HasSuffix(f.Name(), linesSuffix) {
			continue
		}
		var log Log
		err := readFile(dir, f.Name(), func(d *json.Decoder) error {
			return errors.Join(d.Decode(&log), decodeAll(d, &log.Entries))
		})
		if err != nil {
			return err
		}
		*logs = append(*logs, log)
	}
	slices.SortFunc(*logs, func(a, b Log) int { return strings.Compare(a.Server, b.Server) })
	return nil
}
