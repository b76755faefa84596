package pid1

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Commands may put anything in the place of /etc/passwd. The first process is not in the cgroup of
// an attempt, so it must neither wait for it nor read it whole.
func TestTablesOfUsersAreBounded(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("good"), []byte("worker:x:1000:1000::/work:/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("sparse"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(at("sparse"), 1<<40); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", at("device")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"good": "", "missing": "", "pipe": "not a regular file", "device": "not a regular file", "sparse": "more than", ".": "not a regular file",
	} {
		text, err := readTable(at(name))
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "good" && !strings.HasPrefix(text, "worker:") || err != nil && text != "" {
			t.Errorf("%s has %q", name, text)
		}
	}
}

func TestAccountsAreFound(t *testing.T) {
	const passwd = "root:x:0:0:root:/root:/bin/sh\nbad\nworker:x:1000:1001::/work:/bin/sh\nhuge:x:4294967296:0::/:\n"
	const group = "root:x:0:\nstaff:x:50:worker,other\nworker:x:1001:worker\n"
	for text, want := range map[string]account{
		"":                   {name: "root", home: "/root"},
		"worker":             {uid: 1000, gid: 1001, groups: []uint32{50}, name: "worker", home: "/work"},
		"1000:staff":         {uid: 1000, gid: 50, name: "worker", home: "/work"},
		"4242":               {uid: 4242, name: "4242", home: "/"},
		"4242:7":             {uid: 4242, gid: 7, name: "4242", home: "/"},
		"nobody":             {},
		"huge":               {},
		"-1":                 {},
		"worker:nobody":      {},
		"4294967295":         {}, // the kernel takes it for "leave it as it is"
		"worker:99999999999": {},
	} {
		got, err := accountOf(text, passwd, group)
		if known := want.name != ""; known != (err == nil) || known && (got.uid != want.uid || got.gid != want.gid || got.home != want.home || len(got.groups) != len(want.groups)) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}
