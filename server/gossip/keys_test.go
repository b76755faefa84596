package gossip

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// keyFile is a file of keys that is replaced as an operator's editor would.
type keyFile struct {
	*testing.T
	path string
}

func (f keyFile) write(keys ...[]byte) {
	f.Helper()
	var text []byte
	for _, k := range keys {
		text = append(text, base64.StdEncoding.EncodeToString(k)...)
		text = append(text, '\n')
	}
	if err := os.WriteFile(f.path+".new", text, 0o600); err != nil {
		f.Fatal(err)
	}
	if err := os.Rename(f.path+".new", f.path); err != nil {
		f.Fatal(err)
	}
}

// TestKeysChangeWithoutARestart: in the three steps of the document, with two members that
// see each other all the time. Then the old key opens nothing, and the new one does.
func TestKeysChangeWithoutARestart(t *testing.T) {
	old, fresh := testKey, bytes.Repeat([]byte{9}, keyBytes)
	f := keyFile{t, filepath.Join(t.TempDir(), "gossip.key")}
	f.write(old)
	withFile := func(name string, seeds ...string) *Gossip {
		c := config(name, seeds...)
		c.KeyFile, c.KeyInterval = f.path, 10*time.Millisecond
		return run(t, c)
	}
	a := withFile("a")
	b := withFile("b", a.Addr())
	meet := func() {
		t.Helper()
		sees(t, a, "a b")
		sees(t, b, "a b")
	}
	meet()
	for _, keys := range [][][]byte{{old, fresh}, {fresh, old}, {fresh}} {
		f.write(keys...)
		has(t, a, keys...)
		has(t, b, keys...)
		meet()
	}
	newcomer := config("c", a.Addr())
	newcomer.Keys = [][]byte{fresh}
	run(t, newcomer)
	sees(t, a, "a b c")
	late := run(t, config("d"))
	if _, err := late.list.Join([]string{a.Addr()}); err == nil {
		t.Error("the old key still opens the cluster")
	}
	f.write()
	if err := os.Chmod(f.path, 0o644); err != nil { // whoever reads it could pose as a server
		t.Fatal(err)
	}
	has(t, a, fresh)
}

// has waits until a member has these keys, the first as its primary one.
func has(t *testing.T, g *Gossip, want ...[]byte) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		got := g.ring.GetKeys()
		if len(got) == len(want) && bytes.Equal(got[0], want[0]) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it has %d keys, must have %d", len(got), len(want))
		}
	}
}
