package runtime

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"rota/agent/plan"
)

// An attempt whose end could not be journaled, as the disk was full, and that was forgotten since, did
// not die with its supervisor.
func TestAForgottenAttemptIsNotLost(t *testing.T) {
	h, k := newHistory(), plan.Key{Action: 1, Attempt: 1}
	h.apply(&record{Start: &k})
	h.apply(&record{Forget: []plan.Key{k}})
	if len(h.started) > 0 {
		t.Errorf("%d attempts seem to have died with their supervisor", len(h.started))
	}
}

// Output that is empty is there at any moment while its file is replaced.
func TestEmptyOutputIsAlwaysThere(t *testing.T) {
	s := &outputStore{dir: t.TempDir()}
	path := filepath.Join(s.dir, "1.1.1.stdout")
	for _, file := range []string{filepath.Join(s.dir, emptyName), path} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := os.Stat(path); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 2000 {
		fresh := filepath.Join(s.dir, "fresh")
		if err := os.WriteFile(fresh, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(fresh, path); err != nil {
			t.Fatal(err)
		}
		s.replaceEmpty(path)
	}
	close(done)
	reader.Wait()
	if left, _ := filepath.Glob(filepath.Join(s.dir, sparePrefix+"*")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}
