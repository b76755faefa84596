package runtime_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rota/agent/plan"
	"rota/agent/runtime"
)

// allowedOf returns the CPUs on which the threads may run whose environment has an entry,
// as /proc names them, each once.
func allowedOf(t testing.TB, entry string) (lists []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(env, []byte(entry+"\x00")) {
			continue
		}
		statuses, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "task/*/status"))
		for _, status := range statuses {
			text, _ := os.ReadFile(status)
			_, rest, found := strings.Cut(string(text), "Cpus_allowed_list:")
			list, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
			if found && !slices.Contains(lists, list) { // it may have ended meanwhile
				lists = append(lists, list)
			}
		}
	}
	return lists
}

// busy is an attempt that computes, and forks all the time.
func busy(t testing.TB, k plan.Key) (spec runtime.Spec, entry string) {
	entry = "RESIZED=" + t.TempDir()
	spec = shell(k, "while :; do :; done & while :; do /bin/true; done & while :; do (:); done")
	spec.Env = append(spec.Env, entry)
	return spec, entry
}

// TestResize: when Resize has returned, nothing of the attempt may run on what was taken,
// whatever it is doing.
func TestResize(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		c := dial(t, options(t.TempDir(), mode))
		spec, entry := busy(t, key(1))
		spec.CPUs = []int{0}
		start(t, c, spec)
		waitFor(t, "it to run", func() bool { return len(allowedOf(t, entry)) > 0 })
		if !c.Describe().Resizes {
			if err := c.Resize(t.Context(), key(1), []int{1}); err == nil {
				t.Error("what cannot be done is no error")
			}
			return
		}
		for i := range 30 {
			cpus := [][]int{{0, 1}, {1}, {0}}[i%3]
			if err := c.Resize(t.Context(), key(1), cpus); err != nil {
				t.Fatal(err)
			}
			want := []string{"0-1", "1", "0"}[i%3]
			if got := allowedOf(t, entry); !slices.Equal(got, []string{want}) {
				t.Fatalf("after a change to %v it may run on %v", cpus, got)
			}
			if running, _, err := c.List(t.Context()); err != nil || len(running) != 1 || !slices.Equal(running[0].CPUs, cpus) {
				t.Fatalf("the list says %v, %v", running, err)
			}
		}
	})
}

// TestResizeDuringTheStart: the change may come before there is a process.
func TestResizeDuringTheStart(t *testing.T) {
	c := dial(t, options(t.TempDir(), ""))
	if !c.Describe().Resizes {
		t.Skip("no cpuset controller here")
	}
	dir := t.TempDir()
	for i := range uint64(30) {
		resized := filepath.Join(dir, fmt.Sprint("resized-", i))
		spec := shell(key(i), "until test -e "+resized+"; do sleep 0.01; done; grep Cpus_allowed_list /proc/self/status | cut -f 2")
		spec.CPUs = []int{0}
		start(t, c, spec)
		if err := errors.Join(c.Resize(t.Context(), key(i), []int{1}), os.WriteFile(resized, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		if e := nextExit(t, c); strings.TrimSpace(string(e.Stdout)) != "1" {
			t.Fatalf("it ran on CPU %q; %s", e.Stdout, e.Message)
		}
	}
}

func TestResizeOfWhatIsNot(t *testing.T) {
	c := dial(t, options(t.TempDir(), ""))
	if !c.Describe().Resizes {
		t.Skip("no cpuset controller here")
	}
	if err := c.Resize(t.Context(), key(9), []int{1}); err != nil {
		t.Errorf("of what was never started: %v", err)
	}
	runOne(t, c, noop(1))
	if err := c.Resize(t.Context(), key(1), []int{1}); err != nil {
		t.Errorf("of what has ended: %v", err)
	}
	start(t, c, shell(key(2), "sleep 60")) // it shares the CPUs of the node
	pinned := shell(key(3), "sleep 60")
	pinned.CPUs = []int{0}
	start(t, c, pinned)
	for name, err := range map[string]error{
		"without CPUs of its own":     c.Resize(t.Context(), key(2), []int{1}),
		"to none":                     c.Resize(t.Context(), key(3), nil),
		"to CPUs that are not there ": c.Resize(t.Context(), key(3), []int{1 << 12}),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// BenchmarkResize moves an attempt that computes on one CPU to another, or gives it two.
func BenchmarkResize(b *testing.B) {
	for _, mode := range []string{runtime.ModeHybrid, runtime.ModeCgroupV2} {
		for _, cpus := range [][][]int{{{0}, {1}}, {{0}, {0, 1}}} {
			b.Run(fmt.Sprint(mode, cpus), func(b *testing.B) {
				c := dial(b, options(b.TempDir(), mode))
				if !c.Describe().Resizes {
					b.Skip("no cpuset controller here")
				}
				spec := shell(key(1), "while :; do :; done & while :; do :; done")
				spec.CPUs = cpus[0]
				start(b, c, spec)
				i := 0
				for b.Loop() {
					i++
					if err := c.Resize(b.Context(), key(1), cpus[i%2]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// TestCoresFile: an attempt whose CPUs may change finds in a file which it has, and never
// half of that.
func TestCoresFile(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		dir := t.TempDir()
		c := dial(t, options(dir, mode))
		if !c.Describe().Resizes {
			t.Skip("CPUs do not change here")
		}
		out := filepath.Join(t.TempDir(), "out")
		spec := shell(key(1), `while :; do cat "$ROTA_CORES_FILE" >>`+out+` || exit 1; done`)
		spec.CPUs, spec.Follows = []int{0}, true
		start(t, c, spec)
		last := func() string {
			text, _ := os.ReadFile(out)
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			return lines[len(lines)-1]
		}
		waitFor(t, "it to read the file", func() bool { return last() == "0" })
		for i := range 30 {
			cpus, want := [][]int{{0, 1}, {1}, {0}}[i%3], []string{"0,1", "1", "0"}[i%3]
			if err := c.Resize(t.Context(), key(1), cpus); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "it to read "+want, func() bool { return last() == want })
		}
		if err := c.Kill(t.Context(), key(1), plan.ReasonCanceled); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
			if !slices.Contains([]string{"0,1", "1", "0"}, line) {
				t.Fatalf("it read %q", line)
			}
		}
		waitFor(t, "the file to go with the attempt", func() bool {
			left, _ := filepath.Glob(filepath.Join(dir, "cores", "*"))
			return len(left) == 0
		})
	})
}
