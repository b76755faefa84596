package main

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rota/cmd/internal/cli"
)

func TestMain(m *testing.M) {
	// Scripts run this test binary as rota; so do clusters that it starts.
	testscript.Main(m, map[string]func(){
		"rota": func() { os.Exit(cli.Main(os.Args[1:])) },
		"code": printCode,
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script"})
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
