package journal_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"rota/agent/journal"
	"rota/agent/plan"
)

func key(action uint64) plan.Key {
	return plan.Key{Action: action, Attempt: 1, Incarnation: 7}
}

func keys(actions ...uint64) (out []plan.Key) {
	for _, a := range actions {
		out = append(out, key(a))
	}
	return out
}

func open(t *testing.T, path, bootID string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(path, bootID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsWrittenIsThereAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path, "boot-1")
	id := j.ID()
	must(t, j.SetIncarnation(7))
	must(t, j.Accept(keys(1, 2, 3)))
	must(t, j.Report(keys(2, 3)))
	must(t, j.Forget(keys(3)))
	must(t, j.Close())

	j = open(t, path, "boot-1")
	if j.ID() != id || id == "" || j.Incarnation() != 7 {
		t.Errorf("ID %q and incarnation %d, want %q and 7", j.ID(), j.Incarnation(), id)
	}
	want := map[plan.Key]journal.State{key(1): {}, key(2): {Reported: true}}
	if got := j.Attempts(); !maps.Equal(got, want) {
		t.Errorf("attempts %v, want %v", got, want)
	}
}

func TestAttemptsFromBeforeARebootAreTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path, "boot-1")
	must(t, j.SetIncarnation(7))
	must(t, j.Accept(keys(1)))
	must(t, j.Close())
	j = open(t, path, "boot-2")
	must(t, j.Accept(keys(2)))
	must(t, j.Close())

	j = open(t, path, "boot-2")
	want := map[plan.Key]journal.State{key(1): {Rebooted: true}, key(2): {}}
	if got := j.Attempts(); !maps.Equal(got, want) {
		t.Errorf("attempts %v, want %v", got, want)
	}
}

func TestANewIncarnationForgetsTheAttemptsOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path, "boot")
	must(t, j.SetIncarnation(7))
	must(t, j.Accept(keys(1)))
	must(t, j.SetIncarnation(8))
	must(t, j.Close())
	if got := open(t, path, "boot").Attempts(); len(got) != 0 {
		t.Errorf("attempts %v, want none", got)
	}
}

func TestTwoAgentsCannotShareAJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	open(t, path, "boot")
	if _, err := journal.Open(path, "boot"); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("opened twice: %v, want ErrLocked", err)
	}
}

// story writes a journal step by step and returns the bytes after each step.
func story(t *testing.T) (steps [][]byte, attempts []int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path, "boot")
	for _, step := range []func() error{
		func() error { return j.SetIncarnation(7) },
		func() error { return j.Accept(keys(1, 2, 300)) },
		func() error { return j.Report(keys(1)) },
		func() error { return j.Accept(keys(4)) },
		func() error { return j.Forget(keys(1, 2)) },
	} {
		must(t, step())
		data, err := os.ReadFile(path)
		must(t, err)
		steps, attempts = append(steps, data), append(attempts, len(j.Attempts()))
	}
	must(t, j.Close())
	return steps, attempts
}

func write(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	must(t, os.WriteFile(path, data, 0o600))
	return path
}

// A process that dies while it writes leaves a prefix of what it wrote. The
// journal is then as it was after the last whole step, and can be written on.
func TestACrashAtEveryByteLeavesTheLastWholeStep(t *testing.T) {
	steps, attempts := story(t)
	whole := steps[len(steps)-1]
	step := 0
	for n := len(steps[0]); n <= len(whole); n++ {
		if step+1 < len(steps) && n >= len(steps[step+1]) {
			step++
		}
		path := write(t, whole[:n])
		j := open(t, path, "boot")
		if got := len(j.Attempts()); got != attempts[step] {
			t.Fatalf("cut at byte %d of %d: %d attempts, want the %d of step %d", n, len(whole), got, attempts[step], step)
		}
		must(t, j.Accept(keys(99)))
		must(t, j.Close())
		if _, known := open(t, path, "boot").Attempts()[key(99)]; !known {
			t.Fatalf("cut at byte %d: what was accepted after it is lost", n)
		}
	}
}

// No flipped bit may make an accepted attempt vanish unnoticed.
func TestEveryFlippedBitIsNoticed(t *testing.T) {
	steps, _ := story(t)
	whole := steps[len(steps)-1]
	for i := range whole {
		for bit := range 8 {
			data := bytes.Clone(whole)
			data[i] ^= 1 << bit
			j, err := journal.Open(write(t, data), "boot")
			if err == nil {
				j.Close()
			}
			if !errors.Is(err, journal.ErrCorrupt) {
				t.Fatalf("bit %d of byte %d of %d flipped: %v, want ErrCorrupt", bit, i, len(whole), err)
			}
		}
	}
}

func TestOtherDamage(t *testing.T) {
	steps, _ := story(t)
	whole := steps[len(steps)-1]
	for name, data := range map[string][]byte{
		"empty":               {},
		"something else":      []byte("#!/bin/sh\nexit 0\n"),
		"cut in the identity": steps[0][:20],
		"zeros at the end":    append(bytes.Clone(whole), make([]byte, 64)...),
		"a frame is missing":  append(bytes.Clone(steps[0]), whole[len(steps[1])-1:]...),
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, data)
			if _, err := journal.Open(path, "boot"); !errors.Is(err, journal.ErrCorrupt) {
				t.Fatalf("opened: %v, want ErrCorrupt", err)
			}
			aside, err := journal.SetAside(path)
			must(t, err)
			if kept, err := os.ReadFile(aside); err != nil || !bytes.Equal(kept, data) {
				t.Errorf("the damaged file was not kept: %v", err)
			}
			if j := open(t, path, "boot"); j.Incarnation() != 0 || len(j.Attempts()) != 0 {
				t.Error("the new journal is not empty")
			}
		})
	}
}

func TestItStaysSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path, "boot-1")
	must(t, j.SetMachine("machine"))
	must(t, j.SetIncarnation(7))
	must(t, j.Accept(keys(1, 2)))
	must(t, j.Report(keys(2)))
	must(t, j.Close())
	j = open(t, path, "boot-2")
	must(t, j.Accept(keys(3)))
	batch := make([]plan.Key, 4096)
	for round := range 100 {
		for i := range batch {
			batch[i] = key(uint64(1000 + round*len(batch) + i))
		}
		must(t, j.Accept(batch))
		must(t, j.Forget(batch))
	}
	must(t, j.Close())
	st, err := os.Stat(path)
	must(t, err)
	if st.Size() > 2<<20 {
		t.Errorf("the journal of three attempts has %d bytes", st.Size())
	}
	want := map[plan.Key]journal.State{key(1): {Rebooted: true}, key(2): {Reported: true, Rebooted: true}, key(3): {}}
	j = open(t, path, "boot-2")
	if got := j.Attempts(); !maps.Equal(got, want) || j.Machine() != "machine" {
		t.Errorf("attempts %v, want %v; machine %q", got, want, j.Machine())
	}
}
