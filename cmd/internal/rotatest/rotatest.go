package rotatest

import (
	"context"
	"fmt"
	"os"
	"testing"

	"rota/jepsen/cluster"
)

var binary string

// Main builds rota, runs the tests and returns their exit code, for TestMain.
func Main(m *testing.M) int {
	dir, err := os.MkdirTemp("", "rota-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binary, err = cluster.Build(context.Background(), dir, cluster.BuildOptions{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Binary returns the path of the rota that Main has built.
func Binary(t testing.TB) string {
	t.Helper()
	if err := cluster.LookAtSources(); err != nil {
		t.Fatal(err)
	}
	return binary
}
