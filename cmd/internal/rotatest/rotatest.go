package rotatest

import (
	"context"
	"fmt"
	"os"
	"testing"

	"rota/jepsen/cluster"
)

// Main builds rota, tells where it is, runs the tests and returns their exit
// code, for TestMain.
func Main(m *testing.M, binary *string) int {
	dir, err := os.MkdirTemp("", "rota-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if *binary, err = cluster.Build(context.Background(), dir, cluster.BuildOptions{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
