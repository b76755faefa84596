package observe

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rota/internal/telemetry"
)

// TestReadinessFollowsTheCluster: all are ready; without a majority the server that is left is
// not, and says why; it is alive all the same.
func TestReadinessFollowsTheCluster(t *testing.T) {
	w := newWorld(t, 3)
	for _, addr := range append(w.cluster.Addrs(), w.agent) {
		w.until(addr+" is ready", func() bool { status, _ := w.get(addr, "/readyz"); return status == 200 })
		if out, err := w.rota("operator", "ready", "--addr", addr); err != nil {
			t.Errorf("%s: %v %s", addr, err, out)
		}
	}
	left := w.cluster.Servers[2].Addr
	for _, p := range w.cluster.Servers[:2] {
		p.Signal(syscall.SIGKILL)
	}
	w.until("the last server is not ready", func() bool { status, _ := w.get(left, "/readyz"); return status == 503 })
	_, text := w.get(left, "/readyz")
	var h telemetry.Health
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		t.Fatal(err)
	}
	failed := map[string]string{}
	for _, c := range h.Checks {
		if !c.OK {
			failed[c.Name] = c.Reason
		}
	}
	if len(failed) != 1 || !strings.Contains(failed["leader"], "majority") {
		t.Errorf("what is not as it should be: %v", failed)
	}
	if status, text := w.get(left, "/livez"); status != 200 {
		t.Errorf("/livez: %d %s", status, text)
	}
	out, err := w.rota("operator", "ready", "--addr", left, "-o", "json")
	if err == nil || !strings.Contains(out, `"ok":false`) {
		t.Errorf("rota operator ready: %v %s", err, out)
	}
}

// TestTheLogLevelChangesAtRunTime of servers and agents, whose lines are JSON.
func TestTheLogLevelChangesAtRunTime(t *testing.T) {
	w := newWorld(t, 1)
	for _, addr := range []string{w.cluster.Addrs()[0], w.agent} {
		if out, err := w.rota("operator", "log-level", "debug", "--addr", addr, "-o", "json"); err != nil || !strings.Contains(out, `"Level":"debug","Before":"info"`) {
			t.Errorf("%s: %v %s", addr, err, out)
		}
		if out, err := w.rota("operator", "log-level", "--addr", addr); err != nil || !strings.Contains(out, "debug") {
			t.Errorf("%s: %v %s", addr, err, out)
		}
		_, log := w.get(addr, "/debug/logs")
		found := false
		for line := range strings.Lines(log) {
			var entry map[string]any
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				t.Fatalf("%s logs %q: %v", addr, line, err)
			}
			found = found || entry["@message"] == "an operator changed the level of the log"
		}
		if !found {
			t.Errorf("%s did not log the change:\n%s", addr, log)
		}
	}
	if out, err := w.rota("operator", "log-level", "loud"); err == nil || !strings.Contains(err.Error(), "levels are") {
		t.Errorf("level loud: %v %s", err, out)
	}
}

// TestADebugBundleOfAClusterWithAServerDown has the files of all that answer, names what is
// missing, and nothing of what actions contain.
func TestADebugBundleOfAClusterWithAServerDown(t *testing.T) {
	w := newWorld(t, 3)
	w.work()
	w.cluster.Servers[0].Signal(syscall.SIGKILL)
	down := strings.ReplaceAll(w.cluster.Servers[0].Addr, ":", "-")
	file := filepath.Join(t.TempDir(), "bundle.tgz")
	out, err := w.rota("operator", "debug", "--file", file, "--agents", w.agent, "--cpu", "1s", "-o", "json",
		"--addr", w.cluster.Servers[1].Addr) // the others are found
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files := bundle(t, file)
	for _, addr := range []string{w.cluster.Servers[1].Addr, w.cluster.Servers[2].Addr, w.agent} {
		for _, name := range []string{"readyz.json", "metrics.txt", "state.json", "config.json", "log.txt", "heap.pprof", "goroutines.txt", "cpu.pprof"} {
			if len(files["rota-debug/"+strings.ReplaceAll(addr, ":", "-")+"/"+name]) == 0 {
				t.Errorf("%s has no %s", addr, name)
			}
		}
	}
	var manifest struct {
		Files   []struct{ Name string }
		Missing map[string]string
	}
	if err := json.Unmarshal(files["rota-debug/manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Files) != len(files)-1 || manifest.Missing[down+"/readyz.json"] == "" {
		t.Errorf("the manifest names %d of %d files, and is missing %v", len(manifest.Files), len(files)-1, manifest.Missing)
	}
	for name, data := range files {
		if strings.Contains(string(data), "hunter2") || strings.Contains(string(data), "SECRET_OF_AN_ACTION") {
			t.Errorf("%s contains the environment of an action", name)
		}
	}
	if _, err := w.rota("operator", "debug", "--file", file); err == nil {
		t.Error("a bundle was overwritten")
	}
}

// bundle reads all files of an archive.
func bundle(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSIGHUPReadsTheConfigFileAgain: a new log level applies, and a wrong file changes nothing.
func TestSIGHUPReadsTheConfigFileAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(`{}`)
	w := newWorld(t, 1, "--config", file)
	server := w.cluster.Servers[0]
	reads := func(what string) {
		t.Helper()
		w.until(what, func() bool { _, log := w.get(server.Addr, "/debug/logs"); return strings.Contains(log, what) })
	}
	level := func(want string) {
		t.Helper()
		if _, got := w.get(server.Addr, "/debug/log-level"); strings.TrimSpace(got) != want {
			t.Errorf("the level is %q, want %s", got, want)
		}
	}
	write(`{"server": {"log-level": "debug"}}`)
	server.Signal(syscall.SIGHUP)
	reads("the config file was read again")
	level("debug")
	write(`{"server": {"log-lvel": "warn"}}`)
	server.Signal(syscall.SIGHUP)
	reads("the config file is wrong")
	level("debug")
}
