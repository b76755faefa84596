package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rota/agent/tier"
	"rota/agent/tier/resp"
)

func TestTierStat(t *testing.T) {
	s, err := tier.Open(tier.Options{MemoryBytes: 8 << 20, Dir: t.TempDir(), DiskBytes: 64 << 20, BootID: "boot"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	dir := t.TempDir()
	address, passwordFile := "unix:"+filepath.Join(dir, "kv.sock"), filepath.Join(dir, "password")
	if err := os.WriteFile(passwordFile, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := resp.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = (&resp.Server{Store: s, Password: "secret"}).Serve(ctx, l)
	}()
	defer func() { cancel(); <-done }()
	for _, key := range []string{"a", "b"} {
		v, err := s.NewValue(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		clear(v.Bytes())
		if _, err := s.Set(key, v, time.Time{}, tier.Always); err != nil {
			t.Fatal(err)
		}
		s.Get(key).Release()
	}
	s.Get("c")
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		root := (&app{out: &out, err: &out}).root()
		root.SetArgs(append([]string{"tier", "stat", "--address", address}, args...))
		err := root.Execute()
		return out.String(), err
	}
	if _, err := run(); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("without a password: %v", err)
	}
	text, err := run("--password-file", passwordFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"TIER", "memory  1MiB", "Deduplication  2.00 (2MiB of values, 1MiB stored)", "Misses         1"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	text, err = run("--password-file", passwordFile, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var st tierStat
	if err := json.Unmarshal([]byte(text), &st); err != nil {
		t.Fatal(err)
	}
	if st.Keys != 2 || st.Memory.Items != 1 || st.Memory.Hits != 2 || st.Misses != 1 || st.DedupeRatio != 2 || st.Disk.BytesMax != 64<<20 {
		t.Errorf("%+v", st)
	}
}

// TestTheFilesOfACache are shown where there are any.
func TestTheFilesOfACache(t *testing.T) {
	for mounted, want := range map[string]string{"": "", "true": "[{Files /kv}]", "false": "[{Files /kv, not mounted; the log of the agent says why}]"} {
		fields := map[string]string{}
		if mounted != "" {
			fields = map[string]string{"files_directory": "/kv", "files_mounted": mounted}
		}
		got := ""
		if f := readTier(fields).filesField(); f != nil {
			got = fmt.Sprint(f)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", mounted, got, want)
		}
	}
}
