package pki

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// machine is a process's own copy of its files, as on another machine.
type machine struct {
	*testing.T
	Files
}

// install copies files of the authority's folder to the machine.
func (m machine) install(from ...[2]string) {
	m.Helper()
	for _, f := range from {
		content, err := os.ReadFile(f[0])
		if err == nil {
			err = ReplaceFile(f[1], content, 0o600)
		}
		if err != nil {
			m.Fatal(err)
		}
	}
}

func newMachine(t *testing.T, dir, name string) machine {
	t.Helper()
	m := machine{t, FilesIn(t.TempDir(), name)}
	m.bundle(dir)
	m.leaf(dir, name)
	return m
}

func (m machine) bundle(dir string) { m.install([2]string{FilesIn(dir, caName).CA, m.CA}) }

func (m machine) leaf(dir, name string) {
	f := FilesIn(dir, name)
	m.install([2]string{f.Cert, m.Cert}, [2]string{f.Key, m.Key})
}

// TestAnAuthorityIsReplacedWhileTwoProcessesTalk: at every step, and with every order of
// copying its files, a new connection between two running processes works. After the last
// step a certificate of the old authority opens nothing.
func TestAnAuthorityIsReplacedWhileTwoProcessesTalk(t *testing.T) {
	dir := newPKI(t)
	server, client := newMachine(t, dir, "server"), newMachine(t, dir, "client")
	stolen := newMachine(t, dir, "client")
	listening, err := ServerConfig(server.Files)
	if err != nil {
		t.Fatal(err)
	}
	dialing, err := ClientConfig(client.Files, RoleServer)
	if err != nil {
		t.Fatal(err)
	}
	addr, _ := greeter(t, listening)
	talk := func(when string) {
		t.Helper()
		if got, err := ask(t, addr, dialing); got != "hello client client" {
			t.Fatalf("%s: got %q, %v", when, got, err)
		}
	}
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	talk("before")
	step(AddCA(dir, Authority{Name: "second", Lifetime: 1000 * 24 * time.Hour}))
	server.bundle(dir)
	talk("the server has both")
	client.bundle(dir)
	talk("both have both")
	step(UseCA(dir))
	if err := RemoveCA(dir); !errors.Is(err, ErrStillUsed) {
		t.Fatalf("removed a CA that certificates are of: %v", err)
	}
	for _, name := range []string{"server", "agent", "operator", "client"} {
		step(Renew(dir, name, Renewal{}))
	}
	client.leaf(dir, "client")
	talk("the client has a certificate of the new one")
	server.leaf(dir, "server")
	talk("both have")
	step(RemoveCA(dir))
	client.bundle(dir)
	talk("the client has forgotten the old one")
	server.bundle(dir)
	talk("both have forgotten the old one")

	old, err := ClientConfig(stolen.Files, RoleServer)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ask(t, addr, old); got != "" || err == nil {
		t.Errorf("a certificate of the old CA got %q, %v", got, err)
	}
	cas, signs, err := Trusted(dir)
	if err != nil || len(cas) != 1 || signs != 0 || cas[0].Subject.CommonName != "second" {
		t.Errorf("left are %d CAs, %d signs, %v", len(cas), signs, err)
	}
	if left := time.Until(cas[0].NotAfter); left < 999*24*time.Hour || left > 1000*24*time.Hour {
		t.Errorf("the CA is valid for %v", left)
	}
}

