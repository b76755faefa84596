package gossip

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
)

// TestKeysAreChangedByServers: install, use, remove, each on two members that see each
// other throughout. The files have the keys too, so a restart forgets nothing.
func TestKeysAreChangedByServers(t *testing.T) {
	fresh := bytes.Repeat([]byte{42}, keyBytes)
	withFile := func(name string, seeds ...string) *Gossip {
		f := keyFile{t, filepath.Join(t.TempDir(), "gossip.key")}
		f.write(testKey)
		c := config(name, seeds...)
		c.KeyFile = f.path
		return run(t, c)
	}
	a := withFile("a")
	b := withFile("b", a.Addr())
	step := func(req *rotav1.ChangeKeyringRequest, want ...[]byte) {
		t.Helper()
		for _, g := range []*Gossip{a, b} {
			for range 2 { // what is so already is no error
				resp, err := g.ChangeKeyring(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if len(resp.Ids) != len(want) || resp.Ids[0] != KeyID(want[0]) {
					t.Fatalf("it says that it has %v", resp.Ids)
				}
			}
			has(t, g, want...)
			if saved, err := LoadKeys(g.keyFile); err != nil || len(saved) != len(want) || !bytes.Equal(saved[0], want[0]) {
				t.Fatalf("the file has %d keys, %v", len(saved), err)
			}
		}
		sees(t, a, "a b")
		sees(t, b, "a b")
	}
	sees(t, a, "a b")
	step(&rotav1.ChangeKeyringRequest{}, testKey)
	step(&rotav1.ChangeKeyringRequest{Install: fresh}, testKey, fresh)
	step(&rotav1.ChangeKeyringRequest{Use: KeyID(fresh)}, fresh, testKey)
	step(&rotav1.ChangeKeyringRequest{Remove: KeyID(testKey)}, fresh)
	if info, err := os.Stat(a.keyFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of keys: %v, %v", info.Mode(), err)
	}
}

func TestRefusedChangesOfKeysChangeNothing(t *testing.T) {
	f := keyFile{t, filepath.Join(t.TempDir(), "gossip.key")}
	f.write(testKey)
	c := config("a")
	c.KeyFile = f.path
	g := run(t, c)
	for _, r := range []struct {
		name string
		req  *rotav1.ChangeKeyringRequest
		want error
	}{
		{"a short key", &rotav1.ChangeKeyringRequest{Install: []byte("short")}, ErrKey},
		{"an unknown key is used", &rotav1.ChangeKeyringRequest{Use: "0123456789abcdef"}, ErrUnknownKey},
		{"the key in use is removed", &rotav1.ChangeKeyringRequest{Remove: KeyID(testKey)}, ErrPrimary},
	} {
		if _, err := g.ChangeKeyring(t.Context(), r.req); !errors.Is(err, r.want) || connect.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Errorf("%s: %v", r.name, err)
		}
		has(t, g, testKey)
	}
	for i := range keysMax - 1 {
		if _, err := g.ChangeKeyring(t.Context(), &rotav1.ChangeKeyringRequest{Install: bytes.Repeat([]byte{byte(i + 100)}, keyBytes)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.ChangeKeyring(t.Context(), &rotav1.ChangeKeyringRequest{Install: bytes.Repeat([]byte{99}, keyBytes)}); !errors.Is(err, ErrTooManyKeys) {
		t.Errorf("one key more than a file may have: %v", err)
	}
	keyless := config("b")
	keyless.Keys = nil
	if _, err := run(t, keyless).ChangeKeyring(t.Context(), &rotav1.ChangeKeyringRequest{Install: testKey}); !errors.Is(err, ErrNoKeys) {
		t.Errorf("without keys: %v", err)
	}
}
