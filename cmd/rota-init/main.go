// Rota-init is the first process of a sandbox. The agent mounts it into each container; it is
// of no use elsewhere.
package main

import (
	"fmt"
	"os"

	"rota/agent/runtime/container/pid1"
)

func main() {
	fmt.Fprintln(os.Stderr, "rota-init:", pid1.Main())
	os.Exit(1)
}
