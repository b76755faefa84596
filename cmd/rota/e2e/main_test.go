package e2e

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"rota/cmd/internal/rotatest"
)

// worlds is how many clusters run at the same time: they mostly wait, for
// elections and for leases to end.
const worlds = "6"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		if err := worker(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if err := flag.Set("test.parallel", worlds); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(rotatest.Main(m))
}
