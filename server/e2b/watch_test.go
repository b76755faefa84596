package e2b

import (
	"fmt"
	"strings"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
)

// TestCompare: what is seen between two lists of a directory.
func TestCompare(t *testing.T) {
	const file, dir = rotav1.FileType_FILE_TYPE_REGULAR, rotav1.FileType_FILE_TYPE_DIRECTORY
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	before := map[string]seen{
		"gone": {file, 1, 0o644, at(1)}, "same": {file, 1, 0o644, at(1)}, "grown": {file, 1, 0o644, at(1)}, "touched": {file, 1, 0o644, at(1)},
		"locked": {file, 1, 0o644, at(1)}, "dir": {dir, 0, 0o755, at(1)}, "turned": {dir, 0, 0o755, at(1)},
	}
	now := map[string]seen{
		"same": {file, 1, 0o644, at(1)}, "grown": {file, 2, 0o644, at(2)}, "touched": {file, 1, 0o644, at(2)},
		"locked": {file, 1, 0o400, at(2)}, "dir": {dir, 0, 0o755, at(2)}, "turned": {file, 0, 0o755, at(2)},
		"new": {file, 3, 0o644, at(2)}, "new/dir": {dir, 0, 0o755, at(2)},
	}
	var got []string
	for _, event := range compare(before, now) {
		got = append(got, fmt.Sprint(strings.TrimPrefix(event.Type.String(), "EVENT_TYPE_"), " ", event.Name))
	}
	want := "REMOVE gone, WRITE grown, CHMOD locked, CREATE new, WRITE new, CREATE new/dir, WRITE touched, CREATE turned"
	if got := strings.Join(got, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestInside: only paths below the home are paths of a sandbox.
func TestInside(t *testing.T) {
	for p, want := range map[string]string{
		"": "", ".": "", "/home/user": "", "/home/user/": "", "~": "", "a": "a", "./a//b/": "a/b", "~/a": "a", "/home/user/a/../b": "b",
		"~user": "~user", "a/~": "a/~", "..a": "..a",
	} {
		if got, err := inside(p); err != nil || got != want {
			t.Errorf("inside(%q) = %q, %v", p, got, err)
		}
	}
	for _, p := range []string{"..", "../a", "a/../../b", "/", "/home", "/home/users", "/home/user/..", "/home/user/../x", "~/..", "/etc/passwd", "a\x00"} {
		if got, err := inside(p); err == nil {
			t.Errorf("inside(%q) = %q", p, got)
		}
	}
}

// FuzzInside: whatever is asked for, the answer stays below the directory.
func FuzzInside(f *testing.F) {
	for _, p := range []string{"a", "/home/user/a", "~/../x", "~//etc", "..", "/home/user/../../etc"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		got, err := inside(p)
		if err == nil && (strings.HasPrefix(got, "/") || got == ".." || strings.HasPrefix(got, "../") || strings.Contains(got, "/../")) {
			t.Errorf("inside(%q) = %q", p, got)
		}
	})
}
