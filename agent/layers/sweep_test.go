package layers_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Files of a deleted snapshot may take minutes to remove. Others begin meanwhile, and a restart
// removes what is left.
func TestTrajectoriesBeginWhileFilesAreRemoved(t *testing.T) {
	p := newPlace(t).copies(plenty)
	p.make("one", os.Geteuid())
	p.as("one", "echo first > file")
	p.take(1, 11, "one")
	p.take(2, 11, "one")
	removing, goOn, swept := make(chan string), make(chan struct{}), make(chan error)
	p.OnRemove(func(path string) error {
		removing <- path
		<-goOn
		return nil // as if it had been killed
	})
	go func() { swept <- p.Remove(1) }()
	path := <-removing
	began := make(chan error)
	go func() { began <- p.Take(t.Context(), 3, "", 11, p.home("one")) }()
	select {
	case err := <-began:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("a snapshot waits for the removal of another")
	}
	close(goOn)
	if err := <-swept; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("nothing is left to remove: %v", err)
	}
	p.copies(plenty) // as an agent that was started anew
	if left, err := os.ReadDir(filepath.Join(p.dir, "copies", "removed")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	p.make("two", os.Geteuid())
	p.begin(3, 12, "two")
	if got := p.as("two", "cat file"); got != "first\n" {
		t.Errorf("the fork has %q", got)
	}
}
