package failpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Env is the environment variable that names the folder. Only a build with
// -tags faults reads it.
const Env = "ROTA_FAILPOINTS"

// actedSuffix is what a file that was acted upon is renamed with.
const actedSuffix = ".hit"

// ErrInvalid says that a failpoint or its action does not exist.
var ErrInvalid = errors.New("no such failpoint or action")

// Arm makes the next process that comes by the failpoint do the action:
//
//	kill      it kills itself, as kill -9 does
//	exit      it exits with status 1 at once
//	stop      it stops itself, as kill -STOP does
//	sleep 2s  the goroutine that came by sleeps
//
// Of several processes, or goroutines, one does.
func Arm(dir, name, action string) error {
	if !slices.Contains(Names(), name) {
		return fmt.Errorf("%w: %q is none of %s", ErrInvalid, name, strings.Join(Names(), ", "))
	}
	if _, err := parse(action); err != nil {
		return err
	}
	path := filepath.Join(dir, name)
	if err := os.Remove(path + actedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("arm failpoint: %w", err)
	}
	// Whole or not at all: it may be acted upon at any moment.
	if err := os.WriteFile(path+".new", []byte(action), 0o600); err != nil {
		return fmt.Errorf("arm failpoint: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("arm failpoint: %w", err)
	}
	return nil
}

// Disarm takes back what nobody has done yet.
func Disarm(dir, name string) error {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("disarm failpoint: %w", err)
	}
	return nil
}

// Acted says whether a process came by the failpoint since it was armed last, and
// has begun to do what it was told.
func Acted(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name+actedSuffix))
	return err == nil
}

// act is what happens at a failpoint.
type act struct {
	verb  string
	pause time.Duration
}

func parse(action string) (act, error) {
	verb, rest, _ := strings.Cut(strings.TrimSpace(action), " ")
	switch {
	case rest == "" && slices.Contains([]string{"kill", "exit", "stop"}, verb):
		return act{verb: verb}, nil
	case verb == "sleep":
		if d, err := time.ParseDuration(rest); err == nil && d >= 0 {
			return act{verb, d}, nil
		}
	}
	return act{}, fmt.Errorf("%w: %q is none of kill, exit, stop, sleep DURATION", ErrInvalid, action)
}