// TestStepsOfAReplacementComeInOrder: each step out of its order changes nothing.
func TestStepsOfAReplacementComeInOrder(t *testing.T) {
	dir := newPKI(t)
	want := func(got, want error) {
		t.Helper()
		if !errors.Is(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
	want(UseCA(dir), ErrNotAdded)
	want(RemoveCA(dir), ErrOneCA)
	want(AddCA(dir, Authority{}), nil)
	want(AddCA(dir, Authority{}), ErrAdded)
	want(RemoveCA(dir), ErrAdded)
	want(UseCA(dir), nil)
	want(UseCA(dir), ErrNotAdded)
	want(AddCA(filepath.Join(dir, "none"), Authority{}), os.ErrNotExist)
}

// TestAnInterruptedAddIsRepeated: the key was written, and ca.pem was not.
func TestAnInterruptedAddIsRepeated(t *testing.T) {
	dir := newPKI(t)
	before, err := os.ReadFile(FilesIn(dir, caName).CA)
	if err == nil {
		err = errors.Join(AddCA(dir, Authority{}), os.WriteFile(FilesIn(dir, caName).CA, before, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := UseCA(dir); err == nil {
		t.Fatal("a CA signs that nobody trusts")
	}
	if err := errors.Join(AddCA(dir, Authority{}), UseCA(dir), Issue(dir, RoleClient, "late")); err != nil {
		t.Fatal(err)
	}
	if cas, signs, err := Trusted(dir); err != nil || len(cas) != 2 || signs != 1 {
		t.Errorf("%d CAs, %d signs, %v", len(cas), signs, err)
	}
}

// TestAnInterruptedAddIsRepeatedWhileTheOldOneIsThere: the same, of a second replacement before
// the first one has ended.
func TestAnInterruptedAddIsRepeatedWhileTheOldOneIsThere(t *testing.T) {
	dir := newPKI(t)
	if err := errors.Join(AddCA(dir, Authority{}), UseCA(dir)); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(FilesIn(dir, caName).CA)
	if err == nil {
		err = errors.Join(AddCA(dir, Authority{}), os.WriteFile(FilesIn(dir, caName).CA, before, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := UseCA(dir); !errors.Is(err, ErrNotAdded) {
		t.Fatalf("used: %v", err)
	}
	if err := RemoveCA(dir); errors.Is(err, ErrAdded) {
		t.Fatalf("nothing was added: %v", err)
	}
	if err := errors.Join(AddCA(dir, Authority{}), UseCA(dir), Issue(dir, RoleClient, "late")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(nextKey(dir), []byte("half a k"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(AddCA(dir, Authority{}), UseCA(dir)); err != nil {
		t.Errorf("after a key that was half written: %v", err)
	}
}

// TestAnInterruptedRenewalIsRepeated: the key was replaced, and the certificate was not.
func TestAnInterruptedRenewalIsRepeated(t *testing.T) {
	dir := newPKI(t)
	if err := Issue(dir, RoleServer, "s1", "s1.example.org"); err != nil {
		t.Fatal(err)
	}
	f := FilesIn(dir, "s1")
	old, err := os.ReadFile(f.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(Renew(dir, "s1", Renewal{}), os.Rename(f.Cert, f.Cert+".new"), os.WriteFile(f.Cert, old, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := Renew(dir, "s1", Renewal{}); err != nil {
		t.Fatal(err)
	}
	if names := readPair(t, f).Leaf.DNSNames; !slices.Contains(names, "s1.example.org") {
		t.Errorf("it is for %v", names)
	}
	if err := errors.Join(os.Rename(f.Cert, f.Cert+".lost"), os.WriteFile(f.Cert, old, 0o644)); err != nil {
		t.Fatal(err)
	}
	if Renew(dir, "s1", Renewal{}) == nil {
		t.Error("a certificate of another key was renewed")
	}
}

func TestRenewalChangesHosts(t *testing.T) {
	dir := newPKI(t)
	if err := Renew(dir, "server", Renewal{Hosts: []string{"s1.example.org"}}); err != nil {
		t.Fatal(err)
	}
	leaf := readPair(t, FilesIn(dir, "server")).Leaf
	for _, host := range []string{"s1.example.org", "localhost", "server"} {
		if err := leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
}

// TestAFileIsReplacedByManyAtOnce: all succeed, and a reader finds the whole content of one.
func TestAFileIsReplacedByManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	content := func(i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%3d\n", i), 4096) }
	if err := ReplaceFile(path, content(0), 0o600); err != nil {
		t.Fatal(err)
	}
	var writers, reader sync.WaitGroup
	done := make(chan struct{})
	reader.Go(func() {
		for {
			got, err := os.ReadFile(path)
			if err != nil || len(got) != len(content(0)) || !bytes.Equal(got, bytes.Repeat(got[:4], 4096)) {
				t.Errorf("a reader found %d bytes: %v", len(got), err)
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for i := range 100 {
		writers.Go(func() {
			if err := ReplaceFile(path, content(i), 0o600); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	close(done)
	reader.Wait()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left are %v, %v", entries, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
}

// TestLeftoversOfWritesAreRemoved: those of interrupted ones, and of no other file.
func TestLeftoversOfWritesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-2 * leftoverAge)
	write := func(name string, at time.Time) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte("half"), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	digits := strings.Repeat("A", freshDigits-1)
	for _, name := range []string{"key.new", "key.new-" + digits + "A", "key.new-" + digits + "B", "key.new-2026", "other.new-" + digits + "A"} {
		write(name, old)
	}
	write("key.new-"+digits+"C", time.Now()) // perhaps of another process that is in the middle of it
	if err := ReplaceFile(filepath.Join(dir, "key"), []byte("whole"), 0o600); err != nil {
		t.Fatal(err)
	}
	var names []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"key", "key.new-2026", "key.new-" + digits + "C", "other.new-" + digits + "A"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("left are %q, want %q: %v", names, want, err)
	}
}
