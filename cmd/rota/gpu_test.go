//go:build nvml

package main

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rota/internal/need"
)

// TestGPUScripts runs clusters that use the GPU of this machine.
func TestGPUScripts(t *testing.T) {
	python := need.Torch(t)
	out, err := exec.Command("nvidia-smi", "-i", "0", "--query-gpu=uuid,name", "--format=csv,noheader").Output()
	if err != nil {
		t.Fatal(err)
	}
	uuid, name, _ := strings.Cut(strings.TrimSpace(string(out)), ", ")
	if python, err = filepath.Abs(python); err != nil {
		t.Fatal(err)
	}
	library, err := filepath.Abs("../../api/python")
	if err != nil {
		t.Fatal(err)
	}
	setup := func(env *testscript.Env) error {
		for i := range 4 {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			_, port, _ := net.SplitHostPort(l.Addr().String())
			env.Setenv(fmt.Sprintf("P%d", i+1), port)
			defer l.Close()
		}
		env.Setenv("LIBRARY", library)
		env.Setenv("PYTHON", python)
		env.Setenv("UUID", uuid)
		env.Setenv("CLASS", strings.ReplaceAll(strings.TrimPrefix(name, "NVIDIA "), " ", "-"))
		return nil
	}
	for _, script := range []string{"cluster", "state"} { // each has the GPU for itself
		t.Run(script, func(t *testing.T) {
			testscript.Run(t, testscript.Params{
				Files: []string{"testdata/gpu/" + script + ".txt"}, Setup: setup,
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"cluster-ready": clusterReady, "await-text": awaitText, "await-ended": awaitEnded, "await-gpus": awaitGPUs,
				},
			})
		})
	}
}

// awaitGPUs waits until a node with GPUs is up.
func awaitGPUs(ts *testscript.TestScript, _ bool, _ []string) {
	until(ts, "a node has GPUs", func() bool { return ts.Exec("rota", "gpu", "list") == nil })
}

// awaitEnded waits until an action has succeeded.
func awaitEnded(ts *testscript.TestScript, _ bool, args []string) {
	until(ts, "action "+args[0]+" succeeds", func() bool {
		ts.Check(ts.Exec("rota", "action", "get", args[0]))
		out := ts.ReadFile("stdout")
		if strings.Contains(out, "failed") {
			ts.Fatalf("action %s:\n%s", args[0], out)
		}
		return strings.Contains(out, "succeeded")
	})
}
