package netns

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"rota/cmd/internal/rotatest"
	"rota/jepsen/cluster"
)

func TestMain(m *testing.M) {
	// Where it cannot be done the tests are skipped, by what they need.
	if err := cluster.Isolate(); err != nil && !errors.Is(err, cluster.ErrCannotIsolate) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(rotatest.Main(m))
}
