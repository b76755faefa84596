package main

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"rota/cmd/internal/cli"
)

func TestMain(m *testing.M) {
	// Scripts run this test binary as rota; so do clusters that it starts.
	testscript.Main(m, map[string]func(){
		"rota": func() { os.Exit(cli.Main(os.Args[1:])) },
		// An agent starts its supervisor as /proc/self/exe.
		"exe":  func() { os.Exit(cli.Main(os.Args[1:])) },
		"code": printCode,
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			// A program with the race detector sleeps for a second before it ends.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			objects := httptest.NewServer(&objectStore{objects: map[string][]byte{}})
			env.Defer(objects.Close)
			env.Setenv("OBJECT_STORE", objects.URL)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"cluster-ready": clusterReady,
			"fill-cores":    fillCores,
			"waiting-for":   waitingFor,
			"cancel-all":    cancelAll,
			"await-text":    awaitText,
		},
	})
}

// patience is for what must happen but takes its time on a slow machine.
const patience = 60 * time.Second

// until repeats a check until it holds.
func until(ts *testscript.TestScript, what string, check func() bool) {
	for deadline := time.Now().Add(patience); !check(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// clusterReady waits for the cluster that `rota dev --dir $WORK/dev` starts in
// the background, and points ROTA_ADDR at it.
func clusterReady(ts *testscript.TestScript, _ bool, _ []string) {
	ready := filepath.Join(ts.Getenv("WORK"), "dev", "ready.json")
	var info struct{ Addr string }
	until(ts, "the cluster is ready", func() bool {
		raw, err := os.ReadFile(ready)
		return err == nil && json.Unmarshal(raw, &info) == nil && info.Addr != ""
	})
	ts.Setenv("ROTA_ADDR", info.Addr)
	first, _, _ := strings.Cut(info.Addr, ",")
	ts.Setenv("FIRST_SERVER", first)
}

// fillCores takes every core, so that what comes after has to wait.
func fillCores(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Check(ts.Exec("rota", "node", "get", "node-1", "-o", "json"))
	var node struct{ NumaNodes []struct{ Cpus []int } }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &node))
	for _, numa := range node.NumaNodes { // an action's cores are all of one
		ts.Check(ts.Exec("rota", "run", "--detach", "--cores", fmt.Sprint(len(numa.Cpus)), "--", "sleep", "300"))
		id := strings.TrimSpace(ts.ReadFile("stdout"))
		until(ts, "action "+id+" holds its cores", func() bool {
			ts.Check(ts.Exec("rota", "action", "get", id))
			return strings.Contains(ts.ReadFile("stdout"), "running")
		})
	}
}

// waitingFor checks that an action says what it waits for.
func waitingFor(ts *testscript.TestScript, _ bool, args []string) {
	id := strings.TrimSpace(ts.ReadFile(args[0]))
	ts.Check(ts.Exec("rota", "action", "get", id))
	if out := ts.ReadFile("stdout"); !strings.Contains(out, "waiting for") || !strings.Contains(out, "core") {
		ts.Fatalf("action %s does not say that it waits for cores:\n%s", id, out)
	}
}

// awaitText waits until a file has a text.
func awaitText(ts *testscript.TestScript, _ bool, args []string) {
	until(ts, args[0]+" has "+args[1], func() bool {
		text, _ := os.ReadFile(ts.MkAbs(args[0])) // may not be there yet
		return strings.Contains(string(text), args[1])
	})
}

// cancelAll cancels everything that has not ended and waits for the end.
func cancelAll(ts *testscript.TestScript, _ bool, _ []string) {
	until(ts, "all actions have ended", func() bool {
		ts.Check(ts.Exec("rota", "action", "list", "--state", "queued,running", "-o", "json"))
		var list struct{ Actions []struct{ ID string } }
		ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &list))
		for _, a := range list.Actions {
			ts.Check(ts.Exec("rota", "action", "cancel", a.ID))
		}
		return len(list.Actions) == 0
	})
}

// printCode runs a command and prints its exit code, which scripts cannot see
// otherwise.
func printCode() {
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(cmd.ProcessState.ExitCode())
}
