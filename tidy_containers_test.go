package rota_test

import (
	"os/exec"
	"strings"
	"testing"
)

// compiledMethods counts the methods of B-trees that a package compiles for itself.
func compiledMethods(t *testing.T, pkg string) int {
	t.Helper()
	archive, err := exec.Command("go", "list", "-export", "-f", "{{.Export}}", pkg).Output()
	if err != nil {
		t.Fatalf("go list -export %s: %v", pkg, err)
	}
	symbols, err := exec.Command("go", "tool", "nm", strings.TrimSpace(string(archive))).Output()
	if err != nil {
		t.Fatalf("go tool nm of %s: %v", pkg, err)
	}
	return strings.Count(string(symbols), "btree.(*")
}

// TestTheContainersOfTheStateAreCompiledOnce: a package that can see the generic types
// behind a state.State compiles their thousands of methods once more, which took most
// of the time of a build.
func TestTheContainersOfTheStateAreCompiledOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles packages")
	}
	if n := compiledMethods(t, "rota/fsm/state"); n == 0 {
		t.Fatal("no method of a B-tree found in fsm/state: look for them elsewhere")
	}
	for _, pkg := range []string{"rota/server/lease", "rota/server/dispatch"} {
		if n := compiledMethods(t, pkg); n > 0 {
			t.Errorf("%s compiles %d methods of the B-trees in fsm/state: hide their types, as db in fsm/state/state.go does", pkg, n)
		}
	}
}
