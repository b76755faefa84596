package unixsocket

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestListen(t *testing.T) {
	dir, err := os.MkdirTemp("", "rota-*") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: others may connect", st.Mode(), err)
	}
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("a socket in use was taken: %v", err)
	}
	left := filepath.Join(dir, "left")
	if err := os.Rename(path, left); err != nil { // as a process that was killed leaves it
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Listen(left)
	if err != nil {
		t.Fatalf("a socket that nobody listens on: %v", err)
	}
	defer again.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(file); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file was taken for a socket: %v", err)
	}
	long := filepath.Join(dir, strings.Repeat("x", pathBytesMax))
	if _, err := Listen(long); err == nil || !strings.Contains(err.Error(), "choose a shorter one") {
		t.Errorf("a long path: %v", err)
	}
}
