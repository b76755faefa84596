package runtime_test

import (
	"os"
	"testing"

	"rota/agent/plan"
	"rota/agent/runtime"
)

// A process that has kept a descriptor of an old output or working directory finds
// nothing in it that belongs to a later attempt: no file is used twice.
func TestNoFileIsGivenToASecondAttempt(t *testing.T) {
	o := options(t.TempDir(), "")
	o.OutputKeepCount = 1
	c := dial(t, o)
	var kept []*os.File
	keep := func(path string) {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		for _, old := range kept {
			if was, err := old.Stat(); err == nil && os.SameFile(was, st) {
				t.Errorf("%s is the file that was %s", path, old.Name())
			}
		}
		kept = append(kept, f)
	}
	for n := uint64(1); n <= 8; n++ {
		start(t, c, shell(key(n), "while test -d .; do sleep 0.01; done"))
		paths := []string{
			runtime.OutputPath(o.Dir, key(n), runtime.Stdout), runtime.OutputPath(o.Dir, key(n), runtime.Stderr), runtime.WorkDir(o.Dir, key(n)),
		}
		for _, path := range paths {
			waitFor(t, path, func() bool { return exists(path) })
			keep(path)
		}
		if err := c.Kill(t.Context(), key(n), plan.ReasonCanceled); err != nil {
			t.Fatal(err)
		}
		nextExit(t, c)
	}
	if len(kept) != 24 {
		t.Errorf("%d of 24 files were seen", len(kept))
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
